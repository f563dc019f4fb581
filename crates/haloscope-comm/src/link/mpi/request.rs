//! The few MPI functions that the link calls, made safe: buffers belong to their requests.
//!
//! The link holds its lock around every use, as `MPI_THREAD_SERIALIZED` demands.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use mpi::ffi;

use crate::error::{Error, Result};

/// A communicator of our own with all processes of the job.
#[derive(Debug)]
pub(super) struct Communicator {
    handle: ffi::MPI_Comm,
    largest_tag: c_int,
}

// SAFETY: a handle may be used by any thread of a process, one at a time; the link's lock sees to it.
unsafe impl Send for Communicator {}
// SAFETY: as above.
unsafe impl Sync for Communicator {}

impl Communicator {
    /// Whether a communicator has the processes of the world, in their order.
    pub(super) fn is_world(of: ffi::MPI_Comm) -> Result<bool> {
        let mut relation = 0;
        // SAFETY: both communicators are valid; the rest are constants of the library.
        unsafe {
            check(ffi::MPI_Comm_compare(of, ffi::RSMPI_COMM_WORLD, &raw mut relation))?;
            Ok([ffi::RSMPI_IDENT, ffi::RSMPI_CONGRUENT].contains(&relation))
        }
    }

    /// A duplicate of a communicator, or of the world, so that our messages cannot meet those of the rest of the program.
    /// All ranks must make one within the deadline.
    pub(super) fn duplicate(of: Option<ffi::MPI_Comm>, deadline: Duration) -> Result<Self> {
        let begin = Instant::now();
        // SAFETY: reads a constant of the library.
        let of = of.unwrap_or(unsafe { ffi::RSMPI_COMM_WORLD });
        // MPI writes the handle when the request is complete, so it must stay where it is; if the
        // others do not come, it is left to MPI for good.
        // SAFETY: reads a constant of the library.
        let handle = Box::leak(Box::new(unsafe { ffi::RSMPI_COMM_NULL }));
        let mut request = Request::new(Vec::new());
        // SAFETY: MPI is initialised, and both handles live until the request is complete.
        unsafe {
            check(ffi::MPI_Comm_idup(of, handle, &raw mut request.handle))?;
        }
        while request.test()?.is_none() {
            if begin.elapsed() > deadline {
                return Err(Error::Setup(format!(
                    "not all ranks have started within {} s",
                    deadline.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        // SAFETY: made by `Box::leak` above, and MPI is done with it.
        let handle = *unsafe { Box::from_raw(handle) };
        // SAFETY: the communicator is valid. Errors come back as codes, not as an abort.
        unsafe { check(ffi::MPI_Comm_set_errhandler(handle, ffi::RSMPI_ERRORS_RETURN))? };
        Ok(Self { handle, largest_tag: largest_tag(handle)? })
    }

    /// Tags are from 0 to this.
    pub(super) fn largest_tag(&self) -> c_int {
        self.largest_tag
    }

    pub(super) fn rank(&self) -> usize {
        let mut rank = 0;
        // SAFETY: the communicator is valid.
        unsafe { ffi::MPI_Comm_rank(self.handle, &raw mut rank) };
        rank as usize
    }

    pub(super) fn size(&self) -> usize {
        let mut size = 0;
        // SAFETY: the communicator is valid.
        unsafe { ffi::MPI_Comm_size(self.handle, &raw mut size) };
        size as usize
    }

    /// Begins to send the first `bytes` bytes of `buffer`.
    pub(super) fn send(
        &self,
        to: usize,
        tag: c_int,
        buffer: Vec<u64>,
        bytes: usize,
    ) -> Result<Request> {
        debug_assert!(bytes <= size_of_val(&buffer[..]));
        let mut request = Request::new(buffer);
        // SAFETY: the buffer lives until the request is complete, or for ever: see `Request`.
        unsafe {
            check(ffi::MPI_Isend(
                request.buffer.as_ptr().cast(),
                bytes as c_int,
                ffi::RSMPI_UINT8_T,
                to as c_int,
                tag,
                self.handle,
                &raw mut request.handle,
            ))?;
        }
        request.is_active = true;
        Ok(request)
    }

    /// Begins to receive into `buffer`, from one rank or from any.
    pub(super) fn receive(
        &self,
        from: Option<usize>,
        tag: c_int,
        buffer: Vec<u64>,
    ) -> Result<Request> {
        let mut request = Request::new(buffer);
        let bytes = size_of_val(&request.buffer[..]);
        // SAFETY: the buffer lives until the request is complete, or for ever: see `Request`.
        unsafe {
            check(ffi::MPI_Irecv(
                request.buffer.as_mut_ptr().cast(),
                bytes as c_int,
                ffi::RSMPI_UINT8_T,
                from.map_or(ffi::RSMPI_ANY_SOURCE, |rank| rank as c_int),
                tag,
                self.handle,
                &raw mut request.handle,
            ))?;
        }
        request.is_active = true;
        Ok(request)
    }

    /// Ends all processes of the job, with exit code 1.
    ///
    /// `MPI_Abort` itself can hang (MPICH's does while a message to a stuck process is under way).
    /// Then this process ends alone, and the launcher, seeing that, ends the others.
    pub(super) fn abort(&self) -> ! {
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(500));
            exit_now();
        });
        // SAFETY: MPI is initialised and the communicator valid.
        unsafe { ffi::MPI_Abort(self.handle, 1) };
        exit_now()
    }

    /// Gives the communicator back; it is not used afterwards.
    pub(super) fn free(&self) {
        let mut handle = self.handle;
        // SAFETY: no request on the communicator is active any more, and MPI is still initialised.
        unsafe { ffi::MPI_Comm_free(&raw mut handle) };
    }
}

/// A message on its way, and the memory that it goes from or to.
///
/// MPI may use the memory until the request is complete. A request that is dropped before that
/// leaks it: that happens only after a failure, shortly before the process ends.
#[derive(Debug)]
pub(super) struct Request {
    handle: ffi::MPI_Request,
    buffer: Vec<u64>,
    is_active: bool,
}

// SAFETY: as for `Communicator`.
unsafe impl Send for Request {}

impl Request {
    fn new(buffer: Vec<u64>) -> Self {
        // SAFETY: reads a constant of the library.
        let handle = unsafe { ffi::RSMPI_REQUEST_NULL };
        Self { handle, buffer, is_active: false }
    }

    /// The bytes that have arrived, if the request is complete; 0 for a send.
    pub(super) fn test(&mut self) -> Result<Option<usize>> {
        let (mut done, mut bytes) = (0, 0);
        let mut status = MaybeUninit::<ffi::MPI_Status>::zeroed();
        // SAFETY: the request is active or null; the status is read only where MPI has written it.
        unsafe {
            check(ffi::MPI_Test(&raw mut self.handle, &raw mut done, status.as_mut_ptr()))?;
            if done == 0 {
                return Ok(None);
            }
            self.is_active = false;
            check(ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT8_T, &raw mut bytes))?;
        }
        Ok(Some(usize::try_from(bytes).unwrap_or(0)))
    }

    /// The memory of a complete request.
    pub(super) fn take_buffer(&mut self) -> Vec<u64> {
        debug_assert!(!self.is_active, "MPI still uses the memory");
        std::mem::take(&mut self.buffer)
    }

    /// Withdraws a receive that nothing will be sent to.
    pub(super) fn cancel(&mut self) {
        if !self.is_active {
            return;
        }
        // SAFETY: the request is active; waiting for a cancelled receive returns at once.
        unsafe {
            ffi::MPI_Cancel(&raw mut self.handle);
            ffi::MPI_Wait(&raw mut self.handle, ffi::RSMPI_STATUS_IGNORE);
        }
        self.is_active = false;
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.is_active {
            std::mem::forget(std::mem::take(&mut self.buffer));
        }
    }
}

fn largest_tag(comm: ffi::MPI_Comm) -> Result<c_int> {
    let (mut value, mut is_there) = (std::ptr::null_mut::<c_int>(), 0);
    // SAFETY: the attribute is a pointer to an `int` that lives as long as MPI.
    unsafe {
        let target = (&raw mut value).cast();
        check(ffi::MPI_Comm_get_attr(comm, ffi::MPI_TAG_UB as c_int, target, &raw mut is_there))?;
        // What the standard guarantees, should a library not say.
        Ok(if is_there == 0 || value.is_null() { 32_767 } else { *value })
    }
}

fn check(code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // Enough for the longest message of either library (256 and 512).
    let mut text = [0_u8; 1024];
    let mut length = 0;
    // SAFETY: the buffer is larger than `MPI_MAX_ERROR_STRING` of the libraries that we support.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast::<c_char>(), &raw mut length) };
    let text = &text[..usize::try_from(length).unwrap_or(0).min(text.len())];
    Err(Error::Transport(String::from_utf8_lossy(text).into_owned()))
}

/// Ends this process without running exit handlers, which may belong to a stuck library.
fn exit_now() -> ! {
    // SAFETY: ends the process; nothing follows.
    unsafe { libc::_exit(1) }
}

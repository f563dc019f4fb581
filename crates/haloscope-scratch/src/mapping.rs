//! A file without a name, all of it mapped into memory: its pages, and how they go to the disk and back.

use std::ffi::CStr;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The smallest page of any system, of which all others are multiples.
pub(crate) const SMALLEST_PAGE: usize = 4096;

/// The bytes of a page of this system.
pub(crate) fn page() -> usize {
    static PAGE: AtomicUsize = AtomicUsize::new(0);
    match PAGE.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: a question with a number as its answer.
            let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
            let bytes = usize::try_from(bytes).unwrap_or(0).max(SMALLEST_PAGE);
            PAGE.store(bytes, Ordering::Relaxed);
            bytes
        }
        bytes => bytes,
    }
}

/// A mapped file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    pub(crate) start: usize,
    /// A multiple of the page.
    pub(crate) bytes: usize,
    file: libc::c_int,
    /// No other mapping has or had it.
    pub(crate) serial: u64,
}

/// The number of the next mapping.
static SERIAL: AtomicU64 = AtomicU64::new(1);

impl Mapping {
    /// None at all.
    pub(crate) const NONE: Self = Self { start: 0, bytes: 0, file: -1, serial: 0 };

    /// A file of zeros in a folder, with its room on the disk.
    pub(crate) fn new(folder: &CStr, bytes: usize) -> io::Result<Self> {
        let file = nameless(folder)?;
        Self::of(file, bytes).inspect_err(|_| {
            // SAFETY: it was just opened, and nobody else has it.
            unsafe { libc::close(file) };
        })
    }

    fn of(file: libc::c_int, bytes: usize) -> io::Result<Self> {
        let bytes = bytes.next_multiple_of(page());
        reserve(file, bytes)?;
        // SAFETY: a new mapping of a file that has so many bytes.
        let start = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        Ok(Self { start: start as usize, bytes, file, serial })
    }

    /// The same file with another size, maybe elsewhere in memory.
    pub(crate) fn resized(self, bytes: usize) -> io::Result<Self> {
        let bytes = bytes.next_multiple_of(page());
        if bytes > self.bytes {
            reserve(self.file, bytes)?;
        }
        // SAFETY: the mapping is this one, and its pages may move.
        let start =
            unsafe { libc::mremap(self.start as *mut _, self.bytes, bytes, libc::MREMAP_MAYMOVE) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if bytes < self.bytes {
            // SAFETY: a number of a file and a length.
            unsafe { libc::ftruncate(self.file, bytes as libc::off_t) };
        }
        Ok(Self { start: start as usize, bytes, ..self })
    }

    /// Gives up the memory and the file; what was not written back never is.
    pub(crate) fn free(self) {
        // SAFETY: nobody uses the array any more, and the file is its own.
        unsafe {
            libc::munmap(self.start as *mut _, self.bytes);
            libc::close(self.file);
        }
    }

    pub(crate) fn has(&self, place: usize) -> bool {
        (self.start..self.start + self.bytes).contains(&place)
    }

    /// Asks for the pages of some bytes, without waiting for them.
    pub(crate) fn fetch(&self, from: usize, bytes: usize) {
        let (from, bytes) = self.pages(from, bytes);
        // SAFETY: the pages are of this mapping; it is advice.
        unsafe { libc::madvise((self.start + from) as *mut _, bytes, libc::MADV_WILLNEED) };
    }

    /// Begins to write back what has changed of some bytes.
    pub(crate) fn begin_writing(&self, from: usize, bytes: usize) -> io::Result<()> {
        self.synchronise(self.pages(from, bytes), libc::SYNC_FILE_RANGE_WRITE)
    }

    /// Writes back what has changed of some bytes.
    pub(crate) fn write(&self, from: usize, bytes: usize) -> io::Result<()> {
        let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        self.synchronise(self.pages(from, bytes), all)
    }

    /// Takes the pages of some bytes from the array.
    ///
    /// # Safety
    /// The mapping has not been given up: the pages of anything else that lies there now would be lost.
    pub(crate) unsafe fn unmap_pages(&self, from: usize, bytes: usize) {
        let (from, bytes) = self.pages(from, bytes);
        // SAFETY: the pages are of this mapping, which is shared with its file: they are there when they are read again.
        unsafe { libc::madvise((self.start + from) as *mut _, bytes, libc::MADV_DONTNEED) };
    }

    /// Drops the pages of some bytes that no array has and that were written back. Others stay.
    pub(crate) fn drop_pages(&self, from: usize, bytes: usize) {
        let (from, bytes) = self.pages(from, bytes);
        let (offset, length) = (from as libc::off_t, bytes as libc::off_t);
        // SAFETY: numbers of a file and of its bytes; it is advice.
        unsafe { libc::posix_fadvise(self.file, offset, length, libc::POSIX_FADV_DONTNEED) };
    }

    /// Whether pages of some bytes are in memory. `seen` is room for one byte for each page.
    pub(crate) fn is_resident(&self, from: usize, bytes: usize, seen: &mut [u8]) -> bool {
        let (from, bytes) = self.pages(from, bytes);
        let bytes = bytes.min(seen.len() * page());
        // SAFETY: the pages are of this mapping, and there is a byte for each.
        let status =
            unsafe { libc::mincore((self.start + from) as *mut _, bytes, seen.as_mut_ptr()) };
        status != 0 || seen[..bytes.div_ceil(page())].iter().any(|page| page & 1 == 1)
    }

    fn synchronise(&self, (from, bytes): (usize, usize), how: libc::c_uint) -> io::Result<()> {
        // SAFETY: numbers of a file and of its bytes.
        let status = unsafe {
            libc::sync_file_range(self.file, from as libc::off64_t, bytes as libc::off64_t, how)
        };
        match (status, io::Error::last_os_error()) {
            (0, _) => Ok(()),
            // Systems and file systems that only know whole files.
            (_, error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) => {
                loop {
                    // SAFETY: the number of a file.
                    let status = unsafe { libc::fdatasync(self.file) };
                    match (status, io::Error::last_os_error()) {
                        (0, _) => return Ok(()),
                        (_, error) if error.kind() == io::ErrorKind::Interrupted => {}
                        (_, error) => return Err(error),
                    }
                }
            }
            (_, error) => Err(error),
        }
    }

    /// The whole pages of some bytes: where they begin, and how many bytes they have.
    fn pages(&self, from: usize, bytes: usize) -> (usize, usize) {
        let first = from / page() * page();
        let end = (from + bytes).next_multiple_of(page()).min(self.bytes);
        (first, end.saturating_sub(first))
    }
}

/// An open file that has no name, or none any more.
fn nameless(folder: &CStr) -> io::Result<libc::c_int> {
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_EXCL | libc::O_CLOEXEC;
    // SAFETY: a string that ends with a zero, and numbers.
    let file = unsafe { libc::open(folder.as_ptr(), flags, 0o600) };
    if file >= 0 {
        return Ok(file);
    }
    let error = io::Error::last_os_error();
    if !matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)) {
        return Err(error);
    }
    // File systems without such files get one whose name is removed at once.
    let mut path = [folder.to_bytes(), b"/haloscope-XXXXXX\0"].concat();
    // SAFETY: the path ends with a zero and has the six letters that are replaced.
    unsafe {
        let file = libc::mkostemp(path.as_mut_ptr().cast(), libc::O_CLOEXEC);
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        libc::unlink(path.as_ptr().cast());
        Ok(file)
    }
}

/// Makes a file as long as that, with its room on the disk.
fn reserve(file: libc::c_int, bytes: usize) -> io::Result<()> {
    loop {
        // SAFETY: numbers of a file and of its bytes.
        match unsafe { libc::posix_fallocate(file, 0, bytes as libc::off_t) } {
            0 => return Ok(()),
            // A signal came.
            libc::EINTR => {}
            number => return Err(io::Error::from_raw_os_error(number)),
        }
    }
}

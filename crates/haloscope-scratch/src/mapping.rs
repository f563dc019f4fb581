//! A file without a name, all of it mapped into memory: its pages, and how they go to the disk and back.

use std::ffi::CStr;
use std::io;

/// The unit in which memory is mapped. Pages of other sizes are multiples of it, for which all calls here round outwards.
pub(crate) const PAGE: usize = 4096;

/// A mapped file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    pub(crate) start: usize,
    /// A multiple of the page.
    pub(crate) bytes: usize,
    file: libc::c_int,
}

impl Mapping {
    /// A file of zeros in a folder, with its room on the disk.
    pub(crate) fn new(folder: &CStr, bytes: usize) -> io::Result<Self> {
        let file = nameless(folder)?;
        Self::of(file, bytes).inspect_err(|_| {
            // SAFETY: it was just opened, and nobody else has it.
            unsafe { libc::close(file) };
        })
    }

    fn of(file: libc::c_int, bytes: usize) -> io::Result<Self> {
        let bytes = bytes.next_multiple_of(PAGE);
        reserve(file, bytes)?;
        // SAFETY: a new mapping of a file that has so many bytes.
        let start = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start: start as usize, bytes, file })
    }

    /// The same file with another size, maybe elsewhere in memory.
    pub(crate) fn resized(self, bytes: usize) -> io::Result<Self> {
        let bytes = bytes.next_multiple_of(PAGE);
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
        Ok(Self { start: start as usize, bytes, file: self.file })
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
    pub(crate) fn begin_writing(&self, from: usize, bytes: usize) {
        let (from, bytes) = self.pages(from, bytes);
        self.synchronise(from, bytes, libc::SYNC_FILE_RANGE_WRITE);
    }

    /// Writes back what has changed of some bytes, and drops their pages. Those that somebody changes meanwhile stay.
    pub(crate) fn release(&self, from: usize, bytes: usize) {
        let (from, bytes) = self.pages(from, bytes);
        let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        self.synchronise(from, bytes, all);
        // SAFETY: the pages are of this mapping, which is shared with its file: they are there when they are read again.
        unsafe {
            libc::madvise((self.start + from) as *mut _, bytes, libc::MADV_DONTNEED);
            let (offset, length) = (from as libc::off_t, bytes as libc::off_t);
            libc::posix_fadvise(self.file, offset, length, libc::POSIX_FADV_DONTNEED);
        }
    }

    /// Whether pages of some bytes are in memory. `seen` is room for one byte for each page.
    pub(crate) fn is_resident(&self, from: usize, bytes: usize, seen: &mut [u8]) -> bool {
        let (from, bytes) = self.pages(from, bytes);
        let bytes = bytes.min(seen.len() * PAGE);
        // SAFETY: the pages are of this mapping, and there is a byte for each.
        let status =
            unsafe { libc::mincore((self.start + from) as *mut _, bytes, seen.as_mut_ptr()) };
        status != 0 || seen[..bytes / PAGE].iter().any(|page| page & 1 == 1)
    }

    fn synchronise(&self, from: usize, bytes: usize, how: libc::c_uint) {
        // An error here is one of writing, which drops nothing: the pages stay in memory.
        // SAFETY: numbers of a file and of its bytes.
        unsafe {
            libc::sync_file_range(self.file, from as libc::off64_t, bytes as libc::off64_t, how)
        };
    }

    /// The whole pages of some bytes: where they begin, and how many bytes they have.
    fn pages(&self, from: usize, bytes: usize) -> (usize, usize) {
        let first = from / PAGE * PAGE;
        let end = (from + bytes).next_multiple_of(PAGE).min(self.bytes);
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
    // SAFETY: numbers of a file and of its bytes.
    match unsafe { libc::posix_fallocate(file, 0, bytes as libc::off_t) } {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

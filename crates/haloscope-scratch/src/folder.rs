//! What is known of a scratch folder before it is used.

use std::io;
use std::path::Path;

/// A folder for scratch files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Bytes that this user can still write there.
    pub free: u64,
    /// Whether its files are themselves in memory (tmpfs).
    pub is_memory: bool,
}

impl Folder {
    /// Looks at a folder, and makes a file there.
    ///
    /// # Errors
    /// If it is none, or nothing can be written there.
    #[cfg(target_os = "linux")]
    pub fn look(folder: &Path) -> io::Result<Self> {
        use std::os::unix::ffi::OsStrExt;

        let path = std::ffi::CString::new(folder.as_os_str().as_bytes())?;
        if !std::fs::metadata(folder)?.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, "it is no folder"));
        }
        // SAFETY: both are plain numbers, for which zeros are values.
        let (mut room, mut kind): (libc::statvfs, libc::statfs) = unsafe { std::mem::zeroed() };
        // SAFETY: a string that ends with a zero, and room for the answers.
        let status = unsafe {
            libc::statvfs(path.as_ptr(), &raw mut room) | libc::statfs(path.as_ptr(), &raw mut kind)
        };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
        crate::mapping::Mapping::new(&path, crate::mapping::page())?.free();
        let is_memory = kind.f_type == libc::TMPFS_MAGIC;
        Ok(Self { free: room.f_bavail.saturating_mul(room.f_frsize), is_memory })
    }

    /// The bytes that can be written there in a second, by a trial of so many.
    ///
    /// # Errors
    /// If there is no room for the trial.
    #[cfg(target_os = "linux")]
    pub fn measure_rate(folder: &Path, bytes: usize) -> io::Result<f64> {
        use std::os::unix::ffi::OsStrExt;

        let path = std::ffi::CString::new(folder.as_os_str().as_bytes())?;
        let mapping = crate::mapping::Mapping::new(&path, bytes)?;
        let begin = std::time::Instant::now();
        // SAFETY: the mapping is this function's own, has so many bytes, and is given up below.
        unsafe { (mapping.start as *mut u8).write_bytes(1, bytes) };
        let outcome = mapping.write(0, bytes);
        let seconds = begin.elapsed().as_secs_f64();
        mapping.free();
        outcome?;
        Ok(bytes as f64 / seconds.max(f64::MIN_POSITIVE))
    }

    /// Refuses: there are no scratch folders on this system.
    #[cfg(not(target_os = "linux"))]
    pub fn measure_rate(_: &Path, _: usize) -> io::Result<f64> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "scratch folders need Linux"))
    }

    /// Refuses: there are no scratch folders on this system.
    #[cfg(not(target_os = "linux"))]
    pub fn look(_: &Path) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "scratch folders need Linux"))
    }
}

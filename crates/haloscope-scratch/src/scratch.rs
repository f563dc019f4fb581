//! A scratch folder while it is in use.

use std::io;
use std::path::{Path, PathBuf};
#[cfg(target_os = "linux")]
use std::sync::Arc;
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Which folder, and how much memory there is beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The folder of the files.
    pub folder: PathBuf,
    /// The bytes that the process should have in memory at most.
    pub limit: u64,
    /// Arrays of at least so many bytes are in files, but none of less than 32 KB.
    pub threshold: usize,
    /// The bytes that are visited in a piece.
    pub piece: usize,
}

impl Options {
    /// For a limit: arrays of more than 1/128 of it are in files, 16 MB at most, and are visited in pieces of 1/32.
    #[must_use]
    pub fn new(folder: &Path, limit: u64) -> Self {
        let share = |part: u64, most: usize| {
            usize::try_from(limit / part).unwrap_or(most).clamp(1 << 16, most)
        };
        let (threshold, piece) = (share(128, 1 << 24), share(32, 1 << 26));
        Self { folder: folder.to_owned(), limit, threshold, piece }
    }
}

/// How many bytes are in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Now.
    pub bytes: u64,
    /// The most since the scratch was opened.
    pub peak: u64,
}

/// Large arrays that are allocated while it lives are in files; see the crate's description.
#[derive(Debug)]
pub struct Scratch {
    /// Ends the thread that watches the limit, when the last user is gone.
    #[cfg(target_os = "linux")]
    alive: Arc<AtomicBool>,
}

#[cfg(target_os = "linux")]
static PIECE: AtomicUsize = AtomicUsize::new(1 << 26);

/// The flag of the thread that watches the limit.
#[cfg(target_os = "linux")]
static KEEPER: std::sync::Mutex<Option<std::sync::Weak<AtomicBool>>> = std::sync::Mutex::new(None);

#[cfg(target_os = "linux")]
pub(crate) fn piece() -> usize {
    PIECE.load(Ordering::Relaxed)
}

#[cfg(target_os = "linux")]
impl Scratch {
    /// Opens a folder. Several may be open in one process, for example by ranks that are threads, if it is the same folder.
    ///
    /// # Errors
    /// If no file can be made there, if the program has not installed the [`Allocator`](crate::Allocator), or if another folder
    /// is open.
    pub fn open(options: &Options) -> io::Result<Self> {
        use std::os::unix::ffi::OsStrExt;

        let folder = std::ffi::CString::new(options.folder.as_os_str().as_bytes())?;
        crate::mapping::Mapping::new(&folder, crate::mapping::page())?.free();
        let mut keeper = KEEPER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut registry = crate::registry::lock();
        match &registry.open {
            Some((open, _)) if registry.users > 0 && *open != options.folder => {
                let reason = format!("{} is in use by another job of this process", open.display());
                return Err(io::Error::other(reason));
            }
            _ => registry.open = Some((options.folder.clone(), folder)),
        }
        registry.users += 1;
        let is_first = registry.users == 1;
        drop(registry);
        allow_files();
        PIECE.store(options.piece.max(crate::mapping::page()), Ordering::Relaxed);
        crate::registry::set_threshold(options.threshold.max(crate::registry::LEAST));
        let running = keeper.as_ref().and_then(std::sync::Weak::upgrade);
        let alive = running.filter(|_| !is_first).unwrap_or_else(|| {
            crate::registry::reset_peak();
            let alive = Arc::new(AtomicBool::new(true));
            *keeper = Some(Arc::downgrade(&alive));
            alive
        });
        drop(keeper);
        let scratch = Self { alive };
        if is_first {
            crate::keeper::start(options.limit, &scratch.alive)?;
        }
        let mut probe: Vec<u8> = Vec::new();
        let size = options.threshold.max(crate::registry::LEAST);
        probe.try_reserve_exact(size).map_err(|_| {
            io::Error::new(io::ErrorKind::StorageFull, format!("it has no room for {size} bytes"))
        })?;
        if !crate::registry::has(probe.as_ptr().cast_mut(), size) {
            let reason = "this program does not allocate from files: it has to install haloscope_scratch::Allocator";
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        Ok(scratch)
    }

    /// How many bytes are in files.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let (bytes, peak) = crate::registry::usage();
        Usage { bytes: bytes as u64, peak: peak as u64 }
    }
}

/// Every array has an open file: raises the number that the process may have, as far as the system lets it.
#[cfg(target_os = "linux")]
fn allow_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: room for the answer.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 {
        let wanted = (2 * crate::registry::MOST) as libc::rlim_t;
        limit.rlim_cur = limit.rlim_cur.max(wanted.min(limit.rlim_max));
        // SAFETY: a limit that is at most the hard one. If it is refused, the old one stays.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
}

#[cfg(target_os = "linux")]
impl Drop for Scratch {
    fn drop(&mut self) {
        let mut registry = crate::registry::lock();
        registry.users -= 1;
        if registry.users == 0 {
            crate::registry::set_threshold(usize::MAX);
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Scratch {
    /// Refuses: there are no scratch folders on this system.
    pub fn open(_: &Options) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "scratch folders need Linux"))
    }

    /// How many bytes are in files.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage::default()
    }
}

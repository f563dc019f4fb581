//! A folder that belongs to one run at a time.
//!
//! The lock is the operating system's, on a small file in the folder, so that it ends with the process that holds it,
//! however that ends. The file names the holder, for the message that a second run gets; what a dead process left in
//! it is overwritten.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};

/// The name of the file.
const NAME: &str = ".haloscope.lock";

/// The most of a file that is shown as its holder.
const MOST_SHOWN: u64 = 200;

/// A folder that this process has for itself until this is dropped. Of several ranks, the first holds it for all.
///
/// ```
/// use haloscope::solve::FolderLock;
///
/// let folder = tempfile::tempdir()?;
/// let lock = FolderLock::take(folder.path())?;
/// let refusal = FolderLock::take(folder.path()).expect_err("it is taken").to_string();
/// assert!(refusal.contains(&format!("process {}", std::process::id())), "{refusal}");
/// drop(lock);
/// FolderLock::take(folder.path())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FolderLock {
    /// The lock is that of the open file.
    _file: File,
    path: PathBuf,
    /// The folders that had to be made, the innermost first.
    made: Vec<PathBuf>,
}

impl FolderLock {
    /// Locks a folder, which is made if it is not there.
    ///
    /// # Errors
    /// [`Error::Argument`] if another run has it; [`Error::File`] if the folder cannot be made or written;
    /// [`Error::Unsupported`] if its file system has no locks.
    pub fn take(folder: &Path) -> Result<Self> {
        let missing = folder.ancestors().take_while(|one| !one.as_os_str().is_empty());
        let made: Vec<PathBuf> =
            missing.take_while(|one| !one.exists()).map(Path::to_owned).collect();
        let failed = |what: &str, error: std::io::Error| Error::File {
            file: folder.display().to_string(),
            reason: format!("cannot {what} the folder: {error}"),
        };
        let path = folder.join(NAME);
        loop {
            std::fs::create_dir_all(folder).map_err(|error| failed("make", error))?;
            let mut options = File::options();
            let options = options.read(true).write(true).create(true).truncate(false);
            let mut file = match options.open(&path) {
                Ok(file) => file,
                // A run that ended just now has removed the folder.
                Err(_) if !folder.exists() => continue,
                Err(error) => return Err(failed("write to", error)),
            };
            match file.try_lock() {
                Ok(()) => (),
                Err(TryLockError::WouldBlock) => return Err(taken(folder, &mut file)),
                Err(TryLockError::Error(error)) => {
                    return Err(Error::Unsupported {
                        file: folder.display().to_string(),
                        reason: format!("cannot lock the folder: {error}"),
                    });
                }
            }
            // Whoever had it before may have removed the file after it was opened here.
            if is_same(&file, &path) {
                // A full disk is no reason to let a second run in; its message only says less.
                let _ = file.set_len(0).and_then(|()| file.write_all(holder().as_bytes()));
                return Ok(Self { _file: file, path, made });
            }
        }
    }
}

impl FolderLock {
    /// Nothing is left in the folder that anybody needs: it goes with the lock, unless there is something else in it.
    pub fn discard_folder(&mut self) {
        if let Some(folder) =
            self.path.parent().filter(|folder| !self.made.iter().any(|one| one == folder))
        {
            self.made.insert(0, folder.to_owned());
        }
    }
}

impl Drop for FolderLock {
    /// Leaves nothing behind: neither the file nor a folder that was made for it alone.
    fn drop(&mut self) {
        // While it is still locked. Where that is impossible, the file stays, and is in nobody's way.
        let _ = std::fs::remove_file(&self.path);
        for folder in &self.made {
            if std::fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }
}

/// That another run has the folder.
fn taken(folder: &Path, file: &mut File) -> Error {
    let mut text = Vec::new();
    let read = file.rewind().and_then(|()| file.take(MOST_SHOWN).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text).trim().replace(char::is_control, " ");
    let holder = if read.is_err() || text.is_empty() { "another process".into() } else { text };
    Error::argument(
        "folder",
        format!(
            "{} is in use by {holder}; wait for that run, end it, or choose another folder",
            folder.display()
        ),
    )
}

/// This process, for whoever comes second.
fn holder() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    let host = match host.trim() {
        "" => String::new(),
        name => format!(" on {name}"),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    format!("process {}{host}, which started at {}", std::process::id(), date(now))
}

/// `2026-11-16 16:45:15 UTC`, of seconds since 1970.
fn date(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // The calendar repeats after 400 years, and years that begin in March end with the leap day.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = 400 * era + year + next;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Whether the file at a path is the one that is open.
#[cfg(unix)]
fn is_same(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(open), Ok(there)) => id(open) == id(there),
        _ => false,
    }
}

/// Files that are open cannot be removed elsewhere.
#[cfg(not(unix))]
fn is_same(_file: &File, _path: &Path) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_735_689_599), "2024-12-31 23:59:59 UTC");
        assert_eq!(date(1_794_847_515), "2026-11-16 16:45:15 UTC");
        assert_eq!(date(4_107_542_400), "2100-03-01 00:00:00 UTC");
    }

    #[test]
    fn what_a_dead_process_left_is_no_lock() {
        let folder = tempfile::tempdir().expect("a folder");
        let stale = "process 1 on nowhere, which started at the beginning and ran for very long";
        std::fs::write(folder.path().join(NAME), stale).expect("a file");
        let lock = FolderLock::take(folder.path()).expect("nobody has it");
        let refusal = FolderLock::take(folder.path()).expect_err("taken").to_string();
        assert!(!refusal.contains("nowhere") && !refusal.contains("very long"), "{refusal}");
        assert!(refusal.contains(&format!("process {}", std::process::id())), "{refusal}");
        drop(lock);
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn folders_that_were_made_for_the_lock_go_with_it_unless_something_is_in_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let (outer, inner) = (folder.path().join("new"), folder.path().join("new/er"));
        drop(FolderLock::take(&inner).expect("it is new"));
        assert!(!outer.exists());
        let lock = FolderLock::take(&inner).expect("it is new");
        std::fs::write(outer.join("result"), "something").expect("a file");
        drop(lock);
        assert!(outer.join("result").exists() && !inner.exists());
        drop(FolderLock::take(&outer).expect("it is free"));
        assert!(outer.exists(), "it was there before");
        std::fs::remove_file(outer.join("result")).expect("a file");
        let mut lock = FolderLock::take(&outer).expect("it is free");
        lock.discard_folder();
        drop(lock);
        assert!(!outer.exists() && folder.path().exists());
    }

    #[test]
    fn of_many_that_come_and_go_one_has_it_at_a_time() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let folder = tempfile::tempdir().expect("a folder");
        let (inside, times) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while times.load(Ordering::SeqCst) < 200 {
                        let Ok(lock) = FolderLock::take(folder.path()) else { continue };
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        times.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
    }
}

//! Files that are there whole or not at all.
//!
//! The new file is written under another name in the same folder, brought to the disk, and then takes
//! the name of the old one; until then the old one stays as it was.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// How the name of a file begins and ends until it is whole.
const PREFIX: &str = ".haloscope-";
pub(crate) const PART: &str = ".part";

/// Writes a whole file, or leaves what was there.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("note.txt");
/// haloscope::io::write_atomically(&path, |file| file.write_all(b"whole"))?;
/// assert_eq!(std::fs::read(&path)?, b"whole");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<()> {
    write_atomically_as(path, PREFIX, write)
}

/// [`write_atomically`] with another start of the name that the file has until it is whole, which whoever writes
/// often to a folder can know leftovers of killed processes by. The end of that name is [`PART`].
pub(crate) fn write_atomically_as(
    path: &Path,
    prefix: &str,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<()> {
    write_part(path, prefix, |file| {
        let mut buffered = BufWriter::with_capacity(1 << 20, file);
        write(&mut buffered)?;
        buffered.flush()
    })
}

/// [`write_atomically`] for encoders that go back in the file.
pub(super) fn write_file(
    path: &Path,
    write: impl FnOnce(&mut File) -> std::io::Result<()>,
) -> Result<()> {
    write_part(path, PREFIX, write)
}

fn write_part(
    path: &Path,
    prefix: &str,
    write: impl FnOnce(&mut File) -> std::io::Result<()>,
) -> Result<()> {
    let mut unfinished = Unfinished::create_as(path, prefix)?;
    write(unfinished.file()).map_err(|error| failed(path, &error))?;
    unfinished.finish()
}

/// A file that has another name until it is whole, and is removed if it never is.
#[derive(Debug)]
pub(super) struct Unfinished {
    path: PathBuf,
    target: PathBuf,
    temporary: tempfile::NamedTempFile,
}

impl Unfinished {
    pub(super) fn create(path: &Path) -> Result<Self> {
        Self::create_as(path, PREFIX)
    }

    fn create_as(path: &Path, prefix: &str) -> Result<Self> {
        let failed = |error: std::io::Error| failed(path, &error);
        // A link stays a link, and what it points to is replaced.
        let target = if path.is_symlink() {
            std::fs::canonicalize(path).map_err(failed)?
        } else {
            path.to_owned()
        };
        if target.is_dir() {
            return Err(failed(std::io::Error::other("a folder has this name")));
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix(prefix).suffix(PART);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // As any new file, less what the umask takes, or as the old one was.
            let old = std::fs::metadata(&target).ok().map(|old| old.permissions());
            builder.permissions(old.unwrap_or_else(|| std::fs::Permissions::from_mode(0o666)));
        }
        let temporary = builder.tempfile_in(folder_of(&target)).map_err(failed)?;
        Ok(Self { path: path.to_owned(), target, temporary })
    }

    pub(super) fn file(&mut self) -> &mut File {
        self.temporary.as_file_mut()
    }

    /// The other name.
    pub(super) fn path(&self) -> &Path {
        self.temporary.path()
    }

    /// Brings the file to the disk and gives it its name.
    pub(super) fn finish(self) -> Result<()> {
        let Self { path, target, temporary } = self;
        temporary.as_file().sync_all().map_err(|error| failed(&path, &error))?;
        temporary.persist(&target).map_err(|error| failed(&path, &error.error))?;
        sync_folder(&folder_of(&target));
        Ok(())
    }
}

/// A new name is in the folder's own data. Some systems cannot sync a folder; the file is whole there all the same.
fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::File { file: path.display().to_string(), reason: format!("cannot write it: {error}") }
}

/// The folder that a file is in.
pub(super) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("volume.npy");
        write_atomically(&path, |file| file.write_all(b"old")).expect("a first file");
        let error = write_atomically(&path, |file| {
            file.write_all(&vec![0; 3 << 20])?;
            Err(std::io::Error::other("the disk is full"))
        });
        let error = error.expect_err("it failed").to_string();
        assert!(error.contains("volume.npy") && error.contains("the disk is full"), "{error}");
        assert_eq!(std::fs::read(&path).expect("still there"), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a list").count(), 1);
    }

    #[test]
    fn folder_in_the_way_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("taken");
        std::fs::create_dir(&path).expect("a folder in the way");
        assert!(write_atomically(&path, |_| Ok(())).is_err());
        assert!(write_atomically(&folder.path().join("no/file"), |_| Ok(())).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).expect("a list").count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_permissions_stay() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "old").expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).expect("set");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        write_atomically(&link, |file| file.write_all(b"new")).expect("written");
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&file).expect("there"), b"new");
        let mode = std::fs::metadata(&file).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }
}

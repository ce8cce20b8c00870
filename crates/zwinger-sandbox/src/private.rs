//! Directories of zwinger's own, closed to others: what of them is in use is locked, and goes only as a whole.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::root::Root;

/// A directory of the caller's that is closed to others.
#[derive(Debug)]
pub struct PrivateDirectory {
    root: Root,
    path: PathBuf,
}

/// Whoever has it uses the directory, until it is dropped or the process ends, however that ends.
#[derive(Debug)]
pub struct DirectoryLock {
    _directory: OwnedFd,
}

impl PrivateDirectory {
    /// Opens it, made with mode 0700 where it is missing.
    ///
    /// # Errors
    /// When it cannot be made, or exists and is not a directory of the caller that is closed to others.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { root: Root::create_private(path)?, path: path.to_owned() })
    }

    /// Opens it where it is, and makes nothing: `None` where it is missing.
    ///
    /// # Errors
    /// As [`PrivateDirectory::create`].
    pub fn existing(path: &Path) -> io::Result<Option<Self>> {
        match Root::open_ambient(path) {
            Ok(_) => Self::create(path).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Its files.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// As it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Locks it (flock(2)), unless somebody else has or it was removed meanwhile: `None`.
    ///
    /// # Errors
    /// As open(2) and flock(2).
    pub fn lock(&self) -> io::Result<Option<DirectoryLock>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(&self.root, ".", flags, Mode::empty())?;
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let is_there = rustix::fs::fstat(&directory)?.st_nlink > 0;
        Ok(is_there.then_some(DirectoryLock { _directory: directory }))
    }

    /// Removes it with all that is in it, following no link.
    ///
    /// # Errors
    /// As unlink(2) and rmdir(2).
    pub fn remove(self, _lock: DirectoryLock) -> io::Result<()> {
        std::fs::remove_dir_all(&self.path)
    }

    /// Opens the directory `name` in it: one component, and no link.
    ///
    /// # Errors
    /// As [`PrivateDirectory::create`]; [`io::ErrorKind::InvalidInput`] when `name` is something else.
    pub fn child(&self, name: &str) -> io::Result<Option<Self>> {
        let mut components = Path::new(name).components();
        if !matches!((components.next(), components.next()), (Some(Component::Normal(only)), None) if only == name) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let path = self.path.join(name);
        match path.symlink_metadata() {
            Ok(found) if found.is_dir() => Self::existing(&path),
            Ok(_) => Err(io::ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// When `name` in it was last changed, or without such a file the directory itself; and the bytes of all files in it.
    ///
    /// # Errors
    /// As stat(2).
    pub fn usage(&self, name: &str) -> io::Result<(SystemTime, u64)> {
        let changed = match self.path.join(name).symlink_metadata() {
            Ok(found) => found.modified()?,
            Err(_) => self.path.symlink_metadata()?.modified()?,
        };
        Ok((changed, size(&self.path)?))
    }
}

fn size(directory: &Path) -> io::Result<u64> {
    let mut total = 0_u64;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let found = entry.metadata()?;
        total = total.saturating_add(if found.is_dir() { size(&entry.path())? } else { found.len() });
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_in_use_is_locked_and_one_that_is_gone_too() {
        let scratch = tempfile::tempdir().unwrap();
        let sessions = PrivateDirectory::create(&scratch.path().join("sessions")).unwrap();
        assert!(sessions.child("a").unwrap().is_none());
        let made = PrivateDirectory::create(&sessions.path().join("a")).unwrap();
        let other = sessions.child("a").unwrap().unwrap();
        let lock = made.lock().unwrap().unwrap();
        assert!(other.lock().unwrap().is_none());
        drop(lock);
        let lock = other.lock().unwrap().unwrap();
        made.root().write(Path::new("file"), b"12345", |_| Ok(true)).unwrap();
        assert_eq!(made.usage("file").unwrap().1, 5);
        other.remove(lock).unwrap();
        assert!(made.lock().unwrap().is_none());
        assert!(sessions.child("a").unwrap().is_none());
    }

    #[test]
    fn names_lead_nowhere_else() {
        let scratch = tempfile::tempdir().unwrap();
        let sessions = PrivateDirectory::create(&scratch.path().join("sessions")).unwrap();
        PrivateDirectory::create(&scratch.path().join("other")).unwrap();
        std::os::unix::fs::symlink("../other", sessions.path().join("link")).unwrap();
        for name in ["", ".", "..", "../other", "a/b", "/", "a/", "link"] {
            assert!(sessions.child(name).is_err(), "{name}");
        }
    }
}

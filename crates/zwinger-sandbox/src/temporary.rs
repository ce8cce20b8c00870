//! A directory for the temporary files of one session, where /tmp cannot be private.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};

const PREFIX: &str = "zwinger-";
/// Names to try: one that sweeps may be faster than the lock.
const ATTEMPTS: usize = 16;

/// Goes when it is dropped, and at the next [`TemporaryDirectory::create`] when its zwinger was killed: as long as that lives, it
/// holds a lock.
#[derive(Debug)]
pub(crate) struct TemporaryDirectory(
    pub(crate) PathBuf,
    Remove,
    #[expect(dead_code, reason = "held, not used")] OwnedFd,
);

/// How such a directory is removed.
type Remove = fn(&Path) -> io::Result<()>;

impl TemporaryDirectory {
    pub(crate) fn create() -> io::Result<Self> {
        Self::create_in(&std::env::temp_dir(), |path| std::fs::remove_dir_all(path))
    }

    /// As [`TemporaryDirectory::create`], in a place of another kind.
    pub(crate) fn create_in(parent: &Path, remove: Remove) -> io::Result<Self> {
        sweep(parent, remove);
        let mut last = io::ErrorKind::AlreadyExists.into();
        for _ in 0..ATTEMPTS {
            let mut random = [0_u8; 8];
            rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())?;
            let path = parent.join(format!("{PREFIX}{:016x}", u64::from_ne_bytes(random)));
            // mkdir(2) fails on whatever is already there, a link included.
            rustix::fs::mkdir(&path, Mode::RWXU)?;
            match lock(&path) {
                Ok(lock) => return Ok(Self(path, remove, lock)),
                // Somebody who sweeps took it for a left one.
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let _ = self.1(&self.0);
    }
}

/// The lock of a directory of ours that nobody else holds.
fn lock(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty())?;
    let locked = rustix::fs::fstat(&directory)?;
    if locked.st_uid != rustix::process::geteuid().as_raw() {
        return Err(rustix::io::Errno::PERM);
    }
    rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
    // Removed before it was locked. Not every file system says so by the number of links.
    if rustix::fs::stat(path)?.st_ino != locked.st_ino {
        return Err(rustix::io::Errno::NOENT);
    }
    Ok(directory)
}

/// Removes what zwingers of this user left that were killed.
fn sweep(parent: &Path, remove: Remove) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).unwrap_or_default();
        if digits.len() != 16 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            continue;
        }
        if let Ok(_lock) = lock(&entry.path()) {
            let _ = remove(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_holds_is_swept() {
        let held = TemporaryDirectory::create().unwrap();
        let parent = held.0.parent().unwrap().to_owned();
        let left = parent.join(format!("{PREFIX}{:032x}", std::process::id()).get(..24).unwrap());
        std::fs::create_dir_all(left.join("d")).unwrap();
        let others = tempfile::Builder::new().prefix("zwinger-other").tempdir().unwrap();
        let second = TemporaryDirectory::create().unwrap();
        assert!(held.0.exists() && second.0.exists() && others.path().exists() && !left.exists());
        let path = held.0.clone();
        drop(held);
        assert!(!path.exists());
    }
}

//! New content of a file on its way to its place, and what a process that was killed left of it.
//!
//! A draft has no name for as long as it is written (O_TMPFILE, open(2)), so that nothing is left of one whose writer is killed. To
//! replace a file it must have one for a moment; it is locked from before that until its end, so whoever finds one that is not
//! locked may remove it.

use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::PathError;

const PREFIX: &[u8] = b".zwinger-";
const DIGITS: usize = 16;
/// Names to try: one that sweeps may be faster than the lock.
const ATTEMPTS: usize = 16;

/// Removed when it is dropped, unless it was put in its place.
pub(super) struct Draft<'a> {
    parent: BorrowedFd<'a>,
    file: std::fs::File,
    /// Its own name in `parent`, while it has one.
    name: Option<PathBuf>,
}

impl<'a> Draft<'a> {
    pub(super) fn create(parent: BorrowedFd<'a>) -> Result<Self, PathError> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        match rustix::fs::openat(parent, ".", flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => {
                lock(&file)?;
                Ok(Self { parent, file: file.into(), name: None })
            }
            // open(2): a file system without unnamed files.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Self::create_named(parent),
            Err(error) => Err(error.into()),
        }
    }

    fn create_named(parent: BorrowedFd<'a>) -> Result<Self, PathError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..ATTEMPTS {
            let name = random_name()?;
            let file = rustix::fs::openat(parent, &name, flags, Mode::from_raw_mode(0o666)).map_err(PathError::from)?;
            let is_ours = lock(&file).is_ok() && rustix::fs::fstat(&file).map_err(PathError::from)?.st_nlink > 0;
            let draft = Self { parent, file: file.into(), name: Some(name) };
            if is_ours {
                return Ok(draft);
            }
        }
        Err(PathError::Changed)
    }

    /// Writes all of the content and syncs it. `replaced` gives its mode and, where permitted, its owner.
    pub(super) fn fill(&self, content: &[u8], replaced: Option<&Stat>) -> Result<(), PathError> {
        (&self.file).write_all(content)?;
        if let Some(old) = replaced {
            let own = rustix::fs::fstat(&self.file).map_err(PathError::from)?;
            if (own.st_uid, own.st_gid) != (old.st_uid, old.st_gid) {
                let owner = Some(rustix::fs::Uid::from_raw(old.st_uid));
                let group = Some(rustix::fs::Gid::from_raw(old.st_gid));
                // Another's file in a directory that we may write: the content counts, the owner where it is permitted.
                let _ = rustix::fs::fchown(&self.file, owner, group);
            }
            self.set_mode(old.st_mode & 0o7777)?;
        }
        Ok(self.file.sync_all()?)
    }

    /// Writes all of the content, which gets this mode.
    pub(super) fn fill_with_mode(&self, content: &[u8], mode: u32) -> Result<(), PathError> {
        (&self.file).write_all(content)?;
        self.set_mode(mode)
    }

    fn set_mode(&self, mode: u32) -> Result<(), PathError> {
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode)).map_err(PathError::from)
    }

    /// Puts it in its place: over what is there, or where nothing may be.
    pub(super) fn place(mut self, name: &Path, replace: bool) -> Result<(), PathError> {
        let placed = match (&self.name, replace) {
            (None, false) => self.link(name),
            (None, true) => {
                self.name_itself().and_then(|own| rustix::fs::renameat(self.parent, own, self.parent, name))
            }
            (Some(own), _) => {
                let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
                rustix::fs::renameat_with(self.parent, own, self.parent, name, flags)
            }
        };
        match placed {
            Ok(()) => {
                self.name = None;
                Ok(())
            }
            // Somebody made the file since we looked.
            Err(Errno::EXIST) => Err(PathError::Changed),
            Err(error) => Err(error.into()),
        }
    }

    fn name_itself(&mut self) -> Result<PathBuf, Errno> {
        let name = random_name()?;
        self.link(&name)?;
        self.name = Some(name.clone());
        Ok(name)
    }

    /// open(2), O_TMPFILE: the way to give an unnamed file a name that needs no capability.
    fn link(&self, name: &Path) -> Result<(), Errno> {
        let itself = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::linkat(CWD, itself, self.parent, name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = rustix::fs::unlinkat(self.parent, name, AtFlags::empty());
        }
    }
}

fn random_name() -> Result<PathBuf, Errno> {
    let mut random = [0_u8; DIGITS / 2];
    rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())?;
    Ok(PathBuf::from(format!(".zwinger-{:016x}", u64::from_ne_bytes(random))))
}

/// Whether a file of this name may be one that was left.
pub(crate) fn is_name(name: &OsStr) -> bool {
    let digits = name.as_bytes().strip_prefix(PREFIX);
    digits.is_some_and(|digits| {
        digits.len() == DIGITS && digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    })
}

fn lock(file: impl AsFd) -> Result<(), Errno> {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)
}

/// Removes a draft that nobody holds any more.
pub(super) fn remove_left(parent: BorrowedFd<'_>, name: &OsStr) {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file: Result<OwnedFd, _> = rustix::fs::openat(parent, name, flags, Mode::empty());
    if file.is_ok_and(|file| super::regular(&file).is_ok() && lock(&file).is_ok()) {
        let _ = rustix::fs::unlinkat(parent, name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_a_name_or_without_it_ends_in_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let parent = std::fs::File::open(dir.path()).unwrap();
        let names = || std::fs::read_dir(dir.path()).unwrap().count();
        for create in [Draft::create, Draft::create_named] {
            let place = |content: &[u8], replace| {
                let draft = create(parent.as_fd()).unwrap();
                draft.fill(content, None).unwrap();
                draft.place(Path::new("f"), replace)
            };
            place(b"new", false).unwrap();
            assert!(matches!(place(b"never", false), Err(PathError::Changed)));
            place(b"newer", true).unwrap();
            assert_eq!((std::fs::read(dir.path().join("f")).unwrap().as_slice(), names()), (b"newer".as_slice(), 1));
            // Somebody who sweeps leaves one that is held, and its end takes it away.
            let draft = create(parent.as_fd()).unwrap();
            let own = draft.name.clone();
            own.iter().for_each(|name| remove_left(parent.as_fd(), name.as_os_str()));
            assert_eq!(names(), 1 + own.iter().count());
            drop(draft);
            std::fs::remove_file(dir.path().join("f")).unwrap();
            assert_eq!(names(), 0);
        }
    }
}

//! Copying and removing a tree without following a link, for a quarantine on another file system.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use super::{DIRECTORY, is_dots, openat, unlock};

/// What is copied at most: bytes of one file, bytes of all, entries, and directories in each other.
const MAX_FILE: u64 = 16 << 20;
const MAX_BYTES: u64 = 64 << 20;
pub(super) const MAX_ENTRIES: usize = 10_000;
pub(super) const MAX_DEPTH: usize = 128;

struct Budget {
    bytes: u64,
    entries: usize,
}

fn too_large() -> io::Error {
    io::ErrorKind::FileTooLarge.into()
}

/// Copies what is at `name`: files, directories and links, with permission bits and without any other right. FIFOs, sockets and
/// devices cannot be copied, nor what has one in it.
pub(super) fn copy(from: BorrowedFd<'_>, name: &OsStr, to: BorrowedFd<'_>, to_name: &OsStr) -> io::Result<()> {
    copy_tree(from, name, to, to_name, &mut Budget { bytes: MAX_BYTES, entries: MAX_ENTRIES }, MAX_DEPTH)
}

fn copy_tree(
    from: BorrowedFd<'_>,
    name: &OsStr,
    to: BorrowedFd<'_>,
    to_name: &OsStr,
    budget: &mut Budget,
    depth: usize,
) -> io::Result<()> {
    budget.entries = budget.entries.checked_sub(1).ok_or_else(too_large)?;
    let status = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(status.st_mode) {
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(from, name, Vec::new())?;
            Ok(rustix::fs::symlinkat(target, to, to_name)?)
        }
        FileType::Directory => {
            let depth = depth.checked_sub(1).ok_or_else(too_large)?;
            rustix::fs::mkdirat(to, to_name, Mode::RWXU)?;
            let (source, target) = (openat(from, name, DIRECTORY)?, openat(to, to_name, DIRECTORY)?);
            for entry in Dir::read_from(&source)? {
                let entry = entry?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if !is_dots(name.as_bytes()) {
                    copy_tree(source.as_fd(), name, target.as_fd(), name, budget, depth)?;
                }
            }
            Ok(())
        }
        FileType::RegularFile => {
            let source = File::from(openat(from, name, OFlags::RDONLY | OFlags::NONBLOCK)?);
            let mode = Mode::from_raw_mode(status.st_mode & 0o777) | Mode::RUSR | Mode::WUSR;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut target = File::from(rustix::fs::openat(to, to_name, flags, mode)?);
            let most = MAX_FILE.min(budget.bytes);
            let copied = io::copy(&mut source.take(most + 1), &mut target)?;
            budget.bytes = budget.bytes.checked_sub(copied).ok_or_else(too_large)?;
            if copied > most { Err(too_large()) } else { Ok(()) }
        }
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Removes what is at `name`.
pub(super) fn remove(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    remove_tree(parent, name, MAX_DEPTH)
}

fn remove_tree(parent: BorrowedFd<'_>, name: &OsStr, depth: usize) -> io::Result<()> {
    let status = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::Directory {
        return Ok(rustix::fs::unlinkat(parent, name, AtFlags::empty())?);
    }
    let depth = depth.checked_sub(1).ok_or_else(too_large)?;
    // One that its owner may not write keeps what is in it.
    unlock(openat(parent, name, OFlags::PATH | OFlags::DIRECTORY)?.as_fd());
    let directory = openat(parent, name, DIRECTORY)?;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if !is_dots(name.as_bytes()) {
            remove_tree(directory.as_fd(), name, depth)?;
        }
    }
    Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_tree_is_copied_and_removed_without_following_links() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to, outside) = (dir.path().join("from"), dir.path().join("to"), dir.path().join("outside"));
        std::fs::create_dir_all(from.join("tree/deep")).unwrap();
        std::fs::create_dir_all(&to).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("kept"), "x").unwrap();
        std::fs::write(from.join("tree/deep/file"), "content").unwrap();
        std::fs::set_permissions(from.join("tree/deep/file"), std::fs::Permissions::from_mode(0o4755)).unwrap();
        symlink(&outside, from.join("tree/link")).unwrap();
        // Root may write it all the same.
        std::fs::set_permissions(from.join("tree/deep"), std::fs::Permissions::from_mode(0o555)).unwrap();
        let [source, target] = [&from, &to].map(|path| File::open(path).unwrap());
        copy(source.as_fd(), "tree".as_ref(), target.as_fd(), "copy".as_ref()).unwrap();
        remove(source.as_fd(), "tree".as_ref()).unwrap();
        assert!(!from.join("tree").exists());
        assert_eq!(std::fs::read(to.join("copy/deep/file")).unwrap(), b"content");
        let mode = std::fs::metadata(to.join("copy/deep/file")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7000, 0);
        assert_eq!(to.join("copy/link").read_link().unwrap(), outside);
        assert_eq!(std::fs::read(outside.join("kept")).unwrap(), b"x");
    }

    #[test]
    fn what_has_a_fifo_in_it_is_not_copied() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("tree")).unwrap();
        let (fifo, mode) = (dir.path().join("tree/fifo"), Mode::from_raw_mode(0o600));
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
        let directory = File::open(dir.path()).unwrap();
        assert!(copy(directory.as_fd(), "tree".as_ref(), directory.as_fd(), "copy".as_ref()).is_err());
        assert!(fifo.symlink_metadata().is_ok());
    }

    #[test]
    fn what_is_too_large_is_not_copied() {
        let dir = tempfile::tempdir().unwrap();
        File::create(dir.path().join("large")).unwrap().set_len(MAX_FILE + 1).unwrap();
        let directory = File::open(dir.path()).unwrap();
        assert!(copy(directory.as_fd(), "large".as_ref(), directory.as_fd(), "copy".as_ref()).is_err());
    }
}

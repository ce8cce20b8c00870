//! Mounts, by the file-descriptor API of mount(2) (move_mount, open_tree, fsopen): no path is looked up twice.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags};

use super::{WallError, task_ids};
use crate::host_path::HostPath;
use crate::plan::{Bind, MemoryMount, Mounts, PROC_HIDDEN};
use crate::sys::{self, MountAttributes};

/// Bytes of each file system in memory; a command that fills one gets ENOSPC, not the machine's memory.
const MEMORY_MOUNT_SIZE: &str = "1g";

/// Arranges the mounts of a new mount namespace; /proc comes later, by [`fresh_proc`].
pub(crate) fn arrange(mounts: &Mounts, secrets: &[HostPath]) -> Result<(), WallError> {
    attributes(CWD.as_fd(), c"/", MountAttributes { read_only: false, private: true, recursive: true })
        .map_err(WallError::refusable("make the mounts private"))?;
    let kept = mounts.binds.iter().map(keep).collect::<Result<Vec<_>, _>>()?;
    let pinned = mounts.pins.iter().map(keep_entry).collect::<Result<Vec<_>, _>>()?;
    attributes(CWD.as_fd(), c"/", MountAttributes { read_only: true, private: false, recursive: true })
        .map_err(WallError::at("make the file systems read-only"))?;
    for memory in &mounts.memory {
        mount_memory(memory)?;
    }
    make_empty_file().map_err(WallError::at("make an empty file"))?;
    for (bind, tree) in mounts.binds.iter().zip(kept) {
        let Some(tree) = tree else { continue };
        place(bind, &tree)?;
    }
    for (pin, tree) in mounts.pins.iter().zip(pinned) {
        attach(&tree, &pin.path).map_err(WallError::at("pin a part of the workspace"))?;
    }
    dev_entries().map_err(WallError::at("arrange /dev"))?;
    for hidden in &mounts.hidden {
        hide(hidden, Path::new(EMPTY_FILE))?;
    }
    for secret in secrets {
        cover(secret, Path::new(EMPTY_FILE)).map_err(WallError::at("hide a secret of the workspace"))?;
    }
    for memory in mounts.memory.iter().filter(|memory| !memory.writable) {
        freeze(&memory.at).map_err(WallError::at("make a file system in memory read-only"))?;
    }
    Ok(())
}

/// A /proc that shows the processes of the calling pid namespace only. Comes last: the old one is needed until here. `tasks`
/// bounds that namespace, where it can be.
pub(crate) fn fresh_proc(tasks: Option<u64>) -> Result<(), WallError> {
    let mount = || -> io::Result<()> {
        let context = rustix::mount::fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_create(&context)?;
        let attributes =
            MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let proc = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        attach(&proc, Path::new("/proc"))
    };
    mount().map_err(WallError::refusable("mount /proc"))?;
    if let Some(tasks) = tasks {
        task_ids::bound(tasks).map_err(WallError::at("bound the number of tasks"))?;
    }
    for hidden in PROC_HIDDEN {
        hide(Path::new(hidden), Path::new(EMPTY_FILE))?;
    }
    freeze_tree(Path::new("/proc/sys")).map_err(WallError::at("make /proc/sys read-only"))
}

/// Opens a part of the host before anything covers it; `None` when it does not exist or the caller may not reach it.
fn keep(bind: &Bind) -> Result<Option<OwnedFd>, WallError> {
    keep_tree(bind, OpenTreeFlags::empty())
}

/// As [`keep`], of the entry itself: a link that was put in its place since the scan is not followed, and an entry that is gone
/// has been moved.
fn keep_entry(bind: &Bind) -> Result<OwnedFd, WallError> {
    let moved = || io::Error::other(format!("{} was moved meanwhile; try again", bind.path.display()));
    keep_tree(bind, OpenTreeFlags::AT_SYMLINK_NOFOLLOW)?
        .ok_or_else(|| WallError::at("pin a part of the workspace")(moved()))
}

fn keep_tree(bind: &Bind, flags: OpenTreeFlags) -> Result<Option<OwnedFd>, WallError> {
    let tree = match open_clone(&bind.path, flags) {
        Ok(tree) => tree,
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::EACCES)) => {
            return Ok(None);
        }
        Err(error) => return Err(WallError::at("open a part of the host")(error)),
    };
    let read_only = !bind.writable;
    attributes(tree.as_fd(), c"", MountAttributes { read_only, private: false, recursive: true })
        .map_err(WallError::at("restrict a part of the host"))?;
    Ok(Some(tree))
}

fn clone_tree(path: &Path) -> io::Result<OwnedFd> {
    open_clone(path, OpenTreeFlags::empty())
}

fn open_clone(path: &Path, flags: OpenTreeFlags) -> io::Result<OwnedFd> {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    Ok(rustix::mount::open_tree(CWD, path, clone | flags)?)
}

fn mount_memory(memory: &MemoryMount) -> Result<(), WallError> {
    // As in `place`, a directory can only be made in a file system in memory.
    if !memory.at.is_dir() && std::fs::create_dir_all(&memory.at).is_err() {
        return Ok(());
    }
    let mode = format!("{:o}", memory.mode);
    let mount = || -> io::Result<()> { attach(&memory_tree(&mode)?, &memory.at) };
    mount().map_err(WallError::at("mount a file system in memory"))
}

fn memory_tree(mode: &str) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&context, "size", MEMORY_MOUNT_SIZE)?;
    rustix::mount::fsconfig_set_string(&context, "mode", mode)?;
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

fn attach(tree: &OwnedFd, at: &Path) -> io::Result<()> {
    Ok(rustix::mount::move_mount(tree, c"", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Puts a kept tree at its own path. What is missing of the path can only lie in a file system in memory: the host's own are
/// read-only by now, so nothing can be made there (CVE-2026-87766 is a launcher that did).
fn place(bind: &Bind, tree: &OwnedFd) -> Result<(), WallError> {
    let make = || -> io::Result<()> {
        let kind = FileType::from_raw_mode(rustix::fs::statat(tree, c"", AtFlags::EMPTY_PATH)?.st_mode);
        if let Some(parent) = bind.path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        match kind {
            FileType::Directory => std::fs::create_dir_all(&bind.path)?,
            _ if bind.path.exists() => {}
            _ => drop(std::fs::File::create(&bind.path)?),
        }
        attach(tree, &bind.path)
    };
    make().map_err(WallError::at("put a part of the host in place"))
}

/// The entries of /dev that are not devices of the host: links to /proc/self/fd, shared memory, terminals of our own.
fn dev_entries() -> io::Result<()> {
    let links = [
        ("/proc/self/fd", "/dev/fd"),
        ("/proc/self/fd/0", "/dev/stdin"),
        ("/proc/self/fd/1", "/dev/stdout"),
        ("/proc/self/fd/2", "/dev/stderr"),
        ("pts/ptmx", "/dev/ptmx"),
    ];
    for (target, link) in links {
        rustix::fs::symlink(target, link)?;
    }
    for directory in ["/dev/shm", "/dev/pts"] {
        rustix::fs::mkdir(directory, Mode::from_raw_mode(0o755))?;
    }
    attach(&memory_tree("1777")?, Path::new("/dev/shm"))?;
    let context = rustix::mount::fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_flag(&context, "newinstance")?;
    rustix::mount::fsconfig_set_string(&context, "ptmxmode", "0666")?;
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let terminals = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    attach(&terminals, Path::new("/dev/pts"))
}

/// A file without content and permissions, to cover files with. Not /dev/null: that one can be written.
const EMPTY_FILE: &str = "/dev/.empty";

fn make_empty_file() -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::WRONLY;
    drop(rustix::fs::open(EMPTY_FILE, flags, Mode::empty())?);
    Ok(())
}

/// Covers a path of the system, where it exists.
fn hide(path: &Path, cover_file: &Path) -> Result<(), WallError> {
    let hidden = match path.canonicalize() {
        Ok(path) => cover(&path, cover_file),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => Ok(()),
        Err(error) => Err(error),
    };
    hidden.map_err(WallError::at("hide a path"))
}

/// Covers a file or directory with nothing; it must be there, and no link.
fn cover(path: &Path, cover_file: &Path) -> io::Result<()> {
    let kind = FileType::from_raw_mode(rustix::fs::lstat(path)?.st_mode);
    if kind == FileType::Directory {
        attach(&memory_tree("000")?, path)?;
        return freeze(path);
    }
    let tree = clone_tree(cover_file)?;
    attributes(tree.as_fd(), c"", MountAttributes { read_only: true, private: false, recursive: false })?;
    attach(&tree, path)
}

fn freeze(at: &Path) -> io::Result<()> {
    if !at.is_dir() {
        return Ok(());
    }
    let path = sys::c_string(at)?;
    attributes(CWD.as_fd(), &path, MountAttributes { read_only: true, private: false, recursive: false })
}

/// Binds a directory over itself, read-only.
fn freeze_tree(at: &Path) -> io::Result<()> {
    let tree = clone_tree(at)?;
    attributes(tree.as_fd(), c"", MountAttributes { read_only: true, private: false, recursive: true })?;
    attach(&tree, at)
}

fn attributes(dir: std::os::fd::BorrowedFd<'_>, path: &CStr, attributes: MountAttributes) -> io::Result<()> {
    debug_assert!(!path.to_bytes().is_empty() || !attributes.private);
    sys::mount_setattr(dir, path, attributes)
}

//! Mounts, by the file-descriptor API of mount(2) (move_mount, open_tree, fsopen): no path is looked up twice.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags};

use super::{WallError, task_ids};
use crate::plan::{Bind, PROC_HIDDEN, Plan};
use crate::sys::{self, MountAttributes};

/// Bytes of a file system in memory; a command that fills it gets ENOSPC, not the machine's memory.
const MEMORY_SIZE: &str = "1g";
const LARGEST: u64 = 1 << 30;
/// Bytes of the root in memory that the tree itself may take.
const OF_THE_TREE: u64 = 1 << 20;

/// Covers and pins again what has lost its mount because the host put another file in its place.
/// `workspace` is its mount inside, open since before a command could move what lies above it.
pub(crate) fn renew(plan: &Plan, workspace: BorrowedFd<'_>) -> io::Result<()> {
    let unpinned = |path: &Path| -> io::Result<Option<OwnedFd>> {
        let (from, path) = match path.strip_prefix(&*plan.workspace) {
            Ok(inside) => (workspace, inside),
            Err(_) => (CWD.as_fd(), path),
        };
        // Not through a link: a command may have put one there meanwhile.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let entry = match rustix::fs::openat2(from, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            Ok(entry) => entry,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let status = rustix::fs::statx(&entry, c"", AtFlags::EMPTY_PATH, StatxFlags::TYPE)?;
        let is_link = FileType::from_raw_mode(status.stx_mode.into()) == FileType::Symlink;
        Ok((!is_link && !status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)).then_some(entry))
    };
    for pin in plan.mounts.iter().flat_map(|mounts| &mounts.pins) {
        if let Some(entry) = unpinned(&pin.path)? {
            let tree = clone_of(&entry)?;
            let read_only = !pin.writable;
            attributes(tree.as_fd(), c"", MountAttributes { read_only, private: false, recursive: true })?;
            attach_to(&tree, &entry)?;
        }
    }
    for hidden in plan.secrets.iter().map(|path| &**path).chain(plan.hidden()) {
        if let Some(entry) = unpinned(hidden)? {
            attach_to(&cover_for(&entry)?, &entry)?;
        }
    }
    Ok(())
}

/// A /proc of the calling process's namespace over the one that is there, for an executor in the tree of its keeper.
pub(crate) fn fresh_proc(plan: &Plan) -> Result<(), WallError> {
    let mount = || attach(&new_proc()?, Path::new("/proc"));
    mount().map_err(WallError::refusable("mount /proc"))?;
    cover_proc(plan)
}

pub(super) fn new_proc() -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

pub(super) fn cover_proc(plan: &Plan) -> Result<(), WallError> {
    for hidden in PROC_HIDDEN {
        hide(Path::new(hidden))?;
    }
    freeze_proc(plan)
}

/// Bounds the process namespace that /proc shows, and makes it read-only: Landlock refuses writes there to everybody, but knows
/// nothing of modes and owners, which belong to the machine's entries for good, and root could change.
pub(super) fn freeze_proc(plan: &Plan) -> Result<(), WallError> {
    if let Some(tasks) = plan.task_ids {
        task_ids::bound(tasks).map_err(WallError::at("bound the number of tasks"))?;
    }
    freeze(Path::new("/proc")).map_err(WallError::at("make /proc read-only"))
}

/// The host's whole tree, open; the paths of its parts are looked up in it, whatever the root of this process is.
pub(super) struct Host(OwnedFd);

impl Host {
    pub(super) fn open() -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open("/", flags, Mode::empty())?))
    }

    /// A part of it to put elsewhere; `None` when it does not exist or the caller may not reach it.
    pub(super) fn part(&self, bind: &Bind) -> io::Result<Option<OwnedFd>> {
        self.clone_of(bind, OFlags::empty())
    }

    /// As [`Host::part`], of the entry itself: a link that was put in its place since the scan is not followed, and an entry that
    /// is gone has been moved.
    pub(super) fn entry(&self, bind: &Bind) -> io::Result<OwnedFd> {
        let moved = || io::Error::other(format!("{} was moved meanwhile; try again", bind.path.display()));
        self.clone_of(bind, OFlags::NOFOLLOW)?.ok_or_else(moved)
    }

    /// A read-only mount of the file at a path, if it is the one that is meant; `None` when it is not there.
    pub(super) fn file(&self, path: &Path, is_meant: impl Fn(&Stat) -> bool) -> io::Result<Option<OwnedFd>> {
        let file = self.clone_of(&Bind { path: path.into(), writable: false }, OFlags::NOFOLLOW)?;
        let meant = file.filter(|file| rustix::fs::fstat(file).is_ok_and(|found| is_meant(&found)));
        Ok(meant)
    }

    /// Of the entry itself; `None` when it is not there.
    pub(super) fn status(&self, path: &Path) -> io::Result<Option<Stat>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat2(&self.0, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
            Ok(found) => Ok(Some(rustix::fs::fstat(found)?)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// What a link of it leads to.
    pub(super) fn link(&self, path: &str) -> io::Result<Option<std::ffi::CString>> {
        match rustix::fs::readlinkat(&self.0, path.trim_start_matches('/'), Vec::new()) {
            Ok(target) => Ok(Some(target)),
            Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn clone_of(&self, bind: &Bind, flags: OFlags) -> io::Result<Option<OwnedFd>> {
        let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
        let found = match rustix::fs::openat2(&self.0, &*bind.path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
            Ok(found) => found,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let tree = clone_of(&found)?;
        let read_only = !bind.writable;
        attributes(tree.as_fd(), c"", MountAttributes { read_only, private: false, recursive: true })?;
        Ok(Some(tree))
    }
}

fn clone_of(entry: &OwnedFd) -> io::Result<OwnedFd> {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    Ok(rustix::mount::open_tree(entry, c"", clone | OpenTreeFlags::AT_EMPTY_PATH)?)
}

pub(super) fn clone_at(path: &Path) -> io::Result<OwnedFd> {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    Ok(rustix::mount::open_tree(CWD, path, clone)?)
}

/// Makes a directory empty. Only the root in memory can be given a new one: what lies below a part of the host is there, or will
/// not be. `true`: an empty file system had to be mounted, which is writable as yet.
pub(super) fn make_empty(at: &Path) -> io::Result<bool> {
    if !at.is_dir() {
        let _ = std::fs::create_dir_all(at);
        return Ok(false);
    }
    attach(&memory_tree("755")?, at)?;
    Ok(true)
}

/// A mount of its own of a directory in the root, which stays writable when the root does not.
pub(super) fn make_temporary(at: &Path) -> io::Result<()> {
    std::fs::create_dir_all(at)?;
    rustix::fs::chmod(at, Mode::from_raw_mode(0o1777))?;
    attach(&clone_at(at)?, at)
}

pub(super) fn memory_tree(mode: &str) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&context, "size", MEMORY_SIZE)?;
    rustix::mount::fsconfig_set_string(&context, "mode", mode)?;
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Lets what is in the root in memory have so many bytes, where that is less than it may have anyway.
pub(super) fn resize_root(bytes: u64) -> io::Result<()> {
    let size = bytes.saturating_add(OF_THE_TREE).min(LARGEST);
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_NO_AUTOMOUNT;
    let context = rustix::mount::fspick(CWD, "/", flags)?;
    rustix::mount::fsconfig_set_string(&context, "size", size.to_string())?;
    Ok(rustix::mount::fsconfig_reconfigure(&context)?)
}

/// A link, and the directories that it needs; only in the root in memory can they be made.
pub(super) fn make_link(link: &Path, target: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (link.parent(), link.file_name()) else { return Ok(()) };
    std::fs::create_dir_all(parent)?;
    // By another link that is there already, the name may be the target's own.
    let link = parent.canonicalize()?.join(name);
    if link != target {
        rustix::fs::symlink(target, &link)?;
    }
    Ok(())
}

pub(super) fn attach(tree: &OwnedFd, at: &Path) -> io::Result<()> {
    Ok(rustix::mount::move_mount(tree, c"", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Puts a tree at its own path. What is missing of the path can only lie in the root in memory: the host's parts are read-only by
/// now, or granted as a whole, so nothing can be made there (CVE-2026-87766 is a launcher that did).
pub(super) fn place(at: &Path, tree: &OwnedFd) -> io::Result<()> {
    let kind = FileType::from_raw_mode(rustix::fs::statat(tree, c"", AtFlags::EMPTY_PATH)?.st_mode);
    let make = || match kind {
        FileType::Directory => rustix::fs::mkdir(at, Mode::from_raw_mode(0o755)),
        _ => rustix::fs::mknodat(CWD, at, FileType::RegularFile, Mode::from_raw_mode(0o644), 0),
    };
    let made = match make() {
        Err(Errno::NOENT) => {
            at.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            make()
        }
        made => made,
    };
    match made {
        Ok(()) | Err(Errno::EXIST) => attach(tree, at),
        Err(error) => Err(error.into()),
    }
}

/// The entries of /dev that are not devices of the host: links to /proc/self/fd, shared memory, terminals of our own.
pub(super) fn dev_entries() -> io::Result<()> {
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
    make_temporary(Path::new("/dev/shm"))?;
    rustix::fs::mkdir("/dev/pts", Mode::from_raw_mode(0o755))?;
    let context = rustix::mount::fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_flag(&context, "newinstance")?;
    rustix::mount::fsconfig_set_string(&context, "ptmxmode", "0666")?;
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let terminals = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    attach(&terminals, Path::new("/dev/pts"))
}

/// A file and a directory without content and permissions, to cover others with. Not /dev/null: that one can be written.
const EMPTY_FILE: &str = "/dev/.empty";
const EMPTY_DIRECTORY: &str = "/dev/.nothing";

pub(super) fn make_covers() -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::WRONLY;
    drop(rustix::fs::open(EMPTY_FILE, flags, Mode::empty())?);
    Ok(rustix::fs::mkdir(EMPTY_DIRECTORY, Mode::empty())?)
}

/// Covers a path of the system, where it exists and the caller could open it.
pub(super) fn hide(path: &Path) -> Result<(), WallError> {
    let hidden = || -> io::Result<()> {
        let entry = match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(entry) => entry,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        // Any other answer than this one, and it is covered. A directory that can be searched shows what is known by name.
        let is_closed =
            |access: &Access| rustix::fs::accessat(CWD, path, *access, AtFlags::EACCESS) == Err(Errno::ACCESS);
        if ![Access::READ_OK, Access::WRITE_OK, Access::EXEC_OK].iter().all(is_closed) {
            attach_to(&cover_for(&entry)?, &entry)?;
        }
        Ok(())
    };
    hidden().map_err(WallError::at("hide a path"))
}

/// What covers an entry.
fn cover_for(entry: &OwnedFd) -> io::Result<OwnedFd> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(entry)?.st_mode);
    let cover = if kind == FileType::Directory { EMPTY_DIRECTORY } else { EMPTY_FILE };
    let tree = clone_at(Path::new(cover))?;
    attributes(tree.as_fd(), c"", MountAttributes { read_only: true, private: false, recursive: false })?;
    Ok(tree)
}

/// Covers a file or directory with nothing; it must be there, and no link.
pub(super) fn cover(path: &Path) -> io::Result<()> {
    let entry = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    attach_to(&cover_for(&entry)?, &entry)
}

fn attach_to(tree: &OwnedFd, entry: &OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(tree, c"", entry, c"", flags)?)
}

pub(super) fn freeze(at: &Path) -> io::Result<()> {
    let path = sys::c_string(at)?;
    attributes(CWD.as_fd(), &path, MountAttributes { read_only: true, private: false, recursive: false })
}

pub(super) fn attributes(dir: std::os::fd::BorrowedFd<'_>, path: &CStr, attributes: MountAttributes) -> io::Result<()> {
    debug_assert!(!path.to_bytes().is_empty() || !attributes.private);
    sys::mount_setattr(dir, path, attributes)
}

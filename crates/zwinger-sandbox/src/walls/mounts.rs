//! Mounts, by the file-descriptor API of mount(2) (move_mount, open_tree, fsopen): no path is looked up twice.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};

use super::{WallError, task_ids};
use crate::host_path::HostPath;
use crate::plan::{Bind, Mounts, PROC_HIDDEN, Piece, Plan};
use crate::sys::{self, MountAttributes};

/// Bytes of the file system in memory; a command that fills it gets ENOSPC, not the machine's memory.
const MEMORY_SIZE: &str = "1g";

/// Whose processes /proc shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Processes {
    /// Those of the calling process's own namespace.
    Own,
    /// The host's, until [`fresh_proc`] covers it.
    Hosts,
}

/// Puts a tree of its own in the place of the host's, in a new mount namespace: parts of the host are opened, an empty file system
/// becomes the root, and the parts are attached to it.
pub(crate) fn arrange(plan: &Plan, mounts: &Mounts, processes: Processes) -> Result<(), WallError> {
    attributes(CWD.as_fd(), c"/", MountAttributes { read_only: false, private: true, recursive: true })
        .map_err(WallError::refusable("make the mounts private"))?;
    let pieces = mounts.pieces.iter().map(|piece| Ok((piece, keep(piece)?))).collect::<Result<Vec<_>, _>>()?;
    let pinned = mounts.pins.iter().map(keep_entry).collect::<Result<Vec<_>, _>>()?;
    // A new one is given only while another can be seen (mount_too_revealing in fs/namespace.c), so before the host's goes.
    let proc = match processes {
        Processes::Own => new_proc(),
        Processes::Hosts => open_clone(Path::new("/proc"), OpenTreeFlags::empty()),
    };
    let proc = proc.map_err(WallError::refusable("mount /proc"))?;
    enter_empty_root(&plan.workspace).map_err(WallError::at("change the root"))?;
    for (link, target) in &mounts.links {
        rustix::fs::symlink(&**target, &**link).map_err(WallError::at("make a link at the top"))?;
    }
    // What had to be mounted to be empty, and is writable until all is in place.
    let mut covers = Vec::new();
    for (piece, tree) in pieces {
        match (piece, tree) {
            (Piece::Host(bind), Some(tree)) => {
                place(&bind.path, &tree).map_err(WallError::at("put a part of the host in place"))
            }
            (Piece::Host(_), None) => Ok(()),
            (Piece::Empty(at), _) => make_empty(at, &mut covers).map_err(WallError::at("make an empty directory")),
            (Piece::Temporary(at), _) => {
                make_temporary(at).map_err(WallError::at("make a directory for temporary files"))
            }
        }?;
    }
    make_covers().map_err(WallError::at("make the covers"))?;
    place(Path::new("/proc"), &proc).map_err(WallError::at("put /proc in place"))?;
    if processes == Processes::Own {
        cover_proc(plan)?;
    }
    for (pin, tree) in mounts.pins.iter().zip(pinned) {
        attach(&tree, &pin.path).map_err(WallError::at("pin a part of the workspace"))?;
    }
    dev_entries().map_err(WallError::at("arrange /dev"))?;
    for hidden in &mounts.hidden {
        hide(hidden)?;
    }
    for secret in &plan.secrets {
        cover(secret).map_err(WallError::at("hide a secret of the workspace"))?;
    }
    covers.push(HostPath::from("/"));
    for cover in covers {
        freeze(&cover).map_err(WallError::at("make a file system in memory read-only"))?;
    }
    Ok(())
}

/// Covers and pins again what has lost its mount because the host put another file in its place.
pub(crate) fn renew(plan: &Plan) -> io::Result<()> {
    let unpinned = |path: &Path| -> io::Result<Option<OwnedFd>> {
        // Not through a link: a command may have put one there meanwhile.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let entry = match rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
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
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
            let tree = rustix::mount::open_tree(&entry, c"", flags | OpenTreeFlags::AT_EMPTY_PATH)?;
            let read_only = !pin.writable;
            attributes(tree.as_fd(), c"", MountAttributes { read_only, private: false, recursive: true })?;
            attach_to(&tree, &entry)?;
        }
    }
    for secret in &plan.secrets {
        if let Some(entry) = unpinned(secret)? {
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

fn new_proc() -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

fn cover_proc(plan: &Plan) -> Result<(), WallError> {
    if let Some(tasks) = plan.task_ids {
        task_ids::bound(tasks).map_err(WallError::at("bound the number of tasks"))?;
    }
    for hidden in PROC_HIDDEN {
        hide(Path::new(hidden))?;
    }
    // To others these are read-only by their modes. Landlock holds them for both.
    if plan.root_caller {
        freeze_tree(Path::new("/proc/sys")).map_err(WallError::at("make /proc/sys read-only"))?;
    }
    Ok(())
}

/// pivot_root(2), "pivot_root(".", ".")": the old root is stacked on the new one, and let go of. `over` is a directory to attach
/// the new one to for the time being; what is kept of it is open already.
fn enter_empty_root(over: &Path) -> io::Result<()> {
    let root = memory_tree("755")?;
    attach(&root, over)?;
    rustix::process::fchdir(&root)?;
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    Ok(rustix::process::chdir("/")?)
}

/// Opens a part of the host before the host is gone; `None` when it does not exist or the caller may not reach it.
fn keep(piece: &Piece) -> Result<Option<OwnedFd>, WallError> {
    match piece {
        Piece::Host(bind) => keep_tree(bind, OpenTreeFlags::empty()),
        Piece::Empty(_) | Piece::Temporary(_) => Ok(None),
    }
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

fn open_clone(path: &Path, flags: OpenTreeFlags) -> io::Result<OwnedFd> {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    Ok(rustix::mount::open_tree(CWD, path, clone | flags)?)
}

/// Only the root in memory can be given new directories: what lies below a part of the host is there, or will not be.
fn make_empty(at: &Path, covers: &mut Vec<HostPath>) -> io::Result<()> {
    if !at.is_dir() {
        let _ = std::fs::create_dir_all(at);
        return Ok(());
    }
    attach(&memory_tree("755")?, at)?;
    covers.push(at.into());
    Ok(())
}

/// A mount of its own of a directory in the root, which stays writable when the root does not.
fn make_temporary(at: &Path) -> io::Result<()> {
    std::fs::create_dir_all(at)?;
    rustix::fs::chmod(at, Mode::from_raw_mode(0o1777))?;
    attach(&open_clone(at, OpenTreeFlags::empty())?, at)
}

fn memory_tree(mode: &str) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&context, "size", MEMORY_SIZE)?;
    rustix::mount::fsconfig_set_string(&context, "mode", mode)?;
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

fn attach(tree: &OwnedFd, at: &Path) -> io::Result<()> {
    Ok(rustix::mount::move_mount(tree, c"", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Puts a tree at its own path. What is missing of the path can only lie in the root in memory: the host's parts are read-only by
/// now, or granted as a whole, so nothing can be made there (CVE-2026-87766 is a launcher that did).
fn place(at: &Path, tree: &OwnedFd) -> io::Result<()> {
    let kind = FileType::from_raw_mode(rustix::fs::statat(tree, c"", AtFlags::EMPTY_PATH)?.st_mode);
    if let Some(parent) = at.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match kind {
        FileType::Directory => std::fs::create_dir_all(at)?,
        _ if at.exists() => {}
        _ => drop(std::fs::File::create(at)?),
    }
    attach(tree, at)
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

fn make_covers() -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::WRONLY;
    drop(rustix::fs::open(EMPTY_FILE, flags, Mode::empty())?);
    Ok(rustix::fs::mkdir(EMPTY_DIRECTORY, Mode::empty())?)
}

/// Covers a path of the system, where it exists and the caller could open it.
fn hide(path: &Path) -> Result<(), WallError> {
    let hidden = || -> io::Result<()> {
        let entry = match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(entry) => entry,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        // Any other answer than this one, and it is covered.
        let is_closed = |access| rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS) == Err(Errno::ACCESS);
        if !(is_closed(Access::READ_OK) && is_closed(Access::WRITE_OK)) {
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
    let tree = open_clone(Path::new(cover), OpenTreeFlags::empty())?;
    attributes(tree.as_fd(), c"", MountAttributes { read_only: true, private: false, recursive: false })?;
    Ok(tree)
}

/// Covers a file or directory with nothing; it must be there, and no link.
fn cover(path: &Path) -> io::Result<()> {
    let entry = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    attach_to(&cover_for(&entry)?, &entry)
}

fn attach_to(tree: &OwnedFd, entry: &OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(tree, c"", entry, c"", flags)?)
}

fn freeze(at: &Path) -> io::Result<()> {
    let path = sys::c_string(at)?;
    attributes(CWD.as_fd(), &path, MountAttributes { read_only: true, private: false, recursive: false })
}

/// Binds a directory over itself, read-only.
fn freeze_tree(at: &Path) -> io::Result<()> {
    let tree = open_clone(at, OpenTreeFlags::empty())?;
    attributes(tree.as_fd(), c"", MountAttributes { read_only: true, private: false, recursive: true })?;
    attach(&tree, at)
}

fn attributes(dir: std::os::fd::BorrowedFd<'_>, path: &CStr, attributes: MountAttributes) -> io::Result<()> {
    debug_assert!(!path.to_bytes().is_empty() || !attributes.private);
    sys::mount_setattr(dir, path, attributes)
}

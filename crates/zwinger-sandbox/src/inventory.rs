//! The inventory of what of a workspace the host runs or trusts by itself: what is there at one moment, to be known again at another.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use serde::{Deserialize, Serialize};

use crate::host_path::HostPath;
use crate::metadata::Kind;
use crate::root::{Root, read_up_to};

/// Bytes of one file, and of all together, that an inventory keeps.
pub(crate) const MAX_FILE: usize = 64 * 1024;
const MAX_KEPT: usize = 1024 * 1024;

/// How it is known again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mark {
    /// A file.
    File {
        inode: u64,
        size: u64,
        /// Permission bits.
        mode: u32,
        /// Nanoseconds; no process can choose it.
        changed: i128,
        /// What stands in it, if that was small enough to be kept.
        content: Option<Vec<u8>>,
    },
    /// A directory, whose entries are items of their own.
    Directory { changed: i128 },
    /// A link, and what it says.
    Link { target: Vec<u8>, changed: i128 },
    /// A FIFO, socket or device.
    Special { changed: i128 },
}

impl Mark {
    pub(crate) fn changed(&self) -> i128 {
        match self {
            Self::File { changed, .. }
            | Self::Directory { changed }
            | Self::Link { changed, .. }
            | Self::Special { changed } => *changed,
        }
    }
}

/// One thing of the protected kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Item {
    pub(crate) kind: Kind,
    pub(crate) mark: Mark,
}

/// What of the protected kind is in a workspace. Paths are relative to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inventory {
    /// What was made or changed since then has a later time of change; nanoseconds since 1970.
    pub(crate) taken: i128,
    pub(crate) items: BTreeMap<HostPath, Item>,
    /// Git directories that were looked through, submodules' and worktrees' own included.
    pub(crate) repositories: BTreeSet<HostPath>,
    /// Directories below which something was not looked at.
    pub(crate) unseen: Vec<HostPath>,
    kept: usize,
}

/// Clocks of file systems go in ticks (10 ms at most) and are behind the one that programs read by less than that.
const TICK: i128 = 20_000_000;

impl Inventory {
    /// An empty one of this moment.
    pub(crate) fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i128::try_from(now.as_nanos()).unwrap_or(i128::MAX);
        Self { taken: now - TICK, ..Self::default() }
    }

    /// Adds what is at `path`; with its content if `keep` says so and there is room. What is gone meanwhile is not added.
    pub(crate) fn add(&mut self, workspace: &Root, path: &Path, kind: Kind, keep: bool) {
        // What there may be much of leaves room for the rest.
        let most = if kind == Kind::NestedSetting { MAX_KEPT / 2 } else { MAX_KEPT };
        let room = if keep { most.saturating_sub(self.kept) } else { 0 };
        if let Some(mark) = look(workspace, path, room) {
            if let Mark::File { content: Some(content), .. } = &mark {
                self.kept += content.len();
            }
            self.items.insert(path.into(), Item { kind, mark });
        }
    }

    /// What of it is in a directory, which is a workspace itself. There other things count, so that nothing is known not to have been
    /// there.
    pub(crate) fn below(&self, inside: &Path) -> Self {
        if inside.as_os_str().is_empty() {
            return self.clone();
        }
        let items =
            self.items.iter().filter_map(|(path, item)| Some((path.strip_prefix(inside).ok()?.into(), item.clone())));
        Self { taken: self.taken, items: items.collect(), unseen: vec!["".into()], ..Self::default() }
    }

    /// Whether what is at `path` may have been there without having been seen.
    pub(crate) fn may_have_missed(&self, path: &Path) -> bool {
        self.unseen.iter().any(|unseen| path.starts_with(unseen))
    }
}

/// What is at `path`, no link followed on the way.
pub(crate) fn look(workspace: &Root, path: &Path, room: usize) -> Option<Mark> {
    let found = open(workspace, path, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
    let status = rustix::fs::fstat(&found).ok()?;
    let changed = changed(&status);
    Some(match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => {
            let small = usize::try_from(status.st_size).is_ok_and(|size| size <= MAX_FILE.min(room));
            Mark::File {
                inode: status.st_ino,
                size: status.st_size.cast_unsigned(),
                mode: status.st_mode & 0o7777,
                changed,
                content: small.then(|| read(workspace, path)).flatten(),
            }
        }
        FileType::Directory => Mark::Directory { changed },
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(&found, "", Vec::new()).ok()?;
            Mark::Link { target: target.into_bytes(), changed }
        }
        _ => Mark::Special { changed },
    })
}

fn changed(status: &Stat) -> i128 {
    i128::from(status.st_ctime) * 1_000_000_000 + i128::from(status.st_ctime_nsec)
}

/// A small file, no link followed; `None` for anything else.
pub(crate) fn read(workspace: &Root, path: &Path) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open(workspace, path, flags).ok()?;
    let status = rustix::fs::fstat(&file).ok()?;
    let regular = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
    regular.then(|| read_up_to(&mut File::from(file), MAX_FILE).ok().flatten()).flatten()
}

/// Opens what is at `path` beneath the workspace; a link on the way is refused, and at its end too, unless the flags are PATH and
/// NOFOLLOW: then it is the link itself (openat2(2)).
pub(crate) fn open(workspace: &Root, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    loop {
        match rustix::fs::openat2(workspace, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            // openat2(2): a rename or mount elsewhere raced with `..`; try again.
            Err(rustix::io::Errno::AGAIN) => {}
            opened => return opened,
        }
    }
}

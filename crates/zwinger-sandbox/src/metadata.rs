//! What of a workspace the host runs or trusts by itself: the one table of it, and the inventory of what of it is there.
//!
//! What counts is what a program of the host runs or obeys without the person asking for a build, a test or a script:
//!
//! - At the top of the workspace: settings of everything that is opened or started there (editors, agents, package managers, shells).
//! - At any depth: what git runs, cargo's settings, and what is read from below though the person opened or started something at the
//!   top. Agents take instructions and rules from the directory of a file that they look at (`AGENTS.md`, `CLAUDE.md`, `GEMINI.md`,
//!   `.claude`, `.codex`, `.cursor`, `.gemini`, `.windsurf`), and Zed its settings (`.zed`). `.vscode` and `.idea` count as well:
//!   an editor trusts a project below one that it trusts, and runs its tasks when that is opened. Not below `node_modules`, where
//!   packages bring such directories along and nobody opens one.
//! - Not at any depth, because they are read of the directory where something is started, or ask first: rules of a whole project
//!   (`.clinerules`, `.roorules`, `.roo`, `.cursorrules`, `.windsurfrules`, `.junie`, `.kiro`, `.continue`, `.aider.conf.yml`,
//!   `*.code-workspace`), `.mcp.json`, `.devcontainer`, `.envrc`, `mise.toml`, `.exrc`, `.dir-locals.el`, and package managers'.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use serde::{Deserialize, Serialize};

use crate::host_path::HostPath;
use crate::root::{Root, read_up_to};

/// Settings at the top of a project that the host's programs read when they meet them.
const SETTINGS: [&str; 44] = [
    ".junie",
    ".roorules",
    ".aider.conf.yml",
    ".clinerules",
    ".continue",
    ".cursorrules",
    ".devcontainer.json",
    ".dir-locals.el",
    ".exrc",
    ".fleet",
    ".kiro",
    ".mise.toml",
    ".nvim.lua",
    ".opencode",
    ".roo",
    ".run",
    ".windsurf",
    ".windsurfrules",
    ".zed",
    "AGENTS.override.md",
    "CLAUDE.local.md",
    "lefthook.yml",
    "mise.toml",
    "opencode.json",
    ".githooks",
    ".gitmodules",
    ".vscode",
    ".idea",
    ".devcontainer",
    ".mcp.json",
    ".claude",
    ".codex",
    ".cursor",
    ".gemini",
    ".envrc",
    ".husky",
    ".pre-commit-config.yaml",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    "AGENTS.md",
    "CLAUDE.md",
    "GEMINI.md",
    ".zwinger.toml",
];

/// Settings that are read at any depth.
const NESTED: [&str; 13] = [
    ".claude",
    ".codex",
    ".cursor",
    ".gemini",
    ".idea",
    ".vscode",
    ".windsurf",
    ".zed",
    "AGENTS.md",
    "AGENTS.override.md",
    "CLAUDE.local.md",
    "CLAUDE.md",
    "GEMINI.md",
];

/// Of these, what is read only where somebody opens a project.
const OF_EDITORS: [&str; 2] = [".idea", ".vscode"];

/// In `.github`, what agents read or run (GitHub Copilot).
const OF_GITHUB: [&str; 3] = ["copilot-instructions.md", "hooks", "instructions"];

/// Parts of a git directory, a submodule's or a worktree's own, that make git run or trust something.
const OF_GIT: [(&str, Kind); 6] = [
    ("config", Kind::Config),
    ("config.worktree", Kind::WorktreeConfig),
    ("hooks", Kind::Hook),
    // Addresses, which may be `HELPER::ADDRESS` (git-fetch(1), "Named file in $GIT_DIR/remotes").
    ("remotes", Kind::Hook),
    ("commondir", Kind::CommonDirectory),
    ("gitdir", Kind::Worktree),
];

/// Where a directory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The workspace itself.
    Top,
    /// Anywhere below.
    Below,
    /// In a git directory, submodules' and worktrees' own included.
    Git,
}

/// What something of the protected kind is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Of the host's programs.
    Setting,
    /// The same, in a directory below. There may be many: it is not kept as it is, but put back when the session is over.
    NestedSetting,
    /// A program that git runs.
    Hook,
    /// Settings of a repository.
    Config,
    /// Settings of one worktree.
    WorktreeConfig,
    /// `info/attributes`.
    Attributes,
    /// `commondir`: where the rest of a git directory is.
    CommonDirectory,
    /// `gitdir`: where the worktree of a git directory is.
    Worktree,
    /// A `.git` that is no directory.
    GitLink,
    /// A link where git, or cargo, would follow it to settings.
    Link,
    /// `HEAD` of a directory that git takes for a repository though it is not named `.git`.
    BareHead,
    /// A directory that cannot be looked into.
    Closed,
}

impl Kind {
    /// What a person is told that it is.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Setting | Self::NestedSetting => "settings that programs read by themselves",
            Self::Hook => "a hook",
            Self::Config => "git settings that could run something",
            Self::WorktreeConfig => "git settings of a worktree",
            Self::Attributes => "git attributes",
            Self::CommonDirectory | Self::Worktree => "a part of a git directory that leads elsewhere",
            Self::GitLink => "a .git that leads to no repository of the workspace",
            Self::Link => "a link to settings",
            Self::BareHead => "it makes its directory a bare repository",
            Self::Closed => "a directory that nobody can look into",
        }
    }
}

/// What of the kind an entry is by its name; `bare` is whether its directory looks like a bare repository.
pub(crate) fn kind_of(name: &OsStr, path: &Path, place: Place, bare: bool) -> Option<Kind> {
    let below = |directory| path.parent().is_some_and(|parent| parent.ends_with(directory));
    if place == Place::Git || bare {
        if let Some((_, kind)) = OF_GIT.iter().find(|(of_git, _)| name == *of_git) {
            return Some(*kind);
        }
        if place == Place::Git {
            return (name == "attributes" && below("info")).then_some(Kind::Attributes);
        }
    }
    let of_bare = || path.ancestors().nth(2).is_some_and(|parent| parent.join("HEAD").symlink_metadata().is_ok());
    if name == "attributes" && below("info") && of_bare() {
        return Some(Kind::Attributes);
    }
    let is_in = |names: &[&str]| names.iter().any(|known| name == *known);
    let of_top =
        place == Place::Top && (is_in(&SETTINGS) || Path::new(name).extension() == Some("code-workspace".as_ref()));
    // cargo reads either name (cargo book, "Configuration").
    let of_cargo = (name == "config.toml" || name == "config") && below(".cargo");
    if of_top || of_cargo {
        return Some(Kind::Setting);
    }
    let in_packages = || path.iter().any(|component| component == "node_modules");
    let nested = is_in(&NESTED) && !(is_in(&OF_EDITORS) && in_packages());
    (nested || is_in(&OF_GITHUB) && below(".github")).then_some(Kind::NestedSetting)
}

/// What git takes for a repository whatever its name is (setup.c, is_git_directory): the rest of one that has `commondir` is
/// looked for there.
pub(crate) fn looks_bare<'a>(names: impl Iterator<Item = &'a OsStr>) -> bool {
    let [mut head, mut objects, mut refs, mut common] = [false; 4];
    for name in names {
        match name.as_bytes() {
            b"HEAD" => head = true,
            b"objects" => objects = true,
            b"refs" => refs = true,
            b"commondir" => common = true,
            _ => {}
        }
    }
    head && (objects && refs || common)
}

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

//! What of a workspace must be hidden or kept as it is, found by one bounded walk from outside before the walls are raised.

use std::ffi::OsStr;
use std::fs::FileType;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::host_path::HostPath;

/// Bounds of the walk; what lies beyond them is said to be unseen.
const MAX_ENTRIES: usize = 100_000;
const MAX_TIME: Duration = Duration::from_millis(200);

/// Bytes of a path that leave room below PATH_MAX (4096, limits.h) for a name.
const NAMEABLE: usize = 3800;

/// Endings of `.env.*` that hold examples, not secrets.
const EXAMPLES: [&str; 5] = ["example", "sample", "template", "dist", "test"];

/// What the host runs or reads by itself when it meets it in a project.
const PROTECTED: [&str; 20] = [
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

/// Parts of a git directory, a submodule's or a worktree's own, that make git run or trust something.
const GIT_PROTECTED: [&str; 5] = ["config", "config.worktree", "hooks", "commondir", "gitdir"];

/// Directories of git that hold data by any name and that nothing is run from.
const GIT_DATA: [&str; 5] = ["objects", "refs", "logs", "lfs", "rr-cache"];

/// What the walk found. Paths are below the workspace's canonical root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// Files that are hidden, and directories that could not be looked into.
    pub secrets: Vec<HostPath>,
    /// Links that name a secret. What they lead to is hidden, for as long as they are there.
    pub secret_links: Vec<HostPath>,
    /// Directories that must not be moved away, with what they hold that is protected.
    pub pinned: Vec<HostPath>,
    /// Files and directories that are read-only.
    pub protected: Vec<HostPath>,
    /// Protected names that are links, which no mount can hold.
    pub links: Vec<HostPath>,
    /// Why the walk did not see everything; `None` when it did.
    pub unseen: Option<String>,
}

impl Scan {
    /// Walks the workspace without following links.
    pub fn of(workspace: &Path) -> Self {
        let mut walk = Walk {
            workspace: workspace.to_owned(),
            scan: Self::default(),
            entries: 0,
            deadline: Instant::now() + MAX_TIME,
        };
        let mut open = vec![(workspace.to_owned(), Place::Top)];
        while let Some((directory, place)) = open.pop() {
            if !walk.directory(&directory, place, &mut open) {
                break;
            }
        }
        let mut scan = walk.scan;
        for paths in [&mut scan.secrets, &mut scan.secret_links, &mut scan.pinned, &mut scan.protected, &mut scan.links]
        {
            paths.sort();
            paths.dedup();
        }
        scan
    }
}

/// Where a directory lies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The workspace itself.
    Top,
    /// Anywhere below.
    Below,
    /// In a git directory, submodules' and worktrees' own included.
    Git,
}

struct Walk {
    workspace: PathBuf,
    scan: Scan,
    entries: usize,
    deadline: Instant,
}

impl Walk {
    /// `false` when a bound is reached.
    fn directory(&mut self, directory: &Path, place: Place, open: &mut Vec<(PathBuf, Place)>) -> bool {
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            // An owner may open it again from inside; what nobody saw is covered as a whole.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                self.scan.secrets.push(directory.into());
                return true;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return true,
            Err(error) => {
                // Too deep to be named, usually: the nearest directory that can be is covered with all below it.
                let nameable = directory.ancestors().find(|ancestor| ancestor.as_os_str().len() < NAMEABLE);
                self.scan.secrets.extend(nameable.map(HostPath::from));
                self.scan.unseen = Some(format!("a directory could not be looked into: {error}"));
                return true;
            }
        };
        for entry in entries {
            self.entries += 1;
            if self.entries > MAX_ENTRIES || Instant::now() > self.deadline {
                self.scan.unseen = Some(format!("the scan of the workspace ended after {} entries", self.entries));
                return false;
            }
            let Ok((entry, kind)) = entry.and_then(|entry| entry.file_type().map(|kind| (entry, kind))) else {
                self.scan.unseen = Some("an entry of the workspace could not be looked at".into());
                continue;
            };
            self.entry(&entry.file_name(), entry.path(), kind, place, open);
        }
        true
    }

    fn entry(&mut self, name: &OsStr, path: PathBuf, kind: FileType, place: Place, open: &mut Vec<(PathBuf, Place)>) {
        if is_secret(name) && !kind.is_dir() {
            self.secret(path, kind);
            return;
        }
        let mut inside = if place == Place::Top { Place::Below } else { place };
        if name == ".git" {
            if kind.is_dir() {
                self.scan.pinned.push(path.clone().into());
                self.pin_directories_of(&path);
                inside = Place::Git;
            } else {
                self.protect(path.clone(), kind);
            }
        } else if is_protected(name, &path, place) {
            self.protect(path.clone(), kind);
        }
        if kind.is_dir() && !(place == Place::Git && is_data(name, &path)) {
            open.push((path, inside));
        }
    }

    /// A link is no secret, but what it leads to is, if that is a file of the workspace: elsewhere nothing can be read anyway,
    /// or it is no secret of this workspace.
    fn secret(&mut self, path: PathBuf, kind: FileType) {
        if !kind.is_symlink() {
            self.scan.secrets.push(path.into());
            return;
        }
        let target = path.canonicalize();
        self.scan.secret_links.push(path.into());
        let inside = |target: &PathBuf| target.starts_with(&self.workspace) && target.is_file();
        self.scan.secrets.extend(target.ok().filter(inside).map(HostPath::from));
    }

    fn protect(&mut self, path: PathBuf, kind: FileType) {
        if kind.is_symlink() {
            self.scan.links.push(path.into());
        } else if kind.is_file() || kind.is_dir() {
            self.pin_directories_of(&path);
            self.scan.protected.push(path.into());
        }
    }

    /// One that is moved away could be made anew with another file in it.
    fn pin_directories_of(&mut self, path: &Path) {
        let below = path.ancestors().skip(1).take_while(|directory| *directory != self.workspace);
        self.scan.pinned.extend(below.map(HostPath::from));
    }
}

/// What makes the host, or git on it, run or trust something.
fn is_protected(name: &OsStr, path: &Path, place: Place) -> bool {
    let below = |directory| path.parent().is_some_and(|parent| parent.ends_with(directory));
    match place {
        Place::Git if name == "attributes" => below("info"),
        Place::Git => GIT_PROTECTED.iter().any(|protected| name == *protected),
        Place::Top if PROTECTED.iter().any(|protected| name == *protected) => true,
        Place::Top | Place::Below => name == "config.toml" && below(".cargo"),
    }
}

/// A directory of data in a git directory, and not a submodule or worktree with such a name.
fn is_data(name: &OsStr, path: &Path) -> bool {
    let holds =
        |directory: &Path, names: &[&str]| names.iter().any(|name| directory.join(name).symlink_metadata().is_ok());
    let in_repository =
        |parent: &Path| parent.ends_with(".git") || holds(parent, &["HEAD"]) && !parent.ends_with("modules");
    GIT_DATA.iter().any(|data| name == *data)
        && path.parent().is_some_and(in_repository)
        && !holds(path, &["HEAD", "config", "gitdir", "commondir"])
}

/// `.env` and `.env.*`, but for examples.
fn is_secret(name: &OsStr) -> bool {
    match name.as_bytes().strip_prefix(b".env") {
        Some(b"") => true,
        Some([b'.', ending @ ..]) => !EXAMPLES.iter().any(|example| example.as_bytes() == ending),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(root: &Path, files: &[&str]) {
        for file in files {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
    }

    #[test]
    fn g13_secrets_at_any_depth_and_no_examples() {
        let dir = tempfile::tempdir().unwrap();
        make(
            dir.path(),
            &[".env", "a/b/c/d/.env.local", ".env.example", "a/.env.test", ".envrc", ".environment", "a/.env.d/x"],
        );
        let scan = Scan::of(dir.path());
        assert_eq!(scan.secrets, [dir.path().join(".env").into(), dir.path().join("a/b/c/d/.env.local").into()]);
        assert_eq!(scan.unseen, None);
    }

    #[test]
    fn b01_nested_repositories_and_top_level_settings() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        make(
            root,
            &[".git/config", ".git/hooks/x", ".git/modules/a/m/config", "vendor/sub/.git/config", ".vscode/tasks.json"],
        );
        make(root, &["AGENTS.md", "docs/AGENTS.md", ".cargo/config.toml", ".git/objects/aa/bb"]);
        std::os::unix::fs::symlink("/tmp/x", root.join(".mcp.json")).unwrap();
        let scan = Scan::of(root);
        let below = |paths: &[HostPath]| -> Vec<String> {
            paths.iter().map(|path| path.strip_prefix(root).unwrap().display().to_string()).collect()
        };
        assert_eq!(
            below(&scan.pinned),
            [
                ".cargo",
                ".git",
                ".git/modules",
                ".git/modules/a",
                ".git/modules/a/m",
                "vendor",
                "vendor/sub",
                "vendor/sub/.git"
            ]
        );
        assert_eq!(
            below(&scan.protected),
            [
                ".cargo/config.toml",
                ".git/config",
                ".git/hooks",
                ".git/modules/a/m/config",
                ".vscode",
                "AGENTS.md",
                "vendor/sub/.git/config",
            ]
        );
        assert_eq!(below(&scan.links), [".mcp.json"]);
    }

    #[test]
    fn g13_secrets_hide_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        make(root, &[".vscode/.env", ".git/.env", ".cargo/.env", "sub/.git/config", "conf/real", "refs/x"]);
        let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, root.join(name)).unwrap();
        for (target, name) in [
            ("conf/real", ".env.link"),
            (".env.loop", ".env.loop"),
            ("/bin/sh", ".env.sh"),
            (".", ".env.dir"),
            ("gone", ".env"),
        ] {
            link(target, name);
        }
        // A branch may have any name.
        make(root, &[".git/refs/heads/config", ".git/refs/heads/.env"]);
        let scan = Scan::of(root);
        let found =
            [".cargo/.env", ".git/.env", ".vscode/.env", "conf/real"].map(|path| HostPath::from(root.join(path)));
        assert_eq!(scan.secrets, found);
        assert!(!scan.protected.contains(&root.join(".git/refs/heads/config").into()));
    }

    #[test]
    fn b10_a_git_file_and_a_git_link() {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), &["a/.git", "b/x"]);
        std::os::unix::fs::symlink("x", dir.path().join("b/.git")).unwrap();
        let scan = Scan::of(dir.path());
        assert_eq!(scan.protected, [HostPath::from(dir.path().join("a/.git"))]);
        assert_eq!(scan.links, [HostPath::from(dir.path().join("b/.git"))]);
    }
}

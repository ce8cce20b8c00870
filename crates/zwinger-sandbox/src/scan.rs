//! What of a workspace must be hidden or kept as it is, found by one bounded walk from outside before the walls are raised.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::host_path::HostPath;

/// Bounds of the walk; what lies beyond them is said to be unseen.
const MAX_ENTRIES: usize = 100_000;
const MAX_TIME: Duration = Duration::from_millis(200);

/// Endings of `.env.*` that hold examples, not secrets.
const EXAMPLES: [&str; 5] = ["example", "sample", "template", "dist", "test"];

/// What the host runs or reads by itself when it meets it in a project (DESIGN 9).
const PROTECTED: [&str; 19] = [
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

/// Parts of a git directory that make git run or trust something.
const GIT_PROTECTED: [&str; 4] = ["config", "config.worktree", "hooks", "info/attributes"];

/// What the walk found. Paths are below the workspace's canonical root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// Files that are hidden.
    pub secrets: Vec<HostPath>,
    /// Directories of git; each is pinned so that it cannot be moved away with what it protects.
    pub repositories: Vec<HostPath>,
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
        let mut walk = Walk { scan: Self::default(), entries: 0, deadline: Instant::now() + MAX_TIME };
        let mut open = vec![workspace.to_owned()];
        while let Some(directory) = open.pop() {
            if !walk.directory(&directory, directory == workspace, &mut open) {
                break;
            }
        }
        let mut scan = walk.scan;
        for paths in [&mut scan.secrets, &mut scan.repositories, &mut scan.protected, &mut scan.links] {
            paths.sort();
        }
        scan
    }
}

struct Walk {
    scan: Scan,
    entries: usize,
    deadline: Instant,
}

impl Walk {
    /// `false` when a bound is reached.
    fn directory(&mut self, directory: &Path, top: bool, open: &mut Vec<PathBuf>) -> bool {
        // What the caller cannot read is closed to the session as well, which has no more rights.
        let Ok(entries) = std::fs::read_dir(directory) else { return true };
        for entry in entries.flatten() {
            self.entries += 1;
            if self.entries > MAX_ENTRIES || Instant::now() > self.deadline {
                self.scan.unseen = Some(format!("the scan of the workspace ended after {} entries", self.entries));
                return false;
            }
            let Ok(kind) = entry.file_type() else { continue };
            let (name, path) = (entry.file_name(), entry.path());
            if is_secret(&name) && !kind.is_dir() {
                self.scan.secrets.push(path.into());
            } else if name == ".git" && kind.is_dir() {
                self.repository(&path);
            } else if top && PROTECTED.iter().any(|protected| name == *protected) {
                self.protect(path, kind);
            } else if name == ".cargo" && kind.is_dir() {
                self.protect_if_present(&path.join("config.toml"));
            } else if kind.is_dir() {
                open.push(path);
            }
        }
        true
    }

    fn repository(&mut self, git: &Path) {
        self.scan.repositories.push(git.into());
        for part in GIT_PROTECTED {
            self.protect_if_present(&git.join(part));
        }
        // Submodules and linked worktrees have settings of their own.
        for kept in ["modules", "worktrees"] {
            for entry in std::fs::read_dir(git.join(kept)).into_iter().flatten().flatten() {
                for part in GIT_PROTECTED {
                    self.protect_if_present(&entry.path().join(part));
                }
            }
        }
    }

    fn protect_if_present(&mut self, path: &Path) {
        if let Ok(status) = path.symlink_metadata() {
            self.protect(path.to_owned(), status.file_type());
        }
    }

    fn protect(&mut self, path: PathBuf, kind: std::fs::FileType) {
        if kind.is_symlink() {
            self.scan.links.push(path.into());
        } else if kind.is_file() || kind.is_dir() {
            self.scan.protected.push(path.into());
        }
    }
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
            &[".git/config", ".git/hooks/x", ".git/modules/m/config", "vendor/sub/.git/config", ".vscode/tasks.json"],
        );
        make(root, &["AGENTS.md", "docs/AGENTS.md", ".cargo/config.toml", ".git/objects/aa/bb"]);
        std::os::unix::fs::symlink("/tmp/x", root.join(".mcp.json")).unwrap();
        let scan = Scan::of(root);
        let below = |paths: &[HostPath]| -> Vec<String> {
            paths.iter().map(|path| path.strip_prefix(root).unwrap().display().to_string()).collect()
        };
        assert_eq!(below(&scan.repositories), [".git", "vendor/sub/.git"]);
        assert_eq!(
            below(&scan.protected),
            [
                ".cargo/config.toml",
                ".git/config",
                ".git/hooks",
                ".git/modules/m/config",
                ".vscode",
                "AGENTS.md",
                "vendor/sub/.git/config",
            ]
        );
        assert_eq!(below(&scan.links), [".mcp.json"]);
    }
}

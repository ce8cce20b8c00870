//! What of a workspace must be hidden or kept as it is, found by one bounded walk from outside before the walls are raised.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{Access, AtFlags, FileType};

use crate::directory;
use crate::host_path::{HostPath, canonical};
use crate::inventory::Inventory;
use crate::metadata::{Kind, Place, kind_of, looks_bare};
use crate::root::{Root, draft};

/// Bounds of the walk; what lies beyond them is said to be unseen. When a session is over, ten times as much is looked at: what
/// it left may be meant to exhaust a walk.
const MAX_ENTRIES: usize = 100_000;
const MAX_TIME: Duration = Duration::from_millis(200);
const CLOSING: u32 = 10;

/// Bytes of a path that leave room below PATH_MAX (4096, limits.h) for a name.
const NAMEABLE: usize = 3800;

/// Endings of `.env.*` that hold examples, not secrets.
const EXAMPLES: [&str; 5] = ["example", "sample", "template", "dist", "test"];

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
    /// Directories in which killed writers left unfinished files.
    pub unfinished: Vec<HostPath>,
    /// Why the walk did not see everything; `None` when it did.
    pub unseen: Option<String>,
    /// What of the protected kind there is, to be known again when the session is over.
    pub(crate) inventory: Arc<Inventory>,
}

impl Scan {
    /// Walks the workspace without following links.
    pub fn of(workspace: &Path) -> Self {
        Self::walk(workspace, 1, true)
    }

    /// The walk when a session is over: longer, and without keeping what stands in files.
    pub(crate) fn closing(workspace: &Path) -> Self {
        Self::walk(workspace, CLOSING, false)
    }

    fn walk(workspace: &Path, times: u32, keep: bool) -> Self {
        let root = match Root::open_ambient(workspace) {
            Ok(root) => root,
            Err(error) => {
                let unseen = Some(format!("the workspace could not be looked into: {error}"));
                let mut inventory = Inventory::new();
                inventory.unseen.push("".into());
                return Self { unseen, inventory: inventory.into(), ..Self::default() };
            }
        };
        let mut walk = Walk {
            workspace: workspace.to_owned(),
            root,
            keep,
            scan: Self::default(),
            inventory: Inventory::new(),
            entries: 0,
            max_entries: MAX_ENTRIES * times as usize,
            deadline: Instant::now() + MAX_TIME * times,
        };
        let mut open = vec![Visit { directory: workspace.to_owned(), place: Place::Top, held: None }];
        while let Some(visit) = open.pop() {
            if !walk.directory(&visit, &mut open) {
                let left = std::iter::once(visit).chain(open);
                let left = left.map(|visit| walk.relative(&visit.directory).into()).collect::<Vec<_>>();
                walk.inventory.unseen.extend(left);
                break;
            }
        }
        let mut scan = walk.scan;
        let Scan { secrets, secret_links, pinned, protected, links, unfinished, .. } = &mut scan;
        for paths in [secrets, secret_links, pinned, protected, links, unfinished] {
            paths.sort();
            paths.dedup();
        }
        scan.inventory = walk.inventory.into();
        scan
    }
}

/// A directory that is to be walked.
struct Visit {
    directory: PathBuf,
    place: Place,
    /// In something protected, of which everything counts.
    held: Option<Kind>,
}

/// An entry of a directory.
struct Found {
    name: OsString,
    path: PathBuf,
    kind: FileType,
}

struct Walk {
    workspace: PathBuf,
    root: Root,
    keep: bool,
    scan: Scan,
    inventory: Inventory,
    entries: usize,
    max_entries: usize,
    deadline: Instant,
}

impl Walk {
    /// `false` when a bound is reached.
    fn directory(&mut self, visit: &Visit, open: &mut Vec<Visit>) -> bool {
        let directory = &visit.directory;
        // One that can be listed but not searched shows names and nothing else of what is in it.
        let is_open = || rustix::fs::accessat(rustix::fs::CWD, directory, Access::EXEC_OK, AtFlags::EACCESS);
        let mut found = Vec::new();
        let mut bounded = true;
        let listed = directory::list(directory, |name, kind| {
            self.entries += 1;
            bounded = self.entries <= self.max_entries && Instant::now() <= self.deadline;
            found.push(Found { path: directory.join(&name), name, kind });
            bounded
        });
        match listed.and_then(|()| Ok(is_open()?)) {
            Ok(()) if !bounded => {
                self.scan.unseen = Some(format!("the scan of the workspace ended after {} entries", self.entries));
                return false;
            }
            Ok(()) => {}
            // An owner may open it again from inside; what nobody saw is covered as a whole.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                self.scan.secrets.push(directory.as_path().into());
                self.count(directory, Kind::Closed);
                self.inventory.unseen.push(self.relative(directory).into());
                return true;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return true,
            Err(error) => {
                // Too deep to be named, usually: the nearest directory that can be is covered with all below it.
                let nameable = directory.ancestors().find(|ancestor| ancestor.as_os_str().len() < NAMEABLE);
                self.scan.secrets.extend(nameable.map(HostPath::from));
                self.scan.unseen = Some(format!("a directory could not be looked into: {error}"));
                self.inventory.unseen.push(self.relative(directory).into());
                return true;
            }
        }
        if found.iter().any(|entry| entry.kind == FileType::Unknown) {
            self.scan.unseen = Some("an entry of the workspace could not be looked at".into());
        }
        let bare = looks_bare(found.iter().map(|entry| entry.name.as_os_str()));
        if visit.place == Place::Git && found.iter().any(|entry| entry.name == "HEAD") {
            self.inventory.repositories.insert(self.relative(directory).into());
        }
        for entry in found {
            self.entry(entry, visit, bare && visit.place != Place::Git, open);
        }
        true
    }

    fn entry(&mut self, entry: Found, visit: &Visit, bare: bool, open: &mut Vec<Visit>) {
        let Found { name, path, kind } = entry;
        if is_secret(&name) && !kind.is_dir() {
            if kind.is_symlink() && self.leads_into_git(&path) {
                self.count(&path, Kind::IntoGit);
            }
            self.secret(path, kind);
            return;
        }
        if draft::is_name(&name) && kind.is_file() {
            self.scan.unfinished.push(visit.directory.as_path().into());
        }
        let mut inside = match visit.place {
            Place::Top => Place::Second,
            Place::Second | Place::Below => Place::Below,
            Place::Git => Place::Git,
        };
        let mut held = visit.held;
        if name == ".git" {
            if kind.is_dir() {
                self.scan.pinned.push(path.clone().into());
                self.pin_directories_of(&path);
                inside = Place::Git;
            } else {
                // What a link leads to is a repository, which git must be able to write.
                match kind.is_symlink() {
                    true => self.scan.links.push(path.clone().into()),
                    false => self.protect(path.clone(), kind),
                }
                self.count(&path, Kind::GitLink);
            }
        } else if let Some(protected) = kind_of(&name, &path, visit.place, bare) {
            if !matches!(protected, Kind::NestedSetting | Kind::RebaseTodo) {
                self.protect(path.clone(), kind);
            }
            match (protected, kind.is_dir()) {
                // What counts is what stands in it.
                (Kind::Hook, true) => held = Some(Kind::Hook),
                (Kind::Setting | Kind::NestedSetting, true) => {
                    held = Some(protected);
                    self.count(&path, protected);
                }
                // Git reads a file by that name; the directory may be that of a worktree so named.
                (_, true) => {}
                (_, false) => self.count(&path, protected),
            }
        } else if let Some(held) = held {
            if !(held == Kind::Hook && visit.directory.ends_with("hooks") && name.as_bytes().ends_with(b".sample")) {
                self.count(&path, held);
                if kind.is_symlink() && held != Kind::NestedSetting {
                    self.protect_target(&path);
                }
            }
        } else if bare && name == "HEAD" {
            self.count(&path, Kind::BareHead);
        } else if kind.is_symlink() && is_way(&name, visit.place) {
            self.count(&path, Kind::Link);
        } else if kind.is_symlink() && visit.place != Place::Git && self.leads_into_git(&path) {
            self.count(&path, Kind::IntoGit);
        }
        if kind.is_dir() {
            match visit.place == Place::Git && is_data(&name, &path) {
                true if path.parent().is_some_and(|parent| parent.ends_with(".git")) => {}
                // A submodule may be named so that it lies here, and a command may have made what says that it does not.
                true => open.push(Visit { directory: path, place: Place::Below, held }),
                false => open.push(Visit { directory: path, place: inside, held }),
            }
        }
    }

    /// Whether a link leads to a git directory of the workspace or into one, where data may have any name and is not looked
    /// through. Some link on such a way has to name it.
    fn leads_into_git(&self, link: &Path) -> bool {
        let of_git = |path: &Path| path.iter().any(|component| component == ".git");
        let names_it = rustix::fs::readlink(link, Vec::new())
            .is_ok_and(|target| of_git(Path::new(OsStr::from_bytes(target.as_bytes()))));
        names_it && canonical(link).is_ok_and(|target| target.strip_prefix(&self.workspace).is_ok_and(of_git))
    }

    fn count(&mut self, path: &Path, kind: Kind) {
        let path = self.relative(path);
        self.inventory.add(&self.root, &path, kind, self.keep);
    }

    fn relative(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.workspace).unwrap_or(path).to_owned()
    }

    /// A link is no secret, but what it leads to is, if that is a file of the workspace: elsewhere nothing can be read anyway,
    /// or it is no secret of this workspace.
    fn secret(&mut self, path: PathBuf, kind: FileType) {
        // A directory that is moved away takes the cover of what is in it along, and could be made anew with a link in its place.
        if !kind.is_symlink() {
            self.pin_directories_of(&path);
            self.scan.secrets.push(path.into());
            return;
        }
        let target = canonical(&path);
        self.scan.secret_links.push(path.into());
        let inside = |target: &PathBuf| target.starts_with(&self.workspace) && target.is_file();
        if let Some(target) = target.ok().filter(inside) {
            self.pin_directories_of(&target);
            self.scan.secrets.push(target.into());
        }
    }

    fn protect(&mut self, path: PathBuf, kind: FileType) {
        if kind.is_symlink() {
            self.protect_target(&path);
            self.scan.links.push(path.into());
        } else if kind.is_file() || kind.is_dir() {
            self.pin_directories_of(&path);
            self.scan.protected.push(path.into());
        }
    }

    /// What a link leads to is what is read or run, wherever in the workspace that is.
    fn protect_target(&mut self, link: &Path) {
        let target = canonical(link).ok();
        let inside = |target: &PathBuf| target.starts_with(&self.workspace) && *target != self.workspace;
        if let Some(target) = target.filter(inside) {
            self.pin_directories_of(&target);
            self.scan.protected.push(target.into());
        }
    }

    /// One that is moved away could be made anew with another file in it.
    fn pin_directories_of(&mut self, path: &Path) {
        let below = path.ancestors().skip(1).take_while(|directory| *directory != self.workspace);
        self.scan.pinned.extend(below.map(HostPath::from));
    }
}

/// Whether a link of this name would lead a program to its settings by another way.
fn is_way(name: &OsStr, place: Place) -> bool {
    match place {
        Place::Git => name != "HEAD",
        Place::Top if name == ".config" || name == "mise" => true,
        Place::Top | Place::Second | Place::Below => name == ".cargo" || name == ".github" || name == "rebase-merge",
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

/// `.env`, `.env.*` and copies that editors and people make of it (`.env~`, `.env-prod`, `.env_local`), but for examples.
fn is_secret(name: &OsStr) -> bool {
    match name.as_bytes().strip_prefix(b".env") {
        Some(b"") => true,
        Some([b'.' | b'-' | b'_' | b'~', ending @ ..]) => !EXAMPLES.iter().any(|example| example.as_bytes() == ending),
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
            &[
                ".env",
                "a/b/c/d/.env.local",
                ".env~",
                ".env-prod",
                ".env_local",
                ".env_test",
                ".env.example",
                "a/.env.test",
                ".envrc",
                ".environment",
                "a/.env.d/x",
            ],
        );
        let scan = Scan::of(dir.path());
        let secrets = [".env", ".env-prod", ".env_local", ".env~", "a/b/c/d/.env.local"];
        assert_eq!(scan.secrets, secrets.map(|path| HostPath::from(dir.path().join(path))));
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

//! What a session newly made or changed of the protected kind: one inventory of a workspace compared with a later one.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::git_config::{Variable, risky};
use crate::host_path::HostPath;
use crate::inventory::{Inventory, Item, Mark, look, read};
use crate::journal::Hash;
use crate::metadata::Kind;
use crate::rebase_todo::commands;
use crate::root::Root;

/// Something that must not stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// In the workspace.
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
    /// What was there before and is known; it is put back.
    pub(crate) before: Option<Original>,
    /// Whether something was there before.
    pub(crate) changed: bool,
}

/// What is put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Original {
    File { content: Vec<u8>, mode: u32 },
    Link { target: Vec<u8> },
}

/// An earlier state of a workspace, and the later one that is looked at.
pub(crate) struct Comparison<'a> {
    pub(crate) workspace: &'a Root,
    /// The canonical root, for the absolute paths that git writes.
    pub(crate) name: &'a Path,
    pub(crate) before: &'a Inventory,
    /// Files that may have this content now, by its hash.
    pub(crate) approved: &'a BTreeMap<HostPath, Hash>,
    /// What other sessions made that still live. It is for them to settle, as long as it is as it was.
    pub(crate) theirs: &'a BTreeMap<HostPath, Item>,
    pub(crate) after: &'a Inventory,
}

impl Comparison<'_> {
    /// In an order in which a directory stands before what is in it, of which only the directory is named.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = Vec::new();
        let mut taken: BTreeSet<&Path> = BTreeSet::new();
        for (path, item) in &self.after.items {
            if path.ancestors().skip(1).any(|ancestor| taken.contains(ancestor)) {
                continue;
            }
            if let Some(finding) = self.finding(path, item) {
                taken.insert(path);
                findings.push(finding);
            }
        }
        findings
    }

    fn finding(&self, path: &Path, item: &Item) -> Option<Finding> {
        let finding = |before, changed| Finding { path: path.to_owned(), kind: item.kind, before, changed };
        let before = self.before.items.get(&HostPath::from(path));
        let theirs = self.theirs.get(&HostPath::from(path));
        if self.is_approved(path, item) || theirs.is_some_and(|theirs| self.is_same(path, theirs, item)) {
            return None;
        }
        match before {
            Some(before) if self.is_same(path, before, item) => None,
            Some(before) => Some(finding(original(before), true)),
            None if self.before.may_have_missed(path) && self.is_older(path) => None,
            None => (!self.may_be_new(path, item)).then(|| finding(None, false)),
        }
    }

    /// Whether nothing on the way to what nobody looked at before was made, renamed or changed since. That of the file alone says
    /// nothing: who moves a directory leaves the times of all that is in it.
    fn is_older(&self, path: &Path) -> bool {
        let mut way = path.ancestors().filter(|step| !step.as_os_str().is_empty());
        way.all(|step| look(self.workspace, step, 0).is_some_and(|mark| mark.changed() < self.before.taken))
    }

    /// Whether a person saw what stands there now and let it be written; for a directory, whether there is such a file in it.
    fn is_approved(&self, path: &Path, item: &Item) -> bool {
        match item.mark {
            Mark::File { mode, .. } => {
                let path = HostPath::from(path);
                let before = match self.before.items.get(&path) {
                    Some(Item { mark: Mark::File { mode, .. }, .. }) => *mode,
                    _ => 0,
                };
                let is_seen =
                    |hash: &Hash| read(self.workspace, &path).is_some_and(|content| blake3::hash(&content) == *hash);
                !gained(before, mode) && self.approved.get(&path).is_some_and(is_seen)
            }
            Mark::Directory { .. } => self.approved.keys().filter(|inside| inside.starts_with(path)).any(|inside| {
                let item = self.after.items.get(inside).filter(|item| matches!(item.mark, Mark::File { .. }));
                item.is_some_and(|item| self.is_approved(inside, item))
            }),
            _ => false,
        }
    }

    fn is_same(&self, path: &Path, before: &Item, after: &Item) -> bool {
        if after.kind == Kind::BareHead {
            // Every commit changes it; what counts is that the directory was a repository before.
            return true;
        }
        if after.kind == Kind::RebaseTodo && self.runs_nothing_else(path, before, after) {
            return true;
        }
        match (&before.mark, &after.mark) {
            (
                Mark::File { inode, size, mode, changed, content },
                Mark::File { inode: inode2, size: size2, mode: mode2, changed: changed2, .. },
            ) => {
                if (inode, size, mode, changed) == (inode2, size2, mode2, changed2) {
                    return true;
                }
                let (Some(old), Some(new)) = (content, read(self.workspace, path)) else { return false };
                let of_git = matches!(after.kind, Kind::Config | Kind::WorktreeConfig);
                let as_risky =
                    || matches!((self.risks(path, old), self.risks(path, &new)), (Some(old), Some(new)) if old == new);
                let alike = *old == new || of_git && as_risky();
                alike && !gained(*mode, *mode2)
            }
            (Mark::Directory { .. }, Mark::Directory { .. }) | (Mark::Special { .. }, Mark::Special { .. }) => true,
            (Mark::Link { target, .. }, Mark::Link { target: target2, .. }) => target == target2,
            _ => false,
        }
    }

    /// Of a rebase in progress. Git takes away what is done, from the top.
    fn runs_nothing_else(&self, path: &Path, before: &Item, after: &Item) -> bool {
        let Mark::File { .. } = after.mark else { return false };
        let Some(new) = read(self.workspace, path) else { return false };
        let left = commands(&new);
        let known = match &before.mark {
            Mark::File { content: Some(old), .. } => commands(old).ends_with(&left),
            _ => false,
        };
        left.is_empty() || known
    }

    /// Whether something that was not there before can stay: what git makes by itself for new repositories and worktrees.
    fn may_be_new(&self, path: &Path, item: &Item) -> bool {
        if !matches!(item.mark, Mark::File { .. }) {
            return false;
        }
        let content = || read(self.workspace, path);
        match item.kind {
            Kind::Config | Kind::WorktreeConfig => {
                content().and_then(|text| self.risks(path, &text)).is_some_and(|risks| risks.is_empty())
            }
            Kind::GitLink => content().is_some_and(|text| self.leads_to_repository(path, &text)),
            Kind::CommonDirectory => self.is_of_worktree(path) && content().is_some_and(|text| line(&text) == b"../.."),
            Kind::Worktree => self.is_of_worktree(path) && content().is_some_and(|text| self.leads_inside(path, &text)),
            Kind::RebaseTodo => content().is_some_and(|text| commands(&text).is_empty()),
            Kind::Setting
            | Kind::NestedSetting
            | Kind::Hook
            | Kind::Attributes
            | Kind::Link
            | Kind::IntoGit
            | Kind::BareHead
            | Kind::Closed => false,
        }
    }

    /// The settings of git, at `path`, that could run something or lead to something else; `None` for what git may read otherwise.
    fn risks(&self, path: &Path, text: &[u8]) -> Option<Vec<Variable>> {
        let mut risks = risky(text).ok()?;
        risks.retain(|variable| {
            let is_own = |target: &[u8]| self.is_worktree_of(path, target);
            let harmless = variable.lets_worktrees_differ() && self.worktrees_run_nothing(path);
            !(harmless || variable.worktree().is_some_and(is_own))
        });
        Some(risks)
    }

    /// Whether the `.git` in `target` leads back to the git directory of these settings, as a submodule's does.
    fn is_worktree_of(&self, settings: &Path, target: &[u8]) -> bool {
        let Some(link) = self.resolve(settings, target).map(|target| target.join(".git")) else { return false };
        let back = read(self.workspace, &link).and_then(|text| self.link_target(&link, &text));
        back.is_some() && back.as_deref() == settings.parent()
    }

    /// Whether there is nothing in the settings of single worktrees, all of which were looked at.
    fn worktrees_run_nothing(&self, settings: &Path) -> bool {
        let of_worktrees = self.after.items.iter().filter(|(path, item)| {
            item.kind == Kind::WorktreeConfig && settings.parent().is_some_and(|directory| path.starts_with(directory))
        });
        let is_safe = |path: &Path| {
            let variables = read(self.workspace, path).and_then(|text| risky(&text).ok());
            variables.is_some_and(|variables| variables.is_empty())
        };
        self.after.unseen.is_empty() && of_worktrees.into_iter().all(|(path, _)| is_safe(path))
    }

    /// `gitdir: PATH` of a git directory that was looked through, so that everything in it counts as well.
    fn leads_to_repository(&self, path: &Path, text: &[u8]) -> bool {
        let target = self.link_target(path, text);
        target.is_some_and(|target| self.after.repositories.contains(&HostPath::from(target)))
    }

    fn link_target(&self, path: &Path, text: &[u8]) -> Option<PathBuf> {
        line(text).strip_prefix(b"gitdir: ").and_then(|target| self.resolve(path, target))
    }

    /// In `REPOSITORY/worktrees/NAME` (gitrepository-layout(5)).
    fn is_of_worktree(&self, path: &Path) -> bool {
        let mut ancestors = path.ancestors().skip(2);
        let worktrees = ancestors.next().is_some_and(|parent| parent.ends_with("worktrees"));
        let repository = ancestors.next().map(HostPath::from);
        worktrees && repository.is_some_and(|repository| self.after.repositories.contains(&repository))
    }

    /// The `.git` of a worktree in the workspace.
    fn leads_inside(&self, path: &Path, text: &[u8]) -> bool {
        self.resolve(path, line(text)).is_some_and(|target| target.ends_with(".git"))
    }

    /// A path that stands in the file `from`, in the workspace; by its letters, so that only `..` at its beginning is taken.
    fn resolve(&self, from: &Path, text: &[u8]) -> Option<PathBuf> {
        let text = Path::new(OsStr::from_bytes(text));
        if text.is_absolute() {
            let inside = text.strip_prefix(self.name).ok()?;
            return is_plain(inside).then(|| inside.to_owned());
        }
        let mut directory = from.parent()?;
        let mut rest = text;
        while let Ok(next) = rest.strip_prefix("..") {
            directory = directory.parent()?;
            rest = next;
        }
        is_plain(rest).then(|| directory.join(rest))
    }
}

fn is_plain(path: &Path) -> bool {
    path.components().all(|component| matches!(component, Component::Normal(_)))
}

/// The one line of a file that has one.
fn line(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"\n").unwrap_or(text)
}

/// Whether a file may be run now, or give rights, that could not before: a hook that becomes executable is a new one.
fn gained(before: u32, now: u32) -> bool {
    now & !before & 0o6111 != 0
}

pub(crate) fn original(item: &Item) -> Option<Original> {
    match &item.mark {
        Mark::File { content: Some(content), mode, .. } => {
            Some(Original::File { content: content.clone(), mode: *mode & 0o777 })
        }
        Mark::Link { target, .. } => Some(Original::Link { target: target.clone() }),
        Mark::File { .. } | Mark::Directory { .. } | Mark::Special { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Scan;

    fn found(workspace: &Path, before: &Inventory) -> Vec<PathBuf> {
        let root = Root::open_ambient(workspace).unwrap();
        let after = Scan::closing(workspace).inventory;
        let (approved, theirs) = (&BTreeMap::new(), &BTreeMap::new());
        let comparison = Comparison { workspace: &root, name: workspace, before, approved, theirs, after: &after };
        comparison.findings().into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn what_was_not_looked_at_is_new_by_its_time_of_change() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("AGENTS.md"), "x").unwrap();
        let mut before = Inventory::new();
        assert_eq!(found(dir.path(), &before), [PathBuf::from("AGENTS.md")]);
        before.unseen.push("".into());
        assert_eq!(found(dir.path(), &before), [PathBuf::from("AGENTS.md")]);
        before.taken = i128::MAX;
        assert_eq!(found(dir.path(), &before), Vec::<PathBuf>::new());
    }

    #[test]
    fn what_was_not_looked_at_is_new_where_a_directory_was_moved() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["shut", "old/.git/hooks", "shut/kept/.cargo"] {
            std::fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        std::fs::write(dir.path().join("old/.git/hooks/update"), "x").unwrap();
        std::fs::write(dir.path().join("shut/kept/.cargo/config.toml"), "x").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let mut before = Inventory::new();
        before.unseen.push("shut".into());
        let known = Scan::of(dir.path()).inventory;
        let hook = HostPath::from(Path::new("old/.git/hooks/update"));
        before.items.insert(hook.clone(), known.items.get(&hook).unwrap().clone());
        assert_eq!(found(dir.path(), &before), Vec::<PathBuf>::new());
        std::fs::rename(dir.path().join("old"), dir.path().join("shut/kept/new")).unwrap();
        assert_eq!(
            found(dir.path(), &before),
            ["shut/kept/.cargo/config.toml", "shut/kept/new/.git/hooks/update"].map(PathBuf::from)
        );
    }

    #[test]
    fn a_submodule_is_where_its_settings_say() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let before = Scan::of(root).inventory;
        std::fs::create_dir_all(root.join(".git/modules/lib")).unwrap();
        std::fs::create_dir_all(root.join("lib")).unwrap();
        std::fs::write(root.join(".git/modules/lib/HEAD"), "x").unwrap();
        for (target, back, stays) in [
            ("../../../lib", "../.git/modules/lib", true),
            ("../../../lib", "../.git", false),
            ("../../..", "../.git/modules/lib", false),
            ("../../../../lib", "../.git/modules/lib", false),
            ("/", "../.git/modules/lib", false),
        ] {
            std::fs::write(root.join(".git/modules/lib/config"), format!("[core]\n\tworktree = {target}\n")).unwrap();
            std::fs::write(root.join("lib/.git"), format!("gitdir: {back}\n")).unwrap();
            let settings = PathBuf::from(".git/modules/lib/config");
            assert_eq!(!found(root, &before).contains(&settings), stays, "{target} {back}");
        }
    }

    #[test]
    fn worktrees_may_differ_where_that_runs_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let before = Scan::of(root).inventory;
        std::fs::create_dir_all(root.join(".git/worktrees/w")).unwrap();
        std::fs::write(root.join(".git/config"), "[extensions]\n\tworktreeConfig = true\n").unwrap();
        for (settings, gone) in [
            ("[core]\n\tsparseCheckout = true\n", &[][..]),
            ("[core]\n\tfsmonitor = x\n", &[".git/config", ".git/worktrees/w/config.worktree"]),
        ] {
            std::fs::write(root.join(".git/worktrees/w/config.worktree"), settings).unwrap();
            assert_eq!(found(root, &before), gone.iter().map(PathBuf::from).collect::<Vec<_>>());
        }
    }

    #[test]
    fn only_repositories_that_were_looked_through_are_linked_to() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join(".git/worktrees/w")).unwrap();
        std::fs::create_dir_all(root.join(".git/objects/aa/w")).unwrap();
        for repository in [".git", ".git/worktrees/w", ".git/objects/aa/w"] {
            std::fs::write(root.join(repository).join("HEAD"), "x").unwrap();
        }
        let before = Scan::of(root).inventory;
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        let absolute = format!("{}/.git/worktrees/w", root.display());
        for (target, stays) in [
            ("../../.git/worktrees/w", true),
            (absolute.as_str(), true),
            ("../../.git", true),
            ("../../.git/objects/aa/w", false),
            ("../../../x", false),
            ("../b/../../.git", false),
            ("/.git/worktrees/w", false),
            ("../../.git\nx", false),
            ("", false),
        ] {
            std::fs::write(root.join("a/b/.git"), format!("gitdir: {target}\n")).unwrap();
            assert_eq!(found(root, &before).is_empty(), stays, "{target}");
        }
    }

    #[test]
    fn a_directory_is_named_without_what_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let before = Scan::of(dir.path()).inventory;
        std::fs::create_dir_all(dir.path().join(".vscode/sub/.git/hooks")).unwrap();
        std::fs::write(dir.path().join(".vscode/sub/.git/hooks/update"), "x").unwrap();
        assert_eq!(found(dir.path(), &before), [PathBuf::from(".vscode")]);
    }
}

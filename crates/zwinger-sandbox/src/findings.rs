//! What a session newly made or changed of the protected kind: one inventory of a workspace compared with a later one.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::git_config::risky;
use crate::host_path::HostPath;
use crate::metadata::{Inventory, Item, Kind, Mark, read};
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
        match self.before.items.get(&HostPath::from(path)) {
            Some(before) if self.is_same(path, before, item) => None,
            Some(before) => Some(finding(original(before), true)),
            // What nobody looked at before is new if its inode was made, renamed or changed since.
            None if self.before.may_have_missed(path) && item.mark.changed() < self.before.taken => None,
            None => (!self.may_be_new(path, item)).then(|| finding(None, false)),
        }
    }

    fn is_same(&self, path: &Path, before: &Item, after: &Item) -> bool {
        if after.kind == Kind::BareHead {
            // Every commit changes it; what counts is that the directory was a repository before.
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
                let alike = *old == new || after.kind == Kind::Config && is_as_risky(old, &new);
                // A hook that becomes executable is a new one.
                alike && mode2 & !mode & 0o6111 == 0
            }
            (Mark::Directory { .. }, Mark::Directory { .. }) | (Mark::Special { .. }, Mark::Special { .. }) => true,
            (Mark::Link { target, .. }, Mark::Link { target: target2, .. }) => target == target2,
            _ => false,
        }
    }

    /// Whether something that was not there before can stay: what git makes by itself for new repositories and worktrees.
    fn may_be_new(&self, path: &Path, item: &Item) -> bool {
        if !matches!(item.mark, Mark::File { .. }) {
            return false;
        }
        let content = || read(self.workspace, path);
        match item.kind {
            Kind::Config => content().is_some_and(|text| risky(&text).is_ok_and(|risky| risky.is_empty())),
            Kind::GitLink => content().is_some_and(|text| self.leads_to_repository(path, &text)),
            Kind::CommonDirectory => self.is_of_worktree(path) && content().is_some_and(|text| line(&text) == b"../.."),
            Kind::Worktree => self.is_of_worktree(path) && content().is_some_and(|text| self.leads_inside(path, &text)),
            Kind::Setting
            | Kind::Hook
            | Kind::WorktreeConfig
            | Kind::Attributes
            | Kind::Link
            | Kind::BareHead
            | Kind::Closed => false,
        }
    }

    /// `gitdir: PATH` of a git directory that was looked through, so that everything in it counts as well.
    fn leads_to_repository(&self, path: &Path, text: &[u8]) -> bool {
        let target = line(text).strip_prefix(b"gitdir: ").and_then(|target| self.resolve(path, target));
        target.is_some_and(|target| self.after.repositories.contains(&HostPath::from(target)))
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

fn is_as_risky(old: &[u8], new: &[u8]) -> bool {
    matches!((risky(old), risky(new)), (Ok(old), Ok(new)) if old == new)
}

fn original(item: &Item) -> Option<Original> {
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
        let comparison = Comparison { workspace: &root, name: workspace, before, after: &after };
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

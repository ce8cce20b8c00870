//! What is done when nothing of a session runs any more: what it must not leave is moved away, by its record of what was there
//! before.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::record::Record;
use crate::findings::{Comparison, original};
use crate::quarantine::{Quarantine, Quarantined, Settled};
use crate::root::Root;
use crate::scan::Scan;

/// The directory itself, and its device and inode: a workspace's path is canonical, so a link in it was put there meanwhile.
pub(super) fn identity(workspace: &Path) -> io::Result<(OwnedFd, (u64, u64))> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let found = rustix::fs::openat2(rustix::fs::CWD, workspace, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let status = rustix::fs::fstat(&found)?;
    Ok((found, (status.st_dev, status.st_ino)))
}

/// How often the workspace is looked at: what is moved may bare more, one level of directories at a time.
const ROUNDS: usize = 100;

/// `false`: the workspace is somewhere else now, and another directory in its place, so the journal is still needed.
pub(super) fn settle(record: &Record, mut quarantine: Quarantine<'_>, settled: &mut Settled) -> bool {
    let mut tell = |what: &str| settled.unseen.push(format!("the workspace {}: {what}", record.workspace.display()));
    let workspace = match identity(&record.workspace) {
        Ok((found, identity)) if identity == record.identity => Root::from(found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            tell("it is not there any more; if it was moved, what the session left is where it was moved to");
            return true;
        }
        _ => {
            tell("another directory is in its place, and what the session left is where it was moved to");
            return false;
        }
    };
    finish_moves(record, &workspace, settled);
    let mut tried: BTreeSet<PathBuf> = BTreeSet::new();
    for round in 1.. {
        let scan = Scan::closing(&record.workspace);
        let comparison = Comparison {
            workspace: &workspace,
            name: &record.workspace,
            before: &record.inventory,
            approved: &record.approved,
            theirs: &record.theirs,
            after: &scan.inventory,
        };
        let mut findings = comparison.findings();
        findings.retain(|finding| tried.insert(finding.path.clone()));
        let taken: Vec<_> = findings.iter().filter_map(|finding| quarantine.take(&workspace, finding)).collect();
        // A directory that is still there has more in it that counts by itself.
        let is_left =
            |taken: &Quarantined| taken.kept_at.as_ref().is_none_or(|kept| kept.starts_with(&record.workspace));
        let again = quarantine.is_somewhere() && taken.iter().any(is_left);
        // One that was only renamed may count by its new name too, where everything does.
        let inside = |taken: &Quarantined| Some(taken.kept_at.as_ref()?.strip_prefix(&record.workspace).ok()?.into());
        tried.extend(taken.iter().filter_map(inside));
        settled.quarantined.extend(taken);
        if !again || round == ROUNDS {
            settled.unseen.extend(scan.unseen);
            settled
                .unseen
                .extend(again.then(|| format!("it was looked at {ROUNDS} times, and there was more each time")));
            break;
        }
    }
    true
}

/// What was moved by a zwinger that was killed then is told, and its original put back where nothing is.
fn finish_moves(record: &Record, workspace: &Root, settled: &mut Settled) {
    let mut told = BTreeSet::new();
    for (path, kept_at) in &record.moving {
        let before = record.inventory.items.get(path);
        let finished = Quarantine::finish(workspace, path, kept_at, before.and_then(original).as_ref());
        if let Some(finished) = finished.filter(|_| told.insert(kept_at)) {
            settled.quarantined.push(finished);
        }
    }
}

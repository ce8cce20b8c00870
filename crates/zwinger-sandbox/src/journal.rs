//! What of the protected kind was in a workspace when a session began, on disk for as long as it lives: what is there besides when
//! it is over goes to quarantine, also when zwinger was killed, at the next start.
//!
//! Each journal is locked (flock(2)) by its session. The lock belongs to the open file, so it is free only when zwinger and those
//! processes of ours are gone that see to it that nothing runs any more, whatever ended them. One file stays and is written over by
//! each session; one that begins while that is taken has a file of its own.
//!
//! Beginnings and ends in one workspace take turns (a lock on the directory), so that nobody looks at it while another moves
//! things, and every journal of a living session is whole.

mod record;
mod settlement;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RawDir};
use rustix::io::Errno;

use crate::findings::Comparison;
use crate::host_path::HostPath;
use crate::inventory::Inventory;
use crate::quarantine::{Quarantine, Settled};
use crate::root::{Root, check_private};
use crate::scan::Scan;
use record::Record;
pub(crate) use record::{Hash, Note, Written};

/// The journal that stays.
const KEPT: &str = "journal";
/// Names of all: that, or that and digits of chance.
const PREFIX: &str = "journal";
/// The ending of one that is being made, by which nobody takes it for a journal.
const UNFINISHED: &str = ".new";

/// How long what a killed zwinger ran may take to end.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long another session may take to begin or to end. It looks through the workspace for 2 s at most, and may have to copy.
const TURN: Duration = Duration::from_secs(30);

/// Zwinger's own directory for one workspace, where its journals are and its quarantine, for as long as it is our turn there.
#[derive(Debug)]
pub struct Journals {
    path: PathBuf,
    directory: OwnedFd,
    workspace: PathBuf,
    /// The journal that stays, if it is free for us.
    kept: Kept,
    /// Of sessions that live, by their paths.
    living: Vec<(PathBuf, File)>,
}

#[derive(Debug)]
enum Kept {
    Missing,
    Free(File),
    Taken,
}

/// The journal of a living session. Dropped without [`Journal::close`] it stays for the next start.
#[derive(Debug)]
pub struct Journal {
    record: Record,
    approved: Mutex<BTreeMap<HostPath, Hash>>,
    /// Of the sessions that lived when this one began, and had made something.
    others: Vec<File>,
    place: Option<Place>,
}

#[derive(Debug)]
struct Place {
    path: PathBuf,
    directory: OwnedFd,
    name: String,
    written: Written,
}

impl Journals {
    /// Opens the directory `path`, made with mode 0700 where it is missing, for a workspace's canonical root, and waits for its turn.
    ///
    /// # Errors
    /// When it cannot be made, is not the caller's and closed to others, or another session does not end its turn.
    pub fn open(path: &Path, workspace: &Path) -> io::Result<Self> {
        if let Some(journals) = Self::find(path, workspace)? {
            return Ok(journals);
        }
        Root::create_private(path)?;
        Self::find(path, workspace)?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The same, but makes nothing.
    ///
    /// # Errors
    /// As [`Journals::open`].
    pub fn find(path: &Path, workspace: &Path) -> io::Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            directory => directory?,
        };
        check_private(&directory, path)?;
        take_turn(&directory)?;
        let (path, workspace) = (path.to_owned(), workspace.to_owned());
        Ok(Some(Self { path, directory, workspace, kept: Kept::Missing, living: Vec::new() }))
    }

    /// Settles what sessions left that were killed. Those that still live are left alone. `stamp` names the directory of what is
    /// found, in the quarantine.
    ///
    /// # Errors
    /// When the directory cannot be read. One journal that cannot be settled is named in the result, and kept.
    pub fn settle(&mut self, stamp: &str) -> io::Result<Settled> {
        let mut settled = Settled::default();
        for name in self.names()? {
            if name.ends_with(UNFINISHED) {
                // Nothing of its session has run.
                rustix::fs::unlinkat(&self.directory, &name, AtFlags::empty())?;
                continue;
            }
            let is_kept = name == KEPT;
            let free = self.settle_one(&name, stamp, &mut settled)?;
            match free {
                Some(file) if is_kept => self.kept = Kept::Free(file),
                Some(_) => rustix::fs::unlinkat(&self.directory, &name, AtFlags::empty())?,
                None if is_kept => self.kept = Kept::Taken,
                None => {}
            }
        }
        Ok(settled)
    }

    /// The journal if its session is over and nothing of it is left to do.
    fn settle_one(&mut self, name: &str, stamp: &str, settled: &mut Settled) -> io::Result<Option<File>> {
        let path = self.path.join(name);
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.directory, name, flags, Mode::empty())?);
        if !lock_of_dead(&file)? {
            self.living.push((path, file));
            return Ok(None);
        }
        if record::is_closed(&file)? {
            return Ok(Some(file));
        }
        let (record, written) = match record::read(file, &self.workspace) {
            Ok(read) => read,
            Err(error) => {
                settled.unseen.push(format!("{} cannot be used ({error}); remove it", path.display()));
                return Ok(None);
            }
        };
        let quarantine = Quarantine::new(Some(self.path.join("quarantine").join(stamp)), Some(&written));
        match settlement::settle(&record, quarantine, settled) {
            true => written.close().map(Some),
            false => Ok(None),
        }
    }

    /// Of all journals.
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        let mut buffer = [const { MaybeUninit::uninit() }; 2048];
        let mut entries = RawDir::new(&self.directory, &mut buffer);
        while let Some(entry) = entries.next() {
            let name = entry?.file_name().to_str().unwrap_or_default().to_owned();
            if name.starts_with(PREFIX) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Begins the journal of a session, before anything of it runs. `scan` is of the same workspace, and no older than the end of
    /// [`Journals::settle`]; `above` are the settled ones of directories above the workspace.
    ///
    /// What sessions that live newly made is not taken for what was there before.
    ///
    /// # Errors
    /// When it cannot be written, or the journal of a session that lives cannot be read.
    pub fn begin(mut self, scan: &Scan, above: &[Self]) -> io::Result<Journal> {
        let mut record = Record::of(&self.workspace, scan);
        let mut others = Vec::new();
        for journals in above.iter().chain([&self]) {
            for (path, file) in &journals.living {
                // Over since, but a child of it is still ending.
                if record::is_closed(file)? {
                    continue;
                }
                let unusable = |error| {
                    io::Error::other(format!(
                        "{}, of a session that still runs, cannot be read: {error}",
                        path.display()
                    ))
                };
                let other = record::read(file.try_clone()?, &journals.workspace).map_err(unusable)?.0;
                // One whose directory was moved away works there.
                let is_here = other.workspace != record.workspace || other.identity == record.identity;
                if is_here && record.distrust(&scan.inventory, &other)? {
                    others.push(file.try_clone()?);
                }
            }
        }
        let (name, written) = match std::mem::replace(&mut self.kept, Kept::Taken) {
            Kept::Free(file) => (KEPT.to_owned(), Written::write(file, &record)?),
            Kept::Missing => self.make(KEPT.to_owned(), &record)?,
            Kept::Taken => {
                let mut random = [0_u8; 8];
                rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())?;
                self.make(format!("{PREFIX}-{:016x}", u64::from_ne_bytes(random)), &record)?
            }
        };
        let Self { path, directory, .. } = self;
        // Who inherits the directory must not go on with our turn.
        rustix::fs::flock(&directory, FlockOperation::Unlock)?;
        let place = Some(Place { path, directory, name, written });
        Ok(Journal { record, approved: Mutex::default(), others, place })
    }

    /// Complete under its name or not there at all; locked before it is.
    fn make(&self, name: String, record: &Record) -> io::Result<(String, Written)> {
        let directory = &self.directory;
        let unfinished = format!("{name}{UNFINISHED}");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(directory, &unfinished, flags, Mode::RUSR | Mode::WUSR)?);
        let written = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(io::Error::from)
            .and_then(|()| Written::write(file, record))
            .and_then(|written| {
                rustix::fs::renameat(directory, &unfinished, directory, &name)?;
                Ok(written)
            });
        match written {
            Ok(written) => Ok((name, written)),
            Err(error) => {
                let _ = rustix::fs::unlinkat(directory, &unfinished, AtFlags::empty());
                Err(error)
            }
        }
    }
}

impl Record {
    fn of(workspace: &Path, scan: &Scan) -> Self {
        let identity = settlement::identity(workspace).map(|(_, identity)| identity).unwrap_or_default();
        Self {
            workspace: workspace.into(),
            identity,
            inventory: scan.inventory.clone(),
            approved: BTreeMap::new(),
            moving: Vec::new(),
            theirs: BTreeMap::new(),
        }
    }

    /// Takes from what was there before what of it a living session, of this workspace or one around it, made or changed. Whether
    /// there is such.
    fn distrust(&mut self, seen: &Inventory, other: &Self) -> io::Result<bool> {
        let inside = self.workspace.strip_prefix(&other.workspace).map_err(io::Error::other)?;
        let before = other.inventory.below(inside);
        let approved = other.approved.iter().filter_map(|(path, hash)| Some((path.strip_prefix(inside).ok()?, *hash)));
        let workspace = Root::open_ambient(&self.workspace)?;
        let comparison = Comparison {
            workspace: &workspace,
            name: &self.workspace,
            before: &before,
            approved: &approved.map(|(path, hash)| (path.into(), hash)).collect(),
            theirs: &BTreeMap::new(),
            after: seen,
        };
        let theirs = comparison.findings();
        let is_any = !theirs.is_empty();
        for finding in theirs {
            let items = &mut Arc::make_mut(&mut self.inventory).items;
            let path = HostPath::from(finding.path);
            // By the record of yet another session that may be known already.
            let known = items.get(&path).filter(|item| seen.items.get(&path) != Some(item)).cloned();
            items.retain(|inside, _| !inside.starts_with(&path));
            let made = seen.items.iter().filter(|(inside, _)| inside.starts_with(&path));
            self.theirs.extend(made.map(|(inside, item)| (inside.clone(), item.clone())));
            let original = before.items.get(&path).cloned().or(known);
            items.extend(original.map(|item| (path, item)));
        }
        Ok(is_any)
    }
}

impl Journal {
    /// One that is nowhere: what is found at the end is named and stays where it is.
    pub fn without_place(workspace: &Path, scan: &Scan) -> Self {
        Self { record: Record::of(workspace, scan), approved: Mutex::default(), others: Vec::new(), place: None }
    }

    /// The lock: whoever has it open counts as a part of the session that still runs. `None` without a place.
    pub fn lock(&self) -> Option<BorrowedFd<'_>> {
        self.place.as_ref().map(|place| place.written.as_fd())
    }

    /// Lets the file at `path`, relative to the workspace, stay if it has this content at the end: a person saw it and let it be
    /// written.
    ///
    /// # Errors
    /// When that cannot be written down; it holds for this process all the same.
    pub fn approve(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let hash = *blake3::hash(content).as_bytes();
        self.approved.lock().unwrap_or_else(PoisonError::into_inner).insert(path.into(), hash);
        self.place.as_ref().map_or(Ok(()), |place| place.written.note(&Note::Approved(path.into(), hash)))
    }

    /// Looks at the workspace again and moves what must not stay. To be called when nothing of the session runs any more.
    pub fn close(self, stamp: &str) -> Settled {
        let Self { mut record, approved, others, place } = self;
        record.approved = approved.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut settled = Settled::default();
        let Some(place) = place else {
            settlement::settle(&record, Quarantine::new(None, None), &mut settled);
            return settled;
        };
        if let Err(error) = take_turn(&place.directory) {
            settled.unseen.push(format!("{error}; the next session looks at what this one left"));
            return settled;
        }
        if !others.iter().any(lives) {
            record.theirs.clear();
        }
        let quarantine = Quarantine::new(Some(place.path.join("quarantine").join(stamp)), Some(&place.written));
        if settlement::settle(&record, quarantine, &mut settled) {
            // A child that is still ending may have both open.
            let closed = place.written.close().and_then(|file| Ok(rustix::fs::flock(&file, FlockOperation::Unlock)?));
            if place.name != KEPT || closed.is_err() {
                let _ = rustix::fs::unlinkat(&place.directory, &place.name, AtFlags::empty());
            }
        }
        let _ = rustix::fs::flock(&place.directory, FlockOperation::Unlock);
        settled
    }
}

/// Waits until no other session begins or ends. Ours as long as the directory is open, or until it is unlocked.
fn take_turn(directory: &OwnedFd) -> io::Result<()> {
    match lock(directory, TURN, || true)? {
        true => Ok(()),
        false => Err(io::Error::other("another session in this workspace has been beginning or ending for too long")),
    }
}

/// Locks the journal if its session is over and nobody else settles it.
fn lock_of_dead(file: &File) -> io::Result<bool> {
    // Killed a moment ago: what it ran is ending.
    lock(file, PATIENCE, || {
        let dead = |pid| rustix::process::test_kill_process(pid) == Err(Errno::SRCH);
        record::owner(file).is_some_and(dead)
    })
}

/// Whether the session of a journal lives.
fn lives(file: &File) -> bool {
    let locked = rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
    let _ = locked.map(|()| rustix::fs::flock(file, FlockOperation::Unlock));
    locked == Err(Errno::WOULDBLOCK)
}

/// `false`: someone has it, for this long or while it is of no use to wait.
fn lock(file: impl AsFd, patience: Duration, may_wait: impl Fn() -> bool) -> io::Result<bool> {
    let mut deadline = None;
    loop {
        match rustix::fs::flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => {
                let now = Instant::now();
                if now > *deadline.get_or_insert(now + patience) || !may_wait() {
                    return Ok(false);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests;

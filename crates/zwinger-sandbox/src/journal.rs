//! What of the protected kind was in a workspace when a session began, on disk for as long as it lives: what is there besides when
//! it is over goes to quarantine, also when zwinger was killed, at the next start.
//!
//! Each journal is locked (flock(2)) by its session. The lock belongs to the open file, so it is free only when zwinger and those
//! processes of ours are gone that see to it that nothing runs any more, whatever ended them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::findings::Comparison;
use crate::host_path::HostPath;
use crate::metadata::Inventory;
use crate::quarantine::{DIRECTORY, Quarantine, Quarantined, Settled};
use crate::root::Root;
use crate::scan::Scan;

/// Names of journals: this, the owner's pid, and digits of chance. One that is not complete yet ends in `UNFINISHED`.
const PREFIX: &str = "journal-";
const UNFINISHED: &str = ".new";

/// After this an incomplete one belonged to a process that was killed before anything of its session ran.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Bytes of a journal at most; it keeps 1 MiB of files, and names.
const MAX_JOURNAL: u64 = 64 << 20;

/// How long what a killed zwinger ran may take to end.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Debug)]
struct Record {
    workspace: HostPath,
    /// Device and inode of the workspace.
    identity: (u64, u64),
    inventory: Arc<Inventory>,
}

impl Record {
    fn of(workspace: &Path, scan: &Scan) -> Self {
        let identity = identity(workspace).unwrap_or_default();
        Self { workspace: workspace.into(), identity, inventory: scan.inventory.clone() }
    }
}

/// Of the directory itself: a workspace's path is canonical, so a link in it was put there meanwhile.
fn identity(workspace: &Path) -> io::Result<(u64, u64)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let found = rustix::fs::openat2(rustix::fs::CWD, workspace, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let status = rustix::fs::fstat(&found)?;
    Ok((status.st_dev, status.st_ino))
}

/// Stands in front of a record.
const VERSION: u32 = 2;

/// Zwinger's own directory for one workspace, where its journals are and its quarantine.
#[derive(Debug)]
pub struct Journals {
    path: PathBuf,
    directory: OwnedFd,
    workspace: PathBuf,
}

/// The journal of a living session. Dropped without [`Journal::close`] it stays for the next start.
#[derive(Debug)]
pub struct Journal {
    record: Record,
    place: Option<Place>,
}

#[derive(Debug)]
struct Place {
    journals: Journals,
    name: String,
    locked: File,
}

impl Journals {
    /// Opens the directory `path`, made with mode 0700 where it is missing, for a workspace's canonical root.
    ///
    /// # Errors
    /// When it cannot be made, or is not the caller's and closed to others.
    pub fn open(path: &Path, workspace: &Path) -> io::Result<Self> {
        let directory = Root::create_private(path)?;
        let directory = rustix::fs::openat(&directory, ".", DIRECTORY, Mode::empty())?;
        Ok(Self { path: path.to_owned(), directory, workspace: workspace.to_owned() })
    }

    /// Settles what sessions left that were killed. Those that still live are left alone. `stamp` names the directory of what is
    /// found, in the quarantine.
    ///
    /// # Errors
    /// When the directory cannot be read. One journal that cannot be settled is named in the result, and kept.
    pub fn settle(&self, stamp: &str) -> io::Result<Settled> {
        let Self { path: place, directory, workspace } = self;
        let mut settled = Settled::default();
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if !name.starts_with(PREFIX) {
                continue;
            }
            if name.ends_with(UNFINISHED) {
                remove_abandoned(directory, name);
                continue;
            }
            if let Some(file) = lock_of_dead(directory, name)? {
                match read(&file, workspace) {
                    Ok(record) => {
                        let quarantine = Quarantine::new(Some(place.join("quarantine").join(stamp)));
                        if settle_record(&record, quarantine, &mut settled) {
                            rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
                        }
                    }
                    Err(error) => {
                        let path = place.join(name);
                        settled.unseen.push(format!("{} cannot be used ({error}); remove it", path.display()));
                    }
                }
            }
        }
        Ok(settled)
    }

    /// Begins the journal of a session, before anything of it runs. `scan` is of the same workspace, and no older than the end of
    /// [`Journals::settle`].
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin(self, scan: &Scan) -> io::Result<Journal> {
        let record = Record::of(&self.workspace, scan);
        let place = Some(self.write(&record)?);
        Ok(Journal { record, place })
    }

    /// Complete under its name or not there at all; locked before it is.
    fn write(self, record: &Record) -> io::Result<Place> {
        let directory = &self.directory;
        let mut random = [0_u8; 8];
        rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())?;
        let name = format!("{PREFIX}{}-{:016x}", std::process::id(), u64::from_ne_bytes(random));
        let unfinished = format!("{name}{UNFINISHED}");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(directory, unfinished.as_str(), flags, Mode::RUSR | Mode::WUSR)?);
        let bytes = (VERSION, &record.workspace, record.identity, &*record.inventory);
        let bytes = postcard::to_stdvec(&bytes).map_err(io::Error::other)?;
        let written = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(io::Error::from)
            .and_then(|()| file.write_all(&bytes))
            .and_then(|()| Ok(rustix::fs::renameat(directory, unfinished.as_str(), directory, name.as_str())?));
        if let Err(error) = written {
            let _ = rustix::fs::unlinkat(directory, unfinished.as_str(), AtFlags::empty());
            return Err(error);
        }
        Ok(Place { journals: self, name, locked: file })
    }
}

impl Journal {
    /// One that is nowhere: what is found at the end is named and stays where it is.
    pub fn without_place(workspace: &Path, scan: &Scan) -> Self {
        Self { record: Record::of(workspace, scan), place: None }
    }

    /// The lock: whoever has it open counts as a part of the session that still runs. `None` without a place.
    pub fn lock(&self) -> Option<BorrowedFd<'_>> {
        self.place.as_ref().map(|place| place.locked.as_fd())
    }

    /// Looks at the workspace again and moves what must not stay. To be called when nothing of the session runs any more.
    pub fn close(self, stamp: &str) -> Settled {
        let mut settled = Settled::default();
        let place = self.place.as_ref().map(|place| place.journals.path.join("quarantine").join(stamp));
        let is_settled = settle_record(&self.record, Quarantine::new(place), &mut settled);
        if let Some(place) = self.place.filter(|_| is_settled) {
            let _ = rustix::fs::unlinkat(&place.journals.directory, place.name.as_str(), AtFlags::empty());
        }
        settled
    }
}

/// `false`: the workspace is somewhere else now, so the journal is still needed.
fn settle_record(record: &Record, mut quarantine: Quarantine, settled: &mut Settled) -> bool {
    match identity(&record.workspace) {
        Ok(found) if found == record.identity => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        _ => {
            let moved = "another directory is in its place, and what the session left is where it was moved to";
            settled.unseen.push(format!("the workspace {}: {moved}", record.workspace.display()));
            return false;
        }
    }
    let workspace = match Root::open_ambient(&record.workspace) {
        Ok(workspace) => workspace,
        // What is gone has nothing that could be run.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return true,
        Err(error) => {
            settled.unseen.push(format!("the workspace could not be looked into: {error}"));
            return true;
        }
    };
    let mut tried = BTreeSet::new();
    loop {
        let scan = Scan::closing(&record.workspace);
        let comparison = Comparison {
            workspace: &workspace,
            name: &record.workspace,
            before: &record.inventory,
            after: &scan.inventory,
        };
        let mut findings = comparison.findings();
        findings.retain(|finding| tried.insert(finding.path.clone()));
        let taken: Vec<_> = findings.iter().filter_map(|finding| quarantine.take(&workspace, finding)).collect();
        // A directory that is still there has more in it that counts by itself.
        let is_left =
            |taken: &Quarantined| taken.kept_at.as_ref().is_none_or(|kept| kept.starts_with(&record.workspace));
        let again = quarantine.is_somewhere() && taken.iter().any(is_left);
        settled.quarantined.extend(taken);
        if !again {
            settled.unseen.extend(scan.unseen);
            return true;
        }
    }
}

fn read(file: &File, workspace: &Path) -> io::Result<Record> {
    let mut bytes = Vec::new();
    file.take(MAX_JOURNAL).read_to_end(&mut bytes)?;
    let (version, rest) = postcard::take_from_bytes::<u32>(&bytes).map_err(io::Error::other)?;
    if version != VERSION {
        return Err(io::Error::other("it is another version's"));
    }
    let (of, identity, inventory): (HostPath, (u64, u64), Inventory) =
        postcard::from_bytes(rest).map_err(io::Error::other)?;
    if &*of != workspace {
        return Err(io::Error::other("it is another workspace's"));
    }
    Ok(Record { workspace: of, identity, inventory: inventory.into() })
}

/// The journal, locked, if its session is over and nobody else settles it.
fn lock_of_dead(directory: &OwnedFd, name: &str) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let start = Instant::now();
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            // Killed a moment ago: what it ran is ending.
            Err(Errno::WOULDBLOCK) if !is_alive(name) && start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    // Who had the lock before us may have settled it.
    let here = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    let ours = rustix::fs::fstat(&file)?;
    Ok(here.is_ok_and(|here| here.st_ino == ours.st_ino).then_some(file))
}

/// Whether the process is there whose journal has this name.
fn is_alive(name: &str) -> bool {
    let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()).and_then(|pid| pid.parse().ok());
    let pid = pid.and_then(rustix::process::Pid::from_raw);
    !pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(Errno::SRCH))
}

fn remove_abandoned(directory: &OwnedFd, name: &str) {
    let made = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map(|status| status.st_mtime);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if made.is_ok_and(|made| made.cast_unsigned() + ABANDONED.as_secs() < now.as_secs()) {
        let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
    }
}

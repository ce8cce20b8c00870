//! Where things go that a session must not leave in its workspace, and how they get there: moved beneath directory handles, no
//! link followed, on whatever file system the place is. Put back only by a person.

mod transfer;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::findings::{Finding, Original};
use crate::inventory::open;
use crate::journal::{Note, Written};
use crate::metadata::Kind;
use crate::root::Root;

/// Something of the protected kind that a session made or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// Where it was, relative to the workspace; absolute if a session in a directory above left it.
    pub path: PathBuf,
    /// Where it is now; `None`: it could not be moved away.
    pub kept_at: Option<PathBuf>,
    /// What it is, in a few words; and what else was done, or why it was not moved.
    pub why: String,
}

/// What was found when a session was over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// What was moved, or should have been.
    pub quarantined: Vec<Quarantined>,
    /// What could not be looked at, and why.
    pub unseen: Vec<String>,
}

impl Settled {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.quarantined.is_empty() && self.unseen.is_empty()
    }
}

/// Longest relative path that is kept as it is; a longer one is kept under a number. With the place it stays below PATH_MAX.
const MAX_PATH: usize = 1024;

/// A directory for the findings of one session, made when there is the first.
pub(crate) struct Quarantine<'a> {
    /// `None`: there is no place, so that things are named and stay.
    path: Option<PathBuf>,
    directory: Option<OwnedFd>,
    numbered: usize,
    /// Where it is noted that something is about to be moved, so that the next start can finish it.
    journal: Option<&'a Written>,
}

/// What became of one thing.
enum Moved {
    Here(PathBuf),
    /// It was gone already, by another session's hand.
    Gone,
    /// It has another name beside its old one, by which nothing reads it.
    Renamed(PathBuf),
}

impl<'a> Quarantine<'a> {
    pub(crate) fn new(path: Option<PathBuf>, journal: Option<&'a Written>) -> Self {
        Self { path, directory: None, numbered: 0, journal }
    }

    /// Whether there is a place.
    pub(crate) fn is_somewhere(&self) -> bool {
        self.path.is_some()
    }

    /// Moves it, and puts back what was there before.
    pub(crate) fn take(&mut self, workspace: &Root, finding: &Finding) -> Option<Quarantined> {
        let changed = if finding.changed { "changed: " } else { "" };
        let mut why = format!("{changed}{}", finding.kind.describe());
        if self.path.is_none() {
            why.push_str("; there is no place for it");
            return Some(Quarantined { path: finding.path.clone(), kept_at: None, why });
        }
        let kept_at = match self.carry(workspace, &finding.path, finding.kind) {
            Ok(Moved::Gone) => return None,
            Ok(Moved::Here(kept_at)) => Some(kept_at),
            Ok(Moved::Renamed(aside)) => {
                why.push_str("; too large to be moved or refused, so it was renamed");
                Some(aside)
            }
            Err(error) => {
                why.push_str(&format!("; {error}"));
                None
            }
        };
        match &finding.before {
            Some(original) if kept_at.is_some() => put_back(workspace, &finding.path, original, &mut why),
            None if finding.changed => why.push_str("; there is no copy of the original"),
            _ => {}
        }
        Some(Quarantined { path: finding.path.clone(), kept_at, why })
    }

    /// What a killed zwinger was about to move, if it did: the original is put back where nothing is.
    pub(crate) fn finish(
        workspace: &Root,
        path: &Path,
        kept_at: &Path,
        original: Option<&Original>,
    ) -> Option<Quarantined> {
        let is_kept = rustix::fs::statat(rustix::fs::CWD, kept_at, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let is_away = open(workspace, path, OFlags::PATH | OFlags::NOFOLLOW).err() == Some(Errno::NOENT);
        let mut why = "zwinger was killed while it moved this away".to_owned();
        let missing = original.filter(|_| is_away);
        if let Some(original) = missing {
            put_back(workspace, path, original, &mut why);
        }
        let kept_at = is_kept.then(|| kept_at.to_owned());
        (is_kept || missing.is_some()).then(|| Quarantined { path: path.to_owned(), kept_at, why })
    }

    /// Without a note it is moved all the same: what is lost then is the original of something changed, if we are killed now.
    fn note(&self, path: &Path, kept_at: &Path) {
        let _ = self.journal.map(|journal| journal.note(&Note::Moving(path.into(), kept_at.into())));
    }

    fn carry(&mut self, workspace: &Root, path: &Path, kind: Kind) -> io::Result<Moved> {
        let parent = match open(workspace, path.parent().unwrap_or(Path::new("")), OFlags::PATH | OFlags::DIRECTORY) {
            Err(Errno::NOENT) => return Ok(Moved::Gone),
            parent => parent?,
        };
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let (to, to_name, kept_at) = self.place(path)?;
        self.note(path, &kept_at);
        match rename(parent.as_fd(), name, to.as_fd(), &to_name) {
            Err(Errno::NOENT) => return Ok(Moved::Gone),
            Err(Errno::ACCESS | Errno::PERM) => {
                // A directory that its owner may not write: what is in it cannot be renamed, nor itself to another parent.
                let before = unlock(parent.as_fd());
                let _ =
                    openat(parent.as_fd(), name, OFlags::PATH | OFlags::DIRECTORY).map(|found| unlock(found.as_fd()));
                let again = rename(parent.as_fd(), name, to.as_fd(), &to_name);
                let carried = match again {
                    Ok(()) => Ok(Moved::Here(kept_at)),
                    Err(_) => self.otherwise(workspace, path, parent.as_fd(), (to.as_fd(), &to_name, kept_at), kind),
                };
                if let Some(mode) = before {
                    let _ = set_mode(parent.as_fd(), mode);
                }
                if matches!(carried, Ok(Moved::Here(_))) {
                    disarm(to.as_fd(), &to_name, &mut 0, 0);
                }
                return carried;
            }
            Err(_) => return self.otherwise(workspace, path, parent.as_fd(), (to.as_fd(), &to_name, kept_at), kind),
            Ok(()) => {}
        }
        disarm(to.as_fd(), &to_name, &mut 0, 0);
        Ok(Moved::Here(kept_at))
    }

    /// Copied where it cannot be renamed to, or renamed where it is.
    fn otherwise(
        &self,
        workspace: &Root,
        path: &Path,
        parent: BorrowedFd<'_>,
        (to, to_name, kept_at): (BorrowedFd<'_>, &OsStr, PathBuf),
        kind: Kind,
    ) -> io::Result<Moved> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        match transfer::copy(parent, name, to, to_name) {
            // What is left of one that cannot be removed as a whole is renamed; the copy is complete, and stays.
            Ok(()) if transfer::remove(parent, name).is_ok() => return Ok(Moved::Here(kept_at)),
            Ok(()) => {}
            // The name of such a directory matters to nobody.
            Err(error) if kind == Kind::Closed => return Err(error),
            Err(_) => {
                let _ = transfer::remove(to, to_name);
            }
        }
        let mut random = [0_u8; 4];
        rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())?;
        let mut aside = name.to_owned();
        aside.push(format!(".quarantined-{:08x}", u32::from_ne_bytes(random)));
        // NAME_MAX (limits.h).
        if aside.len() > 255 {
            aside = format!("quarantined-{:08x}", u32::from_ne_bytes(random)).into();
        }
        let whole = workspace.path()?.join(path).with_file_name(&aside);
        self.note(path, &whole);
        rename(parent, name, parent, &aside)?;
        Ok(Moved::Renamed(whole))
    }

    /// The directory where it goes, made with its parents, the name there, and the whole path.
    fn place(&mut self, path: &Path) -> io::Result<(OwnedFd, OsString, PathBuf)> {
        let place = self.path.clone().ok_or(io::ErrorKind::NotFound)?;
        if self.directory.is_none() {
            Root::create_private(&place)?;
            self.directory = Some(rustix::fs::open(&place, DIRECTORY, Mode::empty())?);
        }
        let top = self.directory.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mut directory = top.try_clone()?;
        if path.as_os_str().len() <= MAX_PATH {
            if let Some(parent) = below(&directory, path.parent().unwrap_or(Path::new("")))? {
                directory = parent;
            }
            let name = path.file_name().unwrap_or_default();
            if rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).is_err() {
                return Ok((directory, name.to_owned(), place.join(path)));
            }
        }
        self.numbered += 1;
        let name = format!("quarantined-{}", self.numbered);
        let kept_at = place.join(&name);
        Ok((top.try_clone()?, name.into(), kept_at))
    }
}

pub(super) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens a directory of ours, made step by step.
fn below(top: &OwnedFd, path: &Path) -> io::Result<Option<OwnedFd>> {
    let mut directory: Option<OwnedFd> = None;
    for component in path.components() {
        let Component::Normal(name) = component else { return Err(io::ErrorKind::InvalidInput.into()) };
        let parent = directory.as_ref().unwrap_or(top);
        match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        directory = Some(rustix::fs::openat(parent, name, DIRECTORY, Mode::empty())?);
    }
    Ok(directory)
}

pub(super) fn openat(parent: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(parent, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn rename(from: BorrowedFd<'_>, name: &OsStr, to: BorrowedFd<'_>, to_name: &OsStr) -> rustix::io::Result<()> {
    match rustix::fs::renameat_with(from, name, to, to_name, RenameFlags::NOREPLACE) {
        // rename(2): the file system does not know the flag.
        Err(Errno::INVAL) => rustix::fs::renameat(from, name, to, to_name),
        renamed => renamed,
    }
}

/// Lets the owner do everything with a directory; the mode before, if that changed it.
fn unlock(directory: BorrowedFd<'_>) -> Option<Mode> {
    let mode = Mode::from_raw_mode(rustix::fs::fstat(directory).ok()?.st_mode & 0o7777);
    set_mode(directory, mode | Mode::RWXU).ok()?;
    (!mode.contains(Mode::RWXU)).then_some(mode)
}

/// fchmod(2) takes no O_PATH descriptor, but /proc leads to the very file that it holds.
fn set_mode(file: BorrowedFd<'_>, mode: Mode) -> rustix::io::Result<()> {
    rustix::fs::chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), mode)
}

/// Takes the bits away that give a program another user's rights. The place is closed to others, so that what lies beyond the
/// bounds gives them nothing either.
fn disarm(parent: BorrowedFd<'_>, name: &OsStr, seen: &mut usize, depth: usize) {
    *seen += 1;
    let Ok(found) = openat(parent, name, OFlags::PATH) else { return };
    let Ok(status) = rustix::fs::fstat(&found) else { return };
    let kind = FileType::from_raw_mode(status.st_mode);
    if kind == FileType::Directory && *seen <= transfer::MAX_ENTRIES && depth < transfer::MAX_DEPTH {
        let Ok(entries) = openat(parent, name, DIRECTORY).and_then(Dir::new) else { return };
        let Ok(directory) = openat(parent, name, DIRECTORY) else { return };
        for entry in entries.flatten().filter(|entry| !is_dots(entry.file_name().to_bytes())) {
            disarm(directory.as_fd(), OsStr::from_bytes(entry.file_name().to_bytes()), seen, depth + 1);
        }
    }
    if kind != FileType::Symlink && status.st_mode & 0o6000 != 0 {
        let _ = set_mode(found.as_fd(), Mode::from_raw_mode(status.st_mode & 0o1777));
    }
}

pub(super) fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// In one step, and only where nothing is; what came of it is added to the words.
fn put_back(workspace: &Root, path: &Path, original: &Original, why: &mut String) {
    match try_to_put_back(workspace, path, original) {
        Ok(()) => why.push_str("; the original is back in its place"),
        Err(error) => why.push_str(&format!("; the original could not be put back: {error}")),
    }
}

fn try_to_put_back(workspace: &Root, path: &Path, original: &Original) -> io::Result<()> {
    let parent = open(workspace, path.parent().unwrap_or(Path::new("")), OFlags::PATH | OFlags::DIRECTORY)?;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    match original {
        Original::Link { target } => Ok(rustix::fs::symlinkat(OsStr::from_bytes(target), &parent, name)?),
        Original::File { content, mode } => {
            Ok(crate::root::put_new(parent.as_fd(), Path::new(name), content, *mode).map_err(io::Error::other)?)
        }
    }
}

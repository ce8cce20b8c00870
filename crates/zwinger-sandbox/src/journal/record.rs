//! A journal on disk: a mark, a record that is whole or not to be trusted, and notes behind it.
//!
//! It is written over in place and never synced: the mark of one that is open comes first, and the record behind it counts only with
//! its hash. So whatever of it a killed process wrote reads as open, and one that is not whole as no record at all.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::host_path::HostPath;
use crate::inventory::{Inventory, Item};

/// The first byte: the session of this journal is over, and what follows means nothing.
const CLOSED: u8 = 0;
/// The first byte otherwise. Another version of zwinger has another.
const VERSION: u8 = 3;

/// Mark, pid of the owner, length of the record, and its hash.
const HEADER: usize = 1 + 4 + 8 + HASH;
const HASH: usize = 32;

/// Bytes of a journal at most; its inventory keeps 1 MiB of files, and names.
const MAX_JOURNAL: u64 = 64 << 20;

/// A BLAKE3 hash.
pub(crate) type Hash = [u8; HASH];

/// What of the protected kind was in a workspace when its session began, and what is known of the session since.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) workspace: HostPath,
    /// Device and inode of the workspace.
    pub(super) identity: (u64, u64),
    pub(super) inventory: Arc<Inventory>,
    /// Files that a person saw and let be written, with the hash of what they saw last.
    pub(super) approved: BTreeMap<HostPath, Hash>,
    /// What was being moved away, with where it goes.
    pub(super) moving: Vec<(HostPath, HostPath)>,
    /// What other sessions had made that lived when this one began, as it was then. Not written down: when this session is killed,
    /// all of it counts.
    pub(super) theirs: BTreeMap<HostPath, Item>,
}

/// What is added while a session lives and when it ends.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Note {
    /// A person let this file be written.
    Approved(HostPath, Hash),
    /// This, in the workspace, goes there, and its original is put back then.
    Moving(HostPath, HostPath),
}

/// The file of a journal, opened and locked.
#[derive(Debug)]
pub(crate) struct Written {
    file: File,
    /// The hash of the record: notes count for this one only, not for what stood in the file before.
    key: Hash,
    /// Where the next note goes.
    end: Mutex<u64>,
}

impl Written {
    /// Writes the record of a session that begins. When that fails the journal is closed again, for nothing has run.
    pub(super) fn write(file: File, record: &Record) -> io::Result<Self> {
        let body = (&record.workspace, record.identity, &*record.inventory);
        let mut bytes = postcard::to_extend(&body, vec![0; HEADER]).map_err(io::Error::other)?;
        if bytes.len() as u64 > MAX_JOURNAL {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let (header, body) = bytes.split_at_mut_checked(HEADER).ok_or(io::ErrorKind::InvalidData)?;
        let key = *blake3::hash(body).as_bytes();
        let length = (body.len() as u64).to_le_bytes();
        let fields = [&[VERSION][..], &std::process::id().to_le_bytes(), &length, &key].concat();
        header.copy_from_slice(&fields);
        // In one call, and in the order of its bytes.
        if let Err(error) = file.write_all_at(&bytes, 0) {
            let _ = file.write_all_at(&[CLOSED], 0);
            return Err(error);
        }
        Ok(Self { file, key, end: Mutex::new(bytes.len() as u64) })
    }

    /// Adds a note.
    pub(crate) fn note(&self, note: &Note) -> io::Result<()> {
        let body = postcard::to_stdvec(note).map_err(io::Error::other)?;
        let length = u32::try_from(body.len()).map_err(io::Error::other)?.to_le_bytes();
        let hash = blake3::keyed_hash(&self.key, &body);
        let bytes = [&length[..], hash.as_bytes(), &body].concat();
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        self.file.write_all_at(&bytes, *end)?;
        *end += bytes.len() as u64;
        Ok(())
    }

    /// Says that the session is over. The file is left as it is otherwise: writing one byte is cheaper than cutting it off.
    pub(super) fn close(self) -> io::Result<File> {
        self.file.write_all_at(&[CLOSED], 0)?;
        Ok(self.file)
    }
}

impl AsFd for Written {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Whether the session of this journal was closed.
pub(super) fn is_closed(file: &File) -> io::Result<bool> {
    let mut mark = [VERSION];
    Ok(file.read_at(&mut mark, 0)? == 1 && mark == [CLOSED])
}

/// The process that wrote it.
pub(super) fn owner(file: &File) -> Option<rustix::process::Pid> {
    let mut pid = [0; 4];
    file.read_exact_at(&mut pid, 1).ok()?;
    rustix::process::Pid::from_raw(i32::from_le_bytes(pid))
}

/// The record of a session that was not closed, of this very workspace.
///
/// # Errors
/// When it is not whole, or another version's or workspace's.
pub(super) fn read(mut file: File, workspace: &Path) -> io::Result<(Record, Written)> {
    let mut bytes = Vec::new();
    (&mut file).take(MAX_JOURNAL).read_to_end(&mut bytes)?;
    let mut rest = &bytes[..];
    if rest.first().is_some_and(|mark| *mark != VERSION) {
        return Err(io::Error::other("it is another version's"));
    }
    let torn = || io::Error::other("it was not written to its end, so that what was there before is not known");
    let whole = take(&mut rest, 1 + 4).and_then(|_| {
        let length = u64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?);
        let key: Hash = take(&mut rest, HASH)?.try_into().ok()?;
        let body = take(&mut rest, usize::try_from(length).ok()?)?;
        (*blake3::hash(body).as_bytes() == key).then_some((key, body))
    });
    let (key, body) = whole.ok_or_else(torn)?;
    let (of, identity, inventory): (HostPath, (u64, u64), Inventory) =
        postcard::from_bytes(body).map_err(io::Error::other)?;
    if &*of != workspace {
        return Err(io::Error::other("it is another workspace's"));
    }
    let mut record = Record {
        workspace: of,
        identity,
        inventory: inventory.into(),
        approved: BTreeMap::new(),
        moving: Vec::new(),
        theirs: BTreeMap::new(),
    };
    let mut end = bytes.len() - rest.len();
    while let Some(note) = take_note(&mut rest, &key) {
        record.add(note);
        end = bytes.len() - rest.len();
    }
    Ok((record, Written { file, key, end: Mutex::new(end as u64) }))
}

impl Record {
    pub(super) fn add(&mut self, note: Note) {
        match note {
            Note::Approved(path, hash) => drop(self.approved.insert(path, hash)),
            Note::Moving(path, kept_at) => self.moving.push((path, kept_at)),
        }
    }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

/// The next note; none where one was not written to its end, or an older one stands that the file had before.
fn take_note(rest: &mut &[u8], key: &Hash) -> Option<Note> {
    let length = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
    let hash: Hash = take(rest, HASH)?.try_into().ok()?;
    let body = take(rest, usize::try_from(length).ok()?)?;
    if blake3::keyed_hash(key, body) != hash {
        return None;
    }
    postcard::from_bytes(body).ok()
}

//! The file below the audit: numbered lines that several processes append, each under a lock (flock(2)) behind the last one.
//!
//! Nothing that stands there is ever changed. A line that was cut, because its writer was killed or the disk was full, stays too,
//! and the next line says so.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

/// Bytes of a line at most, with its newline.
pub(super) const MAX_LINE: usize = 64 << 10;
/// Bytes at the end of the file that may belong to no line: what was cut.
pub(super) const MAX_TORN: usize = 256 << 10;

/// How long another process may hold the lock; it holds it for one line.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a line was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum LedgerError {
    #[error("another process has kept it locked for {} s: end that, or move the file away", PATIENCE.as_secs())]
    Locked,
    #[error("it was removed while it was in use; start again")]
    Removed,
    #[error("it ends in something that zwinger did not write: move the file away")]
    Foreign,
    #[error("a line of {0} bytes")]
    TooLong(usize),
    #[error("it could not be synced: {0}")]
    Unsynced(String),
    #[error("{error}{}", remedy(.error))]
    Io { error: io::Error },
}

impl From<io::Error> for LedgerError {
    fn from(error: io::Error) -> Self {
        Self::Io { error }
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ": make room, or set XDG_STATE_HOME to another place"
        }
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            ": make it writable, or set XDG_STATE_HOME to another place"
        }
        _ => "",
    }
}

/// Where the next line goes, and the number of the one before it; 0: there is none.
#[derive(Debug, Clone, Copy)]
struct End {
    size: u64,
    seq: u64,
}

#[derive(Debug)]
pub(super) struct Ledger {
    file: File,
    /// After the last line of ours: if nobody wrote since, there is nothing to read.
    known: Option<End>,
}

impl Ledger {
    pub(super) fn new(file: File) -> Self {
        Self { file, known: None }
    }

    /// Appends a record, as one line with the next number. `record` is not empty.
    pub(super) fn append(&mut self, record: &Map<String, Value>) -> Result<(), LedgerError> {
        let _locked = Locked::take(&self.file)?;
        let status = self.file.metadata()?;
        if status.nlink() == 0 {
            return Err(LedgerError::Removed);
        }
        let (end, torn) = match self.known {
            Some(end) if end.size == status.size() => (end, Vec::new()),
            _ => find_end(&self.file, status.size())?,
        };
        let (mut text, mut seq) = (String::new(), end.seq);
        if !torn.is_empty() {
            if torn.last() != Some(&b'\n') {
                text.push('\n');
            }
            seq += 1;
            text.push_str(&line(&torn_record(&torn), seq)?);
        }
        seq += 1;
        text.push_str(&line(record, seq)?);
        if let Err(error) = (&self.file).write_all(text.as_bytes()) {
            self.known = None;
            // So that a full disk leaves no half lines, where the file may be cut at all (chattr +a forbids it).
            let _ = self.file.set_len(status.size());
            return Err(error.into());
        }
        self.known = Some(End { size: status.size() + text.len() as u64, seq });
        Ok(())
    }

    /// Another handle of the file, to sync it by.
    pub(super) fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

/// The number stands last, so that the end of the file alone says what comes next. What will chain the lines belongs beside it.
fn line(record: &Map<String, Value>, seq: u64) -> Result<String, LedgerError> {
    let mut line = serde_json::to_string(record).map_err(io::Error::other)?;
    line.pop();
    line.push_str(&format!("{SEQ}{seq}}}\n"));
    if line.len() > MAX_LINE {
        return Err(LedgerError::TooLong(line.len()));
    }
    Ok(line)
}

const SEQ: &str = ",\"seq\":";

/// The number of a line without its newline; `None`: it is no line of ours.
pub(super) fn number(line: &[u8]) -> Option<u64> {
    let line = std::str::from_utf8(line).ok()?;
    line.strip_prefix("{\"event\":")?.strip_suffix('}')?.rsplit_once(SEQ)?.1.parse().ok()
}

/// Describes what was cut; its text may be anything and stays where it is.
fn torn_record(torn: &[u8]) -> Map<String, Value> {
    let torn = torn.strip_suffix(b"\n").unwrap_or(torn);
    let fields = json!({
        "event": "torn",
        "id": crate::session::random_id(),
        "time": jiff::Timestamp::now().to_string(),
        "bytes": torn.len(),
        "blake3": super::hash(torn),
    });
    fields.as_object().cloned().unwrap_or_default()
}

/// The last line that is whole, and what was cut behind it.
fn find_end(file: &File, size: u64) -> Result<(End, Vec<u8>), LedgerError> {
    for window in [4 << 10, MAX_LINE + MAX_TORN] {
        let start = size.saturating_sub(window as u64);
        let mut bytes = vec![0; usize::try_from(size - start).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, start)?;
        let mut end = bytes.len();
        while let Some(newline) = bytes.get(..end).and_then(|bytes| bytes.iter().rposition(|byte| *byte == b'\n')) {
            let before = bytes.get(..newline).and_then(|bytes| bytes.iter().rposition(|byte| *byte == b'\n'));
            let line_start = match before {
                Some(before) => before + 1,
                None if start == 0 => 0,
                None => break,
            };
            // One that leaves no room for another is none of ours.
            let number = bytes.get(line_start..newline).and_then(number).filter(|seq| *seq < u64::MAX / 2);
            if let Some(seq) = number {
                return Ok((End { size, seq }, bytes.split_off(newline + 1)));
            }
            end = newline;
        }
        if start == 0 && bytes.len() <= MAX_TORN {
            return Ok((End { size, seq: 0 }, bytes));
        }
    }
    Err(LedgerError::Foreign)
}

/// The lock, until it is dropped. Another process that was stopped with it must not hang this one.
pub(super) struct Locked<'a>(&'a File);

impl<'a> Locked<'a> {
    pub(super) fn take(file: &'a File) -> Result<Self, LedgerError> {
        let start = Instant::now();
        let mut pause = Duration::from_micros(20);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self(file)),
                Err(std::fs::TryLockError::Error(error)) if error.kind() != io::ErrorKind::Interrupted => {
                    return Err(error.into());
                }
                Err(_) if start.elapsed() > PATIENCE => return Err(LedgerError::Locked),
                Err(_) => {}
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(2));
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // A copy of the descriptor in a child on its way to exec(2) would hold it otherwise.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(text: &str) -> Map<String, Value> {
        json!({"event": "invalid", "text": text}).as_object().cloned().unwrap()
    }

    fn numbers(file: &mut File) -> Vec<Option<u64>> {
        let size = usize::try_from(file.metadata().unwrap().size()).unwrap();
        let mut bytes = vec![0; size];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
            .split_inclusive(|byte| *byte == b'\n')
            .map(|line| number(line.strip_suffix(b"\n").unwrap_or_default()))
            .collect()
    }

    fn open(scratch: &tempfile::TempDir) -> File {
        zwinger_sandbox::Root::open_ambient(scratch.path()).unwrap().append("log".as_ref()).unwrap()
    }

    #[test]
    fn numbers_go_on_whoever_writes() {
        let scratch = tempfile::tempdir().unwrap();
        let (mut one, mut other) = (Ledger::new(open(&scratch)), Ledger::new(open(&scratch)));
        let long = "x".repeat(MAX_LINE - 100);
        for text in ["a", &long, "\n\",\"seq\":7}\n", "b"] {
            one.append(&record(text)).unwrap();
            other.append(&record(text)).unwrap();
            other.append(&record(text)).unwrap();
        }
        assert_eq!(numbers(&mut open(&scratch)), (1..=12).map(Some).collect::<Vec<_>>());
        let longer = "x".repeat(MAX_LINE);
        assert!(matches!(one.append(&record(&longer)), Err(LedgerError::TooLong(_))));
        one.append(&record("c")).unwrap();
        assert_eq!(numbers(&mut open(&scratch)).len(), 13);
    }

    #[test]
    fn what_was_cut_stays_and_is_described() {
        for torn in
            ["{\"event\":\"begin\",\"te", "{\"event\":\"x\"\n{\"event\":", "garbage\n", "\n", &"y".repeat(MAX_TORN)]
        {
            let scratch = tempfile::tempdir().unwrap();
            let mut file = open(&scratch);
            for before in [0, 1] {
                file.write_all(torn.as_bytes()).unwrap();
                Ledger::new(open(&scratch)).append(&record("a")).unwrap();
                let seqs: Vec<_> = numbers(&mut file).into_iter().flatten().collect();
                assert_eq!(seqs, (1..=2 * (before + 1)).collect::<Vec<u64>>(), "{torn:.30}");
            }
        }
        let scratch = tempfile::tempdir().unwrap();
        let mut file = open(&scratch);
        file.write_all(&vec![b'y'; MAX_TORN + MAX_LINE + 1]).unwrap();
        assert!(matches!(Ledger::new(open(&scratch)).append(&record("a")), Err(LedgerError::Foreign)));
    }

    #[test]
    fn a_log_that_is_gone_takes_no_line() {
        let scratch = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::new(open(&scratch));
        ledger.append(&record("a")).unwrap();
        scratch.close().unwrap();
        assert!(matches!(ledger.append(&record("a")), Err(LedgerError::Removed)));
    }
}

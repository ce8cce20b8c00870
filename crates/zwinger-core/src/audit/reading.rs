//! The log as it is read: lines, records of two lines each, and whether all of it is as it was written.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use serde_json::{Map, Value};
use zwinger_sandbox::{PathError, Root};

use super::hash;
use super::ledger::{LedgerError, Locked, MAX_LINE, MAX_TORN, number};
use crate::process::Process;
use crate::session::State as StateDirectory;

/// Bytes that may stand between two lines of ours.
const MAX_GAP: usize = MAX_LINE + MAX_TORN;

/// Why the log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be opened.
    #[error("the audit log cannot be opened: {0}")]
    Path(#[from] PathError),
    /// It cannot be locked or read.
    #[error("the audit log cannot be read: {0}")]
    Io(#[from] io::Error),
    /// Somebody else keeps it.
    #[error("the audit log cannot be read: {0}")]
    Locked(String),
}

impl From<LedgerError> for ReadError {
    fn from(error: LedgerError) -> Self {
        Self::Locked(error.to_string())
    }
}

/// The log of a user, opened for reading.
#[derive(Debug)]
pub struct AuditLog(File);

/// One line.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its place in the file, from 1.
    pub line: u64,
    /// As stored, without its newline.
    pub text: Vec<u8>,
    /// What it says; empty for what is no line of ours.
    pub fields: Map<String, Value>,
    /// Whether it ends in a newline.
    is_whole: bool,
}

impl Entry {
    /// A text among its fields, or nothing.
    pub fn text_of(&self, name: &str) -> &str {
        self.fields.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    fn process(&self) -> Option<Process> {
        serde_json::from_value(Value::Object(self.fields.clone())).ok()
    }
}

/// A call: its first line, and its second where it has one.
#[derive(Debug, Clone)]
pub struct Record {
    /// `begin`, or `invalid`, `denied` or `torn`, which have no second.
    pub first: Entry,
    /// `end`.
    pub end: Option<Entry>,
}

/// How far a call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// There is nothing more to come.
    Over,
    /// Its process still runs.
    Running,
    /// Its process ended before it did.
    Interrupted,
}

impl Record {
    /// How far it came.
    pub fn progress(&self) -> Progress {
        match (&self.end, self.first.text_of("event")) {
            (None, "begin") if self.first.process().is_some_and(Process::is_running) => Progress::Running,
            (None, "begin") => Progress::Interrupted,
            _ => Progress::Over,
        }
    }
}

/// What [`AuditLog::verify`] found.
#[derive(Debug, Default)]
pub struct Verified {
    /// Lines that are right.
    pub lines: u64,
    /// Records that have begun and not ended, in their order.
    pub open: Vec<Record>,
    /// Where a line was cut, because its writer was killed or the disk was full. What it would have said was not permitted.
    pub torn: Vec<u64>,
    /// Where zeros stand, because the machine stopped before what was written came to the disk. What it said is not known.
    pub zeroed: Vec<u64>,
    /// The first line that is wrong.
    pub fault: Option<Fault>,
}

/// A line that is not as zwinger wrote it, or not where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Its place in the file, from 1.
    pub line: u64,
    /// What is wrong.
    pub why: String,
}

impl AuditLog {
    /// Opens the log in the state directory `state`; `None` where there is none.
    ///
    /// # Errors
    /// When it is there and cannot be opened.
    pub fn open(state: &Path) -> Result<Option<Self>, ReadError> {
        let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let root = match Root::open_ambient(state) {
            Err(error) if is_missing(&error) => return Ok(None),
            opened => opened?,
        };
        match root.open_file(Path::new(StateDirectory::AUDIT)) {
            Err(PathError::Io(error)) if is_missing(&error) => Ok(None),
            opened => Ok(Some(Self(opened?))),
        }
    }

    /// The lines behind `offset`, to where the file ends now; and where that is.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn lines(&self, offset: u64) -> Result<(impl Iterator<Item = Result<Entry, ReadError>>, u64), ReadError> {
        // With the lock nobody is in the middle of a line.
        let size = {
            let _locked = Locked::take(&self.0)?;
            self.0.metadata()?.len()
        };
        let mut file = self.0.try_clone()?;
        file.seek(SeekFrom::Start(offset))?;
        let mut reader = BufReader::new(file.take(size.saturating_sub(offset)));
        let mut line = 0;
        let lines = std::iter::from_fn(move || {
            line += 1;
            read_entry(&mut reader, line).transpose()
        });
        Ok((lines, size))
    }

    /// The calls whose first line is wanted, in the order in which they began.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn records(&self, is_wanted: impl Fn(&Entry) -> bool) -> Result<Vec<Record>, ReadError> {
        let mut records: Vec<Record> = Vec::new();
        let mut open = HashMap::new();
        for entry in self.lines(0)?.0 {
            let entry = entry?;
            let id = entry.text_of("id").to_owned();
            if entry.text_of("event") == "end" {
                if let Some(record) = open.remove(&id).and_then(|index: usize| records.get_mut(index)) {
                    record.end = Some(entry);
                }
                continue;
            }
            if !is_wanted(&entry) {
                continue;
            }
            if entry.text_of("event") == "begin" {
                open.insert(id, records.len());
            }
            records.push(Record { first: entry, end: None });
        }
        Ok(records)
    }

    /// Whether the lines are all there, in their order, and each second one has its first. That none was changed is not known.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn verify(&self) -> Result<Verified, ReadError> {
        let mut check = Check::default();
        for entry in self.lines(0)?.0 {
            if let Err(fault) = check.take(entry?) {
                check.verified.fault = Some(fault);
                break;
            }
        }
        let mut verified = check.verified;
        if verified.fault.is_none()
            && let Some(gap) = check.gap.first()
        {
            // The next line will say so.
            match check.gap.as_slice() {
                [only] if !only.is_whole && is_beginning(&only.text) => verified.cut(&check.gap),
                _ => verified.fault = Some(fault(gap, "it is no record")),
            }
        }
        verified.open = check.open.into_values().map(|first| Record { first, end: None }).collect();
        verified.open.sort_by_key(|record| record.first.line);
        Ok(verified)
    }
}

fn read_entry(reader: &mut impl BufRead, line: u64) -> Result<Option<Entry>, ReadError> {
    let mut text = Vec::new();
    reader.by_ref().take(MAX_GAP as u64 + 1).read_until(b'\n', &mut text)?;
    if text.is_empty() {
        return Ok(None);
    }
    let is_whole = text.last() == Some(&b'\n');
    text.truncate(text.len() - usize::from(is_whole));
    let fields = number(&text).and_then(|_| serde_json::from_slice(&text).ok()).unwrap_or_default();
    Ok(Some(Entry { line, text, fields, is_whole }))
}

#[derive(Default)]
struct Check {
    verified: Verified,
    seq: u64,
    open: HashMap<String, Entry>,
    /// What is no record, until one says that it was cut.
    gap: Vec<Entry>,
}

impl Check {
    fn take(&mut self, entry: Entry) -> Result<(), Fault> {
        let Some(seq) = number(&entry.text).filter(|_| entry.is_whole) else {
            let bytes: usize = self.gap.iter().map(|entry| entry.text.len() + 1).sum();
            let why = fault(self.gap.first().unwrap_or(&entry), "it is no record");
            if bytes > MAX_GAP || !is_beginning(&entry.text) {
                return Err(why);
            }
            self.gap.push(entry);
            return Ok(());
        };
        let event = entry.text_of("event");
        if let Some(first) = self.gap.first() {
            if event != "torn" || !describes(&entry, &self.gap) {
                return Err(fault(first, "it is no record, and the next one does not say that it was cut"));
            }
            self.verified.cut(&self.gap);
            self.gap.clear();
        } else if event == "torn" {
            return Err(fault(&entry, "what it says was cut is not there"));
        }
        if seq != self.seq + 1 {
            let why = format!("its number is {seq} and should be {}: lines are missing, or were added", self.seq + 1);
            return Err(fault(&entry, &why));
        }
        let id = entry.text_of("id").to_owned();
        match event {
            _ if id.is_empty() => return Err(fault(&entry, "it is no JSON, or has no id")),
            "begin" if self.open.contains_key(&id) => return Err(fault(&entry, "what it begins has begun before")),
            "begin" => drop(self.open.insert(id, entry)),
            "end" if self.open.remove(&id).is_none() => return Err(fault(&entry, "it ends what did not begin")),
            "end" | "invalid" | "denied" | "torn" => {}
            _ => return Err(fault(&entry, "its event is unknown")),
        }
        self.seq = seq;
        self.verified.lines += 1;
        Ok(())
    }
}

impl Verified {
    /// What stands between two lines, or behind the last one, and may be there.
    fn cut(&mut self, gap: &[Entry]) {
        let Some(first) = gap.first() else { return };
        match gap.iter().any(|entry| entry.text.ends_with(&[0])) {
            true => self.zeroed.push(first.line),
            false => self.torn.push(first.line),
        }
    }
}

/// Whether the text is what is left of a line of ours. Zeros at its end, or nothing else, are what a file system leaves whose
/// machine stopped: the file has grown already, and what was to stand there has not come.
fn is_beginning(text: &[u8]) -> bool {
    const START: &[u8] = b"{\"event\":\"";
    let zeros = text.iter().rev().take_while(|byte| **byte == 0).count();
    let (text, _) = text.split_at(text.len() - zeros);
    text.starts_with(START) || (zeros > 0 || !text.is_empty()) && START.starts_with(text)
}

fn describes(torn: &Entry, gap: &[Entry]) -> bool {
    let cut = gap.iter().map(|entry| entry.text.as_slice()).collect::<Vec<_>>().join(&b'\n');
    torn.fields.get("bytes") == Some(&cut.len().into()) && torn.text_of("blake3") == hash(&cut)
}

fn fault(entry: &Entry, why: &str) -> Fault {
    Fault { line: entry.line, why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::ledger::Ledger;
    use serde_json::json;
    use std::io::Write;

    struct Case {
        scratch: tempfile::TempDir,
        ledger: Ledger,
    }

    fn case() -> Case {
        let scratch = tempfile::tempdir().unwrap();
        let state = Root::create_private(&scratch.path().join("audit")).unwrap();
        let ledger = Ledger::new(state.append(Path::new("audit.jsonl")).unwrap());
        Case { scratch, ledger }
    }

    impl Case {
        fn write(&mut self, event: &str, id: &str) {
            let Value::Object(record) = json!({"event": event, "id": id}) else { return };
            self.ledger.append(&record).unwrap();
        }

        fn raw(&self, text: &str) {
            let root = Root::open_ambient(self.scratch.path()).unwrap();
            root.append(Path::new("audit/audit.jsonl")).unwrap().write_all(text.as_bytes()).unwrap();
        }

        fn verify(&self) -> Verified {
            AuditLog::open(self.scratch.path()).unwrap().unwrap().verify().unwrap()
        }
    }

    fn at(verified: &Verified) -> Option<u64> {
        verified.fault.as_ref().map(|fault| fault.line)
    }

    #[test]
    fn what_was_written_verifies() {
        let mut case = case();
        assert_eq!((case.verify().lines, at(&case.verify())), (0, None));
        for (event, id) in [("begin", "1"), ("denied", "2"), ("begin", "3"), ("end", "1"), ("invalid", "4")] {
            case.write(event, id);
        }
        let verified = case.verify();
        assert_eq!((verified.lines, at(&verified), verified.open.len()), (5, None, 1));
        assert_eq!(verified.open[0].progress(), Progress::Interrupted);
    }

    #[test]
    fn the_first_wrong_line_is_named() {
        for (wrong, line) in [
            ("no record\n", 2),
            ("{\"event\":\"begin\",\"id\":\"x\",\"seq\":3}\n", 2),
            ("{\"event\":\"begin\",\"id\":\"x\",\"seq\":1}\n", 2),
            ("{\"event\":\"begin\",\"id\":\"1\",\"seq\":2}\n", 2),
            ("{\"event\":\"end\",\"id\":\"x\",\"seq\":2}\n", 2),
            ("{\"event\":\"other\",\"id\":\"x\",\"seq\":2}\n", 2),
            ("{\"event\":\"begin\",\"seq\":2}\n", 2),
            ("{\"event\":\"begin\",,\"seq\":2}\n", 2),
            ("{\"event\":\"torn\",\"id\":\"x\",\"bytes\":3,\"blake3\":\"\",\"seq\":2}\n", 2),
            ("\n", 2),
            ("garbage without an end", 2),
        ] {
            let mut case = case();
            case.write("begin", "1");
            case.raw(wrong);
            assert_eq!(at(&case.verify()), Some(line), "{wrong}");
            // Nothing that comes after it makes it right.
            let _ = case.ledger.append(json!({"event": "end", "id": "1"}).as_object().unwrap());
            assert!(at(&case.verify()).is_some(), "{wrong}");
        }
    }

    #[test]
    fn zeros_at_the_end_are_told_and_no_fault() {
        for cut in ["\0".repeat(5_000), "\0".into(), "{\"event\":\"beg\0\0".into(), "{\"ev\0".into()] {
            let mut case = case();
            case.write("begin", "1");
            case.raw(&cut);
            for _ in 0..2 {
                let verified = case.verify();
                assert_eq!((at(&verified), &verified.torn, &verified.zeroed), (None, &vec![], &vec![2]), "{cut:?}");
                case.write("denied", "2");
            }
        }
        for wrong in ["\0\0garbage", "garbage\0\0", "\0\n\0"] {
            let mut case = case();
            case.write("begin", "1");
            case.raw(wrong);
            assert_eq!(at(&case.verify()), Some(2), "{wrong:?}");
        }
    }

    #[test]
    fn a_cut_line_is_told_from_a_wrong_one() {
        for cut in ["{\"event\":\"begin\",\"id\":\"2\",\"too", "{\"ev", "{\"event\":\"begin\"\n{\"event\":\"torn\""] {
            let mut case = case();
            case.write("begin", "1");
            case.raw(cut);
            if !cut.contains('\n') {
                assert_eq!((at(&case.verify()), case.verify().torn), (None, vec![2]), "{cut}");
            }
            case.write("end", "1");
            assert_eq!((at(&case.verify()), case.verify().torn), (None, vec![2]), "{cut}");
        }
    }
}

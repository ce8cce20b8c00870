//! One line before and one after every call, in the order of time: JSON Lines in zwinger's state, outside every workspace.
//! docs/audit.md says what stands in them.
//!
//! A call whose first line cannot be written is denied. A first line without a second is a call that was interrupted, or that
//! still runs.

mod ledger;
mod reading;
mod record;
mod sync;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde_json::{Map, Value, json};
use zwinger_sandbox::{Backend, Enforcement};

use crate::action::Action;
use crate::call::Call;
use crate::error::Broken;
use crate::output::{CommandOutcome, Outcome};
use crate::policy::{Mode, Verdict};
use crate::process::Process;
use crate::session::{SessionId, State, random_id};
use ledger::{Ledger, LedgerError};
pub use reading::{AuditLog, Entry, Fault, Progress, ReadError, Record, Verified};
use sync::Syncing;

/// What all records of a session have in common.
#[derive(Debug)]
pub struct Subject {
    /// Whose.
    pub session: SessionId,
    /// The way in: `run`, `tool`, `ask`, `library`.
    pub door: String,
    /// What the session may do.
    pub mode: Mode,
    /// Its canonical root.
    pub workspace: PathBuf,
    /// What builds its walls.
    pub backend: Backend,
}

/// Where records of a session go.
#[derive(Debug, Clone)]
pub struct Audit(Arc<Log>);

#[derive(Debug)]
struct Log {
    ledger: Mutex<Ledger>,
    /// Dropped with the log, which syncs it. `None`: there is no thread, for there is one record.
    syncing: Option<Syncing>,
    path: PathBuf,
    process: Process,
    subject: Subject,
    enforcement: Option<Enforcement>,
}

/// The open record of a permitted call. Dropped without [`Ticket::finish`], it is recorded as abandoned.
#[derive(Debug)]
pub struct Ticket {
    audit: Audit,
    id: String,
    begun: Instant,
    /// Hash of the file as it will be.
    after: Option<String>,
    finished: bool,
}

impl Audit {
    /// Opens the log of `state` for a session with many calls, and starts the thread that syncs it.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(state: &State, subject: Subject, enforcement: Enforcement) -> Result<Self, Broken> {
        let ledger = open(state)?;
        let syncing = ledger.handle().and_then(Syncing::start).map_err(|error| unusable(state, &error))?;
        Ok(Self::new(state, ledger, Some(syncing), subject, Some(enforcement)))
    }

    /// Begins the one record of a command that a person typed: nothing was asked, and what will hold is known only when it ran.
    /// Starts no thread.
    ///
    /// # Errors
    /// When it cannot be written; the command must not run then.
    pub fn begin_run(state: &State, subject: Subject, argv: &[OsString]) -> Result<Ticket, Broken> {
        let audit = Self::new(state, open(state)?, None, subject, None);
        let argv: Vec<_> = argv.iter().map(text_or_digest).collect();
        let fields = json!({
            "tool": "run",
            "arguments": {"argv": argv},
            "rule": "run: the person typed it",
            "decision": "allow",
            "by": "command line",
        });
        audit.start(fields, None)
    }

    fn new(
        state: &State,
        ledger: Ledger,
        syncing: Option<Syncing>,
        subject: Subject,
        enforcement: Option<Enforcement>,
    ) -> Self {
        let (path, process) = (state.audit_path(), Process::this());
        Self(Arc::new(Log { ledger: Mutex::new(ledger), syncing, path, process, subject, enforcement }))
    }

    /// A call that was no action.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn invalid(&self, call: &Call, reason: &str) -> Result<(), Broken> {
        let fields = json!({"tool": call.tool, "arguments": record::described(&call.arguments), "error": reason});
        self.write("invalid", &random_id(), self.in_context(fields))
    }

    /// A call that was not permitted.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn refused(&self, action: &Action, verdict: &Verdict, decision: &str, by: &str) -> Result<(), Broken> {
        self.write("denied", &random_id(), self.in_context(judged(action, verdict, decision, by)))
    }

    /// A call that is permitted and about to be done.
    ///
    /// # Errors
    /// When the record cannot be written; the call must not be done then.
    pub fn begin(&self, action: &Action, verdict: &Verdict, decision: &str, by: &str) -> Result<Ticket, Broken> {
        let (before, after) = record::hashes(action);
        let mut fields = judged(action, verdict, decision, by);
        if let (Value::Object(fields), Some(before)) = (&mut fields, before) {
            fields.insert("before".into(), before.into());
        }
        self.start(fields, after)
    }

    /// Waits until all that was written is on the disk.
    ///
    /// # Errors
    /// When it cannot be synced.
    pub fn sync(&self) -> Result<(), Broken> {
        let handle = self.ledger().handle();
        handle.and_then(|file| file.sync_data()).map_err(|error| self.broken(&LedgerError::Unsynced(error.to_string())))
    }

    fn start(&self, fields: Value, after: Option<String>) -> Result<Ticket, Broken> {
        let id = random_id();
        self.write("begin", &id, self.in_context(fields))?;
        Ok(Ticket { audit: self.clone(), id, begun: Instant::now(), after, finished: false })
    }

    /// With the circumstances of the session behind what is said of the call.
    fn in_context(&self, mut fields: Value) -> Value {
        let Log { subject, process, enforcement, .. } = &*self.0;
        let context = json!({
            "mode": subject.mode,
            "workspace": subject.workspace.to_string_lossy(),
            "backend": subject.backend.to_string(),
            "enforcement": enforcement.as_ref().map(levels),
            "pid": process.pid,
            "pid_start": process.pid_start,
        });
        if let (Value::Object(fields), Value::Object(context)) = (&mut fields, context) {
            fields.extend(context);
        }
        fields
    }

    fn write(&self, event: &str, id: &str, fields: Value) -> Result<(), Broken> {
        let mut line = Map::new();
        let Subject { session, door, .. } = &self.0.subject;
        let time = jiff::Timestamp::now().to_string();
        for (name, value) in
            [("event", event), ("id", id), ("time", &time), ("session", session.as_ref()), ("door", door)]
        {
            line.insert(name.to_owned(), record::bounded(value.into()));
        }
        line.extend(record::fields(fields));
        self.ledger().append(&line).map_err(|error| self.broken(&error))?;
        let synced = self.0.syncing.as_ref().map_or(Ok(()), Syncing::written);
        synced.map_err(|error| self.broken(&LedgerError::Unsynced(error)))
    }

    fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.0.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn broken(&self, error: &LedgerError) -> Broken {
        let path = self.0.path.display();
        Broken(format!("the audit log cannot be written, and without it nothing is permitted: {path}: {error}"))
    }
}

fn open(state: &State) -> Result<Ledger, Broken> {
    state.audit_log().map(Ledger::new).map_err(|error| unusable(state, &error))
}

fn unusable(state: &State, error: &dyn std::fmt::Display) -> Broken {
    let path = state.audit_path();
    Broken(format!(
        "the audit log cannot be opened, and without it nothing is permitted: {}: {error}; mend it, or set XDG_STATE_HOME to another place",
        path.display()
    ))
}

/// What a call wants, and how that was decided.
fn judged(action: &Action, verdict: &Verdict, decision: &str, by: &str) -> Value {
    json!({
        "tool": action.tool(),
        "arguments": record::arguments(action),
        "verdict": verdict.judgement.name(),
        "rule": verdict.rule,
        "decision": decision,
        "by": by,
    })
}

fn levels(enforcement: &Enforcement) -> Map<String, Value> {
    enforcement.dimensions().into_iter().map(|(name, held)| (name.to_owned(), json!(held.level))).collect()
}

fn hash(content: &[u8]) -> String {
    blake3::hash(content).to_hex().to_string()
}

fn text_or_digest(word: &OsString) -> Value {
    let bytes = word.as_bytes();
    match word.to_str() {
        Some(text) => text.into(),
        None => json!({"bytes": bytes.len(), "blake3": hash(bytes), "head": word.to_string_lossy()}),
    }
}

impl Ticket {
    /// Closes the record with what came of the call.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn finish(mut self, outcome: &Outcome) -> Result<(), Broken> {
        self.close(ended(outcome))
    }

    /// Closes the record of [`Audit::begin_run`], with what held. On the disk afterwards if the command took long enough for that
    /// not to count; otherwise the system writes it in its own time, half a minute at most.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn finish_run(mut self, outcome: &Outcome, enforcement: &Enforcement) -> Result<(), Broken> {
        let mut fields = ended(outcome);
        if let Value::Object(fields) = &mut fields {
            fields.insert("enforcement".into(), levels(enforcement).into());
        }
        self.close(fields)?;
        if self.begun.elapsed() < LONG { Ok(()) } else { self.audit.sync() }
    }

    /// Closes the record of a command that did not come to run, or of which nothing is known.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn fail(mut self, error: &dyn std::fmt::Display) -> Result<(), Broken> {
        self.close(json!({"success": false, "error": error.to_string()}))
    }

    fn close(&mut self, mut fields: Value) -> Result<(), Broken> {
        self.finished = true;
        if let Value::Object(fields) = &mut fields {
            let duration = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            fields.insert("duration_ms".into(), duration.into());
            if fields.get("success") == Some(&true.into()) {
                fields.insert("after".into(), self.after.take().into());
            }
        }
        self.audit.write("end", &self.id, fields)
    }
}

/// From how long on a command waits for its record to be on the disk.
const LONG: std::time::Duration = std::time::Duration::from_millis(100);

fn ended(outcome: &Outcome) -> Value {
    let mut fields = json!({
        "success": outcome.success,
        "error": outcome.error,
        "bytes": outcome.output.len(),
        "blake3": hash(outcome.output.as_bytes()),
    });
    if let (Value::Object(fields), Some(command)) = (&mut fields, &outcome.command) {
        let CommandOutcome { exit_code, timed_out, limit, leftovers, truncated, .. } = command;
        let of_command = json!({
            "exit_code": exit_code,
            "timed_out": timed_out,
            "limit": limit,
            "leftovers": leftovers,
            "truncated": truncated,
        });
        fields.extend(of_command.as_object().cloned().unwrap_or_default());
    }
    fields
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.finished {
            // Nobody is left to tell; a `begin` without `end` says the same.
            let _ = self.close(json!({"success": false, "error": "abandoned"}));
        }
    }
}

//! One line before and one after every call, in the order of time: JSON Lines in zwinger's state, outside every workspace.
//!
//! A call whose first line cannot be written is denied. A first line without a second is a call that was interrupted.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};
use zwinger_sandbox::{Backend, Enforcement};

use crate::action::Action;
use crate::error::Broken;
use crate::output::Outcome;
use crate::policy::Verdict;
use crate::session::{SessionId, State, random_id};

/// Characters of a text of the model that a record keeps.
const MAX_TEXT: usize = 300;

/// Where records of a session go.
#[derive(Debug, Clone)]
pub struct Audit(Arc<Log>);

#[derive(Debug)]
struct Log {
    file: Mutex<File>,
    session: SessionId,
    workspace: String,
    backend: Backend,
    enforcement: Enforcement,
}

/// The open record of a permitted call. Dropped without [`Ticket::finish`], it is recorded as abandoned.
#[derive(Debug)]
pub struct Ticket {
    audit: Audit,
    id: String,
    finished: bool,
}

impl Audit {
    /// Opens the log of `state`.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(
        state: &State,
        session: SessionId,
        workspace: &std::path::Path,
        backend: Backend,
        enforcement: Enforcement,
    ) -> Result<Self, Broken> {
        let file = state.audit_log().map_err(|error| Broken(format!("the audit log cannot be opened: {error}")))?;
        let workspace = workspace.to_string_lossy().into_owned();
        Ok(Self(Arc::new(Log { file: Mutex::new(file), session, workspace, backend, enforcement })))
    }

    /// A call that was no action.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn invalid(&self, tool: &str, reason: &str) -> Result<(), Broken> {
        let short = |text: &str| text.chars().take(MAX_TEXT).collect::<String>();
        self.write("invalid", &random_id(), json!({"tool": short(tool), "error": short(reason)}))
    }

    /// A call that was not permitted.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn refused(&self, action: &Action, verdict: &Verdict, decision: &str, by: &str) -> Result<(), Broken> {
        self.write("denied", &random_id(), self.subject(action, verdict, decision, by))
    }

    /// A call that is permitted and about to be done.
    ///
    /// # Errors
    /// When the record cannot be written; the call must not be done then.
    pub fn begin(&self, action: &Action, verdict: &Verdict, decision: &str, by: &str) -> Result<Ticket, Broken> {
        let id = random_id();
        self.write("begin", &id, self.subject(action, verdict, decision, by))?;
        Ok(Ticket { audit: self.clone(), id, finished: false })
    }

    fn subject(&self, action: &Action, verdict: &Verdict, decision: &str, by: &str) -> Value {
        let held: Map<String, Value> = self
            .0
            .enforcement
            .dimensions()
            .into_iter()
            .map(|(name, held)| (name.to_owned(), json!(held.level)))
            .collect();
        json!({
            "tool": action.tool(),
            "what": what(action),
            "verdict": verdict.judgement.name(),
            "rule": verdict.rule,
            "decision": decision,
            "by": by,
            "workspace": self.0.workspace,
            "backend": self.0.backend.to_string(),
            "enforcement": held,
        })
    }

    fn write(&self, event: &str, id: &str, fields: Value) -> Result<(), Broken> {
        let mut record = json!({
            "event": event,
            "id": id,
            "time": jiff::Timestamp::now().to_string(),
            "session": self.0.session.to_string(),
        });
        if let (Value::Object(record), Value::Object(fields)) = (&mut record, fields) {
            record.extend(fields);
        }
        let line = format!("{record}\n");
        // O_APPEND and one write: lines of several processes do not mix (write(2)).
        self.0
            .file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write_all(line.as_bytes())
            .map_err(|error| Broken(format!("the audit log cannot be written ({error}), so nothing is permitted")))
    }
}

/// What an action is about, without content: that has its hash and length.
fn what(action: &Action) -> Value {
    match action {
        Action::Read { path, offset, limit } => {
            json!({"path": path.to_string(), "offset": offset, "limit": limit})
        }
        Action::List { path, depth } => json!({"path": path.to_string(), "depth": depth}),
        Action::Write { path, content, .. } => {
            json!({"path": path.to_string(), "bytes": content.len(), "blake3": hash(content.as_bytes())})
        }
        Action::Edit { path, edited, .. } => {
            let content = edited.content.as_bytes();
            json!({"path": path.to_string(), "bytes": content.len(), "blake3": hash(content), "places": edited.places})
        }
        Action::Run { command, timeout, directory, read_only } => json!({
            "command": command,
            "timeout_seconds": timeout.as_secs(),
            "cwd": directory.to_string(),
            "read_only": read_only,
        }),
        Action::Time => json!({}),
    }
}

fn hash(content: &[u8]) -> String {
    blake3::hash(content).to_hex().to_string()
}

impl Ticket {
    /// Closes the record with what came of the call.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn finish(mut self, outcome: &Outcome) -> Result<(), Broken> {
        self.finished = true;
        self.audit.write(
            "end",
            &self.id,
            json!({
                "success": outcome.success,
                "error": outcome.error,
                "exit_code": outcome.command.as_ref().map(|command| command.exit_code),
                "bytes": outcome.output.len(),
                "blake3": hash(outcome.output.as_bytes()),
            }),
        )
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.finished {
            // Nobody is left to tell; a `begin` without `end` says the same.
            let _ = self.audit.write("end", &self.id, json!({"success": false, "error": "abandoned"}));
        }
    }
}

//! From what ran to what may leave: [`Raw`] cannot be shown or serialised, [`Outcome`] can.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;
use zwinger_sandbox::supervisor::Finished;
use zwinger_sandbox::{Backend, Captured, Enforcement};

use crate::action::{Action, Edited};
use crate::edit;
use crate::error::{Broken, Denied, Failed, Invalid};

use crate::executor::wire::{ListedEntry, Response};
use crate::executor::{Executor, JobId, Report, Terms};
use crate::question;
use crate::tools::MAX_SECONDS;

/// What came back from inside the walls. Hostile until `make_safe`.
#[derive(Debug)]
pub struct Raw(Result<Came, Failed>);

/// As it came.
#[derive(Debug)]
pub(crate) enum Came {
    Answer(Response),
    /// From an embedder's tool.
    Text(String),
    /// From a command in the background, as far as it was heard of.
    Job(JobId, Report),
}

impl Raw {
    pub(crate) fn new(came: Result<Came, Failed>) -> Self {
        Self(came)
    }
}

/// Why a call has no success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It has.
    Succeeded,
    /// The tool ran and did not succeed, or the path was refused.
    Failed,
    /// The call was no action: its tool or arguments are wrong.
    Invalid,
    /// The call was no action: its path leads outside, or nothing can be done there.
    PathRefused,
    /// It was not permitted.
    Denied,
    /// Something of ours broke.
    Broken,
}

/// The result of a call, for every door.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Whether the tool did what was asked; a command's non-zero exit is no success.
    pub success: bool,
    /// Text of the result.
    pub output: String,
    /// One line for the model, beginning with `Error: `.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The command in the background that this is about, and that still runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// What a command adds.
    #[serde(flatten)]
    pub command: Option<CommandOutcome>,
    /// Why not, for exit codes.
    #[serde(skip)]
    pub kind: Kind,
}

/// What the result of a command has besides.
#[derive(Debug, Clone, Serialize)]
pub struct CommandOutcome {
    /// The command's own; 124 when the time limit ended it, 137 when another limit did, 128 + N after signal N.
    pub exit_code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// From start to the end of all it started.
    pub duration_ms: u64,
    /// Whether the time limit ended it.
    pub timed_out: bool,
    /// The limit other than time that it was stopped at or that something in it was refused at (`reached …`), and the option
    /// that changes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Processes that it left running and that were stopped.
    #[serde(skip_serializing_if = "is_zero")]
    pub leftovers: usize,
    /// What was cut from `output`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<Truncated>,
    /// What built the walls.
    pub backend: Backend,
    /// What they held.
    pub enforcement: Enforcement,
    /// The walls in words, for a model whose command failed by itself.
    #[serde(skip)]
    pub walls: Option<String>,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Bytes of a cut output.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Truncated {
    /// Bytes that are there.
    pub kept: u64,
    /// Bytes that are not.
    pub dropped: u64,
}

impl Outcome {
    fn text(output: String) -> Self {
        Self { success: true, output, error: None, job: None, command: None, kind: Kind::Succeeded }
    }

    fn error(kind: Kind, text: impl std::fmt::Display) -> Self {
        let error = Some(format!("Error: {text}"));
        Self { success: false, output: String::new(), error, job: None, command: None, kind }
    }

    /// Of a command; `limit` says which time limit it had, for the case that this ended it.
    pub fn of_command(finished: Finished, limit: &str, walls: Walls<'_>) -> Self {
        let text = |captured: &Captured| String::from_utf8_lossy(&captured.joined()).into_owned();
        let exit_code = finished.exit_code();
        let hit = finished.limit.map(|limit| limit.to_string());
        let reached = finished.reached.map(|limit| format!("reached {limit}"));
        let error = if finished.timed_out {
            Some(format!("Error: stopped after {limit}."))
        } else if let Some(hit) = &hit {
            Some(format!("Error: stopped: {hit}."))
        } else if finished.cancelled {
            Some("Error: stopped before its end.".into())
        } else {
            None
        };
        let success = exit_code == 0 && !finished.cancelled;
        let dropped = finished.output.dropped;
        Self {
            success,
            output: text(&finished.output),
            error,
            job: None,
            kind: if success { Kind::Succeeded } else { Kind::Failed },
            command: Some(CommandOutcome {
                exit_code,
                stdout: text(&finished.stdout),
                stderr: text(&finished.stderr),
                duration_ms: u64::try_from(finished.duration.as_millis()).unwrap_or(u64::MAX),
                timed_out: finished.timed_out,
                limit: hit.or(reached),
                leftovers: finished.leftovers,
                truncated: (dropped > 0).then_some(Truncated { kept: finished.output.kept() as u64, dropped }),
                backend: walls.backend,
                enforcement: walls.enforcement.clone(),
                walls: None,
            }),
        }
    }

    /// What a model sees: text, without JSON around it.
    pub fn for_model(&self) -> String {
        let mut text = self.output.clone();
        if let Some(command) = &self.command {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            let seconds = Duration::from_millis(command.duration_ms).as_secs_f64();
            // Writing to a String cannot fail.
            let _ = write!(text, "[exit {} · {seconds:.1} s · {}]", command.exit_code, command.backend);
            if let Some(cut) = command.truncated {
                let _ = write!(text, "\n[cut: {} bytes dropped]", cut.dropped);
            }
            // One that it was stopped at is the error.
            if let (Some(reached), None) = (&command.limit, &self.error) {
                let _ = write!(text, "\n[{reached}]");
            }
            if command.leftovers > 0 {
                let _ = write!(text, "\n[{} processes that were left running were stopped]", command.leftovers);
            }
        }
        if let Some(walls) = self.command.as_ref().and_then(|command| command.walls.as_ref()) {
            text.push('\n');
            text.push_str(walls);
        }
        if let Some(error) = &self.error {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(error);
        }
        text
    }
}

impl From<Invalid> for Outcome {
    fn from(error: Invalid) -> Self {
        let kind = match error {
            Invalid::Arguments(_) => Kind::Invalid,
            Invalid::Path(_) => Kind::PathRefused,
        };
        Self::error(kind, error)
    }
}

impl From<Denied> for Outcome {
    fn from(error: Denied) -> Self {
        Self::error(Kind::Denied, error)
    }
}

impl From<Broken> for Outcome {
    fn from(error: Broken) -> Self {
        Self::error(Kind::Broken, error)
    }
}

/// What the walls were when a command ran.
#[derive(Debug, Clone, Copy)]
pub struct Walls<'a> {
    /// What built them.
    pub backend: Backend,
    /// What they held.
    pub enforcement: &'a Enforcement,
    /// The same in words for a model, where one reads the outcome.
    pub terms: Option<&'a Terms>,
}

impl<'a> Walls<'a> {
    pub(crate) fn of(executor: &'a Executor) -> Self {
        Self { backend: executor.backend(), enforcement: executor.enforcement(), terms: Some(executor.terms()) }
    }
}

impl Raw {
    /// Turns what came from inside into text: valid UTF-8, bounded, one fixed form a tool.
    pub(crate) fn make_safe(self, action: &Action, walls: Walls<'_>) -> Outcome {
        let response = match self.0 {
            Ok(Came::Answer(response)) => response,
            Ok(Came::Text(text)) => return Outcome::text(text),
            Ok(Came::Job(id, report)) => return job(action, id, report, walls),
            Err(failed) => return Outcome::error(Kind::Failed, failed),
        };
        match (action, response) {
            (Action::Time, _) => Outcome::text(now()),
            (
                Action::Read { path, offset, numbers, .. },
                Response::Read { content, before, lines, more, binary, size },
            ) => {
                if binary {
                    let bytes = usize::try_from(size).unwrap_or(usize::MAX);
                    return Outcome::error(
                        Kind::Failed,
                        format!("{path} is a binary file ({}).", question::counted(bytes, "byte")),
                    );
                }
                if content.is_empty() && *offset > 1 {
                    let lines = usize::try_from(before).unwrap_or(usize::MAX);
                    return Outcome::text(format!("[{path} has {}]\n", question::counted(lines, "line")));
                }
                read(path, *offset, *numbers, content, lines, more)
            }
            (Action::List { .. }, Response::Listed { entries, more }) => Outcome::text(listing(&entries, more)),
            (Action::Write { path, content, .. }, Response::Written) => {
                Outcome::text(format!("Wrote {path} ({}).", question::counted(content.len(), "byte")))
            }
            (Action::Edit { path, edited, .. }, Response::Written) => Outcome::text(changed(path, edited)),
            (Action::Run { timeout, read_only, .. }, Response::Finished(finished)) => {
                let mut outcome = Outcome::of_command(*finished, &time_limit(*timeout, walls.terms), walls);
                let is_its_own = !outcome.success && outcome.error.is_none() && walls.backend != Backend::None;
                if let (true, Some(command), Some(terms)) = (is_its_own, &mut outcome.command, walls.terms) {
                    command.walls = Some(terms.line(*read_only));
                }
                outcome
            }
            _ => Outcome::error(Kind::Broken, "the executor answered something else than it was asked"),
        }
    }
}

/// With what whoever reads it can change: the model its own value, up to that of the person.
fn time_limit(timeout: Option<Duration>, terms: Option<&Terms>) -> String {
    let most = terms.and_then(Terms::time);
    match (timeout, most) {
        (None, _) => "its time limit (timeout_seconds of its start, or --timeout)".into(),
        (Some(timeout), Some(most)) if timeout >= most => {
            format!("{} s (limit --timeout, which only the user can raise)", timeout.as_secs())
        }
        (Some(timeout), most) => {
            let most = most.map_or(MAX_SECONDS, |most| most.as_secs().min(MAX_SECONDS));
            format!("{} s (limit timeout_seconds, at most {most})", timeout.as_secs())
        }
    }
}

/// A command in the background.
fn job(action: &Action, id: JobId, report: Report, walls: Walls<'_>) -> Outcome {
    let text = |output: &Captured| String::from_utf8_lossy(&output.joined()).into_owned();
    match report {
        Report::Runs { output, elapsed } => {
            let mut text = text(&output);
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            let seconds = elapsed.as_secs_f64();
            // Writing to a String cannot fail.
            let _ = match action {
                Action::Run { .. } => write!(
                    text,
                    "[job {id} runs until the session ends · job_output shows what it prints, job_stop ends it]"
                ),
                _ => write!(text, "[job {id} runs · {seconds:.1} s]"),
            };
            Outcome { job: Some(id), ..Outcome::text(text) }
        }
        Report::Ended { output, finished } => {
            let mut outcome = Outcome::of_command(*finished, &time_limit(None, None), walls);
            if let Some(output) = output {
                outcome.output = text(&output);
            }
            if matches!(action, Action::JobStop { .. }) {
                // Its end is what was asked for.
                (outcome.success, outcome.error, outcome.kind) = (true, None, Kind::Succeeded);
            }
            outcome
        }
    }
}

fn now() -> String {
    jiff::ZonedDateTime::now().strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

fn read(
    path: &crate::action::WorkspacePath,
    offset: u64,
    numbers: bool,
    content: Vec<u8>,
    lines: u64,
    more: bool,
) -> Outcome {
    // A cut inside a character is ours; any other foreign byte is the file's.
    let content = match String::from_utf8(content) {
        Ok(text) => text,
        Err(error) if more && error.utf8_error().error_len().is_none() => {
            let valid = error.utf8_error().valid_up_to();
            let mut bytes = error.into_bytes();
            bytes.truncate(valid);
            String::from_utf8(bytes).unwrap_or_default()
        }
        Err(_) => return Outcome::error(Kind::Failed, format!("{path} is not UTF-8 text.")),
    };
    let content = if numbers { numbered(&content, offset) } else { content };
    if !more {
        return Outcome::text(content);
    }
    let last = offset.saturating_add(lines.saturating_sub(1));
    let gap = if content.ends_with('\n') { "" } else { "\n" };
    Outcome::text(format!(
        "{content}{gap}[lines {offset}–{last}; the file goes on: read_file with offset {}]\n",
        last.saturating_add(1)
    ))
}

/// As `cat -n` has it.
fn numbered(content: &str, first: u64) -> String {
    let mut text = String::with_capacity(content.len() * 2);
    for (line, number) in content.split_inclusive('\n').zip(first..) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{number:>6}\t{line}");
    }
    text
}

fn changed(path: &crate::action::WorkspacePath, edited: &Edited) -> String {
    let before = edited.before.as_ref().and_then(|before| before.content.as_deref()).unwrap_or_default();
    let (more, less) = edit::lines(&String::from_utf8_lossy(before), &edited.content);
    format!("Edited {path} ({}, +{more} −{less} lines).", question::counted(edited.places, "replacement"))
}

fn listing(entries: &[ListedEntry], more: bool) -> String {
    if entries.is_empty() {
        return "(empty directory)".into();
    }
    let lines = entries.iter().map(|entry| {
        let path = crate::escape::line(&entry.path.to_string_lossy());
        if entry.directory { format!("{path}/") } else { path }
    });
    let cut = format!("[the first {} entries; there are more: list a directory of it]", entries.len());
    lines.chain(more.then_some(cut)).collect::<Vec<_>>().join("\n")
}

/// Output of a command that still runs, on its way to a person. What of it is kept, and how it ended, is the outcome's to say.
#[derive(Debug, Default)]
pub(crate) struct LiveText {
    /// The first bytes of a character whose others have not come yet.
    rest: Vec<u8>,
}

impl LiveText {
    /// The next piece as valid UTF-8; `skipped` bytes before it are said to be missing.
    pub(crate) fn take(&mut self, bytes: &[u8], skipped: u64) -> String {
        let mut text = String::new();
        if skipped > 0 {
            text = String::from_utf8_lossy(&std::mem::take(&mut self.rest)).into_owned();
            // Writing to a String cannot fail.
            let _ = write!(text, "\n[… {skipped} bytes not shown …]\n");
        }
        self.rest.extend_from_slice(bytes);
        let complete = match std::str::from_utf8(&self.rest) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            // A byte that is no UTF-8 is replaced; what is incomplete at the end then is too.
            _ => self.rest.len(),
        };
        let complete = self.rest.drain(..complete).collect::<Vec<_>>();
        text.push_str(&String::from_utf8_lossy(&complete));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_text_waits_for_the_rest_of_a_character() {
        let mut live = LiveText::default();
        let [first, last] = ["a€".as_bytes().split_at(2).0, "a€".as_bytes().split_at(2).1];
        assert_eq!((live.take(first, 0), live.take(last, 0)), ("a".to_owned(), "€".to_owned()));
        assert_eq!(live.take(first, 0), "a");
        assert_eq!(live.take(b"b\xff", 7), "\u{fffd}\n[… 7 bytes not shown …]\nb\u{fffd}");
    }
}

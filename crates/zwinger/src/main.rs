//! `zwinger`: files and a shell for language models, between two walls. The doors; nothing is decided here.

mod agent;
mod args;
mod ask;
mod audit;
mod custody;
mod demo;
mod doctor;
mod model;
mod open_session;
mod report;
mod run;
mod session;
mod start;
mod terminal;
mod tool;

use std::io::Write;
use std::process::ExitCode;

use args::Command;

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    // Before anything else: this process may be a keeper or an executor.
    zwinger_core::child_main();
    match args::parse() {
        Some(Command::Run(run)) => run::run(&run),
        Some(Command::Tool(tool)) => tool::run(&tool),
        Some(Command::Doctor(doctor)) => doctor::run(&doctor),
        Some(Command::Ask(ask)) => ask::run(&ask),
        Some(Command::Session(session)) => session::run(&session),
        Some(Command::Audit(audit)) => audit::run(&audit),
        Some(Command::Demo(demo)) => demo::run(&demo),
        None => start::run().unwrap_or_else(|| {
            tell(args::help().trim_end());
            USAGE.into()
        }),
    }
}

/// The command line makes no sense.
const USAGE: u8 = 2;
/// zwinger itself failed, or the walls could not be built.
const BROKEN: u8 = 125;

/// Says on standard error what went wrong. Paths and texts of others stand in errors, so that is escaped.
fn complain(error: &dyn std::fmt::Display) {
    tell(&format!("zwinger: {}", zwinger_core::escape::block(&error.to_string())));
}

/// Says which signal ended us, and gives the status that a shell shows for it.
fn end_of(signal: i32) -> u8 {
    let name = if signal == rustix::process::Signal::HUP.as_raw() { "SIGHUP" } else { "SIGTERM" };
    complain(&format_args!("stopped by {name}"));
    u8::try_from(128 + signal).unwrap_or(BROKEN)
}

/// A line on standard error. One that is closed or full is no reason to fail.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The result, on standard output. A reader that has gone away has what it wanted.
fn answer(text: &str) -> std::io::Result<()> {
    to_stdout(|stdout| writeln!(stdout, "{text}"))
}

/// As [`answer`], as JSON and never as one text in memory: spelled out, a byte can take six.
fn answer_json(value: &impl serde::Serialize) -> std::io::Result<()> {
    to_stdout(|stdout| {
        serde_json::to_writer_pretty(Visible(stdout), value)?;
        writeln!(stdout)
    })
}

/// Spells out in JSON what a terminal would obey, or not show: JSON itself does so with a part of that only.
struct Visible<'a>(&'a mut dyn Write);

impl Write for Visible<'_> {
    fn write(&mut self, piece: &[u8]) -> std::io::Result<usize> {
        // Pieces are whole: serde_json cuts none inside a character.
        match std::str::from_utf8(piece) {
            Ok(text) if !text.is_ascii() || text.contains('\u{7f}') => {
                self.0.write_all(zwinger_core::escape::json(text).as_bytes())?;
            }
            _ => self.0.write_all(piece)?,
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

fn to_stdout(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> std::io::Result<()> {
    let mut stdout = std::io::BufWriter::new(std::io::stdout());
    match write(&mut stdout).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Opens a file that the person named on the command line, emptied. Not through a link: it may be one that a command left.
fn create_file(path: &std::path::Path) -> anyhow::Result<std::fs::File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o666));
    Ok(file.map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?.into())
}

//! `zwinger run`: one command inside the walls, with this terminal's streams.

use std::process::ExitCode;

use zwinger_core::escape;
use zwinger_core::output::{Outcome, Walls};
use zwinger_core::sandbox::supervisor::{End, Finished};
use zwinger_core::sandbox::{Enforcement, Level, Output, run_once};

use crate::args::Run;
use crate::{BROKEN, answer_json, complain, create_file};

pub(crate) fn run(arguments: &Run) -> ExitCode {
    match attempt(arguments) {
        Ok(status) => status.into(),
        Err(error) => {
            complain(&error);
            BROKEN.into()
        }
    }
}

fn attempt(arguments: &Run) -> anyhow::Result<u8> {
    let mut confinement = arguments.walls.confinement(None)?;
    if let Some(limit) = arguments.output_limit {
        confinement.limits.output = usize::try_from(limit)?;
    }
    // Before anything runs, so that a report that cannot be written does not come after the fact.
    let report = arguments.report.as_deref().map(create_file).transpose()?;
    let backend = arguments.walls.backend;
    let output = if arguments.json { Output::Capture } else { Output::Inherit };
    let (finished, enforcement) = run_once(backend, &confinement, arguments.command.clone(), output)?;
    let limit = format!("{} s (--timeout)", confinement.limits.time.unwrap_or_default().as_secs());
    if !arguments.json {
        say_what_is_left_open(&enforcement);
    }
    let status = tell(arguments, &finished, &limit);
    let outcome = Outcome::of_command(finished, &limit, Walls { backend, enforcement: &enforcement });
    if arguments.json {
        answer_json(&outcome)?;
    }
    if let Some(mut report) = report {
        use std::io::Write;
        let mut fields = serde_json::to_value(&outcome)?;
        if let Some(fields) = fields.as_object_mut() {
            fields.retain(|name, _| !["output", "stdout", "stderr"].contains(&name.as_str()));
        }
        writeln!(report, "{}", serde_json::to_string_pretty(&fields)?)?;
    }
    Ok(status)
}

/// A reason beside `full` is what walls of another form leave open, and nobody asked for that form.
fn say_what_is_left_open(enforcement: &Enforcement) {
    let held = [("files", &enforcement.files), ("network", &enforcement.network)];
    for (name, held) in held.into_iter().filter(|(_, held)| held.level == Level::Full && !held.reason.is_empty()) {
        complain(&format_args!("{name}: {}", held.reason));
    }
}

/// Says on standard error what the exit status alone does not, and gives that.
fn tell(arguments: &Run, finished: &Finished, limit: &str) -> u8 {
    if let End::NotStarted(errno) = finished.end {
        let program = arguments.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
        let error = std::io::Error::from_raw_os_error(errno);
        let remedy = if finished.end.exit_code() == 127 { " inside the walls" } else { "" };
        complain(&format_args!("{}: {error}{remedy}", escape::line(&program)));
    }
    if finished.leftovers > 0 {
        complain(&format_args!("{} processes that the command left running were stopped", finished.leftovers));
    }
    if finished.timed_out {
        complain(&format_args!("stopped after {limit}"));
        return 124;
    }
    u8::try_from(finished.end.exit_code()).unwrap_or(BROKEN)
}

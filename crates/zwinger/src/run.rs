//! `zwinger run`: one command inside the walls, with this terminal's streams.

use std::process::ExitCode;

use serde::Serialize;
use serde_json::Value;
use zwinger_core::custody::Custody;
use zwinger_core::escape;
use zwinger_core::output::{Outcome, Walls};
use zwinger_core::sandbox::supervisor::{End, Finished};
use zwinger_core::sandbox::{Enforcement, Launch, Level, Output};
use zwinger_core::session::{State, StateError};

use crate::args::{Mode, Run};
use crate::{BROKEN, answer_json, complain, create_file, custody};

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
    let backend = arguments.backend()?;
    if arguments.mode == Mode::FullAccess {
        complain(&"mode full-access: no walls, the command can do all that you can");
    }
    // Before all else, for it goes on while we go on.
    let launch = Launch::begin(backend, arguments.walls.network())?;
    let mut confinement = arguments.walls.confinement(None)?;
    if arguments.mode == Mode::Plan {
        confinement.set_read_only();
    }
    if let Some(limit) = arguments.output_limit {
        confinement.limits.output = usize::try_from(limit)?;
    }
    // Before anything runs, so that a report that cannot be written does not come after the fact.
    let report = arguments.report.as_deref().map(create_file).transpose()?;
    let output = if arguments.json { Output::Capture } else { Output::Inherit };
    let state = State::default_path().and_then(|path| State::open(&path, &confinement));
    // A command that writes there would be its own judge.
    if let Err(error @ StateError::Exposed(_)) = state {
        return Err(error.into());
    }
    let (custody, around) = Custody::open(&confinement, state.as_ref());
    custody::show_earlier(confinement.workspace(), custody.earlier());
    let ran = launch.run(&confinement, &around, arguments.command.clone(), output);
    // In any case: what ran may have left something, also if zwinger failed.
    let settled = custody.close();
    custody::show(confinement.workspace(), &settled);
    let (finished, enforcement) = ran?;
    let limit = format!("{} s (--timeout)", confinement.limits.time.unwrap_or_default().as_secs());
    if !arguments.json {
        say_what_is_left_open(&enforcement);
    }
    let status = tell(arguments, &finished, &limit);
    let outcome = Outcome::of_command(finished, &limit, Walls { backend, enforcement: &enforcement, terms: None });
    let told = Told { outcome: &outcome, quarantined: custody::fields(&settled) };
    if arguments.json {
        answer_json(&told)?;
    }
    if let Some(report) = report {
        write_report(report, &told)?;
    }
    Ok(status)
}

/// What `--json` prints.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    quarantined: Value,
}

fn write_report(mut file: std::fs::File, told: &Told<'_>) -> anyhow::Result<()> {
    use std::io::Write;
    let mut fields = serde_json::to_value(told)?;
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|name, _| !["output", "stdout", "stderr"].contains(&name.as_str()));
    }
    Ok(writeln!(file, "{}", serde_json::to_string_pretty(&fields)?)?)
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
    } else if let Some(hit) = finished.limit {
        complain(&format_args!("stopped: {hit}"));
    } else if let Some(hit) = finished.reached {
        complain(&format_args!("reached {hit}"));
    }
    u8::try_from(finished.exit_code()).unwrap_or(BROKEN)
}

//! `zwinger run`: one command inside the walls, with this terminal's streams.

use std::io::IsTerminal;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::{Value, json};
use zwinger_core::audit::{Audit, Subject};
use zwinger_core::custody::Custody;
use zwinger_core::escape;
use zwinger_core::output::{Outcome, Walls};
use zwinger_core::sandbox::supervisor::{End, Finished};
use zwinger_core::sandbox::{
    Backend, Confinement, EndSignals, Enforcement, Launch, Level, Network, Output, Surroundings,
};
use zwinger_core::session::{SessionId, State};

use crate::args::{Mode, Run};
use crate::report::Report;
use crate::tool::FULL_ACCESS;
use crate::{BROKEN, answer_json, complain, custody, end_of};

/// Hidden paths that are named on one line.
const MOST_NAMES: usize = 5;

pub(crate) fn run(arguments: &Run) -> ExitCode {
    match attempt(arguments) {
        Ok(status) => status.into(),
        Err(error) => {
            complain(&error);
            if arguments.json {
                // The result comes last, so this is the only one. One that cannot be printed is told already.
                let _ = answer_json(&json!({"success": false, "error": format!("Error: {error}")}));
            }
            BROKEN.into()
        }
    }
}

fn attempt(arguments: &Run) -> anyhow::Result<u8> {
    let backend = arguments.walls.backend_of(arguments.mode)?;
    if arguments.mode == Mode::FullAccess {
        complain(&FULL_ACCESS);
    }
    // From before anything of it runs until what it left is settled.
    let signals = EndSignals::heed()?;
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
    let report = arguments.report.as_deref().map(|path| Report::prepare(path, &confinement)).transpose()?;
    let output = if arguments.json { Output::Capture } else { Output::Inherit };
    let state = State::open(&State::default_path()?, &confinement)?;
    let subject = Subject {
        session: SessionId::random(),
        door: "run".into(),
        mode: arguments.mode.into(),
        workspace: confinement.workspace().to_owned(),
        backend,
    };
    let (custody, around) = Custody::open(&confinement, Ok(&state));
    custody::show_earlier(confinement.workspace(), custody.earlier());
    let ticket = Audit::begin_run(&state, subject, &arguments.command)?;
    let ran = launch.run(&confinement, &around, &arguments.command, output, custody.lock(), Some(&signals));
    // In any case: what ran may have left something, also if zwinger failed.
    let settled = custody.close();
    custody::show(confinement.workspace(), &settled);
    let (finished, enforcement) = match ran {
        Ok(ran) => ran,
        Err(error) => {
            ticket.fail(&error)?;
            return Err(error.into());
        }
    };
    let limit = format!("{} s (--timeout)", confinement.limits.time.unwrap_or_default().as_secs());
    if !arguments.json {
        say_what_is_left_open(&enforcement);
    }
    let status = match signals.received() {
        None => tell(arguments, &finished, &limit),
        Some(signal) => end_of(signal),
    };
    if backend != Backend::None && std::io::stderr().is_terminal() {
        say_what_the_walls_are(&confinement, &around, status);
    }
    let not_started = not_started(arguments, &finished);
    let mut outcome = Outcome::of_command(finished, &limit, Walls { backend, enforcement: &enforcement, terms: None });
    outcome.error = outcome.error.or(not_started.map(|reason| format!("Error: {reason}")));
    let finished = ticket.finish_run(&outcome, &enforcement);
    finished.map_err(|error| anyhow::anyhow!("the command ended with {status}, but {error}"))?;
    let told = Told { outcome: &outcome, quarantined: custody::fields(&settled) };
    if arguments.json {
        answer_json(&told)?;
    }
    if let Some(report) = report {
        report.write(&short(&told)?)?;
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

/// Without the output.
fn short(told: &Told<'_>) -> anyhow::Result<String> {
    let mut fields = serde_json::to_value(told)?;
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|name, _| !["output", "stdout", "stderr"].contains(&name.as_str()));
    }
    Ok(serde_json::to_string_pretty(&fields)? + "\n")
}

/// A reason beside `full` is what walls of another form leave open, and nobody asked for that form.
fn say_what_is_left_open(enforcement: &Enforcement) {
    let held = [("files", &enforcement.files), ("network", &enforcement.network)];
    for (name, held) in held.into_iter().filter(|(_, held)| held.level == Level::Full && !held.reason.is_empty()) {
        complain(&format_args!("{name}: {}", held.reason));
    }
}

/// What a person at the terminal may take for a fault of the command, made from the walls and not from its output: what is hidden,
/// and after a failure what else is closed.
fn say_what_the_walls_are(confinement: &Confinement, around: &Surroundings, status: u8) {
    let workspace = confinement.workspace();
    let hidden: Vec<_> = confinement.hidden(&around.scan);
    let mut words = Vec::new();
    if status != 0 {
        let own = if confinement.is_read_only() { None } else { Some(".".into()) };
        let granted = confinement.writable().skip(1).map(|path| escape::line(&path.to_string_lossy()));
        let writable: Vec<_> = own.into_iter().chain(granted).chain(["$TMPDIR".into()]).collect();
        words.push(format!("writable here: {}", writable.join(", ")));
        words.extend((confinement.network() == Network::Off).then(|| "network off".into()));
    }
    if !hidden.is_empty() {
        let names = hidden.iter().take(MOST_NAMES).map(|path| {
            let path = path.strip_prefix(workspace).unwrap_or(path);
            escape::line(&path.to_string_lossy())
        });
        let more = hidden.len().saturating_sub(MOST_NAMES);
        let more = (more > 0).then(|| format!("{more} more"));
        words.push(format!("hidden: {} (--show)", names.chain(more).collect::<Vec<_>>().join(", ")));
    }
    if !words.is_empty() {
        crate::tell(&format!("walls: {}", words.join(" · ")));
    }
}

/// Why there was no program to run.
fn not_started(arguments: &Run, finished: &Finished) -> Option<String> {
    let End::NotStarted(errno) = finished.end else { return None };
    let program = arguments.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    let error = std::io::Error::from_raw_os_error(errno);
    let remedy = if finished.end.exit_code() == 127 { " inside the walls" } else { "" };
    Some(format!("{}: {error}{remedy}", escape::line(&program)))
}

/// Says on standard error what the exit status alone does not, and gives that.
fn tell(arguments: &Run, finished: &Finished, limit: &str) -> u8 {
    if let Some(reason) = not_started(arguments, finished) {
        complain(&reason);
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

//! `zwinger run`: one command inside the walls, with this terminal's streams.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::{Value, json};
use zwinger_core::audit::{Audit, Subject};
use zwinger_core::custody::Custody;
use zwinger_core::escape;
use zwinger_core::output::{Outcome, Walls};
use zwinger_core::sandbox::supervisor::{End, Finished};
use zwinger_core::sandbox::{
    Backend, Confinement, EndSignals, Enforcement, HostPath, Launch, Level, Network, Output, Surroundings,
};
use zwinger_core::session::{SessionId, State};

use crate::args::{Mode, Run};
use crate::doctor::{below, has_namespaces};
use crate::report::Report;
use crate::tool::FULL_ACCESS;
use crate::{BROKEN, answer_json, complain, custody, end_of};

/// Hidden paths that are named on one line.
const MOST_HIDDEN: usize = 5;
/// Read-only ones.
const MOST_READ_ONLY: usize = 3;

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
    } else if backend == Backend::None {
        complain(&"backend none: no walls, the command can do all that you can");
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
    let hidden = match backend {
        Backend::None => Vec::new(),
        Backend::Landlock => confinement.hidden(&around.scan),
    };
    // A program that reads neither terminal nor JSON finds an empty file as puzzling as a person does.
    let told_here = std::io::stderr().is_terminal() || (status != 0 && !arguments.json);
    let is_explained = signals.received().is_some() || is_explained(&finished, status);
    if backend != Backend::None && told_here && !is_explained {
        say_what_the_walls_are(&confinement, &hidden, read_only(&around, &enforcement), status);
    }
    let not_started = not_started(arguments, &finished);
    let mut outcome = Outcome::of_command(finished, &limit, Walls { backend, enforcement: &enforcement, terms: None });
    outcome.error = outcome.error.or(not_started.map(|reason| format!("Error: {reason}")));
    let finished = ticket.finish_run(&outcome, &enforcement);
    finished.map_err(|error| anyhow::anyhow!("the command ended with {status}, but {error}"))?;
    let hidden = hidden.iter().map(|path| below(path, confinement.workspace())).collect();
    let told = Told { outcome: &outcome, hidden, quarantined: custody::fields(&settled) };
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
    /// Paths that are not there inside, or empty; those of the workspace relative to it.
    hidden: Vec<String>,
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

/// Whether the walls have nothing to do with how it ended: limits name themselves, a person pressed Ctrl-C, or there is no program.
fn is_explained(finished: &Finished, status: u8) -> bool {
    finished.timed_out || finished.limit.is_some() || matches!(status, 126 | 127 | 130)
}

/// What of the workspace is kept as it is by a mount, so that writing it fails.
fn read_only<'a>(around: &'a Surroundings, enforcement: &Enforcement) -> &'a [HostPath] {
    if has_namespaces(enforcement) { &around.scan.protected } else { &[] }
}

/// What may be taken for a fault of the command, made from the walls and not from its output: what is hidden, and after a failure
/// what else is closed, each with the option that changes it.
fn say_what_the_walls_are(confinement: &Confinement, hidden: &[HostPath], read_only: &[HostPath], status: u8) {
    let workspace = confinement.workspace();
    let mut words = Vec::new();
    if status != 0 {
        let own = if confinement.is_read_only() { None } else { Some(".".into()) };
        let granted = confinement.writable().skip(1).map(|path| escape::line(&path.to_string_lossy()));
        let writable: Vec<_> = own.into_iter().chain(granted).chain(["$TMPDIR".into()]).collect();
        let remedy = if confinement.is_read_only() { "--mode sandbox" } else { "--write DIR" };
        words.push(format!("writable here: {} ({remedy})", writable.join(", ")));
        words.extend((confinement.network() == Network::Off).then(|| "network off (--net on)".into()));
        if !confinement.is_read_only() && !read_only.is_empty() {
            words.push(format!("read-only: {}", names(read_only, workspace, MOST_READ_ONLY)));
        }
    }
    if !hidden.is_empty() {
        words.push(format!("hidden: {} (--show)", names(hidden, workspace, MOST_HIDDEN)));
    }
    if !words.is_empty() {
        crate::tell(&format!("walls: {}", words.join(" · ")));
    }
}

/// The first few of them on a line.
fn names(paths: &[HostPath], workspace: &Path, most: usize) -> String {
    let more = paths.len().saturating_sub(most);
    let more = (more > 0).then(|| format!("{more} more"));
    let named = paths.iter().take(most).map(|path| escape::line(&below(path, workspace)));
    named.chain(more).collect::<Vec<_>>().join(", ")
}

/// Why there was no program to run.
fn not_started(arguments: &Run, finished: &Finished) -> Option<String> {
    let End::NotStarted(errno) = finished.end else { return None };
    let program = arguments.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    let error = std::io::Error::from_raw_os_error(errno);
    let remedy = match (finished.end.exit_code(), arguments.command.as_slice()) {
        (127, [line]) if line.to_string_lossy().contains(' ') => {
            " inside the walls; it is one word: leave its quotes out, or put sh -c before it"
        }
        (127, _) => " inside the walls",
        _ => "",
    };
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

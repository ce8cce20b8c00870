//! `zwinger demo`: a scripted model at work between the real walls, in a workspace of its own. No model, no network.

mod place;
mod script;

use std::cell::{Cell, RefCell};
use std::process::ExitCode;

use serde_json::Value;
use zwinger_core::{Call, Runtime, escape};

use crate::agent::{Agent, Ending, Progress, Protocol, Task, ToolReply, drive, spaced};
use crate::args::Demo;
use crate::{BROKEN, answer, ask, complain, custody, tell};
use place::Place;
use script::{Attempt, Script};

/// A wall did not hold, or the script did not come to its end.
const NOT_HELD: u8 = 1;
/// In the result of a command whose program is not there.
const NOT_FOUND: &str = "[exit 127 ";
/// Lines of a result that are shown.
const SHOWN: usize = 8;

pub(crate) fn run(arguments: &Demo) -> ExitCode {
    let opened = Place::create().map_err(anyhow::Error::from).and_then(|place| {
        let runtime = place.open(arguments.approve)?;
        Ok((place, runtime))
    });
    let (place, runtime) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            complain(&error);
            return BROKEN.into();
        }
    };
    tell(
        "A model that follows a script works in a new workspace. The loop, the walls, the questions and the audit are real.",
    );
    let (ending, held) = play(&runtime);
    custody::close(runtime);
    tell("\nThe audit, written before and after each call:");
    place.audit().iter().for_each(|line| tell(&format!("  {line}")));
    tell("\nThe workspace and this audit are gone now. Next:");
    tell("  zwinger run -- COMMAND        any program inside the walls");
    tell("  zwinger ask \"TASK\"            a model with these tools");
    match (ending, held) {
        (Ending::Done(text), true) => match answer(&escape::block(&text)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                complain(&error);
                BROKEN.into()
            }
        },
        _ => {
            complain(&"the demo did not come to its end as it should; zwinger doctor says what holds here");
            NOT_HELD.into()
        }
    }
}

/// Runs the script, and says whether every attempt to get out was refused.
fn play(runtime: &Runtime) -> (Ending, bool) {
    let mut model = Script::new();
    let attempts = RefCell::new(model.attempts());
    let held = Cell::new(true);
    let backend = runtime.backend();
    let mut tools = |name: &str, arguments: &Value| {
        let outcome = runtime.call(&Call::new(name, arguments.clone()));
        ToolReply { text: outcome.for_model(), success: outcome.success }
    };
    let mut show = |progress: Progress<'_>| match progress {
        Progress::Said(text) => tell(&format!("\n{text}")),
        Progress::Calling { name, arguments } => {
            tell(&format!("→ tool call: {name}({})  [{backend}]", escape::line(&spaced(arguments))));
        }
        Progress::Called { reply, .. } => {
            show_result(&reply.text);
            let Some(Some(Attempt { wall, what, sign })) = attempts.borrow_mut().pop_front() else { return };
            let was_made = reply.text.contains(sign) && !reply.text.contains(NOT_FOUND);
            match (reply.success, was_made) {
                (false, true) => tell(&format!("  refused by the {wall} wall: {what}")),
                (false, false) => tell("  (not tried, then)"),
                (true, _) => {
                    held.set(false);
                    tell(&format!("  NOT HELD by the {wall} wall: {what}"));
                }
            }
        }
        Progress::Cut | Progress::Asking { .. } => {}
    };
    let task = Task {
        text: "Correct the first price.".into(),
        workspace: String::new(),
        tools: ask::tools(),
        protocol: Protocol::Native,
        max_steps: crate::agent::DEFAULT_MAX_STEPS,
    };
    let ending = drive(Agent::new(task), &mut model, &mut tools, &mut show);
    (ending, held.get())
}

fn show_result(text: &str) {
    for line in text.lines().take(SHOWN) {
        tell(&format!("  {}", escape::line(line)));
    }
    if let Some(more) = text.lines().count().checked_sub(SHOWN).filter(|more| *more > 0) {
        tell(&format!("  … {more} lines more"));
    }
}

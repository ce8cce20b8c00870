//! `zwinger tool`: one call, its result as JSON.

use std::io::Read;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::Value;
use zwinger_core::output::{Kind, Outcome};
use zwinger_core::policy::Mode;
use zwinger_core::sandbox::EndSignals;
use zwinger_core::session::{Opening, State, Which};
use zwinger_core::{Call, OpenError, Options, Runtime};

use crate::args::{SessionArguments, Tool, Walls};
use crate::open_session::OpenSession;
use crate::terminal;
use crate::{BROKEN, answer_json, complain, custody};

/// The way in that makes one call.
const DOOR: &str = "tool";
/// Bytes of JSON that are read from standard input.
const MAX_INPUT: u64 = 16 << 20;

pub(crate) fn run(arguments: &Tool) -> ExitCode {
    let text = match text(&arguments.json) {
        Ok(text) => text,
        Err(error) => {
            complain(&error);
            return 2.into();
        }
    };
    let which = arguments.resume.clone().map_or(Which::Ephemeral, Which::Stored);
    let session = match open_session(&arguments.walls, &arguments.session, which) {
        Ok(session) => session,
        Err(error) => {
            complain(&error);
            return BROKEN.into();
        }
    };
    let outcome = match parse(&text) {
        Ok(value) => session.call(&Call::new(&arguments.name, value)),
        Err(error) => session.refuse_text(&arguments.name, &text, &error),
    };
    let settled = session.close();
    let quarantined = (!settled.quarantined.is_empty()).then(|| custody::fields(&settled));
    if let Err(error) = answer_json(&Told { outcome: &outcome, quarantined }) {
        complain(&error);
        return BROKEN.into();
    }
    match outcome.kind {
        Kind::Succeeded => 0,
        Kind::Failed | Kind::PathRefused => 1,
        Kind::Invalid => 2,
        Kind::Denied => 3,
        Kind::Broken => BROKEN,
    }
    .into()
}

/// What is printed.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    /// What the call did and the end of the session undid.
    #[serde(skip_serializing_if = "Option::is_none")]
    quarantined: Option<Value>,
}

fn text(argument: &str) -> anyhow::Result<String> {
    if argument != "-" {
        return Ok(argument.to_owned());
    }
    let mut text = String::new();
    std::io::stdin().take(MAX_INPUT + 1).read_to_string(&mut text)?;
    anyhow::ensure!(text.len() as u64 <= MAX_INPUT, "more than {MAX_INPUT} bytes on standard input");
    Ok(text)
}

fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| {
        format!("the arguments are no JSON ({error}); give an object such as {{\"path\": \"README.md\"}}")
    })
}

fn open_session(walls: &Walls, session: &SessionArguments, which: Which) -> anyhow::Result<OpenSession> {
    let signals = EndSignals::heed()?;
    Ok(OpenSession::new(open(walls, session, DOOR, which)?, signals)?)
}

/// Opens the session that the arguments ask for.
pub(crate) fn open(walls: &Walls, session: &SessionArguments, door: &str, which: Which) -> anyhow::Result<Runtime> {
    let (confinement, backend) = walls.session(session)?;
    if session.mode() == Some(Mode::FullAccess) {
        complain(&FULL_ACCESS);
    }
    let options = Options {
        confinement,
        backend,
        approver: terminal::approver(session.approve),
        state: State::default_path().map_err(OpenError::from)?,
        program: "/proc/self/exe".into(),
    };
    let runtime =
        Runtime::open_as(options, &Opening { door: door.into(), mode: session.mode(), which, one_call: door == DOOR })?;
    custody::show_earlier(runtime.workspace(), runtime.earlier());
    say_which_grants_hold(&runtime);
    Ok(runtime)
}

/// The person granted them, and may wonder at being asked again.
fn say_which_grants_hold(runtime: &Runtime) {
    let others = runtime.grants_under_other_terms();
    if others > 0 {
        complain(&format_args!(
            "{others} of the session's grants do not hold now, for they were given under other terms; \"zwinger session show {}\" has them",
            runtime.session()
        ));
    }
}

/// Said whenever it is so.
pub(crate) const FULL_ACCESS: &str = "mode full-access: no walls, commands can do all that you can";

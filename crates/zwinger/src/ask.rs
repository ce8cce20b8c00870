//! `zwinger ask`: a task for a model that works with the tools.

use std::io::Write;
use std::process::ExitCode;

use serde_json::Value;
use zwinger_core::sandbox::EndSignals;
use zwinger_core::session::Which;
use zwinger_core::{Call, escape, tools};

use crate::agent::{Agent, Ending, Example, Progress, Protocol, Task, ToolReply, ToolSpec, drive, spaced};
use crate::args::{Ask, ToolCalls};
use crate::model::{Client, Endpoint, ModelError, Probed, Secret, first_model, probe};
use crate::open_session::OpenSession;
use crate::{BROKEN, answer, complain, create_file, tell, tool};

/// The task was not done.
const NOT_DONE: u8 = 1;
const STEP_LIMIT: u8 = 4;
const NO_MODEL: u8 = 5;

pub(crate) fn run(arguments: &Ask) -> ExitCode {
    // A workspace that is none is no matter of the model.
    if let Err(error) = arguments.walls.session(&arguments.session) {
        complain(&error);
        return BROKEN.into();
    }
    let endpoint = match endpoint(arguments) {
        Ok(endpoint) => endpoint,
        Err(error) => {
            complain(&error);
            return NO_MODEL.into();
        }
    };
    // Before any thread is started.
    let opened =
        EndSignals::heed().map_err(anyhow::Error::from).and_then(|signals| Ok((signals, transcript(arguments)?)));
    let opened = opened.and_then(|(signals, transcript)| {
        Ok((
            signals,
            Client::new(endpoint, transcript),
            tool::open(&arguments.walls, &arguments.session, "ask", Which::New)?,
        ))
    });
    let (signals, mut client, runtime) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            complain(&error);
            return BROKEN.into();
        }
    };
    let model = client.endpoint();
    tell(&format!("model: {} {}", escape::line(model.base_url()), escape::line(model.model())));
    tell(&format!("session: {}", runtime.session()));
    let backend = runtime.backend();
    let session = match OpenSession::new(runtime, signals) {
        Ok(session) => session,
        Err(error) => {
            complain(&error);
            return BROKEN.into();
        }
    };
    let mut call = |name: &str, arguments: &Value| call(&session, name, arguments);
    let mut show = |progress: Progress<'_>| match progress {
        Progress::Calling { name, arguments } => {
            let arguments = spaced(arguments);
            tell(&format!("→ tool call: {}({})  [{backend}]", shown(name), shown(&arguments)));
        }
        Progress::Called { reply, .. } if !reply.success => tell(&format!("  {}", shown(last_line(&reply.text)))),
        Progress::Said(text) => tell(&escape::block(text)),
        Progress::Cut => tell("(the model's answer was cut at its limit of tokens)"),
        Progress::Asking { .. } | Progress::Called { .. } => {}
    };
    let ending = drive(Agent::new(task(arguments)), &mut client, &mut call, &mut show);
    session.close();
    match ending {
        Ending::Done(text) => match answer(&escape::block(&text)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                complain(&error);
                BROKEN.into()
            }
        },
        Ending::NotDone(reason) => {
            complain(&reason);
            NOT_DONE.into()
        }
        Ending::StepLimit(steps) => {
            complain(&format_args!("stopped after {steps} steps (limit --max-steps)"));
            STEP_LIMIT.into()
        }
        Ending::ModelFailed(error) => {
            complain(&error);
            NO_MODEL.into()
        }
    }
}

fn call(session: &OpenSession, name: &str, arguments: &Value) -> ToolReply {
    let outcome = session.call(&Call::new(name, arguments.clone()));
    ToolReply { text: outcome.for_model(), success: outcome.success }
}

/// Characters of a call that a person is shown; the audit has all of it.
const SHOWN: usize = 2000;

fn shown(text: &str) -> String {
    let mut shown = escape::line(&text.chars().take(SHOWN).collect::<String>());
    if let Some(more) = text.chars().count().checked_sub(SHOWN).filter(|more| *more > 0) {
        shown.push_str(&format!("… ({more} characters more)"));
    }
    shown
}

fn last_line(text: &str) -> &str {
    text.lines().next_back().unwrap_or_default()
}

/// The order of the worked examples. It decides much with the smallest models, and this one was measured.
const EXAMPLES: [&str; 6] = ["edit_file", "run_command", "list_directory", "read_file", "get_time", "write_file"];

/// The tools, as a model is told of them.
pub(crate) fn tools() -> Vec<ToolSpec> {
    tools::core().map(spec).collect()
}

fn task(arguments: &Ask) -> Task {
    let mut tools = tools();
    if arguments.tool_calls == ToolCalls::Json {
        tools.sort_by_key(|tool| EXAMPLES.iter().position(|name| tool.name == *name));
    }
    Task {
        text: arguments.task.clone(),
        workspace: String::new(),
        tools,
        protocol: match arguments.tool_calls {
            ToolCalls::Native => Protocol::Native,
            ToolCalls::Json => Protocol::Json,
        },
        max_steps: arguments.max_steps,
    }
}

fn spec(tool: &tools::Tool) -> ToolSpec {
    let example = &tool.example;
    ToolSpec {
        name: tool.name.into(),
        description: tool.description.into(),
        parameters: tool.schema(),
        example: Example {
            task: example.task.into(),
            // A test holds that every example is a call of its tool.
            arguments: serde_json::from_str(example.arguments).unwrap_or_default(),
            result: example.result.into(),
            answer: example.answer.into(),
        },
    }
}

/// The named endpoint, or the first model on this machine.
fn endpoint(arguments: &Ask) -> anyhow::Result<Endpoint> {
    let key = std::env::var("ZWINGER_API_KEY").ok().as_deref().and_then(Secret::new);
    if let Some(url) = &arguments.base_url {
        let model = match &arguments.model {
            Some(model) => model.clone(),
            None => first_model(url, key.as_ref())?,
        };
        return Ok(Endpoint::new(url, &model, key)?);
    }
    let probed = probe();
    let Some(found) = &probed.found else { anyhow::bail!(no_model_page(&probed)) };
    match &arguments.model {
        Some(model) => Ok(Endpoint::new(found.base_url(), model, None)?),
        None => Ok(found.clone()),
    }
}

fn no_model_page(probed: &Probed) -> String {
    let mut page = "no model answers\n  looked at   ".to_owned();
    for (index, looked) in probed.looked.iter().enumerate() {
        let gap = if index == 0 { "127.0.0.1" } else { "  " };
        page.push_str(&format!("{gap}:{} ({})", looked.candidate.port, looked.candidate.servers));
    }
    for looked in &probed.looked {
        if !matches!(looked.why, ModelError::Refused { .. }) {
            page.push_str(&format!("\n              :{} {}", looked.candidate.port, looked.why));
        }
    }
    page.push_str(
        "\n  start one   ollama serve, and in another terminal: ollama pull qwen2.5-coder:3b\
         \n  or name it  zwinger ask --base-url URL --model NAME \"TASK\"        key: $ZWINGER_API_KEY",
    );
    page
}

fn transcript(arguments: &Ask) -> anyhow::Result<Option<Box<dyn Write + Send>>> {
    let file = arguments.transcript.as_deref().map(create_file).transpose()?;
    Ok(file.map(|file| Box::new(file) as Box<dyn Write + Send>))
}

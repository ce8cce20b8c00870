//! `zwinger` alone: what works here, and what to type next.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use zwinger_core::escape;

use crate::args::Walls;
use crate::doctor::{self, Findings};
use crate::model::probe;
use crate::{BROKEN, answer, complain};

/// `None`: there is nobody to show it to.
pub(crate) fn run() -> Option<ExitCode> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let (machine, workspace, model) = match &doctor::examine(&Walls::default()) {
        Ok(findings) => (machine(findings), workspace(findings), findings.model.clone()),
        Err(error) => (
            "zwinger doctor, in a directory of a project".to_owned(),
            format!("none here: {}", escape::line(&error.to_string())),
            probe().found.map(|model| format!("{} {}", model.base_url(), escape::line(model.model()))),
        ),
    };
    let model = model.unwrap_or_else(|| "none on localhost:11434 :8080 :1234 :8000".into());
    let page = format!(
        "zwinger {}  files and a shell for language models, between two walls
  machine    {machine}
  workspace  {workspace}
  model      {model}

  zwinger demo                                  20 seconds, no model needed
  zwinger run -- npm test                       any program inside the walls
  zwinger tool read_file '{{\"path\": \"…\"}}'        one tool call, its result as JSON
  zwinger ask --base-url URL --model NAME TASK  your own model with the tools
  zwinger doctor                                what holds on this machine, and why not more",
        env!("CARGO_PKG_VERSION")
    );
    Some(match answer(&page) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            BROKEN.into()
        }
    })
}

/// As the doctor says it.
fn machine(findings: &Findings) -> String {
    let Some(held) = &findings.enforcement else { return "no walls can be built here: zwinger doctor says why".into() };
    let namespaces = if doctor::has_namespaces(held) { " + namespaces" } else { "" };
    let machine = format!("Landlock ABI {}{namespaces} + seccomp\n             {held}", findings.landlock_abi);
    match &findings.state_error {
        Some(error) => format!("{machine}\n  state      none: {}", escape::line(error)),
        None => machine,
    }
}

fn workspace(findings: &Findings) -> String {
    if let Some(error) = &findings.workspace_error {
        return format!("none here: {}", escape::line(error));
    }
    let path = Path::new(&findings.workspace);
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let below = home.and_then(|home| Some(format!("~/{}", path.strip_prefix(home).ok()?.display())));
    let name = below.unwrap_or_else(|| path.display().to_string());
    let hidden = match findings.hidden_paths.as_slice() {
        [] => "nothing hidden".to_owned(),
        hidden => format!("{} hidden ({})", hidden.len(), names(hidden)),
    };
    escape::line(&format!("{name} · {hidden}"))
}

/// The first few of them.
fn names(hidden: &[String]) -> String {
    const MOST: usize = 3;
    let more = if hidden.len() > MOST { ", …" } else { "" };
    format!("{}{more}", hidden.iter().take(MOST).cloned().collect::<Vec<_>>().join(", "))
}

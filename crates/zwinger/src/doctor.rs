//! `zwinger doctor`: what holds on this machine, and why not more.

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use zwinger_core::sandbox::{Backend, BackendError, Enforcement, Level, Session, SessionError, Surroundings};
use zwinger_core::session::State;
use zwinger_core::{escape, sandbox::Confinement};

use crate::args::Doctor;
use crate::model::probe;
use crate::{BROKEN, answer, answer_json, complain};

/// What was found; `--json` prints it as it is.
#[derive(Serialize)]
pub(crate) struct Findings {
    version: &'static str,
    /// What `--backend auto` takes; absent when nothing can be built.
    auto: Option<Backend>,
    pub(crate) enforcement: Option<Enforcement>,
    /// Why nothing can be built.
    error: Option<String>,
    pub(crate) landlock_abi: u32,
    workspace: String,
    hidden: usize,
    /// Their paths in the workspace.
    #[serde(skip)]
    pub(crate) hidden_paths: Vec<String>,
    protected: usize,
    state: Option<String>,
    /// Why there is none.
    state_error: Option<String>,
    pub(crate) model: Option<String>,
    /// What would make more hold; printed, never run.
    remedies: Vec<String>,
}

pub(crate) fn run(arguments: &Doctor) -> ExitCode {
    let confinement = match arguments.walls.confinement(None) {
        Ok(confinement) => confinement,
        Err(error) => {
            complain(&error);
            return BROKEN.into();
        }
    };
    let findings = examine(&confinement, arguments.walls.backend());
    let told = match arguments.json {
        true => answer_json(&findings),
        false => answer(page(&findings, arguments.fix).trim_end()),
    };
    if let Err(error) = told {
        complain(&error);
        return BROKEN.into();
    }
    ExitCode::from(u8::from(!findings.enforcement.as_ref().is_some_and(holds_by_default)))
}

/// The default policy: files, network and system calls in full.
fn holds_by_default(enforcement: &Enforcement) -> bool {
    [&enforcement.files, &enforcement.network, &enforcement.syscalls].iter().all(|held| held.level == Level::Full)
}

pub(crate) fn examine(confinement: &Confinement, backend: Backend) -> Findings {
    let mut around = Surroundings::of(confinement);
    let state = State::default_path().and_then(|path| Ok((State::open(&path, confinement)?, path)));
    around.state = state.as_ref().ok().map(|(state, _)| state.path().into());
    let state = state.map(|(_, path)| path);
    around.no_quarantine = state.as_ref().err().map(ToString::to_string);
    // The only honest answer is from walls that were really raised.
    let raised = Session::open("/proc/self/exe".as_ref(), backend, confinement, &around, None);
    let enforcement = raised.as_ref().ok().map(|session| session.enforcement().clone());
    let model = probe().found.map(|model| format!("{} {}", model.base_url(), escape::line(model.model())));
    Findings {
        version: env!("CARGO_PKG_VERSION"),
        auto: raised.is_ok().then_some(backend),
        remedies: remedies(raised.as_ref().err(), enforcement.as_ref(), around.landlock_abi),
        error: raised.err().map(|error| error.to_string()),
        enforcement,
        landlock_abi: around.landlock_abi,
        workspace: confinement.workspace().to_string_lossy().into_owned(),
        hidden: confinement.hidden(&around.scan).len(),
        hidden_paths: confinement
            .hidden(&around.scan)
            .iter()
            .map(|path| below(path, confinement.workspace()))
            .collect(),
        protected: around.scan.protected.len(),
        state: state.as_ref().ok().map(|path| path.to_string_lossy().into_owned()),
        state_error: state.err().map(|error| error.to_string()),
        model,
    }
}

/// A path for people, relative where it is in the workspace.
pub(crate) fn below(path: &Path, workspace: &Path) -> String {
    path.strip_prefix(workspace).unwrap_or(path).to_string_lossy().into_owned()
}

/// Whether walls were raised in namespaces of their own.
pub(crate) fn has_namespaces(enforcement: &Enforcement) -> bool {
    !enforcement.processes.reason.contains("no user namespaces")
}

fn remedies(error: Option<&SessionError>, enforcement: Option<&Enforcement>, landlock_abi: u32) -> Vec<String> {
    let mut remedies = Vec::new();
    if landlock_abi == 0 {
        remedies.push("Landlock: Linux 6.2 or newer, with landlock in the lsm= list of the kernel command line".into());
    }
    let exposed = matches!(error, Some(SessionError::Backend(BackendError::SecretsExposed { .. })));
    let reasons = enforcement.map(|held| held.processes.reason.clone()).unwrap_or_default();
    if exposed || enforcement.is_some_and(|held| !has_namespaces(held)) {
        remedies.push("user namespaces, whichever of these is set against them:".into());
        remedies.extend(
            [
                "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0",
                "sudo sysctl kernel.unprivileged_userns_clone=1",
                "sudo sysctl user.max_user_namespaces=15000",
            ]
            .map(|command| format!("  {command}")),
        );
        remedies.push("in a container: run it with --security-opt seccomp=unconfined, or as a user of its own".into());
    }
    if reasons.contains("root is exempt") {
        remedies.push(
            "processes: run zwinger as an ordinary user, or where it can make a pids cgroup below its own".into(),
        );
    }
    remedies
}

fn page(findings: &Findings, fix: bool) -> String {
    let mut page = String::new();
    let mut line = |text: String| {
        page.push_str(&text);
        page.push('\n');
    };
    match (&findings.auto, &findings.enforcement) {
        (Some(backend), Some(enforcement)) => {
            line(format!("auto takes {backend}"));
            line(format!("  {enforcement}"));
            for (name, held) in enforcement.dimensions() {
                if !held.reason.is_empty() {
                    line(format!("  {name:<10} {}", escape::line(&held.reason)));
                }
            }
        }
        _ => line(escape::block(findings.error.as_deref().unwrap_or("no walls can be built here"))),
    }
    line(match findings.landlock_abi {
        0 => "kernel     no Landlock".into(),
        abi => format!("kernel     Landlock ABI {abi}"),
    });
    line(format!(
        "workspace  {} · {} hidden, {} read-only",
        escape::line(&findings.workspace),
        findings.hidden,
        findings.protected
    ));
    line(match (&findings.state, &findings.state_error) {
        (Some(path), _) => format!("state      {}", escape::line(path)),
        (None, error) => format!("state      none: {}", escape::line(error.as_deref().unwrap_or_default())),
    });
    line(format!("model      {}", findings.model.as_deref().unwrap_or("none on localhost:11434 :8080 :1234 :8000")));
    match (findings.remedies.is_empty(), fix) {
        (true, true) => line("nothing to mend".into()),
        (false, true) => {
            line("what would help (nothing of it is run):".into());
            for remedy in &findings.remedies {
                line(format!("  {remedy}"));
            }
        }
        (false, false) => line("zwinger doctor --fix prints what would help".into()),
        (true, false) => {}
    }
    page
}

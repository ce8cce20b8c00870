//! `zwinger doctor`: what holds on this machine, and why not more.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;
use zwinger_core::sandbox::{
    Backend, BackendError, Enforcement, Level, Session, SessionError, Surroundings, WorkspaceError,
};
use zwinger_core::session::{SessionId, State, StateError};
use zwinger_core::{escape, sandbox::Confinement};

use crate::args::{Doctor, Walls, WallsError};
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
    pub(crate) workspace: String,
    /// Why it is none; what is said of the machine was found elsewhere then.
    pub(crate) workspace_error: Option<String>,
    hidden: usize,
    /// Their paths in the workspace.
    #[serde(skip)]
    pub(crate) hidden_paths: Vec<String>,
    protected: usize,
    state: Option<String>,
    /// Why there is none.
    pub(crate) state_error: Option<String>,
    pub(crate) model: Option<String>,
    /// What would make more hold; printed, never run.
    remedies: Vec<String>,
}

pub(crate) fn run(arguments: &Doctor) -> ExitCode {
    let findings = match examine(&arguments.walls) {
        Ok(findings) => findings,
        Err(error) => {
            complain(&error);
            return BROKEN.into();
        }
    };
    let told = match arguments.json {
        true => answer_json(&findings),
        false => answer(page(&findings, arguments.fix).trim_end()),
    };
    if let Err(error) = told {
        complain(&error);
        return BROKEN.into();
    }
    let runs = findings.state_error.is_none() && findings.workspace_error.is_none();
    ExitCode::from(u8::from(!(runs && findings.enforcement.as_ref().is_some_and(holds_by_default))))
}

/// The default policy: files, network and system calls in full.
fn holds_by_default(enforcement: &Enforcement) -> bool {
    [&enforcement.files, &enforcement.network, &enforcement.syscalls].iter().all(|held| held.level == Level::Full)
}

/// Also where there is no workspace: what holds on this machine is to be known all the same.
pub(crate) fn examine(walls: &Walls) -> anyhow::Result<Findings> {
    let refused = match walls.confinement(None) {
        Ok(confinement) => return Ok(examine_in(&confinement, walls.backend())),
        Err(WallsError::Workspace(_, refused)) => refused,
        Err(error) => return Err(error.into()),
    };
    let elsewhere = Elsewhere::create().map_err(|error| anyhow::anyhow!("{refused}; and elsewhere: {error}"))?;
    let found = examine_in(&walls.elsewhere(&elsewhere.0).confinement(None)?, walls.backend());
    let path = match &refused {
        WorkspaceError::Unusable(path, _) | WorkspaceError::NotADirectory(path) | WorkspaceError::Refused(path, _) => {
            path
        }
    };
    let workspace = path.to_string_lossy().into_owned();
    Ok(Findings { workspace, workspace_error: Some(refused.to_string()), ..found })
}

/// An empty directory to raise walls around. Goes when it is dropped.
struct Elsewhere(PathBuf);

impl Elsewhere {
    fn create() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("zwinger-doctor-{}", SessionId::random()));
        // mkdir(2) fails on whatever is already there, a link included.
        rustix::fs::mkdir(&path, rustix::fs::Mode::RWXU)?;
        Ok(Self(path))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = rustix::fs::rmdir(&self.0);
    }
}

fn examine_in(confinement: &Confinement, backend: Backend) -> Findings {
    let mut around = Surroundings::of(confinement);
    let state = State::default_path().and_then(|path| Ok((State::open(&path, confinement)?, path)));
    around.state = state.as_ref().ok().map(|(state, _)| state.path().into());
    let state = state.map(|(_, path)| path);
    around.no_quarantine = state.as_ref().err().map(ToString::to_string);
    // The only honest answer is from walls that were really raised.
    let raised = Session::open("/proc/self/exe".as_ref(), backend, confinement, &around, None);
    let enforcement = raised.as_ref().ok().map(|session| session.enforcement().clone());
    let model = probe().found.map(|model| format!("{} {}", model.base_url(), escape::line(model.model())));
    let machine = remedies(raised.as_ref().err(), enforcement.as_ref(), around.landlock_abi);
    Findings {
        version: env!("CARGO_PKG_VERSION"),
        auto: raised.is_ok().then_some(backend),
        remedies: state.as_ref().err().map(state_remedy).into_iter().chain(machine).collect(),
        error: raised.err().map(|error| error.to_string()),
        enforcement,
        landlock_abi: around.landlock_abi,
        workspace: confinement.workspace().to_string_lossy().into_owned(),
        workspace_error: None,
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

/// For [`Findings::remedies`].
fn state_remedy(error: &StateError) -> String {
    let elsewhere = "export XDG_STATE_HOME=DIR, a directory of yours outside every workspace";
    match error {
        StateError::Unusable(path, error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let path = escape::line(&path.to_string_lossy());
            format!("state: chmod 700 {path}, and what is above it must let you in; or {elsewhere}")
        }
        StateError::Unusable(path, error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            format!("state: {elsewhere}; a file is in the way of {}", escape::line(&path.to_string_lossy()))
        }
        StateError::Granted(_) => format!("state: leave that --read out, or {elsewhere}"),
        StateError::Unusable(..) | StateError::Nowhere | StateError::Exposed(_) => format!("state: {elsewhere}"),
    }
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
    line(match &findings.workspace_error {
        Some(error) => format!("workspace  none: {}", escape::line(error)),
        None => format!(
            "workspace  {} · {} hidden, {} read-only",
            escape::line(&findings.workspace),
            findings.hidden,
            findings.protected
        ),
    });
    line(match (&findings.state, &findings.state_error) {
        (Some(path), _) => format!("state      {}", escape::line(path)),
        (None, error) => format!("state      none: {}", escape::line(error.as_deref().unwrap_or_default())),
    });
    line(format!("model      {}", findings.model.as_deref().unwrap_or("none on localhost:11434 :8080 :1234 :8000")));
    match (findings.remedies.is_empty(), fix) {
        (true, true) if findings.workspace_error.is_none() => line("nothing to mend".into()),
        (false, true) => {
            line("what would help (nothing of it is run):".into());
            for remedy in &findings.remedies {
                line(format!("  {remedy}"));
            }
        }
        (false, false) => line("zwinger doctor --fix prints what would help".into()),
        (true, _) => {}
    }
    page
}

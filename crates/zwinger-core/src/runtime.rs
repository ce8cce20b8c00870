//! The main path: one call from untrusted JSON to a safe outcome.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use zwinger_sandbox::{Backend, Confinement, Enforcement, SessionError, Settled};

use crate::action::{Action, Edited, WorkspacePath};
use crate::audit::{Audit, Subject, Ticket};
use crate::call::Call;
use crate::custody::Custody;
use crate::custom::{CustomTool, CustomTools};
use crate::edit::Edit;
use crate::error::{Broken, Invalid};
use crate::executor::wire::Present;
use crate::executor::{During, Executor, JobId};
use crate::gate::{self, Approver, Grants, Settlement};
use crate::output::{Outcome, Walls};
use crate::policy::{self, Mode};
use crate::question;
use crate::session::{GrantTerms, Opening, SessionId, Sessions, State, StateError, StoredError, Which};

/// What a session is opened with.
pub struct Options {
    /// Its terms.
    pub confinement: Confinement,
    /// What builds its walls.
    pub backend: Backend,
    /// Who is asked.
    pub approver: Box<dyn Approver>,
    /// Where the audit goes; usually [`State::default_path`].
    pub state: PathBuf,
    /// A binary that calls [`crate::child_main`] first; usually `/proc/self/exe`.
    pub program: PathBuf,
}

/// Why a session could not be opened; nothing ran.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The walls.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The state directory.
    #[error(transparent)]
    State(#[from] StateError),
    /// The audit log.
    #[error(transparent)]
    Audit(#[from] Broken),
    /// The stored session.
    #[error(transparent)]
    Stored(#[from] StoredError),
    /// The mode and the backend do not go together.
    #[error("mode {0} {1}")]
    Mode(Mode, &'static str),
    /// A tool of that name is there already.
    #[error("there is a tool {0} already")]
    Tool(&'static str),
}

/// An open session. Calls may come from several threads at once.
pub struct Runtime {
    executor: Executor,
    approver: Box<dyn Approver>,
    grants: Grants,
    audit: Audit,
    custody: Custody,
    mode: Mode,
    id: SessionId,
    one_call: bool,
    custom: CustomTools,
    /// The open records of commands in the background.
    jobs: Mutex<BTreeMap<JobId, Ticket>>,
}

impl Runtime {
    /// Opens a session that ends with its process, in [`Mode::Sandbox`], for a program that embeds the library.
    ///
    /// # Errors
    /// As [`OpenError`] says; never with weaker walls instead.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        Self::open_as(options, &Opening::ephemeral("library"))
    }

    /// Raises the walls, starts the executor and opens the audit, for a session that may be kept or have been kept.
    ///
    /// # Errors
    /// As [`Runtime::open`]. A stored session that cannot be used stays as it is.
    pub fn open_as(options: Options, opening: &Opening) -> Result<Self, OpenError> {
        let Options { mut confinement, backend, approver, state, program } = options;
        let state = State::open(&state, &confinement)?;
        let workspace = confinement.workspace().to_owned();
        let sessions = match &opening.which {
            Which::Ephemeral => None,
            Which::New | Which::Stored(_) => Some(Sessions::open(&state, &workspace)?),
        };
        let resumed = match (&sessions, &opening.which) {
            (Some(sessions), Which::Stored(reference)) => Some(sessions.resume(reference)?),
            _ => None,
        };
        let mode = opening.mode(resumed.as_ref())?;
        hold(mode, backend, &mut confinement)?;
        let (custody, around) = Custody::open(&confinement, Ok(&state));
        let executor = Executor::open(program, backend, confinement, &around, custody.lock())?;
        let terms = GrantTerms::of(mode, &executor, &around);
        let kept = match (sessions, resumed) {
            (Some(sessions), None) => Some(sessions.create(&opening.door, mode, terms)?),
            (_, Some(resumed)) => Some(resumed.go_on(mode, terms)?),
            (None, None) => None,
        };
        let id = kept.as_ref().map_or_else(SessionId::random, |kept| kept.id().clone());
        let subject = Subject { session: id.clone(), door: opening.door.clone(), mode, workspace, backend };
        let audit = Audit::open(&state, subject, executor.enforcement().clone())?;
        let grants = kept.map_or_else(Grants::default, Grants::kept_in);
        Ok(Self {
            executor,
            approver,
            grants,
            audit,
            custody,
            mode,
            id,
            one_call: opening.one_call,
            custom: CustomTools::default(),
            jobs: Mutex::default(),
        })
    }

    /// With one more tool, of the program that embeds the library.
    ///
    /// # Errors
    /// [`OpenError::Tool`]: its name is taken. Nothing of the session is left then.
    pub fn with_tool(mut self, tool: Box<dyn CustomTool>) -> Result<Self, OpenError> {
        let name = tool.name();
        if self.custom.add(tool) { Ok(self) } else { Err(OpenError::Tool(name)) }
    }

    /// Its name, in the audit and for `--session`.
    pub fn session(&self) -> &SessionId {
        &self.id
    }

    /// What it may do.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The canonical root of the session.
    pub fn workspace(&self) -> &Path {
        self.executor.confinement().workspace()
    }

    /// How many grants the session has that do not hold now, for they were given under other terms. They stay stored.
    pub fn grants_under_other_terms(&self) -> usize {
        self.grants.under_other_terms()
    }

    /// What earlier sessions on this workspace left that were killed.
    pub fn earlier(&self) -> &Settled {
        self.custody.earlier()
    }

    /// Ends everything inside, and moves what the session newly made of the kind that the host runs by itself to quarantine. A
    /// session that is dropped instead is settled by the next one on its workspace.
    pub fn close(self) -> Settled {
        self.grants.close();
        self.record_jobs();
        drop(self.executor);
        self.custody.close()
    }

    /// What built the walls.
    pub fn backend(&self) -> Backend {
        self.executor.backend()
    }

    /// What they hold.
    pub fn enforcement(&self) -> &Enforcement {
        self.executor.enforcement()
    }

    /// As [`Runtime::call_with`], for a caller who only waits.
    pub fn call(&self, call: &Call) -> Outcome {
        self.call_with(call, During::default())
    }

    /// The main path. What a call wants is decoded, judged, settled, run inside the walls and made safe, with an audit line
    /// before and after. Everything that goes wrong is an outcome; nothing here panics or returns early without a record.
    pub fn call_with(&self, call: &Call, during: During<'_>) -> Outcome {
        let action = match self.prepare(call) {
            Ok(action) => action,
            Err(invalid) => return self.refuse(call, invalid),
        };
        let verdict = policy::judge(&action.effects(), self.mode, self.executor.enforcement().into());
        let ask = |action: &Action| question::about(action, &self.executor);
        let settled = gate::settle(action, &verdict, ask, &*self.approver, &self.grants, &self.audit);
        let authorized = match settled {
            Ok(authorized) => authorized,
            Err(Settlement::Denied(denied)) => return denied.into(),
            Err(Settlement::Broken(broken)) => return broken.into(),
        };
        let (raw, action, ticket) = self.executor.run(self.custody.heed(authorized), &self.custom, during);
        let walls = Walls::of(&self.executor);
        let outcome = raw.make_safe(&action, walls);
        match self.record(&action, ticket, &outcome) {
            Ok(()) => outcome,
            Err(broken) => broken.into(),
        }
    }

    /// A command in the background is recorded as ended when it has ended, by the call that learns of it.
    fn record(&self, action: &Action, ticket: Ticket, outcome: &Outcome) -> Result<(), Broken> {
        match (action, outcome.job) {
            (Action::Run { .. }, Some(job)) => {
                self.lock_jobs().insert(job, ticket);
                return Ok(());
            }
            (Action::JobOutput { job } | Action::JobStop { job }, None) => {
                let began = self.lock_jobs().remove(job);
                began.map_or(Ok(()), |began| began.finish(outcome))?;
            }
            _ => {}
        }
        ticket.finish(outcome)
    }

    /// Of those that nobody asked about.
    fn record_jobs(&self) {
        for (job, ticket) in std::mem::take(&mut *self.lock_jobs()) {
            let outcome = self.executor.look(job).make_safe(&Action::JobOutput { job }, Walls::of(&self.executor));
            // What cannot be written is an interrupted call to whoever reads the log.
            let _ = match outcome.job {
                Some(_) => ticket.fail(&"ended with the session"),
                None => ticket.finish(&outcome),
            };
        }
    }

    fn lock_jobs(&self) -> MutexGuard<'_, BTreeMap<JobId, Ticket>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decodes, and looks at what a write would replace and where a command would start: a path that leads outside is refused
    /// before anyone is asked. What is shown, recorded and granted is where it really is, whatever links lead there.
    fn prepare(&self, call: &Call) -> Result<Action, Invalid> {
        let roots = self.executor.confinement().workspace_names();
        let custom = self.custom.decode(&call.tool, &call.arguments, &roots);
        let mut action = custom.unwrap_or_else(|| call.decode(&roots))?;
        match &mut action {
            Action::Write { path, before, .. } => (*path, *before) = self.inspect(path, false)?,
            Action::Edit { path, edit, edited } => (*path, *edited) = self.edit(path, edit)?,
            Action::Run { background: true, .. } if self.one_call => {
                return Err(Invalid::Arguments(
                    "background needs a session that goes on, and this one ends with this call; leave it out.".into(),
                ));
            }
            Action::Run { timeout, directory, .. } => {
                *timeout = [self.executor.confinement().limits.time, *timeout].into_iter().flatten().min();
                if !directory.is_workspace() {
                    let real = self.executor.directory((*directory).as_ref());
                    *directory = WorkspacePath::resolved(&real.map_err(|failed| refused(directory, &failed))?)?;
                }
            }
            Action::Read { .. }
            | Action::List { .. }
            | Action::JobOutput { .. }
            | Action::JobStop { .. }
            | Action::Custom { .. }
            | Action::Time => {}
        }
        Ok(action)
    }

    fn inspect(&self, path: &WorkspacePath, existing: bool) -> Result<(WorkspacePath, Option<Present>), Invalid> {
        let (real, present) =
            self.executor.inspect(path.as_ref(), existing).map_err(|failed| refused(path, &failed))?;
        Ok((WorkspacePath::resolved(&real)?, present))
    }

    fn edit(&self, path: &WorkspacePath, edit: &Edit) -> Result<(WorkspacePath, Edited), Invalid> {
        let (real, before) = self.inspect(path, true)?;
        let present = before.as_ref().ok_or_else(|| refused(path, &"does not exist."))?;
        let content = present.content.as_deref().ok_or_else(|| refused(path, &"is too large to edit."))?;
        let content = std::str::from_utf8(content).map_err(|_| refused(path, &"is not UTF-8 text."))?;
        let (content, places) = edit.apply(content).map_err(|error| refused(path, &error))?;
        Ok((real, Edited { content, places, before }))
    }

    /// A call whose arguments are no JSON at all, and `why` not.
    pub fn refuse_text(&self, tool: &str, text: &str, why: &dyn std::fmt::Display) -> Outcome {
        self.refuse(&Call::new(tool, text.into()), Invalid::Arguments(why.to_string()))
    }

    fn refuse(&self, call: &Call, invalid: Invalid) -> Outcome {
        match self.audit.invalid(call, &invalid.to_string()) {
            Ok(()) => invalid.into(),
            Err(broken) => broken.into(),
        }
    }
}

/// Modes are walls.
fn hold(mode: Mode, backend: Backend, confinement: &mut Confinement) -> Result<(), OpenError> {
    match (mode, backend) {
        (Mode::Plan, Backend::None) => Err(OpenError::Mode(mode, "is held by walls, and the backend none has none")),
        (Mode::FullAccess, Backend::Landlock) => {
            Err(OpenError::Mode(mode, "has no walls, and goes with the backend none alone"))
        }
        (Mode::Plan, Backend::Landlock) => {
            confinement.set_read_only();
            Ok(())
        }
        (Mode::Sandbox, _) | (Mode::FullAccess, Backend::None) => Ok(()),
    }
}

fn refused(path: &WorkspacePath, why: &dyn std::fmt::Display) -> Invalid {
    Invalid::Path(format!("{path} {why}"))
}

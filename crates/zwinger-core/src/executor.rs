//! The executor: both ends of the pipe between the process that decides and the one inside the walls. This is the host's end.

mod files;
pub mod serve;
pub mod wire;

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use zwinger_sandbox::{
    Backend, Confinement, Enforcement, ExecutorLink, HostPath, Limits, Session, SessionError, Surroundings,
};

use crate::action::Action;
use crate::audit::Ticket;
use crate::error::Failed;
use crate::gate::Authorized;
use crate::output::Raw;
use wire::{Envelope, Present, Refusal, Request, Response};

/// Bytes of a file that one read returns at most.
const READ_BYTES: u64 = 256 * 1024;

/// How long the executor may take beyond a command's own limits, and for a request for files. It is hostile: a command may have
/// stopped it.
const PATIENCE: Duration = Duration::from_secs(10);
const FILE_PATIENCE: Duration = Duration::from_secs(60);

/// A session's walls with an executor inside. When it dies, the next request starts another in the same walls.
#[derive(Debug)]
pub struct Executor {
    session: Mutex<Session>,
    enforcement: Enforcement,
    backend: Backend,
    confinement: Confinement,
    link: Mutex<Option<Link>>,
    next: AtomicU64,
}

/// A running executor.
#[derive(Debug)]
struct Link {
    requests: Arc<Mutex<File>>,
    waiting: Waiting,
    _ends: ExecutorLink,
}

/// Who waits for which answer; closed (`None`) when the executor is gone.
type Waiting = Arc<Mutex<Option<HashMap<u64, Sender<Response>>>>>;

impl Executor {
    /// Raises the walls and starts an executor. `program` is a binary that calls [`crate::child_main`] first.
    ///
    /// # Errors
    /// When the walls cannot be built or the executor does not come up. Nothing runs then.
    pub fn open(
        program: PathBuf,
        backend: Backend,
        confinement: Confinement,
        around: &Surroundings,
        held: Option<BorrowedFd<'_>>,
    ) -> Result<Self, SessionError> {
        let session = Session::open(&program, backend, &confinement, around, held)?;
        let executor = Self {
            enforcement: session.enforcement().clone(),
            session: Mutex::new(session),
            backend,
            confinement,
            link: Mutex::new(None),
            next: AtomicU64::new(1),
        };
        let link = executor.start()?;
        *lock(&executor.link) = Some(link);
        Ok(executor)
    }

    /// What the walls hold.
    pub fn enforcement(&self) -> &Enforcement {
        &self.enforcement
    }

    /// What built them.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// The terms of the session.
    pub fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    fn start(&self) -> Result<Link, SessionError> {
        let mut session = lock(&self.session);
        let mut ends = session.start_executor()?;
        let (mut requests, mut responses) = ends.take_streams()?;
        let settle = Request::Settle { version: wire::VERSION, plan: Box::new(session.plan().clone()) };
        wire::write(&mut requests, &Envelope { id: 0, message: settle })?;
        match wire::read::<Response>(&mut responses)? {
            Some(Envelope { id: 0, message: Response::Settled }) => {}
            _ => {
                return Err(SessionError::Walls("the executor could not put its own walls on".into()));
            }
        }
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let link = Link { requests: Arc::new(Mutex::new(requests)), waiting: waiting.clone(), _ends: ends };
        std::thread::Builder::new().name("answers".into()).spawn(move || {
            while let Ok(Some(Envelope { id, message })) = wire::read::<Response>(&mut responses) {
                if let Some(waiter) = lock(&waiting).as_mut().and_then(|waiting| waiting.remove(&id)) {
                    let _ = waiter.send(message);
                }
            }
            // Dropping the senders tells everyone who still waits.
            *lock(&waiting) = None;
        })?;
        Ok(link)
    }

    /// Sends one request and waits for its answer. A dead executor fails the request that met it; the next finds a new one.
    fn request(&self, request: Request) -> Result<Response, Failed> {
        let gone = || Failed("the executor ended while it worked; it was started again, so try once more".into());
        let patience = match &request {
            Request::Run { limits, .. } => limits.time.unwrap_or(Duration::MAX).saturating_add(limits.grace + PATIENCE),
            _ => FILE_PATIENCE,
        };
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (send, answer) = mpsc::channel();
        let requests = {
            let mut link = lock(&self.link);
            if link.as_ref().is_none_or(|link| lock(&link.waiting).is_none()) {
                *link = None;
                *link = Some(self.start().map_err(|error| Failed(format!("no executor: {error}")))?);
            }
            let running = link.as_ref().ok_or_else(gone)?;
            lock(&running.waiting).as_mut().ok_or_else(gone)?.insert(id, send);
            running.requests.clone()
        };
        wire::write(&mut *lock(&requests), &Envelope { id, message: request }).map_err(|_| gone())?;
        let answered = match answer.recv_timeout(patience) {
            Ok(answered) => answered,
            Err(RecvTimeoutError::Disconnected) => return Err(gone()),
            Err(RecvTimeoutError::Timeout) => {
                // Starting another ends this one with everything that it started.
                let mut link = lock(&self.link);
                *link = None;
                *link = self.start().ok();
                return Err(Failed("the executor did not answer in time; it was started again".into()));
            }
        };
        match answered {
            Response::Refused(refusal) => Err(Failed(explain(&refusal))),
            Response::EndedWith(finished) => {
                // The next request must not go to this executor, which may not have ended yet. Another may be there already.
                let mut link = lock(&self.link);
                if link.as_ref().is_some_and(|link| Arc::ptr_eq(&link.requests, &requests)) {
                    *link = None;
                }
                Ok(Response::Finished(finished))
            }
            response => Ok(response),
        }
    }

    /// Where a write would really go, and what it would replace. Reads only, beneath the workspace, so that a person can be shown the difference.
    pub(crate) fn inspect(&self, path: &std::path::Path) -> Result<(HostPath, Option<Present>), Failed> {
        match self.request(Request::Inspect { path: path.into() })? {
            Response::Inspected { path, present } => Ok((path, present)),
            _ => Err(Failed("the executor answered something else than it was asked".into())),
        }
    }

    /// Does what was authorized, and spends the permission.
    pub(crate) fn run(&self, authorized: Authorized) -> (Raw, Action, Ticket) {
        let (action, ticket) = authorized.spend();
        (self.perform(&action), action, ticket)
    }

    fn perform(&self, action: &Action) -> Raw {
        let path = |path: &crate::action::WorkspacePath| path.as_ref().into();
        let request = match action {
            Action::Read { path: file, offset, limit } => {
                Request::Read { path: path(file), offset: *offset, lines: *limit, bytes: READ_BYTES }
            }
            Action::List { path: directory } => Request::List { path: path(directory) },
            Action::Write { path: file, content, before } => Request::Write {
                path: path(file),
                content: content.as_bytes().to_vec(),
                base: before.as_ref().map(|before| before.hash),
            },
            Action::Run { command, timeout } => self.command(command, *timeout),
            Action::Time => return Raw::new(Ok(Response::Settled)),
        };
        Raw::new(self.request(request).map_err(|failed| about(action, failed)))
    }

    fn command(&self, command: &str, timeout: Duration) -> Request {
        let limits = Limits { time: Some(timeout), ..self.confinement.limits.clone() };
        Request::Run { argv: vec!["/bin/sh".into(), "-c".into(), command.into()], limits }
    }
}

fn explain(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Outside => "is outside the workspace.".into(),
        Refusal::NotFound => "does not exist.".into(),
        Refusal::NoParent => "cannot be made: its directory does not exist; make that first, with mkdir -p.".into(),
        Refusal::Hidden => "is hidden by the walls; only the user can show it (--show).".into(),
        Refusal::Special(kind) => format!("is a special file ({kind}), not a text file."),
        Refusal::Directory => "is a directory.".into(),
        Refusal::NotADirectory => "is not a directory.".into(),
        Refusal::Changed => "changed meanwhile; read it again before you write. Nothing was written.".into(),
        Refusal::NotPermitted(text) | Refusal::Other(text) => {
            format!("cannot be used: {}.", crate::escape::line(text))
        }
    }
}

/// Puts the path in front of what was said of it.
fn about(action: &Action, Failed(text): Failed) -> Failed {
    match action {
        Action::Read { path, .. } | Action::List { path } | Action::Write { path, .. } => {
            Failed(format!("{path} {text}"))
        }
        Action::Run { .. } | Action::Time => Failed(text),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

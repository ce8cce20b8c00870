//! The executor: both ends of the pipe between the process that decides and the one inside the walls. This is the host's end.

mod cancel;
mod files;
mod jobs;
mod link;
pub mod serve;
mod slots;
mod terms;
pub mod wire;

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use zwinger_sandbox::{Backend, Confinement, Enforcement, HostPath, Limits, Session, SessionError, Surroundings};

use crate::action::{Action, WorkspacePath};
use crate::audit::Ticket;
use crate::custom::CustomTools;
use crate::error::Failed;
use crate::gate::Authorized;
use crate::output::{Came, LiveText, Raw};
pub use cancel::Cancel;
pub use jobs::JobId;
use jobs::Jobs;
pub(crate) use jobs::Report;
use link::{Heard, Link, Tell, Waiter};
use slots::Slots;
pub use terms::Terms;
use wire::{Present, Refusal, Request, Response};

/// Bytes of a file that one read returns at most.
const READ_BYTES: u64 = 256 * 1024;

/// How long the executor may take beyond a command's own limits, and for a request for files. It is hostile: a command may have
/// stopped it.
const PATIENCE: Duration = Duration::from_secs(10);
const FILE_PATIENCE: Duration = Duration::from_secs(60);

/// Characters of a call that others are told of when it is lost.
const MAX_LABEL: usize = 60;

/// A session's walls with an executor inside. When it dies, the next request starts another in the same walls.
#[derive(Debug)]
pub struct Executor {
    session: Mutex<Session>,
    enforcement: Enforcement,
    backend: Backend,
    confinement: Confinement,
    terms: Terms,
    link: Mutex<Option<Link>>,
    slots: Slots,
    jobs: Jobs,
    next: AtomicU64,
}

/// What the caller of a call may do and see while it runs.
#[derive(Clone, Copy, Default)]
pub struct During<'a> {
    /// Stops it.
    pub cancel: Option<&'a Cancel>,
    /// Is shown a command's output as it arrives, as far as a person could follow; called by the thread that makes the call. The
    /// outcome has all that is kept.
    pub live: Option<&'a (dyn Fn(&str) + Sync)>,
}

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
        if crate::is_child() {
            // Else it would start itself for ever.
            let text =
                "this process was started as a keeper or executor; call zwinger_core::child_main() first in main";
            return Err(SessionError::Walls(text.into()));
        }
        let session = Session::open(&program, backend, &confinement, around, held)?;
        let executor = Self {
            enforcement: session.enforcement().clone(),
            terms: Terms::of(&confinement, &session.plan().secrets),
            session: Mutex::new(session),
            backend,
            confinement,
            link: Mutex::new(None),
            slots: Slots::default(),
            jobs: Jobs::default(),
            next: AtomicU64::new(1),
        };
        let below = |path: &HostPath| Some(path.strip_prefix(executor.confinement.workspace()).ok()?.into());
        let unfinished = around.scan.unfinished.iter().filter_map(below).map(or_itself).collect();
        executor.start(&mut lock(&executor.link), unfinished)?;
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

    /// Whether the walls have namespaces.
    pub(crate) fn has_namespaces(&self) -> bool {
        lock(&self.session).plan().mounts.is_some()
    }

    /// The terms of the session.
    pub fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    /// The walls in words.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Starts an executor in the place of the one that is there, if any.
    fn start(&self, link: &mut Option<Link>, mut unfinished: Vec<HostPath>) -> Result<(), SessionError> {
        let mut session = lock(&self.session);
        // This ends the one before, and with it everything that it started.
        let ends = session.start_executor()?;
        unfinished.extend(link.take().map(Link::finish).unwrap_or_default());
        *link = Some(Link::greet(ends, session.plan(), unfinished)?);
        Ok(())
    }

    /// Sends one request and waits for its answer. A dead executor fails the requests that met its end; the next finds a new one.
    fn request(&self, request: Request, what: String, during: During<'_>) -> Result<Response, Failed> {
        let (patience, grace) = match &request {
            Request::Run { limits, .. } => (limits.time.map(|time| time + limits.grace + PATIENCE), limits.grace),
            _ => (Some(FILE_PATIENCE), Duration::ZERO),
        };
        let directory = match &request {
            Request::Write { path, .. } => path.parent().map(|parent| or_itself(parent.into())),
            _ => None,
        };
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (tell, heard) = mpsc::channel();
        let _told = during.cancel.map(|cancel| cancel.tell(id, tell.clone()));
        let requests = self.expect(id, Waiter { tell: Tell::Call(tell), what, directory })?;
        link::send(&requests, id, request)?;
        let mut deadline = patience.and_then(|patience| Instant::now().checked_add(patience));
        let mut text = LiveText::default();
        loop {
            match next(&heard, deadline) {
                Ok(Heard::Answer(Response::Live { bytes, skipped })) => {
                    let shown = text.take(&bytes, skipped);
                    during.live.iter().for_each(|live| live(&shown));
                }
                Ok(Heard::Answer(Response::Refused(refusal))) => return Err(Failed(explain(&refusal))),
                Ok(Heard::Answer(Response::EndedWith(finished))) => return Ok(Response::Finished(finished)),
                Ok(Heard::Answer(answer)) => return Ok(answer),
                Ok(Heard::Cancelled) => {
                    let _ = link::send(&requests, id, Request::Cancel { id });
                    deadline = Instant::now().checked_add(grace + PATIENCE);
                }
                Ok(Heard::Lost(others)) => return Err(lost(&others)),
                Err(RecvTimeoutError::Disconnected) => return Err(lost(&[])),
                Err(RecvTimeoutError::Timeout) => {
                    let mut link = lock(&self.link);
                    if link.as_ref().is_some_and(|link| link.has(&requests)) {
                        let _ = self.start(&mut link, Vec::new());
                    }
                    return Err(Failed("the executor did not answer in time; it was started again".into()));
                }
            }
        }
    }

    /// Lets someone wait for the answer of a running executor, and gives the stream for the request.
    fn expect(&self, id: u64, waiter: Waiter) -> Result<Arc<Mutex<File>>, Failed> {
        let mut link = lock(&self.link);
        if !link.as_ref().is_some_and(Link::serves) {
            self.start(&mut link, Vec::new()).map_err(|error| Failed(format!("no executor: {error}")))?;
        }
        link.as_ref().and_then(|link| link.expect(id, waiter)).ok_or_else(|| lost(&[]))
    }

    /// Where a write would really go, and what it would replace; `existing`: something must be there. Reads only, beneath the workspace, so that a person can be shown the difference.
    pub(crate) fn inspect(&self, path: &Path, existing: bool) -> Result<(HostPath, Option<Present>), Failed> {
        let what = label("a look at", &path.to_string_lossy());
        match self.request(Request::Inspect { path: path.into(), existing }, what, During::default())? {
            Response::Inspected { path, present } => Ok((path, present)),
            _ => Err(other_than_asked()),
        }
    }

    /// Where a directory really is.
    pub(crate) fn directory(&self, path: &Path) -> Result<HostPath, Failed> {
        let what = label("a look at", &path.to_string_lossy());
        match self.request(Request::Directory { path: path.into() }, what, During::default())? {
            Response::Directory(path) => Ok(path),
            _ => Err(other_than_asked()),
        }
    }

    /// Does what was authorized, and spends the permission.
    pub(crate) fn run(
        &self,
        authorized: Authorized,
        custom: &CustomTools,
        during: During<'_>,
    ) -> (Raw, Action, Ticket) {
        let (action, ticket) = authorized.spend();
        (self.perform(&action, custom, during), action, ticket)
    }

    /// Starts a command that nobody waits for, beyond its first moments.
    fn begin_job(&self, request: Request, what: &str) -> Result<Came, Failed> {
        let (job_id, job) = self.jobs.begin()?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let waiter = Waiter { tell: Tell::Job(job.clone()), what: format!("job {job_id} ({what})"), directory: None };
        let ordered = self.expect(id, waiter).and_then(|requests| {
            job.ordered(id, &requests);
            link::send(&requests, id, request)
        });
        ordered.inspect_err(|_| self.jobs.forget(job_id))?;
        self.jobs.first_look(job_id, &job).map(|report| Came::Job(job_id, report))
    }

    /// What is new of a command in the background.
    pub(crate) fn look(&self, job: JobId) -> Raw {
        Raw::new(self.jobs.look(job).map(|report| Came::Job(job, report)))
    }

    fn perform(&self, action: &Action, custom: &CustomTools, during: During<'_>) -> Raw {
        let path = |path: &WorkspacePath| path.as_ref().into();
        let cancelled = || Raw::new(Err(Failed("cancelled before it began.".into())));
        let (request, about_it) = match action {
            Action::Read { path: file, offset, limit, .. } => {
                let request = Request::Read { path: path(file), offset: *offset, lines: *limit, bytes: READ_BYTES };
                (request, file.to_string())
            }
            Action::List { path: directory, depth } => {
                (Request::List { path: path(directory), depth: *depth }, directory.to_string())
            }
            Action::Write { path: file, content, before } => {
                let base = before.as_ref().map(|before| before.hash);
                (Request::Write { path: path(file), content: content.as_bytes().to_vec(), base }, file.to_string())
            }
            Action::Edit { path: file, edited, .. } => {
                let (content, base) = (edited.content.as_bytes().to_vec(), edited.before.as_ref().map(|old| old.hash));
                (Request::Write { path: path(file), content, base }, file.to_string())
            }
            Action::Run { command, timeout, directory, read_only, background } => {
                let limits = Limits { time: *timeout, ..self.confinement.limits.clone() };
                let argv = vec!["/bin/sh".into(), "-c".into(), command.into()];
                let (directory, live) = (path(directory), *background || during.live.is_some());
                (Request::Run { argv, limits, directory, read_only: *read_only, live }, command.clone())
            }
            Action::JobOutput { job } => return self.look(*job),
            Action::JobStop { job } => {
                let patience = self.confinement.limits.grace + PATIENCE;
                return Raw::new(self.jobs.stop(*job, patience).map(|report| Came::Job(*job, report)));
            }
            Action::Custom { name, arguments, .. } => {
                return Raw::new(custom.run(name, arguments, during).map(Came::Text));
            }
            Action::Time => return Raw::new(Ok(Came::Answer(Response::Settled))),
        };
        let is_job = matches!(action, Action::Run { background: true, .. });
        let slot = (!is_job && matches!(request, Request::Run { .. })).then(|| self.slots.take(during.cancel));
        if matches!(slot, Some(None)) || during.cancel.is_some_and(Cancel::is_cancelled) {
            return cancelled();
        }
        let what = label(action.tool(), &about_it);
        if is_job {
            return Raw::new(self.begin_job(request, &what));
        }
        Raw::new(self.request(request, what, during).map(Came::Answer).map_err(|failed| about(action, failed)))
    }
}

fn next(heard: &Receiver<Heard>, deadline: Option<Instant>) -> Result<Heard, RecvTimeoutError> {
    match deadline {
        Some(deadline) => heard.recv_timeout(deadline.saturating_duration_since(Instant::now())),
        None => heard.recv().map_err(RecvTimeoutError::from),
    }
}

/// The workspace itself has the path `.`.
fn or_itself(path: HostPath) -> HostPath {
    if path.as_os_str().is_empty() { ".".into() } else { path }
}

fn label(tool: &str, about_it: &str) -> String {
    let mut label = crate::escape::line(&format!("{tool} {}", about_it.chars().take(MAX_LABEL).collect::<String>()));
    if about_it.chars().count() > MAX_LABEL {
        label.push('…');
    }
    label
}

fn lost(others: &[String]) -> Failed {
    let mut text = "the executor ended while it worked; it was started again, so try once more".to_owned();
    if !others.is_empty() {
        text.push_str(&format!(". Lost with this call: {}", others.join(", ")));
    }
    Failed(text)
}

fn other_than_asked() -> Failed {
    Failed("the executor answered something else than it was asked".into())
}

fn explain(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Outside => "is outside the workspace.".into(),
        Refusal::NotFound(Some(similar)) => {
            format!("does not exist; there is {}.", crate::escape::line(&similar.to_string_lossy()))
        }
        Refusal::NotFound(None) => "does not exist; list_directory shows what there is.".into(),
        Refusal::NoParent => "cannot be made: its directory does not exist; make that first, with mkdir -p.".into(),
        Refusal::Hidden => "is hidden by the walls; only the user can show it (--show).".into(),
        Refusal::Protected => {
            "is protected: the host runs what stands there, so it cannot be written inside the walls; tell the user what to change.".into()
        }
        Refusal::Special(kind) => format!("is a special file ({kind}), not a text file."),
        Refusal::Directory => "is a directory; list_directory shows it.".into(),
        Refusal::NotADirectory => "is not a directory; read_file shows a file.".into(),
        Refusal::Changed => "changed meanwhile; read it again before you write. Nothing was written.".into(),
        Refusal::NotPermitted(text) | Refusal::Other(text) => {
            format!("cannot be used: {}.", crate::escape::line(text))
        }
    }
}

/// Puts the path in front of what was said of it.
fn about(action: &Action, Failed(text): Failed) -> Failed {
    match action {
        Action::Read { path, .. }
        | Action::List { path, .. }
        | Action::Write { path, .. }
        | Action::Edit { path, .. } => Failed(format!("{path} {text}")),
        Action::Run { .. }
        | Action::JobOutput { .. }
        | Action::JobStop { .. }
        | Action::Custom { .. }
        | Action::Time => Failed(text),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

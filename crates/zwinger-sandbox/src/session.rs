//! The host's side of walls that stay: opens them through a keeper and starts executors in them.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Pid;

use crate::backend::{Backend, BackendError};
use crate::confinement::Confinement;
use crate::enforcement::Enforcement;
use crate::keeper::{self, Order, Report};
use crate::plan::{Plan, Surroundings};
use crate::task_group::TaskGroup;
use crate::temporary::TemporaryDirectory;
use crate::walls;

/// Why walls could not be opened; nothing ran.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The machine cannot build them.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A step of theirs failed.
    #[error("the walls could not be built: {0}")]
    Walls(String),
    /// A process of ours did not start or answer.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A started executor: the host's ends of its pipes.
#[derive(Debug)]
pub struct ExecutorLink {
    streams: Option<(OwnedFd, OwnedFd)>,
}

impl ExecutorLink {
    /// Its standard input and output, once.
    ///
    /// # Errors
    /// When they were taken before.
    pub fn take_streams(&mut self) -> io::Result<(File, File)> {
        let (requests, responses) = self.streams.take().ok_or(io::ErrorKind::NotConnected)?;
        Ok((requests.into(), responses.into()))
    }
}

/// Open walls. Dropping them ends everything inside.
#[derive(Debug)]
pub struct Session {
    plan: Plan,
    /// The process that holds the walls, and our end of its socket; gone only while this is dropped.
    keeper: Option<(Child, OwnedFd)>,
    _temporary: Option<TemporaryDirectory>,
    _task_group: Option<Arc<TaskGroup>>,
}

impl Session {
    /// Raises the walls. `program` is a binary that calls `child_main()` first: usually `/proc/self/exe`. `held` stays open for as
    /// long as anything of the session runs, also when this process is killed: the [lock](crate::Journal::lock) of its journal.
    ///
    /// # Errors
    /// When the backend is missing here or a wall fails; never a weaker wall instead, other than the form without user
    /// namespaces that the returned enforcement names.
    pub fn open(
        program: &Path,
        backend: Backend,
        confinement: &Confinement,
        around: &Surroundings,
        held: Option<BorrowedFd<'_>>,
    ) -> Result<Self, SessionError> {
        let plan = backend.plan(confinement, around)?;
        let open = |plan, keeper, temporary, around: &Surroundings| {
            Ok(Self { plan, keeper: Some(keeper), _temporary: temporary, _task_group: around.task_group().cloned() })
        };
        let reason = match start_keeper(program, &plan, around, held)? {
            Raised::Yes(child, socket) => return open(plan, (child, socket), None, around),
            Raised::NotPermitted(reason) => reason,
        };
        let temporary = TemporaryDirectory::create()?;
        let around = around.without_namespaces(reason, confinement, &temporary.0)?;
        let plan = backend.plan(confinement, &around)?;
        match start_keeper(program, &plan, &around, held)? {
            Raised::Yes(child, socket) => open(plan, (child, socket), Some(temporary), &around),
            Raised::NotPermitted(text) => Err(SessionError::Walls(text)),
        }
    }

    /// The plan that was carried out: its seal is the executor's to put on, its environment that of every command.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What these walls hold.
    pub fn enforcement(&self) -> &Enforcement {
        &self.plan.enforcement
    }

    /// Starts an executor inside; one that still runs is ended first, with everything it started.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start_executor(&mut self) -> Result<ExecutorLink, SessionError> {
        let gone = || SessionError::Walls("the keeper is gone".into());
        let (_, socket) = self.keeper.as_ref().ok_or_else(gone)?;
        keeper::send(socket.as_fd(), &Order::Start, &[])?;
        match keeper::receive::<Report>(socket.as_fd())? {
            Some((Report::Started, fds)) => {
                let [requests, responses] = <[OwnedFd; 2]>::try_from(fds)
                    .map_err(|_| SessionError::Walls("the keeper sent no pipes".into()))?;
                Ok(ExecutorLink { streams: Some((requests, responses)) })
            }
            Some((Report::Failed { text, .. }, _)) => Err(SessionError::Walls(text)),
            _ => Err(gone()),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some((mut child, socket)) = self.keeper.take() {
            // The keeper ends its executor, and with it the process namespace, when the socket closes.
            drop(socket);
            let _ = child.wait();
        }
    }
}

enum Raised {
    Yes(Child, OwnedFd),
    NotPermitted(String),
}

fn start_keeper(
    program: &Path,
    plan: &Plan,
    around: &Surroundings,
    held: Option<BorrowedFd<'_>>,
) -> Result<Raised, SessionError> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(io::Error::from)?;
    let mut child = Command::new(program)
        .arg0(crate::KEEPER)
        .env_clear()
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .spawn()?;
    let bounded = around.task_group().map_or(Ok(()), |group| group.admit(Pid::from_child(&child)));
    let raised = bounded.map_err(SessionError::Io).and_then(|()| raise(&child, &ours, plan, held));
    if !matches!(raised, Ok(None)) {
        let _ = child.kill();
        let _ = child.wait();
    }
    Ok(match raised? {
        None => Raised::Yes(child, ours),
        Some(text) => Raised::NotPermitted(text),
    })
}

/// `None`: the walls stand. `Some`: this machine does not permit them in this form.
fn raise(
    keeper: &Child,
    socket: &OwnedFd,
    plan: &Plan,
    held: Option<BorrowedFd<'_>>,
) -> Result<Option<String>, SessionError> {
    keeper::send(socket.as_fd(), &Order::Raise(Box::new(plan.clone())), held.as_slice())?;
    loop {
        match keeper::receive::<Report>(socket.as_fd())? {
            Some((Report::Entered, _)) => {
                let pid = i32::try_from(keeper.id()).ok().and_then(rustix::process::Pid::from_raw);
                let pid = pid.ok_or_else(|| SessionError::Walls("the keeper has no pid".into()))?;
                if let Err(error) = walls::map_all_ids(pid) {
                    return if error.not_permitted() {
                        Ok(Some(error.to_string()))
                    } else {
                        Err(SessionError::Walls(error.to_string()))
                    };
                }
                keeper::send(socket.as_fd(), &Order::Mapped, &[])?;
            }
            Some((Report::Raised, _)) => return Ok(None),
            Some((Report::Failed { text, not_permitted }, _)) if not_permitted && plan.mounts.is_some() => {
                return Ok(Some(text));
            }
            Some((Report::Failed { text, .. }, _)) => return Err(SessionError::Walls(text)),
            Some((Report::Started, _)) | None => {
                return Err(SessionError::Walls(
                    "the keeper ended; does the program call zwinger_core::child_main() first?".into(),
                ));
            }
        }
    }
}

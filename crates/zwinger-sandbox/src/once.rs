//! One command behind walls of its own (`zwinger run`): no executor, the cloned child is the first process of the namespace
//! and supervises the command itself.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, BackendError};
use crate::confinement::Confinement;
use crate::enforcement::Enforcement;
use crate::keeper::{receive, send};
use crate::outputs::Outputs;
use crate::plan::{Plan, Surroundings};
use crate::supervisor::{self, Command, Finished, Streams, SupervisorError};
use crate::sys::{self, Cloned};
use crate::temporary::TemporaryDirectory;
use crate::walls::{self, OwnIds, WallError};

/// Why a command has no exit status of its own.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The machine cannot build the walls.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A step of them failed.
    #[error("the walls could not be built: {0}")]
    Walls(String),
    /// It killed its supervisor; everything it started was ended with the session.
    #[error("the command killed its supervisor; everything that it started was stopped")]
    Lost,
    /// The system refused something else.
    #[error("{0}")]
    Io(#[from] io::Error),
}

#[derive(Debug, Serialize, Deserialize)]
enum Report {
    Entered,
    Failed { text: String, not_permitted: bool },
    Finished(Box<Finished>),
    Lost,
}

/// Where the output of the command goes. Its input is this process's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// To this process's own streams.
    Inherit,
    /// Into the result, cut as [`Limits::output`](crate::Limits) says.
    Capture,
}

/// Runs a command in walls that end with it. Must be called from a process with one thread.
///
/// # Errors
/// As [`RunError`] says; nothing ran unless it is [`RunError::Lost`].
pub fn run_once(
    backend: Backend,
    confinement: &Confinement,
    argv: Vec<std::ffi::OsString>,
    output: Output,
) -> Result<(Finished, Enforcement), RunError> {
    let around = Surroundings::of(confinement);
    backend.probe(&around)?;
    let plan = backend.plan(confinement, &around);
    match attempt(&plan, confinement, argv.clone(), output)? {
        Attempt::Finished(finished) => Ok((*finished, plan.enforcement)),
        Attempt::NotPermitted(reason) if plan.mounts.is_some() => {
            let temporary = TemporaryDirectory::create()?;
            let plan = backend.plan(confinement, &around.without_namespaces(reason, confinement, &temporary.0)?);
            match attempt(&plan, confinement, argv, output)? {
                Attempt::Finished(finished) => Ok((*finished, plan.enforcement)),
                Attempt::NotPermitted(text) => Err(RunError::Walls(text)),
            }
        }
        Attempt::NotPermitted(text) => Err(RunError::Walls(text)),
    }
}

enum Attempt {
    Finished(Box<Finished>),
    NotPermitted(String),
}

fn attempt(
    plan: &Plan,
    confinement: &Confinement,
    argv: Vec<std::ffi::OsString>,
    output: Output,
) -> Result<Attempt, RunError> {
    let (outputs, ends) = match output {
        Output::Inherit => (Outputs::none(), None),
        Output::Capture => {
            let (outputs, ends) = Outputs::pipes(confinement.limits.output)?;
            (outputs, Some(ends))
        }
    };
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(io::Error::from)?;
    let command =
        Command { argv, environment: plan.environment.clone(), limits: confinement.limits.clone(), tasks: plan.tasks };
    let own_ids = OwnIds::read();
    let pid_namespace = if plan.mounts.is_some() { sys::NEW_PID } else { 0 };
    match sys::clone_process(walls::namespaces(plan) | pid_namespace) {
        Ok(Cloned::Child) => {
            drop(ours);
            drop(outputs);
            sys::exit_now(inside(plan, &command, own_ids, &theirs, ends))
        }
        Ok(Cloned::Parent(pid)) => {
            drop(theirs);
            drop(ends);
            // The keys of the terminal reach the command by themselves; we only wait for it.
            sys::ignore_terminal_signals();
            supervise(plan, pid, &ours, outputs)
        }
        Err(error) => {
            let error = WallError::refusable("enter new namespaces")(error);
            if error.not_permitted() {
                Ok(Attempt::NotPermitted(error.to_string()))
            } else {
                Err(RunError::Walls(error.to_string()))
            }
        }
    }
}

/// The host's side: maps ids for a root caller, takes the output, waits for the report.
fn supervise(plan: &Plan, child: Pid, socket: &OwnedFd, mut outputs: Outputs) -> Result<Attempt, RunError> {
    let attempt = conduct(plan, child, socket, &mut outputs);
    if let Ok(Attempt::Finished(mut finished)) = attempt {
        outputs.read_to_end()?;
        [finished.stdout, finished.stderr, finished.output] = outputs.finish();
        // The kernel tears the namespaces down after this; nobody needs to wait for that.
        return Ok(Attempt::Finished(finished));
    }
    supervisor::kill_tree(child);
    attempt
}

fn conduct(plan: &Plan, child: Pid, socket: &OwnedFd, outputs: &mut Outputs) -> Result<Attempt, RunError> {
    let refused = |text: String, not_permitted: bool| {
        if not_permitted && plan.mounts.is_some() {
            Ok(Attempt::NotPermitted(text))
        } else {
            Err(RunError::Walls(text))
        }
    };
    loop {
        if !wait(socket, outputs)? {
            // Without a process namespace the command can do that to our child.
            if sys::is_stopped(child)? {
                return Err(RunError::Lost);
            }
            continue;
        }
        match receive::<Report>(socket.as_fd())? {
            Some((Report::Entered, _)) => match walls::map_all_ids(child) {
                Ok(()) => send(socket.as_fd(), &Report::Entered, &[])?,
                Err(error) => return refused(error.to_string(), error.not_permitted()),
            },
            Some((Report::Finished(finished), _)) => return Ok(Attempt::Finished(finished)),
            Some((Report::Failed { text, not_permitted }, _)) => return refused(text, not_permitted),
            Some((Report::Lost, _)) | None => return Err(RunError::Lost),
        }
    }
}

/// Takes output until the socket has something to say.
fn wait(socket: &OwnedFd, outputs: &mut Outputs) -> io::Result<bool> {
    let mut polled = vec![PollFd::new(socket, PollFlags::IN)];
    polled.extend(outputs.open().map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::IN)));
    let tick = Timespec { tv_sec: supervisor::TICK.as_secs().cast_signed(), tv_nsec: 0 };
    match rustix::event::poll(&mut polled, Some(&tick)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut ready = polled.iter().map(|fd| !fd.revents().is_empty());
    let spoken = ready.next() == Some(true);
    let ready: Vec<usize> = ready.enumerate().filter(|(_, ready)| *ready).map(|(index, _)| index).collect();
    outputs.read(&ready)?;
    Ok(spoken)
}

/// The child's side: walls, then the command, then the report. Returns our exit status.
fn inside(plan: &Plan, command: &Command, own_ids: OwnIds, socket: &OwnedFd, ends: Option<[OwnedFd; 2]>) -> i32 {
    let connected = ends.map_or(Ok(()), connect).map_err(WallError::at("connect the output"));
    let report = match connected.and_then(|()| raise(plan, own_ids, socket)) {
        Err(error) => Report::Failed { not_permitted: error.not_permitted(), text: error.to_string() },
        Ok(()) => match run(plan, command, socket) {
            Ok(finished) => Report::Finished(Box::new(finished)),
            Err(SupervisorError::Lost) => {
                if plan.mounts.is_none() {
                    supervisor::sweep();
                }
                Report::Lost
            }
            Err(SupervisorError::Start(error)) => Report::Failed { text: error.to_string(), not_permitted: false },
        },
    };
    i32::from(send(socket.as_fd(), &report, &[]).is_err())
}

/// The command inherits these two; nobody else holds them when it ends.
fn connect([stdout, stderr]: [OwnedFd; 2]) -> io::Result<()> {
    rustix::stdio::dup2_stdout(&stdout)?;
    Ok(rustix::stdio::dup2_stderr(&stderr)?)
}

fn raise(plan: &Plan, own_ids: OwnIds, socket: &OwnedFd) -> Result<(), WallError> {
    if plan.mounts.is_some() {
        // Without a process namespace our end would not be the command's: then the socket tells us of the host's.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(WallError::at("tie the child to zwinger"))?;
    } else {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(WallError::at("adopt orphans"))?;
    }
    sys::close_on_exec_above_2().map_err(WallError::at("close inherited descriptors"))?;
    sys::reset_signals();
    no_directories().map_err(WallError::at("pass the streams through"))?;
    if let Some(mounts) = &plan.mounts {
        if plan.root_caller {
            wait_for_maps(socket).map_err(WallError::at("map the ids"))?;
        } else {
            own_ids.map()?;
        }
        walls::arrange(plan, mounts, true)?;
    }
    rustix::process::chdir(&*plan.workspace).map_err(WallError::at("enter the workspace"))?;
    if let Some(seal) = &plan.seal {
        walls::drop_capabilities(plan)?;
        walls::seal(seal)?;
    }
    Ok(())
}

/// A directory as a stream would be a way around the mounts: what is opened beneath it is beneath the host's own.
fn no_directories() -> io::Result<()> {
    for stream in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(stream)?.st_mode);
        if kind == rustix::fs::FileType::Directory {
            return Err(io::Error::other("a directory is no stream"));
        }
    }
    Ok(())
}

fn wait_for_maps(socket: &OwnedFd) -> io::Result<()> {
    send(socket.as_fd(), &Report::Entered, &[])?;
    match receive::<Report>(socket.as_fd())? {
        Some((Report::Entered, _)) => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn run(plan: &Plan, command: &Command, socket: &OwnedFd) -> Result<Finished, SupervisorError> {
    let directory = supervisor::open_directory(&plan.workspace)?;
    // The socket hangs up when the host is gone.
    supervisor::run(command, directory.as_fd(), Streams::Inherit, Some(socket.as_fd()))
}

//! One command behind walls of its own (`zwinger run`): no executor, the cloned child is the first process of the namespace
//! and supervises the command itself.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, WaitOptions};
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, BackendError};
use crate::confinement::Confinement;
use crate::enforcement::Enforcement;
use crate::keeper::{receive, send};
use crate::plan::{Plan, Surroundings};
use crate::session::TemporaryDirectory;
use crate::supervisor::{self, Command, Finished, Streams, SupervisorError};
use crate::sys::{self, Cloned};
use crate::walls::{self, OwnIds, WallError, mounts};

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

/// Runs a command with this process's own streams, in walls that end with it. Must be called from a process with one thread.
///
/// # Errors
/// As [`RunError`] says; nothing ran unless it is [`RunError::Lost`].
pub fn run_once(
    backend: Backend,
    confinement: &Confinement,
    argv: Vec<std::ffi::OsString>,
) -> Result<(Finished, Enforcement), RunError> {
    let around = Surroundings::of(confinement);
    backend.probe(&around)?;
    let plan = backend.plan(confinement, &around);
    match attempt(&plan, confinement, argv.clone())? {
        Attempt::Finished(finished) => Ok((*finished, plan.enforcement)),
        Attempt::NotPermitted(reason) if plan.mounts.is_some() => {
            let temporary = TemporaryDirectory::create()?;
            let plan = backend.plan(confinement, &around.without_namespaces(reason, confinement, &temporary.0)?);
            match attempt(&plan, confinement, argv)? {
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

fn attempt(plan: &Plan, confinement: &Confinement, argv: Vec<std::ffi::OsString>) -> Result<Attempt, RunError> {
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
            sys::exit_now(inside(plan, &command, own_ids, &theirs))
        }
        Ok(Cloned::Parent(pid)) => {
            drop(theirs);
            // The keys of the terminal reach the command by themselves; we only wait for it.
            sys::ignore_terminal_signals();
            supervise(plan, pid, &ours)
        }
        Err(error) => {
            let error = WallError::at("enter new namespaces")(error);
            if error.not_permitted() {
                Ok(Attempt::NotPermitted(error.to_string()))
            } else {
                Err(RunError::Walls(error.to_string()))
            }
        }
    }
}

/// The host's side: maps ids for a root caller, then waits for the report.
fn supervise(plan: &Plan, child: Pid, socket: &OwnedFd) -> Result<Attempt, RunError> {
    let end = || {
        let _ = rustix::process::kill_process(child, Signal::KILL);
        let _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
    };
    loop {
        match receive::<Report>(socket.as_fd()) {
            Ok(Some((Report::Entered, _))) => {
                let mapped = walls::map_all_ids(child);
                if let Err(error) = mapped {
                    end();
                    return if error.not_permitted() {
                        Ok(Attempt::NotPermitted(error.to_string()))
                    } else {
                        Err(RunError::Walls(error.to_string()))
                    };
                }
                send(socket.as_fd(), &Report::Entered, &[])?;
            }
            // The kernel tears the namespaces down after this; nobody needs to wait for that.
            Ok(Some((Report::Finished(finished), _))) => return Ok(Attempt::Finished(finished)),
            Ok(Some((Report::Failed { text, not_permitted }, _))) => {
                end();
                return if not_permitted && plan.mounts.is_some() {
                    Ok(Attempt::NotPermitted(text))
                } else {
                    Err(RunError::Walls(text))
                };
            }
            Ok(Some((Report::Lost, _))) | Ok(None) => {
                end();
                return Err(RunError::Lost);
            }
            Err(error) => {
                end();
                return Err(error.into());
            }
        }
    }
}

/// The child's side: walls, then the command, then the report. Returns our exit status.
fn inside(plan: &Plan, command: &Command, own_ids: OwnIds, socket: &OwnedFd) -> i32 {
    let report = match raise(plan, own_ids, socket) {
        Err(error) => Report::Failed { not_permitted: error.not_permitted(), text: error.to_string() },
        Ok(()) => match run(plan, command, socket) {
            Ok(finished) => Report::Finished(Box::new(finished)),
            Err(SupervisorError::Lost) => Report::Lost,
            Err(SupervisorError::Start(error)) => Report::Failed { text: error.to_string(), not_permitted: false },
        },
    };
    i32::from(send(socket.as_fd(), &report, &[]).is_err())
}

fn raise(plan: &Plan, own_ids: OwnIds, socket: &OwnedFd) -> Result<(), WallError> {
    if plan.mounts.is_some() {
        // Without a process namespace our end would not be the command's: then the socket tells us of the host's.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(WallError::at("tie the child to zwinger"))?;
    }
    sys::close_on_exec_above_2().map_err(WallError::at("close inherited descriptors"))?;
    sys::reset_signals();
    if let Some(mounts) = &plan.mounts {
        if plan.root_caller {
            wait_for_maps(socket).map_err(WallError::at("map the ids"))?;
        } else {
            own_ids.map()?;
        }
        walls::settle_namespaces(plan)?;
        mounts::arrange(mounts)?;
        mounts::fresh_proc()?;
    }
    rustix::process::chdir(&*plan.workspace).map_err(WallError::at("enter the workspace"))?;
    if let Some(seal) = &plan.seal {
        walls::drop_capabilities(plan)?;
        walls::seal(seal)?;
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

//! The child's side: walls, then the command, then the report.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::process::Signal;

use super::{Namespaces, Order, Report, Task};
use crate::confinement::Limits;
use crate::keeper::{receive, send};
use crate::plan::Plan;
use crate::processors::Processors;
use crate::supervisor::{self, Command, Finished, Streams, SupervisorError};
use crate::sys;
use crate::walls::{self, OwnIds, Passed, PrivateNetwork, Processes, Tree, WallError};

/// Returns our exit status.
pub(super) fn inside(namespaces: Namespaces, own_ids: OwnIds, processors: Processors, socket: &OwnedFd) -> i32 {
    let mut kept = Vec::new();
    let mut passed = Passed::default();
    let begun = begin(namespaces, own_ids, processors, socket);
    let raised = begun.and_then(|begun| raise(begun, processors, socket, &mut kept, &mut passed));
    let is_watched = matches!(&raised, Ok(Some((.., what))) if what.watch);
    let report = match raised {
        Err(error) => Report::Failed { not_permitted: error.not_permitted(), text: error.to_string() },
        // The host has given it up.
        Ok(None) => return 0,
        Ok(Some((plan, argv, limits, _))) => match run(&plan, argv, limits, socket) {
            Ok(finished) => Report::Finished(Box::new(finished)),
            Err(SupervisorError::Lost(stopped)) => {
                if plan.mounts.is_none() {
                    supervisor::sweep();
                }
                Report::Lost(stopped)
            }
            Err(SupervisorError::Start(error)) => Report::Failed { text: error.to_string(), not_permitted: false },
        },
    };
    // Before zwinger ends, and others read on.
    drop(passed);
    let sent = send(socket.as_fd(), &report, &[]);
    if is_watched {
        // Until the host has closed its own; it reads the output to its end before.
        let _ = rustix::stdio::dup2_stdout(socket);
        let _ = rustix::stdio::dup2_stderr(socket);
        let _ = receive::<Order>(socket.as_fd());
    }
    i32::from(sent.is_err())
}

/// Walls as far as they need no order.
struct Begun {
    tree: Option<Tree>,
    network: Option<PrivateNetwork>,
}

/// What needs no order.
fn begin(
    namespaces: Namespaces,
    own_ids: OwnIds,
    processors: Processors,
    socket: &OwnedFd,
) -> Result<Begun, WallError> {
    match namespaces {
        // Without a process namespace our end would not be the command's: then the socket tells us of the host's.
        Namespaces::Own { .. } => rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(WallError::at("tie the child to zwinger"))?,
        Namespaces::Hosts => rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(WallError::at("adopt orphans"))?,
    }
    sys::close_on_exec_above_2().map_err(WallError::at("close inherited descriptors"))?;
    sys::reset_signals();
    no_directories().map_err(WallError::at("pass the streams through"))?;
    match namespaces {
        Namespaces::Own { network } => {
            let network = network.then(|| PrivateNetwork::begin(processors)).transpose()?;
            // Those that nobody else waits for.
            sys::unshare(sys::NEW_IPC | sys::NEW_UTS).map_err(WallError::refusable("enter new namespaces"))?;
            match own_ids.are_root() {
                true => wait_for_maps(socket).map_err(WallError::at("map the ids"))?,
                false => own_ids.map()?,
            }
            Ok(Begun { tree: Some(Tree::begin(Processes::Own)?), network })
        }
        Namespaces::Hosts => Ok(Begun { tree: None, network: None }),
    }
}

fn wait_for_maps(socket: &OwnedFd) -> io::Result<()> {
    match receive::<Order>(socket.as_fd())? {
        Some((Order::Mapped, _)) => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn raise(
    begun: Begun,
    processors: Processors,
    socket: &OwnedFd,
    kept: &mut Vec<OwnedFd>,
    passed: &mut Passed,
) -> Result<Option<Task>, WallError> {
    let received = receive::<Order>(socket.as_fd()).map_err(WallError::at("take the order"))?;
    let Some((Order::Run(mut order), mut ends)) = received else { return Ok(None) };
    processors.take_back();
    let (plan, _, _, what) = &mut *order;
    *kept = ends.split_off(ends.len().saturating_sub(usize::from(what.held) + usize::from(what.watch)));
    if let [stdout, stderr] = ends.as_slice() {
        // The command inherits these two; nobody else holds them when it ends.
        rustix::stdio::dup2_stdout(stdout).map_err(WallError::at("connect the output"))?;
        rustix::stdio::dup2_stderr(stderr).map_err(WallError::at("connect the output"))?;
    }
    drop(ends);
    if let Some(tree) = &begun.tree {
        *passed = tree.hold_streams(plan)?;
    }
    if let (Some(tree), Some(mounts)) = (begun.tree, &plan.mounts) {
        tree.complete(plan, mounts)?;
    }
    rustix::process::chdir(&*plan.workspace).map_err(WallError::at("enter the workspace"))?;
    if plan.urgent {
        // As far as it is permitted; the sweep works without it too, only later.
        let _ = sys::run_before_others();
    }
    if let Some(seal) = &plan.seal {
        walls::bound_capabilities(plan)?;
        walls::seal_files(seal)?;
    }
    // As late as can be: it takes longest to make.
    begun.network.map_or(Ok(()), PrivateNetwork::enter)?;
    if let Some(seal) = &plan.seal {
        walls::drop_capabilities(plan)?;
        walls::seal_calls(seal)?;
    }
    if what.watch {
        let workspace = supervisor::open_directory(Path::new(".")).map_err(WallError::at("enter the workspace"))?;
        send(socket.as_fd(), &Report::Raised, &[workspace.as_fd()])
            .map_err(WallError::at("tell that the walls stand"))?;
    }
    Ok(Some(*order))
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

fn run(plan: &Plan, argv: Vec<OsString>, limits: Limits, socket: &OwnedFd) -> Result<Finished, SupervisorError> {
    let directory = supervisor::open_directory(&plan.workspace)?;
    let command = Command {
        argv,
        environment: plan.environment.clone(),
        limits,
        tasks: plan.tasks,
        ipc_apart: plan.mounts.is_some(),
    };
    // The socket hangs up when the host is gone.
    supervisor::run(&command, directory.as_fd(), Streams::Inherit, Some(socket.as_fd()))
}

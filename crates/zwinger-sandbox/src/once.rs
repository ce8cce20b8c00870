//! One command behind walls of its own (`zwinger run`): no executor, the cloned child is the first process of the namespace
//! and supervises the command itself.

mod foreground;
mod inside;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};
use rustix::process::{Pid, WaitOptions};
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, BackendError};
use crate::confinement::{Confinement, Limits, Network};
use crate::end_signals::EndSignals;
use crate::enforcement::Enforcement;
use crate::keeper::{receive, send};
use crate::outputs::Outputs;
use crate::plan::{Plan, Surroundings};
use crate::processors::Processors;
use crate::supervisor::{self, Finished};
use crate::sys::{self, Cloned};
use crate::temporary::TemporaryDirectory;
use crate::walls::{self, OwnIds, WallError};
use crate::watch::{Inside, Watch};
use foreground::Foreground;

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

/// What the child is to do. Its output, where that is captured, comes as the message's descriptors.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    /// The ids are mapped (root callers map them from outside).
    Mapped,
    Run(Box<Task>),
}

/// [`Order::Run`], of what is elsewhere.
#[derive(Serialize)]
enum OrderOf<'a> {
    #[expect(dead_code, reason = "the order of the variants is the format")]
    Mapped,
    Run((&'a Plan, &'a [OsString], &'a Limits, Kept)),
}

/// The walls, what runs in them within which limits, and what the child keeps.
type Task = (Plan, Vec<OsString>, Limits, Kept);

/// Descriptors behind the outputs in the message, which the child has open to its end.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Kept {
    /// What the caller wants open for as long as anything of the command runs.
    held: bool,
    /// The watch of the host for what is replaced.
    watch: bool,
}

#[derive(Debug, Serialize, Deserialize)]
enum Report {
    /// The walls stand; with the workspace's mount inside. Said only where the host watches for what is replaced.
    Raised,
    Failed {
        text: String,
        not_permitted: bool,
    },
    Finished(Box<Finished>),
    Lost(Option<Box<Finished>>),
}

/// Where the output of the command goes. Its input is this process's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// To this process's own streams.
    Inherit,
    /// Into the result, cut as [`Limits::output`](crate::Limits) says.
    Capture,
}

/// Walls in the making: a child in namespaces of its own, which waits for what is to be in them.
///
/// Making a network namespace takes the kernel as long as all the rest, so the child begins with it while the caller still finds
/// out what the walls are to hold.
#[derive(Debug)]
pub struct Launch {
    backend: Backend,
    /// Or why this machine does not permit the namespaces.
    child: Result<Child, String>,
}

impl Launch {
    /// Starts. Must be called from a process with one thread.
    ///
    /// # Errors
    /// When no process can be started.
    pub fn begin(backend: Backend, network: Network) -> Result<Self, RunError> {
        // Who ignores SIGCHLD cannot wait for children, and hands that down.
        sys::wait_for_children_again();
        reap();
        let namespaces = match backend {
            Backend::Landlock => Namespaces::Own { network: network == Network::Off },
            Backend::None => Namespaces::Hosts,
        };
        Ok(Self { backend, child: Child::start(namespaces)? })
    }

    /// Runs a command in the walls, which end with it. Must be called from a process with one thread. The process that held them
    /// ends by itself and is waited for by the next [`Launch::begin`], as its end takes longer than many a command. `held` stays open
    /// for as long as anything of the command may run, also when the caller is killed. The first of `signals` stops the command as its
    /// time limit does, a second one at once.
    ///
    /// # Errors
    /// As [`RunError`] says; nothing ran unless it is [`RunError::Lost`].
    pub fn run(
        self,
        confinement: &Confinement,
        around: &Surroundings,
        argv: &[OsString],
        output: Output,
        held: Option<BorrowedFd<'_>>,
        signals: Option<&EndSignals>,
    ) -> Result<(Finished, Enforcement), RunError> {
        let plan = self.backend.plan(confinement, around)?;
        let attempt = match self.child {
            Ok(child) => child.bounded(around)?.run(&plan, confinement, argv, output, held, signals)?,
            Err(reason) => Attempt::NotPermitted(reason),
        };
        let reason = match attempt {
            Attempt::Finished(finished) => return Ok((*finished, plan.enforcement)),
            Attempt::NotPermitted(reason) if plan.mounts.is_some() => reason,
            Attempt::NotPermitted(text) => return Err(RunError::Walls(text)),
        };
        let temporary = TemporaryDirectory::create()?;
        let around = around.without_namespaces(reason, confinement, &temporary.0)?;
        let plan = self.backend.plan(confinement, &around)?;
        let attempt = match Child::start(Namespaces::Hosts)? {
            Ok(child) => child.bounded(&around)?.run(&plan, confinement, argv, output, held, signals)?,
            Err(reason) => Attempt::NotPermitted(reason),
        };
        match attempt {
            Attempt::Finished(finished) => Ok((*finished, plan.enforcement)),
            Attempt::NotPermitted(text) => Err(RunError::Walls(text)),
        }
    }
}

enum Attempt {
    Finished(Box<Finished>),
    NotPermitted(String),
}

/// The namespaces of a child.
#[derive(Debug, Clone, Copy)]
enum Namespaces {
    /// Of its own, perhaps with the network's.
    Own { network: bool },
    /// Those that we are in.
    Hosts,
}

/// The child, before it has its order. Ends with this.
#[derive(Debug)]
struct Child {
    pid: Pid,
    socket: OwnedFd,
    /// It has nothing inside any more, and ends by itself.
    finished: bool,
}

impl Child {
    /// `Err` inside: this machine does not permit the namespaces.
    fn start(namespaces: Namespaces) -> Result<Result<Self, String>, RunError> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(io::Error::from)?;
        let own_ids = OwnIds::read();
        let processors = Processors::read();
        let flags = match namespaces {
            Namespaces::Own { .. } => sys::NEW_USER | sys::NEW_PID | sys::NEW_MOUNT,
            Namespaces::Hosts => 0,
        };
        match sys::clone_process(flags) {
            Ok(Cloned::Child) => {
                drop(ours);
                sys::exit_now(inside::inside(namespaces, own_ids, processors, &theirs))
            }
            Ok(Cloned::Parent(pid)) => {
                let child = Self { pid, socket: ours, finished: false };
                processors.leave_ours_to_us(pid);
                match namespaces {
                    // The child waits for this with its mounts: until then it is nobody, and could make no file.
                    Namespaces::Own { .. } if own_ids.are_root() => match walls::map_all_ids(pid) {
                        Ok(()) => {
                            send(child.socket.as_fd(), &Order::Mapped, &[]).map(|()| Ok(child)).map_err(RunError::Io)
                        }
                        Err(error) => refused(error),
                    },
                    _ => Ok(Ok(child)),
                }
            }
            Err(error) => refused(WallError::refusable("enter new namespaces")(error)),
        }
    }

    /// In the cgroup of its own, where there is one.
    fn bounded(self, around: &Surroundings) -> io::Result<Self> {
        around.task_group().map_or(Ok(()), |group| group.admit(self.pid))?;
        Ok(self)
    }

    fn run(
        mut self,
        plan: &Plan,
        confinement: &Confinement,
        argv: &[OsString],
        output: Output,
        held: Option<BorrowedFd<'_>>,
        signals: Option<&EndSignals>,
    ) -> Result<Attempt, RunError> {
        let _terminal = (output == Output::Inherit).then(Foreground::ours);
        let begun = Instant::now();
        if let Some(signals) = signals
            && (signals.received().is_some() || signals.take()?.is_some())
        {
            return Ok(Attempt::Finished(Box::new(Finished::killed(begun.elapsed()))));
        }
        let (outputs, ends) = match output {
            Output::Inherit => (Outputs::none(), None),
            Output::Capture => {
                let (outputs, ends) = Outputs::pipes(confinement.limits.output)?;
                (outputs, Some(ends))
            }
        };
        let mut watch = match WatchedChild::of(plan, self.pid) {
            // The child has ended, and said why.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            watch => watch?,
        };
        let kept = Kept { held: held.is_some(), watch: watch.is_some() };
        let order = OrderOf::Run((plan, argv, &confinement.limits, kept));
        // The child closes the watch last: the kernel waits for milliseconds then (fsnotify_wait_marks_destroyed).
        let watching = watch.as_ref().map(|watch| watch.watch.as_fd());
        let fds: Vec<_> = ends.iter().flatten().map(AsFd::as_fd).chain(held).chain(watching).collect();
        match send(self.socket.as_fd(), &order, &fds) {
            // It has ended already, and said why.
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {}
            sent => sent?,
        }
        drop(ends);

        // The keys of the terminal reach the command by themselves; we only wait for it.
        sys::ignore_terminal_signals();
        let running = Running { plan, child: self.pid, socket: &self.socket, signals, begun };
        let attempt = running.supervise(outputs, watch.as_mut());
        // The kernel tears the namespaces down after this; nobody needs to wait for that.
        self.finished = matches!(attempt, Ok(Attempt::Finished(_)));
        attempt
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        match self.finished {
            true => ending().push(self.pid),
            false => supervisor::kill_tree(self.pid),
        }
    }
}

/// Children that have said their last and end by themselves; waited for when the next begins, when that takes no time any more.
static ENDING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn ending() -> MutexGuard<'static, Vec<Pid>> {
    ENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where it is one host that runs many.
fn reap() {
    ending().retain(|pid| matches!(rustix::process::waitpid(Some(*pid), WaitOptions::NOHANG), Ok(None)));
}

/// A machine that does not permit namespaces is answered with other walls; anything else is an error.
fn refused<T>(error: WallError) -> Result<Result<T, String>, RunError> {
    if error.not_permitted() { Ok(Err(error.to_string())) } else { Err(RunError::Walls(error.to_string())) }
}

/// The host's side of a child that has its order.
struct Running<'a> {
    plan: &'a Plan,
    child: Pid,
    socket: &'a OwnedFd,
    signals: Option<&'a EndSignals>,
    begun: Instant,
}

impl Running<'_> {
    /// Takes the output and waits for the report.
    fn supervise(&self, mut outputs: Outputs, watch: Option<&mut WatchedChild>) -> Result<Attempt, RunError> {
        let attempt = self.conduct(&mut outputs, watch);
        if let Ok(Attempt::Finished(mut finished)) = attempt {
            outputs.read_to_end()?;
            [finished.stdout, finished.stderr, finished.output] = outputs.finish();
            return Ok(Attempt::Finished(finished));
        }
        attempt
    }

    fn conduct(&self, outputs: &mut Outputs, mut watch: Option<&mut WatchedChild>) -> Result<Attempt, RunError> {
        let mut stopping = false;
        loop {
            let ready = self.wait(outputs, watch.as_deref())?;
            if let Some(watch) = &mut watch {
                watch.renew(self.plan)?;
            }
            if ready.signal && self.is_asked_to_end()? {
                if std::mem::replace(&mut stopping, true) {
                    return Ok(self.kill());
                }
                // What it supervises ends as if we had gone; but it still answers.
                rustix::net::shutdown(self.socket, Shutdown::Write).map_err(io::Error::from)?;
            }
            if !ready.socket {
                // Without a process namespace the command can do that to our child.
                if sys::is_stopped(self.child)? {
                    return Err(RunError::Lost);
                }
                continue;
            }
            match receive::<Report>(self.socket.as_fd())? {
                Some((Report::Raised, mut fds)) => {
                    if let Some(watch) = &mut watch {
                        watch.workspace = fds.pop();
                    }
                }
                Some((Report::Finished(finished), _)) => return Ok(Attempt::Finished(finished)),
                Some((Report::Failed { text, not_permitted: true }, _)) if self.plan.mounts.is_some() => {
                    return Ok(Attempt::NotPermitted(text));
                }
                Some((Report::Failed { text, .. }, _)) => return Err(RunError::Walls(text)),
                Some((Report::Lost(Some(stopped)), _)) => {
                    // Not swept by its supervisor in time; why it was stopped is known all the same.
                    supervisor::kill_tree(self.child);
                    return Ok(Attempt::Finished(stopped));
                }
                // Whoever ends all that we are part of (kill(2) of a group) has ended our child before it led a session.
                Some((Report::Lost(None), _)) | None if stopping || self.is_asked_to_end()? => return Ok(self.kill()),
                Some((Report::Lost(None), _)) | None => return Err(RunError::Lost),
            }
        }
    }

    fn is_asked_to_end(&self) -> io::Result<bool> {
        Ok(self.signals.map(EndSignals::take).transpose()?.flatten().is_some())
    }

    /// Nobody waits for a grace any more.
    fn kill(&self) -> Attempt {
        supervisor::kill_tree(self.child);
        Attempt::Finished(Box::new(Finished::killed(self.begun.elapsed())))
    }

    /// Takes output until the socket or a signal has something to say, or something was replaced, or a moment has passed.
    fn wait(&self, outputs: &mut Outputs, watch: Option<&WatchedChild>) -> io::Result<Ready> {
        let mut polled = vec![PollFd::new(self.socket, PollFlags::IN)];
        polled.extend(self.signals.map(|signals| PollFd::new(signals, PollFlags::IN)));
        polled.extend(watch.map(|watch| PollFd::new(&watch.watch, PollFlags::IN)));
        polled.extend(outputs.open().map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::IN)));
        let tick = Timespec { tv_sec: supervisor::TICK.as_secs().cast_signed(), tv_nsec: 0 };
        match rustix::event::poll(&mut polled, Some(&tick)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut ready = polled.iter().map(|fd| !fd.revents().is_empty());
        let socket = ready.next() == Some(true);
        let signal = self.signals.is_some() && ready.next() == Some(true);
        if watch.is_some() {
            ready.next();
        }
        let pipes: Vec<usize> = ready.enumerate().filter(|(_, ready)| *ready).map(|(index, _)| index).collect();
        outputs.read(&pipes)?;
        Ok(Ready { socket, signal })
    }
}

/// Who has something to say.
struct Ready {
    socket: bool,
    signal: bool,
}

/// What the host may replace, and the child that is to see nothing of it.
struct WatchedChild {
    watch: Watch,
    inside: Inside,
    /// The workspace's mount inside, when the walls stand: before, what the child mounts is what is there.
    workspace: Option<OwnedFd>,
    replaced: bool,
}

impl WatchedChild {
    fn of(plan: &Plan, child: Pid) -> io::Result<Option<Self>> {
        let watched = |watch| Ok(Self { watch, inside: Inside::of(child)?, workspace: None, replaced: false });
        Watch::of(plan)?.map(watched).transpose()
    }

    fn renew(&mut self, plan: &Plan) -> Result<(), RunError> {
        self.replaced |= self.watch.was_replaced()?;
        if let Some(workspace) = &self.workspace
            && std::mem::take(&mut self.replaced)
        {
            self.inside.renew(plan, workspace.as_fd()).map_err(|error| RunError::Walls(error.to_string()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::Signal;

    use super::*;

    #[test]
    #[expect(clippy::zombie_processes, reason = "that they are waited for is what is tried")]
    fn who_ended_is_reaped_and_who_did_not_is_kept() {
        let start = |seconds: &str| {
            let child = std::process::Command::new("sleep").arg(seconds).spawn().unwrap();
            Pid::from_child(&child)
        };
        let (ended, runs) = (start("0"), start("600"));
        ending().extend([ended, runs]);
        while ending().contains(&ended) {
            reap();
        }
        assert_eq!(ending().clone(), [runs]);
        assert_eq!(rustix::process::waitpid(Some(ended), WaitOptions::NOHANG).err(), Some(rustix::io::Errno::CHILD));
        rustix::process::kill_process(runs, Signal::KILL).unwrap();
        while !ending().is_empty() {
            reap();
        }
    }
}

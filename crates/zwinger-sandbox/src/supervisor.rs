//! One command from start to the proof that nothing of it is left.
//!
//! The proof: one process adopts every orphan of the command (`reaper.rs`), so every living descendant has a chain of parents that
//! ends at it, setsid(2) and double forks included; when its wait(2) says ECHILD the tree is empty.

mod reaper;
mod rlimits;
mod shared_memory;
mod tally;
mod tree;
mod watch;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::{Pid, Signal, WaitOptions};
use serde::{Deserialize, Serialize};

use crate::capture::Captured;
use crate::confinement::Limits;
use crate::exec::{Exec, ExecParts};
pub use crate::outputs::Live;
use crate::outputs::Outputs;
use reaper::Reaper;
pub(crate) use rlimits::behind;
use tree::Freeze;
pub use watch::LimitHit;
use watch::Watch;

/// How long the pipes are read on after a command has ended, while something that it left still holds them.
const DRAIN: Duration = Duration::from_secs(1);
/// How often it is looked whether the supervisor itself was stopped.
pub(crate) const TICK: Duration = Duration::from_secs(1);
/// Passes over a tree that goes on growing while it is killed.
const PASSES: usize = 100;
/// How long a SIGKILL sweep may take before the whole session is given up.
const SWEEP: Duration = Duration::from_secs(1);

/// A command to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Command {
    /// Program and arguments; a program without `/` is looked up in the absolute entries of PATH.
    pub argv: Vec<OsString>,
    /// All its variables.
    pub environment: Vec<(OsString, OsString)>,
    /// Its bounds.
    pub limits: Limits,
    /// A ceiling on the tasks of the session, where RLIMIT_NPROC counts for it alone.
    pub tasks: Option<u64>,
    /// Whether System V memory is the session's own, and counts as the command's.
    pub ipc_apart: bool,
}

/// Where its streams go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// To those of this process, terminal included (`zwinger run`). The calling process leaves its terminal, and has no other
    /// child.
    Inherit,
    /// Empty input, captured output, no terminal.
    Capture,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// By itself, with this exit status.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// exec(2) failed with this errno.
    NotStarted(i32),
}

impl End {
    /// The exit status that a shell would show: 126 not executable, 127 not found, 128 + N killed by signal N.
    pub fn exit_code(self) -> i32 {
        match self {
            Self::Exited(code) => code,
            Self::Signalled(signal) => 128 + signal,
            Self::NotStarted(libc::ENOENT | libc::ENOTDIR) => 127,
            Self::NotStarted(_) => 126,
        }
    }
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// How it ended.
    pub end: End,
    /// Whether the time limit ended it.
    pub timed_out: bool,
    /// Whether it was stopped from outside.
    pub cancelled: bool,
    /// The limit other than time that it was stopped at.
    pub limit: Option<LimitHit>,
    /// A limit that it was seen at and ended by itself, so that something in it was refused.
    pub reached: Option<LimitHit>,
    /// Processes that it left running and that were stopped.
    pub leftovers: usize,
    /// Its standard output.
    pub stdout: Captured,
    /// Its standard error.
    pub stderr: Captured,
    /// Both in the order in which they arrived.
    pub output: Captured,
    /// From start to the end of its tree.
    pub duration: Duration,
}

impl Finished {
    /// The exit status to show: 124 when the time limit ended it, 137 (as after SIGKILL) when another limit did, else
    /// [`End::exit_code`].
    pub fn exit_code(&self) -> i32 {
        match (self.timed_out, self.limit) {
            (true, _) => 124,
            (false, Some(_)) => End::Signalled(libc::SIGKILL).exit_code(),
            (false, None) => self.end.exit_code(),
        }
    }

    /// Of one that was killed from outside, with its supervisor.
    pub(crate) fn killed(duration: Duration) -> Self {
        Self {
            end: End::Signalled(libc::SIGKILL),
            timed_out: false,
            cancelled: true,
            limit: None,
            reached: None,
            leftovers: 0,
            stdout: Captured::default(),
            stderr: Captured::default(),
            output: Captured::default(),
            duration,
        }
    }
}

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// It could not be started.
    #[error("cannot start the command: {0}")]
    Start(#[from] io::Error),
    /// Its supervisor was killed or its tree did not die: the session's whole process namespace must end.
    #[error("the command's supervisor was lost")]
    Lost(
        /// What is known, when it was being stopped at a limit or from outside.
        Option<Box<Finished>>,
    ),
}

/// Runs a command in `directory` to the end of its whole tree. Readiness or hang-up of `cancel` stops it.
///
/// # Errors
/// [`SupervisorError::Lost`] when the tree could not be proven empty; the caller must end its process namespace.
pub fn run(
    command: &Command,
    directory: BorrowedFd<'_>,
    streams: Streams,
    cancel: Option<BorrowedFd<'_>>,
) -> Result<Finished, SupervisorError> {
    run_watched(command, directory, streams, cancel, None)
}

/// As [`run`], and tells `live` of captured output as it arrives. What `live` takes its time for, the command waits for.
///
/// # Errors
/// As [`run`].
pub fn run_watched(
    command: &Command,
    directory: BorrowedFd<'_>,
    streams: Streams,
    cancel: Option<BorrowedFd<'_>>,
    live: Option<Live>,
) -> Result<Finished, SupervisorError> {
    let (stdio, outputs) = match streams {
        Streams::Inherit => (inherited()?, Outputs::none()),
        Streams::Capture => captured(command.limits.output)?,
    };
    let outputs = outputs.watched_by(live);
    let exec = Exec::new(ExecParts {
        argv: &command.argv,
        environment: &command.environment,
        directory: above_2(directory)?,
        stdio,
        new_session: streams == Streams::Capture,
        limits: rlimits::of(command),
    })?;
    let started = Instant::now();
    let reaper = match streams == Streams::Inherit && rustix::process::getpid().is_init() {
        true => Reaper::here(exec)?,
        false => Reaper::apart(exec)?,
    };
    if streams == Streams::Inherit {
        // The command keeps the terminal. In another session than it we have a share of the processor of our own (sched(7), the
        // autogroup feature), however many processes it has; other commands have a session of their own already.
        let _ = rustix::process::setsid();
    }
    Supervision::new(command, reaper, outputs, started).conduct(cancel)
}

/// The supervisor's end of the descriptors of a running command.
struct Supervision<'a> {
    command: &'a Command,
    reaper: Reaper,
    started: Instant,
    end: Option<End>,
    timed_out: bool,
    cancelled: bool,
    limit: Option<LimitHit>,
    watch: Watch,
    freeze: Freeze,
    leftovers: usize,
    outputs: Outputs,
}

/// Why the tree is being ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The command runs.
    Running,
    /// It ended; what it left gets until this moment.
    Draining(Instant),
    /// SIGTERM was sent to the tree.
    Terminating(Instant),
    /// SIGKILL is being sent to whatever appears.
    Sweeping(Instant),
}

impl<'a> Supervision<'a> {
    fn new(command: &'a Command, reaper: Reaper, outputs: Outputs, started: Instant) -> Self {
        Self {
            command,
            reaper,
            started,
            end: None,
            timed_out: false,
            cancelled: false,
            limit: None,
            watch: Watch::new(started, command),
            freeze: Freeze::default(),
            leftovers: 0,
            outputs,
        }
    }

    fn conduct(mut self, cancel: Option<BorrowedFd<'_>>) -> Result<Finished, SupervisorError> {
        let deadline = self.command.limits.time.and_then(|time| self.started.checked_add(time));
        let mut phase = Phase::Running;
        loop {
            let until = match phase {
                Phase::Running => deadline.map_or(self.watch.next(), |deadline| deadline.min(self.watch.next())),
                Phase::Draining(until) | Phase::Terminating(until) => until.min(self.watch.next()),
                // Between two passes of the sweep.
                Phase::Sweeping(until) => until.min(Instant::now() + Duration::from_millis(1)),
            };
            let until = until.min(Instant::now() + TICK);
            let ready = self.wait(cancel.filter(|_| phase == Phase::Running), until)?;
            let over = ready.reaper && self.hear()?;
            self.outputs.read(&ready.pipes)?;
            if over {
                break;
            }
            if self.reaper.is_stopped()? {
                return Err(self.lost());
            }
            let now = Instant::now();
            phase = match phase {
                Phase::Running if ready.cancel => {
                    self.cancelled = true;
                    self.terminate(now)
                }
                Phase::Running if self.end.is_some() => Phase::Draining(now + DRAIN),
                Phase::Running if deadline.is_some_and(|deadline| now >= deadline) => {
                    self.timed_out = true;
                    self.terminate(now)
                }
                Phase::Draining(until) if now >= until => {
                    self.leftovers = tree::count(self.reaper.top());
                    self.terminate(now)
                }
                Phase::Terminating(until) if now >= until => self.begin_sweep(),
                Phase::Sweeping(until) if now >= until => return Err(self.lost()),
                Phase::Sweeping(_) => {
                    self.sweep();
                    phase
                }
                unchanged => match self.watch.look(self.reaper.top(), &self.command.limits) {
                    Some(hit) => {
                        // What is being ended anyway is not named twice.
                        self.limit = Some(hit).filter(|_| !self.timed_out && !self.cancelled);
                        self.begin_sweep()
                    }
                    None => unchanged,
                },
            };
        }
        let emptied = self.reaper.saw_nothing_left()? || matches!(self.end, Some(End::NotStarted(_)));
        let (true, Some(end)) = (emptied, self.end) else { return Err(self.lost()) };
        // Everything that held the pipes is gone, so this ends at their end of file.
        self.outputs.read_to_end()?;
        Ok(self.finish(end))
    }

    fn finish(self, end: End) -> Finished {
        let Self { timed_out, cancelled, limit, leftovers, .. } = self;
        let is_its_own = !timed_out && !cancelled && limit.is_none();
        // getrlimit(2), RLIMIT_FSIZE.
        let file = self.command.limits.memory.filter(|_| end == End::Signalled(libc::SIGXFSZ)).map(LimitHit::File);
        let reached = file.or(self.watch.reached(&self.command.limits)).filter(|_| is_its_own);
        let [stdout, stderr, output] = self.outputs.finish();
        let duration = self.started.elapsed();
        Finished { end, timed_out, cancelled, limit, reached, leftovers, stdout, stderr, output, duration }
    }

    /// The tree cannot be proven empty, so the caller must end more than it. That we were stopping it, and why, stays known.
    fn lost(self) -> SupervisorError {
        let stopping = self.timed_out || self.cancelled || self.limit.is_some();
        let stopped = stopping.then(|| self.finish(End::Signalled(libc::SIGKILL)));
        SupervisorError::Lost(stopped.map(Box::new))
    }

    fn wait(&self, cancel: Option<BorrowedFd<'_>>, until: Instant) -> io::Result<Ready> {
        let left = until.saturating_duration_since(Instant::now());
        let timeout =
            Timespec { tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() };
        let mut polled: Vec<_> = self.reaper.fds().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let of_reaper = polled.len();
        polled.extend(cancel.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        polled.extend(self.outputs.open().map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::IN)));
        match rustix::event::poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut ready = polled.iter().map(|fd| !fd.revents().is_empty());
        // Not `any`, which leaves what comes after the first.
        let reaper = ready.by_ref().take(of_reaper).filter(|ready| *ready).count() > 0;
        Ok(Ready {
            reaper,
            cancel: cancel.is_some() && ready.next().unwrap_or(false),
            pipes: ready.enumerate().filter(|(_, ready)| *ready).map(|(index, _)| index).collect(),
        })
    }

    /// Hears what the reaper has to say. `true`: it has nothing more to wait for.
    fn hear(&mut self) -> io::Result<bool> {
        let news = self.reaper.look()?;
        self.end = self.end.or(news.end);
        Ok(news.over)
    }

    fn terminate(&self, now: Instant) -> Phase {
        tree::signal(self.reaper.top(), Signal::TERM);
        Phase::Terminating(now + self.command.limits.grace)
    }

    fn begin_sweep(&mut self) -> Phase {
        self.sweep();
        Phase::Sweeping(Instant::now() + SWEEP)
    }

    fn sweep(&mut self) {
        self.freeze.pass(self.reaper.top());
    }
}

struct Ready {
    reaper: bool,
    cancel: bool,
    pipes: Vec<usize>,
}

/// Kills everything below this process, which is the subreaper of all of it, until wait(2) says that nothing is left.
pub(crate) fn sweep() {
    let mut freeze = Freeze::default();
    loop {
        freeze.pass(rustix::process::getpid());
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                // Somebody's end; there may be more.
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Kills a child and everything below it, as far as it can be seen: for a child that does not do so itself any more.
pub(crate) fn kill_tree(child: Pid) {
    let mut freeze = Freeze::default();
    for _ in 0..PASSES {
        if tree::count(child) == 0 {
            break;
        }
        freeze.pass(child);
    }
    let _ = rustix::process::kill_process(child, Signal::KILL);
    let _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
}

/// A copy above 2, so that arranging the child's streams overwrites none of the sources.
fn above_2(fd: impl AsFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 3)?)
}

fn inherited() -> io::Result<[OwnedFd; 3]> {
    let stdio = [above_2(rustix::stdio::stdin()), above_2(rustix::stdio::stdout()), above_2(rustix::stdio::stderr())];
    let [stdin, stdout, stderr] = stdio;
    Ok([stdin?, stdout?, stderr?])
}

fn captured(limit: usize) -> io::Result<([OwnedFd; 3], Outputs)> {
    let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let (outputs, [stdout, stderr]) = Outputs::pipes(limit)?;
    Ok(([above_2(null)?, above_2(stdout)?, above_2(stderr)?], outputs))
}

/// Opens the directory that commands start in.
///
/// # Errors
/// When it does not exist or is no directory.
pub fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

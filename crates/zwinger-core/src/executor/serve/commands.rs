//! Commands: a thread and a supervisor each, so that one can be stopped, cut or lost without the others. Threads are kept, for a
//! new one costs more than all else that is done here.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use zwinger_sandbox::supervisor::{self, Command, Finished, Streams, SupervisorError};
use zwinger_sandbox::{HostPath, Limits, Plan, Root};

use super::live::Meter;
use super::{Answers, lock};
use crate::executor::wire::{Refusal, Response};

/// Commands at once; more are refused by name, so that a flood of requests cannot exhaust threads.
const MAX_COMMANDS: usize = 64;

/// What [`crate::executor::wire::Request::Run`] asks for.
pub(super) struct Order {
    pub(super) argv: Vec<OsString>,
    pub(super) limits: Limits,
    pub(super) directory: HostPath,
    pub(super) read_only: bool,
    pub(super) live: bool,
}

pub(super) struct Commands {
    queue: Sender<Job>,
    workers: Arc<Workers>,
    threads: Vec<JoinHandle<()>>,
}

/// A command that is to run, and the end of a pipe whose hang-up stops it.
type Job = (u64, Order, OwnedFd);

struct Workers {
    plan: Plan,
    root: Root,
    answers: Answers,
    queue: Mutex<Receiver<Job>>,
    /// The write ends of those pipes, of every command that has not ended.
    running: Mutex<HashMap<u64, Option<OwnedFd>>>,
}

impl Commands {
    pub(super) fn new(plan: Plan, answers: Answers) -> io::Result<Self> {
        let root = Root::open_ambient(&plan.workspace)?;
        let (queue, jobs) = mpsc::channel();
        let workers = Workers { plan, root, answers, queue: Mutex::new(jobs), running: Mutex::default() };
        Ok(Self { queue, workers: Arc::new(workers), threads: Vec::new() })
    }

    /// Runs a command and answers with its end, in time.
    pub(super) fn start(&mut self, id: u64, order: Order) {
        let running = lock(&self.workers.running).len();
        if running >= MAX_COMMANDS {
            let refusal = Refusal::Other(format!("{MAX_COMMANDS} commands already run"));
            return self.workers.answers.send(id, Response::Refused(refusal));
        }
        if let Err(error) = self.try_start(id, order, running) {
            // Another command may have taken every task that there is.
            self.workers.answers.send(id, Response::Refused(Refusal::Other(error.to_string())));
        }
    }

    fn try_start(&mut self, id: u64, order: Order, running: usize) -> io::Result<()> {
        let (cancelled, cancel) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        if running >= self.threads.len() {
            let workers = self.workers.clone();
            self.threads.push(std::thread::Builder::new().name("command".into()).spawn(move || workers.serve())?);
        }
        lock(&self.workers.running).insert(id, Some(cancel));
        self.queue.send((id, order, cancelled)).map_err(io::Error::other)
    }

    pub(super) fn cancel(&self, id: u64) {
        // Closing it hangs up the supervisor's end. The place stays taken until the command has ended.
        if let Some(cancel) = lock(&self.workers.running).get_mut(&id) {
            *cancel = None;
        }
    }

    /// Stops all of them and waits for their end.
    pub(super) fn end(self) {
        let Self { queue, workers, threads } = self;
        drop(queue);
        lock(&workers.running).values_mut().for_each(|cancel| *cancel = None);
        for thread in threads {
            let _ = thread.join();
        }
    }
}

enum Ended {
    Refused(Refusal),
    Lost(Option<Box<Finished>>),
}

impl From<SupervisorError> for Ended {
    fn from(error: SupervisorError) -> Self {
        match error {
            SupervisorError::Start(error) => Self::Refused(Refusal::Other(error.to_string())),
            SupervisorError::Lost(stopped) => Self::Lost(stopped),
        }
    }
}

impl Workers {
    fn serve(&self) {
        loop {
            let next = lock(&self.queue).recv();
            let Ok((id, order, cancelled)) = next else { return };
            let result = self.run(id, order, &cancelled);
            lock(&self.running).remove(&id);
            match result {
                Ok(finished) => self.answers.send(id, Response::Finished(Box::new(finished))),
                Err(Ended::Refused(refusal)) => self.answers.send(id, Response::Refused(refusal)),
                // Something escaped its supervisor: only the end of the whole namespace is sure to reach it.
                Err(Ended::Lost(stopped)) => {
                    if let Some(stopped) = stopped {
                        self.answers.send(id, Response::EndedWith(stopped));
                    }
                    zwinger_sandbox::abandon()
                }
            }
        }
    }

    fn run(&self, id: u64, order: Order, cancelled: &OwnedFd) -> Result<Finished, Ended> {
        let Order { argv, limits, directory, read_only, live } = order;
        let directory = super::directory(&self.root, &directory).map_err(Ended::Refused)?;
        let environment = self.plan.environment.clone();
        let mut command =
            Command { argv, environment, limits, tasks: self.plan.tasks, ipc_apart: self.plan.mounts.is_some() };
        let live = live.then(|| Meter::new(id, self.answers.clone()).into_live());
        let supervise = |command: &Command| {
            supervisor::run_watched(command, directory.as_fd(), Streams::Capture, Some(cancelled.as_fd()), live)
        };
        if !read_only {
            return Ok(supervise(&command)?);
        }
        let ended = zwinger_sandbox::read_only(self.plan.seal.as_ref(), |temporary| {
            let variables = command.environment.iter_mut().filter(|(name, _)| name == "TMPDIR");
            variables.for_each(|(_, value)| *value = temporary.into());
            supervise(&command)
        });
        let refusal = |error| Refusal::NotPermitted(format!("the read-only wall cannot be built: {error}"));
        Ok(ended.map_err(|error| Ended::Refused(refusal(error)))??)
    }
}

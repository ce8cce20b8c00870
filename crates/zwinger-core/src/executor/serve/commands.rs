//! Commands: a thread and a supervisor each, so that one can be stopped, cut or lost without the others.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
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
    place: Arc<Place>,
    answers: Answers,
    running: Running,
    threads: Vec<JoinHandle<()>>,
}

/// Where all of them run.
struct Place {
    plan: Plan,
    root: Root,
}

/// The write ends of the pipes whose reading makes a command stop.
#[derive(Clone, Default)]
struct Running(Arc<Mutex<HashMap<u64, OwnedFd>>>);

impl Commands {
    pub(super) fn new(plan: Plan, answers: Answers) -> io::Result<Self> {
        let root = Root::open_ambient(&plan.workspace)?;
        let place = Arc::new(Place { plan, root });
        Ok(Self { place, answers, running: Running::default(), threads: Vec::new() })
    }

    /// Runs a command and answers with its end, in time.
    pub(super) fn start(&mut self, id: u64, order: Order) {
        self.threads.retain(|thread| !thread.is_finished());
        if self.threads.len() >= MAX_COMMANDS {
            let refusal = Refusal::Other(format!("{MAX_COMMANDS} commands already run"));
            return self.answers.send(id, Response::Refused(refusal));
        }
        match self.try_start(id, order) {
            Ok(thread) => self.threads.push(thread),
            Err(error) => {
                // Another command may have taken every task that there is.
                lock(&self.running.0).remove(&id);
                self.answers.send(id, Response::Refused(Refusal::Other(error.to_string())));
            }
        }
    }

    fn try_start(&self, id: u64, order: Order) -> io::Result<JoinHandle<()>> {
        let (cancelled, cancel) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        lock(&self.running.0).insert(id, cancel);
        let (place, answers, running) = (self.place.clone(), self.answers.clone(), self.running.clone());
        std::thread::Builder::new().name("command".into()).spawn(move || {
            let result = place.run(id, order, &cancelled, &answers);
            lock(&running.0).remove(&id);
            match result {
                Ok(finished) => answers.send(id, Response::Finished(Box::new(finished))),
                Err(Ended::Refused(refusal)) => answers.send(id, Response::Refused(refusal)),
                // Something escaped its supervisor: only the end of the whole namespace is sure to reach it.
                Err(Ended::Lost(stopped)) => {
                    if let Some(stopped) = stopped {
                        answers.send(id, Response::EndedWith(stopped));
                    }
                    zwinger_sandbox::abandon()
                }
            }
        })
    }

    pub(super) fn cancel(&self, id: u64) {
        // Closing it hangs up the supervisor's end.
        lock(&self.running.0).remove(&id);
    }

    /// Stops all of them and waits for their end.
    pub(super) fn end(self) {
        lock(&self.running.0).clear();
        for thread in self.threads {
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

impl Place {
    fn run(&self, id: u64, order: Order, cancelled: &OwnedFd, answers: &Answers) -> Result<Finished, Ended> {
        let Order { argv, limits, directory, read_only, live } = order;
        let directory = super::directory(&self.root, &directory).map_err(Ended::Refused)?;
        let environment = self.plan.environment.clone();
        let mut command = Command { argv, environment, limits, tasks: self.plan.tasks };
        let live = live.then(|| Meter::new(id, answers.clone()).into_live());
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

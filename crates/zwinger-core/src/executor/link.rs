//! The host's end of a running executor: who waits for which answer, and who is told when it ends.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use zwinger_sandbox::{ExecutorLink, HostPath, Plan, SessionError};

use super::jobs::Job;
use super::lock;
use super::wire::{self, Envelope, Request, Response};
use crate::error::Failed;

/// What someone who waits is told.
#[derive(Debug)]
pub(super) enum Heard {
    /// By the executor.
    Answer(Response),
    /// It ended; the other calls that were lost with it.
    Lost(Vec<String>),
    /// By the caller: its command is to be stopped.
    Cancelled,
}

/// Someone who waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) tell: Tell,
    /// The call, for people.
    pub(super) what: String,
    /// Where something may be left of it when the executor is killed.
    pub(super) directory: Option<HostPath>,
}

/// How to tell them.
#[derive(Debug)]
pub(super) enum Tell {
    /// The thread of a call, which waits.
    Call(Sender<Heard>),
    /// A command that nobody waits for.
    Job(Arc<Job>),
}

impl Tell {
    fn send(&self, heard: Heard) {
        match self {
            // Nobody is a call that was given up.
            Self::Call(waiter) => drop(waiter.send(heard)),
            Self::Job(job) => job.hear(heard),
        }
    }
}

/// By the number of the request; closed (`None`) when the executor is gone.
type Waiting = Arc<Mutex<Option<HashMap<u64, Waiter>>>>;

#[derive(Debug)]
pub(super) struct Link {
    requests: Arc<Mutex<File>>,
    waiting: Waiting,
    /// Whether it said that it ends: the next request must not go to it, though it may not have ended yet.
    ending: Arc<AtomicBool>,
    /// Reads the answers to their end, and gives the directories of the writes that were lost.
    answers: JoinHandle<Vec<HostPath>>,
    _ends: ExecutorLink,
}

impl Link {
    /// Greets an executor that was just started.
    pub(super) fn greet(mut ends: ExecutorLink, plan: &Plan, unfinished: Vec<HostPath>) -> Result<Self, SessionError> {
        let (mut requests, mut responses) = ends.take_streams()?;
        let settle = Request::Settle { version: wire::VERSION, plan: Box::new(plan.clone()), unfinished };
        wire::write(&mut requests, &Envelope { id: 0, message: settle })?;
        match wire::read::<Response>(&mut responses)? {
            Some(Envelope { id: 0, message: Response::Settled }) => {}
            _ => {
                return Err(SessionError::Walls("the executor could not put its own walls on".into()));
            }
        }
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let ending = Arc::new(AtomicBool::new(false));
        let (told, ends_soon) = (waiting.clone(), ending.clone());
        let answers = std::thread::Builder::new().name("answers".into());
        let answers = answers.spawn(move || distribute(responses, &told, &ends_soon))?;
        Ok(Self { requests: Arc::new(Mutex::new(requests)), waiting, ending, answers, _ends: ends })
    }

    /// Whether it may be asked something.
    pub(super) fn serves(&self) -> bool {
        !self.ending.load(Ordering::Acquire) && lock(&self.waiting).is_some()
    }

    /// Lets someone wait, and gives the stream for the request; `None` when the executor is gone.
    pub(super) fn expect(&self, id: u64, waiter: Waiter) -> Option<Arc<Mutex<File>>> {
        lock(&self.waiting).as_mut()?.insert(id, waiter);
        Some(self.requests.clone())
    }

    /// Whether that stream leads here.
    pub(super) fn has(&self, requests: &Arc<Mutex<File>>) -> bool {
        Arc::ptr_eq(&self.requests, requests)
    }

    /// Everyone who waited was told; gives the directories of the writes that were lost. To be called when it was ended.
    pub(super) fn finish(self) -> Vec<HostPath> {
        self.answers.join().unwrap_or_default()
    }
}

/// Sends one request.
///
/// # Errors
/// When it is too large. A broken pipe is the executor's end, of which everyone who waits hears.
pub(super) fn send(requests: &Mutex<File>, id: u64, message: Request) -> Result<(), Failed> {
    match wire::write(&mut *lock(requests), &Envelope { id, message }) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(Failed(error.to_string())),
        Err(_) | Ok(()) => Ok(()),
    }
}

fn distribute(mut responses: File, waiting: &Waiting, ending: &AtomicBool) -> Vec<HostPath> {
    while let Ok(Some(Envelope { id, message })) = wire::read::<Response>(&mut responses) {
        if matches!(message, Response::EndedWith(_)) {
            ending.store(true, Ordering::Release);
        }
        if let Some(waiting) = lock(waiting).as_mut() {
            match message {
                Response::Live { .. } => waiting.get(&id).map(|waiter| waiter.tell.send(Heard::Answer(message))),
                _ => waiting.remove(&id).map(|waiter| waiter.tell.send(Heard::Answer(message))),
            };
        }
    }
    let lost = lock(waiting).take().unwrap_or_default();
    for (id, waiter) in &lost {
        let others = lost.iter().filter(|(other, _)| *other != id).map(|(_, waiter)| waiter.what.clone()).collect();
        waiter.tell.send(Heard::Lost(others));
    }
    lost.into_values().filter_map(|waiter| waiter.directory).collect()
}

//! Commands in the background: started by one call, looked at and stopped by later ones, ended with the session.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use zwinger_sandbox::supervisor::Finished;
use zwinger_sandbox::{Capture, Captured, incomplete_end};

use super::link::{self, Heard};
use super::wire::{Request, Response};
use super::{explain, lock, lost};
use crate::error::Failed;

/// At once, those that have ended and that nobody looked at included: what they printed is kept. With those that are waited for,
/// fewer than an executor takes.
const MOST: usize = 16;
/// Bytes of output that wait for the next look.
const UNREAD: usize = 256 << 10;
/// How long a start waits for the first word: a server that cannot take its port says so at once.
const FIRST_WORD: Duration = Duration::from_millis(250);

/// Names a job within its session: 1, 2, …
pub type JobId = u64;

#[derive(Debug, Default)]
pub(super) struct Jobs(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    last: JobId,
    jobs: BTreeMap<JobId, Arc<Job>>,
}

/// One of them, as far as it was heard of.
#[derive(Debug)]
pub(super) struct Job {
    begun: Instant,
    heard: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    unread: Capture,
    /// Whether every byte of output since the start came, so that what is unread is all that nobody has seen.
    followed: bool,
    received: u64,
    ended: bool,
    /// How it ended, until that was told.
    end: Option<Result<Box<Finished>, Failed>>,
    /// Where to order its stop: the number of its request, and the stream of its executor.
    order: Option<(u64, Weak<Mutex<File>>)>,
}

/// What a look at a job shows. Hostile, as all that comes from inside.
#[derive(Debug)]
pub(crate) enum Report {
    /// It runs.
    Runs {
        /// Its output since the last look.
        output: Captured,
        /// Since its start.
        elapsed: Duration,
    },
    /// It has ended, and is forgotten.
    Ended {
        /// Its output since the last look; `None` where a part of that did not come: then what its end kept is shown.
        output: Option<Captured>,
        /// How.
        finished: Box<Finished>,
    },
}

impl Jobs {
    /// Names a new one, which is then to be ordered.
    pub(super) fn begin(&self) -> Result<(JobId, Arc<Job>), Failed> {
        let mut known = lock(&self.0);
        if known.jobs.len() >= MOST {
            let ended = known.jobs.iter().find(|(_, job)| !job.runs()).map(|(id, _)| *id);
            let oldest = ended.ok_or_else(|| {
                Failed(format!("{MOST} commands already run in the background; end one with job_stop."))
            })?;
            known.jobs.remove(&oldest);
        }
        known.last += 1;
        let (id, job) = (known.last, Arc::new(Job::new()));
        known.jobs.insert(id, job.clone());
        Ok((id, job))
    }

    /// What is new of it after the first moments of its life.
    pub(super) fn first_look(&self, id: JobId, job: &Job) -> Result<Report, Failed> {
        job.wait(FIRST_WORD, |state| state.ended || state.received > 0);
        self.report(id, job)
    }

    /// What is new of it.
    pub(super) fn look(&self, id: JobId) -> Result<Report, Failed> {
        self.report(id, &*self.find(id)?)
    }

    /// Stops it with all that it started, and waits for its end.
    pub(super) fn stop(&self, id: JobId, patience: Duration) -> Result<Report, Failed> {
        let job = self.find(id)?;
        // Not under its lock, which whoever reads the answers takes: a full pipe would hold up both.
        let order = lock(&job.heard).order.clone();
        if let (Some((request, requests)), true) = (order, job.runs()) {
            // Gone is its executor, and it with that.
            let _ = requests.upgrade().map(|requests| link::send(&requests, request, Request::Cancel { id: request }));
            if !job.wait(patience, |state| state.ended) {
                return Err(Failed(format!("job {id} did not end in time; it ends with the session.")));
            }
        }
        self.report(id, &job)
    }

    pub(super) fn forget(&self, id: JobId) {
        lock(&self.0).jobs.remove(&id);
    }

    fn find(&self, id: JobId) -> Result<Arc<Job>, Failed> {
        let known = lock(&self.0);
        known.jobs.get(&id).cloned().ok_or_else(|| {
            let ids: Vec<_> = known.jobs.keys().map(ToString::to_string).collect();
            Failed(match ids.is_empty() {
                true => format!("there is no job {id}, nor any other."),
                false => format!("there is no job {id}; there are: {}.", ids.join(", ")),
            })
        })
    }

    fn report(&self, id: JobId, job: &Job) -> Result<Report, Failed> {
        let mut state = lock(&job.heard);
        let mut output = std::mem::replace(&mut state.unread, Capture::new(UNREAD)).finish();
        if !state.ended {
            // The rest of a character is still to come.
            let last = if output.dropped == 0 { &mut output.head } else { &mut output.tail };
            let begun = last.split_off(last.len() - incomplete_end(last));
            state.unread.push(&begun);
            return Ok(Report::Runs { output, elapsed: job.begun.elapsed() });
        }
        let end = state.end.take();
        let followed = state.followed;
        drop(state);
        self.forget(id);
        let end = end.ok_or_else(|| Failed(format!("job {id} has ended; another call was told how.")))?;
        let finished = end.map_err(|Failed(text)| Failed(format!("job {id}: {text}")))?;
        Ok(Report::Ended { output: followed.then_some(output), finished })
    }
}

impl Job {
    fn new() -> Self {
        let state =
            State { unread: Capture::new(UNREAD), followed: true, received: 0, ended: false, end: None, order: None };
        Self { begun: Instant::now(), heard: Mutex::new(state), changed: Condvar::new() }
    }

    /// It was ordered by this request.
    pub(super) fn ordered(&self, request: u64, requests: &Arc<Mutex<File>>) {
        lock(&self.heard).order = Some((request, Arc::downgrade(requests)));
    }

    /// Takes what the executor says of it.
    pub(super) fn hear(&self, heard: Heard) {
        let mut state = lock(&self.heard);
        match heard {
            Heard::Answer(Response::Live { bytes, skipped }) => {
                state.received += bytes.len() as u64;
                state.followed &= skipped == 0;
                state.unread.push(&bytes);
            }
            Heard::Answer(Response::Finished(finished) | Response::EndedWith(finished)) => {
                state.followed &= finished.output.kept() as u64 + finished.output.dropped == state.received;
                state.end = Some(Ok(finished));
            }
            Heard::Answer(Response::Refused(refusal)) => state.end = Some(Err(Failed(explain(&refusal)))),
            Heard::Answer(_) => state.end = Some(Err(super::other_than_asked())),
            Heard::Lost(others) => state.end = Some(Err(lost(&others))),
            // Its own call is over; job_stop orders its end.
            Heard::Cancelled => return,
        }
        state.ended = state.end.is_some();
        self.changed.notify_all();
    }

    fn runs(&self) -> bool {
        !lock(&self.heard).ended
    }

    /// Whether that came to be in time.
    fn wait(&self, patience: Duration, until: impl Fn(&State) -> bool) -> bool {
        let wait = self.changed.wait_timeout_while(lock(&self.heard), patience, |state| !until(state));
        let (state, _) = wait.unwrap_or_else(PoisonError::into_inner);
        until(&state)
    }
}

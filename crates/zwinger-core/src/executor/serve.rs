//! The executor's side: a synchronous loop inside the walls. Files are served by one thread that is sealed to the workspace
//! once more, each command by a thread of its own.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use zwinger_sandbox::supervisor::{self, Command, Streams, SupervisorError};
use zwinger_sandbox::{HostPath, Limits, Plan, Root};

use super::files;
use super::wire::{self, Envelope, Refusal, Request, Response, VERSION};

/// Commands at once; more are refused by name, so that a flood of requests cannot exhaust threads.
const MAX_COMMANDS: usize = 64;

/// The executor's whole life. Called by the binary when it was started as [`zwinger_sandbox::EXECUTOR`].
pub fn main() -> ! {
    let status = match zwinger_sandbox::take_streams().and_then(|(requests, responses)| serve(requests, responses)) {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(io::stderr(), "zwinger: the executor ended: {error}");
            1
        }
    };
    std::process::exit(status)
}

fn serve(mut requests: File, responses: File) -> io::Result<()> {
    let greeting: Option<Envelope<Request>> = wire::read(&mut requests)?;
    let Some(Envelope { message: Request::Settle { version: VERSION, plan }, .. }) = greeting else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the host speaks another version"));
    };
    if let Some(seal) = &plan.seal {
        zwinger_sandbox::seal(seal).map_err(io::Error::other)?;
    }
    let answers = Answers(Arc::new(Mutex::new(responses)));
    let files = serve_files(&plan, answers.clone())?;
    let commands = Commands { plan: Arc::new(*plan), answers: answers.clone(), running: Running::default() };
    answers.send(0, Response::Settled);
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while let Some(Envelope { id, message }) = wire::read(&mut requests)? {
        threads.retain(|thread| !thread.is_finished());
        match message {
            Request::Run { .. } if threads.len() >= MAX_COMMANDS => {
                answers.send(id, Response::Refused(Refusal::Other(format!("{MAX_COMMANDS} commands already run"))));
            }
            Request::Run { argv, limits } => match commands.start(id, argv, limits) {
                Ok(thread) => threads.push(thread),
                // Another command may have taken every task that there is.
                Err(error) => answers.send(id, Response::Refused(Refusal::Other(error.to_string()))),
            },
            Request::Cancel { id } => commands.running.cancel(id),
            Request::Settle { .. } => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "greeted twice"));
            }
            file => {
                let _ = files.send((id, file));
            }
        }
    }
    // The host is gone: nothing of it may go on.
    commands.running.cancel_all();
    for thread in threads {
        let _ = thread.join();
    }
    Ok(())
}

#[derive(Clone)]
struct Answers(Arc<Mutex<File>>);

impl Answers {
    fn send(&self, id: u64, message: Response) {
        let mut stream = lock(&self.0);
        // A broken pipe is the host's end, which the reading side sees too. Too large an answer is told as such.
        if let Err(error) = wire::write(&mut *stream, &Envelope { id, message }) {
            let refusal = Response::Refused(Refusal::Other(error.to_string()));
            let _ = wire::write(&mut *stream, &Envelope { id, message: refusal });
        }
    }
}

type FileRequests = Sender<(u64, Request)>;

fn serve_files(plan: &Plan, answers: Answers) -> io::Result<FileRequests> {
    let root = Root::open_ambient(&plan.workspace)?;
    // What cannot be made relative lies outside, where no path leads.
    let below = |secret: &HostPath| Some(secret.strip_prefix(&*plan.workspace).ok()?.to_path_buf());
    let secrets: Vec<PathBuf> = plan.secrets.iter().filter_map(below).collect();
    let rules = plan.seal.as_ref().map(|seal| seal.file_tools.clone());
    let (send, requests): (FileRequests, Receiver<(u64, Request)>) = mpsc::channel();
    let (sealed, is_sealed) = mpsc::channel();
    std::thread::Builder::new().name("files".into()).spawn(move || {
        let seal = rules.map_or(Ok(()), |rules| zwinger_sandbox::seal_thread(&rules));
        let failed = seal.is_err();
        let _ = sealed.send(seal.map_err(io::Error::other));
        if failed {
            return;
        }
        for (id, request) in requests {
            answers.send(id, files::answer(&root, &secrets, request));
        }
    })?;
    is_sealed.recv().map_err(io::Error::other)??;
    Ok(send)
}

/// The write ends of the pipes whose reading makes a command stop.
#[derive(Clone, Default)]
struct Running(Arc<Mutex<HashMap<u64, OwnedFd>>>);

impl Running {
    fn cancel(&self, id: u64) {
        // Closing it hangs up the supervisor's end.
        lock(&self.0).remove(&id);
    }

    fn cancel_all(&self) {
        lock(&self.0).clear();
    }
}

struct Commands {
    plan: Arc<Plan>,
    answers: Answers,
    running: Running,
}

impl Commands {
    fn start(&self, id: u64, argv: Vec<std::ffi::OsString>, limits: Limits) -> io::Result<JoinHandle<()>> {
        let (cancelled, cancel) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        lock(&self.running.0).insert(id, cancel);
        let (plan, answers, running) = (self.plan.clone(), self.answers.clone(), self.running.clone());
        let ipc_apart = plan.mounts.is_some();
        let command = Command { argv, environment: plan.environment.clone(), limits, tasks: plan.tasks, ipc_apart };
        let started = std::thread::Builder::new().name("command".into()).spawn(move || {
            let directory = supervisor::open_directory(&plan.workspace);
            let result = directory.map_err(SupervisorError::from).and_then(|directory| {
                supervisor::run(&command, directory.as_fd(), Streams::Capture, Some(cancelled.as_fd()))
            });
            lock(&running.0).remove(&id);
            match result {
                Ok(finished) => answers.send(id, Response::Finished(Box::new(finished))),
                Err(SupervisorError::Start(error)) => {
                    answers.send(id, Response::Refused(Refusal::Other(error.to_string())));
                }
                // Something escaped its supervisor: only the end of the whole namespace is sure to reach it.
                Err(SupervisorError::Lost(stopped)) => {
                    if let Some(stopped) = stopped {
                        answers.send(id, Response::EndedWith(stopped));
                    }
                    zwinger_sandbox::abandon()
                }
            }
        });
        if started.is_err() {
            lock(&self.running.0).remove(&id);
        }
        started
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while the lock was held leaves plain data that is still whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

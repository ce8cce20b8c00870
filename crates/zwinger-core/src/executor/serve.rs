//! The executor's side: a synchronous loop inside the walls. Files are served by a few threads that are sealed to the workspace
//! once more, each command by a thread of its own.

mod commands;
mod live;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zwinger_sandbox::{HostPath, Plan, Root, Rule};

use super::files;
use super::wire::{self, Envelope, Request, Response, VERSION};
use commands::Commands;

/// Threads for files at most: a slow read does not hold up the others, and no flood of requests exhausts threads.
const FILE_THREADS: usize = 4;

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
    let Some(Envelope { message: Request::Settle { version: VERSION, plan, unfinished }, .. }) = greeting else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the host speaks another version"));
    };
    if let Some(seal) = &plan.seal {
        zwinger_sandbox::seal(seal).map_err(io::Error::other)?;
    }
    let answers = Answers(Arc::new(Mutex::new(responses)));
    let mut files = Files::begin(&plan, &unfinished, answers.clone())?;
    let mut commands = Commands::new(*plan, answers.clone())?;
    answers.send(0, Response::Settled);
    while let Some(Envelope { id, message }) = wire::read(&mut requests)? {
        match message {
            Request::Run { argv, limits, directory, read_only, live } => {
                commands.start(id, commands::Order { argv, limits, directory, read_only, live });
            }
            Request::Cancel { id } => commands.cancel(id),
            Request::Settle { .. } => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "greeted twice"));
            }
            file => files.take(id, file),
        }
    }
    // The host is gone: nothing of it may go on.
    commands.end();
    Ok(())
}

#[derive(Clone)]
struct Answers(Arc<Mutex<File>>);

impl Answers {
    fn send(&self, id: u64, message: Response) {
        let mut stream = lock(&self.0);
        // A broken pipe is the host's end, which the reading side sees too. Too large an answer is told as such.
        if let Err(error) = wire::write(&mut *stream, &Envelope { id, message }) {
            let refusal = Response::Refused(wire::Refusal::Other(error.to_string()));
            let _ = wire::write(&mut *stream, &Envelope { id, message: refusal });
        }
    }
}

/// The threads for files, of which there are more only when all of them work.
struct Files {
    queue: Sender<(u64, Request)>,
    server: Arc<FileServer>,
    threads: usize,
}

struct FileServer {
    place: files::Place,
    rules: Option<Vec<Rule>>,
    queue: Mutex<Receiver<(u64, Request)>>,
    /// Requests that were taken and not answered yet.
    open: AtomicUsize,
    answers: Answers,
}

impl Files {
    fn begin(plan: &Plan, unfinished: &[HostPath], answers: Answers) -> io::Result<Self> {
        let place = files::Place::of(plan)?;
        let rules = plan.seal.as_ref().map(|seal| seal.file_tools.clone());
        let (queue, requests) = mpsc::channel();
        let server = FileServer { place, rules, queue: Mutex::new(requests), open: AtomicUsize::new(0), answers };
        let mut files = Self { queue, server: Arc::new(server), threads: 0 };
        let (sealed, is_sealed) = mpsc::channel();
        let unfinished = unfinished.to_vec();
        files.start(move |server, seal| {
            let held = seal.is_ok();
            let _ = sealed.send(seal);
            if held {
                unfinished.iter().for_each(|directory| server.place.root.sweep(directory));
            }
            held
        })?;
        is_sealed.recv().map_err(io::Error::other)??;
        Ok(files)
    }

    fn take(&mut self, id: u64, request: Request) {
        let open = self.server.open.fetch_add(1, Ordering::Relaxed);
        if open >= self.threads && self.threads < FILE_THREADS {
            // Without another thread the present ones serve it.
            let _ = self.start(|_, seal| seal.is_ok());
        }
        let _ = self.queue.send((id, request));
    }

    /// Starts a thread that serves when `begin`, which is told whether its walls hold, says so.
    fn start(&mut self, begin: impl FnOnce(&FileServer, io::Result<()>) -> bool + Send + 'static) -> io::Result<()> {
        let server = self.server.clone();
        std::thread::Builder::new().name("files".into()).spawn(move || {
            let rules = server.rules.as_deref();
            let seal = rules.map_or(Ok(()), |rules| zwinger_sandbox::seal_thread(rules).map_err(io::Error::other));
            if begin(&server, seal) {
                server.serve();
            }
        })?;
        self.threads += 1;
        Ok(())
    }
}

impl FileServer {
    fn serve(&self) {
        loop {
            let next = lock(&self.queue).recv();
            let Ok((id, request)) = next else { return };
            self.answers.send(id, files::answer(&self.place, request));
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Opens the directory that a command starts in: nobody's path leads it out of the workspace.
fn directory(root: &Root, path: &Path) -> Result<std::os::fd::OwnedFd, wire::Refusal> {
    root.open_directory(path).map_err(files::refusal)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while the lock was held leaves plain data that is still whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! A live executor, spoken to in raw frames: what the kernel refuses when nothing of the library stands in front.

mod executor;
mod race;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use zwinger_core::executor::wire::{self, Envelope, Refusal, Request, Response};
use zwinger_core::sandbox::supervisor::{End, Finished};
use zwinger_core::sandbox::{Backend, Confinement, ExecutorLink, Limits, Session, Surroundings};

use crate::scratch::{self, Scratch, ZWINGER, list, read_text};

const BACKENDS: [Backend; 2] = [Backend::Landlock, Backend::None];

/// An executor and the host's ends of its pipes.
struct Live {
    requests: File,
    responses: File,
    next: u64,
    link: ExecutorLink,
    session: Session,
}

impl Live {
    fn open(scratch: &Scratch, backend: Backend) -> Self {
        let confinement = Confinement::new(&scratch.work, Some(&scratch.home)).unwrap();
        let mut session =
            Session::open(Path::new(ZWINGER), backend, &confinement, &Surroundings::of(&confinement), None).unwrap();
        let mut link = session.start_executor().unwrap();
        let (requests, responses) = link.take_streams().unwrap();
        let plan = Box::new(session.plan().clone());
        let mut live = Self { requests, responses, next: 0, link, session };
        let settled = live.ask(Request::Settle { version: wire::VERSION, plan, unfinished: Vec::new() });
        assert!(matches!(settled, Response::Settled), "{settled:?}");
        live
    }

    /// Sends a request and gives its number.
    fn send(&mut self, message: Request) -> u64 {
        let id = self.next;
        self.next += 1;
        wire::write(&mut self.requests, &Envelope { id, message }).unwrap();
        id
    }

    fn receive(&mut self) -> Envelope<Response> {
        wire::read(&mut self.responses).unwrap().expect("an answer")
    }

    fn ask(&mut self, message: Request) -> Response {
        let id = self.send(message);
        let answer = self.receive();
        assert_eq!(answer.id, id);
        answer.message
    }

    fn run(&mut self, script: &str) -> Finished {
        match self.ask(command(script)) {
            Response::Finished(finished) => *finished,
            other => panic!("{other:?}"),
        }
    }
}

fn command(script: &str) -> Request {
    let argv = ["/bin/sh", "-c", script].map(std::ffi::OsString::from).into();
    let limits = Limits { time: Some(Duration::from_secs(60)), output: 1 << 16, ..Limits::default() };
    Request::Run { argv, limits, directory: ".".into(), read_only: false, live: false }
}

fn read(path: &str) -> Request {
    Request::Read { path: path.into(), offset: 1, lines: 1000, bytes: 1 << 16 }
}

fn write(path: &str) -> Request {
    Request::Write { path: path.into(), content: b"x".to_vec(), base: None }
}

#[test]
fn g13_the_keeper_hides_again_what_the_host_replaces() {
    let scratch = Scratch::new();
    if !scratch.caller.has_namespaces() {
        return crate::caller::skipped(
            "walls::g13_the_keeper_hides_again_what_the_host_replaces",
            "no user namespaces",
        );
    }
    scratch::write(scratch.work.join(".env"), "old");
    let mut live = Live::open(&scratch, Backend::Landlock);
    // Root may open what covers it; there is nothing in it.
    assert_ne!(live.run("grep . .env").end, End::Exited(0));
    scratch::write(scratch.work.join("new"), "new");
    scratch::rename(scratch.work.join("new"), scratch.work.join(".env"));
    // The cover comes a moment after the file.
    let finished =
        live.run("i=0; while grep . .env && [ $i -lt 1000 ]; do sleep 0.01; i=$((i + 1)); done; [ $i -lt 1000 ]");
    assert_eq!(finished.end, End::Exited(0));
    // Root may open what covers it; there is nothing in it.
    assert_ne!(live.run("grep . .env").end, End::Exited(0));
}

/// Everything that a file request can name a way out with, refused whatever the library in front would have said.
fn refused_for_every_way(request: fn(&str) -> Request) {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        scratch.plant();
        let planted = list(&scratch.work);
        let mut live = Live::open(&scratch, backend);
        for way in scratch.ways_out() {
            let answer = live.ask(request(&way));
            assert!(matches!(answer, Response::Refused(_)), "{backend} {way} {answer:?}");
        }
        for path in ["", "a\0b", "/", ".."] {
            let answer = live.ask(request(path));
            assert!(matches!(answer, Response::Refused(_)), "{backend} {path:?} {answer:?}");
        }
        scratch.assert_out_untouched();
        assert_eq!(list(&scratch.work), planted);
    }
}

#[test]
fn a01_raw_reads_are_refused() {
    refused_for_every_way(read);
    for backend in BACKENDS {
        let scratch = Scratch::new();
        scratch.plant();
        let mut live = Live::open(&scratch, backend);
        // By name, so that it is not an accident of the path.
        for (path, expected) in [
            ("../work-evil/marker", Refusal::Outside),
            ("chain-1/marker", Refusal::Outside),
            ("/etc/hostname", Refusal::Outside),
            ("magic-link/etc/hostname", Refusal::Outside),
            ("fifo", Refusal::Special("FIFO".into())),
            ("missing", Refusal::NotFound(None)),
        ] {
            let Response::Refused(refusal) = live.ask(read(path)) else { panic!("{path} was read") };
            assert_eq!(refusal, expected, "{path}");
        }
        let answer = live.ask(read("sub/inside.txt"));
        assert!(matches!(&answer, Response::Read { content, .. } if content == b"inside\n"), "{answer:?}");
    }
}

#[test]
fn a01_raw_listings_are_refused() {
    refused_for_every_way(|path| Request::List { path: path.into(), depth: 1 });
}

#[test]
fn a01_raw_places_to_start_in_are_refused() {
    refused_for_every_way(|path| Request::Directory { path: path.into() });
    refused_for_every_way(|path| match command("echo x > $OLDPWD/made; echo x > made") {
        Request::Run { argv, limits, .. } => {
            Request::Run { argv, limits, directory: path.into(), read_only: false, live: false }
        }
        other => other,
    });
}

#[test]
fn a02_raw_looks_before_a_write_are_refused() {
    refused_for_every_way(|path| Request::Inspect { path: path.into(), existing: false });
}

#[test]
fn a04_raw_writes_are_refused() {
    refused_for_every_way(write);
    for backend in BACKENDS {
        let scratch = Scratch::new();
        let mut live = Live::open(&scratch, backend);
        assert!(matches!(live.ask(write("new")), Response::Written));
        assert_eq!(read_text(scratch.work.join("new")), "x");
        // Somebody made it meanwhile: the request said that nothing is there.
        assert!(matches!(live.ask(write("new")), Response::Refused(Refusal::Changed)));
    }
}

#[test]
fn a28_raw_commands_are_held_by_the_kernel() {
    let scratch = Scratch::new();
    scratch.plant();
    let out = scratch.out.display();
    // The paths of the file tools, and others.
    let leads_out = |way: &String| {
        !way.contains("fifo") && way != "dangling-link" && !way.contains("device") && !way.ends_with("made")
    };
    let of_tools = scratch.ways_out().into_iter().filter(leads_out).map(|way| format!("cat {way}"));
    let ways: Vec<String> = of_tools
        .chain([
            format!("cat {out}/marker"),
            "cat ../work-evil/marker".into(),
            "cat chain-1/marker".into(),
            "cat /proc/self/root$PWD/../work-evil/marker".into(),
            "cat $HOME/private".into(),
            format!("echo x > {out}/f"),
            "echo x > ../work-evil/f".into(),
            "echo x > absolute-link/f".into(),
            format!("rm {out}/marker"),
            "ls ../work-evil/".into(),
        ])
        .collect();
    let mut live = Live::open(&scratch, Backend::Landlock);
    for way in &ways {
        let finished = live.run(way);
        assert!(matches!(finished.end, End::Exited(code) if code != 0), "{way} {finished:?}");
        assert!(!String::from_utf8_lossy(&finished.output.joined()).contains(&scratch.secret), "{way}");
        scratch.assert_out_untouched();
    }
    assert_eq!(live.run("echo x > new && cat new").output.joined(), b"x\n");
    // The same commands succeed where nothing holds them.
    let mut bare = Live::open(&scratch, Backend::None);
    for way in ways.iter().filter(|way| !way.contains("HOME")) {
        assert_eq!(bare.run(way).end, End::Exited(0), "{way}");
        crate::scratch::write(scratch.out.join("marker"), &scratch.secret);
    }
    assert_eq!(read_text(scratch.out.join("f")), "x\n");
}

#[test]
fn a_host_that_speaks_another_language_is_not_served() {
    let scratch = Scratch::new();
    for backend in BACKENDS {
        let confinement = Confinement::new(&scratch.work, Some(&scratch.home)).unwrap();
        let mut session =
            Session::open(Path::new(ZWINGER), backend, &confinement, &Surroundings::of(&confinement), None).unwrap();
        for greeting in [
            // Nothing is served before the walls are put on.
            read("sub/inside.txt"),
            command("touch made"),
            Request::Settle {
                version: wire::VERSION + 1,
                plan: Box::new(session.plan().clone()),
                unfinished: Vec::new(),
            },
        ] {
            let mut link = session.start_executor().unwrap();
            let (mut requests, mut responses) = link.take_streams().unwrap();
            wire::write(&mut requests, &Envelope { id: 0, message: greeting }).unwrap();
            assert!(wire::read::<Response>(&mut responses).unwrap().is_none());
        }
    }
    assert_eq!(list(&scratch.work), ["sub"]);
}

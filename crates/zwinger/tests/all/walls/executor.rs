//! The life of an executor and of what it started.

use rustix::process::{Pid, Signal};
use serde_json::json;
use zwinger_core::executor::wire::{Refusal, Request, Response};
use zwinger_core::sandbox::supervisor::End;
use zwinger_core::sandbox::{Backend, EXECUTOR};

use super::{BACKENDS, Live, command};
use crate::library::{self, always};
use crate::process::{Tag, arguments, is_foreign_pid_namespace, parent};
use crate::scratch::Scratch;
use zwinger_core::{Call, Decision};

/// The executor above a process, and the supervisor between them.
fn above(process: Pid) -> (Pid, Pid) {
    let mut below = process;
    let mut pid = parent(process).expect("a parent");
    loop {
        let above = parent(pid).expect("an executor above");
        // A supervisor shares the executor's memory, so it has the same arguments: the upper of both is the executor.
        if arguments(pid).starts_with(EXECUTOR) && !arguments(above).starts_with(EXECUTOR) {
            return (pid, below);
        }
        below = pid;
        pid = above;
    }
}

#[test]
fn each_command_has_its_own_supervisor() {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        let (one, other) = (Tag::new(), Tag::new());
        let mut live = Live::open(&scratch, backend);
        let first = live.send(command(&format!("setsid sleep {0} & sleep {0}; true", one.0)));
        let second = live.send(command(&format!("sleep {}; true", other.0)));
        let (of_one, of_other) = (one.wait_for(2), other.wait_for(1));
        let supervisors: Vec<_> = of_one.iter().chain(&of_other).map(|pid| above(*pid)).collect();
        let [a, b, c] = supervisors.as_slice() else { panic!() };
        assert_eq!(a, b);
        assert!(a.0 == c.0 && a.1 != c.1, "one executor, two supervisors: {supervisors:?}");
        live.send(Request::Cancel { id: first });
        let answer = live.receive();
        assert_eq!(answer.id, first);
        assert!(matches!(&answer.message, Response::Finished(finished) if finished.cancelled), "{answer:?}");
        one.assert_gone();
        assert_eq!(other.asleep(), of_other, "the other one goes on");
        live.send(Request::Cancel { id: second });
        assert_eq!(live.receive().id, second);
        other.assert_gone();
        // And it still serves.
        assert_eq!(live.run("exit 7").end, End::Exited(7));
    }
}

#[test]
fn i01_a_server_ends_with_its_command() {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        let tag = Tag::new();
        let mut live = Live::open(&scratch, backend);
        let finished = live.run(&format!("setsid setsid sleep {} >/dev/null 2>&1 & echo started", tag.0));
        assert_eq!((finished.end, finished.leftovers), (End::Exited(0), 1), "{finished:?}");
        assert_eq!(finished.output.joined(), b"started\n");
        assert!(tag.all().is_empty(), "the answer came before the end of what it speaks of");
    }
}

#[test]
fn a_host_that_goes_leaves_nothing() {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        let tag = Tag::new();
        let mut live = Live::open(&scratch, backend);
        live.send(command(&format!("setsid setsid sleep {0} & sleep {0}; true", tag.0)));
        let executor = tag.wait_for(2).first().map(|pid| above(*pid).0).unwrap();
        drop(live);
        tag.assert_gone();
        crate::process::until("the end of the executor", || arguments(executor).is_empty().then_some(()));
    }
}

#[test]
fn a_new_executor_ends_the_old_one() {
    let scratch = Scratch::new();
    let tag = Tag::new();
    let mut live = Live::open(&scratch, Backend::Landlock);
    live.send(command(&format!("sleep {}; true", tag.0)));
    tag.wait_for(1);
    live.link = live.session.start_executor().unwrap();
    tag.assert_gone();
}

#[test]
fn too_many_commands_at_once_are_refused_by_name() {
    let scratch = Scratch::new();
    let tag = Tag::new();
    let mut live = Live::open(&scratch, Backend::Landlock);
    for _ in 0..64 {
        live.send(command(&format!("exec sleep {}", tag.0)));
    }
    let refused = live.send(command("true"));
    let answer = live.receive();
    assert_eq!(answer.id, refused);
    let says = matches!(&answer.message, Response::Refused(Refusal::Other(text)) if text.contains("64"));
    assert!(says, "{answer:?}");
    drop(live);
    tag.assert_gone();
}

/// Through the library: the call that met the death fails, the next one finds a new executor in the same walls.
#[test]
fn a_killed_executor_is_started_again() {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        let runtime = library::open(&scratch, backend, always(Decision::Once));
        let tag = Tag::new();
        let sleep = Call::new("run_command", json!({"command": format!("sleep {}; true", tag.0)}));
        let outcome = std::thread::scope(|scope| {
            let call = scope.spawn(|| runtime.call(&sleep));
            let executor = tag.wait_for(1).first().map(|pid| above(*pid).0).unwrap();
            rustix::process::kill_process(executor, Signal::KILL).unwrap();
            call.join().unwrap()
        });
        let error = outcome.error.unwrap_or_default();
        assert!(!outcome.success && error.starts_with("Error: the executor ended"), "{error}");
        tag.assert_gone();
        let next = runtime.call(&Call::new("run_command", json!({"command": "cat sub/inside.txt"})));
        assert_eq!((next.success, next.output.as_str()), (true, "inside\n"), "{backend} {:?}", next.error);
        assert!(!runtime.call(&Call::new("read_file", json!({"path": "../work-evil/marker"}))).success);
        let outside = format!("cat {}/marker", scratch.out.display());
        let held = runtime.call(&Call::new("run_command", json!({"command": outside})));
        assert_eq!(held.success, backend == Backend::None, "the new one has the walls of the old one");
    }
}

#[test]
fn i20_a_command_that_kills_everything_costs_one_call() {
    let scratch = Scratch::new();
    if !scratch.caller.has_namespaces() {
        let name = concat!(module_path!(), "::i20_a_command_that_kills_everything_costs_one_call");
        return crate::caller::skipped(name, "no user namespaces here");
    }
    let runtime = library::open(&scratch, Backend::Landlock, always(Decision::Once));
    let pids = runtime.call(&Call::new("run_command", json!({"command": "readlink /proc/self/ns/pid"}))).output;
    assert!(is_foreign_pid_namespace(&pids), "it would reach the machine: {pids}");
    let tag = Tag::new();
    let kill = format!("sleep {0} & kill -9 -1; exec sleep {0}", tag.0);
    let outcome = runtime.call(&Call::new("run_command", json!({"command": kill})));
    assert!(!outcome.success, "{outcome:?}");
    tag.assert_gone();
    let next = runtime.call(&Call::new("run_command", json!({"command": "kill -9 1; echo fine"})));
    assert_eq!((next.success, next.output.as_str()), (true, "fine\n"));
}

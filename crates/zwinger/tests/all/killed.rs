//! The host or the executor killed while a file is written: the old content or the new one, never half, and nothing left of it.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use zwinger_core::sandbox::Backend;
use zwinger_core::{Call, Decision};

use crate::library::{always, open};
use crate::process::{executor_of_this_process, until};
use crate::scratch::{Scratch, list, open as open_file, read_text, write};

/// Of each of the two.
const KILLS: usize = 100;
/// Bytes of a file, so that writing takes its time.
const SIZE: usize = 1 << 18;

fn content(number: usize) -> String {
    format!("{number:07}\n").repeat(SIZE / 8)
}

/// Whether it is one of the contents that were written, as a whole.
fn is_whole(text: &str) -> bool {
    text.len() == SIZE
        && text.get(..7).and_then(|number| number.parse().ok()).is_some_and(|number| text == content(number))
}

fn unfinished(scratch: &Scratch) -> Vec<String> {
    let all = list(&scratch.work).into_iter().chain(list(&scratch.work.join("sub")));
    all.filter(|name| name.starts_with(".zwinger-")).collect()
}

/// Some part of `whole`, another one each time.
fn some_of(whole: Duration) -> Duration {
    let mut random = [0_u8; 4];
    rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty()).unwrap();
    whole.mul_f64(f64::from(u32::from_ne_bytes(random)) / f64::from(u32::MAX))
}

#[test]
fn an_executor_killed_in_a_write_leaves_no_half_file() {
    an_executor_is_killed(Backend::Landlock);
}

#[test]
fn an_executor_without_walls_killed_in_a_write_leaves_no_half_file() {
    an_executor_is_killed(Backend::None);
}

fn an_executor_is_killed(backend: Backend) {
    let scratch = Scratch::new();
    // One question, so that the time goes into writing.
    let runtime = open(&scratch, backend, always(Decision::Session));
    let put =
        |number: usize| runtime.call(&Call::new("write_file", json!({"path": "sub/f", "content": content(number)})));
    assert!(put(0).success);
    let start = Instant::now();
    assert!(put(0).success);
    let one_write = start.elapsed();
    let mut lost = 0;
    for number in 1..=KILLS {
        let executor = executor_of_this_process().unwrap();
        let outcome = std::thread::scope(|scope| {
            let write = scope.spawn(|| put(number));
            std::thread::sleep(some_of(one_write));
            rustix::process::kill_process(executor, Signal::KILL).unwrap();
            write.join().unwrap()
        });
        lost += usize::from(!outcome.success);
        assert!(is_whole(&read_text(scratch.work.join("sub/f"))), "after {number} kills");
        // The next call may meet the death too, if it came after the write.
        let read = || runtime.call(&Call::new("read_file", json!({"path": "sub/inside.txt"}))).success;
        until("an executor that answers", || read().then_some(()));
        assert_eq!(unfinished(&scratch), Vec::<String>::new(), "after {number} kills");
    }
    assert!(lost > 0, "no kill met a write");
}

#[test]
fn a_host_killed_in_a_write_leaves_no_half_file() {
    a_host_is_killed("landlock");
}

#[test]
fn a_host_without_walls_killed_in_a_write_leaves_no_half_file() {
    a_host_is_killed("none");
}

fn a_host_is_killed(backend: &str) {
    let scratch = Scratch::new();
    let path = scratch.work.join("sub/f");
    let arguments = |number: usize| {
        // By standard input: it is longer than an argument may be.
        write(scratch.base.join("arguments"), json!({"path": "sub/f", "content": content(number)}).to_string());
        let mut command = scratch.zwinger(&["tool", "write_file", "-", "--approve", "yes", "--backend", backend]);
        command.stdin(open_file(&scratch.base.join("arguments")));
        command
    };
    let start = Instant::now();
    assert_eq!(scratch.start(arguments(0)).end().code, 0);
    let one_call = start.elapsed();
    let mut lost = 0;
    for number in 1..=KILLS {
        let running = scratch.start(arguments(number));
        std::thread::sleep(some_of(one_call));
        // It may have ended by itself.
        running.signal(Signal::KILL);
        lost += usize::from(running.end().code != 0);
        // What it started ends too; one that is stopped in the middle of a system call, a moment later.
        until("the end of all that it started", || scratch.processes().is_empty().then_some(()));
        assert!(is_whole(&read_text(&path)), "after {number} kills");
        if number % 10 == 0 || !unfinished(&scratch).is_empty() {
            assert_eq!(scratch.tool("read_file", &json!({"path": "sub/inside.txt"}), &["--backend", backend]).code, 0);
            assert_eq!(unfinished(&scratch), Vec::<String>::new(), "after {number} kills");
        }
    }
    assert!(lost > 0, "no kill met a call");
}

/// As a kill between two system calls leaves it.
#[test]
fn what_a_killed_writer_left_goes_with_the_next_session() {
    for backend in ["landlock", "none"] {
        let scratch = Scratch::new();
        let [top, below, held] = ["0123456789abcdef", "sub/.zwinger-0123456789abcdef", "sub/.zwinger-00000000deadbeef"]
            .map(|name| {
                scratch.work.join(if name.contains('/') { name.to_owned() } else { format!(".zwinger-{name}") })
            });
        for path in [&top, &below, &held] {
            write(path, "half");
        }
        let writer = open_file(&held);
        rustix::fs::flock(&writer, rustix::fs::FlockOperation::LockExclusive).unwrap();
        assert_eq!(scratch.tool("list_directory", &json!({}), &["--backend", backend]).code, 0);
        assert!(!top.exists() && !below.exists(), "{backend}");
        assert!(held.exists(), "another session still writes it");
    }
}

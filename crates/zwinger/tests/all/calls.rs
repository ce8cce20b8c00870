//! Several calls of one session at once: each answers, can be stopped, and can be lost, by itself.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use serde_json::{Value, json};
use zwinger_core::output::{Kind, Outcome};
use zwinger_core::sandbox::Backend;
use zwinger_core::{Call, Cancel, Decision, During, Runtime};

use crate::library::{always, open};
use crate::process::{Tag, executor_of_this_process, until};
use crate::scratch::{Scratch, list, read_text, write};

const BACKENDS: [Backend; 2] = [Backend::Landlock, Backend::None];

fn call(runtime: &Runtime, tool: &str, arguments: Value) -> Outcome {
    runtime.call(&Call::new(tool, arguments))
}

fn run(runtime: &Runtime, command: &str, during: During<'_>) -> Outcome {
    runtime.call_with(&Call::new("run_command", json!({"command": command})), during)
}

#[test]
fn two_hundred_calls_at_once_all_answer() {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        let runtime = open(&scratch, backend, always(Decision::Once));
        std::thread::scope(|scope| {
            for number in 0..50 {
                let runtime = &runtime;
                scope.spawn(move || {
                    let outcome = call(runtime, "read_file", json!({"path": "sub/inside.txt"}));
                    assert_eq!(outcome.output, "inside\n", "{:?}", outcome.error);
                });
                scope.spawn(move || {
                    assert_eq!(call(runtime, "list_directory", json!({"path": "sub"})).output, "inside.txt")
                });
                scope.spawn(move || {
                    let (path, content) = (format!("f{number}"), number.to_string());
                    let outcome = call(runtime, "write_file", json!({"path": path, "content": content}));
                    assert!(outcome.success, "{:?}", outcome.error);
                });
                scope.spawn(move || {
                    let outcome = run(runtime, &format!("echo {number}; exit {number}"), During::default());
                    let code = outcome.command.as_ref().map(|command| command.exit_code);
                    assert_eq!(
                        (outcome.output.as_str(), code),
                        (format!("{number}\n").as_str(), Some(number)),
                        "{outcome:?}"
                    );
                });
            }
        });
        for number in 0..50 {
            assert_eq!(read_text(scratch.work.join(format!("f{number}"))), number.to_string());
        }
        assert_eq!(scratch.audit().len(), 200 * 2);
    }
}

/// Output without end, of which everyone who asks gets a part: the others' answers come all the same, before its end.
#[test]
fn a_flood_delays_nobody() {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        let runtime = open(&scratch, backend, always(Decision::Once));
        let (cancel, seen) = (Cancel::default(), Mutex::new(0));
        let ended = AtomicBool::new(false);
        let count = |text: &str| *seen.lock().unwrap() += text.len();
        let outcome = std::thread::scope(|scope| {
            let flood = scope.spawn(|| {
                let outcome = run(&runtime, "yes", During { cancel: Some(&cancel), live: Some(&count) });
                ended.store(true, Ordering::Relaxed);
                outcome
            });
            until("output", || (*seen.lock().unwrap() > 0).then_some(()));
            for _ in 0..20 {
                assert_eq!(call(&runtime, "read_file", json!({"path": "sub/inside.txt"})).output, "inside\n");
                assert_eq!(run(&runtime, "echo on", During::default()).output, "on\n");
            }
            assert!(!ended.load(Ordering::Relaxed));
            cancel.cancel();
            flood.join().unwrap()
        });
        assert_eq!(outcome.error.as_deref(), Some("Error: stopped before its end."));
        let dropped = outcome.command.and_then(|command| command.truncated).map_or(0, |cut| cut.dropped);
        assert!(dropped > *seen.lock().unwrap() as u64, "{dropped}: it was a flood, of which less was shown");
    }
}

#[test]
fn output_is_shown_while_its_command_runs() {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        let runtime = open(&scratch, backend, always(Decision::Once));
        let shown = Mutex::new(String::new());
        let go = scratch.work.join("go");
        // What is shown lets the command go on, so it ends well only if that comes before its end.
        let show = |text: &str| {
            shown.lock().unwrap().push_str(text);
            if shown.lock().unwrap().contains("one\n") {
                write(&go, "");
            }
        };
        let script =
            "echo one; i=0; while [ ! -e go ]; do sleep 0.02; i=$((i+1)); [ $i -lt 500 ] || exit 1; done; echo two >&2";
        let outcome = run(&runtime, script, During { live: Some(&show), ..During::default() });
        assert_eq!((outcome.success, outcome.output.as_str()), (true, "one\ntwo\n"), "{backend} {outcome:?}");
        assert_eq!(*shown.lock().unwrap(), "one\ntwo\n");
    }
}

#[test]
fn a_cancelled_call_ends_with_its_command_and_the_others_go_on() {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        let runtime = open(&scratch, backend, always(Decision::Once));
        let (one, other) = (Tag::new(), Tag::new());
        let cancel = Cancel::default();
        std::thread::scope(|scope| {
            let script = format!("setsid sleep {0} & sleep {0}; true", one.0);
            let during = During { cancel: Some(&cancel), live: None };
            let (runtime, other_tag) = (&runtime, &other.0);
            let first = scope.spawn(move || run(runtime, &script, during));
            let end = Cancel::default();
            let second = {
                let end = end.clone();
                scope.spawn(move || {
                    run(runtime, &format!("sleep {other_tag}"), During { cancel: Some(&end), live: None })
                })
            };
            one.wait_for(2);
            let of_other = other.wait_for(1);
            cancel.cancel();
            let outcome = first.join().unwrap();
            assert_eq!(outcome.error.as_deref(), Some("Error: stopped before its end."), "{outcome:?}");
            one.assert_gone();
            assert_eq!(other.asleep(), of_other);
            end.cancel();
            assert!(!second.join().unwrap().success);
            other.assert_gone();
        });
        // Once and for all.
        let during = During { cancel: Some(&cancel), live: None };
        let outcome = run(&runtime, "touch made", during);
        assert_eq!(outcome.error.as_deref(), Some("Error: cancelled before it began."));
        let arguments = json!({"path": "made", "content": "x"});
        assert_eq!(runtime.call_with(&Call::new("write_file", arguments), during).kind, Kind::Failed);
        assert_eq!(list(&scratch.work), ["sub"]);
        assert!(run(&runtime, "true", During::default()).success);
    }
}

#[test]
fn calls_that_are_lost_together_name_each_other() {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        let runtime = open(&scratch, backend, always(Decision::Once));
        let (one, other) = (Tag::new(), Tag::new());
        let errors = std::thread::scope(|scope| {
            let [first, second] = [&one, &other].map(|tag| {
                let runtime = &runtime;
                scope.spawn(move || run(runtime, &format!("exec sleep {}", tag.0), During::default()))
            });
            one.wait_for(1);
            other.wait_for(1);
            rustix::process::kill_process(executor_of_this_process().unwrap(), Signal::KILL).unwrap();
            [first, second].map(|call| call.join().unwrap().error.unwrap_or_default())
        });
        for (error, lost) in errors.iter().zip([&other, &one]) {
            let says = format!("Lost with this call: run_command exec sleep {}", lost.0);
            assert!(error.starts_with("Error: the executor ended") && error.contains(&says), "{error}");
        }
        one.assert_gone();
        assert!(run(&runtime, "true", During::default()).success);
    }
}

/// The link is made by a command of the same session that then uses it.
#[test]
fn a26_a_link_of_a_command_leads_no_tool_out() {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        let runtime = open(&scratch, backend, always(Decision::Once));
        assert!(run(&runtime, &format!("ln -s {} o", scratch.out.display()), During::default()).success);
        for (tool, arguments) in [
            ("read_file", json!({"path": "o/marker"})),
            ("list_directory", json!({"path": "o"})),
            ("write_file", json!({"path": "o/f", "content": "x"})),
            ("write_file", json!({"path": "o/marker", "content": "x"})),
            ("edit_file", json!({"path": "o/marker", "old_text": "secret", "new_text": "x"})),
            ("run_command", json!({"command": "echo x > f", "cwd": "o"})),
        ] {
            let outcome = call(&runtime, tool, arguments);
            assert!(!outcome.success, "{tool}");
            assert!(outcome.error.as_ref().unwrap().ends_with("is outside the workspace."), "{outcome:?}");
            assert!(!outcome.output.contains("secret"));
        }
        // Deeper listings do not go in either.
        assert_eq!(call(&runtime, "list_directory", json!({"depth": 5})).output, "o\nsub/\nsub/inside.txt");
        scratch.assert_out_untouched();
        // The link does lead there.
        assert_eq!(read_text(scratch.work.join("o/marker")), scratch.secret);
    }
}

//! `run_command`: its time, its output, and what it leaves running.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::YES;
use crate::process::Tag;
use crate::scratch::{Ended, Scratch, read_text};

fn run(scratch: &Scratch, command: &str, options: &[&str]) -> Value {
    result(&scratch.tool("run_command", &json!({"command": command}), &[&YES, options].concat()))
}

fn result(ended: &Ended) -> Value {
    let result = ended.json();
    assert_eq!(ended.code == 0, result.get("success") == Some(&json!(true)), "{ended:?}");
    result
}

fn text(result: &Value, field: &str) -> String {
    result.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn number(result: &Value, field: &str) -> i64 {
    result.get(field).and_then(Value::as_i64).unwrap_or_default()
}

for_every_caller!(
    i07_i19_a_time_limit_ends_everything,
    i08_zwinger_killed_while_a_command_runs,
    i10_what_a_tool_left_is_settled_first,
);

fn i10_what_a_tool_left_is_settled_first(scratch: &Scratch) {
    for signal in [Signal::TERM, Signal::HUP] {
        let tag = Tag::new();
        let command =
            json!({"command": format!("trap '' HUP; echo x > AGENTS.md; sleep {} & wait", tag.0)}).to_string();
        let running = scratch.start(scratch.zwinger(&["tool", "run_command", &command, "--approve", "yes"]));
        tag.wait_for(1);
        running.signal(signal);
        let ended = running.end();
        assert_eq!((tag.asleep().len(), scratch.work.join("AGENTS.md").exists()), (0, false), "{ended:?}");
        assert!(ended.code == 128 + signal.as_raw() && ended.stderr.contains("quarantined AGENTS.md"), "{ended:?}");
        assert_eq!(scratch.audit().pop().unwrap().get("event"), Some(&json!("end")));
    }
}

fn i07_i19_a_time_limit_ends_everything(scratch: &Scratch) {
    for backend in ["landlock", "none"] {
        let tag = Tag::new();
        let command = format!("setsid sh -c 'trap \"\" TERM; sleep {0}; touch PROOF' & echo on; sleep {0}", tag.0);
        let arguments = json!({"command": command, "timeout_seconds": 2});
        let ended = scratch.tool("run_command", &arguments, &[&["--backend", backend], &YES[..]].concat());
        let result = result(&ended);
        assert_eq!((ended.code, number(&result, "exit_code")), (1, 124), "{ended:?}");
        assert_eq!(result.get("timed_out"), Some(&json!(true)));
        assert_eq!(text(&result, "output"), "on\n", "what it said before is kept");
        assert_eq!(ended.error(), "Error: stopped after 2 s (limit timeout_seconds, at most 600).");
        tag.assert_gone();
        assert!(!scratch.work.join("PROOF").exists());
    }
}

#[test]
fn a_time_limit_names_what_the_caller_can_change() {
    let scratch = Scratch::new();
    for (options, seconds, says) in [
        (&["--timeout", "1"][..], None, "1 s (limit --timeout, which only the user can raise)"),
        (&["--timeout", "1"], Some(1), "1 s (limit --timeout, which only the user can raise)"),
        (&["--timeout", "30"], Some(1), "1 s (limit timeout_seconds, at most 30)"),
        (&["--timeout", "700"], Some(1), "1 s (limit timeout_seconds, at most 600)"),
    ] {
        let arguments = json!({"command": "sleep 600", "timeout_seconds": seconds});
        let ended = scratch.tool("run_command", &arguments, &[&YES, options].concat());
        assert_eq!(ended.error(), format!("Error: stopped after {says}."), "{options:?}");
    }
}

#[test]
fn i01_i16_background_processes_do_not_hold_the_result() {
    let scratch = Scratch::new();
    for redirect in ["", "</dev/null >/dev/null", ">/dev/null 2>&1", "2>/dev/null"] {
        let tag = Tag::new();
        let result = run(&scratch, &format!("sleep {} {redirect} & echo hi", tag.0), &[]);
        assert_eq!((text(&result, "output").as_str(), number(&result, "exit_code")), ("hi\n", 0));
        assert_eq!(number(&result, "leftovers"), 1);
        tag.assert_gone();
    }
    // Nothing is left of a command that waits for its own.
    assert_eq!(run(&scratch, "sleep 0.01 & wait", &[]).get("leftovers"), None);
}

#[test]
fn i04_i05_pipes_that_stay_open_do_not_hold_it_either() {
    let scratch = Scratch::new();
    let command = "mkfifo p; (while :; do echo child; sleep 0.1; done) > p & cat p";
    let ended = scratch.tool("run_command", &json!({"command": command, "timeout_seconds": 2}), &YES);
    assert_eq!(number(&result(&ended), "exit_code"), 124);
    assert!(text(&ended.json(), "output").starts_with("child\n"));
}

fn i08_zwinger_killed_while_a_command_runs(scratch: &Scratch) {
    for backend in ["landlock", "none"] {
        for signal in [Signal::KILL, Signal::TERM] {
            let tag = Tag::new();
            let command = json!({"command": format!("setsid sleep {0} & sleep {0} | cat", tag.0)}).to_string();
            let words = ["tool", "run_command", &command, "--approve", "yes", "--backend", backend];
            let running = scratch.start(scratch.zwinger(&words));
            tag.wait_for(2);
            running.signal(signal);
            assert_eq!(running.end().code, 128 + signal.as_raw());
            tag.assert_gone();
        }
    }
}

#[test]
fn i11_there_is_no_input_to_wait_for() {
    let scratch = Scratch::new();
    for command in ["cat", "grep x", "read line", "sh -s"] {
        let result = run(&scratch, command, &[]);
        assert_eq!((text(&result, "output").as_str(), result.get("timed_out")), ("", Some(&json!(false))), "{command}");
    }
    // No terminal either, though there may be one outside.
    assert_eq!(number(&run(&scratch, "echo x > /dev/tty || exit 9", &[]), "exit_code"), 9);
}

#[test]
fn j01_a_flood_ends_with_an_exact_count() {
    const BYTES: i64 = 100_000_000;
    let scratch = Scratch::new();
    let command = format!("echo HEAD; head -c {BYTES} /dev/zero | tr '\\0' x; echo; echo TAIL; exit 3");
    let result = run(&scratch, &command, &[]);
    let output = text(&result, "output");
    assert!(output.starts_with("HEAD\nxxxx") && output.ends_with("xxxx\nTAIL\n"));
    let truncated = result.get("truncated").expect("it was cut");
    let (kept, dropped) = (number(truncated, "kept"), number(truncated, "dropped"));
    assert_eq!(kept + dropped, BYTES + 5 + 1 + 5);
    assert_eq!(kept, 1 << 20);
    assert!(output.contains(&format!("[… {dropped} bytes dropped …]")));
    assert_eq!(number(&result, "exit_code"), 3);
}

#[test]
fn j02_j07_the_limit_is_kept_between_characters() {
    let scratch = Scratch::new();
    for (limit, backend) in [("1024", "landlock"), ("1025", "none"), ("1026", "landlock"), ("1027", "none")] {
        let options = ["--output-limit", limit, "--backend", backend];
        let result = run(&scratch, "yes 'é€🦀' | head -n 2000; echo error", &options);
        let output = text(&result, "output");
        assert!(
            output.starts_with("é€🦀\n") && output.ends_with("error\n") && !output.contains('\u{fffd}'),
            "{output}"
        );
        let truncated = result.get("truncated").unwrap();
        assert_eq!(number(truncated, "kept") + number(truncated, "dropped"), 2000 * 10 + 6);
        assert!(number(truncated, "kept") <= limit.parse().unwrap());
    }
    // A stream that fits is whole and says nothing of a cut.
    let result = run(&scratch, "yes | head -c 1024", &["--output-limit", "1024"]);
    assert_eq!((text(&result, "output").len(), result.get("truncated")), (1024, None));
}

#[test]
fn j08_any_bytes_are_valid_json() {
    let scratch = Scratch::new();
    let result = run(&scratch, "head -c 100000 /dev/urandom; printf 'a\\000b\\377c'", &[]);
    assert!(text(&result, "output").ends_with("a\0b\u{fffd}c"));
}

#[test]
fn small_writes_arrive_in_order() {
    let scratch = Scratch::new();
    let result = run(&scratch, "for i in $(seq 20000); do printf x; done; echo; echo end", &[]);
    assert_eq!(text(&result, "output"), "x".repeat(20_000) + "\nend\n");
    // Both streams in order of arrival.
    let result = run(&scratch, "for i in 1 2 3; do echo o$i; sleep 0.2; echo e$i >&2; sleep 0.2; done", &[]);
    assert_eq!(text(&result, "output"), "o1\ne1\no2\ne2\no3\ne3\n");
    assert_eq!((text(&result, "stdout"), text(&result, "stderr")), ("o1\no2\no3\n".into(), "e1\ne2\ne3\n".into()));
}

#[test]
fn j14_long_commands() {
    let scratch = Scratch::new();
    let long = format!("# {}\necho ran", "x".repeat(100_000));
    assert_eq!(text(&run(&scratch, &long, &[]), "output"), "ran\n");
    // Longer than the kernel takes as one argument: it is given on standard input, where it may be any length.
    let longer = json!({"command": format!("# {}\necho ran", "x".repeat(200_000))}).to_string();
    let ended = super::with_input(&scratch, &["run_command", "-", "--approve", "yes"], &longer);
    assert!(ended.code == 2 && ended.error().contains("write it to a file"), "{ended:?}");
}

#[test]
fn e22_a_name_is_no_command() {
    let scratch = Scratch::new();
    for path in ["a; touch p", "$(touch p)", "`touch p`", "-rf", "a\nb"] {
        assert_eq!(scratch.tool("write_file", &json!({"path": path, "content": "x"}), &YES).code, 0);
        assert_eq!(read_text(scratch.work.join(path)), "x");
        assert_eq!(text(&scratch.tool("read_file", &json!({"path": path}), &[]).json(), "output"), "x");
    }
    assert!(!scratch.work.join("p").exists());
}

#[test]
fn e25_a_yes_opens_no_wall() {
    let scratch = Scratch::new();
    let out = scratch.out.display();
    for command in [format!("echo x > {out}/f"), format!("cat {out}/marker"), "cat $HOME/private".into()] {
        let result = run(&scratch, &command, &[]);
        assert_ne!(number(&result, "exit_code"), 0);
        assert!(!text(&result, "output").contains(&scratch.secret));
    }
    scratch.assert_out_untouched();
    let result = run(&scratch, &format!("cat {out}/marker"), &["--backend", "none"]);
    assert_eq!(text(&result, "output"), scratch.secret);
}

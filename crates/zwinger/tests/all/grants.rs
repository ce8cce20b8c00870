//! Grants of a stored session hold under the terms that they were given under, and under no others.

use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use zwinger_core::Call;
use zwinger_core::gate::Decision;
use zwinger_core::sandbox::Backend;

use crate::caller::{Caller, skipped};
use crate::gate::Terminal;
use crate::library::{always, open};
use crate::process::{executor_of_this_process, is_foreign_pid_namespace, until};
use crate::scratch::{Ended, Scratch, make_dir, read_text, remove, write};
use crate::session::{directory, kept, session};

/// The terms of most tests here, all stricter than need be.
const STRICT: [&str; 8] = ["--mode", "sandbox", "--memory", "512", "--processes", "40", "--hide", "sub/inside.txt"];

fn command(seconds: u64) -> Value {
    json!({"command": "echo x > made", "timeout_seconds": seconds})
}

/// One call in a stored session.
fn call(scratch: &Scratch, id: &str, (tool, arguments): (&str, &Value), options: &[&str]) -> Command {
    scratch.zwinger(&[&["tool", tool, &arguments.to_string(), "--session", id], options].concat())
}

fn run(scratch: &Scratch, id: &str, options: &[&str]) -> Ended {
    scratch.start(call(scratch, id, ("run_command", &command(60)), options)).end()
}

fn put(scratch: &Scratch, id: &str, options: &[&str]) -> Ended {
    scratch.start(call(scratch, id, ("write_file", &json!({"path": "f", "content": "x"})), options)).end()
}

/// A person says "for this session" at a terminal, to [`command`] and to a write of `f`.
fn grant(scratch: &Scratch, id: &str, options: &[&str]) {
    for (tool, arguments) in [("run_command", command(60)), ("write_file", json!({"path": "f", "content": "x"}))] {
        let mut terminal = Terminal::new();
        let arguments = arguments.to_string();
        let words = [&["tool", tool, &arguments, "--session", id], options].concat();
        let running = terminal.zwinger(scratch, &words, "");
        let ended = terminal.answer(running, "a");
        assert_eq!(ended.code, 0, "{ended:?}");
    }
}

fn assert_holds(scratch: &Scratch, id: &str, options: &[&str]) {
    let before = scratch.audit().len();
    for ended in [run(scratch, id, options), put(scratch, id, options)] {
        assert_eq!(ended.code, 0, "{options:?} {ended:?}");
    }
    let records = scratch.audit().split_off(before);
    let by: Vec<_> = records.iter().filter_map(|record| record["by"].as_str()).collect();
    assert_eq!(by, ["grant", "grant"], "{options:?}");
}

fn assert_refused(ended: &Ended, what: &str) {
    assert_eq!(ended.code, 3, "{what} {ended:?}");
    assert!(ended.error().contains("declined") || ended.error().contains("no terminal"), "{what} {ended:?}");
    assert!(ended.stderr.contains("2 of the session's grants do not hold now"), "{what} {ended:?}");
}

#[test]
fn f07_grants_do_not_hold_under_looser_terms() {
    let scratch = Scratch::new();
    write(scratch.work.join(".env"), "SECRET=1");
    let extra = scratch.base.join("extra");
    make_dir(&extra);
    let extra = extra.to_str().unwrap();
    let id = kept(&scratch, None);
    grant(&scratch, &id, &STRICT);
    assert_holds(&scratch, &id, &STRICT);
    let made = scratch.work.join("made");
    remove(&made);
    let [mode, memory, processes, hide] = [0, 2, 4, 6].map(|at| &STRICT[at..at + 2]);
    for looser in [
        [mode, memory, processes, &["--backend", "none"]].concat(),
        [mode, memory, processes].concat(),
        [mode, memory, hide].concat(),
        [mode, processes, hide].concat(),
        [mode, processes, hide, &["--memory", "1024"]].concat(),
        [mode, memory, hide, &["--processes", "41"]].concat(),
        [&STRICT[..], &["--net", "on"]].concat(),
        [&STRICT[..], &["--read", extra]].concat(),
        [&STRICT[..], &["--write", extra]].concat(),
        [&STRICT[..], &["--show", ".env"]].concat(),
    ] {
        for nobody in [&["--approve", "no"][..], &[]] {
            let options = [&looser, nobody].concat();
            assert_refused(&run(&scratch, &id, &options), &format!("{options:?}"));
            assert_refused(&put(&scratch, &id, &options), &format!("{options:?}"));
        }
    }
    // There a write needs no grant.
    let full = [memory, processes, &["--mode", "full-access"]].concat();
    assert_refused(&run(&scratch, &id, &full), "full access");
    assert!(!made.exists());
    // What a person has less of does not matter, nor what is no wall. Nothing was lost.
    assert_holds(&scratch, &id, &[&STRICT[..], &["--timeout", "30", "--output-limit", "2048"]].concat());
    assert!(made.exists());
}

/// What of the host is readable follows from the environment too.
#[test]
fn f07_grants_do_not_hold_in_another_environment() {
    let scratch = Scratch::new();
    let id = kept(&scratch, None);
    grant(&scratch, &id, &[]);
    let other = scratch.base.join("other");
    make_dir(&other);
    let path = format!("{}:/usr/bin:/bin", other.display());
    for (name, value) in [("HOME", other.to_str().unwrap()), ("PATH", &path)] {
        let mut command = call(&scratch, &id, ("run_command", &command(60)), &["--approve", "no"]);
        command.env(name, value);
        assert_refused(&scratch.start(command).end(), name);
    }
    assert_holds(&scratch, &id, &[]);
}

#[test]
fn f07_grants_do_not_hold_where_the_kernel_holds_less() {
    let mut scratch = Scratch::new();
    if let Some(reason) = Caller::NoNamespaces.unavailable().or((!Caller::Plain.has_namespaces()).then_some("no more"))
    {
        return skipped("grants::f07_grants_do_not_hold_where_the_kernel_holds_less", reason);
    }
    let id = kept(&scratch, None);
    grant(&scratch, &id, &[]);
    scratch.caller = Caller::NoNamespaces;
    assert_refused(&run(&scratch, &id, &["--approve", "no"]), "no namespaces");
    scratch.caller = Caller::Plain;
    assert_holds(&scratch, &id, &[]);
}

/// Those of each terms are kept for when they come again.
#[test]
fn grants_of_several_terms_are_kept_apart() {
    let scratch = Scratch::new();
    let id = kept(&scratch, None);
    let none = ["--backend", "none"];
    grant(&scratch, &id, &none);
    assert_refused(&run(&scratch, &id, &["--approve", "no"]), "stricter ones are others too");
    grant(&scratch, &id, &[]);
    for options in [&[][..], &none] {
        assert_holds(&scratch, &id, options);
    }
    assert_eq!(run(&scratch, &id, &["--net", "on"]).code, 3);
    let shown = session(&scratch, &["show", &id]).text();
    let under: Vec<_> = shown.lines().filter_map(|line| line.strip_prefix("under      ")).collect();
    assert!(under.len() == 2 && under.iter().all(|terms| terms.contains("network off")), "{shown}");
    for backend in ["backend none", "backend landlock"] {
        assert_eq!(under.iter().filter(|terms| terms.contains(backend)).count(), 1, "{shown}");
    }
    assert_eq!(shown.matches("\ngrant      run echo x > made in ., at most 60 s\n").count(), 2, "{shown}");
    assert!(session(&scratch, &["list"]).text().ends_with("  4 grants\n"));
}

/// The model chooses how long a command may take; a person saw one number.
#[test]
fn f07_a_command_gets_no_more_time_than_was_shown() {
    let scratch = Scratch::new();
    let id = kept(&scratch, None);
    grant(&scratch, &id, &[]);
    for (seconds, code) in [(59, 0), (60, 0), (61, 3), (600, 3)] {
        let ended = scratch.start(call(&scratch, &id, ("run_command", &command(seconds)), &[])).end();
        assert_eq!(ended.code, code, "{seconds} {ended:?}");
    }
    // The person's own limit may be longer than it was.
    let ended = scratch.start(call(&scratch, &id, ("run_command", &command(60)), &["--timeout", "900"])).end();
    assert_eq!(ended.code, 0, "{ended:?}");
}

#[test]
fn f07_grants_without_terms_hold_under_none() {
    let scratch = Scratch::new();
    let id = kept(&scratch, None);
    let file = file(&scratch, &id);
    let old: Value = serde_json::from_str(&read_text(&file)).unwrap();
    let grants = json!([{"file": "f"}, {"command": ["echo x > made", ".", false]}]);
    for options in [&[][..], &["--backend", "none"]] {
        let mut old = old.clone();
        let fields = old.as_object_mut().unwrap();
        assert!(fields.remove("granted").is_some());
        fields.insert("grants".into(), grants.clone());
        write(&file, old.to_string());
        for ended in [run(&scratch, &id, options), put(&scratch, &id, options)] {
            assert_eq!(ended.code, 3, "{ended:?}");
        }
    }
    // Nor where somebody writes terms that say nothing.
    let mut forged = old;
    let all =
        json!({"command": "echo x > made", "directory": ".", "read_only": false, "background": false, "seconds": 60});
    forged["granted"] = json!([{"under": [], "grants": [{"file": "f"}, {"command": all}]}]);
    write(&file, forged.to_string());
    assert_refused(&run(&scratch, &id, &[]), "terms that say nothing");
}

#[test]
fn a_grant_goes_on_in_the_walls_that_it_was_given_in() {
    let scratch = Scratch::new();
    let approver = always(Decision::Session);
    let runtime = open(&scratch, Backend::Landlock, approver.clone());
    let look = Call::new("run_command", json!({"command": "readlink /proc/self/ns/pid; : > made; echo x > ../made"}));
    let first = runtime.call(&look);
    rustix::process::kill_process(executor_of_this_process().unwrap(), Signal::KILL).unwrap();
    let again = until("an executor in its place", || {
        let again = runtime.call(&look);
        (again.output.contains("pid:[")).then_some(again)
    });
    for outcome in [first, again] {
        let namespace = outcome.output.lines().next().unwrap_or_default();
        assert!(!Caller::Plain.has_namespaces() || is_foreign_pid_namespace(namespace), "{outcome:?}");
    }
    assert!(scratch.work.join("made").exists() && !scratch.base.join("made").exists());
    assert_eq!(approver.asked(), 1);
}

fn file(scratch: &Scratch, id: &str) -> PathBuf {
    directory(scratch).join(id).join("session.json")
}

//! `zwinger audit`, and what holds of the log whoever writes it, however they end.

use std::collections::BTreeSet;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::{Tag, until};
use crate::scratch::{Ended, Scratch, chmod, link, list, make_dir, read_text, rename, write};

const YES: [&str; 2] = ["--approve", "yes"];

fn audit(scratch: &Scratch, words: &[&str]) -> Ended {
    scratch.start(scratch.zwinger(&[&["audit"], words].concat())).end()
}

fn text<'a>(record: &'a Value, field: &str) -> &'a str {
    record.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The log is as it was written, and this is its last line.
fn verified(scratch: &Scratch) -> String {
    let ended = audit(scratch, &["verify"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.text().lines().last().unwrap_or_default().to_owned()
}

for_every_caller!(run_leaves_one_record, what_run_cannot_record_it_does_not_run);

fn run_leaves_one_record(scratch: &Scratch) {
    assert_eq!(scratch.sh("echo out; exit 3").code, 3);
    assert_eq!(scratch.run(&["--mode", "plan", "--", "missing", "a\nb"]).code, 127);
    let records = scratch.audit();
    let [begin, end, missing, not_found] = records.as_slice() else { panic!("{records:?}") };
    assert_eq!((text(begin, "event"), text(begin, "door"), text(begin, "by")), ("begin", "run", "command line"));
    assert_eq!(begin.pointer("/arguments/argv"), Some(&json!(["sh", "-c", "echo out; exit 3"])));
    assert_eq!((text(begin, "workspace"), text(begin, "mode")), (scratch.work.to_str().unwrap(), "sandbox"));
    assert_eq!((text(end, "event"), &end["exit_code"], &end["success"]), ("end", &json!(3), &json!(false)));
    assert_eq!((end["id"] == begin["id"], end.pointer("/enforcement/files")), (true, Some(&json!("full"))));
    assert_eq!((text(missing, "mode"), &not_found["exit_code"]), ("plan", &json!(127)));
    assert_eq!(verified(scratch), "4 lines, complete · 0 interrupted, 0 running");
    let shown = audit(scratch, &["show"]).text();
    let [first, second] = shown.lines().collect::<Vec<_>>().try_into().expect("two lines");
    assert!(first.contains("sh -c echo out; exit 3") && first.contains("exit 3 · "), "{shown}");
    assert!(second.contains("missing a\\nb"), "{shown}");
}

fn what_run_cannot_record_it_does_not_run(scratch: &Scratch) {
    let zwinger = scratch.base.join("zwinger");
    // No file can grow. Making a directory would still work.
    const FULL: &str = "trap '' XFSZ; (ulimit -f 0; \"$@\"; echo $?) 2>&1 | cat";
    let words = ["sh", "-c", FULL, "sh", zwinger.to_str().unwrap(), "run", "--", "mkdir", "ran"];
    let mut command = scratch.command(&words);
    let state = scratch.state();
    command.env("HOME", &scratch.home).env("XDG_STATE_HOME", state.parent().unwrap());
    let ended = scratch.start(command).end();
    assert!(ended.shows("the audit log cannot be written") && ended.text().ends_with("125\n"), "{ended:?}");
    rename(state.join("audit"), state.join("before"));
    write(state.join("audit"), "");
    let ended = scratch.run(&["--", "mkdir", "ran"]);
    assert!(ended.code == 125 && ended.stderr.contains("zwinger/audit cannot be used: "), "{ended:?}");
    assert_eq!(list(&scratch.work), ["sub"]);
}

#[test]
fn n03_two_hundred_calls_at_once_leave_a_log_that_verifies() {
    let scratch = Scratch::new();
    std::thread::scope(|scope| {
        for lane in 0..8 {
            let scratch = &scratch;
            scope.spawn(move || {
                for call in 0..25 {
                    let ended = match (lane + call) % 5 {
                        0 => scratch.sh("true"),
                        1 => scratch.tool("read_file", &json!({"path": "../x"}), &[]),
                        _ => scratch.tool("get_time", &json!({}), &[]),
                    };
                    assert!(ended.code < 2, "{ended:?}");
                }
            });
        }
    });
    assert_eq!(verified(&scratch), "360 lines, complete · 0 interrupted, 0 running");
    let sequence: Vec<_> = scratch.audit().iter().filter_map(|record| record["seq"].as_u64()).collect();
    assert_eq!(sequence, (1..=360).collect::<Vec<_>>());
}

#[test]
fn a_killed_call_was_running_and_is_interrupted() {
    let scratch = Scratch::new();
    let tag = Tag::new();
    let sleep = format!("sleep {}", tag.0);
    for words in [
        vec!["run", "--", "sh", "-c", &sleep],
        vec!["tool", "run_command", &json!({"command": sleep}).to_string(), "--approve", "yes"],
    ] {
        let running = scratch.start(scratch.zwinger(&words));
        tag.wait_for(1);
        assert!(verified(&scratch).ends_with(" 1 running"), "{}", verified(&scratch));
        assert!(audit(&scratch, &["show"]).text().contains("  running (pid "));
        running.signal(Signal::KILL);
        running.end();
        tag.assert_gone();
    }
    assert_eq!(scratch.sh("true").code, 0);
    let ended = audit(&scratch, &["verify"]);
    assert_eq!((ended.code, ended.text().lines().count()), (0, 3), "{ended:?}");
    assert!(ended.text().ends_with("4 lines, complete · 2 interrupted, 0 running\n"), "{ended:?}");
    assert_eq!(audit(&scratch, &["show"]).text().matches("  interrupted\n").count(), 2);
}

#[test]
fn a_line_that_is_missing_changed_or_added_is_named() {
    let scratch = Scratch::new();
    for _ in 0..3 {
        scratch.sh("true");
    }
    let good = read_text(scratch.audit_log());
    let lines: Vec<_> = good.split_inclusive('\n').collect();
    for (bad, line) in [
        ([&lines[..1], &lines[2..]].concat().concat(), "line 2: "),
        ([&lines[1..2], &lines[..1], &lines[2..]].concat().concat(), "line 1: "),
        ([&lines[..3], &lines[2..]].concat().concat(), "line 4: "),
        (lines[1..].concat(), "line 1: "),
        (good.replacen("\"event\":\"end\"", "\"event\":\"was\"", 1), "line 2: "),
        (format!("{}garbage\n{}", lines[0], lines[1..].concat()), "line 2: "),
    ] {
        write(scratch.audit_log(), bad);
        let ended = audit(&scratch, &["verify"]);
        assert!(ended.code == 1 && ended.text().lines().last().unwrap().starts_with(line), "{line} {ended:?}");
    }
    // One that was cut is another matter: its writer died, and the next one says so.
    write(scratch.audit_log(), good.strip_suffix("}\n").unwrap());
    assert!(audit(&scratch, &["verify"]).text().starts_with("line 6: cut"), "{:?}", audit(&scratch, &["verify"]));
    let cut = read_text(scratch.audit_log());
    // Nor is what a machine leaves that lost its power, and that says something else.
    write(scratch.audit_log(), format!("{good}{}", "\0".repeat(4096)));
    for code in [0, 3] {
        assert_eq!(scratch.sh(&format!("exit {code}")).code, code);
        let ended = audit(&scratch, &["verify"]);
        assert!(ended.code == 0 && ended.text().starts_with("line 7: zeros; "), "{ended:?}");
    }
    write(scratch.audit_log(), cut);
    scratch.sh("true");
    let ended = audit(&scratch, &["verify"]);
    assert!(ended.code == 0 && ended.text().starts_with("line 6: cut"), "{ended:?}");
    assert!(ended.text().ends_with("8 lines, complete · 1 interrupted, 0 running\n"), "{ended:?}");
}

#[test]
fn f04_long_and_hidden_text_stays_in_its_line() {
    let scratch = Scratch::new();
    let hostile = "\u{1b}[2K\r\n\u{9b}2K\u{7f}\u{202e}\",\"seq\":7}\n".repeat(40_000);
    let long = json!({"path": hostile, hostile.clone(): hostile}).to_string();
    let ended = super::tool::with_input(&scratch, &["read_file", "-"], &long);
    assert_eq!(ended.code, 2, "{:.300}", ended.stderr);
    let name = "x\u{1b}[2K\n".repeat(10_000);
    scratch.tool(&name, &json!({}), &[]);
    let command = format!("true \u{9b}\u{202e}\u{7f}{}", "\u{1b}\n".repeat(10_000));
    scratch.tool("run_command", &json!({"command": command}), &YES);
    scratch.tool("write_file", &json!({"path": "\u{1b}]0;x\u{7}\n", "content": "x"}), &YES);
    let words = [&["run", "--", "true"], vec![command.as_str(); 10].as_slice()].concat();
    scratch.start(scratch.zwinger(&words)).end();
    let log = read_text(scratch.audit_log());
    assert_eq!(verified(&scratch), "8 lines, complete · 0 interrupted, 0 running");
    assert!(log.lines().all(|line| line.len() < 64 << 10) && log.lines().count() == 8);
    for words in [&["tail"][..], &["show"]] {
        let shown = audit(&scratch, words).text();
        assert_eq!(shown.lines().count(), if words == ["tail"] { 8 } else { 5 }, "{shown}");
        assert!(!shown.contains(|c: char| c.is_control() && c != '\n') && !shown.contains('\u{202e}'), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() < 500), "{shown}");
        assert!(shown.lines().any(|line| line.contains("  run  run [\"true\",")), "{shown}");
    }
    for words in [&["tail", "--json"][..], &["show", "--json"]] {
        let shown = audit(&scratch, words).text();
        assert!(!shown.contains(|c: char| c.is_control() && c != '\n') && !shown.contains('\u{202e}'), "{shown}");
        assert!(log.contains('\u{9b}'), "the control");
        let values = |text: &str| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>();
        assert_eq!(values(&shown), values(&log), "the same JSON");
    }
}

#[test]
fn tail_and_show_choose() {
    let scratch = Scratch::new();
    assert_eq!(audit(&scratch, &["tail"]).text(), "");
    for path in ["one", "two", "three"] {
        scratch.tool("read_file", &json!({"path": path}), &[]);
    }
    let log = read_text(scratch.audit_log());
    let stored: Vec<_> = log.split_inclusive('\n').collect();
    assert_eq!(audit(&scratch, &["tail", "-n", "100", "--json"]).text(), log);
    assert_eq!(audit(&scratch, &["tail", "-n", "2", "--json"]).text(), stored[4..].concat());
    assert_eq!(audit(&scratch, &["show", "--json"]).text(), log);
    let two = &scratch.audit()[2];
    for words in
        [&["show", text(two, "id").split_at(9).0, "--json"][..], &["show", "--session", text(two, "session"), "--json"]]
    {
        assert_eq!(audit(&scratch, words).text(), stored[2..4].concat(), "{words:?}");
    }
    let page = audit(&scratch, &["show", text(two, "id")]).text();
    assert!(page.contains("read_file two") && page.contains("  rule         built-in: reads"), "{page}");
    assert!(page.contains("failed: Error: two does not exist; "), "{page}");
    let ended = audit(&scratch, &["show", "no-such"]);
    assert_eq!((ended.code, ended.text().as_str()), (1, ""), "{ended:?}");
}

#[test]
fn tail_follows() {
    let scratch = Scratch::new();
    let shown = scratch.base.join("followed");
    write(&shown, "");
    let zwinger = scratch.base.join("zwinger");
    let words = ["sh", "-c", "exec \"$@\" > \"$0\"", shown.to_str().unwrap(), zwinger.to_str().unwrap()];
    let mut command = scratch.command(&[&words[..], &["audit", "tail", "-f"]].concat());
    command.env("HOME", &scratch.home).env("XDG_STATE_HOME", scratch.state().parent().unwrap());
    let following = scratch.start(command);
    for calls in 1..=2 {
        scratch.sh("true");
        until("two lines more", || (read_text(&shown).lines().count() == calls * 2).then_some(()));
    }
    following.signal(Signal::KILL);
    following.end();
}

#[test]
fn a_state_that_others_or_commands_reach_is_refused() {
    let scratch = Scratch::new();
    let state = |path: &Path| {
        let mut command = scratch.zwinger(&["run", "--", "touch", "ran"]);
        command.env("XDG_STATE_HOME", path);
        scratch.start(command).end()
    };
    let elsewhere = scratch.base.join("elsewhere");
    make_dir(&elsewhere);
    // Through a link into the workspace, by either of its components.
    link(scratch.work.to_str().unwrap(), elsewhere.join("zwinger"));
    chmod(&scratch.work, 0o700);
    let ended = state(&elsewhere);
    assert!(ended.code == 125 && ended.stderr.contains("can be written from inside the walls"), "{ended:?}");
    link(scratch.work.join("sub").to_str().unwrap(), scratch.base.join("linked"));
    assert_eq!(state(&scratch.base.join("linked")).code, 125);
    // The log itself through a link, and a directory that others may write.
    let open = scratch.base.join("open");
    for path in [open.clone(), open.join("zwinger"), open.join("zwinger/audit")] {
        make_dir(path);
    }
    assert!(state(&open).stderr.contains("closed to others"));
    chmod(open.join("zwinger"), 0o700);
    assert_eq!(state(&open).code, 125, "audit is open to others");
    chmod(open.join("zwinger/audit"), 0o700);
    link("../../../work/log", open.join("zwinger/audit/audit.jsonl"));
    let ended = state(&open);
    assert!(ended.code == 125 && ended.stderr.contains("audit.jsonl"), "{ended:?}");
    assert_eq!(list(&scratch.work), ["sub"]);
    // A link to a place that is one's own and closed is a place like any other.
    scratch.sh("true");
    let linked = scratch.base.join("links");
    make_dir(&linked);
    link(scratch.state().to_str().unwrap(), linked.join("zwinger"));
    assert_eq!(state(&linked).code, 0);
    assert_eq!(verified(&scratch), "4 lines, complete · 0 interrupted, 0 running");
}

#[test]
fn the_document_names_every_field() {
    let scratch = Scratch::new();
    scratch.plant();
    scratch.sh("exit 1");
    scratch.run(&["--timeout", "1", "--", "sleep", "600"]);
    scratch.run(&["--memory", "64", "--", "sh", "-c", "head -c 500M /dev/zero | tail -c 400M > /dev/null"]);
    scratch.tool("read_file", &json!({"path": "fifo"}), &[]);
    scratch.tool("read_file", &json!({"path": "../x"}), &[]);
    scratch.tool("write_file", &json!({"path": "sub/inside.txt", "content": "x"}), &YES);
    scratch.tool("write_file", &json!({"path": "f", "content": "x"}), &[]);
    scratch.tool(
        "run_command",
        &json!({"command": "yes"}),
        &[&YES[..], &["--timeout", "1", "--output-limit", "1024"]].concat(),
    );
    let log = read_text(scratch.audit_log());
    write(scratch.audit_log(), format!("{log}{{\"event\":"));
    scratch.sh("true");
    let records = read_text(scratch.audit_log());
    let records: Vec<Value> = records.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let written: BTreeSet<(String, String)> = records
        .iter()
        .flat_map(|record| {
            let event = text(record, "event").to_owned();
            record.as_object().unwrap().keys().map(move |field| (field.clone(), event.clone()))
        })
        .collect();
    let document = read_text(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/audit.md"));
    let said: BTreeSet<(String, String)> = document
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .flat_map(|(field, rest)| {
            let events = rest.split(" | ").next().unwrap_or_default();
            let all = "begin end denied invalid torn";
            let events = if events == "all" { all } else { events };
            events.split(' ').map(|event| (field.to_owned(), event.to_owned())).collect::<Vec<_>>()
        })
        .collect();
    assert!(said.len() > 40, "the table was read");
    assert_eq!(written.difference(&said).collect::<Vec<_>>(), Vec::<&(String, String)>::new(), "written, but not said");
    assert_eq!(said.difference(&written).collect::<Vec<_>>(), Vec::<&(String, String)>::new(), "said, but not written");
}

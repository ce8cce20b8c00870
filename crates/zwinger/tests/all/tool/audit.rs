//! What `zwinger tool` leaves in the audit: every way to end has its record.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{NO, YES};
use crate::scratch::{Scratch, list, make_dir, read_text, write};

fn text<'a>(record: &'a Value, field: &str) -> &'a str {
    record.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The events in their order, after a check that each `begin` has one `end` of the same id behind it, and no id comes twice.
fn events(scratch: &Scratch) -> Vec<String> {
    let records = scratch.audit();
    let mut open = HashMap::new();
    for record in &records {
        let id = text(record, "id");
        assert!(!id.is_empty() && !text(record, "time").is_empty() && !text(record, "session").is_empty(), "{record}");
        match text(record, "event") {
            "begin" => assert!(open.insert(id, true).is_none(), "{record}"),
            "end" => assert_eq!(open.insert(id, false), Some(true), "{record}"),
            "invalid" | "denied" => assert!(open.insert(id, false).is_none(), "{record}"),
            _ => panic!("{record}"),
        }
    }
    assert!(open.values().all(|open| !open), "a begin without an end: {records:?}");
    records.iter().map(|record| text(record, "event").to_owned()).collect()
}

#[test]
fn n04_every_way_to_end_has_its_records() {
    let scratch = Scratch::new();
    scratch.plant();
    let mut seen = 0;
    let mut of = |tool: &str, arguments: Value, options: &[&str]| {
        scratch.tool(tool, &arguments, options);
        let all = events(&scratch);
        let new = all.get(seen..).unwrap().to_vec();
        seen = all.len();
        new
    };
    const DONE: [&str; 2] = ["begin", "end"];
    assert_eq!(of("format_disk", json!({}), &[]), ["invalid"]);
    assert_eq!(of("read_file", json!({"path": "f", "approved": true}), &[]), ["invalid"]);
    assert_eq!(of("read_file", json!({"path": "../x"}), &[]), ["invalid"]);
    assert_eq!(of("write_file", json!({"path": "chain-1/f", "content": "x"}), &YES), ["invalid"]);
    assert_eq!(of("write_file", json!({"path": "fifo", "content": "x"}), &YES), ["invalid"]);
    assert_eq!(of("read_file", json!({"path": "sub/inside.txt"}), &[]), DONE);
    // The kernel refuses it when it is opened, so it was begun.
    assert_eq!(of("read_file", json!({"path": "chain-1/marker"}), &[]), DONE);
    assert_eq!(of("list_directory", json!({}), &[]), DONE);
    assert_eq!(of("get_time", json!({}), &[]), DONE);
    assert_eq!(of("write_file", json!({"path": "f", "content": "x"}), &NO), ["denied"]);
    assert_eq!(of("write_file", json!({"path": "f", "content": "x"}), &[]), ["denied"]);
    assert_eq!(of("write_file", json!({"path": "f", "content": "x"}), &YES), DONE);
    assert_eq!(of("run_command", json!({"command": "sudo true"}), &YES), ["denied"]);
    assert_eq!(of("run_command", json!({"command": "false"}), &YES), DONE);
    assert_eq!(of("run_command", json!({"command": "sleep 600", "timeout_seconds": 1}), &YES), DONE);
    assert_eq!(of("run_command", json!({"command": "kill -9 $$"}), &YES), DONE);
}

#[test]
fn n05_records_say_what_was_done_and_who_said_so() {
    let scratch = Scratch::new();
    scratch.tool("write_file", &json!({"path": "f", "content": "hello"}), &YES);
    scratch.tool("run_command", &json!({"command": "exit 3"}), &YES);
    scratch.tool("run_command", &json!({"command": "sudo id"}), &YES);
    scratch.tool("write_file", &json!({"path": "g", "content": "hello"}), &[]);
    let records = scratch.audit();
    let [begin, end, command, failed, denied, unanswered] = records.as_slice() else { panic!("{records:?}") };
    assert_eq!(
        (text(begin, "tool"), text(begin, "by"), text(begin, "decision")),
        ("write_file", "--approve yes", "once")
    );
    assert_eq!(begin.pointer("/arguments/path"), Some(&json!("f")));
    assert_eq!(begin.pointer("/arguments/bytes"), Some(&json!(5)));
    // BLAKE3 of "hello", and no content.
    let hash = "ea8f163db38682925e4491c5e58d4bb3506ef8c14eb78a86e908c5624a67200f";
    assert_eq!(begin.pointer("/arguments/blake3"), Some(&json!(hash)));
    assert!(!begin.to_string().contains("hello"));
    assert_eq!(text(begin, "workspace"), scratch.work.to_str().unwrap());
    assert_eq!(text(begin, "backend"), "landlock");
    assert_eq!(begin.pointer("/enforcement/files"), Some(&json!("full")));
    assert_eq!((end.get("success"), text(end, "after")), (Some(&json!(true)), hash));
    assert!(begin.get("before").is_none(), "{begin}");
    assert_eq!(command.pointer("/arguments/command"), Some(&json!("exit 3")));
    assert_eq!(command.pointer("/arguments/timeout_seconds"), Some(&json!(60)), "unless asked otherwise");
    assert_eq!((failed.get("success"), failed.get("exit_code")), (Some(&json!(false)), Some(&json!(3))));
    assert_eq!((text(denied, "by"), text(denied, "rule")), ("policy", "built-in: denylist"));
    assert_eq!((text(unanswered, "by"), text(unanswered, "decision")), ("terminal", "unanswered"));
}

#[test]
fn n02_a_command_reaches_no_record() {
    let scratch = Scratch::new();
    scratch.tool("get_time", &json!({}), &[]);
    let before = read_text(scratch.audit_log());
    let log = scratch.audit_log();
    for script in
        [format!("cat {0}", log.display()), format!("echo x >> {0}", log.display()), format!("rm {0}", log.display())]
    {
        let ended = scratch.tool("run_command", &json!({"command": script}), &YES);
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(!ended.text().contains("session"), "{ended:?}");
    }
    let after = read_text(&log);
    assert!(after.starts_with(&before) && after.lines().count() == 2 + 3 * 2);
    events(&scratch);
}

#[test]
fn what_cannot_be_recorded_is_not_done() {
    let scratch = Scratch::new();
    let zwinger = scratch.base.join("zwinger");
    // No file can grow. Making a directory would still work.
    const FULL: &str = "trap '' XFSZ; (ulimit -f 0; \"$@\"; echo $?) 2>&1 | cat";
    let run = |prefix: &[&str]| {
        let words =
            [zwinger.to_str().unwrap(), "tool", "run_command", r#"{"command": "mkdir ran"}"#, "--approve", "yes"];
        let mut command = scratch.command(&[prefix, &words].concat());
        command.env("HOME", &scratch.home).env("XDG_STATE_HOME", scratch.base.join("state"));
        scratch.start(command).end()
    };
    let ended = run(&["sh", "-c", FULL, "sh"]);
    assert!(ended.shows("audit log cannot be written") && ended.text().ends_with("125\n"), "{ended:?}");
    assert_eq!(list(&scratch.work), ["sub"]);
    assert_eq!(run(&[]).code, 0);
    assert_eq!(list(&scratch.work), ["ran", "sub"]);
}

#[test]
fn without_an_audit_nothing_opens() {
    for spoil in [
        (|scratch: &Scratch| make_dir(scratch.audit_log())) as fn(&Scratch),
        |scratch| std::os::unix::fs::symlink(scratch.work.join("log"), scratch.audit_log()).unwrap(),
        |scratch| {
            let fifo = rustix::fs::FileType::Fifo;
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, scratch.audit_log(), fifo, mode, 0).unwrap();
        },
        |scratch| {
            std::path::Path::new(&scratch.audit_log()).parent().map(crate::scratch::remove_dir).unwrap();
            write(scratch.state().join("audit"), "");
        },
        |scratch| crate::scratch::chmod(scratch.state(), 0o755),
    ] {
        let scratch = Scratch::new();
        scratch.tool("get_time", &json!({}), &[]);
        crate::scratch::remove(scratch.audit_log());
        spoil(&scratch);
        let ended = scratch.tool("run_command", &json!({"command": "touch ran"}), &YES);
        assert_eq!((ended.code, ended.text().as_str()), (125, ""), "{ended:?}");
        assert_eq!(list(&scratch.work), ["sub"]);
    }
}

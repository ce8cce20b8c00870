//! `zwinger tool`: one call, its JSON and its exit code.

mod audit;
mod command;
mod edit;
mod paths;
mod read_only;

use std::io::Write;
use std::process::Stdio;

use serde_json::json;

use crate::process::Tag;
use crate::scratch::{Ended, Scratch, list, read_text, write};

const YES: [&str; 2] = ["--approve", "yes"];
const NO: [&str; 2] = ["--approve", "no"];

/// Runs `zwinger tool` with these words and this standard input.
pub(crate) fn with_input(scratch: &Scratch, words: &[&str], input: &str) -> Ended {
    let mut command = scratch.zwinger(&[&["tool"], words].concat());
    command.stdin(Stdio::piped());
    let mut running = scratch.start(command);
    // Zwinger may end without reading it.
    let _ = running.stdin().write_all(input.as_bytes());
    running.end()
}

#[test]
fn results_and_exit_codes() {
    let scratch = Scratch::new();
    let done = scratch.tool("read_file", &json!({"path": "sub/inside.txt"}), &[]);
    assert_eq!((done.code, done.json()), (0, json!({"success": true, "output": "inside\n"})));
    let failed = scratch.tool("read_file", &json!({"path": "missing"}), &[]);
    assert_eq!(failed.code, 1);
    assert_eq!(
        failed.json(),
        json!({"success": false, "output": "", "error": "Error: missing does not exist; list_directory shows what there is."})
    );
    let command = scratch.tool("run_command", &json!({"command": "echo out; echo err >&2; exit 3"}), &YES);
    assert_eq!(command.code, 1);
    let result = command.json();
    let field = |name: &str| result.get(name).cloned().unwrap_or_default();
    assert_eq!((field("success"), field("exit_code"), field("timed_out")), (json!(false), json!(3), json!(false)));
    assert_eq!((field("stdout"), field("stderr")), (json!("out\n"), json!("err\n")));
    assert_eq!(field("backend"), json!("landlock"));
    let enforcement = field("enforcement");
    for name in ["files", "network", "syscalls", "processes", "memory", "metadata", "secrets"] {
        let level = enforcement.get(name).and_then(|held| held.get("level"));
        assert!(level.is_some_and(|level| level == "full" || level == "partial" || level == "none"), "{name}");
    }
}

#[test]
fn usage_is_2_and_nothing_runs() {
    let scratch = Scratch::new();
    for (arguments, says) in [
        (&["read_file"][..], "JSON"),
        (&["read_file", "{}", "--backend", "nonsense"], "nonsense"),
        (&["read_file", "{}", "--approve", "maybe"], "maybe"),
        (&["read_file", "{}", "--approved"], "--approved"),
    ] {
        let ended = scratch.start(scratch.zwinger(&[&["tool"], arguments].concat())).end();
        assert_eq!((ended.code, ended.text().as_str()), (2, ""), "{arguments:?} {ended:?}");
        assert!(ended.stderr.contains(says), "{arguments:?} {ended:?}");
    }
    for text in ["{", "path", "", "{\"path\": \"f\"} x"] {
        for (words, input) in [(["read_file", text], ""), (["read_file", "-"], text)] {
            let ended = with_input(&scratch, &words, input);
            assert!(ended.code == 2 && ended.error().starts_with("Error: the arguments are no JSON ("), "{ended:?}");
        }
    }
    let records = scratch.audit();
    assert_eq!(records.iter().filter(|record| record["event"] == "invalid").count(), 8, "{records:?}");
    for (tool, arguments, says) in [
        ("format_disk", json!({}), "unknown tool"),
        ("write_file", json!({"path": "f"}), "missing argument \"content\""),
        ("write_file", json!({"path": "f", "content": 7}), "content must be a string"),
        ("read_file", json!(["f"]), "takes an object"),
        ("run_command", json!({"command": "touch f", "timeout_seconds": 0}), "from 1 to 600"),
        ("run_command", json!({"command": "touch f", "timeout_seconds": -1}), "from 1 to 600"),
        ("run_command", json!({"command": "touch f", "timeout_seconds": 1e12}), "from 1 to 600"),
        ("run_command", json!({"command": "touch f\0"}), "NUL"),
    ] {
        let ended = scratch.tool(tool, &arguments, &YES);
        assert_eq!(ended.code, 2, "{tool} {arguments} {ended:?}");
        assert!(ended.error().starts_with("Error: ") && ended.error().contains(says), "{ended:?}");
    }
    assert_eq!(list(&scratch.work), ["sub"]);
}

#[test]
fn f01_invented_arguments_loosen_nothing() {
    let scratch = Scratch::new();
    for invented in ["approved", "dangerouslyDisableSandbox", "sandbox", "network", "_x"] {
        let ended = scratch.tool("write_file", &json!({"path": "f", "content": "x", invented: true}), &YES);
        let says = format!("Error: unknown argument \"{invented}\"; write_file takes path, content");
        assert_eq!((ended.code, ended.error()), (2, says));
    }
    assert_eq!(list(&scratch.work), ["sub"]);
    assert_eq!(scratch.tool("write_file", &json!({"path": "f", "content": "x"}), &YES).code, 0);
}

#[test]
fn arguments_from_standard_input() {
    let scratch = Scratch::new();
    let ended = with_input(&scratch, &["read_file", "-"], r#"{"path": "sub/inside.txt"}"#);
    assert_eq!(ended.json(), json!({"success": true, "output": "inside\n"}));
    let ended = with_input(&scratch, &["read_file", "-"], "no JSON");
    assert_eq!((ended.code, &ended.json()["success"]), (2, &json!(false)));
    assert!(ended.error().contains("are no JSON"), "{ended:?}");
}

#[test]
fn what_cannot_be_opened_ends_with_125() {
    let scratch = Scratch::new();
    let open = |options: &[&str], state: &std::path::Path| {
        let mut command =
            scratch.zwinger(&[&["tool", "run_command", r#"{"command": "touch f"}"#], &YES[..], options].concat());
        command.env("XDG_STATE_HOME", state);
        scratch.start(command).end()
    };
    let state = scratch.base.join("state");
    write(scratch.base.join("file"), "");
    let inside = scratch.work.join("state");
    for ended in [
        open(&["--workdir", "/"], &state),
        open(&["--workdir", "/no/such/place"], &state),
        // A model could write its own audit.
        open(&[], &inside),
        open(&[], &scratch.base.join("file")),
    ] {
        assert_eq!((ended.code, ended.text().as_str()), (125, ""), "{ended:?}");
        assert!(ended.stderr.starts_with("zwinger: "), "{ended:?}");
    }
    assert!(!scratch.work.join("f").exists());
    assert_eq!(open(&[], &state).code, 0);
    assert!(scratch.work.join("f").exists());
}

#[test]
fn aliases_lead_to_the_same_tools() {
    let scratch = Scratch::new();
    let ok = |name: &str, arguments: serde_json::Value| {
        let ended = scratch.tool(name, &arguments, &YES);
        assert_eq!(ended.code, 0, "{name} {ended:?}");
        ended.json().get("output").cloned().unwrap()
    };
    for name in ["write_file", "file_write", "fs_write"] {
        assert_eq!(ok(name, json!({"path": name, "content": name})), format!("Wrote {name} ({} bytes).", name.len()));
    }
    for name in ["read_file", "file_read", "fs_read"] {
        assert_eq!(ok(name, json!({"path": "fs_write"})), "fs_write");
    }
    for name in ["list_directory", "list_dir"] {
        assert_eq!(ok(name, json!({})), "file_write\nfs_write\nsub/\nwrite_file");
        assert_eq!(ok(name, json!({"path": "sub"})), "inside.txt");
    }
    for name in ["run_command", "run_shell", "shell"] {
        assert_eq!(ok(name, json!({"command": "cat fs_write"})), "fs_write");
    }
    assert!(ok("get_time", json!({})).as_str().unwrap().starts_with("20"));
}

#[test]
fn a_part_of_a_file() {
    let scratch = Scratch::new();
    write(scratch.work.join("five"), "one\ntwo\nthree\nfour\nfive\n");
    let read = |arguments: serde_json::Value| scratch.tool("read_file", &arguments, &[]).json();
    let text = |arguments| read(arguments).get("output").cloned().unwrap_or_default();
    assert_eq!(text(json!({"path": "five", "offset": 4})), "four\nfive\n");
    assert_eq!(text(json!({"path": "five", "offset": 6})), "[five has 5 lines]\n");
    let part = text(json!({"path": "five", "offset": 2, "limit": 2}));
    assert_eq!(part, "two\nthree\n[lines 2–3; the file goes on: read_file with offset 4]\n");
    write(scratch.work.join("binary"), [b'a', 0, b'b']);
    write(scratch.work.join("latin"), [b'a', 0xe9, b'\n']);
    for (path, says) in [("binary", "binary"), ("latin", "UTF-8")] {
        let result = read(json!({"path": path}));
        assert!(result.get("error").unwrap().as_str().unwrap().contains(says), "{result}");
    }
}

#[test]
fn f04_json_shows_what_a_terminal_would_obey() {
    let scratch = Scratch::new();
    let hostile = "\u{9b}2K\u{7f}\u{202e}\u{e0041}grün\n";
    write(scratch.work.join("f"), hostile);
    let read = scratch.tool("read_file", &json!({"path": "f"}), &[]);
    let ran = scratch.run(&["--json", "--", "cat", "f"]);
    for ended in [read, ran] {
        assert_eq!(ended.json()["output"], hostile);
        let text = ended.text();
        assert!(text.contains("grün") && !text.contains(['\u{9b}', '\u{7f}', '\u{202e}', '\u{e0041}']), "{text}");
    }
}

#[test]
fn help_has_the_tools_with_their_arguments() {
    let scratch = Scratch::new();
    for flag in ["--help", "-h"] {
        let help = scratch.start(scratch.zwinger(&["tool", flag])).end().text();
        for tool in zwinger_core::tools::ALL {
            let line = help.lines().find_map(|line| line.strip_prefix("  ")?.strip_prefix(tool.name));
            let line = line.unwrap_or_else(|| panic!("{}: {help}", tool.name));
            for parameter in tool.parameters {
                let mark = if parameter.required { "" } else { "?" };
                let words = line.split([' ', ',']).collect::<Vec<_>>();
                assert!(words.contains(&format!("{}{mark}", parameter.name).as_str()), "{line}");
            }
        }
    }
}

#[test]
fn a_write_needs_a_yes() {
    let scratch = Scratch::new();
    let arguments = json!({"path": "f", "content": "x"});
    let denied = scratch.tool("write_file", &arguments, &NO);
    assert_eq!((denied.code, denied.error().as_str()), (3, "Error: write to f declined by the user."));
    assert_eq!(list(&scratch.work), ["sub"]);
    let denied = scratch.tool("run_command", &json!({"command": "touch f"}), &NO);
    assert_eq!((denied.code, denied.error().as_str()), (3, "Error: command declined by the user."));
    assert_eq!(list(&scratch.work), ["sub"]);
    let done = scratch.tool("write_file", &arguments, &YES);
    assert_eq!(done.json(), json!({"success": true, "output": "Wrote f (1 byte)."}));
    assert_eq!(read_text(scratch.work.join("f")), "x");
}

/// Whoever reads the result alone must not take it for done.
#[test]
fn what_a_call_left_and_was_moved_away_stands_in_its_result() {
    let scratch = Scratch::new();
    let ended = scratch.tool("write_file", &json!({"path": "AGENTS.md", "content": "x"}), &YES);
    let result = ended.json();
    assert_eq!(
        (ended.code, &result["success"], &result["output"]),
        (0, &json!(true), &json!("Wrote AGENTS.md (1 byte)."))
    );
    let [moved] = result["quarantined"].as_array().unwrap().as_slice() else { panic!("{result}") };
    assert_eq!((&moved["path"], moved["why"].is_string()), (&json!("AGENTS.md"), true));
    assert_eq!(read_text(moved["kept_at"].as_str().unwrap()), "x");
    assert!(!scratch.work.join("AGENTS.md").exists());
    assert!(ended.stderr.contains("zwinger: quarantined AGENTS.md ("), "{ended:?}");
}

#[test]
fn a_workspace_that_is_none_is_said_at_every_door() {
    let scratch = Scratch::new();
    let file = scratch.work.join("sub/inside.txt");
    for (workdir, says) in
        [("/nonexistent", "No such file or directory"), (file.to_str().unwrap(), "is not a directory")]
    {
        for words in [
            &["tool", "get_time", "{}"][..],
            &["tool", "get_time", "{}", "--backend", "none"],
            &["tool", "get_time", "{}", "--mode", "full-access"],
            &["session", "list"],
            &["session", "delete", "0123456789abcdef"],
            &["ask", "do it"],
        ] {
            let ended = scratch.start(scratch.zwinger(&[words, &["--workdir", workdir]].concat())).end();
            assert_eq!((ended.code, ended.text().as_str()), (125, ""), "{words:?} {ended:?}");
            let line = ended.stderr.lines().last().unwrap();
            assert!(line.contains(workdir) && line.contains(says), "{words:?} {ended:?}");
        }
        let ended = scratch.start(scratch.zwinger(&["run", "--workdir", workdir, "--", "true"])).end();
        assert!(ended.code == 125 && ended.stderr.contains(says), "{ended:?}");
    }
    assert!(!scratch.audit_log().exists(), "nothing was called");
}

#[test]
fn f16_without_a_terminal_it_is_a_no_at_once() {
    let scratch = Scratch::new();
    for words in [["write_file", r#"{"path": "f", "content": "x"}"#], ["run_command", r#"{"command": "touch f"}"#]] {
        // Standard input answers nothing, whatever comes in there.
        let ended = with_input(&scratch, &words, "y\ny\na\n");
        assert_eq!(ended.code, 3);
        let says = "Error: denied: needs approval and there is no terminal. Use --approve yes";
        assert!(ended.error().starts_with(says), "{ended:?}");
    }
    assert_eq!(list(&scratch.work), ["sub"]);
}

#[test]
fn the_denylist_is_not_asked_about() {
    let scratch = Scratch::new();
    let tag = Tag::new();
    write(scratch.work.join(".git"), "");
    for command in
        ["sudo true".to_owned(), "true && su -".into(), "rm -rf .git".into(), format!("sleep {} & sudo true", tag.0)]
    {
        let ended = scratch.tool("run_command", &json!({"command": command}), &YES);
        assert_eq!(ended.code, 3, "{ended:?}");
        let error = ended.error();
        assert!(error.starts_with("Error: refused: ") && error.ends_with(" (denylist)."), "{error}");
    }
    assert_eq!(list(&scratch.work), [".git", "sub"]);
    tag.assert_gone();
}

//! `zwinger doctor`, and what a person at the terminal is told of the walls.

use crate::caller::skipped;
use crate::process;
use crate::scratch::{Scratch, chmod, list, make_dir, write};

#[test]
fn a_state_directory_that_cannot_be_used_shows() {
    let scratch = Scratch::new();
    let doctor = |state: &std::path::Path| {
        let mut command = scratch.zwinger(&["doctor", "--json"]);
        command.env("XDG_STATE_HOME", state);
        scratch.start(command).end().json()
    };
    let good = doctor(&scratch.base.join("state"));
    assert!(good["state"].is_string() && good["state_error"].is_null(), "{good}");
    write(scratch.base.join("file"), "");
    let bad = doctor(&scratch.base.join("file"));
    assert!(bad["state"].is_null() && bad["state_error"].as_str().unwrap().contains("file"), "{bad}");
    let reason = |findings: &serde_json::Value| {
        findings
            .pointer("/enforcement/metadata/reason")
            .map_or_else(String::new, |reason| reason.as_str().unwrap().into())
    };
    assert!(!reason(&good).contains("no quarantine"), "{good}");
    assert!(reason(&bad).contains("no quarantine") || bad["error"].as_str().unwrap().contains("metadata"), "{bad}");
}

#[test]
fn what_is_hidden_and_shown_is_counted() {
    let scratch = Scratch::new();
    for name in [".env", "sub/.env", "plain"] {
        write(scratch.work.join(name), "x");
    }
    let hidden = |options: &[&str]| {
        let ended = scratch.start(scratch.zwinger(&[&["doctor", "--json"], options].concat())).end();
        ended.json()["hidden"].as_u64().unwrap()
    };
    assert_eq!(hidden(&[]), 2);
    assert_eq!(hidden(&["--show", ".env"]), 1);
    assert_eq!(hidden(&["--hide", "plain", "--show", "sub/.env"]), 2);
    for options in
        [&["--show", "plain"][..], &["--show", "sub"], &["--show", ".env", "--show", scratch.out.to_str().unwrap()]]
    {
        let ended = scratch.sh_with(options, "touch ran");
        assert!(ended.code == 125 && ended.stderr.contains("--show") && ended.stderr.contains("--read"), "{ended:?}");
    }
    assert!(!scratch.work.join("ran").exists());
}

#[test]
fn a_person_is_told_what_the_walls_are() {
    let name = "doctor::a_person_is_told_what_the_walls_are";
    let scratch = Scratch::new();
    if !scratch.caller.has_namespaces() || !process::succeeds(&["script", "-qec", "true", "/dev/null"]) {
        return skipped(name, "needs script(1) and user namespaces");
    }
    let on_terminal = |words: &str| {
        let line = format!("{} run {words}", scratch.base.join("zwinger").display());
        let mut command = scratch.command(&["script", "-qec", &line, "/dev/null"]);
        command.env("HOME", &scratch.home).env("TMPDIR", scratch.base.join("tmp"));
        scratch.start(command).end().text()
    };
    assert!(!on_terminal("true").contains("walls:"));
    let told = on_terminal("-- false");
    assert!(told.contains("walls: writable here: ., $TMPDIR (--write DIR) · network off (--net on)\r\n"), "{told}");
    write(scratch.work.join(".env"), "x");
    write(scratch.work.join("sub/.env"), "x");
    let told = on_terminal("-- cat .env");
    assert!(told.contains("hidden: .env, sub/.env (--show)"), "{told}");
    assert!(!on_terminal("--show .env --show sub/.env -- cat .env").contains("walls:"));
    // How these ended has its own reason, and is said.
    for words in ["--timeout 1 -- sleep 600", "-- sh -c 'kill -INT $$'", "-- no-such-program", "-- ./sub"] {
        assert!(!on_terminal(words).contains("walls:"), "{words}");
    }
    for name in ["AGENTS.md", "CLAUDE.md", "GEMINI.md", ".mcp.json"] {
        write(scratch.work.join(name), "x");
    }
    let told = on_terminal("-- false");
    assert!(told.contains(" · read-only: .mcp.json, AGENTS.md, CLAUDE.md, 1 more · hidden: "), "{told}");
}

#[test]
fn a_program_is_told_what_is_hidden() {
    let name = "doctor::a_program_is_told_what_is_hidden";
    let scratch = Scratch::new();
    if !scratch.caller.has_namespaces() {
        return skipped(name, "needs user namespaces");
    }
    write(scratch.work.join(".env"), "x");
    write(scratch.work.join("sub/.env"), "x");
    let failed = scratch.sh("echo own; false");
    assert!(failed.text() == "own\n" && failed.stderr.contains("hidden: .env, sub/.env (--show)"), "{failed:?}");
    assert_eq!(failed.stderr.lines().count(), 1, "{failed:?}");
    assert_eq!(scratch.sh("true").stderr, "");
    let json = scratch.run(&["--json", "--show", ".env", "--", "false"]);
    assert!(json.json()["hidden"] == serde_json::json!(["sub/.env"]) && json.stderr.is_empty(), "{json:?}");
    let report = scratch.base.join("report");
    scratch.run(&["--report", report.to_str().unwrap(), "--", "true"]);
    let report: serde_json::Value = serde_json::from_str(&crate::scratch::read_text(&report)).unwrap();
    assert_eq!(report["hidden"], serde_json::json!([".env", "sub/.env"]));
    let none = scratch.run(&["--backend", "none", "--json", "--", "cat", ".env"]).json();
    assert_eq!((&none["hidden"], &none["stdout"]), (&serde_json::json!([]), &serde_json::json!("x")));
}

#[test]
fn what_run_cannot_do_without_is_an_error_with_a_remedy() {
    let scratch = Scratch::new();
    write(scratch.base.join("file"), "");
    make_dir(scratch.base.join("closed"));
    chmod(scratch.base.join("closed"), 0o755);
    make_dir(scratch.base.join("closed/zwinger"));
    chmod(scratch.base.join("closed/zwinger"), 0o777);
    let with = |state: &str, words: &[&str]| {
        let mut command = scratch.zwinger(words);
        command.env("XDG_STATE_HOME", scratch.base.join(state));
        scratch.start(command).end()
    };
    assert_eq!(with("state", &["doctor"]).code, 0);
    for state in ["file", "closed", "work"] {
        assert_eq!(with(state, &["run", "--", "true"]).code, 125, "{state}");
        let fix = with(state, &["doctor", "--fix"]);
        assert!(
            fix.code == 1 && fix.text().contains("state: ") && fix.text().contains("XDG_STATE_HOME=DIR"),
            "{fix:?}"
        );
        assert!(!fix.text().contains("nothing to mend"), "{fix:?}");
        assert_eq!(with(state, &["doctor"]).code, 1, "{state}");
    }
}

#[test]
fn without_a_workspace_the_machine_is_told_all_the_same() {
    let scratch = Scratch::new();
    let temporary = scratch.base.join("tmp");
    for workspace in ["/", scratch.home.to_str().unwrap(), "/no/such/place"] {
        let doctor = |words: &[&str]| {
            let words = [&["doctor", "--workdir", workspace], words].concat();
            scratch.start(scratch.zwinger(&words)).end()
        };
        let ended = doctor(&[]);
        assert!(ended.code == 1 && ended.text().contains("files full · network full"), "{ended:?}");
        assert!(ended.text().contains(&format!("\nworkspace  none: {workspace}")), "{ended:?}");
        let json = doctor(&["--json"]).json();
        assert!(json["workspace"] == workspace && json["workspace_error"].is_string(), "{json}");
        assert!(!doctor(&["--fix"]).text().contains("nothing to mend"));
    }
    let left = list(&temporary).into_iter().filter(|name| name.starts_with("zwinger-doctor")).count();
    assert_eq!(left, 0);
}

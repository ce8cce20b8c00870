//! `zwinger run`: what a command can touch, what it is told, how it ends.

mod lifetime;
mod names;
mod network;
mod result;
mod streams;
mod system;
mod workspace;

use std::io::Write;
use std::process::Stdio;

use serde_json::json;

use crate::caller::Caller;
use crate::scratch::{Ended, Scratch, System, chmod, list, make_dir, read_text, write};

for_every_caller!(
    only_the_workspace_is_written,
    d11_attributes_outside_stay_or_it_is_said,
    a28_nothing_outside_is_read,
    a08_a_workspace_given_through_a_link,
    commands_start_in_the_workspace,
    b14_nothing_new_is_left,
    b20_programs_of_the_workspace_are_not_found,
    d04_files_move_between_directories,
    exit_codes,
    modes_are_walls,
    stdin_is_passed_through,
    g01_g02_only_known_variables,
    g04_c22_no_process_shows_its_secrets,
    c13_three_descriptors,
);

fn modes_are_walls(scratch: &Scratch) {
    let out = scratch.out.to_str().unwrap();
    write(scratch.work.join("in"), "here");
    scratch.give_all();
    let script = format!("cat in; echo x > $TMPDIR/t && echo x > new; echo x > {out}/new");
    let ended = scratch.sh_with(&["--mode", "plan"], &script);
    assert!(ended.code != 0 && ended.text() == "here", "{ended:?}");
    assert!(!scratch.work.join("new").exists());
    scratch.assert_out_untouched();
    for options in [
        &["--mode", "plan", "--backend", "none"][..],
        &["--mode", "full-access", "--backend", "landlock"],
        &["--mode", "full-access", "--hide", "in"],
        &["--backend", "none", "--hide", "in"],
    ] {
        assert_eq!(scratch.sh_with(options, &script).code, 125, "{options:?}");
    }
    let ended = scratch.sh_with(&["--mode", "full-access"], &script);
    assert!(ended.code == 0 && ended.stderr.contains("no walls"), "{ended:?}");
    let ended = scratch.sh_with(&["--backend", "none"], "true");
    assert!(ended.code == 0 && ended.stderr.contains("backend none: no walls"), "{ended:?}");
    assert_eq!(read_text(scratch.out.join("new")), "x\n");
}

fn only_the_workspace_is_written(scratch: &Scratch) {
    let ended = scratch.sh("echo hi > ok.txt; echo bye > $HOME/blocked.txt");
    assert_eq!(read_text(scratch.work.join("ok.txt")), "hi\n");
    assert_ne!(ended.code, 0);
    assert!(ended.stderr.contains("blocked.txt"), "{ended:?}");
    for script in [
        "echo x > OUT/marker",
        "echo x > OUT/new",
        "mkdir OUT/new",
        "ln OUT/marker alias && echo x > alias",
        "ln -s OUT link; echo x > link/new",
        "cd OUT && echo x > new",
        "echo x > ../work-evil/new",
        "echo x > /proc/self/cwd/../work-evil/new",
        "mv sub OUT/",
        "rm OUT/marker",
    ] {
        assert!(leaves_out_alone(scratch, script), "{script}");
    }
    scratch.assert_out_untouched();
    assert_ne!(scratch.sh("echo x > /etc/zwinger-was-here").code, 0);
    assert_ne!(scratch.sh("echo x > /proc/1/root/etc/zwinger-was-here").code, 0);
    assert!(!std::path::Path::new("/etc/zwinger-was-here").exists());
}

/// Whether a script changes nothing that can be seen of `OUT`. Asserts that it does where nothing holds it.
fn leaves_out_alone(scratch: &Scratch, script: &str) -> bool {
    let changes = |scratch: &Scratch, options: &[&str]| {
        let before = scratch.out_listing();
        scratch.sh_with(options, &script.replace("OUT", scratch.out.to_str().unwrap()));
        scratch.out_listing() != before
    };
    let bare = Scratch::of(scratch.caller, System::Own);
    assert!(changes(&bare, &["--backend", "none"]), "{script}");
    !changes(scratch, &[])
}

fn d11_attributes_outside_stay_or_it_is_said(scratch: &Scratch) {
    for script in ["touch -d 2001-01-01 OUT/marker", "chmod 700 OUT/marker", "chmod 777 OUT"] {
        let held = leaves_out_alone(scratch, script);
        if scratch.caller.has_namespaces() {
            assert!(held, "{script}");
        } else if !held {
            let ended = scratch.tool("run_command", &json!({"command": "true"}), &["--approve", "yes"]);
            let result = ended.json();
            let reason = result.pointer("/enforcement/files/reason").and_then(|reason| reason.as_str());
            assert!(reason.unwrap_or_default().contains("modes, owners and times"), "{ended:?}");
        }
    }
}

fn a28_nothing_outside_is_read(scratch: &Scratch) {
    scratch.plant();
    let read = |script: &str, options: &[&str]| scratch.sh_with(options, script).shows(&scratch.secret);
    let out = scratch.out.display();
    for script in [
        format!("cat {out}/marker"),
        format!("grep -r . {out}"),
        "cat absolute-link/marker".into(),
        "cat chain-1/marker".into(),
        "cat file-link".into(),
        "cat ../work-evil/marker".into(),
        "cat /proc/1/root$PWD/../work-evil/marker".into(),
        "cat $HOME/private".into(),
    ] {
        assert!(!read(&script, &[]), "{script}");
    }
    // The same is read where nothing holds it, so it is the walls that held.
    assert!(read("cat chain-1/marker", &["--backend", "none"]));
    assert!(read("cat $HOME/private", &["--backend", "none"]));
    assert!(read(&format!("cat {out}/marker"), &["--read", scratch.out.to_str().unwrap()]));
}

fn a08_a_workspace_given_through_a_link(scratch: &Scratch) {
    let link = scratch.base.join("link");
    std::os::unix::fs::symlink(&scratch.work, &link).unwrap();
    let script = format!("echo x > made && cat {}/made {}/marker", scratch.work.display(), scratch.out.display());
    let ended = scratch.sh_with(&["--workdir", link.to_str().unwrap()], &script);
    assert_eq!(ended.text(), "x\n");
    assert_ne!(ended.code, 0);
    assert_eq!(read_text(scratch.work.join("made")), "x\n");
}

fn commands_start_in_the_workspace(scratch: &Scratch) {
    // Started elsewhere, so that it is --workdir that leads there.
    let from_home = |words: &[&str]| {
        let mut command = scratch.zwinger(words);
        command.current_dir(&scratch.home);
        scratch.start(command).end()
    };
    let (work, pwd) = (scratch.work.to_str().unwrap(), json!({"command": "pwd"}).to_string());
    for backend in ["auto", "none"] {
        let ended = from_home(&["run", "--backend", backend, "--workdir", work, "--", "pwd"]);
        assert_eq!(ended.text(), format!("{work}\n"), "{ended:?}");
        let words = ["tool", "run_command", &pwd, "--approve", "yes", "--backend", backend, "--workdir", "../work"];
        let ended = from_home(&words);
        assert_eq!(ended.json().get("output"), Some(&json!(format!("{work}\n"))), "{ended:?}");
    }
}

fn b14_nothing_new_is_left(scratch: &Scratch) {
    assert_eq!(scratch.sh("echo x > $TMPDIR/temporary && cat $TMPDIR/temporary").text(), "x\n");
    assert_eq!(list(&scratch.work), ["sub"]);
    scratch.assert_out_untouched();
}

fn b20_programs_of_the_workspace_are_not_found(scratch: &Scratch) {
    write(scratch.work.join("true"), "#!/bin/sh\necho fooled\n");
    chmod(scratch.work.join("true"), 0o755);
    let mut command = scratch.zwinger(&["run", "--", "true"]);
    command.env("PATH", ".::/usr/bin:/bin");
    let ended = scratch.start(command).end();
    assert_eq!((ended.code, ended.text().as_str()), (0, ""));
    assert_eq!(scratch.run(&["--", "./true"]).text(), "fooled\n");
}

fn d04_files_move_between_directories(scratch: &Scratch) {
    let ended = scratch.sh("echo x > f && mkdir d && mv f d/ && ln d/f g && mv sub d/ && ls d");
    assert_eq!((ended.code, ended.text().as_str()), (0, "f\nsub\n"), "{ended:?}");
}

fn exit_codes(scratch: &Scratch) {
    let code = |script: &str| scratch.sh(script).code;
    assert_eq!(code("exit 0"), 0);
    assert_eq!(code("exit 3"), 3);
    assert_eq!(code("exit 255"), 255);
    assert_eq!(code("kill -9 $$"), 128 + 9);
    assert_eq!(code("kill -TERM $$"), 128 + 15);
    let missing = scratch.run(&["--", "no-such-program"]);
    assert_eq!(missing.code, 127);
    assert!(missing.stderr.contains("no-such-program"), "{missing:?}");
    assert_eq!(scratch.run(&["--", "./no-such-file"]).code, 127);
    let quoted = scratch.run(&["--", "cat sub/inside.txt"]);
    assert!(quoted.code == 127 && quoted.stderr.contains("one word") && quoted.stderr.contains("sh -c"), "{quoted:?}");
    assert!(!missing.stderr.contains("one word"), "{missing:?}");
    // A directory and a file that is not executable.
    assert_eq!(scratch.run(&["--", "./sub"]).code, 126);
    assert_eq!(scratch.run(&["--", "./sub/inside.txt"]).code, 126);
    let limited = scratch.run(&["--timeout", "1", "--", "sleep", "600"]);
    assert_eq!(limited.code, 124);
    assert!(limited.stderr.contains("--timeout"), "{limited:?}");
}

fn stdin_is_passed_through(scratch: &Scratch) {
    let mut command = scratch.zwinger(&["run", "--", "sh", "-c", "read first; echo got $first; cat"]);
    command.stdin(Stdio::piped());
    let mut running = scratch.start(command);
    running.stdin().write_all(b"one\ntwo\nthree\n").unwrap();
    assert_eq!(running.end().text(), "got one\ntwo\nthree\n");
}

/// Names and contents that must not come in: an allow-list needs to know none of them.
const SECRETS: [&str; 8] = [
    "FOO_API_KEY",
    "mistral_api_key",
    "AWS_SECRET_ACCESS_KEY",
    "SSH_AUTH_SOCK",
    "MYSQL_PWD",
    "BASH_ENV",
    "XDG_STATE_HOME",
    "LD_LIBRARY_PATH",
];

fn with_secrets(scratch: &Scratch, arguments: &[&str]) -> Ended {
    let mut command = scratch.zwinger(arguments);
    command.envs(SECRETS.iter().filter(|name| **name != "XDG_STATE_HOME").map(|name| (name, &scratch.secret)));
    scratch.start(command).end()
}

fn g01_g02_only_known_variables(scratch: &Scratch) {
    let ended = with_secrets(scratch, &["run", "--", "env"]);
    let text = ended.text();
    let names: Vec<_> = text.lines().filter_map(|line| line.split('=').next()).collect();
    let known = [
        "PATH",
        "HOME",
        "TERM",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "USER",
        "SHELL",
        "TMPDIR",
        "PAGER",
        "GIT_PAGER",
        "GIT_TERMINAL_PROMPT",
        "EDITOR",
        "VISUAL",
        "GIT_EDITOR",
    ];
    assert!(names.iter().all(|name| known.contains(name)), "{names:?}");
    assert!(names.contains(&"PATH") && names.contains(&"HOME"), "{names:?}");
    assert!(!ended.shows(&scratch.secret));
    // Nothing but the list stands between them and the command, so without walls they stay out as well.
    let ended = with_secrets(scratch, &["run", "--backend", "none", "--", "env"]);
    assert!(ended.code == 0 && !ended.shows(&scratch.secret));
}

fn g04_c22_no_process_shows_its_secrets(scratch: &Scratch) {
    const SCRIPT: &str = "cat /proc/[0-9]*/environ /proc/self/environ /proc/thread-self/environ | tr '\\0' '\\n'";
    let ended = with_secrets(scratch, &["run", "--", "sh", "-c", SCRIPT]);
    assert!(ended.text().contains("GIT_TERMINAL_PROMPT=0"), "its own is readable: {ended:?}");
    assert!(!ended.shows(&scratch.secret), "{ended:?}");
    // Without walls zwinger's own environment is there to be read.
    let ended = with_secrets(scratch, &["run", "--backend", "none", "--", "sh", "-c", SCRIPT]);
    assert!(ended.shows(&scratch.secret));
}

fn c13_three_descriptors(scratch: &Scratch) {
    // Prints the numbers of its open descriptors, other than the one that the listing itself needs.
    const LIST: &str = r#"opendir D, "/proc/self/fd"; @n = readdir D;
        print join " ", sort grep { ($l = readlink "/proc/self/fd/$_") && $l !~ m{/fd$} } @n"#;
    let marker = scratch.out.join("marker");
    let open = format!("exec 9< {} && exec \"$@\"", marker.display());
    let zwinger = scratch.base.join("zwinger");
    let zwinger = zwinger.to_str().unwrap();
    let with_9 = |words: &[&str]| {
        let mut command = scratch.command(&[&["sh", "-c", &open, "sh"], words].concat());
        command.env("HOME", &scratch.home);
        scratch.start(command).end().text()
    };
    assert!(with_9(&["perl", "-e", LIST]).contains(" 9"));
    assert_eq!(with_9(&[zwinger, "run", "--", "perl", "-e", LIST]), "0 1 2");
    assert_eq!(with_9(&[zwinger, "run", "--backend", "none", "--", "perl", "-e", LIST]), "0 1 2");
}

#[test]
fn what_cannot_be_built_ends_with_125() {
    let scratch = Scratch::new();
    make_dir(scratch.home.join("inner"));
    let home = scratch.home.to_str().unwrap();
    for (options, says) in [
        (&["--workdir", "/"][..], "workspace"),
        (&["--workdir", "/etc"], "workspace"),
        (&["--workdir", home], "home"),
        (&["--workdir", "/no/such/place"], "--workdir /no/such/place: "),
        (&["--report", "/no/such/place"], "--report /no/such/place: "),
        (&["--report", "sub"], "--report sub: "),
        (&["--timeout", "5m"], "whole seconds without a unit, 1 to 86400"),
        (&["--memory", "1G"], "whole MiB without a unit, 16 to 1048576"),
        (&["--memory", "15"], "whole MiB"),
        (&["make", "all"], "put -- before the command"),
        (&["--workdir", "sub/inside.txt"], "not a directory"),
        (&["--backend", "nonsense"], "nonsense"),
        (&["--timeout", "0"], "timeout"),
        (&["--timeout", "-1"], "-1"),
        (&["--read", "/no/such/place"], "/no/such/place"),
        (&["--no-such-option"], "no-such-option"),
    ] {
        let ended = scratch.sh_with(options, "touch ran");
        assert_eq!(ended.code, 125, "{options:?} {ended:?}");
        assert!(ended.stderr.contains(says), "{options:?} {ended:?}");
    }
    assert_eq!(scratch.run(&[]).code, 125);
    let unseparated = scratch.run(&["touch", "ran"]);
    assert!(unseparated.code == 125 && unseparated.stderr.contains("put -- before"), "{unseparated:?}");
    let help = scratch.run(&["--help"]).text();
    for says in ["Exit status: ", "127 when it is not found", "[default: none for run, 600 for the tools]"] {
        assert!(help.split_whitespace().collect::<Vec<_>>().join(" ").contains(says), "{says:?} is not in {help}");
    }
    assert_eq!(list(&scratch.work), ["sub"]);
}

#[test]
fn grants_widen_by_name() {
    let scratch = Scratch::new();
    let out = scratch.out.to_str().unwrap();
    let script = format!("cat {out}/marker && echo x > {out}/new");
    let ended = scratch.sh_with(&["--read", out], &script);
    assert!(ended.code != 0 && ended.text() == scratch.secret, "{ended:?}");
    scratch.assert_out_untouched();
    assert_eq!(scratch.sh_with(&["--write", out], &script).code, 0);
    assert_eq!(read_text(scratch.out.join("new")), "x\n");
    // The home directory too, though it is covered otherwise.
    let home = scratch.home.to_str().unwrap();
    assert_eq!(scratch.sh_with(&["--write", home], "cat $HOME/private && echo x > $HOME/new").text(), scratch.secret);
    assert_eq!(read_text(scratch.home.join("new")), "x\n");
}

#[test]
fn g07_foreign_environments() {
    use std::os::unix::ffi::OsStringExt;
    let scratch = Scratch::new();
    let mut command = scratch.zwinger(&["run", "--", "true"]);
    command
        .env_clear()
        .env("XDG_STATE_HOME", scratch.base.join("state"))
        .env("X", std::ffi::OsString::from_vec(vec![b'a', 0xff]));
    let ended = scratch.start(command).end();
    assert_eq!(ended.code, 0, "{ended:?}");
}

#[test]
fn root_writes_a_workspace_of_another_user_and_nothing_else() {
    let name = concat!(module_path!(), "::root_writes_a_workspace_of_another_user_and_nothing_else");
    if Caller::Ordinary.unavailable().is_some() {
        return crate::caller::skipped(name, "needs root and other users");
    }
    let scratch = Scratch::of(Caller::Plain, System::Of(1000));
    let ended = scratch.sh("echo x > new && echo y >> sub/inside.txt && mkdir d && rm -r d");
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(read_text(scratch.work.join("sub/inside.txt")), "inside\ny\n");
    let out = scratch.out.display();
    for script in [
        format!("cat {out}/marker"),
        format!("echo x > {out}/new"),
        format!("chown 0 {out}"),
        "echo x > /etc/zwinger-was-here".into(),
    ] {
        assert_ne!(scratch.sh(&script).code, 0, "{script}");
    }
    assert_eq!(scratch.sh("cat /etc/shadow").text(), "");
    scratch.assert_out_untouched();
}

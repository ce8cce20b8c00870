//! What attackers of earlier versions found.

use std::process::Stdio;

use serde_json::json;

use crate::caller::Caller;
use crate::scratch::{Scratch, link, list, make_dir, open, read_text, write};

const YES: [&str; 2] = ["--approve", "yes"];

for_every_caller!(
    b05_what_settings_lead_to_is_kept,
    m08_the_limits_of_others_stay,
    d11_without_namespaces_nothing_of_the_machine_is_reached,
    b05_a_protected_file_is_called_that_and_nobody_is_asked
);

fn b05_what_settings_lead_to_is_kept(scratch: &Scratch) {
    if !scratch.caller.has_namespaces() {
        // Only mounts hold that; what was changed is found for files of the kind themselves.
        return;
    }
    for directory in [".git", ".git/hooks", "scripts", "conf"] {
        make_dir(scratch.work.join(directory));
    }
    for file in ["scripts/pre-commit", "conf/tasks.json", "docs.md"] {
        write(scratch.work.join(file), "old");
    }
    link("../../scripts/pre-commit", scratch.work.join(".git/hooks/pre-commit"));
    link("conf", scratch.work.join(".vscode"));
    link("docs.md", scratch.work.join("CLAUDE.md"));
    scratch.give_all();
    for file in ["scripts/pre-commit", "conf/tasks.json", "docs.md"] {
        let ended = scratch.sh(&format!("echo x > {file}; rm -f {file}; mv scripts s; mv conf c; true"));
        assert_eq!(read_text(scratch.work.join(file)), "old", "{ended:?}");
    }
    // A link that a command makes itself holds nothing that was there.
    assert_eq!(scratch.sh("echo mine > notes; ln -s notes GEMINI.md; echo more >> notes").code, 0);
    assert_eq!(read_text(scratch.work.join("notes")), "mine\nmore\n");
}

fn b05_a_protected_file_is_called_that_and_nobody_is_asked(scratch: &Scratch) {
    for directory in [".git", ".git/hooks", ".vscode"] {
        make_dir(scratch.work.join(directory));
    }
    let files = [".git/config", ".git/hooks/pre-commit", ".vscode/tasks.json"];
    for file in files {
        write(scratch.work.join(file), "old");
    }
    link(".git/config", scratch.work.join("link"));
    scratch.give_all();
    for path in files.into_iter().chain([".git/hooks/pre-push", ".vscode/new", "link"]) {
        for (tool, arguments) in [
            ("write_file", json!({"path": path, "content": "new"})),
            ("edit_file", json!({"path": path, "old_text": "old", "new_text": "new"})),
        ] {
            let ended = scratch.tool(tool, &arguments, &["--approve", "no"]);
            if scratch.caller.has_namespaces() {
                assert_eq!(ended.code, 1, "{path} {ended:?}");
                assert!(ended.error().starts_with(&format!("Error: {path} is protected: ")), "{path} {ended:?}");
            } else if tool == "write_file" {
                // No mount holds it: it is as before again when the session is over.
                assert_eq!(ended.code, 3, "{path} {ended:?}");
            }
        }
    }
    // What is not protected is asked about in the same place.
    let ended = scratch.tool("write_file", &json!({"path": "sub/inside.txt", "content": "new"}), &["--approve", "no"]);
    assert_eq!(ended.code, 3, "{ended:?}");
}

fn m08_the_limits_of_others_stay(scratch: &Scratch) {
    if !cfg!(target_arch = "x86_64") {
        return crate::caller::skipped(
            "m08_the_limits_of_others_stay",
            "the script has the number of another machine's call",
        );
    }
    // prlimit64 is 302; a supervisor that may open no file would see no process any more. One's own are one's own.
    let others = "perl -e '$l = pack(\"QQ\", 3, 3); exit(syscall(302, getppid, 7, $l, 0) == -1 ? 0 : 1)'";
    let own = "perl -e '$l = pack(\"QQ\", 50, 50); exit(syscall(302, 0, 7, $l, 0) == 0 ? 0 : 1)'";
    for script in [others, own] {
        assert_eq!(scratch.sh(script).code, 0, "{script}");
    }
}

fn d11_without_namespaces_nothing_of_the_machine_is_reached(scratch: &Scratch) {
    let attempts = [
        "perl -MSocket -e 'socketpair(A, B, AF_UNIX, SOCK_DGRAM, 0) or exit 1'",
        "perl -e 'shmget(7919, 4096, 01600) // exit 1'",
        "perl -e 'setpriority(0, getppid, 19) or exit 1'",
    ];
    for script in attempts {
        assert_eq!(scratch.sh(script).code == 0, scratch.caller.has_namespaces(), "{script}");
    }
    assert_eq!(scratch.sh("perl -MSocket -e 'socketpair(A, B, AF_UNIX, SOCK_STREAM, 0) or exit 1'").code, 0);
}

#[test]
fn d11_no_other_family_of_sockets() {
    let scratch = Scratch::new();
    // AF_VSOCK leads to the host of a virtual machine, whatever the network namespace; AF_PACKET and AF_ALG into the kernel.
    for family in ["40", "17", "38"] {
        let script = format!("perl -MSocket -e 'socket(S, {family}, 1, 0) or die \"$!\"' 2>&1");
        for options in [&[][..], &["--net", "on"]] {
            let ended = scratch.sh_with(options, &script);
            assert!(ended.code != 0 && ended.shows("Operation not permitted"), "{family} {options:?} {ended:?}");
        }
    }
    let usual = "perl -MSocket -e 'socket(S, $_, 1, 0) or die for 1, 2, 10'";
    assert_eq!(scratch.sh(usual).code, 0);
}

#[test]
fn b04_directories_of_protected_files_stay() {
    const FILES: [&str; 6] = [
        ".cargo/config.toml",
        ".git/config",
        ".git/modules/third/m/config",
        ".git/modules/logs/config",
        ".git/info/attributes",
        "vendor/sub/.git",
    ];
    let scratch = Scratch::new();
    for directory in [
        ".cargo",
        ".git",
        ".git/modules",
        ".git/modules/third",
        ".git/modules/third/m",
        ".git/modules/logs",
        ".git/info",
        "vendor",
        "vendor/sub",
    ] {
        make_dir(scratch.work.join(directory));
    }
    for file in FILES {
        write(scratch.work.join(file), "before");
    }
    for script in [
        "mv .cargo c && mkdir .cargo && echo x > .cargo/config.toml",
        "mv .git/modules m && mkdir .git/modules",
        "mv .git/modules/third .git/modules/t && mkdir .git/modules/third",
        "mv .git/info i && mkdir .git/info && echo x > .git/info/attributes",
        "echo x > .git/modules/third/m/config",
        "echo x > .git/modules/logs/config",
        "mv vendor v && mkdir -p vendor/sub && echo x > vendor/sub/.git",
    ] {
        assert_ne!(scratch.sh(script).code, 0, "{script}");
    }
    for file in FILES {
        assert_eq!(read_text(scratch.work.join(file)), "before", "{file}");
    }
    assert_eq!(scratch.sh_with(&["--backend", "none"], "mv .cargo c && mkdir .cargo").code, 0);
}

#[test]
fn g13_a_hidden_file_is_called_that() {
    let scratch = Scratch::new();
    make_dir(scratch.work.join(".vscode"));
    write(scratch.work.join(".vscode/.env"), &scratch.secret);
    link("sub/inside.txt", scratch.work.join(".env"));
    for backend in ["landlock", "none"] {
        for path in [".vscode/.env", ".env", "sub/inside.txt"] {
            let ended = scratch.tool("read_file", &json!({"path": path}), &["--backend", backend]);
            assert_eq!(
                ended.error(),
                format!("Error: {path} is hidden by the walls; only the user can show it (--show).")
            );
        }
    }
    assert!(!scratch.sh("cat .vscode/.env .env sub/inside.txt").shows(&scratch.secret));
}

#[test]
fn l10_planted_links_cost_the_next_session_nothing() {
    let scratch = Scratch::new();
    for (target, name) in
        [(".env.a", ".env.a"), ("/bin/sh", ".env.b"), ("/usr", ".env.c"), (".", ".env.d"), ("/proc/1/root", ".env.e")]
    {
        link(target, scratch.work.join(name));
    }
    let ended = scratch.sh("cat sub/inside.txt");
    assert_eq!((ended.code, ended.text().as_str()), (0, "inside\n"), "{ended:?}");
}

#[test]
fn w5_a_write_through_a_link_names_the_file() {
    let scratch = Scratch::new();
    write(scratch.work.join("Makefile"), "all:\n");
    link("Makefile", scratch.work.join("notes.txt"));
    let ended = scratch.tool("write_file", &json!({"path": "notes.txt", "content": "x"}), &YES);
    assert_eq!(ended.json()["output"], "Wrote Makefile (1 byte).");
    assert!(ended.stderr.contains("write Makefile (1 byte)"), "{ended:?}");
    assert_eq!(scratch.audit().first().unwrap()["arguments"]["path"], "Makefile");
    assert_eq!(list(&scratch.work), ["Makefile", "notes.txt", "sub"]);
}

#[test]
fn i14_a_stopped_supervisor_ends_the_run() {
    let scratch = Scratch::new();
    // In a namespace of its own it is the first process, which nothing inside can stop.
    let expected = if Caller::Plain.has_namespaces() { 0 } else { 125 };
    let ended = scratch.sh("kill -STOP $PPID; exit 0");
    assert_eq!(ended.code, expected, "{ended:?}");
    let ended = scratch.tool("run_command", &json!({"command": "kill -STOP $PPID; exit 0"}), &YES);
    assert_eq!(ended.code, 1, "{ended:?}");
}

#[test]
fn c13_a_directory_is_no_stream() {
    let scratch = Scratch::new();
    write(scratch.work.join(".env"), &scratch.secret);
    let mut command = scratch.zwinger(&["run", "--", "sh", "-c", "cat /proc/self/fd/0/.env"]);
    command.stdin(Stdio::from(open(&scratch.work)));
    let ended = scratch.start(command).end();
    assert!(ended.code == 125 && !ended.shows(&scratch.secret), "{ended:?}");
}

#[test]
fn o02_a_full_output_is_no_panic() {
    let scratch = Scratch::new();
    let zwinger = scratch.base.join("zwinger");
    let shell = |script: &str| {
        let script = script.replace("ZWINGER", zwinger.to_str().unwrap());
        let mut command = scratch.command(&["sh", "-c", &script]);
        command.env("HOME", &scratch.home).env("XDG_STATE_HOME", scratch.base.join("state"));
        scratch.start(command).end()
    };
    assert_eq!(shell("ZWINGER tool get_time '{}' > /dev/full").code, 125);
    assert_eq!(shell("ZWINGER run -- nosuch 2> /dev/full").code, 127);
    let touch = "ZWINGER tool run_command '{\"command\": \"touch ran\"}' --approve yes 2> /dev/full";
    assert_eq!(shell(touch).code, 0);
    assert_eq!(scratch.audit().iter().filter(|record| record["event"] == "begin").count(), 3);
    let piped = shell("{ ZWINGER tool get_time '{}'; echo $? > status; } | true; cat status");
    assert_eq!(piped.text(), "0\n", "{piped:?}");
}

#[test]
fn m08_files_of_terabytes_are_refused_at_once() {
    let scratch = Scratch::new();
    open_for_writing(&scratch).set_len(2 << 40).unwrap();
    for (tool, arguments) in [
        ("read_file", json!({"path": "sparse", "offset": 2})),
        ("write_file", json!({"path": "sparse", "content": "x"})),
    ] {
        let ended = scratch.tool(tool, &arguments, &YES);
        assert!(ended.code == 1 && ended.error().contains("bytes long"), "{ended:?}");
    }
}

fn open_for_writing(scratch: &Scratch) -> std::fs::File {
    write(scratch.work.join("sparse"), "");
    std::fs::File::from(
        rustix::fs::open(scratch.work.join("sparse"), rustix::fs::OFlags::WRONLY, rustix::fs::Mode::empty()).unwrap(),
    )
}

#[test]
fn g13_no_depth_hides_a_secret() {
    let scratch = Scratch::new();
    write(scratch.work.join("sub/.env"), &scratch.secret);
    let walk = "$n = 'd' x 250; for (1 .. 18) { mkdir $n; chdir $n or die }";
    let deeper = format!("perl -e \"{}; rename '../' x 18 . 'sub', 'sub' or die\"", walk.replace('$', "\\$"));
    let read = format!("perl -e \"{}; exec 'cat', 'sub/.env'\"", walk.replace('$', "\\$"));
    // Not from behind walls any more: what holds a secret cannot be moved there.
    assert_ne!(scratch.sh(&deeper).code, 0);
    assert_eq!(scratch.sh_with(&["--backend", "none"], &deeper).code, 0);
    let ended = scratch.sh(&read);
    assert!(ended.code != 0 && !ended.shows(&scratch.secret), "{ended:?}");
    assert!(scratch.sh_with(&["--backend", "none"], &read).shows(&scratch.secret));
}

#[test]
fn a29_a_report_follows_no_link() {
    let scratch = Scratch::new();
    assert_eq!(scratch.sh("ln -s ../work-evil/marker report").code, 0);
    let report = scratch.work.join("report");
    // Out of its directory too, or while the command runs.
    for script in ["true", "ln -sf ../work-evil/marker report", "rm report; mkfifo report"] {
        assert_eq!(scratch.sh_with(&["--report", "report"], script).code, 0, "{script}");
        assert!(report.symlink_metadata().unwrap().is_file());
        assert!(read_text(&report).contains("\"exit_code\": 0"), "{script}");
        scratch.assert_out_untouched();
    }
    let beside = scratch.base.join("link");
    link("work-evil/marker", &beside);
    assert_eq!(scratch.sh_with(&["--report", beside.to_str().unwrap()], "touch ran").code, 125);
    assert!(!scratch.work.join("ran").exists());
    scratch.assert_out_untouched();
}

#[test]
fn a29_a_report_is_zwingers() {
    let scratch = Scratch::new();
    // Whoever has it open, or puts another there, before the command ends.
    let forge = "echo forged > report; exec 9>>report; rm -f report; echo forged > report; echo forged >&9; exit 3";
    for _ in 0..2 {
        let ended = scratch.sh_with(&["--report", "report"], forge);
        let report: serde_json::Value = serde_json::from_str(&read_text(scratch.work.join("report"))).unwrap();
        assert_eq!((ended.code, &report["exit_code"]), (3, &serde_json::json!(3)));
    }
    assert_eq!(scratch.sh_with(&["--report", "sub/report"], "mv sub moved").code, 0);
    assert!(scratch.work.join("moved/report").is_file() && !scratch.work.join("sub").exists());
    let ended = scratch.sh_with(&["--report", "report"], "rm report; mkdir report");
    assert!(ended.code == 125 && ended.stderr.contains("report"), "{ended:?}");
    assert!(crate::scratch::list(&scratch.work).iter().all(|name| !name.starts_with(".zwinger-")));
}

#[test]
fn g13_what_is_named_stays_hidden_in_the_next_session() {
    let scratch = Scratch::new();
    for top in [&scratch.work, &scratch.out] {
        let (outer, secret) = (top.join("outer"), top.join("outer/inner/secret"));
        make_dir(&outer);
        make_dir(outer.join("inner"));
        write(&secret, &scratch.secret);
        let words = ["--write", scratch.out.to_str().unwrap(), "--hide", secret.to_str().unwrap()];
        let top = top.display();
        for (moved, again) in [("outer", "outer/inner"), ("outer/inner", "outer/inner")] {
            let swap = format!("cd {top} && mv {moved} m; mkdir -p {again}; echo decoy > {again}/secret");
            scratch.sh_with(&words, &swap);
            let ended = scratch.sh_with(&words, &format!("cd {top} && grep -r . outer m"));
            assert!(!ended.shows(&scratch.secret), "{moved}: {ended:?}");
        }
        assert_eq!(read_text(&secret), scratch.secret);
        // What lies beside it can be moved.
        assert_eq!(scratch.sh_with(&words, &format!("cd {top}/outer && mkdir a && mv a inner/b")).code, 0);
    }
}

#[test]
fn g13_a_hard_link_of_a_secret_is_refused() {
    let scratch = Scratch::new();
    let hard_link = |from: &str, to: &str| {
        rustix::fs::link(scratch.work.join(from), scratch.work.join(to)).unwrap();
    };
    write(scratch.work.join(".env"), &scratch.secret);
    write(scratch.work.join("sub/named"), &scratch.secret);
    hard_link(".env", "sub/other");
    for options in [&[][..], &["--mode", "plan"], &["--hide", "sub/named"]] {
        let ended = scratch.sh_with(options, "cat sub/other; touch ran");
        assert!(ended.code == 125 && !ended.shows(&scratch.secret), "{ended:?}");
        assert!(ended.stderr.contains("work/.env cannot be hidden") && ended.stderr.contains("hard link"), "{ended:?}");
    }
    assert_eq!(scratch.tool("read_file", &serde_json::json!({"path": "sub/other"}), &[]).code, 125);
    let doctor = scratch.start(scratch.zwinger(&["doctor"])).end();
    assert!(doctor.code != 0 && doctor.text().contains("hard link"), "{doctor:?}");
    assert!(!scratch.work.join("ran").exists());
    // Where every name is hidden, none is left; and what is shown is no secret.
    assert!(!scratch.sh_with(&["--hide", "sub/other"], "cat .env sub/other").shows(&scratch.secret));
    assert_eq!(scratch.sh_with(&["--show", ".env"], "cat .env").text(), scratch.secret);
    // What is said to help does.
    assert!(crate::process::succeeds(&[
        "sh",
        "-c",
        "cd $0 && cp -p .env new && mv new .env",
        scratch.work.to_str().unwrap()
    ]));
    assert_eq!(scratch.sh_with(&["--hide", "sub/named"], "test ! -s .env && cat sub/other").text(), scratch.secret);
    hard_link("sub/named", "sub/name");
    assert_eq!(scratch.sh_with(&["--hide", "sub/named"], "cat sub/name").code, 125);
}

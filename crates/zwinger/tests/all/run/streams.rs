//! Files as streams: what was opened to be read is not written, and whoever reads or writes on finds the place.

use std::io::{Read, Seek};
use std::process::Command;

use crate::caller::skipped;
use crate::scratch::{Scratch, make_dir, open, read_text, write};

for_every_caller!(
    b05_what_is_passed_to_be_read_is_not_written,
    a_file_is_read_where_it_was_left,
    a_file_is_written_where_it_was_left,
    g13_a_hidden_file_is_no_output,
);

fn with_input(scratch: &Scratch, file: &str, script: &str) -> Command {
    let mut command = scratch.zwinger(&["run", "--", "sh", "-c", script]);
    command.stdin(open(&scratch.work.join(file)));
    command
}

fn b05_what_is_passed_to_be_read_is_not_written(scratch: &Scratch) {
    make_dir(scratch.work.join(".git"));
    for file in [".git/config", "sub/inside.txt", "gone"] {
        write(scratch.work.join(file), "inside\n");
    }
    write(scratch.home.join(".gitconfig"), "inside\n");
    scratch.give_all();
    for file in [".git/config", "sub/inside.txt", "../home/.gitconfig"] {
        let read = scratch.start(with_input(scratch, file, "cat")).end();
        assert_eq!((read.code, read.text().as_str()), (0, "inside\n"), "{file} {read:?}");
        // By its name in /dev too, where a program wants a name.
        let read = scratch.start(with_input(scratch, file, "cat /dev/stdin /proc/self/fd/0")).end();
        let is_outside = file.starts_with("..") && !scratch.caller.has_namespaces();
        assert!(is_outside || (read.code, read.text().as_str()) == (0, "inside\ninside\n"), "{file} {read:?}");
    }
    if !scratch.caller.has_namespaces() {
        return skipped("b05_what_is_passed_to_be_read_is_not_written", "only a mount holds that");
    }
    for file in [".git/config", "sub/inside.txt", "../home/.gitconfig"] {
        for way in ["echo x > /dev/stdin", "echo x >> /proc/self/fd/0", "exec 7<> /dev/fd/0 && echo x >&7"] {
            let ended = scratch.start(with_input(scratch, file, way)).end();
            assert_ne!(ended.code, 0, "{file} {way} {ended:?}");
        }
        assert_eq!(read_text(scratch.work.join(file)), "inside\n", "{file}");
    }
    // Other than this, a file of the workspace can be written.
    assert_eq!(scratch.start(with_input(scratch, "sub/inside.txt", "echo x > sub/inside.txt")).end().code, 0);
    assert_eq!(read_text(scratch.work.join("sub/inside.txt")), "x\n");
    // One that has no name any more is nobody else's.
    let command = with_input(scratch, "gone", "cat");
    crate::scratch::remove(scratch.work.join("gone"));
    assert_eq!(scratch.start(command).end().text(), "inside\n");
    // Without that wall it is written, and would be as before only at the end.
    scratch.block_quarantine();
    write(scratch.work.join(".git/config"), "inside\n");
    let mut command = scratch.zwinger(&["run", "--backend", "none", "--", "sh", "-c", "echo x > /dev/stdin"]);
    command.stdin(open(&scratch.work.join(".git/config")));
    assert_eq!(scratch.start(command).end().code, 0);
    assert_eq!(read_text(scratch.work.join(".git/config")), "x\n");
}

fn a_file_is_read_where_it_was_left(scratch: &Scratch) {
    write(scratch.work.join("lines"), "one\ntwo\nthree\nfour\n");
    let mut file = open(&scratch.work.join("lines"));
    let mut line = [0; 4];
    file.read_exact(&mut line).unwrap();
    let mut command = scratch.zwinger(&["run", "--", "dd", "bs=4", "count=1"]);
    command.stdin(file.try_clone().unwrap());
    assert_eq!(scratch.start(command).end().text(), "two\n");
    assert_eq!(file.stream_position().unwrap(), 8);
    let mut command = scratch.zwinger(&["run", "--", "cat"]);
    command.stdin(file.try_clone().unwrap());
    assert_eq!(scratch.start(command).end().text(), "three\nfour\n");
    assert_eq!(file.stream_position().unwrap(), 19);
}

fn a_file_is_written_where_it_was_left(scratch: &Scratch) {
    let zwinger = scratch.base.join("zwinger");
    let script =
        "{ echo a; \"$0\" run -- sh -c 'echo b; echo c >&2'; echo d; } > out 2>> errors; cat out; grep -x c errors";
    let mut command = scratch.command(&["sh", "-c", script, zwinger.to_str().unwrap()]);
    command.env("HOME", &scratch.home).env("TMPDIR", scratch.base.join("tmp"));
    let ended = scratch.start(command).end();
    assert_eq!((ended.code, ended.text().as_str()), (0, "a\nb\nd\nc\n"), "{ended:?}");
}

fn g13_a_hidden_file_is_no_output(scratch: &Scratch) {
    if !scratch.caller.has_namespaces() {
        return skipped("g13_a_hidden_file_is_no_output", "nothing runs where it cannot be hidden");
    }
    write(scratch.work.join(".env"), &scratch.secret);
    scratch.give_all();
    let zwinger = scratch.base.join("zwinger");
    let run = |options: &str, redirect: &str| {
        let script = format!("exec \"$0\" run {options} -- sh -c 'cat /dev/stdout; echo > ran' {redirect} .env");
        let mut command = scratch.command(&["sh", "-c", &script, zwinger.to_str().unwrap()]);
        command.env("HOME", &scratch.home).env("TMPDIR", scratch.base.join("tmp"));
        scratch.start(command).end()
    };
    for redirect in [">>", "1<>", "2<>", "0<>"] {
        let ended = run("", redirect);
        assert!(ended.code == 125 && !ended.shows(&scratch.secret), "{redirect} {ended:?}");
        assert!(ended.stderr.contains(".env") || redirect == "2<>", "{ended:?}");
        assert!(!scratch.work.join("ran").exists(), "{redirect}");
        write(scratch.work.join(".env"), &scratch.secret);
    }
    for redirect in [">> sub/inside.txt <", "1<> sub/inside.txt <"] {
        let ended = run("--show .env --hide sub", redirect);
        assert!(ended.code == 125 && !ended.text().contains("inside"), "what lies in a hidden directory: {ended:?}");
    }
    run("--show .env", ">>");
    assert!(scratch.work.join("ran").exists());
    // What the person passes to be read is read.
    let ended = scratch.start(with_input(scratch, ".env", "cat; echo x > /dev/stdin")).end();
    assert_eq!((ended.code, ended.text()), (2, scratch.secret.clone()), "{ended:?}");
    assert_eq!(read_text(scratch.work.join(".env")), scratch.secret);
}

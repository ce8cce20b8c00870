//! Limits of one command, which name themselves when they are hit.

mod memory;
mod root;

use serde_json::{Value, json};
use zwinger_core::Call;
use zwinger_core::gate::Decision;
use zwinger_core::sandbox::Backend;

use crate::caller::{Caller, each, skipped};
use crate::library::{self, always};
use crate::process::{self, Tag};
use crate::scratch::{Ended, Scratch, read_text};

for_every_caller!(
    m01_m02_a_fork_bomb_ends_and_others_go_on,
    m01_hoppers_end,
    m01_many_tasks_at_once_are_stopped,
    processes_are_counted,
    threads_are_no_processes,
    memory_is_counted,
    files_are_bounded_with_memory,
    m04_what_is_not_limited_is_not_called_so,
    a_lower_limit_of_the_caller_stays,
);

const CEILING: &str = "zwinger: stopped: 256 tasks at once (ceiling; --processes N raises it)\n";

/// Perl's name of the tag is `$0`, so that it is in every fork's arguments.
fn perl<'a>(program: &'a str, tag: &'a Tag) -> [&'a str; 5] {
    ["--", "perl", "-e", program, &tag.0]
}

/// Whether the kernel holds a ceiling on this caller's tasks, whatever zwinger does.
fn has_ceiling(scratch: &Scratch) -> bool {
    let result = scratch.sh_with(&["--json"], "true").json();
    let reason = result.pointer("/enforcement/processes/reason").and_then(Value::as_str).unwrap();
    !reason.contains("root is exempt")
}

fn assert_stopped(ended: &Ended, text: &str) {
    assert!(ended.code == 137 && ended.stderr.ends_with(text), "{} {}", ended.code, last_line(ended));
}

fn last_line(ended: &Ended) -> &str {
    ended.stderr.lines().last().unwrap_or_default()
}

fn m01_m02_a_fork_bomb_ends_and_others_go_on(scratch: &Scratch) {
    if !has_ceiling(scratch) {
        // A defect here would end the machine that the tests run on.
        return skipped("m01_m02_a_fork_bomb_ends_and_others_go_on", "nothing but zwinger would hold it");
    }
    for bomb in [["perl", "-e", "fork while 1"], ["bash", "-c", ":(){ :|:& };:"]] {
        let tag = Tag::new();
        let running = scratch.start(scratch.zwinger(&[&["run", "--"], bomb.as_slice(), &[&tag.0]].concat()));
        let beside = scratch.sh("true | true && echo fine");
        assert_eq!((beside.code, beside.text().as_str()), (0, "fine\n"), "{beside:?}");
        let ended = running.end();
        assert_stopped(&ended, CEILING);
        tag.assert_gone();
    }
}

/// Processes that replace themselves for ever: a list of them is old before it is read.
fn m01_hoppers_end(scratch: &Scratch) {
    const HOPPERS: &str = r#"for (1 .. shift) { my $c = fork; next if $c || !defined $c;
        while (1) { my $p = fork; exit if $p } } sleep 600"#;
    for number in ["60", "300"] {
        let tag = Tag::new();
        let words = ["--timeout", "2", "--", "perl", "-e", HOPPERS, number, &tag.0];
        let ended = scratch.run(&words);
        assert!(matches!(ended.code, 124 | 137), "{ended:?}");
        assert!(last_line(&ended).starts_with("zwinger: stopped"), "{ended:?}");
        tag.assert_gone();
    }
}

fn m01_many_tasks_at_once_are_stopped(scratch: &Scratch) {
    let tag = Tag::new();
    let script = format!("for i in $(seq 300); do sleep {} & done; wait", tag.0);
    assert_stopped(&scratch.sh(&script), CEILING);
    tag.assert_gone();
    // The same number of short ones is no more than a command may start, and more at once is the person's to say.
    assert_eq!(scratch.sh("for i in $(seq 300); do true & done; wait").code, 0);
    let ended = scratch.sh_with(&["--processes", "400"], "for i in $(seq 300); do sleep 1 & done; wait; echo all");
    assert_eq!((ended.code, ended.text().as_str()), (0, "all\n"), "{ended:?}");
}

fn processes_are_counted(scratch: &Scratch) {
    let sleeps = |number: u32, time: &str| format!("for i in $(seq {number}); do sleep {time} & done; wait; echo all");
    let tag = Tag::new();
    let ended = scratch.sh_with(&["--processes", "5"], &sleeps(10, &tag.0));
    assert_stopped(&ended, "zwinger: stopped: more than 5 processes (--processes)\n");
    tag.assert_gone();
    for (options, number) in [(&["--processes", "5"][..], 3), (&[], 10)] {
        let ended = scratch.sh_with(options, &sleeps(number, "0.5"));
        assert_eq!((ended.code, ended.text().as_str()), (0, "all\n"), "{ended:?}");
    }
    // Those that have ended and were not waited for yet do not count.
    let unreaped = "for (1..20) { exit unless fork } sleep 1; print qq(all\\n)";
    let ended = scratch.run(&["--processes", "2", "--", "perl", "-e", unreaped]);
    assert_eq!((ended.code, ended.text().as_str()), (0, "all\n"), "{ended:?}");
    // What a command leaves behind is its own.
    let tag = Tag::new();
    let ended = scratch.sh_with(&["--processes", "5"], &format!("for i in $(seq 10); do sleep {} & done", tag.0));
    assert_stopped(&ended, "zwinger: stopped: more than 5 processes (--processes)\n");
    tag.assert_gone();
}

fn threads_are_no_processes(scratch: &Scratch) {
    if !process::succeeds(&["perl", "-Mthreads", "-e", "1"]) {
        return skipped("threads_are_no_processes", "this perl has no threads");
    }
    let threads = "threads->create(sub { sleep 1 }) for 1..20; $_->join for threads->list; print qq(all\\n)";
    let ended = scratch.run(&["--processes", "1", "--", "perl", "-Mthreads", "-e", threads]);
    assert_eq!((ended.code, ended.text().as_str()), (0, "all\n"), "{ended:?}");
}

fn memory_is_counted(scratch: &Scratch) {
    const STOPPED: &str = "zwinger: stopped: more than 64 MiB of memory (--memory)\n";
    const LIMIT: [&str; 2] = ["--memory", "64"];
    let tag = Tag::new();
    let run = |program: &str| scratch.run(&[&LIMIT, perl(program, &tag).as_slice()].concat());
    assert_stopped(&run("$x = 'a' x (200 << 20); sleep 600"), STOPPED);
    // No single process has too much.
    assert_stopped(&run("for (1..4) { next if fork; $x = 'a' x (24 << 20); sleep 600 } sleep 600"), STOPPED);
    tag.assert_gone();
    // Shared pages count once.
    let shared =
        "$n = 24 << 20; $x = 'a' x $n; for (1..4) { next if fork; sleep 1; exit } 1 while wait != -1; print qq(all\\n)";
    for (options, program) in [(&LIMIT[..], shared), (&[], "$x = 'a' x (200 << 20); sleep 1; print qq(all\\n)")] {
        let ended = scratch.run(&[options, perl(program, &tag).as_slice()].concat());
        assert_eq!((ended.code, ended.text().as_str()), (0, "all\n"), "{ended:?}");
    }
}

fn files_are_bounded_with_memory(scratch: &Scratch) {
    // 200 MB into a file of $TMPDIR.
    let file =
        r#"open F, "+>", "$ENV{TMPDIR}/file" or die; $! = 0; for (1..200) { syswrite F, "a" x (1 << 20) or last }"#;
    // The size alone of one of memfd_create(2), by its number on x86-64: its content would count.
    let memory =
        r#"$n = "x"; open F, "+<&=", syscall 319, $n, 0 or die; for (64, 200) { $! = 0; truncate F, $_ << 20 }"#;
    let kinds = if cfg!(target_arch = "x86_64") { &[file, memory][..] } else { &[file] };
    for kind in kinds {
        for (options, expected) in [(&["--memory", "64"][..], "67108864 27\n"), (&[], "209715200 0\n")] {
            let program = format!(r#"$SIG{{XFSZ}} = "IGNORE"; {kind} $e = $! + 0; print -s F, " $e\n""#);
            let ended = scratch.run(&[options, &["--", "perl", "-e", &program]].concat());
            assert_eq!((ended.code, ended.text().as_str()), (0, expected), "{program} {ended:?}");
        }
    }
}

fn m04_what_is_not_limited_is_not_called_so(scratch: &Scratch) {
    let memory = |options: &[&str]| {
        let result = scratch.sh_with(options, "true").json();
        ["level", "reason"].map(|field| result.pointer(&format!("/enforcement/memory/{field}")).cloned().unwrap())
    };
    assert_eq!(memory(&["--json"]), ["none", "no limit was asked for"]);
    let [level, reason] = memory(&["--json", "--memory", "64"]);
    assert!(level == "partial" && reason.as_str().unwrap().contains("ten times a second"), "{level} {reason}");
}

fn a_lower_limit_of_the_caller_stays(scratch: &Scratch) {
    // Of /proc/self/limits, since not every sh has `ulimit -f` in the same units.
    let zwinger = scratch.base.join("zwinger");
    let script = r#"ulimit -f 2048; exec "$0" run --memory 64 -- cat /proc/self/limits"#;
    let mut command = scratch.command(&["sh", "-c", script, zwinger.to_str().unwrap()]);
    command.env("HOME", &scratch.home).env("TMPDIR", scratch.base.join("tmp"));
    let ended = scratch.start(command).end();
    let text = ended.text();
    let sizes = text.lines().find(|line| line.starts_with("Max file size")).unwrap_or_default();
    assert_eq!(sizes.split_whitespace().nth(3), Some("1048576"), "{ended:?}");
}

#[test]
fn m05_m08_limits_that_make_no_sense_are_refused() {
    let scratch = Scratch::new();
    for value in ["0", "1", "15", "1048577", "-1", "1e30", "64M", "20000000T", "18446744073709551617", ""] {
        assert_eq!(scratch.sh_with(&[&format!("--memory={value}")], "touch ran").code, 125, "{value}");
    }
    for value in ["0", "100001", "-1", "1e3", "4294967297", ""] {
        assert_eq!(scratch.sh_with(&[&format!("--processes={value}")], "touch ran").code, 125, "{value}");
    }
    assert!(!scratch.work.join("ran").exists());
}

#[test]
fn a_result_names_the_limit() {
    let scratch = Scratch::new();
    let ended = scratch.sh_with(&["--json", "--processes", "2"], "echo start; sleep 600 & sleep 600 & wait");
    let result = ended.json();
    assert_eq!((ended.code, &result["exit_code"], &result["output"]), (137, &json!(137), &json!("start\n")));
    assert_eq!(result["limit"], "more than 2 processes (--processes)");
    assert_eq!(ended.error(), "Error: stopped: more than 2 processes (--processes).");
    assert_eq!(scratch.sh_with(&["--json"], "true").json().get("limit"), None);
    let command = json!({"command": "perl -e '$x = q(a) x (200 << 20); sleep 600'"});
    let ended = scratch.tool("run_command", &command, &["--approve", "yes", "--memory", "64"]);
    assert_eq!((ended.code, &ended.json()["exit_code"]), (1, &json!(137)));
    assert_eq!(ended.error(), "Error: stopped: more than 64 MiB of memory (--memory).");
}

#[test]
fn m01_a_bomb_in_a_session_costs_one_call() {
    let scratch = Scratch::new();
    if !has_ceiling(&scratch) {
        return skipped("limits::m01_a_bomb_in_a_session_costs_one_call", "nothing but zwinger would hold it");
    }
    let runtime = library::open(&scratch, Backend::Landlock, always(Decision::Once));
    let run = |command: String| runtime.call(&Call::new("run_command", json!({"command": command})));
    for _ in 0..3 {
        let tag = Tag::new();
        let (bomb, beside) = std::thread::scope(|scope| {
            let beside = scope.spawn(|| run("sleep 1; echo beside".into()));
            (run(format!("perl -e 'fork while 1' {}", tag.0)), beside.join().unwrap())
        });
        assert_eq!(
            bomb.error.as_deref(),
            Some("Error: stopped: 256 tasks at once (ceiling; --processes N raises it).")
        );
        // It was refused, or ended with the executor, if the bomb left no other way; it is never said to have run.
        assert!(beside.output == "beside\n" || beside.error.is_some(), "{beside:?}");
        let next = run("true | true && echo fine".into());
        assert_eq!((next.success, next.output.as_str()), (true, "fine\n"), "{next:?}");
        tag.assert_gone();
    }
}

/// The number of ids of a process namespace is its own (Linux 6.14): bounding it leaves the machine's alone.
#[test]
fn m01_a_ceiling_for_root_is_not_the_machines() {
    let name = "limits::m01_a_ceiling_for_root_is_not_the_machines";
    const PID_MAX: &str = "/proc/sys/kernel/pid_max";
    let scratch = Scratch::new();
    if !rustix::process::geteuid().is_root() || !scratch.caller.has_namespaces() {
        return skipped(name, "needs root with user namespaces");
    }
    let before = read_text(PID_MAX);
    let inside = |options: &[&str]| scratch.run(&[options, &["--", "cat", PID_MAX]].concat()).text();
    let (inside, more) = (inside(&[]), inside(&["--processes", "100"]));
    assert_eq!(read_text(PID_MAX), before, "the machine's");
    if !has_ceiling(&scratch) {
        assert_eq!(inside, before);
        return skipped(name, "before Linux 6.14 there is only the machine's");
    }
    // 256 and 800 tasks, a quarter more for the kernel, and 300 ids that are given once.
    assert_eq!((inside.as_str(), more.as_str()), ("620\n", "1300\n"));
    assert_ne!(scratch.sh(&format!("echo 4194304 > {PID_MAX}")).code, 0, "not to be raised from inside");
}

/// One that kills all it can reach ends its own run alone.
fn kills_everything_beside_another(scratch: &Scratch) {
    let pids = scratch.sh("readlink /proc/self/ns/pid").text();
    assert!(process::is_foreign_pid_namespace(&pids), "it would reach the machine: {pids}");
    let tag = Tag::new();
    let other = scratch.start(scratch.zwinger(&["run", "--", "sh", "-c", "sleep 2; echo other", &tag.0]));
    let ended = scratch.run(&["--", "sh", "-c", "sleep 600 & kill -9 -1; wait; exit 3", &tag.0]);
    assert_eq!(ended.code, 3, "{ended:?}");
    let other = other.end();
    assert_eq!((other.code, other.text().as_str()), (0, "other\n"), "{other:?}");
    tag.assert_gone();
}

mod with_namespaces {
    use super::{Caller, each, kills_everything_beside_another, skipped};

    fn of(caller: Caller, name: &str) {
        if caller.unavailable().is_none() && !caller.has_namespaces() {
            return skipped(name, "no user namespaces here");
        }
        each(caller, name, kills_everything_beside_another);
    }

    #[test]
    fn i20_another_run_goes_on() {
        of(Caller::Plain, concat!(module_path!(), "::i20_another_run_goes_on"));
    }

    #[test]
    fn i20_another_run_goes_on_ordinary() {
        of(Caller::Ordinary, concat!(module_path!(), "::i20_another_run_goes_on_ordinary"));
    }
}

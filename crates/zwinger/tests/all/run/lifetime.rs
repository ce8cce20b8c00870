//! When a command ends, everything that it started has ended; when zwinger is ended, the command is.

use std::io::Write;
use std::os::fd::AsFd;

use rustix::process::Signal;

use crate::caller::{Caller, each, skipped};
use crate::process::{self, Tag};
use crate::scratch::{Scratch, open, read_text, write};

for_every_caller!(
    i08_zwinger_killed,
    i10_zwinger_terminated,
    i10_what_is_left_is_settled_first,
    i10_a_second_signal_waits_for_no_grace,
    i22_an_ignored_hangup_stays_ignored,
    i01_background_processes_are_stopped_and_named,
    i07_a_time_limit_ends_everything,
    i14_a_stopped_command_has_its_limit,
    i22_inherited_dispositions_do_no_harm,
    grace_before_the_end,
);

/// A pipeline, and a process that has left its session, group and parent.
fn start_tree(scratch: &Scratch, tag: &Tag) -> crate::scratch::Running {
    let script = format!("setsid setsid sleep {0} & sleep {0} | cat", tag.0);
    let running = scratch.start(scratch.zwinger(&["run", "--", "sh", "-c", &script]));
    tag.wait_for(2);
    running
}

fn i08_zwinger_killed(scratch: &Scratch) {
    let tag = Tag::new();
    let running = start_tree(scratch, &tag);
    running.signal(Signal::KILL);
    assert_eq!(running.end().code, 128 + 9);
    tag.assert_gone();
}

fn i10_zwinger_terminated(scratch: &Scratch) {
    for signal in [Signal::TERM, Signal::HUP] {
        let tag = Tag::new();
        let running = start_tree(scratch, &tag);
        running.signal(signal);
        let ended = running.end();
        assert_eq!(tag.asleep(), [], "the tree ends first");
        assert_eq!(ended.code, 128 + signal.as_raw(), "{ended:?}");
        tag.assert_gone();
    }
}

/// Also what a command made that does not heed the signal.
fn i10_what_is_left_is_settled_first(scratch: &Scratch) {
    for backend in ["auto", "none"] {
        let tag = Tag::new();
        let script = format!("trap '' TERM; echo x > AGENTS.md; sleep {0} & wait", tag.0);
        let words = ["run", "--backend", backend, "--report", "../tmp/report", "--", "sh", "-c", &script];
        let running = scratch.start(scratch.zwinger(&words));
        tag.wait_for(1);
        running.signal(Signal::TERM);
        let ended = running.end();
        assert_eq!((tag.asleep().len(), scratch.work.join("AGENTS.md").exists()), (0, false), "{ended:?}");
        assert_eq!(ended.code, 128 + 15);
        assert!(
            ended.stderr.contains("quarantined AGENTS.md") && ended.stderr.contains("stopped by SIGTERM"),
            "{ended:?}"
        );
        let record = scratch.audit().pop().unwrap();
        assert_eq!(record.get("event").and_then(serde_json::Value::as_str), Some("end"), "{record}");
        assert!(read_text(scratch.base.join("tmp/report")).contains("stopped before its end"));
    }
}

fn i10_a_second_signal_waits_for_no_grace(scratch: &Scratch) {
    let tag = Tag::new();
    let script = format!("trap 'touch first; sleep 1.5; touch late' TERM; sleep {} & while :; do wait; done", tag.0);
    let running = scratch.start(scratch.zwinger(&["run", "--", "setsid", "sh", "-c", &script]));
    tag.wait_for(1);
    running.signal(Signal::TERM);
    process::until("the first signal", || scratch.work.join("first").exists().then_some(()));
    running.signal(Signal::TERM);
    assert_eq!(running.end().code, 128 + 15);
    tag.assert_gone();
    assert!(!scratch.work.join("late").exists());
}

/// As nohup(1) starts it.
fn i22_an_ignored_hangup_stays_ignored(scratch: &Scratch) {
    let zwinger = scratch.base.join("zwinger");
    let script = "touch up; while [ ! -e go ]; do sleep 0.05; done; exit 5";
    let ignores = r#"$SIG{HUP} = "IGNORE"; exec @ARGV"#;
    let mut command =
        scratch.command(&["perl", "-e", ignores, zwinger.to_str().unwrap(), "run", "--", "sh", "-c", script]);
    command.env("HOME", &scratch.home);
    let running = scratch.start(command);
    process::until("the command", || scratch.work.join("up").exists().then_some(()));
    running.signal(Signal::HUP);
    write(scratch.work.join("go"), "");
    assert_eq!(running.end().code, 5);
}

fn i01_background_processes_are_stopped_and_named(scratch: &Scratch) {
    let tag = Tag::new();
    let ended = scratch.sh(&format!("sleep {} & echo hi", tag.0));
    assert_eq!((ended.code, ended.text().as_str()), (0, "hi\n"));
    assert!(ended.stderr.contains("1 process"), "{ended:?}");
    tag.assert_gone();
    let ended = scratch.sh(&format!("sleep {} </dev/null >/dev/null 2>&1 & exit 3", tag.0));
    assert_eq!(ended.code, 3);
    tag.assert_gone();
    assert!(!scratch.sh("echo hi").stderr.contains("process"));
}

/// Forks twice, leaves its session, ignores SIGTERM and SIGHUP, closes its streams and holds a lock on a file.
const DAEMON: &str = r#"use POSIX; use Fcntl ":flock"; fork and exit; setsid; fork and exit;
    $SIG{TERM} = $SIG{HUP} = "IGNORE"; open L, ">>", "lock" or die; flock L, LOCK_EX; open R, ">", "ready";
    close STDIN; close STDOUT; close STDERR; sleep 600"#;

fn i07_a_time_limit_ends_everything(scratch: &Scratch) {
    for backend in ["auto", "none"] {
        let tag = Tag::new();
        let script = "perl -e \"$0\" $1; while [ ! -e ready ]; do :; done; exec sleep $1";
        let ended = scratch.run(&["--backend", backend, "--timeout", "3", "--", "sh", "-c", script, DAEMON, &tag.0]);
        assert_eq!(ended.code, 124, "{ended:?}");
        assert!(scratch.work.join("ready").exists(), "the daemon came up");
        tag.assert_gone();
        let lock = open(&scratch.work.join("lock"));
        rustix::fs::flock(lock.as_fd(), rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        crate::scratch::remove(scratch.work.join("ready"));
    }
}

fn grace_before_the_end(scratch: &Scratch) {
    let script = "trap 'echo cleaned; exit' TERM; echo ready; while :; do sleep 0.1; done";
    let ended = scratch.sh_with(&["--timeout", "2"], script);
    assert_eq!((ended.code, ended.text().as_str()), (124, "ready\ncleaned\n"), "{ended:?}");
}

fn i14_a_stopped_command_has_its_limit(scratch: &Scratch) {
    let tag = Tag::new();
    let ended = scratch.sh_with(&["--timeout", "1"], &format!("sleep {} & kill -STOP $! $$", tag.0));
    assert_eq!(ended.code, 124, "{ended:?}");
    tag.assert_gone();
}

fn i22_inherited_dispositions_do_no_harm(scratch: &Scratch) {
    // Started by a parent that ignores SIGCHLD and SIGPIPE and has SIGTERM blocked.
    const PARENT: &str = r#"use POSIX; $SIG{CHLD} = $SIG{PIPE} = "IGNORE";
        sigprocmask SIG_BLOCK, POSIX::SigSet->new(SIGTERM); exec @ARGV"#;
    let zwinger = scratch.base.join("zwinger");
    let script = "yes | head -n 1; (kill -TERM $(sh -c 'echo $PPID'); echo alive); exit 5";
    let words = ["perl", "-e", PARENT, zwinger.to_str().unwrap(), "run", "--", "sh", "-c", script];
    let mut command = scratch.command(&words);
    command.env("HOME", &scratch.home);
    let ended = scratch.start(command).end();
    assert_eq!((ended.code, ended.text().as_str()), (5, "y\n"), "{ended:?}");
    // With SIGPIPE ignored, yes(1) would have complained of a broken pipe.
    assert!(!ended.stderr.contains("Broken pipe"), "{ended:?}");
}

/// The command kills everything that it can reach, which is what it started itself: its supervisor is the first of its namespace.
fn kills_everything(scratch: &Scratch) {
    let pids = scratch.sh("readlink /proc/self/ns/pid").text();
    assert!(process::is_foreign_pid_namespace(&pids), "it would reach the machine: {pids}");
    let tag = Tag::new();
    let ended = scratch.sh(&format!("sleep {} & kill -9 -1; kill -9 $PPID; wait; exit 3", tag.0));
    assert_eq!(ended.code, 3, "{ended:?}");
    tag.assert_gone();
}

mod with_namespaces {
    use super::{Caller, each, kills_everything, skipped};

    fn of(caller: Caller, name: &str) {
        if caller.unavailable().is_none() && !caller.has_namespaces() {
            return skipped(name, "no user namespaces here");
        }
        each(caller, name, kills_everything);
    }

    #[test]
    fn i20_kills_everything() {
        of(Caller::Plain, concat!(module_path!(), "::i20_kills_everything"));
    }

    #[test]
    fn i20_kills_everything_ordinary() {
        of(Caller::Ordinary, concat!(module_path!(), "::i20_kills_everything_ordinary"));
    }
}

/// Without namespaces the walls let no signal out either. Tried inside a process namespace, which would hold it if they failed.
#[test]
fn i20_kills_everything_without_namespaces() {
    let name = concat!(module_path!(), "::i20_kills_everything_without_namespaces");
    const SCRIPT: &str =
        "echo 0 > /proc/sys/user/max_user_namespaces; sleep 600 & \"$@\"; echo $?; kill -0 $! && echo ours lives";
    if !Caller::Plain.has_namespaces() {
        return skipped(name, "no user namespaces here");
    }
    let scratch = Scratch::new();
    let zwinger = scratch.base.join("zwinger");
    let wrapper = ["unshare", "-Urpf", "--mount-proc", "--kill-child", "sh", "-c", SCRIPT, "sh"];
    let words = [zwinger.to_str().unwrap(), "run", "--", "sh", "-c", "kill -9 -1"];
    let mut command = scratch.command(&[wrapper.as_slice(), &words].concat());
    command.env("HOME", &scratch.home);
    let ended = scratch.start(command).end();
    assert!(ended.text().ends_with("125\nours lives\n"), "{ended:?}");
}

/// A shell at a terminal makes groups of its own the foreground. Whoever started zwinger reads the terminal on, however it ended.
#[test]
fn the_terminal_is_given_back() {
    let name = concat!(module_path!(), "::the_terminal_is_given_back");
    if !process::succeeds(&["script", "-qec", "true", "/dev/null"]) {
        return skipped(name, "needs script(1)");
    }
    let scratch = Scratch::new();
    let zwinger = scratch.base.join("zwinger");
    for end in ["exit 0", "kill -9 $$", "perl -e 'kill 9, getppid; sleep 600'"] {
        write(scratch.base.join("inside"), end);
        write(
            scratch.base.join("outside"),
            format!(
                "{} run -- sh -ic \"$(cat {}/inside)\"\nread line; echo got $line",
                zwinger.display(),
                scratch.base.display()
            ),
        );
        let line = format!("sh {}/outside", scratch.base.display());
        let mut command = scratch.command(&["script", "-qec", &line, "/dev/null"]);
        command.env("HOME", &scratch.home).env("TMPDIR", scratch.base.join("tmp")).stdin(std::process::Stdio::piped());
        let mut running = scratch.start(command);
        running.stdin().write_all(b"typed\n").unwrap();
        let ended = running.end();
        assert!(ended.text().contains("got typed"), "{end}: {ended:?}");
    }
}

//! Root, whom RLIMIT_NPROC does not bind, without user namespaces: a pids cgroup bounds the tasks, and without one zwinger has to win.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Pid;

use super::{CEILING, Tag, assert_stopped, last_line};
use crate::caller::{Caller, skipped};
use crate::process;
use crate::scratch::{Scratch, System, list, make_dir, read_text, remove_dir, write};

/// As many children as a ceiling of 256 tasks cannot hold, and never more; says how many could not be made.
const BOMB: &str = r#"$| = 1; for (1 .. 330) { $p = fork; defined $p or $no++; $p // 1 or do { sleep 600; exit } }
    print $no + 0, "\n"; sleep 600"#;

/// Processes that replace themselves, 200 times each.
const HOPPERS: &str = r#"for (1 .. 270) { my $p = fork; next if $p || !defined $p; for (1 .. 200) { my $p = fork; exit if $p }
    sleep 600 } sleep 600"#;

/// A cgroup that holds nothing but what a test puts into it, and what zwinger makes below it.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Self> {
        let own = read_text("/proc/self/cgroup");
        let own = own.lines().find_map(|line| line.split_once(":pids:"))?.1;
        let parent = Path::new("/sys/fs/cgroup/pids").join(own.trim_start_matches('/'));
        let group = parent.join(format!("zwtest-{}-{:?}", std::process::id(), std::thread::current().id()));
        process::succeeds(&["mkdir", group.to_str()?]).then_some(Self(group))
    }

    fn groups(&self) -> Vec<String> {
        list(&self.0).into_iter().filter(|name| self.0.join(name).is_dir()).collect()
    }

    /// Starts a program of root without user namespaces in it.
    fn command(&self, scratch: &Scratch, words: &[&str]) -> Command {
        let script = r#"echo $$ > "$0/cgroup.procs" && exec "$@""#;
        let prefix = Caller::NoNamespaces.prefix();
        let within = ["sh", "-c", script, self.0.to_str().unwrap()];
        let mut command = process::command(&[&["setsid"], &within[..], &prefix, words].concat());
        command.current_dir(&scratch.work).env("HOME", &scratch.home).env("TMPDIR", scratch.base.join("tmp"));
        command.env("XDG_STATE_HOME", scratch.state().parent().unwrap());
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for group in self.groups().iter().map(|name| self.0.join(name)).chain([self.0.clone()]) {
            process::succeeds(&["rmdir", group.to_str().unwrap_or_default()]);
        }
    }
}

fn root_without_namespaces(name: &str) -> Option<Scratch> {
    if !rustix::process::geteuid().is_root() || Caller::NoNamespaces.unavailable().is_some() {
        skipped(name, "needs root, and namespaces to take away");
        return None;
    }
    Some(Scratch::of(Caller::NoNamespaces, System::Own))
}

#[test]
fn m01_a_cgroup_bounds_root_and_goes() {
    let name = "limits::root::m01_a_cgroup_bounds_root_and_goes";
    let Some(scratch) = root_without_namespaces(name) else { return };
    let Some(group) = Group::new() else { return skipped(name, "no pids cgroup can be made here") };
    let zwinger = scratch.base.join("zwinger");
    let run = |words: &[&str]| {
        let words = [&[zwinger.to_str().unwrap(), "run"], words].concat();
        scratch.start(group.command(&scratch, &words)).end()
    };
    let ended = run(&["--", "grep", "pids", "/proc/self/cgroup"]);
    assert!(ended.code == 0 && ended.text().contains("/zwtest-") && ended.text().contains("/zwinger-"), "{ended:?}");
    let tag = Tag::new();
    let ended = run(&["--", "perl", "-e", BOMB, &tag.0]);
    assert_stopped(&ended, CEILING);
    let refused: u32 = ended.text().trim().parse().unwrap();
    assert!(refused > 0, "the kernel refused nothing");
    tag.assert_gone();
    assert_eq!(group.groups().len(), 0, "left behind");
    let reason = run(&["--json", "--", "true"]).json();
    let reason = reason.pointer("/enforcement/processes/reason").unwrap();
    assert!(!reason.as_str().unwrap().contains("root is exempt"), "{reason}");

    // Left by one that was killed, and removed by the next.
    let tag = Tag::new();
    let running = scratch.start(group.command(&scratch, &[zwinger.to_str().unwrap(), "run", "--", "sleep", &tag.0]));
    tag.wait_for(1);
    assert_eq!(group.groups().len(), 1);
    running.signal(rustix::process::Signal::KILL);
    running.end();
    tag.assert_gone();
    assert_eq!(run(&["--", "true"]).code, 0);
    assert_eq!(group.groups().len(), 0, "left behind");
    // What looks like one of ours and is in use is left alone.
    make_dir(group.0.join("zwinger-0000000000000000"));
    let mut sleeper = process::command(&["sleep", "600"]).spawn().unwrap();
    write(group.0.join("zwinger-0000000000000000/cgroup.procs"), sleeper.id().to_string());
    assert_eq!(run(&["--", "true"]).code, 0);
    assert_eq!(group.groups().len(), 1);
    sleeper.kill().and_then(|()| sleeper.wait()).unwrap();
    remove_dir(&group.0.join("zwinger-0000000000000000"));
}

#[test]
fn m01_a_session_of_root_has_a_cgroup_too() {
    let name = "limits::root::m01_a_session_of_root_has_a_cgroup_too";
    let Some(scratch) = root_without_namespaces(name) else { return };
    let Some(group) = Group::new() else { return skipped(name, "no pids cgroup can be made here") };
    let zwinger = scratch.base.join("zwinger");
    let arguments = r#"{"command": "grep pids /proc/self/cgroup"}"#;
    let words = [zwinger.to_str().unwrap(), "tool", "run_command", arguments, "--approve", "yes"];
    let ended = scratch.start(group.command(&scratch, &words)).end();
    let output = ended.json()["output"].as_str().unwrap_or_default().to_owned();
    assert!(output.contains("/zwtest-") && output.contains("/zwinger-"), "{ended:?}");
    assert_eq!(group.groups().len(), 0, "left behind");
}

/// With nothing but zwinger to hold them, and these bombs to hold themselves.
#[test]
fn m01_zwinger_wins_without_a_cgroup() {
    let name = "limits::root::m01_zwinger_wins_without_a_cgroup";
    if !rustix::process::geteuid().is_root() {
        return skipped(name, "needs root");
    }
    let scratch = Scratch::new();
    make_dir(scratch.base.join("root"));
    // clone(2): in a changed root no user namespace is made, and the caller stays the machine's root.
    let script = r#"mount --rbind / "$0/root" && mount -t tmpfs none "$0/root/sys/fs/cgroup" &&
        exec chroot "$0/root" sh -c 'cd "$0" && exec "$@"' "$@""#;
    let base = scratch.base.to_str().unwrap();
    let prefix = ["unshare", "-m", "sh", "-c", script, base, scratch.work.to_str().unwrap()];
    if !process::succeeds(&[&prefix[..], &["true"]].concat()) {
        return skipped(name, "the cgroups cannot be taken away here");
    }
    let zwinger = scratch.base.join("zwinger");
    let start = |words: &[&str]| {
        let words = [&["setsid"], &prefix[..], &[zwinger.to_str().unwrap(), "run"], words].concat();
        let mut command = process::command(&words);
        command.env("HOME", &scratch.home).env("TMPDIR", scratch.base.join("tmp"));
        scratch.start(command)
    };
    let reason = start(&["--json", "--", "true"]).end().json();
    let reason = reason.pointer("/enforcement/processes/reason").unwrap().as_str().unwrap().to_owned();
    assert!(reason.contains("root is exempt") && reason.contains("cgroup"), "{reason}");
    let tag = Tag::new();
    let ended = start(&["--", "perl", "-e", BOMB, &tag.0]).end();
    assert_stopped(&ended, CEILING);
    assert_eq!(ended.text(), "0\n", "something else bounds it, so nothing was tried");
    tag.assert_gone();
    let ended = start(&["--timeout", "2", "--", "perl", "-e", HOPPERS, &tag.0]).end();
    assert!(matches!(ended.code, 124 | 137) && last_line(&ended).starts_with("zwinger: stopped"), "{ended:?}");
    tag.assert_gone();
    if !process::succeeds(&["chrt", "-f", "1", "true"]) {
        return skipped(name, "no process may run before all others here");
    }
    let running = start(&["--", "sleep", &tag.0]);
    let command = tag.wait_for(1)[0];
    // proc(5): the policy is the 41st field, the third stands behind the name; 1 is SCHED_FIFO.
    let policy = |pid: Pid| {
        let stat = read_text(format!("/proc/{}/stat", pid.as_raw_pid()));
        stat.rsplit(')').next().unwrap().split_whitespace().nth(41 - 3).unwrap().to_owned()
    };
    let shim = process::parent(command).unwrap();
    let supervisor = process::parent(shim).unwrap();
    assert_eq!([supervisor, shim, command].map(policy), ["1", "0", "0"]);
    running.signal(rustix::process::Signal::KILL);
    running.end();
    tag.assert_gone();
}

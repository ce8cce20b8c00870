//! Processes as a test sees them from outside.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::scratch::{list, read_text};

/// What ends at all has ended by then, on the slowest machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A command of a test; it has nothing of the test's own environment.
#[expect(clippy::disallowed_methods, reason = "the tests start zwinger from outside")]
pub(crate) fn command(words: &[impl AsRef<std::ffi::OsStr>]) -> Command {
    let (program, arguments) = words.split_first().expect("a program");
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// Whether a command that says nothing of interest succeeds.
pub(crate) fn succeeds(words: &[&str]) -> bool {
    command(words).output().is_ok_and(|output| output.status.success())
}

/// A duration for sleep(1) that no other process on this machine has among its arguments. What still sleeps when the
/// test ends is ended.
pub(crate) struct Tag(pub(crate) String);

impl Tag {
    pub(crate) fn new() -> Self {
        let mut random = [0_u8; 8];
        rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty()).unwrap();
        Self(format!("3600.{:020}", u64::from_ne_bytes(random)))
    }

    /// Every process that has the tag among its arguments: zwinger itself, its helpers, the command.
    pub(crate) fn all(&self) -> Vec<Pid> {
        all().into_iter().filter(|pid| arguments(*pid).contains(&self.0)).collect()
    }

    /// Those that are the sleeping program itself.
    pub(crate) fn asleep(&self) -> Vec<Pid> {
        self.all().into_iter().filter(|pid| arguments(*pid).starts_with("sleep\0")).collect()
    }

    /// Waits until so many of them sleep.
    pub(crate) fn wait_for(&self, number: usize) -> Vec<Pid> {
        until(&format!("{number} sleeping processes"), || {
            let asleep = self.asleep();
            (asleep.len() == number).then_some(asleep)
        })
    }

    /// Waits until no process with the tag is left.
    pub(crate) fn assert_gone(&self) {
        let start = Instant::now();
        while start.elapsed() < SOON {
            if self.all().is_empty() {
                return;
            }
            pause();
        }
        let left: Vec<_> = self.all().into_iter().map(arguments).collect();
        panic!("still running: {left:?}");
    }
}

impl Drop for Tag {
    fn drop(&mut self) {
        for pid in self.all() {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

/// Waits for something that must come to be.
pub(crate) fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(start.elapsed() < SOON, "did not come to be: {what}");
        pause();
    }
}

pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

pub(crate) fn all() -> Vec<Pid> {
    let pids = list(Path::new("/proc")).into_iter().filter_map(|name| name.parse().ok());
    pids.filter_map(Pid::from_raw).collect()
}

/// The executor that a session of this test's own process has; nextest runs each test in one of its own.
pub(crate) fn executor_of_this_process() -> Option<Pid> {
    use zwinger_core::sandbox::{EXECUTOR, KEEPER};
    let is_ours = |pid: &Pid| {
        // A supervisor has the same arguments, and the executor as its parent.
        let keeper = parent(*pid).filter(|keeper| arguments(*keeper).starts_with(KEEPER));
        arguments(*pid).starts_with(EXECUTOR) && keeper.and_then(parent) == Some(rustix::process::getpid())
    };
    all().into_iter().find(is_ours)
}

/// The arguments, each ended by NUL; empty for a process that has none or is gone.
pub(crate) fn arguments(pid: Pid) -> String {
    read_text(format!("/proc/{}/cmdline", pid.as_raw_pid()))
}

/// Whether what `readlink /proc/self/ns/pid` printed names another process namespace than this test's.
pub(crate) fn is_foreign_pid_namespace(printed: &str) -> bool {
    let own = Path::new("/proc/self/ns/pid").read_link().unwrap();
    printed.starts_with("pid:[") && Path::new(printed.trim()) != own
}

pub(crate) fn parent(pid: Pid) -> Option<Pid> {
    // proc(5): pid (comm) state ppid; comm may hold anything, so look behind its last parenthesis.
    let status = read_text(format!("/proc/{}/stat", pid.as_raw_pid()));
    Pid::from_raw(status.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?)
}

//! The processes below one, as /proc/PID/task/TID/children names them (proc(5)).

use std::collections::HashSet;
use std::ops::ControlFlow;

use rustix::process::{Pid, Signal};

/// Entries that one walk looks at; a tree that grows while it is read must not hold us here.
const MOST: usize = 1 << 20;

/// Visits every process below `top` with the number of its tasks, after its children were read: what the visitor ends hides none
/// of them.
pub(super) fn walk(top: Pid, mut visit: impl FnMut(Pid, u64) -> ControlFlow<()>) {
    let mut open = vec![(top, top)];
    for _ in 0..MOST {
        let Some((pid, parent)) = open.pop() else { return };
        // Ids are given anew, soon where a namespace has few: it may be another command's by now. Orphans are the top's; what is
        // somebody else's, the next walk finds.
        if pid != top && parent_of(pid).is_none_or(|found| found != parent && found != top) {
            continue;
        }
        let Some(tasks) = read_children(pid, &mut open) else { continue };
        if pid != top && visit(pid, tasks).is_break() {
            return;
        }
    }
}

/// Adds the children of a process, each with that as its parent, and gives the number of its tasks; `None` when it is gone.
fn read_children(pid: Pid, into: &mut Vec<(Pid, Pid)>) -> Option<u64> {
    let mut count = 0;
    for task in std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid())).ok()?.flatten() {
        count += 1;
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?));
        into.extend(children.map(|child| (child, pid)));
    }
    Some(count)
}

fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    // proc(5): pid (name) state ppid; the name may hold anything, so look behind its last parenthesis.
    let rest = stat.get(stat.iter().rposition(|byte| *byte == b')')? + 1..)?;
    Pid::from_raw(std::str::from_utf8(rest).ok()?.split_whitespace().nth(1)?.parse().ok()?)
}

/// Sends a signal to everything below `top` that one walk finds, and says how many that were.
pub(super) fn signal(top: Pid, signal: Signal) -> usize {
    let mut found = 0;
    walk(top, |pid, _| {
        let _ = rustix::process::kill_process(pid, signal);
        found += 1;
        ControlFlow::Continue(())
    });
    found
}

/// Ends a tree that forks faster than it can be killed. What is killed makes room for another; what is stopped does not, and
/// leaves the processor to us. So everything is stopped, pass by pass, until one finds nothing new, and killed only then.
#[derive(Debug, Default)]
pub(super) struct Freeze {
    stopped: HashSet<Pid>,
    passes: usize,
}

impl Freeze {
    /// Passes after which all is killed in any case: something inside may let the stopped go on (SIGCONT).
    const PASSES: usize = 20;

    /// One pass over everything below `top`.
    pub(super) fn pass(&mut self, top: Pid) {
        let mut new = false;
        walk(top, |pid, _| {
            if self.stopped.insert(pid) {
                new = true;
                let _ = rustix::process::kill_process(pid, Signal::STOP);
            }
            ControlFlow::Continue(())
        });
        self.passes += 1;
        if !new || self.passes >= Self::PASSES {
            signal(top, Signal::KILL);
            *self = Self::default();
        }
    }
}

/// How many processes one walk finds below `top`.
pub(super) fn count(top: Pid) -> usize {
    let mut found = 0;
    walk(top, |_, _| {
        found += 1;
        ControlFlow::Continue(())
    });
    found
}

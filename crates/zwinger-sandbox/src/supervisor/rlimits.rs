//! What the kernel itself bounds of each process of a command (setrlimit(2)).

use rustix::process::Resource;

use super::Command;

/// Address space for data that a process may have beyond what its tree may use of it: programs reserve more than they touch.
const RESERVED: u64 = 1 << 30;

/// A ceiling of the kernel's that stands behind a ceiling of `tasks` of the watch: above it by a quarter, so that a command that
/// stays at its ceiling is seen there and named, and our own processes beside it do not count.
pub(crate) fn behind(tasks: u64) -> u64 {
    tasks.saturating_add(tasks / 4)
}

/// The limits of a command's processes.
pub(super) fn of(command: &Command) -> Vec<(Resource, u64)> {
    let mut limits = vec![(Resource::Core, 0)];
    limits.extend(tasks(command).map(|tasks| (Resource::Nproc, tasks)));
    if let Some(memory) = command.limits.memory {
        // Far enough above the watch that this one comes first and names the limit.
        limits.push((Resource::Data, memory.saturating_add(memory.max(RESERVED))));
        // A file may be memory too: one of memfd_create(2), or in /tmp. What is in no process, the watch does not see.
        limits.push((Resource::Fsize, memory));
    }
    limits
}

/// RLIMIT_NPROC counts the tasks of a user in a user namespace. Where that is the machine's own, it counts what the user runs
/// elsewhere too: no more than all tasks of the machine, so those are added. It does not bind root (kernel/fork.c).
fn tasks(command: &Command) -> Option<u64> {
    if let Some(tasks) = command.tasks {
        return Some(behind(tasks));
    }
    if rustix::process::getuid().is_root() {
        return None;
    }
    // proc(5): the fourth field of /proc/loadavg is tasks that can run / tasks that exist.
    let load = std::fs::read_to_string("/proc/loadavg").ok()?;
    let existing: u64 = load.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()?;
    Some(existing.saturating_add(behind(command.limits.tasks)))
}

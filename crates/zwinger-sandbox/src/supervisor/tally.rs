//! What a command's tree holds at one moment: processes, tasks, memory. By /proc (proc(5)), so it is a sample.

use std::ops::ControlFlow;

use rustix::process::Pid;

use super::shared_memory::OpenFiles;
use super::tree;

/// What of a tree is to be counted, and when that is enough.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// Whether the memory and the state of each process are needed, which cost most.
    pub(super) details: bool,
    /// Whether their open files are.
    pub(super) files: bool,
    /// Tasks after which nobody needs to know more.
    pub(super) enough: u64,
}

/// The counts of one look.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Tally {
    /// Thread groups that still run; what only waits to be reaped is none.
    pub(super) processes: u64,
    /// Threads and what waits to be reaped: whatever has an id.
    pub(super) tasks: u64,
    /// Bytes that are nobody else's: anonymous, huge and swapped pages. What processes share counts for each.
    pub(super) memory: u64,
    /// Bytes of shared memory that they have mapped, for each that has.
    pub(super) mapped: u64,
    /// Bytes of files in memory that they have open, mapped or not.
    pub(super) in_files: u64,
    /// The processes, for [`proportional_memory`].
    pub(super) pids: Vec<Pid>,
}

impl Tally {
    /// Counts everything below `top`.
    pub(super) fn of(top: Pid, wanted: Wanted) -> Self {
        let mut tally = Self::default();
        let mut files = OpenFiles::default();
        tree::walk(top, |pid, tasks| {
            tally.tasks += tasks;
            if wanted.details {
                tally.add_details(pid, tasks);
            }
            if wanted.files {
                files.add(pid);
            }
            if tally.tasks < wanted.enough { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        tally.in_files = files.bytes();
        tally
    }

    fn add_details(&mut self, pid: Pid, tasks: u64) {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())) else { return };
        let zombie = text(&status, "State:").is_some_and(|state| state.starts_with('Z'));
        if zombie && tasks <= 1 {
            return;
        }
        self.processes += 1;
        self.pids.push(pid);
        // A first thread that has ended takes its view of the memory along; the others still show it.
        let [memory, mapped] = if zombie { memory_of_threads(pid) } else { resident(&status) };
        self.memory += memory;
        self.mapped += mapped;
    }
}

/// The memory of these processes with what they share divided among those that share it (smaps_rollup of proc(5), Linux 5.4);
/// as in a [`Tally`] for those that do not let themselves be looked at. Slow: it walks their page tables.
pub(super) fn proportional_memory(pids: &[Pid]) -> [u64; 2] {
    let file = |pid: &Pid, name| std::fs::read_to_string(format!("/proc/{}/{name}", pid.as_raw_pid()));
    let of = |pid: &Pid| match file(pid, "smaps_rollup") {
        Ok(rollup) if text(&rollup, "Pss_Anon:").is_some() => {
            let own = ["Pss_Anon:", "SwapPss:", "Shared_Hugetlb:", "Private_Hugetlb:"];
            [bytes(&rollup, &own), bytes(&rollup, &["Pss_Shmem:"])]
        }
        _ => file(pid, "status").map(|status| resident(&status)).unwrap_or_default(),
    };
    pids.iter().map(of).fold([0; 2], |[memory, mapped], [more, more_mapped]| [memory + more, mapped + more_mapped])
}

fn memory_of_threads(pid: Pid) -> [u64; 2] {
    let threads = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid())).into_iter().flatten().flatten();
    let status = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok());
    status.map(|status| resident(&status)).max().unwrap_or_default()
}

/// What is a process's own, and what of shared memory it has mapped.
fn resident(status: &str) -> [u64; 2] {
    [bytes(status, &["RssAnon:", "VmSwap:", "HugetlbPages:"]), bytes(status, &["RssShmem:"])]
}

/// The sum of some fields, which /proc gives in units of 1024 bytes.
fn bytes(of: &str, fields: &[&str]) -> u64 {
    let number = |field: &&str| text(of, field)?.split_whitespace().next()?.parse::<u64>().ok();
    fields.iter().filter_map(number).sum::<u64>().saturating_mul(1024)
}

fn text<'a>(of: &'a str, field: &str) -> Option<&'a str> {
    of.lines().find_map(|line| line.strip_prefix(field)).map(str::trim_start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_proc_writes_them() {
        let status = "Name:\tRssAnon: 7 kB\nState:\tS (sleeping)\nVmRSS:\t 900 kB\nRssAnon:\t     12 kB\nRssFile:\t 5 kB\n\
                      RssShmem:\t   3 kB\nVmSwap:\t  1 kB\nHugetlbPages:\t 2048 kB\nThreads:\t4\n";
        assert_eq!(resident(status), [(12 + 1 + 2048) * 1024, 3 * 1024]);
        assert_eq!(text(status, "State:"), Some("S (sleeping)"));
        assert_eq!(resident("Name:\tkthread\n"), [0, 0]);
    }

    #[test]
    fn memory_is_seen_both_ways() {
        let held = std::hint::black_box(vec![1_u8; 64 << 20]);
        let own = rustix::process::getpid();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        for [memory, _] in [resident(&status), memory_of_threads(own), proportional_memory(&[own])] {
            assert!(memory >= held.len() as u64);
        }
    }
}

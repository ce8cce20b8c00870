//! A bound on the tasks of a process namespace that holds for root too: how many ids it has.

use std::io;

const PID_MAX: &str = "/proc/sys/kernel/pid_max";

/// Ids below this are given once and not again (kernel/pid.c, RESERVED_PIDS); `pid_max` must be above it.
const RESERVED: u64 = 300;

/// Whether `pid_max` belongs to each process namespace, by the release of the kernel as uname(2) gives it. Before Linux 6.14 it is
/// the machine's, and setting it would change that.
pub(crate) fn are_bounded_apart(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 14)
}

/// Lets the namespace of the calling process, its first, have `tasks` tasks, and up to 299 more as long as the first ids last.
/// Needs its own /proc, still writable; only where [`are_bounded_apart`].
pub(super) fn bound(tasks: u64) -> io::Result<()> {
    std::fs::write(PID_MAX, RESERVED.saturating_add(tasks).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kernels_that_have_it_are_taken_for_such() {
        for release in ["6.14.0", "6.14-rc3", "6.18.44-fc-v857", "7.0.0-1-amd64", "10.1"] {
            assert!(are_bounded_apart(release), "{release}");
        }
        for release in ["6.13.12", "6.1.0-40-amd64", "5.15.200", "2.6.78", "4.4.0", "6", "6.", "", "linux", "v6.18"] {
            assert!(!are_bounded_apart(release), "{release}");
        }
    }
}

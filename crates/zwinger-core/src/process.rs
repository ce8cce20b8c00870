//! A process, told apart from a later one with the same number.

use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use zwinger_sandbox::Root;

/// Its number, and when it was started: clock ticks since the machine's start, as field 22 of proc(5)'s stat has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it was started.
    pub pid_start: u64,
}

impl Process {
    /// This one. Where /proc does not say when it was started, that is 0.
    pub fn this() -> Self {
        let pid = std::process::id();
        Self { pid, pid_start: start(pid).unwrap_or_default() }
    }

    /// Whether it still runs, seen from this machine.
    pub fn is_running(self) -> bool {
        start(self.pid) == Some(self.pid_start)
    }
}

fn start(pid: u32) -> Option<u64> {
    let mut stat = [0; 1024];
    let path = format!("{pid}/stat");
    let mut file = Root::open_ambient(Path::new("/proc")).ok()?.open_file(Path::new(&path)).ok()?;
    let count = file.read(&mut stat).ok()?;
    let stat = stat.get(..count)?;
    // Of pid (name) state …, the name may hold anything, so look behind its last parenthesis.
    let rest = stat.get(stat.iter().rposition(|byte| *byte == b')')? + 1..)?;
    let mut fields = std::str::from_utf8(rest).ok()?.split_ascii_whitespace();
    // A zombie does nothing any more.
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_one_runs_and_another_of_its_number_does_not() {
        let this = Process::this();
        assert!(this.pid_start > 0 && this.is_running());
        assert!(!Process { pid_start: this.pid_start + 1, ..this }.is_running());
        assert!(!Process { pid: u32::MAX, ..this }.is_running());
    }
}

//! Looks at a command's tree from time to time, and says when it holds more than it may.

use std::fmt;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::Command;
use super::shared_memory::segments;
use super::tally::{self, Tally, Wanted};
use crate::confinement::Limits;

/// The first look; a command that ends before pays nothing.
const FIRST: Duration = Duration::from_millis(50);
/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(100);
/// A look at a large tree costs much; the next one then waits so many times as long, so that watching takes less than a tenth of
/// one processor.
const RATIO: u32 = 10;
/// And so long at most.
const LONGEST: Duration = Duration::from_secs(1);

/// The limit that a command's tree was stopped at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitHit {
    /// More memory than so many bytes ([`Limits::memory`]).
    Memory(u64),
    /// More processes than so many ([`Limits::processes`]).
    Processes(u32),
    /// A file of more than so many bytes, while memory is limited ([`Limits::memory`]): it may be memory.
    File(u64),
    /// So many tasks, for longer than a moment ([`Limits::tasks`]).
    Tasks(u64),
}

impl fmt::Display for LimitHit {
    /// What was too much, and the option that changes it: `more than 64 MiB of memory (--memory)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(bytes) if bytes % (1 << 20) == 0 => {
                write!(f, "more than {} MiB of memory (--memory)", bytes >> 20)
            }
            Self::Memory(bytes) => write!(f, "more than {bytes} bytes of memory (--memory)"),
            Self::File(bytes) => write!(f, "a file of more than {} MiB (--memory)", bytes >> 20),
            Self::Processes(1) => f.write_str("more than 1 process (--processes)"),
            Self::Processes(number) => write!(f, "more than {number} processes (--processes)"),
            Self::Tasks(number) => write!(f, "{number} tasks at once (ceiling; --processes N raises it)"),
        }
    }
}

/// When the next look is due, and what the last one saw.
#[derive(Debug)]
pub(super) struct Watch {
    next: Instant,
    /// The last look found the ceiling on tasks reached. A peak that is gone by the next look has met EAGAIN at most.
    at_ceiling: bool,
    /// So did any.
    was_at_ceiling: bool,
    /// Bytes of System V memory that were there before; `None` when it is others' too.
    segments: Option<u64>,
}

impl Watch {
    pub(super) fn new(started: Instant, command: &Command) -> Self {
        let segments = (command.ipc_apart && command.limits.memory.is_some()).then(segments);
        Self { next: started + FIRST, at_ceiling: false, was_at_ceiling: false, segments }
    }

    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Looks at everything below `top`, if it is time.
    pub(super) fn look(&mut self, top: Pid, limits: &Limits) -> Option<LimitHit> {
        if Instant::now() < self.next {
            return None;
        }
        let begun = processor_time();
        let details = limits.memory.is_some() || limits.processes.is_some();
        let enough = limits.tasks.saturating_mul(2);
        let mut tally = Tally::of(top, Wanted { details, files: limits.memory.is_some(), enough });
        let segments = self.segments.map_or(0, |before| segments().saturating_sub(before));
        tally.in_files = tally.in_files.saturating_add(segments);
        let hit = self.judge(&tally, limits, || tally::proportional_memory(&tally.pids));
        let cost = processor_time().saturating_sub(begun);
        self.next = Instant::now() + (cost * RATIO).clamp(INTERVAL, LONGEST);
        hit
    }

    /// The ceiling, if the tree was seen at it: a fork that found it there was refused.
    pub(super) fn reached(&self, limits: &Limits) -> Option<LimitHit> {
        self.was_at_ceiling.then_some(LimitHit::Tasks(limits.tasks))
    }

    fn judge(&mut self, tally: &Tally, limits: &Limits, proportional: impl FnOnce() -> [u64; 2]) -> Option<LimitHit> {
        let at_ceiling = tally.tasks >= limits.tasks;
        let stays = std::mem::replace(&mut self.at_ceiling, at_ceiling);
        self.was_at_ceiling |= at_ceiling;
        if let Some(most) = limits.processes.filter(|most| tally.processes > u64::from(*most)) {
            return Some(LimitHit::Processes(most));
        }
        // At twice the ceiling nothing holds it but us.
        if at_ceiling && (stays || tally.tasks / 2 >= limits.tasks) {
            return Some(LimitHit::Tasks(limits.tasks));
        }
        // Pages that forked processes share are counted once only before someone is stopped for them.
        // What is mapped is mostly what lies in files, so not both.
        let sum = |[memory, mapped]: [u64; 2]| memory.saturating_add(mapped.max(tally.in_files));
        let most = limits.memory.filter(|most| sum([tally.memory, tally.mapped]) > *most)?;
        (sum(proportional()) > most).then_some(LimitHit::Memory(most))
    }
}

/// What this thread has used so far. Not the time of day: a tree that leaves us little of the processor must not slow us further.
fn processor_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec.try_into().unwrap_or_default(), used.tv_nsec.try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> Watch {
        let limits = Limits { memory: None, ..Limits::default() };
        let command = Command { argv: Vec::new(), environment: Vec::new(), limits, tasks: None, ipc_apart: false };
        Watch::new(Instant::now(), &command)
    }

    fn judge(watch: &mut Watch, processes: u64, tasks: u64, memory: u64) -> Option<LimitHit> {
        let limits = Limits { memory: Some(100), processes: Some(5), tasks: 50, ..Limits::default() };
        let tally = Tally { processes, tasks, memory, ..Tally::default() };
        watch.judge(&tally, &limits, || [memory - 10, 0])
    }

    #[test]
    fn more_than_a_limit_is_a_hit_and_the_limit_itself_is_not() {
        let watch = &mut watch();
        assert_eq!(judge(watch, 5, 49, 100), None);
        assert_eq!(judge(watch, 6, 49, 10), Some(LimitHit::Processes(5)));
        assert_eq!(judge(watch, 1, 1, 110), None, "shared pages counted once are 100");
        assert_eq!(judge(watch, 1, 1, 111), Some(LimitHit::Memory(100)));
    }

    #[test]
    fn shared_memory_counts_mapped_or_not_and_not_twice() {
        let limits = Limits { memory: Some(100), ..Limits::default() };
        for (memory, mapped, in_files, hit) in [(40, 60, 60, false), (40, 0, 61, true), (40, 61, 0, true)] {
            let tally = Tally { memory, mapped, in_files, ..Tally::default() };
            assert_eq!(self::watch().judge(&tally, &limits, || [memory, mapped]).is_some(), hit, "{tally:?}");
        }
    }

    #[test]
    fn a_peak_of_tasks_is_no_hit_unless_it_stays_or_is_far_too_high() {
        let watch = &mut watch();
        for (tasks, hit) in [(50, false), (49, false), (99, false), (50, true), (1, false), (100, true)] {
            assert_eq!(judge(watch, 1, tasks, 10).is_some(), hit, "{tasks}");
        }
        let limits = Limits { tasks: 50, ..Limits::default() };
        assert_eq!(watch.reached(&limits), Some(LimitHit::Tasks(50)), "though it is said when it ends by itself");
        assert_eq!(self::watch().reached(&limits), None);
    }

    #[test]
    fn a_hit_names_its_option() {
        let texts = [LimitHit::Memory(64 << 20), LimitHit::Memory(5), LimitHit::Processes(1), LimitHit::Tasks(256)]
            .map(|hit| hit.to_string());
        let expected = [
            "more than 64 MiB of memory (--memory)",
            "more than 5 bytes of memory (--memory)",
            "more than 1 process (--processes)",
            "256 tasks at once (ceiling; --processes N raises it)",
        ];
        assert_eq!(texts, expected);
    }
}

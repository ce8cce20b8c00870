//! Where what we start runs: beside us, if there is a second processor.

use rustix::process::Pid;
use rustix::thread::CpuSet;

use crate::sys;

/// The processors that a process may use.
#[derive(Clone, Copy)]
pub(crate) struct Processors(Option<CpuSet>);

impl Processors {
    pub(crate) fn read() -> Self {
        Self(rustix::thread::sched_getaffinity(None).ok())
    }

    /// Keeps a new process off the processor that we run on, where the kernel would let it wait for us.
    pub(crate) fn leave_ours_to_us(self, child: Pid) {
        if let Some(mut others) = self.0.filter(|all| all.count() > 1) {
            others.unset(sys::current_processor());
            let _ = rustix::thread::sched_setaffinity(Some(child), &others);
        }
    }

    pub(crate) fn take_back(self) {
        if let Some(all) = self.0.filter(|all| all.count() > 1) {
            let _ = rustix::thread::sched_setaffinity(None, &all);
        }
    }
}

//! Whose the terminal is. A shell inside makes groups of its own the foreground, and cannot give the terminal back: ours has no
//! number in its process namespace. Whoever reads the terminal after us would get nothing.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;

use crate::sys;

/// The terminal, where our process group is its foreground. Given back to that when this is dropped.
#[derive(Debug)]
pub(super) struct Foreground {
    terminal: OwnedFd,
    ours: Pid,
}

impl Foreground {
    /// `None`: there is no terminal, or it is another's.
    pub(super) fn ours() -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?;
        let ours = rustix::process::getpgrp();
        let foreground = rustix::termios::tcgetpgrp(&terminal).ok()?;
        (foreground == ours).then_some(Self { terminal, ours })
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let Ok(now) = rustix::termios::tcgetpgrp(&self.terminal) else { return };
        // A group that lives has it by right: the shell that put us into the background.
        if rustix::process::test_kill_process_group(now) == Err(rustix::io::Errno::SRCH) {
            let _ = sys::set_foreground(self.terminal.as_fd(), self.ours);
        }
    }
}

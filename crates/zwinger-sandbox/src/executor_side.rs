//! The first steps of an executor's life: its streams are taken out of the way of anything that prints or reads.

use std::fs::File;
use std::io;

use rustix::fs::{CWD, Mode, OFlags};

use crate::sys;

/// Takes over standard input and output for frames and leaves /dev/null in their place, so that no stray print can end
/// up between two frames. To be called first, before any other descriptor is opened.
///
/// # Errors
/// When a descriptor cannot be copied.
pub fn take_streams() -> io::Result<(File, File)> {
    sys::close_on_exec_above_2()?;
    sys::reset_signals();
    let requests = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let responses = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    let null = rustix::fs::openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok((requests.into(), responses.into()))
}

/// Ends the executor at once, and with it, where it is the first process of its namespace, everything inside.
pub fn abandon() -> ! {
    sys::exit_now(70)
}

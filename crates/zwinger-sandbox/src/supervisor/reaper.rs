//! Who adopts and waits for the processes of a command, so that its end is the end of all of them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags, WaitOptions};

use super::End;
use crate::exec::Exec;
use crate::sys::{self, Shim};

/// The process that every orphan of the command comes to.
pub(super) enum Reaper {
    /// One of its own, for a caller that has other commands, or can be killed by this one.
    Apart { shim: Shim, status: OwnedFd, ended: OwnedFd },
    /// The caller, who is the first process of a namespace: every orphan in it is adopted, and nothing in it can kill the caller
    /// (pid_namespaces(7)).
    Here { command: Option<Pid>, not_started: Option<End>, signals: OwnedFd },
}

/// What a look at it brought.
pub(super) struct News {
    /// The command's end.
    pub(super) end: Option<End>,
    /// No more will come: the tree is empty, or the reaper was killed.
    pub(super) over: bool,
}

impl Reaper {
    /// Starts the command.
    pub(super) fn apart(exec: Exec) -> io::Result<Self> {
        let (status, status_end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let shim = Shim::start(exec, status_end)?;
        let ended = rustix::process::pidfd_open(shim.pid(), PidfdFlags::empty())?;
        Ok(Self::Apart { shim, status, ended })
    }

    /// Starts the command.
    pub(super) fn here(exec: Exec) -> io::Result<Self> {
        let signals = sys::child_signals()?;
        Ok(match sys::spawn(exec)? {
            Ok(pid) => Self::Here { command: Some(pid), not_started: None, signals },
            Err(errno) => Self::Here { command: None, not_started: Some(End::NotStarted(errno)), signals },
        })
    }

    /// What all of the command is below.
    pub(super) fn top(&self) -> Pid {
        match self {
            Self::Apart { shim, .. } => shim.pid(),
            Self::Here { .. } => rustix::process::getpid(),
        }
    }

    /// Readable when there is news.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let (first, second) = match self {
            Self::Apart { status, ended, .. } => (ended, Some(status)),
            Self::Here { signals, .. } => (signals, None),
        };
        std::iter::once(first).chain(second).map(AsFd::as_fd)
    }

    pub(super) fn look(&mut self) -> io::Result<News> {
        match self {
            Self::Apart { shim, status, ended } => {
                // In this order: what it said before its end is there then.
                let mut news = News { end: None, over: is_readable(ended)? };
                while let Some((kind, number)) = read_report(status)? {
                    // The first report, whichever it is: the streams are the command's alone from now on.
                    shim.release_streams();
                    // The first end, too: a child that could not exec exits afterwards.
                    news.end = news.end.or(match kind {
                        sys::EXITED => Some(End::Exited(number)),
                        sys::SIGNALLED => Some(End::Signalled(number)),
                        sys::NOT_STARTED => Some(End::NotStarted(number)),
                        _ => None,
                    });
                }
                Ok(news)
            }
            Self::Here { command, not_started, signals } => {
                while matches!(rustix::io::read(&*signals, &mut [0_u8; 1024]), Ok(1..)) {}
                let mut news = News { end: not_started.take(), over: false };
                loop {
                    match rustix::process::wait(WaitOptions::NOHANG) {
                        Ok(Some((pid, status))) if Some(pid) == *command => {
                            *command = None;
                            news.end = Some(match status.terminating_signal() {
                                Some(signal) => End::Signalled(signal),
                                None => End::Exited(status.exit_status().unwrap_or(0)),
                            });
                        }
                        Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                        Ok(None) => return Ok(news),
                        // wait(2): ECHILD, no child is left; and every orphan would be one.
                        Err(_) => return Ok(News { over: true, ..news }),
                    }
                }
            }
        }
    }

    /// Whether it was stopped, which only the command can have done.
    pub(super) fn is_stopped(&self) -> io::Result<bool> {
        match self {
            Self::Apart { shim, .. } => shim.is_stopped(),
            Self::Here { .. } => Ok(false),
        }
    }

    /// After [`News::over`]. `true`: it saw that nothing was left. `false`: it was killed.
    pub(super) fn saw_nothing_left(&mut self) -> io::Result<bool> {
        match self {
            Self::Apart { shim, .. } => {
                let saw = shim.wait();
                shim.release_streams();
                saw
            }
            Self::Here { .. } => Ok(true),
        }
    }
}

fn is_readable(fd: &OwnedFd) -> io::Result<bool> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    Ok(rustix::event::poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&now))? > 0)
}

/// A kind and a number that the shim wrote. A pipe write of 8 bytes is atomic (pipe(7)), so a read gives whole reports.
fn read_report(status: &OwnedFd) -> io::Result<Option<(u32, i32)>> {
    let mut report = [0_u8; 8];
    match rustix::io::read(status, &mut report) {
        Ok(8) => {
            let [a, b, c, d, e, f, g, h] = report;
            Ok(Some((u32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes([e, f, g, h]))))
        }
        Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

//! SIGTERM and SIGHUP to zwinger: heeded in its own time, so that what runs is stopped and what is left is settled.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};

use crate::sys;

/// What has asked this process to end since [`EndSignals::heed`].
#[derive(Debug)]
pub struct EndSignals {
    signals: OwnedFd,
    first: Cell<Option<i32>>,
}

impl EndSignals {
    /// From now on they end this process no more; whoever called this does. Before any thread is started: each has a mask of its own.
    ///
    /// # Errors
    /// As signalfd(2).
    pub fn heed() -> io::Result<Self> {
        Ok(Self { signals: sys::end_signals()?, first: Cell::new(None) })
    }

    /// The number of the first that was taken.
    pub fn received(&self) -> Option<i32> {
        self.first.get()
    }

    /// Waits for the next.
    ///
    /// # Errors
    /// As poll(2).
    pub fn wait(&self) -> io::Result<i32> {
        loop {
            if let Some(signal) = self.take()? {
                return Ok(signal);
            }
            match rustix::event::poll(&mut [PollFd::new(self, PollFlags::IN)], None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes one, if one has come.
    pub(crate) fn take(&self) -> io::Result<Option<i32>> {
        // signalfd(2): records of 128 bytes, which begin with the number.
        let mut record = [0_u8; 128];
        loop {
            match rustix::io::read(&self.signals, &mut record) {
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let [a, b, c, d, ..] = record;
            let signal = i32::from_ne_bytes([a, b, c, d]);
            // One that is blocked is kept also if it is ignored, as nohup(1) has it.
            if !sys::is_ignored(signal) {
                self.first.set(self.first.get().or(Some(signal)));
                return Ok(Some(signal));
            }
        }
    }
}

impl AsFd for EndSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}

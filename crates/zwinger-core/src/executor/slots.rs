//! How many commands run at once: the others wait for their turn.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::{Cancel, lock};

/// So few that all of them have tasks to run with, under the session's ceiling.
const AT_ONCE: usize = 32;
/// How often one that waits looks whether it was cancelled.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(super) struct Slots {
    taken: Mutex<usize>,
    freed: Condvar,
}

/// One of them; free again when dropped.
pub(super) struct Slot<'a>(&'a Slots);

impl Slots {
    /// Waits for one; `None` when the call was cancelled before.
    pub(super) fn take(&self, cancel: Option<&Cancel>) -> Option<Slot<'_>> {
        let mut taken = lock(&self.taken);
        loop {
            if cancel.is_some_and(Cancel::is_cancelled) {
                return None;
            }
            if *taken < AT_ONCE {
                *taken += 1;
                return Some(Slot(self));
            }
            (taken, _) = self.freed.wait_timeout(taken, LOOK).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *lock(&self.0.taken) -= 1;
        self.0.freed.notify_one();
    }
}

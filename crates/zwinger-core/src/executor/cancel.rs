//! A call stopped from outside.

use std::collections::HashMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use super::link::Heard;
use super::lock;

/// Stops the calls that it was given to, from any thread and for good: a command is ended with all that it started, and what has
/// not begun does not begin. Other calls go on.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    cancelled: bool,
    /// Who waits in the calls, by the numbers of their requests.
    waiting: HashMap<u64, Sender<Heard>>,
}

impl Cancel {
    /// Stops them. Comes back at once; each call comes back with what is known of its end.
    pub fn cancel(&self) {
        let mut state = lock(&self.0);
        state.cancelled = true;
        for (_, waiter) in state.waiting.drain() {
            let _ = waiter.send(Heard::Cancelled);
        }
    }

    /// Whether that was done.
    pub fn is_cancelled(&self) -> bool {
        lock(&self.0).cancelled
    }

    /// Tells `waiter` of it, until what is returned is dropped; at once where it was done already.
    pub(super) fn tell(&self, request: u64, waiter: Sender<Heard>) -> Told<'_> {
        let mut state = lock(&self.0);
        match state.cancelled {
            true => drop(waiter.send(Heard::Cancelled)),
            false => drop(state.waiting.insert(request, waiter)),
        }
        Told { cancel: self, request }
    }
}

pub(super) struct Told<'a> {
    cancel: &'a Cancel,
    request: u64,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        lock(&self.cancel.0).waiting.remove(&self.request);
    }
}

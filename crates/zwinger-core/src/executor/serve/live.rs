//! Output on its way while its command runs: no faster than a person reads, so that a flood delays nobody's answer.

use std::time::{Duration, Instant};

use zwinger_sandbox::supervisor::Live;

use super::Answers;
use crate::executor::wire::Response;

/// Bytes that may go at once, and in each second after that.
const BURST: usize = 256 << 10;
const RATE: usize = 128 << 10;

/// Lets output through as long as there is room, and counts what it leaves out. All of it is in the answer, as far as that keeps it.
pub(super) struct Meter {
    id: u64,
    answers: Answers,
    room: usize,
    filled: Instant,
    skipped: u64,
}

impl Meter {
    pub(super) fn new(id: u64, answers: Answers) -> Self {
        Self { id, answers, room: BURST, filled: Instant::now(), skipped: 0 }
    }

    pub(super) fn into_live(mut self) -> Live {
        Box::new(move |bytes| {
            if let Some(skipped) = self.admit(bytes.len(), Instant::now()) {
                self.answers.send(self.id, Response::Live { bytes: bytes.to_vec(), skipped });
            }
        })
    }

    /// `None`: left out. Else how much was left out before.
    fn admit(&mut self, bytes: usize, now: Instant) -> Option<u64> {
        let elapsed = now.saturating_duration_since(self.filled).min(Duration::from_secs(10));
        let more = usize::try_from(elapsed.as_millis()).unwrap_or_default() * RATE / 1000;
        if more > 0 {
            (self.room, self.filled) = (BURST.min(self.room + more), now);
        }
        match self.room.checked_sub(bytes) {
            Some(room) => {
                self.room = room;
                Some(std::mem::take(&mut self.skipped))
            }
            None => {
                self.skipped += bytes as u64;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_counted_and_goes_on_later() {
        let nowhere = tempfile::tempfile().unwrap();
        let mut meter = Meter::new(1, Answers(std::sync::Arc::new(std::sync::Mutex::new(nowhere))));
        let start = meter.filled;
        assert_eq!(meter.admit(BURST, start), Some(0));
        assert_eq!((meter.admit(3, start), meter.admit(4, start)), (None, None));
        let later = start + Duration::from_secs(1);
        assert_eq!(meter.admit(RATE, later), Some(7));
        assert_eq!(meter.admit(1, later), None);
        assert_eq!(meter.admit(BURST + 1, later + Duration::from_secs(60)), None, "no frame is larger than a burst");
        assert_eq!(meter.admit(BURST, later + Duration::from_secs(120)), Some(2 + BURST as u64));
    }
}

//! What is kept of an output stream: its head and its tail, cut between characters, with the count of what was dropped.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// A stream as it was kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// The first bytes; all of them when nothing was dropped.
    pub head: Vec<u8>,
    /// The last bytes, empty when nothing was dropped.
    pub tail: Vec<u8>,
    /// Bytes between them that were read and dropped.
    pub dropped: u64,
}

impl Captured {
    /// Head, a note of what is missing, tail.
    pub fn joined(&self) -> Vec<u8> {
        if self.dropped == 0 {
            return self.head.clone();
        }
        let note = format!("\n[… {} bytes dropped …]\n", self.dropped);
        [self.head.as_slice(), note.as_bytes(), self.tail.as_slice()].concat()
    }

    /// Bytes that were kept.
    pub fn kept(&self) -> usize {
        self.head.len() + self.tail.len()
    }
}

/// Takes a stream of any length in constant memory.
#[derive(Debug)]
pub struct Capture {
    half: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
}

impl Capture {
    /// Keeps at most `limit` bytes, half of them from the head.
    pub fn new(limit: usize) -> Self {
        Self { half: limit / 2, head: Vec::new(), tail: VecDeque::new(), dropped: 0 }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = self.half.saturating_sub(self.head.len()).min(bytes.len());
        let (head, rest) = bytes.split_at(room);
        self.head.extend_from_slice(head);
        // Of a chunk longer than the tail only its own end can stay.
        let skipped = rest.len().saturating_sub(self.half);
        let rest = rest.get(skipped..).unwrap_or_default();
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..excess);
        self.tail.extend(rest);
        self.dropped += (skipped + excess) as u64;
    }

    /// Ends the stream.
    pub fn finish(self) -> Captured {
        let Self { mut head, tail, mut dropped, .. } = self;
        let mut tail = Vec::from(tail);
        if dropped == 0 {
            head.append(&mut tail);
            return Captured { head, tail, dropped };
        }
        let cut = incomplete_end(&head);
        head.truncate(head.len() - cut);
        let begin = tail.iter().take(3).take_while(|byte| is_continuation(**byte)).count();
        tail.drain(..begin);
        dropped += (cut + begin) as u64;
        Captured { head, tail, dropped }
    }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// Length of a UTF-8 sequence at the end that lacks its last bytes; 0 when the end is complete or no UTF-8 at all.
pub fn incomplete_end(bytes: &[u8]) -> usize {
    for (back, byte) in bytes.iter().rev().take(4).enumerate() {
        if is_continuation(*byte) {
            continue;
        }
        let needed = match byte {
            0b1100_0000..=0b1101_1111 => 2,
            0b1110_0000..=0b1110_1111 => 3,
            0b1111_0000..=0b1111_0111 => 4,
            _ => 1,
        };
        return if back + 1 < needed { back + 1 } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn captured(limit: usize, chunks: &[&[u8]]) -> Captured {
        let mut capture = Capture::new(limit);
        chunks.iter().for_each(|chunk| capture.push(chunk));
        capture.finish()
    }

    #[test]
    fn short_streams_are_whole() {
        let kept = captured(10, &[b"hello", b"12345"]);
        assert_eq!((kept.joined().as_slice(), kept.dropped), (b"hello12345".as_slice(), 0));
    }

    #[test]
    fn j07_no_cut_inside_a_character() {
        for limit in 4..40 {
            for shift in 0..4 {
                let text = "x".repeat(shift) + &"é€🦀".repeat(20);
                let kept = captured(limit, &[text.as_bytes()]);
                assert!(std::str::from_utf8(&kept.head).is_ok() && std::str::from_utf8(&kept.tail).is_ok());
                assert_eq!(kept.kept() as u64 + kept.dropped, text.len() as u64);
            }
        }
    }

    proptest! {
        #[test]
        fn head_tail_and_count_are_exact(
            limit in 0_usize..64,
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..20),
        ) {
            let whole = chunks.concat();
            let kept = captured(limit, &chunks.iter().map(Vec::as_slice).collect::<Vec<_>>());
            prop_assert!(whole.starts_with(&kept.head));
            prop_assert!(whole.ends_with(&kept.tail));
            prop_assert!(kept.kept() <= limit);
            prop_assert_eq!(kept.kept() as u64 + kept.dropped, whole.len() as u64);
        }
    }
}

//! The two output streams of a command as they arrive, kept apart and together.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::capture::{Capture, Captured};

/// Bytes of one read.
const CHUNK: usize = 64 * 1024;

/// The reading ends of a command's pipes, and what was kept of them so far.
pub(crate) struct Outputs {
    pipes: Vec<(Stream, OwnedFd)>,
    stdout: Capture,
    stderr: Capture,
    both: Capture,
    buffer: Vec<u8>,
    live: Option<Live>,
}

/// Is told of every chunk as it arrives.
pub type Live = Box<dyn FnMut(&[u8]) + Send>;

#[derive(Clone, Copy)]
enum Stream {
    Out,
    Err,
}

impl Outputs {
    /// For a command whose streams go elsewhere.
    pub(crate) fn none() -> Self {
        let capture = || Capture::new(0);
        Self {
            pipes: Vec::new(),
            stdout: capture(),
            stderr: capture(),
            both: capture(),
            buffer: Vec::new(),
            live: None,
        }
    }

    /// Two pipes; keeps `limit` bytes of each stream. Also gives the writing ends for the command.
    pub(crate) fn pipes(limit: usize) -> io::Result<(Self, [OwnedFd; 2])> {
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let ((stdout, stdout_end), (stderr, stderr_end)) = (pipe()?, pipe()?);
        let capture = || Capture::new(limit);
        let outputs = Self {
            pipes: vec![(Stream::Out, stdout), (Stream::Err, stderr)],
            stdout: capture(),
            stderr: capture(),
            both: capture(),
            buffer: vec![0; CHUNK],
            live: None,
        };
        Ok((outputs, [stdout_end, stderr_end]))
    }

    /// Tells `live` of every chunk too.
    pub(crate) fn watched_by(self, live: Option<Live>) -> Self {
        Self { live, ..self }
    }

    /// Those that may give more; [`Outputs::read`] takes indices into this.
    pub(crate) fn open(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.pipes.iter().map(|(_, pipe)| pipe.as_fd())
    }

    /// Takes a chunk of each of the streams with these indices.
    pub(crate) fn read(&mut self, ready: &[usize]) -> io::Result<()> {
        let mut ended = Vec::new();
        for index in ready {
            let Some((stream, pipe)) = self.pipes.get(*index) else { continue };
            let count = match rustix::io::read(pipe, &mut *self.buffer) {
                Ok(count) => count,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let bytes = self.buffer.get(..count).unwrap_or_default();
            match stream {
                _ if count == 0 => ended.push(*index),
                Stream::Out => self.stdout.push(bytes),
                Stream::Err => self.stderr.push(bytes),
            }
            self.both.push(bytes);
            if let Some(live) = self.live.as_mut().filter(|_| count > 0) {
                live(bytes);
            }
        }
        for index in ended.into_iter().rev() {
            self.pipes.remove(index);
        }
        Ok(())
    }

    /// Reads to the end of both, which comes when nobody holds their other ends any more.
    pub(crate) fn read_to_end(&mut self) -> io::Result<()> {
        while !self.pipes.is_empty() {
            let all: Vec<usize> = (0..self.pipes.len()).collect();
            self.read(&all)?;
        }
        Ok(())
    }

    /// Standard output, standard error, and both in the order of their arrival.
    pub(crate) fn finish(self) -> [Captured; 3] {
        [self.stdout, self.stderr, self.both].map(Capture::finish)
    }
}

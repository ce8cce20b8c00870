//! The language between host and executor: a length (u32, little endian) and a postcard message, in both directions.
//!
//! The executor treats requests as orders and everything on disk as hostile; the host treats answers as hostile too: frames
//! are bounded, and no path or text in them is trusted.

use std::ffi::OsString;
use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zwinger_sandbox::supervisor::Finished;
use zwinger_sandbox::{HostPath, Limits, Plan};

/// Changes with every change of these types.
pub const VERSION: u16 = 4;
/// Upper bound of one frame, bytes.
pub const MAX_FRAME: usize = 32 << 20;
/// Bytes of content that a read returns at most, and that a diff compares.
pub const MAX_CONTENT: usize = 8 << 20;

/// BLAKE3 of a file's content.
pub type Hash = [u8; 32];

/// A numbered message; an answer carries the number of its request.
#[derive(Debug, Serialize, Deserialize)]
pub struct Envelope<M> {
    /// Number of the request, from 1; 0 is the greeting.
    pub id: u64,
    /// The message.
    pub message: M,
}

/// What the host orders.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// The greeting: what to put on, and in what place to work.
    Settle {
        /// [`VERSION`] of the host.
        version: u16,
        /// The walls as they were raised.
        plan: Box<Plan>,
        /// Directories beneath the workspace in which a killed writer may have left an unfinished file.
        unfinished: Vec<HostPath>,
    },
    /// Lines of a file.
    Read {
        /// Beneath the workspace.
        path: HostPath,
        /// First line, from 1.
        offset: u64,
        /// Number of lines.
        lines: u64,
        /// Bytes at most.
        bytes: u64,
    },
    /// The entries of a directory.
    List {
        /// Beneath the workspace.
        path: HostPath,
        /// Levels of directories, from 1.
        depth: u32,
    },
    /// Where a directory really is.
    Directory {
        /// Beneath the workspace.
        path: HostPath,
    },
    /// What is at the place of a write, so that a person can be shown the difference.
    Inspect {
        /// Beneath the workspace.
        path: HostPath,
        /// Whether there must be a file.
        existing: bool,
    },
    /// Replaces or makes a file.
    Write {
        /// Beneath the workspace.
        path: HostPath,
        /// All of its new content.
        content: Vec<u8>,
        /// Hash of what must be there; `None`: nothing.
        base: Option<Hash>,
    },
    /// Runs a command.
    Run {
        /// Program and arguments.
        argv: Vec<OsString>,
        /// Its bounds.
        limits: Limits,
        /// Where it starts, beneath the workspace.
        directory: HostPath,
        /// Whether one more layer keeps it from writing.
        read_only: bool,
        /// Whether its output is wanted as it arrives.
        live: bool,
    },
    /// Stops a running request.
    Cancel {
        /// Its number.
        id: u64,
    },
}

/// What the executor answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Response {
    /// It is sealed and serves.
    Settled,
    /// Lines of a file.
    Read {
        /// The bytes of the lines.
        content: Vec<u8>,
        /// Lines before them; fewer than were asked for, where the file ended there.
        before: u64,
        /// Lines in `content`.
        lines: u64,
        /// Whether the file goes on.
        more: bool,
        /// Whether a NUL byte was seen.
        binary: bool,
        /// Size of the file, bytes.
        size: u64,
    },
    /// Entries, each directory before what is in it, sorted by name.
    Listed {
        /// As many as one answer takes.
        entries: Vec<ListedEntry>,
        /// Whether there are more.
        more: bool,
    },
    /// Where a directory really is, every link followed.
    Directory(HostPath),
    /// Output of a command that still runs. Not an answer: that comes when it has ended, with all that is kept.
    Live {
        /// What arrived.
        bytes: Vec<u8>,
        /// Bytes before it that were left out, because they came faster than they are shown.
        skipped: u64,
    },
    /// What is at the place of a write.
    Inspected {
        /// Where it would really go, every link followed.
        path: HostPath,
        /// The file that is there.
        present: Option<Present>,
    },
    /// The file is written and synced.
    Written,
    /// The command and all it started have ended.
    Finished(Box<Finished>),
    /// The command was being stopped, and what it started can only be ended together with this executor, which ends now.
    EndedWith(Box<Finished>),
    /// It was not done.
    Refused(Refusal),
}

/// One entry of a directory.
#[derive(Debug, Serialize, Deserialize)]
pub struct ListedEntry {
    /// Its path in the listed directory.
    pub path: HostPath,
    /// Whether it is a directory.
    pub directory: bool,
}

/// A file that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Present {
    /// Hash of all of its content.
    pub hash: Hash,
    /// The content, unless it is longer than [`MAX_CONTENT`].
    pub content: Option<Vec<u8>>,
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// A component leads out of the workspace.
    Outside,
    /// Nothing is there, but something of a similar name may be.
    NotFound(Option<HostPath>),
    /// The directory of a file that would be made is not there.
    NoParent,
    /// A file that the walls hide.
    Hidden,
    /// A file that the walls keep as it is.
    Protected,
    /// A FIFO, socket or device.
    Special(String),
    /// A directory where a file is needed.
    Directory,
    /// A file where a directory is needed.
    NotADirectory,
    /// Not what was looked at.
    Changed,
    /// The kernel refused; walls or permissions.
    NotPermitted(String),
    /// Anything else, in the system's words.
    Other(String),
}

/// Writes one frame.
///
/// # Errors
/// As write(2); `InvalidData` when the message is larger than [`MAX_FRAME`].
pub fn write<M: Serialize>(to: &mut impl Write, envelope: &Envelope<M>) -> io::Result<()> {
    let body = postcard::to_stdvec(envelope).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).ok().filter(|length| (*length as usize) <= MAX_FRAME);
    let length = length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a frame that is too large"))?;
    // One write a frame keeps frames of several threads apart under the caller's lock, and saves a system call.
    to.write_all(&[&length.to_le_bytes(), body.as_slice()].concat())
}

/// Reads one frame; `None` at the end of the stream.
///
/// # Errors
/// As read(2); `InvalidData` for a frame that is too large, torn or of another form.
pub fn read<M: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<Envelope<M>>> {
    let mut length = [0_u8; 4];
    match from.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_FRAME {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame that is too large"));
    }
    let mut body = Vec::new();
    // take + read_to_end grows with what arrives: a false length alone costs no memory.
    from.take(length as u64).read_to_end(&mut body)?;
    if body.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    postcard::from_bytes(&body).map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frames_travel_whole() {
        let mut stream = Vec::new();
        let request = Request::Write { path: "a/b".into(), content: vec![0, 255], base: Some([7; 32]) };
        write(&mut stream, &Envelope { id: 5, message: request }).unwrap();
        let back: Envelope<Request> = read(&mut stream.as_slice()).unwrap().unwrap();
        assert!(matches!(back, Envelope { id: 5, message: Request::Write { base: Some(_), .. } }));
        assert!(read::<Request>(&mut [].as_slice()).unwrap().is_none());
    }

    #[test]
    fn too_large_and_torn_frames_are_errors() {
        assert!(read::<Request>(&mut u32::MAX.to_le_bytes().as_slice()).is_err());
        assert!(read::<Request>(&mut [9_u8, 0, 0, 0, 1].as_slice()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read::<Request>(&mut bytes.as_slice());
            let _ = read::<Response>(&mut bytes.as_slice());
        }
    }
}

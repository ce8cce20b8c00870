//! One more layer, around a single command that only reads.

use std::io;
use std::path::Path;

use super::{WallError, landlock_abi, ruleset, seccomp};
use crate::plan::Seal;
use crate::temporary::TemporaryDirectory;

/// The first Landlock ABI that holds truncation.
const NEEDED: u32 = 3;

/// Does some work on a thread that, with all that it starts, can write nothing but below the directory that it is given, which goes
/// afterwards, and to /dev/null; that cannot change an attribute of a file, has no sockets, and sends no signal out. `around`: the
/// walls that stand already.
///
/// # Errors
/// When the kernel cannot hold it. The work is not done then.
pub fn read_only<T: Send>(around: Option<&Seal>, work: impl FnOnce(&Path) -> T + Send) -> Result<T, WallError> {
    if landlock_abi() < NEEDED {
        return Err(WallError::at("Landlock")(io::Error::from(io::ErrorKind::Unsupported)));
    }
    // Not the one of the session: the workspace may lie below that.
    let temporary = TemporaryDirectory::create().map_err(WallError::at("make a temporary directory"))?;
    let sealed = || {
        ruleset::restrict_writes(&[&temporary.0, Path::new("/dev/null")])?;
        seccomp::install_read_only(around)?;
        Ok(work(&temporary.0))
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("read-only".into()).spawn_scoped(scope, sealed);
        let ended = thread.map_err(WallError::at("start a thread"))?.join();
        ended.unwrap_or_else(|_| Err(WallError::at("run the command")(io::Error::other("a thread of ours ended"))))
    })
}

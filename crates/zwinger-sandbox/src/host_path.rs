//! A path of the host that travels between our own processes as bytes: serde's `PathBuf` refuses what is not UTF-8.

use std::io;
use std::ops::Deref;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path, serialised as its bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPath(PathBuf);

/// realpath(3) in two system calls for the usual path, which has no link in it.
///
/// # Errors
/// When it does not exist or may not be reached.
pub(crate) fn canonical(path: &Path) -> io::Result<PathBuf> {
    let is_plain = path.is_absolute()
        && !path.as_os_str().as_bytes().ends_with(b"/")
        && !path.as_os_str().as_bytes().windows(2).any(|pair| pair == b"//" || pair == b"/.");
    if is_plain {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        match rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            Ok(_) => return Ok(path.to_owned()),
            Err(error @ (Errno::NOENT | Errno::NOTDIR)) => return Err(error.into()),
            Err(_) => {}
        }
    }
    path.canonicalize()
}

impl<P: Into<PathBuf>> From<P> for HostPath {
    fn from(path: P) -> Self {
        Self(path.into())
    }
}

impl Deref for HostPath {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for HostPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Serialize for HostPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_os_str().as_bytes().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for HostPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = Vec::<u8>::deserialize(deserializer)?;
        Ok(Self(PathBuf::from(std::ffi::OsString::from_vec(bytes))))
    }
}

//! A path of the host that travels between our own processes as bytes: serde's `PathBuf` refuses what is not UTF-8.

use std::ops::Deref;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path, serialised as its bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPath(PathBuf);

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

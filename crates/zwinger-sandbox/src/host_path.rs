//! A path of the host that travels between our own processes as bytes: serde's `PathBuf` refuses what is not UTF-8.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path, serialised as its bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPath(PathBuf);

/// realpath(3) in two system calls for the usual path, which has no link in it, and without the C library's, which costs a mapping.
///
/// # Errors
/// When it does not exist or may not be reached.
pub(crate) fn canonical(path: &Path) -> io::Result<PathBuf> {
    let mut parts = path.as_os_str().as_bytes().split(|byte| *byte == b'/').skip(1);
    if path.is_absolute() && parts.all(|part| !matches!(part, b"" | b"." | b"..")) {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        match rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            Ok(_) => return Ok(path.to_owned()),
            Err(error @ (Errno::NOENT | Errno::NOTDIR)) => return Err(error.into()),
            Err(_) => {}
        }
    }
    resolve(&std::path::absolute(path)?)
}

/// Links that one path may lead through (path_resolution(7)).
const MAX_LINKS: usize = 40;

fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut found = PathBuf::from("/");
    let mut links = 0;
    let mut left: Vec<OsString> = components(path);
    while let Some(component) = left.pop() {
        if component == ".." {
            found.pop();
            continue;
        }
        found.push(&component);
        match rustix::fs::readlink(&found, Vec::new()) {
            Ok(target) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                found.pop();
                if target.is_absolute() {
                    found = PathBuf::from("/");
                }
                left.extend(components(&target));
            }
            Err(Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// The names of a path, last first.
fn components(path: &Path) -> Vec<OsString> {
    let named = path.components().filter(|component| matches!(component, Component::Normal(_) | Component::ParentDir));
    named.rev().map(|component| component.as_os_str().to_owned()).collect()
}

impl HostPath {
    /// Behind a word, as text that no other path has.
    pub fn line(&self, word: &str) -> String {
        format!("{word} {}", self.0.as_os_str().as_bytes().escape_ascii())
    }
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
        serializer.serialize_bytes(self.0.as_os_str().as_bytes())
    }
}

impl<'de> Deserialize<'de> for HostPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_byte_buf(Bytes)
    }
}

struct Bytes;

impl Visitor<'_> for Bytes {
    type Value = HostPath;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes of a path")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<HostPath, E> {
        Ok(HostPath(PathBuf::from(OsString::from_vec(bytes.to_vec()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_tell_paths_apart() {
        use std::os::unix::ffi::OsStrExt;
        let paths: [&[u8]; 7] = [b"/a", b"/a\n", b"/a\\n", b"/\xff", b"/\\xff", b"/\xef\xbf\xbd", b"/a write /b"];
        let lines: std::collections::BTreeSet<_> =
            paths.iter().map(|path| HostPath::from(std::ffi::OsStr::from_bytes(path)).line("read")).collect();
        assert_eq!(lines.len(), paths.len(), "{lines:?}");
        assert!(lines.iter().all(|line| line.starts_with("read /") && !line.contains("\n")));
    }

    #[test]
    fn a_canonical_path_is_that_of_the_c_library() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(dir.join("a/.b/c")).unwrap();
        std::fs::write(dir.join("a/file"), "x").unwrap();
        for (target, name) in [
            (dir.join("a/.b").to_str().unwrap(), "absolute"),
            ("a/../a/.b", "relative"),
            ("absolute/c", "chain"),
            ("loop", "loop"),
            ("gone", "dangling"),
        ] {
            std::os::unix::fs::symlink(target, dir.join(name)).unwrap();
        }
        let names = [
            "",
            ".",
            "a/.b",
            "a//.b/",
            "a/./.b/../.b",
            "absolute",
            "relative/c",
            "chain",
            "chain/..",
            "loop",
            "dangling",
        ];
        for path in names.map(|name| dir.join(name)).into_iter().chain([PathBuf::from("/"), dir.join("a/file/x")]) {
            let [found, expected] =
                [canonical(&path), path.canonicalize()].map(|found| found.map_err(|error| error.raw_os_error()));
            assert_eq!(found, expected, "{}", path.display());
        }
    }
}

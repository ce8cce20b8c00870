//! Listing a directory by getdents64(2) and nothing else: the C library's readdir(3) costs a mapping for each.

use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir};

/// Calls `visit` with the name and kind of each entry, in no order, for as long as it gives `true`.
///
/// # Errors
/// When the directory cannot be listed, or is a link.
pub(crate) fn list(directory: &Path, mut visit: impl FnMut(OsString, FileType) -> bool) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, directory, flags, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); 8192];
    let mut entries = RawDir::new(&opened, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        // Some file systems do not say (getdents(2), DT_UNKNOWN).
        let kind = match entry.file_type() {
            FileType::Unknown => match rustix::fs::statat(&opened, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(status) => FileType::from_raw_mode(status.st_mode),
                Err(_) => FileType::Unknown,
            },
            kind => kind,
        };
        if !visit(name.to_owned(), kind) {
            break;
        }
    }
    Ok(())
}

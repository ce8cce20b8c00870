//! The path sandbox: a directory handle below which every path is resolved by the kernel.
//!
//! openat2(2) with RESOLVE_BENEATH and RESOLVE_NO_MAGICLINKS refuses `..` above the root, absolute paths and links that lead
//! out, in one step, so nothing can change between a check and its use.

pub(crate) mod draft;

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use draft::Draft;

/// Why a path was not opened.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// Some component leads out of the root.
    #[error("outside the workspace")]
    Outside,
    /// A FIFO, socket or device; it was not opened for reading or writing.
    #[error("a special file ({0})")]
    Special(&'static str),
    /// A directory where a file is needed.
    #[error("a directory")]
    Directory,
    /// A file where a directory is needed.
    #[error("not a directory")]
    NotADirectory,
    /// A path that no file can have: empty or with a NUL byte.
    #[error("not a path")]
    NotAPath,
    /// The file changed since it was looked at.
    #[error("changed meanwhile")]
    Changed,
    /// Anything else that the kernel said.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl From<Errno> for PathError {
    fn from(errno: Errno) -> Self {
        match errno {
            // EXDEV is RESOLVE_BENEATH's refusal, ELOOP that of RESOLVE_NO_MAGICLINKS (or of a loop, which leads nowhere either).
            Errno::XDEV | Errno::LOOP => Self::Outside,
            Errno::ISDIR => Self::Directory,
            Errno::NOTDIR => Self::NotADirectory,
            other => Self::Io(other.into()),
        }
    }
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its name.
    pub name: OsString,
    /// Whether it is a directory.
    pub directory: bool,
}

/// As the kernel's own limit on links in one path (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// A directory handle; all paths are beneath it.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
}

impl Root {
    /// Opens the root itself: the one ambient step.
    ///
    /// # Errors
    /// When `path` is missing or no directory.
    pub fn open_ambient(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        Ok(Self { directory: rustix::fs::openat(CWD, path, flags, Mode::empty())? })
    }

    /// Opens a directory for zwinger's own files, made with mode 0700 where it is missing.
    ///
    /// # Errors
    /// When it cannot be made, or exists and is not a directory of the caller that is closed to others.
    pub fn create_private(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let root = match Self::open_ambient(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
                Self::open_ambient(path)?
            }
            opened => opened?,
        };
        check_private(&root.directory, path)?;
        Ok(root)
    }

    /// Where the root is, every link resolved, as the kernel names it.
    ///
    /// # Errors
    /// When /proc does not say.
    pub fn path(&self) -> io::Result<PathBuf> {
        use std::os::fd::AsRawFd;
        std::fs::read_link(format!("/proc/self/fd/{}", self.directory.as_raw_fd()))
    }

    fn openat2(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, PathError> {
        if path.as_os_str().is_empty() || path.as_os_str().as_bytes().contains(&0) {
            return Err(PathError::NotAPath);
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        loop {
            match rustix::fs::openat2(&self.directory, path, flags | OFlags::CLOEXEC, mode, resolve) {
                // openat2(2): a rename or mount elsewhere raced with `..`; try again.
                Err(Errno::AGAIN) => {}
                Ok(fd) => return Ok(fd),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Opens a regular file for reading; anything special is refused without being opened.
    ///
    /// # Errors
    /// As [`PathError`] says.
    pub fn open_file(&self, path: &Path) -> Result<std::fs::File, PathError> {
        // O_PATH first: opening a FIFO or a device has effects of its own.
        let found = self.openat2(path, OFlags::PATH, Mode::empty())?;
        let status = regular(&found)?;
        let file = self.openat2(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())?;
        let opened = rustix::fs::fstat(&file).map_err(PathError::from)?;
        if (status.st_dev, status.st_ino) != (opened.st_dev, opened.st_ino) {
            return Err(PathError::Changed);
        }
        Ok(file.into())
    }

    /// Opens a directory, for a process to start in.
    ///
    /// # Errors
    /// As [`PathError`] says.
    pub fn open_directory(&self, path: &Path) -> Result<OwnedFd, PathError> {
        self.openat2(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
    }

    /// Removes what killed writers left of their files in a directory.
    pub fn sweep(&self, directory: &Path) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let Ok(directory) = self.openat2(directory, flags, Mode::empty()) else { return };
        let Ok(entries) = Dir::read_from(&directory) else { return };
        let names = entries.flatten().map(|entry| OsString::from_vec(entry.file_name().to_bytes().to_vec()));
        names.filter(|name| draft::is_name(name)).for_each(|name| draft::remove_left(directory.as_fd(), &name));
    }

    /// Lists a directory of at most so many entries, sorted by name.
    ///
    /// # Errors
    /// As [`PathError`] says.
    pub fn list(&self, path: &Path, most: usize) -> Result<Vec<Entry>, PathError> {
        let directory = self.openat2(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(&directory).map_err(PathError::from)? {
            if entries.len() >= most {
                return Err(io::Error::other(format!("it has more than {most} entries")).into());
            }
            let entry = entry.map_err(PathError::from)?;
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            if name != "." && name != ".." {
                let kind = match entry.file_type() {
                    FileType::Unknown => kind_of(directory.as_fd(), &name)?,
                    known => known,
                };
                entries.push(Entry { name, directory: kind == FileType::Directory });
            }
        }
        entries.sort();
        Ok(entries)
    }

    /// Replaces or makes a file in one step: written and synced before it gets its name. Mode and, where
    /// permitted, owner stay. `expected` is told what is being replaced (`None`: nothing) and may refuse.
    ///
    /// # Errors
    /// As [`PathError`] says; [`PathError::Changed`] when `expected` refused. The old content is intact then.
    pub fn write(
        &self,
        path: &Path,
        content: &[u8],
        expected: impl FnOnce(Option<&mut std::fs::File>) -> io::Result<bool>,
    ) -> Result<(), PathError> {
        let (parent, name) = self.follow(path)?;
        let target = match regular_at(parent.as_fd(), &name) {
            Ok((mut file, status)) => {
                if !expected(Some(&mut file))? {
                    return Err(PathError::Changed);
                }
                Some(status)
            }
            Err(PathError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                if !expected(None)? {
                    return Err(PathError::Changed);
                }
                None
            }
            Err(error) => return Err(error),
        };
        let draft = Draft::create(parent.as_fd())?;
        draft.fill(content, target.as_ref())?;
        draft.place(&name, target.is_some())
    }

    /// Puts a new file, readable as the umask says, in the place of whatever has the name, a link included, in one step.
    ///
    /// # Errors
    /// As [`PathError`] says; a directory is not replaced.
    pub fn replace(&self, name: &Path, content: &[u8]) -> Result<(), PathError> {
        let (parent, name) = self.parent(name)?;
        let draft = Draft::create(parent.as_fd())?;
        draft.fill(content, None)?;
        draft.place(&name, true)
    }

    /// Whether files can be made in the root itself.
    ///
    /// # Errors
    /// What making one would answer.
    pub fn check_writable(&self) -> io::Result<()> {
        let access = Access::WRITE_OK | Access::EXEC_OK;
        Ok(rustix::fs::accessat(&self.directory, ".", access, AtFlags::EACCESS)?)
    }

    /// As [`Root::parent`], of what the last component leads to if it is a link: the file and not the link is replaced.
    fn follow(&self, path: &Path) -> Result<(OwnedFd, PathBuf), PathError> {
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            let (parent, name) = self.parent(&path)?;
            let target = match rustix::fs::readlinkat(&parent, &name, Vec::new()) {
                Ok(target) => OsString::from_vec(target.into_bytes()),
                Err(Errno::INVAL | Errno::NOENT) => return Ok((parent, name)),
                Err(error) => return Err(error.into()),
            };
            // The kernel says whether the whole path stays beneath; the next round resolves the link's text beneath again.
            drop(self.openat2(&path, OFlags::PATH, Mode::empty())?);
            path = path.parent().unwrap_or(Path::new("")).join(target);
        }
        Err(PathError::Outside)
    }

    /// The directory that holds the last component, opened beneath the root, and that component.
    fn parent(&self, path: &Path) -> Result<(OwnedFd, PathBuf), PathError> {
        let Some(Component::Normal(name)) = path.components().next_back() else {
            // Ends in `..`, or is the root itself: only a directory can be meant.
            self.openat2(path, OFlags::PATH, Mode::empty())?;
            return Err(PathError::Directory);
        };
        if path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(PathError::Directory);
        }
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if path.as_os_str().as_bytes().contains(&0) {
            return Err(PathError::NotAPath);
        }
        let directory = self.openat2(parent, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok((directory, name.into()))
    }

    /// Where a write to `path` would really go, relative to the root: every link followed beneath it, the last component too,
    /// whether or not there is a file yet. Makes nothing.
    ///
    /// # Errors
    /// As [`PathError`] says.
    pub fn resolve(&self, path: &Path) -> Result<PathBuf, PathError> {
        use std::os::fd::AsRawFd;
        let (parent, name) = self.follow(path)?;
        let parent = std::fs::read_link(format!("/proc/self/fd/{}", parent.as_raw_fd()))?;
        let parent = parent.strip_prefix(self.path()?).map_err(|_| PathError::Outside)?;
        Ok(parent.join(name))
    }

    /// Where something that is there really is, relative to the root.
    ///
    /// # Errors
    /// As [`PathError`] says.
    pub fn locate(&self, path: &Path) -> Result<PathBuf, PathError> {
        use std::os::fd::AsRawFd;
        let found = self.openat2(path, OFlags::PATH, Mode::empty())?;
        let found = std::fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd()))?;
        Ok(found.strip_prefix(self.path()?).map_err(|_| PathError::Outside)?.to_owned())
    }

    /// Opens a file of zwinger's own for reading and appending, made with mode 0600 where it is missing.
    ///
    /// # Errors
    /// As [`PathError`] says.
    pub fn append(&self, path: &Path) -> Result<std::fs::File, PathError> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = self.openat2(path, flags, Mode::from_raw_mode(0o600))?;
        regular(&file)?;
        Ok(file.into())
    }
}

/// Refuses a directory of zwinger's own that is not the caller's and closed to others.
pub(crate) fn check_private(directory: &OwnedFd, path: &Path) -> io::Result<()> {
    let status = rustix::fs::fstat(directory)?;
    if status.st_uid != rustix::process::geteuid().as_raw() || status.st_mode & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} must belong to you and be closed to others (chmod 700)", path.display()),
        ));
    }
    Ok(())
}

impl From<OwnedFd> for Root {
    fn from(directory: OwnedFd) -> Self {
        Self { directory }
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

fn kind_of(directory: BorrowedFd<'_>, name: &OsString) -> Result<FileType, PathError> {
    let status = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(PathError::from)?;
    Ok(FileType::from_raw_mode(status.st_mode))
}

fn regular(file: &OwnedFd) -> Result<Stat, PathError> {
    let status = rustix::fs::fstat(file).map_err(PathError::from)?;
    match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => Ok(status),
        FileType::Directory => Err(PathError::Directory),
        FileType::Symlink => Err(PathError::Outside),
        FileType::Fifo => Err(PathError::Special("FIFO")),
        FileType::Socket => Err(PathError::Special("socket")),
        FileType::CharacterDevice | FileType::BlockDevice => Err(PathError::Special("device")),
        _ => Err(PathError::Special("unknown kind")),
    }
}

/// Opens the entry `name` itself, never through a link.
fn regular_at(parent: BorrowedFd<'_>, name: &Path) -> Result<(std::fs::File, Stat), PathError> {
    let found = rustix::fs::openat(parent, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        .map_err(PathError::from)?;
    let status = regular(&found)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, name, flags, Mode::empty()).map_err(PathError::from)?;
    let opened = regular(&file)?;
    if (status.st_dev, status.st_ino) != (opened.st_dev, opened.st_ino) {
        return Err(PathError::Changed);
    }
    Ok((file.into(), status))
}

/// Makes a file in one step, with this mode; never over another.
pub(crate) fn put_new(parent: BorrowedFd<'_>, name: &Path, content: &[u8], mode: u32) -> Result<(), PathError> {
    let draft = Draft::create(parent)?;
    draft.fill_with_mode(content, mode)?;
    draft.place(name, false)
}

/// Reads at most `limit` bytes; `None` when there is more.
///
/// # Errors
/// As read(2).
pub fn read_up_to(file: &mut std::fs::File, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut content)?;
    Ok((content.len() <= limit).then_some(content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Case {
        _scratch: tempfile::TempDir,
        outside: PathBuf,
        inside: PathBuf,
        root: Root,
    }

    fn case() -> Case {
        let scratch = tempfile::tempdir().unwrap();
        let (inside, outside) = (scratch.path().join("work"), scratch.path().join("work-evil"));
        std::fs::create_dir_all(inside.join("sub")).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::write(outside.join("secret"), "secret").unwrap();
        std::fs::write(inside.join("file"), "inside").unwrap();
        let root = Root::open_ambient(&inside).unwrap();
        Case { _scratch: scratch, outside, inside, root }
    }

    fn any(_: Option<&mut std::fs::File>) -> io::Result<bool> {
        Ok(true)
    }

    #[test]
    fn a01_w1_ways_out_are_refused() {
        let case = case();
        symlink("/etc", case.inside.join("etc")).unwrap();
        symlink(&case.outside, case.inside.join("out")).unwrap();
        symlink("../work-evil", case.inside.join("relative-out")).unwrap();
        symlink("out", case.inside.join("chain")).unwrap();
        let ways = [
            "../work-evil/secret",
            "sub/../../work-evil/secret",
            "etc/passwd",
            "out/secret",
            "relative-out/secret",
            "chain/secret",
            "/etc/passwd",
            case.outside.join("secret").to_str().unwrap(),
        ]
        .map(PathBuf::from);
        for way in ways {
            assert!(matches!(case.root.open_file(&way), Err(PathError::Outside)), "{way:?} was read");
            assert!(matches!(case.root.write(&way, b"x", any), Err(PathError::Outside)), "{way:?} was written");
        }
        assert!(matches!(case.root.list(Path::new("out"), 100), Err(PathError::Outside)));
        assert_eq!(std::fs::read(case.outside.join("secret")).unwrap(), b"secret");
    }

    #[test]
    fn a04_nothing_is_made_through_a_linked_ancestor() {
        let case = case();
        symlink(&case.outside, case.inside.join("link")).unwrap();
        assert!(case.root.write(Path::new("link/newdir/f"), b"x", any).is_err());
        assert!(!case.outside.join("newdir").exists());
    }

    #[test]
    fn k01_special_files_are_refused_without_waiting() {
        let case = case();
        rustix::fs::mknodat(CWD, case.inside.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(matches!(case.root.open_file(Path::new("fifo")), Err(PathError::Special("FIFO"))));
        assert!(matches!(case.root.write(Path::new("fifo"), b"x", any), Err(PathError::Special("FIFO"))));
    }

    #[test]
    fn writes_keep_the_mode_and_leave_no_temporary_file() {
        let case = case();
        let file = case.inside.join("file");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o751)).unwrap();
        case.root.write(Path::new("file"), b"new", any).unwrap();
        case.root.write(Path::new("sub/made"), b"made", any).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o751);
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
        assert_eq!(std::fs::read(case.inside.join("sub/made")).unwrap(), b"made");
        let names: Vec<_> = case.root.list(Path::new("."), 100).unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["file", "sub"]);
    }

    #[test]
    fn what_a_killed_writer_left_is_swept_and_nothing_else() {
        let case = case();
        let sub = case.inside.join("sub");
        let [left, held, other] = ["0123456789abcdef", "fedcba9876543210", "0123456789abcde"].map(|digits| {
            let path = sub.join(format!(".zwinger-{digits}"));
            std::fs::write(&path, "half").unwrap();
            path
        });
        symlink(case.outside.join("secret"), sub.join(".zwinger-aaaaaaaaaaaaaaaa")).unwrap();
        let writer = std::fs::File::open(&held).unwrap();
        rustix::fs::flock(&writer, rustix::fs::FlockOperation::LockExclusive).unwrap();
        case.root.sweep(Path::new("sub"));
        assert!(!left.exists() && held.exists() && other.exists());
        assert_eq!(std::fs::read(case.outside.join("secret")).unwrap(), b"secret");
        drop(writer);
        case.root.sweep(Path::new("sub"));
        assert!(!held.exists());
    }

    #[test]
    fn a_write_replaces_the_file_as_a_whole() {
        let case = case();
        // Whoever has the old file open goes on with all of it.
        let mut old = case.root.open_file(Path::new("file")).unwrap();
        case.root.write(Path::new("file"), b"new", any).unwrap();
        assert_eq!(read_up_to(&mut old, 100).unwrap().unwrap(), b"inside");
        assert_eq!(std::fs::read(case.inside.join("file")).unwrap(), b"new");
    }

    #[test]
    fn a_link_inside_is_written_through_and_stays_a_link() {
        let case = case();
        symlink("sub/target", case.inside.join("link")).unwrap();
        std::fs::write(case.inside.join("sub/target"), "old").unwrap();
        case.root.write(Path::new("link"), b"new", any).unwrap();
        assert!(case.inside.join("link").symlink_metadata().unwrap().is_symlink());
        assert_eq!(std::fs::read(case.inside.join("sub/target")).unwrap(), b"new");
    }

    #[test]
    fn a_refusal_leaves_the_old_content() {
        let case = case();
        assert!(matches!(case.root.write(Path::new("file"), b"new", |_| Ok(false)), Err(PathError::Changed)));
        assert_eq!(std::fs::read(case.inside.join("file")).unwrap(), b"inside");
    }

    #[test]
    fn k17_paths_that_are_none() {
        let case = case();
        for path in ["", "a\0b", "file\0"] {
            assert!(matches!(case.root.open_file(Path::new(path)), Err(PathError::NotAPath)), "{path:?}");
        }
        assert!(matches!(case.root.write(Path::new("sub"), b"x", any), Err(PathError::Directory)));
        assert!(matches!(case.root.write(Path::new("."), b"x", any), Err(PathError::Directory)));
        assert!(matches!(case.root.write(Path::new("new/"), b"x", any), Err(PathError::Directory)));
    }
}

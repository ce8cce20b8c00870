//! Covers and pins that the host undoes: a file that is renamed over another takes the mount on that one away in every namespace
//! (rename(2), and detach_mounts in the kernel), as the save of an editor does. The directories are watched, and what has lost its
//! mount is given a new one.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::thread::LinkNameSpaceType;

use crate::plan::Plan;
use crate::sys::{self, Cloned};
use crate::walls::mounts;

/// The directories of what is covered or pinned.
pub(crate) struct Watch {
    inotify: OwnedFd,
    directories: BTreeSet<PathBuf>,
    names: BTreeSet<OsString>,
}

impl Watch {
    /// `None` when nothing is covered or pinned, nor could be that is not there yet.
    ///
    /// # Errors
    /// When the user has no watch left.
    pub(crate) fn of(plan: &Plan) -> io::Result<Option<Self>> {
        let Some(mounts) = &plan.mounts else { return Ok(None) };
        let pins = mounts.pins.iter().map(|pin| &pin.path);
        let paths: Vec<&Path> = plan.secrets.iter().chain(pins).map(|path| &**path).chain(plan.hidden()).collect();
        let directories: BTreeSet<_> = paths.iter().filter_map(|path| path.parent()).map(PathBuf::from).collect();
        if !directories.iter().any(|directory| directory.is_dir()) {
            return Ok(None);
        }
        let names = paths.iter().filter_map(|path| path.file_name()).map(OsString::from).collect();
        let out_of = |error: rustix::io::Errno| {
            let limits = "see fs.inotify.max_user_instances and max_user_watches";
            io::Error::other(format!("what is hidden cannot be watched: {error} ({limits})"))
        };
        let inotify = rustix::fs::inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(out_of)?;
        let watch = Self { inotify, directories, names };
        watch.add().map_err(out_of)?;
        Ok(Some(watch))
    }

    /// A directory that was replaced needs a watch of its own; to watch one twice changes nothing.
    fn add(&self) -> rustix::io::Result<()> {
        let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        for directory in &self.directories {
            match rustix::fs::inotify::add_watch(&self.inotify, directory, flags) {
                Ok(_) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::ACCESS) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether something has come to one of the names since the last call.
    pub(crate) fn was_replaced(&self) -> io::Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut replaced = false;
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                    let concerns = name.is_some_and(|name| self.names.contains(name));
                    replaced = replaced || concerns || event.events().contains(ReadFlags::QUEUE_OVERFLOW);
                }
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if replaced {
            self.add()?;
        }
        Ok(replaced)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

/// The user and mount namespaces of a child, to work in them from outside: a child that has sealed itself cannot.
pub(crate) struct Inside {
    user: OwnedFd,
    mount: OwnedFd,
}

impl Inside {
    /// To be called before the child is sealed: it is not dumpable then, and its namespaces can be opened no more.
    pub(crate) fn of(child: rustix::process::Pid) -> io::Result<Self> {
        use rustix::fs::{CWD, Mode, OFlags};
        let open = |name| {
            let path = format!("/proc/{}/ns/{name}", child.as_raw_pid());
            rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        };
        Ok(Self { user: open("user")?, mount: open("mnt")? })
    }

    /// Covers and pins again what the host has replaced, by a process that enters the namespaces and ends.
    ///
    /// # Errors
    /// When something could not be covered; nothing inside may go on then.
    pub(crate) fn renew(&self, plan: &Plan, workspace: BorrowedFd<'_>) -> io::Result<()> {
        match sys::clone_process(0)? {
            Cloned::Child => {
                sys::exit_now(i32::from(self.enter().and_then(|()| mounts::renew(plan, workspace)).is_err()))
            }
            Cloned::Parent(child) => match sys::wait_for(child)?.exit_status() {
                Some(0) => Ok(()),
                _ => Err(io::Error::other("a file that was replaced could not be hidden or kept as it is again")),
            },
        }
    }

    fn enter(&self) -> io::Result<()> {
        let enter = rustix::thread::move_into_link_name_space;
        enter(self.user.as_fd(), Some(LinkNameSpaceType::User))?;
        Ok(enter(self.mount.as_fd(), Some(LinkNameSpaceType::Mount))?)
    }
}

//! The tree inside: an empty file system in memory as the root, to which parts of the host are attached.
//!
//! In two steps, for the first needs no plan: what every tree has, and what this one has.

use std::path::Path;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::mounts::{self, Host};
use super::streams::{self, Passed};
use super::{WallError, watches};
use crate::host_path::HostPath;
use crate::plan::{self, Bind, Mounts, PROC_HIDDEN, Piece, Plan};
use crate::sys::MountAttributes;

/// Whose processes /proc shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Processes {
    /// Those of the calling process's own namespace.
    Own,
    /// The host's, until [`mounts::fresh_proc`] covers it.
    Hosts,
}

/// A tree that is the root already; the host's is still there, stacked on it.
pub(crate) struct Tree {
    host: Host,
    processes: Processes,
}

impl Tree {
    /// What every tree has: programs and settings of the system, /dev, /proc, and directories for temporary files.
    pub(crate) fn begin(processes: Processes) -> Result<Self, WallError> {
        use std::os::fd::AsFd;
        rustix::system::sethostname(b"zwinger").map_err(WallError::at("set the host name"))?;
        let private = MountAttributes { read_only: false, private: true, recursive: true };
        mounts::attributes(rustix::fs::CWD.as_fd(), c"/", private)
            .map_err(WallError::refusable("make the mounts private"))?;
        // A new one is given only while another can be seen (mount_too_revealing in fs/namespace.c), so before the host's goes.
        let proc = match processes {
            Processes::Own => mounts::new_proc(),
            Processes::Hosts => mounts::clone_at(Path::new("/proc")),
        };
        let proc = proc.map_err(WallError::refusable("mount /proc"))?;
        let host = Host::open().map_err(WallError::at("open the host's tree"))?;
        enter_empty_root().map_err(WallError::at("change the root"))?;
        for path in plan::SYSTEM.iter().filter(|path| **path != "/proc") {
            link_or_place(&host, path).map_err(WallError::at("put the system in place"))?;
        }
        for path in ["/run", "/sys", "/dev"] {
            rustix::fs::mkdir(path, 0o755.into()).map_err(WallError::at("make an empty directory"))?;
        }
        for path in ["/tmp", "/var/tmp"] {
            mounts::make_temporary(Path::new(path)).map_err(WallError::at("make a directory for temporary files"))?;
        }
        for device in plan::DEVICES {
            // A device is written through a read-only mount too; its mode and owner, which are the machine's, are not.
            place(&host, &Bind { path: device.into(), writable: false })?;
        }
        place(&host, &Bind { path: plan::PROCESSORS.into(), writable: false })?;
        mounts::dev_entries().map_err(WallError::at("arrange /dev"))?;
        mounts::make_covers().map_err(WallError::at("make the covers"))?;
        mounts::place(Path::new("/proc"), &proc).map_err(WallError::at("put /proc in place"))?;
        watches::leave_half();
        let proc_hidden = PROC_HIDDEN.iter().filter(|_| processes == Processes::Own);
        for hidden in plan::SYSTEM_HIDDEN.iter().chain(proc_hidden) {
            mounts::hide(Path::new(hidden))?;
        }
        Ok(Self { host, processes })
    }

    /// Holds the files that are streams of this process. Before the secrets among them are covered.
    pub(crate) fn hold_streams(&self, plan: &mut Plan) -> Result<Passed, WallError> {
        streams::hold(&self.host, plan).map_err(WallError::at("pass the streams through"))
    }

    /// What this tree has. The host's is gone then.
    pub(crate) fn complete(self, plan: &Plan, mounts: &Mounts) -> Result<(), WallError> {
        if let Some(bytes) = plan.memory {
            mounts::resize_root(bytes).map_err(WallError::at("bound the files in memory"))?;
        }
        for (link, target) in &mounts.links {
            match rustix::fs::symlink(&**target, &**link) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(WallError::at("make a link at the top")(error)),
            }
        }
        // What had to be mounted to be empty, and is writable until all is in place.
        let mut covers = Vec::new();
        for piece in &mounts.pieces {
            match piece {
                Piece::Host(bind) => place(&self.host, bind)?,
                // A name that is not there is an inconvenience, and what stands in its place is the host's.
                Piece::Link(link, target) => drop(mounts::make_link(link, target)),
                Piece::Empty(at) => {
                    if mounts::make_empty(at).map_err(WallError::at("make an empty directory"))? {
                        covers.push(at.clone());
                    }
                }
            }
        }
        for pin in &mounts.pins {
            let pinned = self.host.entry(pin).and_then(|entry| mounts::attach(&entry, &pin.path));
            pinned.map_err(WallError::at("pin a part of the workspace"))?;
        }
        for hidden in &mounts.hidden {
            mounts::hide(hidden)?;
        }
        for secret in &plan.secrets {
            // One of the workspace that is gone was moved; what was named besides may not be in the tree at all.
            match secret.starts_with(&plan.workspace) {
                true => mounts::cover(secret).map_err(WallError::at("hide a secret of the workspace"))?,
                false => mounts::hide(secret)?,
            }
        }
        if self.processes == Processes::Own {
            mounts::freeze_proc(plan)?;
        }
        covers.push(HostPath::from("/"));
        for cover in covers {
            mounts::freeze(&cover).map_err(WallError::at("make a file system in memory read-only"))?;
        }
        rustix::process::chdir("/").map_err(WallError::at("enter the tree"))?;
        // The old root is stacked on the new one, where "." finds it.
        rustix::mount::unmount(c".", UnmountFlags::DETACH).map_err(WallError::at("let go of the host's tree"))
    }
}

fn place(host: &Host, bind: &Bind) -> Result<(), WallError> {
    match host.part(bind).map_err(WallError::at("open a part of the host"))? {
        Some(tree) => mounts::place(&bind.path, &tree).map_err(WallError::at("put a part of the host in place")),
        None => Ok(()),
    }
}

/// /bin and its like are often links into /usr, and stay links.
fn link_or_place(host: &Host, path: &str) -> std::io::Result<()> {
    if let Some(target) = host.link(path)? {
        return Ok(rustix::fs::symlink(target, path)?);
    }
    match host.part(&Bind { path: path.into(), writable: false })? {
        Some(tree) => mounts::place(Path::new(path), &tree),
        None => Ok(()),
    }
}

/// pivot_root(2), "pivot_root(".", ".")": the old root is stacked on the new one. /proc is there in any case, and is not looked at
/// while the new root lies over it.
fn enter_empty_root() -> std::io::Result<()> {
    let root = mounts::memory_tree("755")?;
    mounts::attach(&root, Path::new("/proc"))?;
    rustix::process::fchdir(&root)?;
    Ok(rustix::process::pivot_root(".", ".")?)
}

//! A pids cgroup (cgroups(7)) of one session: what bounds the tasks of a caller whom RLIMIT_NPROC does not bind.
//!
//! It is a child of the caller's own, so that whatever bounds that goes on to hold. Nothing else of a hierarchy is changed: in
//! version 2 the controller has to be handed down already.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::temporary::TemporaryDirectory;

/// How long its last process may take to be gone.
const EMPTY_WITHIN: Duration = Duration::from_secs(1);
/// Between two looks whether it is.
const MOMENT: Duration = Duration::from_micros(100);

/// Goes when it is dropped, and at the next [`TaskGroup::create`] beside it when its zwinger was killed.
#[derive(Debug)]
pub(crate) struct TaskGroup(TemporaryDirectory);

impl TaskGroup {
    /// Bounds whatever will be in it to `tasks`.
    ///
    /// # Errors
    /// Why there can be none.
    pub(crate) fn create(tasks: u64) -> Result<Self, String> {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let own = own_group(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
        let own = own.ok_or("no cgroup with the pids controller is mounted")?;
        let failed = |error: io::Error| format!("no pids cgroup below {}: {error}", own.display());
        let group = Self(TemporaryDirectory::create_in(&own, remove).map_err(failed)?);
        // In version 2 one below a threaded group takes no processes.
        match std::fs::read_to_string(group.0.0.join("cgroup.type")).unwrap_or_default().trim() {
            "" | "domain" => {}
            kind => return Err(format!("a cgroup below {} would be {kind}", own.display())),
        }
        match group.set("pids.max", tasks) {
            Ok(()) => Ok(group),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(format!("{} hands down no pids controller", own.display()))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Puts a process into it, and with that all that it starts from then on.
    pub(crate) fn admit(&self, process: Pid) -> io::Result<()> {
        match self.set("cgroup.procs", process.as_raw_pid()) {
            // It has ended, and started nothing.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            admitted => admitted,
        }
    }

    fn set(&self, file: &str, value: impl std::fmt::Display) -> io::Result<()> {
        let mut file = std::fs::OpenOptions::new().write(true).open(self.0.0.join(file))?;
        // In one write(2), as the kernel takes it.
        file.write_all(value.to_string().as_bytes())
    }
}

/// rmdir(2), which is refused while a process in it is still about to be gone.
fn remove(group: &Path) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match std::fs::remove_dir(group) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && begun.elapsed() < EMPTY_WITHIN => {
                std::thread::sleep(MOMENT);
            }
            removed => return removed,
        }
    }
}

/// The directory of this process's own group, from /proc/self/cgroup (cgroups(7)) and /proc/self/mountinfo (proc(5)).
fn own_group(groups: &str, mounts: &str) -> Option<PathBuf> {
    let group_of = |is_wanted: fn(&str) -> bool| {
        groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            is_wanted(controllers).then(|| Path::new(path))
        })
    };
    let (path, file_system) = match group_of(|controllers| controllers.split(',').any(|name| name == "pids")) {
        Some(path) => (path, "cgroup"),
        None => (group_of(str::is_empty)?, "cgroup2"),
    };
    mounts.lines().find_map(|line| {
        let (mount, of) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, at) = (fields.next()?, fields.next()?);
        let mut of = of.split(' ');
        let (kind, options) = (of.next()?, of.nth(1)?);
        let is_wanted = kind == file_system && (kind == "cgroup2" || options.split(',').any(|name| name == "pids"));
        // A group above the root of its namespace is shown as `/..`.
        let below = path.strip_prefix(root).ok().filter(|below| !below.starts_with(".."))?;
        is_wanted.then(|| Path::new(at).join(below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_in_either_version() {
        const FIRST: &str = "24 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                             32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                             39 31 0:36 / /sys/fs/cgroup/pids rw,relatime shared:9 - cgroup cgroup rw,pids\n\
                             41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        const IN_CONTAINER: &str = "39 31 0:36 /docker/1f /sys/fs/cgroup/pids ro,nosuid - cgroup cgroup rw,pids\n";
        const SECOND: &str = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        for (groups, mounts, expected) in [
            ("9:name=systemd:/\n8:pids:/\n0::/x\n", FIRST, Some("/sys/fs/cgroup/pids/")),
            ("5:cpu,pids:/a/b\n", FIRST, Some("/sys/fs/cgroup/pids/a/b")),
            ("8:pids:/docker/1f\n", IN_CONTAINER, Some("/sys/fs/cgroup/pids/")),
            ("8:pids:/docker/1f/x\n", IN_CONTAINER, Some("/sys/fs/cgroup/pids/x")),
            ("8:pids:/docker/2\n", IN_CONTAINER, None),
            ("0::/user.slice/s:1.scope\n", SECOND, Some("/sys/fs/cgroup/user.slice/s:1.scope")),
            ("0::/../other\n", SECOND, None),
            ("0::/\n", FIRST, Some("/sys/fs/cgroup/unified/")),
            ("8:pids:/\n", SECOND, None),
            ("", SECOND, None),
            ("0::/\n", "", None),
        ] {
            assert_eq!(own_group(groups, mounts).as_deref(), expected.map(Path::new), "{groups}");
        }
    }
}

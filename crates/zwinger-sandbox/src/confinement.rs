//! What a session may touch: plain data that can only narrow.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::host_path::{HostPath, canonical};
use crate::scan::Scan;

/// Directories that are never a workspace: a mistake there would cost the machine.
const SYSTEM_DIRECTORIES: [&str; 14] = [
    "/",
    "/home",
    "/media",
    "/mnt",
    "/opt",
    "/root",
    "/srv",
    "/tmp",
    "/usr",
    "/usr/local",
    "/var",
    "/var/lib",
    "/var/log",
    "/var/tmp",
];

/// Nor is anything below these. Below others of /usr and /var projects do live, such as /usr/src/app in containers.
const SYSTEM_TREES: [&str; 17] = [
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr/bin",
    "/usr/include",
    "/usr/lib",
    "/usr/libexec",
    "/usr/sbin",
    "/usr/share",
];

/// What the network may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Network {
    /// Nothing but the session's own loopback.
    Off,
    /// The host's network.
    On,
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::On => "on",
        })
    }
}

/// System calls that are let through by name; none by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exceptions {
    /// ptrace(2) and its kin, for debuggers. They reach the processes inside, which the other walls still hold.
    pub ptrace: bool,
    /// New namespaces by clone(2) and unshare(2), for programs with a sandbox of their own, such as browsers. Mounting stays refused.
    pub user_namespaces: bool,
}

/// Bounds of one command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Wall time at most; `None` is no limit (`zwinger run` unless asked).
    pub time: Option<Duration>,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Bytes kept of each output stream, half from its head and half from its tail.
    pub output: usize,
    /// Bytes of memory at most of everything that the command started; `None` is no limit. Also the size at most of each file
    /// that it writes, for a file may be memory.
    pub memory: Option<u64>,
    /// Processes at most that the command has running at once, itself included and threads not; `None` is no limit.
    pub processes: Option<u32>,
    /// Ceiling on its tasks, threads included. Where the kernel can hold it too, it does so for the session, a quarter higher.
    pub tasks: u64,
}

impl Limits {
    /// The least ceiling on tasks.
    const TASKS: u64 = 256;
    /// Tasks that one process may have on average where many are permitted.
    const TASKS_A_PROCESS: u64 = 8;

    /// Permits `number` processes, and eight tasks each, or 256 if that is more.
    pub fn set_processes(&mut self, number: u32) {
        self.processes = Some(number);
        self.tasks = Self::TASKS.max(Self::TASKS_A_PROCESS.saturating_mul(number.into()));
    }
}

impl Default for Limits {
    /// What a tool's command can have: 600 s, 2 s grace, 1 MiB of output, 256 tasks.
    fn default() -> Self {
        Self {
            time: Some(Duration::from_secs(600)),
            grace: Duration::from_secs(2),
            output: 1 << 20,
            memory: None,
            processes: None,
            tasks: Self::TASKS,
        }
    }
}

/// The terms of a session. Made by [`Confinement::new`] and widened by name before anything starts; from then on only
/// [`Confinement::narrow`] changes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    workspace: HostPath,
    /// As the person named it, absolute; differs where that goes through a link.
    named: HostPath,
    home: Option<HostPath>,
    /// As the environment names it, absolute.
    home_named: Option<HostPath>,
    /// Readable besides the workspace and the system.
    pub(crate) read: Vec<HostPath>,
    /// Writable besides the workspace.
    pub(crate) write: Vec<HostPath>,
    /// Hidden besides the secrets of the workspace.
    hide: Vec<HostPath>,
    /// Secrets of the workspace that are not hidden.
    show: Vec<HostPath>,
    /// Whether the workspace itself cannot be written.
    pub(crate) read_only: bool,
    pub(crate) network: Network,
    pub(crate) allow: Exceptions,
    /// Bounds of each command.
    pub limits: Limits,
}

/// Why a directory cannot be a workspace.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// It is not there, or not readable.
    #[error("{0}: {1}")]
    Unusable(PathBuf, io::Error),
    /// It is a file.
    #[error("{0} is not a directory")]
    NotADirectory(PathBuf),
    /// The root, the home directory or a system directory.
    #[error("{0} cannot be a workspace ({1}); choose a directory of the project")]
    Refused(PathBuf, &'static str),
}

impl Confinement {
    /// The strictest usable terms: one workspace, network off. `root` may be a link; the real directory is meant.
    ///
    /// # Errors
    /// When `root` is missing, no directory, `/`, the home directory, a parent of it or a system directory.
    pub fn new(root: &Path, home: Option<&Path>) -> Result<Self, WorkspaceError> {
        let unusable = |error| WorkspaceError::Unusable(root.to_owned(), error);
        let workspace = canonical(root).map_err(unusable)?;
        if !workspace.metadata().map_err(unusable)?.is_dir() {
            return Err(WorkspaceError::NotADirectory(workspace));
        }
        let system = SystemTrees::of_this_machine();
        if system.hold(&workspace) {
            return Err(WorkspaceError::Refused(workspace, "a system directory"));
        }
        // A home that is a system directory is nobody's own, such as `HOME=/` of a service; /root is root's.
        let own = |home: PathBuf| canonical(&home).ok().filter(|home| home == Path::new("/root") || !system.hold(home));
        let named_home = home.map(HostPath::from);
        let (home, own_home) = (home.map(Path::to_owned).and_then(own), home_of_user().and_then(own));
        if home.iter().chain(&own_home).any(|home| home.starts_with(&workspace)) {
            return Err(WorkspaceError::Refused(workspace, "it holds the home directory"));
        }
        let home_named = home.as_ref().and(named_home);
        let home = home.or(own_home);
        Ok(Self {
            home_named,
            workspace: workspace.into(),
            named: std::path::absolute(root).map_err(unusable)?.into(),
            home: home.map(HostPath::from),
            read: Vec::new(),
            write: Vec::new(),
            hide: Vec::new(),
            show: Vec::new(),
            read_only: false,
            network: Network::Off,
            allow: Exceptions::default(),
            limits: Limits::default(),
        })
    }

    /// The canonical root of the session.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// The names that absolute paths of the workspace may begin with: the canonical root, and the person's own.
    pub fn workspace_names(&self) -> [&Path; 2] {
        [&self.workspace, &self.named]
    }

    /// The workspace's own name, if a link can stand there for it, and its canonical root.
    pub(crate) fn workspace_named(&self) -> (HostPath, HostPath) {
        (if is_plain(&self.named) { &self.named } else { &self.workspace }.clone(), self.workspace.clone())
    }

    /// The same of the home directory.
    pub(crate) fn home_names(&self) -> Option<(HostPath, HostPath)> {
        self.home_named.clone().filter(|named| is_plain(named)).zip(self.home.clone())
    }

    /// The canonical home directory, of which only an allow-list stays visible.
    pub fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// Everything that can be written: the workspace and what was granted besides.
    pub fn writable(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.workspace).chain(&self.write).map(|path| &**path)
    }

    /// Everything that is granted: what can be written and what can be read besides.
    pub(crate) fn granted(&self) -> impl Iterator<Item = &Path> {
        self.writable().chain(self.read.iter().map(|path| &**path))
    }

    /// Whether all below a path was granted, for reading at least.
    pub fn is_granted(&self, path: &Path) -> bool {
        self.granted().any(|granted| path.starts_with(granted))
    }

    /// A grant that lies in `path`, or is it.
    pub fn granted_in(&self, path: &Path) -> Option<&Path> {
        self.granted().find(|granted| granted.starts_with(path))
    }

    /// What the network may be.
    pub fn network(&self) -> Network {
        self.network
    }

    /// Lets commands read below `path` too.
    ///
    /// # Errors
    /// When `path` does not exist, or lies in /proc.
    pub fn grant_read(&mut self, path: &Path) -> io::Result<()> {
        let path = canonical(path)?;
        refuse_processes(&path)?;
        self.read.push(path.into());
        Ok(())
    }

    /// Lets commands read and write below `path` too.
    ///
    /// # Errors
    /// When `path` does not exist, is `/`, or lies in /proc.
    pub fn grant_write(&mut self, path: &Path) -> io::Result<()> {
        let path = canonical(path)?;
        if path == Path::new("/") {
            return Err(io::Error::other("the whole tree cannot be granted; name directories, or use --backend none"));
        }
        refuse_processes(&path)?;
        self.write.push(path.into());
        Ok(())
    }

    /// Hides a file or directory.
    ///
    /// # Errors
    /// When `path` does not exist, or the workspace lies in it.
    pub fn hide(&mut self, path: &Path) -> io::Result<()> {
        let path = canonical(path)?;
        if self.workspace.starts_with(&path) {
            return Err(io::Error::other("the workspace lies in it, and cannot be hidden"));
        }
        self.hide.push(path.into());
        Ok(())
    }

    /// Lets commands read a file that would be hidden.
    ///
    /// # Errors
    /// When `path` does not exist. That nothing hides it is found out when the walls are planned.
    pub fn show(&mut self, path: &Path) -> io::Result<()> {
        self.show.push(canonical(path)?.into());
        Ok(())
    }

    /// The first path that is to be shown and that nothing hides, if the whole workspace was looked at.
    pub(crate) fn shown_in_vain(&self, scan: &Scan) -> Option<&HostPath> {
        self.show.iter().find(|path| scan.unseen.is_none() && !scan.secrets.contains(path))
    }

    /// What is hidden in the workspace and besides: what the scan found, less what is shown, and what was named.
    pub fn hidden(&self, scan: &Scan) -> Vec<HostPath> {
        let found = scan.secrets.iter().filter(|secret| !self.show.contains(secret));
        tops(found.chain(&self.hide).cloned().collect())
    }

    /// The directories that can be written around what was named to be hidden. One that is moved away takes the cover along for this
    /// session, and for the next one, which finds another file by that name, there is none.
    pub(crate) fn around_named(&self) -> impl Iterator<Item = HostPath> {
        self.hide.iter().flat_map(|hidden| {
            let written =
                |directory: &&Path| self.writable().any(|top| directory.starts_with(top) && *directory != top);
            hidden.ancestors().skip(1).filter(written).map(HostPath::from)
        })
    }

    /// Makes the workspace read-only, with all that was granted for writing.
    pub fn set_read_only(&mut self) {
        self.read_only = true;
        self.read.append(&mut self.write);
    }

    /// Whether the workspace cannot be written.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Chooses the network.
    pub fn set_network(&mut self, network: Network) {
        self.network = network;
    }

    /// Lets system calls through that are refused otherwise.
    pub fn allow(&mut self, exceptions: Exceptions) {
        self.allow = exceptions;
    }

    /// What decides what can be done under these terms, a line each: equal lines are equal terms. The workspace is not among them, nor
    /// what bounds a command's time and output, for each command is shown with its own.
    pub fn lines(&self) -> BTreeSet<String> {
        // Taken apart, so that what is new here is not forgotten.
        let Self {
            workspace: _,
            named: _,
            home,
            home_named: _,
            read,
            write,
            hide,
            show,
            read_only,
            network,
            allow: Exceptions { ptrace, user_namespaces },
            limits: Limits { time: _, grace: _, output: _, memory, processes, tasks },
        } = self;
        let mut lines = BTreeSet::from([format!("network {network}"), format!("tasks {tasks}")]);
        let paths = [("read", read), ("write", write), ("hide", hide), ("show", show)];
        lines.extend(paths.into_iter().flat_map(|(what, paths)| paths.iter().map(move |path| path.line(what))));
        lines.extend(home.iter().map(|home| home.line("home")));
        lines.extend(memory.map(|bytes| format!("memory {bytes}")));
        lines.extend(processes.map(|number| format!("processes {number}")));
        let switches = [("workspace read-only", read_only), ("ptrace", ptrace), ("new namespaces", user_namespaces)];
        lines.extend(switches.into_iter().filter(|(_, is_on)| **is_on).map(|(name, _)| name.to_owned()));
        lines
    }

    /// The strictest of both: grants that both have, the smaller of two limits, the network off if either says so.
    #[must_use]
    pub fn narrow(&self, other: &Self) -> Self {
        let both = |a: &[HostPath], b: &[HostPath]| a.iter().filter(|path| b.contains(path)).cloned().collect();
        let limits = Limits {
            time: [self.limits.time, other.limits.time].into_iter().flatten().min(),
            grace: self.limits.grace.min(other.limits.grace),
            output: self.limits.output.min(other.limits.output),
            memory: [self.limits.memory, other.limits.memory].into_iter().flatten().min(),
            processes: [self.limits.processes, other.limits.processes].into_iter().flatten().min(),
            tasks: self.limits.tasks.min(other.limits.tasks),
        };
        let allow = Exceptions {
            ptrace: self.allow.ptrace && other.allow.ptrace,
            user_namespaces: self.allow.user_namespaces && other.allow.user_namespaces,
        };
        Self {
            workspace: self.workspace.clone(),
            named: self.named.clone(),
            home: self.home.clone(),
            home_named: self.home_named.clone(),
            read: both(&self.read, &other.read),
            write: both(&self.write, &other.write),
            hide: self.hide.iter().chain(&other.hide).cloned().collect(),
            show: both(&self.show, &other.show),
            read_only: self.read_only || other.read_only,
            network: self.network.min(other.network),
            allow,
            limits,
        }
    }
}

/// The paths less those that lie below another.
pub(crate) fn tops(mut paths: Vec<HostPath>) -> Vec<HostPath> {
    // Sorted, a directory stands before everything below it.
    paths.sort();
    let mut tops: Vec<HostPath> = Vec::new();
    for path in paths {
        if tops.last().is_none_or(|top| !path.starts_with(top)) {
            tops.push(path);
        }
    }
    tops
}

/// An absolute path without `..`, which may lead elsewhere than its text says.
fn is_plain(path: &Path) -> bool {
    path.is_absolute() && !path.components().any(|component| component == Component::ParentDir)
}

/// Inside, /proc is that of the processes inside; the machine's own in its place would blind the supervisor.
fn refuse_processes(path: &Path) -> io::Result<()> {
    if path.starts_with("/proc") {
        return Err(io::Error::other("processes of the machine are not shown inside"));
    }
    Ok(())
}

/// [`SYSTEM_TREES`], by device and inode: /bin is often a link to /usr/bin.
struct SystemTrees(Vec<(u64, u64)>);

impl SystemTrees {
    fn of_this_machine() -> Self {
        Self(SYSTEM_TREES.iter().filter_map(|tree| identity(Path::new(tree))).collect())
    }

    /// Whether a canonical path is one that is never a workspace, or below one.
    fn hold(&self, path: &Path) -> bool {
        let mut above = path.ancestors().filter_map(identity);
        SYSTEM_DIRECTORIES.iter().any(|system| path == Path::new(system)) || above.any(|place| self.0.contains(&place))
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let status = rustix::fs::stat(path).ok()?;
    Some((status.st_dev, status.st_ino))
}

/// The home directory that /etc/passwd gives the caller (passwd(5)), for an environment without HOME.
pub fn home_of_user() -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let user = rustix::process::getuid().as_raw().to_string();
    let passwd = std::fs::read("/etc/passwd").ok()?;
    let home = passwd.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        (fields.nth(2)? == user.as_bytes()).then(|| fields.nth(2)).flatten()
    })?;
    Some(PathBuf::from(std::ffi::OsString::from_vec(home.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_directories_and_home_are_refused() {
        let home = tempfile::tempdir().unwrap();
        for refused in ["/", "/etc", "/usr", "/tmp", "/bin", "/usr/bin", "/var/lib", "/dev/shm", "/root"] {
            assert!(matches!(
                Confinement::new(Path::new(refused), Some(home.path())),
                Err(WorkspaceError::Refused(..))
            ));
        }
        assert!(matches!(Confinement::new(home.path(), Some(home.path())), Err(WorkspaceError::Refused(..))));
        assert!(matches!(Confinement::new(&home.path().join("missing"), None), Err(WorkspaceError::Unusable(..))));
    }

    #[test]
    fn a_root_that_is_a_link_is_the_real_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let confinement = Confinement::new(&link, None).unwrap();
        assert_eq!(confinement.workspace(), real.canonicalize().unwrap());
    }

    #[test]
    fn what_is_looser_or_stricter_has_other_lines() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("work");
        std::fs::create_dir(&root).unwrap();
        let made = |change: fn(&mut Confinement)| {
            let mut confinement = Confinement::new(&root, Some(Path::new("/root"))).unwrap();
            change(&mut confinement);
            confinement.lines()
        };
        let mut seen = vec![
            made(|_| {}),
            Confinement::new(&root, Some(dir.path())).map(|other| other.lines()).unwrap_or_default(),
        ];
        let changes: [fn(&mut Confinement); 11] = [
            |confinement| confinement.grant_read(Path::new("/srv")).unwrap(),
            |confinement| confinement.grant_write(Path::new("/srv")).unwrap(),
            |confinement| confinement.hide(Path::new("/srv")).unwrap(),
            |confinement| confinement.show(Path::new("/srv")).unwrap(),
            |confinement| confinement.grant_read(Path::new("/")).unwrap(),
            Confinement::set_read_only,
            |confinement| confinement.set_network(Network::On),
            |confinement| confinement.allow(Exceptions { ptrace: true, user_namespaces: false }),
            |confinement| confinement.allow(Exceptions { ptrace: false, user_namespaces: true }),
            |confinement| confinement.limits.memory = Some(1 << 30),
            |confinement| confinement.limits.set_processes(1000),
        ];
        for change in changes {
            let lines = made(change);
            assert!(!seen.contains(&lines), "{lines:?}");
            seen.push(lines);
        }
        let same = made(|confinement| {
            confinement.limits.time = None;
            confinement.limits.output = 1;
        });
        assert_eq!(Some(&same), seen.first());
    }

    #[test]
    fn narrowing_never_widens() {
        let dir = tempfile::tempdir().unwrap();
        let mut wide = Confinement::new(dir.path(), None).unwrap();
        wide.grant_write(Path::new("/srv")).unwrap();
        wide.set_network(Network::On);
        wide.limits.time = None;
        wide.limits.set_processes(1000);
        let mut strict = Confinement::new(dir.path(), None).unwrap();
        strict.limits.memory = Some(1 << 30);
        strict.limits.processes = Some(10);
        assert_eq!(wide.narrow(&strict), strict);
        assert_eq!(strict.narrow(&wide), strict);
    }
}

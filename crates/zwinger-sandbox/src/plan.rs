//! From a [`Confinement`] and what this machine can do to the exact steps that raise the walls. Pure: nothing is opened here.

mod held;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::confinement::{Confinement, Exceptions, Network, tops};
use crate::enforcement::{Enforcement, Held};
use crate::environment;
use crate::host_path::HostPath;
use crate::scan::Scan;
use crate::supervisor::behind;
use crate::task_group::TaskGroup;

/// Programs and their libraries and settings, readable wherever they exist.
pub(crate) const SYSTEM: [&str; 11] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store", "/proc"];

/// What of the home directory stays visible: toolchains, and the settings of git so that commits work.
pub(crate) const HOME_VISIBLE: [&str; 8] =
    [".cargo", ".rustup", ".nvm", ".pyenv", ".local/bin", ".local/lib", ".gitconfig", ".config/git"];

/// Secrets below the visible part of the home directory.
pub(crate) const HOME_HIDDEN: [&str; 3] = [".cargo/credentials", ".cargo/credentials.toml", ".config/git/credentials"];

/// Secrets of the system that a caller with rights over it could otherwise read, and kernel files that tell or do too much.
pub(crate) const SYSTEM_HIDDEN: [&str; 38] = [
    "/etc/NetworkManager/system-connections",
    "/etc/pki/tls/private",
    "/etc/wireguard",
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/zwinger",
    "/etc/krb5.keytab",
    "/etc/security/opasswd",
    "/etc/apt/auth.conf",
    "/etc/apt/auth.conf.d",
    "/etc/ceph",
    "/etc/cloudflared",
    "/etc/credstore",
    "/etc/credstore.encrypted",
    "/etc/docker",
    "/etc/grafana",
    "/etc/ipsec.d",
    "/etc/ipsec.secrets",
    "/etc/kubernetes",
    "/etc/letsencrypt",
    "/etc/munge",
    "/etc/mysql/debian.cnf",
    "/etc/netplan",
    "/etc/openvpn",
    "/etc/postgresql",
    "/etc/ppp/chap-secrets",
    "/etc/ppp/pap-secrets",
    "/etc/rancher",
    "/etc/stunnel",
    "/etc/swanctl",
    "/etc/wpa_supplicant",
    "/etc/xpra",
];

/// Programs look there for how many processors there are.
pub(crate) const PROCESSORS: &str = "/sys/devices/system/cpu";

/// Directories at the top of the tree that are never the host's, but for parts that are named.
const APART: [&str; 5] = ["/tmp", "/run", "/sys", "/dev", "/proc"];

/// Masked in the fresh /proc: they speak of the whole machine (the list of container engines).
pub(crate) const PROC_HIDDEN: [&str; 9] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/sysrq-trigger",
];

/// Devices that programs expect; nothing else of /dev is there.
pub(crate) const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// A part of the host that is kept at its own path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// Where, inside and outside.
    pub path: HostPath,
    /// Whether it can be written.
    pub writable: bool,
}

/// A part of the tree inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Piece {
    /// A part of the host; left out where it does not exist.
    Host(Bind),
    /// An empty directory, in memory.
    Empty(HostPath),
    /// A link, by which the person knows a part of the host, with that part.
    Link(HostPath, HostPath),
}

/// The tree inside, besides what every tree has: the system directories, devices, /proc, and directories for temporary files. Its root
/// is an empty file system in memory, so that nothing else of the host is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounts {
    /// Links at the top of the tree, such as `/bin`, with what they lead to.
    pub links: Vec<(HostPath, HostPath)>,
    /// What is in the tree, outer pieces first.
    pub pieces: Vec<Piece>,
    /// Parts of the workspace that are mounted over themselves, so that they can be neither changed nor moved away.
    pub pins: Vec<Bind>,
    /// Files and directories to cover with nothing, where they exist and the caller could open them.
    pub hidden: Vec<HostPath>,
}

/// The rights of a Landlock rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rights {
    /// Read, list and execute.
    Read,
    /// Everything.
    Write,
}

/// One Landlock rule: rights for all beneath a path; a path that does not exist grants nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The top of the tree.
    pub path: HostPath,
    /// What may be done beneath.
    pub rights: Rights,
}

/// What a process puts on itself after all mounting: Landlock and seccomp.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// For the executor and every command.
    pub rules: Vec<Rule>,
    /// One more layer for the threads that serve file tools: nothing but the workspace.
    pub file_tools: Vec<Rule>,
    /// Whether socket(2) works at all; without a network namespace, off means no sockets.
    pub sockets: bool,
    /// Whether namespaces hold what some calls reach: sockets with a path, which are not Landlock's, System V IPC, and processes by
    /// their ids. Without them these are refused.
    pub namespaces: bool,
    /// Calls that are refused otherwise.
    pub allow: Exceptions,
}

/// Everything that raising the walls needs, for another process of ours to perform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The session's directory.
    pub workspace: HostPath,
    /// Mounts in namespaces of their own; `None` where user namespaces are not permitted.
    pub mounts: Option<Mounts>,
    /// What is hidden in the workspace: covered where mounts are, and refused by file tools in any case. One that is gone since it
    /// was seen is somewhere else, so that the walls cannot be raised.
    pub secrets: Vec<HostPath>,
    /// Whether there is a network namespace (with nothing but loopback).
    pub private_network: bool,
    /// For a caller that is root: all ids are mapped and the rights over files of others stay, else a workspace of another
    /// uid could not be written (user_namespaces(7): with root alone mapped, writing answers EACCES).
    pub root_caller: bool,
    /// `None`: no walls.
    pub seal: Option<Seal>,
    /// The environment of everything inside.
    pub environment: Vec<(OsString, OsString)>,
    /// A ceiling on the tasks of the session, where RLIMIT_NPROC counts for it alone.
    pub tasks: Option<u64>,
    /// A bound on the ids of the session's process namespace, for a caller whom RLIMIT_NPROC does not bind.
    pub task_ids: Option<u64>,
    /// Whether the supervisor runs before all others: for a caller whose tasks nothing else bounds.
    pub urgent: bool,
    /// Bytes at most of the session's files in memory, where they are in a file system of its own.
    pub memory: Option<u64>,
    /// What these walls hold.
    pub enforcement: Enforcement,
}

impl Plan {
    /// What is covered besides the secrets of the workspace. The system's own is closed to others than root.
    pub(crate) fn hidden(&self) -> impl Iterator<Item = &Path> {
        let of_system = SYSTEM_HIDDEN.iter().filter(|_| self.root_caller).map(Path::new);
        self.mounts.iter().flat_map(|mounts| &mounts.hidden).map(|path| &**path).chain(of_system)
    }
}

/// What the plan depends on besides the confinement.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// The host's environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Whether the caller is root.
    pub root_caller: bool,
    /// Why user namespaces with mounts are not permitted here; `None` when they are.
    pub no_namespaces: Option<String>,
    /// The Landlock ABI of the kernel; 0 is none.
    pub landlock_abi: u32,
    /// Whether the ids of a process namespace can be bounded (Linux 6.14).
    pub bounded_ids: bool,
    /// The directories of PATH, by their real places.
    pub path: Vec<HostPath>,
    /// What of the home directory stays visible, with its real place.
    pub home_visible: Vec<(HostPath, HostPath)>,
    /// The credentials in that, by their real places.
    pub home_hidden: Vec<HostPath>,
    /// The directories at the top of this machine's tree.
    pub top: Vec<HostPath>,
    /// The links there, with what they lead to.
    pub top_links: Vec<(HostPath, HostPath)>,
    /// What of the system and of toolchains is readable where nothing can be covered.
    pub readable: Vec<HostPath>,
    /// What of the workspace is to be hidden or kept as it is.
    pub scan: Scan,
    /// Zwinger's own directory, by its real place: hidden whatever is granted.
    pub state: Option<HostPath>,
    /// A file to be hidden that has a name more, which is not hidden.
    pub linked: Option<HostPath>,
    /// A private directory of the session for temporary files, used where /tmp cannot be private.
    pub temporary: Option<PathBuf>,
    /// Why what the session newly makes of the protected kind is named at its end but not moved; `None` when it is moved.
    pub no_quarantine: Option<String>,
    /// For a caller whose tasks nothing else bounds: a cgroup that does, or why there is none.
    pub(crate) task_group: Option<Result<Arc<TaskGroup>, String>>,
}

impl Surroundings {
    /// Directories of PATH and of toolchains that are readable besides the system and what the confinement grants.
    pub fn toolchains(&self, confinement: &Confinement) -> Vec<HostPath> {
        toolchains(confinement, self)
    }

    fn namespaces(&self) -> bool {
        self.no_namespaces.is_none()
    }

    fn bounds_ids(&self) -> bool {
        self.namespaces() && self.root_caller && self.bounded_ids
    }

    /// With a cgroup for the tasks, where it is needed: RLIMIT_NPROC does not bind real root (kernel/fork.c).
    pub(crate) fn with_task_group(self, tasks: u64) -> Self {
        let is_needed = self.root_caller && !self.bounds_ids();
        Self { task_group: is_needed.then(|| TaskGroup::create(behind(tasks)).map(Arc::new)), ..self }
    }

    /// The cgroup, if there is one.
    pub(crate) fn task_group(&self) -> Option<&Arc<TaskGroup>> {
        self.task_group.as_ref().and_then(|group| group.as_ref().ok())
    }

    /// Whether only the watch of the supervisor bounds the tasks.
    fn bounds_no_tasks(&self) -> bool {
        self.root_caller && !self.bounds_ids() && self.task_group().is_none()
    }
}

/// No walls: the clean environment and the limits still hold.
pub(crate) fn without_walls(confinement: &Confinement, around: &Surroundings) -> Plan {
    let nothing = Enforcement {
        memory: held::memory(confinement, false),
        ..Enforcement::nothing("backend none: no walls were asked for")
    };
    Plan {
        workspace: confinement.workspace().into(),
        mounts: None,
        secrets: confinement.hidden(&around.scan),
        private_network: false,
        root_caller: around.root_caller,
        seal: None,
        environment: environment::inside(around.environment.clone(), temporary(around)),
        tasks: None,
        task_ids: None,
        urgent: around.bounds_no_tasks(),
        memory: None,
        enforcement: match around.no_quarantine {
            Some(_) => nothing,
            // No more than that, for nothing keeps a command from zwinger's own files.
            None => Enforcement {
                metadata: Held::none("no walls were asked for; what is left at the end is looked through all the same"),
                ..nothing
            },
        },
    }
}

/// The kernel's walls: namespaces where permitted, Landlock and seccomp everywhere.
pub(crate) fn landlock(confinement: &Confinement, around: &Surroundings) -> Plan {
    let toolchains = toolchains(confinement, around);
    let mounts = around.namespaces().then(|| mounts(confinement, around, &toolchains));
    let private_network = around.namespaces() && confinement.network() == Network::Off;
    let tmpdir = if around.namespaces() { OsStr::new("/tmp") } else { temporary(around) };
    Plan {
        workspace: confinement.workspace().into(),
        secrets: confinement.hidden(&around.scan),
        private_network,
        root_caller: around.root_caller,
        seal: Some(Seal {
            rules: rules(confinement, around),
            file_tools: vec![workspace(confinement)],
            sockets: private_network || confinement.network() == Network::On,
            namespaces: around.namespaces(),
            allow: confinement.allow,
        }),
        environment: environment::inside(around.environment.clone(), tmpdir),
        // RLIMIT_NPROC is counted per user namespace, and not at all for real root (kernel/fork.c: the real root is exempt).
        tasks: (around.namespaces() && !around.root_caller).then_some(confinement.limits.tasks),
        task_ids: around.bounds_ids().then_some(behind(confinement.limits.tasks)),
        urgent: around.bounds_no_tasks(),
        memory: confinement.limits.memory,
        enforcement: held::enforcement(confinement, around),
        mounts,
    }
}

fn temporary(around: &Surroundings) -> &OsStr {
    around.temporary.as_deref().map_or(OsStr::new("/tmp"), Path::as_os_str)
}

/// Directories of PATH and of toolchains that lie outside the system directories.
fn toolchains(confinement: &Confinement, around: &Surroundings) -> Vec<HostPath> {
    let home = confinement.home();
    let visible = around.home_visible.iter().map(|(_, real)| real);
    let toolchains = visible
        .chain(&around.path)
        .filter(|dir| !in_system(dir))
        // A PATH entry or a link that holds the home directory or the workspace would undo the allow-list.
        .filter(|dir| !holds(dir, home) && !holds(dir, Some(confinement.workspace())))
        .filter(|dir| !around.state.as_ref().is_some_and(|state| dir.starts_with(state)));
    tops(toolchains.cloned().collect())
}

/// What is readable where nothing can be covered: the system directories and the toolchains, taken apart around what is hidden
/// in them by `children`, the entries of a directory that are no links.
pub(crate) fn readable(
    confinement: &Confinement,
    around: &Surroundings,
    children: &dyn Fn(&Path) -> Vec<PathBuf>,
) -> Vec<HostPath> {
    // The home directory may lie below /opt or /usr, as that of a service.
    let home = confinement.home().map(Path::to_owned);
    let state = around.state.as_ref().map(|state| state.to_path_buf());
    let system = SYSTEM_HIDDEN.iter().map(PathBuf::from);
    let hidden: Vec<PathBuf> = system.chain(credentials(around)).chain(home).chain(state).collect();
    let toolchains = toolchains(confinement, around).into_iter().map(|path| path.to_path_buf());
    let mut open: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).chain(toolchains).collect();
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        if !hidden.iter().any(|hidden| hidden.starts_with(&path)) {
            found.push(path.into());
        } else if !hidden.contains(&path) {
            open.extend(children(&path));
        }
    }
    found
}

fn credentials(around: &Surroundings) -> impl Iterator<Item = PathBuf> {
    around.home_hidden.iter().map(|path| path.to_path_buf())
}

/// The names by which the person knows parts of the host that really are elsewhere.
fn names(confinement: &Confinement, around: &Surroundings) -> impl Iterator<Item = Piece> {
    let visible = around.home_visible.iter().map(|(named, real)| (named.clone(), real.clone()));
    // The home directory first: others may lie below it.
    let all = confinement.home_names().into_iter().chain(visible).chain([confinement.workspace_named()]);
    all.filter(|(named, real)| named != real).map(|(named, real)| Piece::Link(named, real))
}

fn in_system(path: &Path) -> bool {
    SYSTEM.iter().any(|system| path.starts_with(system))
}

fn holds(dir: &Path, inner: Option<&Path>) -> bool {
    inner.is_some_and(|inner| inner.starts_with(dir))
}

fn mounts(confinement: &Confinement, around: &Surroundings, toolchains: &[HostPath]) -> Mounts {
    let read_only = |path: &HostPath| Bind { path: path.clone(), writable: false };
    let read_write = |path: &HostPath| Bind { path: path.clone(), writable: true };
    // What is granted as a whole needs no cover.
    let home = confinement.home().filter(|home| !confinement.granted().any(|granted| granted == *home));
    let mut pieces: Vec<Piece> = home.map(|home| Piece::Empty(home.into())).into_iter().collect();
    pieces.extend(names(confinement, around));
    let mut binds = Vec::new();
    if confinement.network() == Network::On {
        // /etc/resolv.conf is often a link into /run.
        binds.push(read_only(&"/run/systemd/resolve".into()));
    }
    binds.extend(toolchains.iter().map(read_only));
    for path in &confinement.read {
        match **path == *Path::new("/") {
            // A root in the place of the root could not be seen.
            true => binds.extend(
                around.top.iter().filter(|top| !APART.iter().any(|apart| top.starts_with(apart))).map(read_only),
            ),
            false => binds.push(read_only(path)),
        }
    }
    binds.extend(confinement.write.iter().map(read_write));
    // The workspace comes last: it may lie below any of the others.
    binds.push(Bind { path: confinement.workspace().into(), writable: !confinement.read_only });
    pieces.extend(binds.into_iter().map(Piece::Host));
    // Outer ones first, and what is read-only over them.
    let pinned: BTreeSet<_> = around.scan.pinned.iter().cloned().chain(confinement.around_named()).collect();
    let pins = pinned.iter().map(read_write).chain(around.scan.protected.iter().map(read_only));
    // Those of the system are covered already, but a grant that holds one has come over its cover.
    let system = SYSTEM_HIDDEN.iter().map(PathBuf::from);
    let uncovered = system.filter(|hidden| confinement.granted().any(|granted| hidden.starts_with(granted)));
    let own = around.state.clone().filter(|state| {
        let visible = confinement.granted().chain(toolchains.iter().map(|path| &**path)).chain(SYSTEM.map(Path::new));
        visible.into_iter().any(|visible| state.starts_with(visible))
    });
    let hidden = uncovered.chain(credentials(around)).map(HostPath::from).chain(own).collect();
    // A workspace that cannot be written holds them already.
    Mounts { links: around.top_links.clone(), pieces, pins: pins.filter(|_| !confinement.read_only).collect(), hidden }
}

fn rules(confinement: &Confinement, around: &Surroundings) -> Vec<Rule> {
    let read = |path: HostPath| Rule { path, rights: Rights::Read };
    let write = |path: HostPath| Rule { path, rights: Rights::Write };
    let mut rules: Vec<Rule> = if around.namespaces() {
        // Only what may be read is in the tree at all, and the kernel takes its time for each rule.
        let written = ["/tmp", "/var/tmp", "/dev"].map(|path| write(path.into()));
        std::iter::once(read("/".into())).chain(written).collect()
    } else {
        let devices = DEVICES.iter().map(|device| write((*device).into()));
        let temporary = around.temporary.iter().map(|path| write(path.clone().into()));
        let readable = around.readable.iter().chain(&confinement.read).cloned().map(read);
        let resolver = (confinement.network() == Network::On).then(|| read("/run/systemd/resolve".into()));
        readable.chain([read(PROCESSORS.into())]).chain(resolver).chain(devices).chain(temporary).collect()
    };
    rules.extend(confinement.write.iter().cloned().map(write));
    rules.push(workspace(confinement));
    rules
}

fn workspace(confinement: &Confinement) -> Rule {
    let rights = if confinement.read_only { Rights::Read } else { Rights::Write };
    Rule { path: confinement.workspace().into(), rights }
}

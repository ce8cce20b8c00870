//! From a [`Confinement`] and what this machine can do to the exact steps that raise the walls. Pure: nothing is opened here.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::confinement::{Confinement, Network};
use crate::enforcement::{Enforcement, Held};
use crate::environment;
use crate::host_path::HostPath;
use crate::scan::Scan;
use crate::supervisor::behind;

/// Programs and their libraries and settings, readable wherever they exist.
const SYSTEM: [&str; 11] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store", "/proc"];

/// What of the home directory stays visible: toolchains, and the settings of git so that commits work.
const HOME_VISIBLE: [&str; 8] =
    [".cargo", ".rustup", ".nvm", ".pyenv", ".local/bin", ".local/lib", ".gitconfig", ".config/git"];

/// Secrets below the visible part of the home directory.
const HOME_HIDDEN: [&str; 3] = [".cargo/credentials", ".cargo/credentials.toml", ".config/git/credentials"];

/// Secrets of the system that a caller with rights over it could otherwise read, and kernel files that tell or do too much.
const SYSTEM_HIDDEN: [&str; 11] = [
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
];

/// Directories at the top of the tree that have a cover of their own.
const APART: [&str; 4] = ["/tmp", "/run", "/sys", "/dev"];

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
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// An empty file system in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryMount {
    /// Where.
    pub at: HostPath,
    /// Whether it stays writable after what is needed was put into it.
    pub writable: bool,
    /// Permission bits of its root.
    pub mode: u32,
}

/// A part of the host that is kept at its own path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// Where, inside and outside.
    pub path: HostPath,
    /// Whether it can be written.
    pub writable: bool,
}

/// The steps done with mounts, in this order: `binds` and `pins` are opened, everything is made read-only, `memory` is mounted,
/// `binds` and `pins` are put in place, `hidden` is covered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounts {
    /// Empty file systems, outer ones first.
    pub memory: Vec<MemoryMount>,
    /// Kept parts of the host, outer ones first; what does not exist is left out.
    pub binds: Vec<Bind>,
    /// Parts of the workspace that are mounted over themselves, so that they can be neither changed nor moved away.
    pub pins: Vec<Bind>,
    /// Files and directories to cover with nothing, where they exist.
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
    /// Whether it makes sockets of the machine itself. Landlock does not hold connecting to a path, so only mounts permit it.
    pub unix_sockets: bool,
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
    /// What these walls hold.
    pub enforcement: Enforcement,
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
    /// The directories at the top of this machine's tree.
    pub top: Vec<HostPath>,
    /// What of the system and of toolchains is readable where nothing can be covered.
    pub readable: Vec<HostPath>,
    /// What of the workspace is to be hidden or kept as it is.
    pub scan: Scan,
    /// A private directory of the session for temporary files, used where /tmp cannot be private.
    pub temporary: Option<PathBuf>,
}

impl Surroundings {
    fn namespaces(&self) -> bool {
        self.no_namespaces.is_none()
    }

    fn bounds_ids(&self) -> bool {
        self.namespaces() && self.root_caller && self.bounded_ids
    }
}

/// No walls: the clean environment and the limits still hold.
pub(crate) fn without_walls(confinement: &Confinement, around: &Surroundings) -> Plan {
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
        enforcement: Enforcement {
            memory: memory(confinement),
            ..Enforcement::nothing("backend none: no walls were asked for")
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
            rules: rules(confinement, around, &toolchains),
            file_tools: vec![Rule { path: confinement.workspace().into(), rights: Rights::Write }],
            sockets: private_network || confinement.network() == Network::On,
            unix_sockets: around.namespaces(),
        }),
        environment: environment::inside(around.environment.clone(), tmpdir),
        // RLIMIT_NPROC is counted per user namespace, and not at all for real root (kernel/fork.c: the real root is exempt).
        tasks: (around.namespaces() && !around.root_caller).then_some(confinement.limits.tasks),
        task_ids: around.bounds_ids().then_some(behind(confinement.limits.tasks)),
        enforcement: enforcement(confinement, around),
        mounts,
    }
}

fn temporary(around: &Surroundings) -> &OsStr {
    around.temporary.as_deref().map_or(OsStr::new("/tmp"), Path::as_os_str)
}

/// Directories of PATH and of toolchains that lie outside the system directories.
fn toolchains(confinement: &Confinement, around: &Surroundings) -> Vec<HostPath> {
    let home = confinement.home();
    let visible = home.into_iter().flat_map(|home| HOME_VISIBLE.iter().map(move |entry| home.join(entry)));
    let path = around.path.iter().map(|dir| dir.to_path_buf());
    let mut toolchains: Vec<HostPath> = visible
        .chain(path.filter(|dir| !in_system(dir)))
        // A PATH entry that holds the home directory or the workspace would undo the allow-list.
        .filter(|dir| !holds(dir, home) && !holds(dir, Some(confinement.workspace())))
        .map(HostPath::from)
        .collect();
    toolchains.sort();
    // Sorted, a directory stands before everything below it, which it already shows.
    let mut tops: Vec<HostPath> = Vec::new();
    for toolchain in toolchains {
        if tops.last().is_none_or(|top| !toolchain.starts_with(top)) {
            tops.push(toolchain);
        }
    }
    tops
}

/// What is readable where nothing can be covered: the system directories and the toolchains, taken apart around what is hidden
/// in them by `children`, the entries of a directory that are no links.
pub(crate) fn readable(
    confinement: &Confinement,
    around: &Surroundings,
    children: &dyn Fn(&Path) -> Vec<PathBuf>,
) -> Vec<HostPath> {
    let hidden: Vec<PathBuf> = SYSTEM_HIDDEN.iter().map(PathBuf::from).chain(credentials(confinement)).collect();
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

fn credentials(confinement: &Confinement) -> impl Iterator<Item = PathBuf> {
    confinement.home().into_iter().flat_map(|home| HOME_HIDDEN.iter().map(|entry| home.join(entry)))
}

fn in_system(path: &Path) -> bool {
    SYSTEM.iter().any(|system| path.starts_with(system))
}

fn holds(dir: &Path, inner: Option<&Path>) -> bool {
    inner.is_some_and(|inner| inner.starts_with(dir))
}

fn mounts(confinement: &Confinement, around: &Surroundings, toolchains: &[HostPath]) -> Mounts {
    let memory = |at: &Path, writable, mode| MemoryMount { at: at.into(), writable, mode };
    // Landlock lets nothing be read beneath the rest of the tree; covered, it has no socket to connect to and no file whose mode
    // or times could be changed either.
    let rest =
        around.top.iter().filter(|top| !APART.iter().chain(&SYSTEM).any(|kept| Path::new(kept).starts_with(top)));
    let mut empty: Vec<_> = rest.map(|top| memory(top, false, 0o755)).collect();
    empty.extend([
        memory(Path::new("/tmp"), true, 0o1777),
        memory(Path::new("/var/tmp"), true, 0o1777),
        memory(Path::new("/run"), false, 0o755),
        memory(Path::new("/sys"), false, 0o755),
        memory(Path::new("/dev"), false, 0o755),
    ]);
    empty.extend(confinement.home().map(|home| memory(home, false, 0o755)));
    // What is granted as a whole needs no cover, whose end as read-only would be its own.
    empty.retain(|cover| !confinement.granted().any(|granted| granted == &*cover.at));
    let read_only = |path: &HostPath| Bind { path: path.clone(), writable: false };
    let read_write = |path: &HostPath| Bind { path: path.clone(), writable: true };
    let mut binds: Vec<Bind> = DEVICES.iter().map(|device| Bind { path: (*device).into(), writable: true }).collect();
    binds.push(Bind { path: "/sys/devices/system/cpu".into(), writable: false });
    if confinement.network() == Network::On {
        // /etc/resolv.conf is often a link into /run.
        binds.push(Bind { path: "/run/systemd/resolve".into(), writable: false });
    }
    binds.extend(toolchains.iter().map(read_only));
    binds.extend(confinement.read.iter().map(read_only));
    binds.extend(confinement.write.iter().map(read_write));
    // The workspace comes last: it may lie below any of the others.
    binds.push(Bind { path: confinement.workspace().into(), writable: true });
    let pins = around.scan.pinned.iter().map(read_write).chain(around.scan.protected.iter().map(read_only)).collect();
    let hidden = SYSTEM_HIDDEN.iter().map(|path| HostPath::from(*path));
    let hidden = hidden.chain(credentials(confinement).map(HostPath::from)).collect();
    Mounts { memory: empty, binds, pins, hidden }
}

fn rules(confinement: &Confinement, around: &Surroundings, toolchains: &[HostPath]) -> Vec<Rule> {
    let read = |path: HostPath| Rule { path, rights: Rights::Read };
    let write = |path: HostPath| Rule { path, rights: Rights::Write };
    let mut rules: Vec<Rule> = match around.namespaces() {
        true => SYSTEM.iter().map(|path| read((*path).into())).collect(),
        false => around.readable.iter().cloned().map(read).collect(),
    };
    rules.push(read("/sys/devices/system/cpu".into()));
    if confinement.network() == Network::On {
        rules.push(read("/run/systemd/resolve".into()));
    }
    if around.namespaces() {
        rules.extend(confinement.home().map(|home| read(home.into())));
        rules.extend(["/tmp", "/var/tmp", "/dev"].map(|path| write(path.into())));
    } else {
        rules.extend(DEVICES.iter().map(|device| write((*device).into())));
        rules.extend(around.temporary.iter().map(|path| write(path.clone().into())));
    }
    if around.namespaces() {
        rules.extend(toolchains.iter().cloned().map(read));
    }
    rules.extend(confinement.read.iter().cloned().map(read));
    rules.extend(confinement.write.iter().cloned().map(write));
    rules.push(write(confinement.workspace().into()));
    rules
}

fn enforcement(confinement: &Confinement, around: &Surroundings) -> Enforcement {
    let no_namespaces = format!("no user namespaces ({})", around.no_namespaces.as_deref().unwrap_or_default());
    let files = match around.landlock_abi {
        0 => Held::none("the kernel has no Landlock"),
        1 | 2 => Held::partial(format!("Landlock ABI {}: truncation is not held", around.landlock_abi)),
        _ if !around.namespaces() => {
            // Nothing can be read or written, so it is full; what Landlock leaves open has to be said.
            let open = "modes, owners and times of the caller's files outside can be changed";
            Held { reason: format!("{no_namespaces}: {open}"), ..Held::full() }
        }
        _ => Held::full(),
    };
    let network = match (confinement.network(), around.namespaces()) {
        (Network::On, _) => Held::none("network on was asked for"),
        (Network::Off, true) => Held::full(),
        (Network::Off, false) => {
            Held { reason: format!("{no_namespaces}: no sockets at all, loopback included"), ..Held::full() }
        }
    };
    Enforcement {
        files,
        network,
        syscalls: Held::full(),
        processes: processes(confinement, around, &no_namespaces),
        memory: memory(confinement),
        metadata: metadata(around, &no_namespaces),
        secrets: secrets(confinement, around, &no_namespaces),
    }
}

fn processes(confinement: &Confinement, around: &Surroundings, no_namespaces: &str) -> Held {
    let unbound = "root is exempt from RLIMIT_NPROC, so tasks are only counted, ten times a second";
    match (around.namespaces(), around.root_caller) {
        (true, true) if !around.bounded_ids => {
            Held::partial(format!("{unbound} (Linux 6.14 bounds the ids of a process namespace)"))
        }
        // The kernel holds the ceiling on tasks; of processes it knows nothing.
        (true, _) if confinement.limits.processes.is_some() => {
            Held { reason: "processes are counted ten times a second".into(), ..Held::full() }
        }
        (true, _) => Held::full(),
        (false, root) => {
            let outlives = format!("{no_namespaces}: a command that kills its supervisor can outlive it");
            Held::partial(if root { format!("{outlives}; {unbound}") } else { outlives })
        }
    }
}

fn memory(confinement: &Confinement) -> Held {
    match confinement.limits.memory {
        None => Held::none("no limit was asked for"),
        Some(_) => Held::partial(
            "counted ten times a second; of files in memory each is bounded, but not their number, and buffers of sockets are not",
        ),
    }
}

fn metadata(around: &Surroundings, no_namespaces: &str) -> Held {
    if !around.namespaces() {
        return Held::none(no_namespaces);
    }
    if let Some(link) = around.scan.links.first() {
        return Held::partial(format!("{} is a link, which cannot be held", link.display()));
    }
    let new = "what is there is read-only; files of the kind that are made anew are not found by this version";
    Held::partial(around.scan.unseen.as_deref().unwrap_or(new))
}

fn secrets(confinement: &Confinement, around: &Surroundings, no_namespaces: &str) -> Held {
    let hidden = confinement.hidden(&around.scan).len();
    if let (None, Some(link)) = (&around.scan.unseen, around.scan.secret_links.first()) {
        return Held::partial(format!("{} is a link, which a command can remove", link.display()));
    }
    match (&around.scan.unseen, hidden) {
        (Some(unseen), _) => Held::partial(unseen),
        (None, 0) => Held::full(),
        (None, _) if !around.namespaces() => Held::none(no_namespaces),
        (None, _) => {
            Held::partial("a hidden file that the host replaces meanwhile shows itself until the session ends")
        }
    }
}

//! The child's side: raises the walls around the calling process, in the order that the kernel demands.
//!
//! 1. namespaces and id maps ([`OwnIds::map`], [`map_all_ids`])
//! 2. mounts ([`mounts::arrange`]), and /proc of the new pid namespace last ([`mounts::fresh_proc`])
//! 3. capabilities ([`drop_capabilities`])
//! 4. Landlock, after all mounting: a landlocked task may not mount, whatever its capabilities
//! 5. seccomp, which forbids all of the above
//! 6. not dumpable: that, not Landlock, keeps commands out of our memory ([`seal`])

pub(crate) mod mounts;
mod ruleset;
mod seccomp;

use std::io;

use rustix::process::DumpableBehavior;
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::plan::{Plan, Rule, Seal};
use crate::sys;

/// A step of the walls that failed. Always an end: nothing runs behind half a wall.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {cause}")]
pub struct WallError {
    step: &'static str,
    cause: io::Error,
}

impl WallError {
    pub(crate) fn at<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |cause| Self { step, cause: cause.into() }
    }

    /// Whether this machine does not permit the step, so that a plan without namespaces may be tried.
    pub(crate) fn not_permitted(&self) -> bool {
        matches!(
            self.cause.raw_os_error(),
            Some(libc::EPERM | libc::EACCES | libc::ENOSPC | libc::EUSERS | libc::ENOSYS)
        )
    }
}

/// The namespaces that a plan asks for, as flags of clone(2), the pid namespace not among them.
pub(crate) fn namespaces(plan: &Plan) -> i32 {
    if plan.mounts.is_none() {
        return 0;
    }
    let network = if plan.private_network { sys::NEW_NET } else { 0 };
    sys::NEW_USER | sys::NEW_MOUNT | sys::NEW_IPC | sys::NEW_UTS | network
}

/// The ids of the caller, read before the namespace is entered: inside they would be the overflow ids.
#[derive(Clone, Copy)]
pub(crate) struct OwnIds {
    user: u32,
    group: u32,
}

impl OwnIds {
    pub(crate) fn read() -> Self {
        Self { user: rustix::process::getuid().as_raw(), group: rustix::process::getgid().as_raw() }
    }

    /// user_namespaces(7): an ordinary caller may map only itself, from inside, and gives up setgroups(2).
    pub(crate) fn map(self) -> Result<(), WallError> {
        let Self { user, group } = self;
        std::fs::write("/proc/self/setgroups", "deny").map_err(WallError::at("deny setgroups"))?;
        std::fs::write("/proc/self/uid_map", format!("{user} {user} 1")).map_err(WallError::at("map the user id"))?;
        std::fs::write("/proc/self/gid_map", format!("{group} {group} 1")).map_err(WallError::at("map the group id"))
    }
}

/// Done by a root caller from outside: maps every id, so that files of any owner keep theirs.
pub(crate) fn map_all_ids(process: rustix::process::Pid) -> Result<(), WallError> {
    let base = format!("/proc/{}", process.as_raw_pid());
    for file in ["uid_map", "gid_map"] {
        std::fs::write(format!("{base}/{file}"), "0 0 4294967295").map_err(WallError::at("map all ids"))?;
    }
    Ok(())
}

/// Names the host and brings loopback up, so that a server of one command answers the next.
pub(crate) fn settle_namespaces(plan: &Plan) -> Result<(), WallError> {
    if plan.mounts.is_none() {
        return Ok(());
    }
    rustix::system::sethostname(b"zwinger").map_err(WallError::at("set the host name"))?;
    if plan.private_network {
        loopback_up().map_err(WallError::at("bring loopback up"))?;
    }
    Ok(())
}

/// rtnetlink(7): RTM_NEWLINK that sets IFF_UP on interface 1, which is loopback in a new namespace.
fn loopback_up() -> io::Result<()> {
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // NETLINK_ROUTE is protocol 0, the family's default.
        None,
    )?;
    const LENGTH: u32 = 32;
    const NEW_LINK: u16 = 16;
    const REQUEST_AND_ACK: u16 = 1 | 4;
    const UP: u32 = 1;
    let mut message = Vec::with_capacity(LENGTH as usize);
    message.extend(LENGTH.to_ne_bytes());
    message.extend(NEW_LINK.to_ne_bytes());
    message.extend(REQUEST_AND_ACK.to_ne_bytes());
    message.extend([0; 8]); // sequence and port
    message.extend([0; 4]); // AF_UNSPEC, padding, no type
    message.extend(1_i32.to_ne_bytes()); // interface
    message.extend(UP.to_ne_bytes()); // flags
    message.extend(UP.to_ne_bytes()); // which of them change
    rustix::net::send(&socket, &message, SendFlags::empty())?;
    let mut answer = [0_u8; 64];
    let (_, received) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
    match answer.get(16..20).and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes) {
        Some(0) if received >= 20 => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Drops every capability. For a root caller those over files of other owners stay, in a namespace that owns nothing else.
pub(crate) fn drop_capabilities(plan: &Plan) -> Result<(), WallError> {
    let keep = if plan.root_caller && plan.mounts.is_some() {
        CapabilitySet::CHOWN | CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER | CapabilitySet::FSETID
    } else {
        CapabilitySet::empty()
    };
    let held = rustix::thread::capabilities(None).map_err(WallError::at("read the capabilities"))?;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().difference(keep).iter() {
            match rustix::thread::remove_capability_from_bounding_set(capability) {
                // EINVAL: the kernel does not know this one.
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                Err(error) => return Err(WallError::at("drop the bounding set")(error)),
            }
        }
    }
    let keep = keep.intersection(held.permitted);
    let sets = CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).map_err(WallError::at("drop the capabilities"))?;
    rustix::thread::set_no_new_privs(true).map_err(WallError::at("set no_new_privs"))
}

/// Landlock, seccomp and not dumpable, on a process that has one thread.
pub fn seal(seal: &Seal) -> Result<(), WallError> {
    ruleset::restrict(&seal.rules, ruleset::Scoped::Yes)?;
    seccomp::install(seal.sockets, seal.unix_sockets)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(WallError::at("set not dumpable"))
}

/// One more Landlock layer for the calling thread alone.
pub fn seal_thread(rules: &[Rule]) -> Result<(), WallError> {
    ruleset::restrict(rules, ruleset::Scoped::No)
}

/// The Landlock ABI of the running kernel; 0 when there is none.
pub(crate) fn landlock_abi() -> u32 {
    ruleset::abi()
}

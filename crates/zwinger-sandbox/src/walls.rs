//! The child's side: raises the walls around the calling process, in the order that the kernel demands.
//!
//! 1. namespaces and id maps ([`OwnIds::map`], [`map_all_ids`])
//! 2. mounts ([`Tree`]), and the network namespace, which takes longest to make ([`PrivateNetwork`])
//! 3. Landlock, after all mounting: a landlocked task may not mount, whatever its capabilities ([`seal_files`])
//! 4. capabilities, when the network is entered ([`bound_capabilities`], [`drop_capabilities`])
//! 5. seccomp, which forbids all of the above, and not dumpable: that, not Landlock, keeps commands out of our memory
//!    ([`seal_calls`])

pub(crate) mod mounts;
mod network;
mod read_only;
mod ruleset;
mod seccomp;
mod streams;
pub(crate) mod task_ids;
mod tree;
mod watches;

use std::io;

use rustix::process::DumpableBehavior;
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::plan::{Plan, Rule, Seal};
use crate::sys;
pub(crate) use network::PrivateNetwork;
pub use read_only::read_only;
pub(crate) use streams::Passed;
pub(crate) use tree::{Processes, Tree};

/// A step of the walls that failed. Always an end: nothing runs behind half a wall.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {cause}")]
pub struct WallError {
    step: &'static str,
    cause: io::Error,
    /// Whether a refusal of this step means that namespaces are refused here.
    refusable: bool,
}

impl WallError {
    pub(crate) fn at<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |cause| Self { step, cause: cause.into(), refusable: false }
    }

    /// As [`WallError::at`], of a step that a machine without namespaces for this caller refuses.
    pub(crate) fn refusable<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |cause| Self { step, cause: cause.into(), refusable: true }
    }

    /// Whether this machine does not permit the step, so that a plan without namespaces may be tried.
    pub(crate) fn not_permitted(&self) -> bool {
        self.refusable
            && matches!(
                self.cause.raw_os_error(),
                Some(libc::EPERM | libc::EACCES | libc::ENOSPC | libc::EUSERS | libc::ENOSYS)
            )
    }
}

/// The namespaces of walls with mounts, as flags of clone(2), but for those of processes and of the network.
pub(crate) const NAMESPACES: i32 = sys::NEW_USER | sys::NEW_MOUNT | sys::NEW_IPC | sys::NEW_UTS;

/// The ids of the caller, read before the namespace is entered: inside they would be the overflow ids.
#[derive(Clone, Copy)]
pub(crate) struct OwnIds {
    user: u32,
    group: u32,
    root: bool,
}

impl OwnIds {
    pub(crate) fn read() -> Self {
        Self {
            user: rustix::process::getuid().as_raw(),
            group: rustix::process::getgid().as_raw(),
            root: rustix::process::geteuid().is_root(),
        }
    }

    pub(crate) fn are_root(self) -> bool {
        self.root
    }

    /// user_namespaces(7): an ordinary caller may map only itself, from inside, and gives up setgroups(2).
    pub(crate) fn map(self) -> Result<(), WallError> {
        let Self { user, group, .. } = self;
        std::fs::write("/proc/self/setgroups", "deny").map_err(WallError::refusable("deny setgroups"))?;
        std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))
            .map_err(WallError::refusable("map the user id"))?;
        std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
            .map_err(WallError::refusable("map the group id"))
    }
}

/// Done by a root caller from outside: maps every id, so that files of any owner keep theirs.
pub(crate) fn map_all_ids(process: rustix::process::Pid) -> Result<(), WallError> {
    let base = format!("/proc/{}", process.as_raw_pid());
    for file in ["uid_map", "gid_map"] {
        std::fs::write(format!("{base}/{file}"), "0 0 4294967295").map_err(WallError::refusable("map all ids"))?;
    }
    Ok(())
}

/// For a root caller those over files of other owners, in a namespace that owns nothing else.
fn kept_capabilities(plan: &Plan) -> CapabilitySet {
    match plan.root_caller && plan.mounts.is_some() {
        true => CapabilitySet::CHOWN | CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER | CapabilitySet::FSETID,
        false => CapabilitySet::empty(),
    }
}

/// Takes from the bounding set what nothing inside may ever have.
pub(crate) fn bound_capabilities(plan: &Plan) -> Result<(), WallError> {
    let held = rustix::thread::capabilities(None).map_err(WallError::at("read the capabilities"))?;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().difference(kept_capabilities(plan)).iter() {
            match rustix::thread::remove_capability_from_bounding_set(capability) {
                // EINVAL: the kernel does not know this one.
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                Err(error) => return Err(WallError::at("drop the bounding set")(error)),
            }
        }
    }
    Ok(())
}

/// Drops every capability that is not kept.
pub(crate) fn drop_capabilities(plan: &Plan) -> Result<(), WallError> {
    let held = rustix::thread::capabilities(None).map_err(WallError::at("read the capabilities"))?;
    let keep = kept_capabilities(plan).intersection(held.permitted);
    let sets = CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).map_err(WallError::at("drop the capabilities"))?;
    rustix::thread::set_no_new_privs(true).map_err(WallError::at("set no_new_privs"))
}

/// All of it, on a process that has one thread.
pub fn seal(seal: &Seal) -> Result<(), WallError> {
    seal_files(seal)?;
    seal_calls(seal)
}

/// Landlock.
pub(crate) fn seal_files(seal: &Seal) -> Result<(), WallError> {
    ruleset::restrict(&seal.rules, ruleset::Scoped::Yes)
}

/// Seccomp, and not dumpable.
pub(crate) fn seal_calls(seal: &Seal) -> Result<(), WallError> {
    seccomp::install(seal)?;
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

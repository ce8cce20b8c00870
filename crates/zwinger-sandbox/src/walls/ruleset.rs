//! One Landlock ruleset at the newest ABI that the kernel has (landlock(7), kernel doc userspace-api/landlock).

use std::io;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd, RestrictSelf,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};

use super::WallError;
use crate::plan::{Rights, Rule};

/// The newest ABI whose file rights were tried here; newer kernels hold these too.
const NEWEST: ABI = ABI::V7;

/// Whether signals and abstract sockets stay inside too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scoped {
    Yes,
    No,
}

pub(crate) fn abi() -> u32 {
    // Without flags this asks the kernel for its version and restricts nothing.
    match RestrictSelf::default().no_new_privs(false).apply().map(|status| status.landlock) {
        Ok(LandlockStatus::Available { effective_abi, .. }) => effective_abi as u32,
        _ => 0,
    }
}

pub(crate) fn restrict(rules: &[Rule], scoped: Scoped) -> Result<(), WallError> {
    let [oldest, newest] = [ABI::V1, NEWEST].map(AccessFs::from_all);
    enforced(apply(oldest, newest, scoped, rules.iter().map(|rule| (&*rule.path, allowed(rule.rights)))))
}

fn enforced(applied: io::Result<RestrictionStatus>) -> Result<(), WallError> {
    let status = applied.map_err(WallError::at("Landlock"))?;
    // The crate's best effort is silent when nothing holds; we are not.
    match status.ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        RulesetStatus::NotEnforced => Err(WallError::at("Landlock")(io::Error::from(io::ErrorKind::Unsupported))),
    }
}

/// Leaves reading as it is: writes are refused but beneath these.
pub(crate) fn restrict_writes(writable: &[&Path]) -> Result<(), WallError> {
    let [oldest, newest] = [ABI::V3, NEWEST].map(AccessFs::from_write);
    let rules = writable.iter().map(|path| (*path, newest));
    enforced(apply(oldest, newest, Scoped::Yes, rules))
}

/// Handles the rights `newest` as far as the kernel knows them, and `oldest` or none at all.
fn apply<'a>(
    oldest: BitFlags<AccessFs>,
    newest: BitFlags<AccessFs>,
    scoped: Scoped,
    rules: impl Iterator<Item = (&'a Path, BitFlags<AccessFs>)>,
) -> io::Result<RestrictionStatus> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(oldest)
        .map_err(io::Error::other)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(newest)
        .map_err(io::Error::other)?;
    if scoped == Scoped::Yes {
        ruleset = ruleset.scope(Scope::from_all(NEWEST)).map_err(io::Error::other)?;
    }
    let mut created = ruleset.create().map_err(io::Error::other)?;
    for (path, rights) in rules {
        let Ok(path) = PathFd::new(path) else { continue };
        // The kernel refuses rights of directories on a file.
        let rights = if is_directory(&path)? { rights } else { rights & AccessFs::from_file(NEWEST) };
        created = created.add_rule(PathBeneath::new(path, rights)).map_err(io::Error::other)?;
    }
    created.restrict_self().map_err(io::Error::other)
}

fn is_directory(path: &PathFd) -> io::Result<bool> {
    let status = rustix::fs::fstat(path)?;
    Ok(rustix::fs::FileType::from_raw_mode(status.st_mode) == rustix::fs::FileType::Directory)
}

fn allowed(rights: Rights) -> BitFlags<AccessFs> {
    match rights {
        Rights::Read => AccessFs::from_read(NEWEST),
        Rights::Write => AccessFs::from_all(NEWEST),
    }
}

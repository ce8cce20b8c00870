//! One Landlock ruleset at the newest ABI that the kernel has (landlock(7), kernel doc userspace-api/landlock).

use std::io;

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
    let status = apply(rules, scoped).map_err(WallError::at("Landlock"))?;
    // The crate's best effort is silent when nothing holds; we are not.
    match status.ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        RulesetStatus::NotEnforced => Err(WallError::at("Landlock")(io::Error::from(io::ErrorKind::Unsupported))),
    }
}

fn apply(rules: &[Rule], scoped: Scoped) -> io::Result<RestrictionStatus> {
    let all = AccessFs::from_all(NEWEST);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .map_err(io::Error::other)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .map_err(io::Error::other)?;
    if scoped == Scoped::Yes {
        ruleset = ruleset.scope(Scope::from_all(NEWEST)).map_err(io::Error::other)?;
    }
    let mut created = ruleset.create().map_err(io::Error::other)?;
    for rule in rules {
        let Ok(path) = PathFd::new(&*rule.path) else { continue };
        let rights = allowed(rule.rights, is_directory(&path)?);
        created = created.add_rule(PathBeneath::new(path, rights)).map_err(io::Error::other)?;
    }
    created.restrict_self().map_err(io::Error::other)
}

fn is_directory(path: &PathFd) -> io::Result<bool> {
    let status = rustix::fs::fstat(path)?;
    Ok(rustix::fs::FileType::from_raw_mode(status.st_mode) == rustix::fs::FileType::Directory)
}

fn allowed(rights: Rights, directory: bool) -> BitFlags<AccessFs> {
    let rights = match rights {
        Rights::Read => AccessFs::from_read(NEWEST),
        Rights::Write => AccessFs::from_all(NEWEST),
    };
    // The kernel refuses rights of directories on a file.
    if directory { rights } else { rights & AccessFs::from_file(NEWEST) }
}

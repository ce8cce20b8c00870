//! What builds the walls. An enum, so that every place which must know a backend is found by the compiler.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};

use crate::confinement::Confinement;
use crate::directory;
use crate::enforcement::Held;
use crate::host_path::{HostPath, canonical};
use crate::plan::{self, HOME_HIDDEN, HOME_VISIBLE, Plan, Surroundings};
use crate::scan::Scan;
use crate::walls::{self, task_ids};

/// A builder of walls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// The kernel alone: namespaces where permitted, Landlock, seccomp.
    Landlock,
    /// No walls. Never chosen by itself.
    None,
}

/// A backend that was asked for and cannot be had; nothing ran.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The kernel has no Landlock.
    #[error(
        "landlock: this kernel has no Landlock (Linux 6.2 or newer with landlock in the lsm= list); \
         --backend none runs without walls"
    )]
    NoLandlock,
    /// Only a mount can hide a file of the workspace.
    #[error(
        "the walls that the policy asks for cannot be built here; nothing was run\n  \
         landlock    works, but {} cannot be hidden: user namespaces are refused ({reason})\n  \
         ways on     --show {} (let commands read it)   |   --backend none (no walls at all)",
        .secret.display(), .secret.display()
    )]
    SecretsExposed {
        /// One of the files.
        secret: HostPath,
        /// Why there are no namespaces.
        reason: String,
    },
    /// Only a mount can hide a part of what is granted.
    #[error(
        "the walls that the policy asks for cannot be built here; nothing was run\n  \
         landlock    works, but {}, zwinger's own, cannot be hidden in what --read names: user namespaces are refused ({reason})\n  \
         ways on     --read what is needed of it   |   XDG_STATE_HOME elsewhere   |   zwinger doctor --fix",
        .state.display()
    )]
    StateExposed {
        /// Zwinger's own directory.
        state: HostPath,
        /// Why there are no namespaces.
        reason: String,
    },
    /// A cover is over one name, and a hard link is another.
    #[error(
        "the walls that the policy asks for cannot be built here; nothing was run\n  \
         landlock    works, but {} cannot be hidden: it has another name (a hard link), by which it could be read\n  \
         ways on     make it a file of its own (cp -p FILE NEW && mv NEW FILE)   |   --hide the other name too \
         (find . -samefile FILE)\n              --show FILE (let commands read it)   |   --backend none (no walls at all)",
        .secret.display()
    )]
    SecretLinked {
        /// One of the files.
        secret: HostPath,
    },
    /// What is to be shown is not hidden by anything that could be taken away.
    #[error("--show {}: it is no hidden file of the workspace; --read lets commands read more of the host", .0.display())]
    ShownInVain(
        /// The path.
        HostPath,
    ),
    /// A dimension would hold less than is required.
    #[error(
        "the walls that the policy asks for cannot be built here; nothing was run\n  \
         landlock    {dimension} would be {}: {}\n  \
         ways on     zwinger doctor --fix   |   --backend none (no walls at all)",
        .held.level, .held.reason
    )]
    NotMet {
        /// Its name.
        dimension: &'static str,
        /// What there would be of it.
        held: Held,
    },
}

/// A name that is no backend.
#[derive(Debug, thiserror::Error)]
#[error("unknown backend `{0}`; known are auto, landlock, none")]
pub struct UnknownBackend(String);

impl Backend {
    /// The steps that raise these walls. Pure.
    ///
    /// # Errors
    /// When they would hold less than is required: why, and what would help.
    pub fn plan(self, confinement: &Confinement, around: &Surroundings) -> Result<Plan, BackendError> {
        if let Some(path) = confinement.shown_in_vain(&around.scan) {
            return Err(BackendError::ShownInVain(path.clone()));
        }
        match self {
            Self::Landlock if around.landlock_abi == 0 => Err(BackendError::NoLandlock),
            Self::Landlock => {
                if let Some(secret) = &around.linked {
                    return Err(BackendError::SecretLinked { secret: secret.clone() });
                }
                let plan = plan::landlock(confinement, around);
                match plan.enforcement.shortfall(confinement) {
                    Some((dimension, held)) => Err(BackendError::NotMet { dimension, held: held.clone() }),
                    None => Ok(plan),
                }
            }
            Self::None => Ok(plan::without_walls(confinement, around)),
        }
    }
}

impl FromStr for Backend {
    type Err = UnknownBackend;

    /// `auto` takes the first backend that holds what is required; so far that is landlock.
    fn from_str(name: &str) -> Result<Self, UnknownBackend> {
        match name {
            "auto" | "landlock" => Ok(Self::Landlock),
            "none" => Ok(Self::None),
            other => Err(UnknownBackend(other.to_owned())),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Landlock => "landlock",
            Self::None => "none",
        })
    }
}

impl Surroundings {
    /// Looks at this machine, process and workspace. Whether namespaces are permitted is found out by trying, so it is assumed here.
    pub fn of(confinement: &Confinement) -> Self {
        let (top, top_links) = top();
        let home_visible = home_visible(confinement);
        let scan = Scan::of(confinement.workspace());
        Self {
            environment: std::env::vars_os().collect(),
            root_caller: rustix::process::geteuid().is_root(),
            no_namespaces: None,
            landlock_abi: walls::landlock_abi(),
            top,
            top_links,
            bounded_ids: rustix::system::uname().release().to_str().is_ok_and(task_ids::are_bounded_apart),
            path: std::env::var_os("PATH").iter().flat_map(std::env::split_paths).filter_map(real_directory).collect(),
            home_hidden: home_hidden(confinement, &home_visible),
            home_visible,
            readable: Vec::new(),
            linked: linked(&confinement.hidden(&scan)),
            scan,
            state: None,
            temporary: None,
            no_quarantine: None,
            task_group: None,
        }
        .with_task_group(confinement.limits.tasks)
    }

    /// The same where user namespaces are refused, with a private directory in the place of a private /tmp.
    ///
    /// # Errors
    /// When a file of the workspace or of a grant would have to be hidden, which only a mount can do.
    pub(crate) fn without_namespaces(
        &self,
        reason: String,
        confinement: &Confinement,
        temporary: &Path,
    ) -> Result<Self, BackendError> {
        if let Some(secret) = confinement.hidden(&self.scan).into_iter().next() {
            return Err(BackendError::SecretsExposed { secret, reason });
        }
        let granted = |state: &&HostPath| confinement.is_granted(state);
        if let Some(state) = self.state.as_ref().filter(granted).cloned() {
            return Err(BackendError::StateExposed { state, reason });
        }
        let readable = plan::readable(confinement, self, &children);
        let temporary = Some(temporary.to_owned());
        let around = Self { no_namespaces: Some(reason), temporary, readable, ..self.clone() };
        Ok(around.with_task_group(confinement.limits.tasks))
    }
}

/// The first file that has more names than are hidden.
fn linked(hidden: &[HostPath]) -> Option<HostPath> {
    let status = |path: &HostPath| {
        let status = rustix::fs::lstat(&**path).ok()?;
        (FileType::from_raw_mode(status.st_mode) == FileType::RegularFile).then_some(status)
    };
    let found: Vec<_> = hidden.iter().filter_map(|path| Some((path, status(path)?))).collect();
    let names = |of: &Stat| found.iter().filter(|(_, has)| (has.st_dev, has.st_ino) == (of.st_dev, of.st_ino)).count();
    let mut exposed =
        found.iter().filter(|(_, status)| status.st_nlink > 1 && usize::try_from(status.st_nlink) != Ok(names(status)));
    exposed.next().map(|(path, _)| (*path).clone())
}

/// An entry of PATH; a relative one would name a directory of the workspace.
fn real_directory(path: PathBuf) -> Option<HostPath> {
    path.is_absolute().then(|| canonical(&path).ok()).flatten().map(HostPath::from)
}

/// The directories at the top of the tree, and the links with what they lead to.
fn top() -> (Vec<HostPath>, Vec<(HostPath, HostPath)>) {
    let (mut directories, mut links) = (Vec::new(), Vec::new());
    // What cannot be listed is not in the tree inside either.
    let _ = directory::list(Path::new("/"), |name, kind| {
        let path = Path::new("/").join(name);
        match kind {
            FileType::Directory => directories.push(path.into()),
            FileType::Symlink => links.extend(path.read_link().ok().map(|target| (path.into(), target.into()))),
            _ => {}
        }
        true
    });
    directories.sort();
    (directories, links)
}

fn home_visible(confinement: &Confinement) -> Vec<(HostPath, HostPath)> {
    let named = HOME_VISIBLE.iter().filter_map(|entry| Some(confinement.home()?.join(entry)));
    named.filter_map(|named| canonical(&named).ok().map(|real| (named.into(), real.into()))).collect()
}

/// Where the credentials are in what is visible, or would be if somebody made them; and what they lead to, if they are links.
fn home_hidden(confinement: &Confinement, visible: &[(HostPath, HostPath)]) -> Vec<HostPath> {
    let mut hidden = Vec::new();
    for path in HOME_HIDDEN.iter().filter_map(|entry| Some(confinement.home()?.join(entry))) {
        let place = visible.iter().find_map(|(named, real)| Some(real.join(path.strip_prefix(named).ok()?)));
        let place = place.unwrap_or(path);
        hidden.extend(canonical(&place).ok().filter(|real| *real != place).map(HostPath::from));
        hidden.push(place.into());
    }
    hidden
}

/// The entries that are no links: a rule on a link is one on what it leads to.
fn children(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let _ = directory::list(directory, |name, kind| {
        if kind != FileType::Symlink {
            found.push(directory.join(name));
        }
        true
    });
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_landlock_nothing_is_built() {
        let workspace = tempfile::tempdir().unwrap();
        let confinement = Confinement::new(workspace.path(), None).unwrap();
        let around = Surroundings { landlock_abi: 0, ..Surroundings::of(&confinement) };
        // No backend stands in for it, least of all none.
        for name in ["auto", "landlock"] {
            let refused = name.parse::<Backend>().unwrap().plan(&confinement, &around);
            assert!(matches!(refused, Err(BackendError::NoLandlock)), "{name}");
        }
        assert!(Backend::None.plan(&confinement, &around).is_ok());
    }

    #[test]
    fn state_in_a_directory_of_the_system_is_hidden_there() {
        let workspace = tempfile::tempdir().unwrap();
        let confinement = Confinement::new(workspace.path(), None).unwrap();
        let state = HostPath::from("/usr/share/zwinger");
        let around = Surroundings { state: Some(state.clone()), landlock_abi: 7, ..Surroundings::of(&confinement) };
        let plan = Backend::Landlock.plan(&confinement, &around).unwrap();
        assert!(plan.mounts.unwrap().hidden.contains(&state));
        let without = around.without_namespaces("none here".into(), &confinement, workspace.path()).unwrap();
        assert!(without.readable.contains(&"/usr/bin".into()));
        assert!(!without.readable.iter().any(|readable| state.starts_with(readable)));
    }

    #[test]
    fn walls_that_hold_less_than_is_required_are_none() {
        let workspace = tempfile::tempdir().unwrap();
        let mut confinement = Confinement::new(workspace.path(), None).unwrap();
        let around = Surroundings::of(&confinement);
        let lacks = |confinement: &Confinement, around: &Surroundings| match Backend::Landlock.plan(confinement, around)
        {
            Err(BackendError::NotMet { dimension, .. }) => Some(dimension),
            other => other.map(|_| None).unwrap(),
        };
        assert_eq!(lacks(&confinement, &Surroundings { landlock_abi: 2, ..around.clone() }), Some("files"));
        let bare = Surroundings {
            landlock_abi: 7,
            no_namespaces: Some("none here".into()),
            no_quarantine: Some("nowhere".into()),
            ..around.clone()
        };
        assert_eq!(lacks(&confinement, &bare), Some("metadata"));
        assert_eq!(lacks(&confinement, &Surroundings { no_quarantine: None, ..bare }), None);
        // What the person asks for is no shortfall.
        confinement.set_network(crate::Network::On);
        confinement.allow(crate::Exceptions { ptrace: true, user_namespaces: true });
        assert_eq!(lacks(&confinement, &Surroundings { landlock_abi: 7, ..around }), None);
    }
}

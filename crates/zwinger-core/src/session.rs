//! zwinger's own files: `$XDG_STATE_HOME/zwinger` (default `~/.local/state/zwinger`), closed to others and outside every workspace.

mod stored;
mod terms;

use std::fmt;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zwinger_sandbox::{Confinement, PathError, Root};

pub use stored::{Granted, Kept, Listed, Opening, Reference, Sessions, Stored, StoredError, Which};
pub use terms::GrantTerms;

/// Names a session: 16 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct SessionId(String);

impl SessionId {
    /// A new one.
    pub fn random() -> Self {
        Self(random_id())
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for SessionId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SessionId {
    type Error = StoredError;

    fn try_from(text: String) -> Result<Self, StoredError> {
        let is_id = text.len() == DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if is_id { Ok(Self(text)) } else { Err(StoredError::NotAnId(text)) }
    }
}

const DIGITS: usize = 16;

/// 16 hexadecimal digits that nobody can guess. Falls back to time and pid where the kernel has no randomness yet.
pub(crate) fn random_id() -> String {
    let mut random = [0_u8; DIGITS / 2];
    match rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty()) {
        Ok(_) => format!("{:016x}", u64::from_ne_bytes(random)),
        Err(_) => {
            let now = format!("{}-{}", jiff::Timestamp::now().as_nanosecond(), std::process::id());
            first_digits(now.as_bytes())
        }
    }
}

/// Of the hash of something.
fn first_digits(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().chars().take(DIGITS).collect()
}

/// The state directory, opened.
#[derive(Debug)]
pub struct State {
    root: Root,
    path: PathBuf,
}

/// Why there is no state directory to use.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Neither variable is set.
    #[error(
        "neither XDG_STATE_HOME nor HOME is set to an absolute path, and /etc/passwd names no home directory, so there is no place for the audit log; set XDG_STATE_HOME"
    )]
    Nowhere,
    /// It cannot be made or used.
    #[error("the state directory {0} cannot be used: {1}; mend it, or set XDG_STATE_HOME to another place")]
    Unusable(PathBuf, std::io::Error),
    /// A model could write its own audit.
    #[error("the state directory {0} can be written from inside the walls; set XDG_STATE_HOME to another place")]
    Exposed(PathBuf),
    /// Nothing inside sees any of it.
    #[error("{0} is a part of zwinger's own state, which is hidden from commands; leave that --read out")]
    Granted(PathBuf),
}

impl State {
    /// Where the environment says that state belongs; without one, below the home directory that /etc/passwd gives the caller.
    ///
    /// # Errors
    /// [`StateError::Nowhere`].
    pub fn default_path() -> Result<PathBuf, StateError> {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        absolute("XDG_STATE_HOME")
            .or_else(|| absolute("HOME").or_else(zwinger_sandbox::home_of_user).map(|home| home.join(".local/state")))
            .map(|base| base.join("zwinger"))
            .ok_or(StateError::Nowhere)
    }

    /// Opens or makes it.
    ///
    /// # Errors
    /// As [`StateError`] says.
    pub fn open(path: &Path, confinement: &Confinement) -> Result<Self, StateError> {
        let unusable = |error| StateError::Unusable(path.to_owned(), error);
        // A grant below the state exposes a part of it; a workspace beside it is what the walls are for.
        let exposed = |path: &Path| {
            confinement.writable().any(|writable| path.starts_with(writable) || writable.starts_with(path))
        };
        // By its name first, so that nothing is made in a workspace; then by where it really is.
        if exposed(path) {
            return Err(StateError::Exposed(path.to_owned()));
        }
        let root = Root::create_private(path).map_err(unusable)?;
        let real = root.path().map_err(unusable)?;
        if exposed(&real) {
            return Err(StateError::Exposed(real));
        }
        if let Some(granted) = confinement.granted_in(&real) {
            return Err(StateError::Granted(granted.to_owned()));
        }
        let audit = path.join("audit");
        Root::create_private(&audit).map_err(|error| StateError::Unusable(audit, error))?;
        Ok(Self { root, path: real })
    }

    /// The audit log, for reading and appending.
    pub(crate) fn audit_log(&self) -> Result<File, PathError> {
        self.root.append(Path::new(Self::AUDIT))
    }

    /// Where it really is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the audit log is, for people.
    pub fn audit_path(&self) -> PathBuf {
        self.path.join(Self::AUDIT)
    }

    /// The directory for a workspace, by its canonical root. Not made here.
    pub(crate) fn of_workspace(&self, workspace: &Path) -> PathBuf {
        of_workspace(&self.path, workspace)
    }

    pub(crate) const AUDIT: &str = "audit/audit.jsonl";
}

/// Below the state directory `state`.
fn of_workspace(state: &Path, workspace: &Path) -> PathBuf {
    state.join("workspaces").join(first_digits(workspace.as_os_str().as_bytes()))
}

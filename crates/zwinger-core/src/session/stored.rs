//! Sessions that outlive their process: `workspaces/ID/sessions/SID/session.json` in the state directory.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use zwinger_sandbox::{DirectoryLock, PathError, PrivateDirectory, read_up_to};

use super::{GrantTerms, SessionId, State, of_workspace};
use crate::gate::Grant;
use crate::policy::Mode;

/// Sessions that are listed at most; they are kept for 30 days.
const MOST: usize = 100_000;
const FILE: &str = "session.json";
/// Of the format of that file.
const VERSION: u32 = 1;
/// Bytes of that file at most.
const MAX_FILE: usize = 4 << 20;

/// A session that was not used for so long goes at the opening of another.
const KEPT_FOR: Duration = Duration::from_secs(30 * 24 * 3600);
/// Bytes that the sessions of a workspace may take, the ones last used first.
const KEPT_BYTES: u64 = 1 << 30;

/// How often it is tried to get at one, and the pause between.
const LOOKS: u32 = 20;
const LOOK: Duration = Duration::from_millis(5);

/// How a session is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// The way in, for the audit.
    pub door: String,
    /// What the person asked for; otherwise that of the stored session, or [`Mode::Sandbox`].
    pub mode: Option<Mode>,
    /// Which session.
    pub which: Which,
    /// Whether the session ends with its first call, so that nothing can go on in the background.
    pub one_call: bool,
}

impl Opening {
    /// Of a session that ends with its process.
    pub fn ephemeral(door: &str) -> Self {
        Self { door: door.into(), mode: None, which: Which::Ephemeral, one_call: false }
    }

    /// The mode of the session. A looser one than the default is never taken from a file.
    pub(crate) fn mode(&self, resumed: Option<&Resumed>) -> Result<Mode, StoredError> {
        match (self.mode, resumed) {
            (Some(mode), _) => Ok(mode),
            (None, None) => Ok(Mode::Sandbox),
            (None, Some(Resumed { stored, .. })) if stored.mode > Mode::Sandbox => {
                Err(StoredError::Looser(stored.id.clone(), stored.mode))
            }
            (None, Some(resumed)) => Ok(resumed.stored.mode),
        }
    }
}

/// Whether a session is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// A new one that ends with its process.
    Ephemeral,
    /// A new one that is kept.
    New,
    /// One that was kept.
    Stored(Reference),
}

/// Names a stored session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// The one last used on the workspace.
    Last,
    /// This one.
    Id(SessionId),
}

impl FromStr for Reference {
    type Err = StoredError;

    fn from_str(text: &str) -> Result<Self, StoredError> {
        if text == "last" { Ok(Self::Last) } else { SessionId::try_from(text.to_owned()).map(Self::Id) }
    }
}

/// Why a stored session cannot be used; it is as it was.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// The text names none.
    #[error("{0:?} is no session: give 16 hexadecimal digits, or last")]
    NotAnId(String),
    /// There is none.
    #[error("no session is stored for this workspace; \"zwinger ask\" opens one")]
    None,
    /// There is none of this name.
    #[error("there is no session {0} on this workspace; \"zwinger session list\" shows those that are")]
    Missing(SessionId),
    /// A process has it open.
    #[error("session {0} is in use{1}; end that first")]
    InUse(SessionId, String),
    /// Its file is not what zwinger wrote.
    #[error("session {0} cannot be used: {1}: {2}; look at it, or \"zwinger session delete {0}\"")]
    Mangled(SessionId, PathBuf, String),
    /// It was a looser one, and that only a person may say.
    #[error("session {0} was in mode {1}; say --mode {1} to go on so, or --mode sandbox")]
    Looser(SessionId, Mode),
    /// Its directory cannot be used.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
}

/// What stands in `session.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stored {
    version: u32,
    /// Its name.
    pub id: SessionId,
    /// The canonical root; what is no UTF-8 in it replaced.
    pub workspace: String,
    /// The way in by which it was opened first.
    pub door: String,
    /// Its mode.
    pub mode: Mode,
    /// What it has read of confidential; nothing is classified yet, so that a file that says so is another version's.
    taint: Option<String>,
    /// What was granted for the session, by the terms under which it was.
    #[serde(default)]
    pub granted: Vec<Granted>,
    /// What an older version granted without saying under which terms: it holds under none.
    #[serde(default, skip_serializing, deserialize_with = "ignored")]
    grants: (),
    /// The process that used it last.
    pub pid: u32,
    /// When it was opened first, RFC 3339.
    pub started: String,
    /// When it was used last, RFC 3339.
    pub last_used: String,
}

/// What was granted under the same terms; it holds under these alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Granted {
    /// The terms.
    pub under: GrantTerms,
    /// What was granted.
    pub grants: BTreeSet<Grant>,
}

/// The sessions of one workspace.
#[derive(Debug)]
pub struct Sessions {
    directory: PrivateDirectory,
    workspace: PathBuf,
}

/// A session as it is listed.
#[derive(Debug)]
pub struct Listed {
    /// Its name.
    pub id: SessionId,
    /// What stands in its file, or why that cannot be used.
    pub stored: Result<Stored, StoredError>,
    /// Whether a process has it open.
    pub is_in_use: bool,
    used: SystemTime,
}

/// One that was stored, before anything goes on in it. Nobody else can open it until it is dropped.
#[derive(Debug)]
pub(crate) struct Resumed {
    directory: PrivateDirectory,
    stored: Stored,
    lock: DirectoryLock,
}

/// An open session that is kept. Nobody else can open it until it is dropped.
#[derive(Debug)]
pub struct Kept {
    directory: PrivateDirectory,
    stored: Stored,
    terms: GrantTerms,
    lock: DirectoryLock,
}

impl Sessions {
    /// Those of the workspace with this canonical root, in an open state. Old ones are removed.
    ///
    /// # Errors
    /// When their directory cannot be made or used.
    pub(crate) fn open(state: &State, workspace: &Path) -> Result<Self, StoredError> {
        let path = state.of_workspace(workspace).join("sessions");
        let directory = PrivateDirectory::create(&path).map_err(|error| StoredError::Io(path, error))?;
        let sessions = Self { directory, workspace: workspace.to_owned() };
        // What cannot be removed now is tried again at the next opening.
        let _ = sessions.prune();
        Ok(sessions)
    }

    /// Opens what is there and makes nothing: `None` where there are none. `state` is where [`State::default_path`] says.
    ///
    /// # Errors
    /// When their directory cannot be used.
    pub fn existing(state: &Path, workspace: &Path) -> Result<Option<Self>, StoredError> {
        let path = of_workspace(state, workspace).join("sessions");
        let directory = PrivateDirectory::existing(&path).map_err(|error| StoredError::Io(path, error))?;
        Ok(directory.map(|directory| Self { directory, workspace: workspace.to_owned() }))
    }

    /// All of them, the one last used first.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn list(&self) -> Result<Vec<Listed>, StoredError> {
        let mut listed = Vec::new();
        for id in self.ids()? {
            // Gone meanwhile, or none of ours.
            let Ok(directory) = self.find(&id) else { continue };
            let (used, _) = directory.usage(FILE).map_err(|error| self.io(error))?;
            let is_in_use = directory.lock().map_err(|error| self.io(error))?.is_none();
            listed.push(Listed { stored: self.read(&directory, &id), id, is_in_use, used });
        }
        listed.sort_by(|a, b| (b.used, &b.id).cmp(&(a.used, &a.id)));
        Ok(listed)
    }

    /// The one that is meant. One that is named need not be there.
    ///
    /// # Errors
    /// [`StoredError::None`] when there is no last one.
    pub fn named(&self, reference: &Reference) -> Result<SessionId, StoredError> {
        match reference {
            Reference::Id(id) => Ok(id.clone()),
            Reference::Last => Ok(self.list()?.into_iter().next().ok_or(StoredError::None)?.id),
        }
    }

    /// A new one.
    ///
    /// # Errors
    /// When it cannot be written down; nothing of it is left then.
    pub(crate) fn create(&self, door: &str, mode: Mode, terms: GrantTerms) -> Result<Kept, StoredError> {
        let id = SessionId::random();
        let path = self.directory.path().join(id.as_ref());
        let directory = PrivateDirectory::create(&path).map_err(|error| self.io(error))?;
        let lock = directory.lock().map_err(|error| self.io(error))?;
        let lock = lock.ok_or_else(|| StoredError::InUse(id.clone(), String::new()))?;
        let now = now();
        let stored = Stored {
            version: VERSION,
            id,
            workspace: self.workspace.to_string_lossy().into_owned(),
            door: door.into(),
            mode,
            taint: None,
            granted: Vec::new(),
            grants: (),
            pid: std::process::id(),
            started: now.clone(),
            last_used: now,
        };
        let kept = Kept { directory, stored, terms, lock };
        match kept.store(&BTreeSet::new()) {
            Ok(()) => Ok(kept),
            Err(error) => {
                let _ = kept.directory.remove(kept.lock);
                Err(error)
            }
        }
    }

    /// One that was stored.
    ///
    /// # Errors
    /// As [`StoredError`] says.
    pub(crate) fn resume(&self, reference: &Reference) -> Result<Resumed, StoredError> {
        let id = self.named(reference)?;
        let (directory, lock) = self.take(&id)?;
        let mut stored = self.read(&directory, &id)?;
        stored.pid = std::process::id();
        Ok(Resumed { directory, stored, lock })
    }

    /// Removes one, whatever stands in it, unless a process uses it.
    ///
    /// # Errors
    /// As [`StoredError`] says.
    pub fn delete(&self, id: &SessionId) -> Result<(), StoredError> {
        let (directory, lock) = self.take(id)?;
        directory.remove(lock).map_err(|error| self.io(error))
    }

    /// Removes those that are too old or take too much room. What is in use stays.
    ///
    /// # Errors
    /// When the directory cannot be read.
    fn prune(&self) -> Result<(), StoredError> {
        let mut kept = Vec::new();
        for id in self.ids()? {
            let Ok(directory) = self.find(&id) else { continue };
            if let Ok((used, bytes)) = directory.usage(FILE) {
                kept.push((used, bytes, directory));
            }
        }
        kept.sort_by_key(|(used, ..)| std::cmp::Reverse(*used));
        let mut total = 0_u64;
        for (used, bytes, directory) in kept {
            total = total.saturating_add(bytes);
            // A time to come is as good as now: the clock may have been put back.
            let age = SystemTime::now().duration_since(used).unwrap_or_default();
            if (age > KEPT_FOR || total > KEPT_BYTES)
                && let Ok(Some(lock)) = directory.lock()
            {
                directory.remove(lock).map_err(|error| self.io(error))?;
            }
        }
        Ok(())
    }

    fn ids(&self) -> Result<Vec<SessionId>, StoredError> {
        let entries = self.directory.root().list(Path::new("."), MOST).map_err(|error| match error {
            PathError::Io(error) => self.io(error),
            other => self.io(io::Error::other(other)),
        })?;
        Ok(entries.into_iter().filter_map(|entry| entry.name.into_string().ok()?.try_into().ok()).collect())
    }

    fn find(&self, id: &SessionId) -> Result<PrivateDirectory, StoredError> {
        let found = self.directory.child(id.as_ref());
        found.map_err(|error| self.mangled(id, &error))?.ok_or_else(|| StoredError::Missing(id.clone()))
    }

    fn take(&self, id: &SessionId) -> Result<(PrivateDirectory, DirectoryLock), StoredError> {
        let directory = self.find(id)?;
        // Who only looks whether it is in use has it for a moment.
        for _ in 0..LOOKS {
            if let Some(lock) = directory.lock().map_err(|error| self.io(error))? {
                return Ok((directory, lock));
            }
            std::thread::sleep(LOOK);
        }
        let by = self.read(&directory, id).map(|stored| format!(" by process {}", stored.pid));
        Err(StoredError::InUse(id.clone(), by.unwrap_or_default()))
    }

    fn read(&self, directory: &PrivateDirectory, id: &SessionId) -> Result<Stored, StoredError> {
        let mangled = |why: &dyn std::fmt::Display| self.mangled(id, why);
        let mut file = directory.root().open_file(Path::new(FILE)).map_err(|error| mangled(&error))?;
        let bytes = read_up_to(&mut file, MAX_FILE).map_err(|error| mangled(&error))?;
        let bytes = bytes.ok_or_else(|| mangled(&"it is too large"))?;
        let stored: Stored = serde_json::from_slice(&bytes).map_err(|error| mangled(&error))?;
        if stored.version != VERSION || stored.taint.is_some() {
            return Err(mangled(&"it is another version's"));
        }
        if stored.id != *id || stored.workspace != self.workspace.to_string_lossy() {
            return Err(mangled(&"it is another session's"));
        }
        Ok(stored)
    }

    fn mangled(&self, id: &SessionId, why: &dyn std::fmt::Display) -> StoredError {
        let path = self.directory.path().join(id.as_ref()).join(FILE);
        StoredError::Mangled(id.clone(), path, why.to_string())
    }

    fn io(&self, error: io::Error) -> StoredError {
        StoredError::Io(self.directory.path().to_owned(), error)
    }
}

impl Resumed {
    /// Writes down that it is used again, in this mode and under these terms.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn go_on(self, mode: Mode, terms: GrantTerms) -> Result<Kept, StoredError> {
        let Self { directory, stored, lock } = self;
        let kept = Kept { directory, stored: Stored { mode, ..stored }, terms, lock };
        kept.store(&kept.grants())?;
        Ok(kept)
    }
}

impl Kept {
    /// Its name.
    pub fn id(&self) -> &SessionId {
        &self.stored.id
    }

    /// What was granted under these terms.
    pub(crate) fn grants(&self) -> BTreeSet<Grant> {
        let same = self.stored.granted.iter().filter(|granted| granted.under == self.terms);
        same.flat_map(|granted| granted.grants.clone()).collect()
    }

    /// What was granted under others. It stays stored.
    pub(crate) fn others(&self) -> impl Iterator<Item = &Granted> {
        self.stored.granted.iter().filter(|granted| granted.under != self.terms)
    }

    /// Writes it down as it is now, with what is granted under these terms: the old file or the new one is there, whatever happens.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn store(&self, grants: &BTreeSet<Grant>) -> Result<(), StoredError> {
        // JSON has no other text; what is named otherwise is asked for again.
        let is_text = |grant: &&Grant| !matches!(grant, Grant::File(path) if path.as_ref().to_str().is_none());
        let grants: BTreeSet<_> = grants.iter().filter(is_text).cloned().collect();
        let these = (!grants.is_empty()).then(|| Granted { under: self.terms.clone(), grants });
        let granted = self.others().cloned().chain(these).collect();
        let stored = Stored { granted, last_used: now(), ..self.stored.clone() };
        let written = serde_json::to_vec_pretty(&stored).map_err(io::Error::other).and_then(|bytes| {
            if bytes.len() > MAX_FILE {
                return Err(io::Error::other("too many grants to be kept"));
            }
            self.directory.root().write(Path::new(FILE), &bytes, |_| Ok(true)).map_err(io::Error::other)
        });
        written.map_err(|error| StoredError::Io(self.directory.path().join(FILE), error))
    }
}

fn ignored<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| ())
}

fn now() -> String {
    jiff::Timestamp::now().to_string()
}

//! What really holds: one level a dimension, with the reason when it is not full. Returned by every launch.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::confinement::{Confinement, Exceptions, Network};

/// How much of a dimension the kernel holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing holds.
    None,
    /// Something holds; the reason says what does not.
    Partial,
    /// All that the promise of the dimension says.
    Full,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Partial => "partial",
            Self::Full => "full",
        })
    }
}

/// One dimension's level and, unless it is full, why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// How much holds.
    pub level: Level,
    /// Why not more; empty when full.
    pub reason: String,
}

impl Held {
    /// Everything that is promised.
    pub fn full() -> Self {
        Self { level: Level::Full, reason: String::new() }
    }

    /// A part of what is promised.
    pub fn partial(reason: impl Into<String>) -> Self {
        Self { level: Level::Partial, reason: reason.into() }
    }

    /// Nothing of what is promised.
    pub fn none(reason: impl Into<String>) -> Self {
        Self { level: Level::None, reason: reason.into() }
    }
}

/// What the walls of one launch hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforcement {
    /// Reads and writes outside what the confinement grants are refused.
    pub files: Held,
    /// No way out other than the one that was asked for.
    pub network: Held,
    /// Dangerous system calls are refused.
    pub syscalls: Held,
    /// Processes cannot outlive their session, be signalled from inside or exceed their number.
    pub processes: Held,
    /// Memory of a command's whole tree is bounded.
    pub memory: Held,
    /// Protected files of the workspace cannot be changed.
    pub metadata: Held,
    /// Hidden files of the workspace cannot be read.
    pub secrets: Held,
}

impl Enforcement {
    /// No walls at all.
    pub fn nothing(reason: &str) -> Self {
        let none = || Held::none(reason);
        Self {
            files: none(),
            network: none(),
            syscalls: none(),
            processes: none(),
            memory: none(),
            metadata: none(),
            secrets: none(),
        }
    }

    /// The first dimension that holds less than is required of walls, other than by the confinement's own terms: files, network
    /// and system calls in full; processes, metadata, a memory limit and the hiding of what is hidden at least in part.
    pub(crate) fn shortfall(&self, confinement: &Confinement) -> Option<(&'static str, &Held)> {
        let is_required = |name| match name {
            "network" if confinement.network() == Network::On => Level::None,
            "syscalls" if confinement.allow != Exceptions::default() => Level::None,
            "memory" if confinement.limits.memory.is_none() => Level::None,
            "files" | "network" | "syscalls" => Level::Full,
            _ => Level::Partial,
        };
        self.dimensions().into_iter().find(|(name, held)| held.level < is_required(*name))
    }

    /// The dimensions with their names, in the fixed order of every listing.
    pub fn dimensions(&self) -> [(&'static str, &Held); 7] {
        [
            ("files", &self.files),
            ("network", &self.network),
            ("syscalls", &self.syscalls),
            ("processes", &self.processes),
            ("memory", &self.memory),
            ("metadata", &self.metadata),
            ("secrets", &self.secrets),
        ]
    }
}

impl fmt::Display for Enforcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, held)) in self.dimensions().into_iter().enumerate() {
            let separator = if index == 0 { "" } else { " · " };
            write!(f, "{separator}{name} {}", held.level)?;
        }
        Ok(())
    }
}

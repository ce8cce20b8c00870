//! What a call wants, well formed, and what that does to the world.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use crate::edit::Edit;
use crate::error::Invalid;
use crate::executor::JobId;
use crate::executor::wire::Present;

/// A path as the model gave it, without NUL and not absolute. That it stays beneath the workspace is for the kernel to say
/// when it is opened; what can be seen from the text alone is refused here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct WorkspacePath(PathBuf);

impl WorkspacePath {
    /// Takes a relative path, or an absolute one inside the workspace by any of its names in `roots`.
    ///
    /// # Errors
    /// For the model: what is wrong with the path.
    pub fn parse(text: &str, roots: &[&Path]) -> Result<Self, Invalid> {
        if text.is_empty() || text.contains('\0') {
            return Err(Invalid::Path(format!("{text:?} is not a path; give one relative to the workspace")));
        }
        if text == "~" || text.starts_with("~/") {
            let path = crate::escape::line(text);
            return Err(Invalid::Path(format!("{path}: ~ is not expanded; give a path relative to the workspace")));
        }
        let path = Path::new(text);
        let relative = match roots.iter().find_map(|root| path.strip_prefix(root).ok()) {
            Some(inside) if inside.as_os_str().is_empty() => Path::new("."),
            Some(inside) => inside,
            None if path.is_absolute() => return Err(outside(text)),
            None => path,
        };
        // A link may make a path that counts to zero leave all the same; that one the kernel refuses.
        let mut depth = 0_i64;
        for component in relative.components() {
            match component {
                std::path::Component::ParentDir => depth -= 1,
                std::path::Component::Normal(_) => depth += 1,
                _ => {}
            }
            if depth < 0 {
                return Err(outside(text));
            }
        }
        // A trailing slash names a directory; `PathBuf` keeps it in its text.
        Ok(Self(relative.to_owned()))
    }
}

impl WorkspacePath {
    /// The workspace itself.
    pub(crate) fn is_workspace(&self) -> bool {
        self.0 == Path::new(".")
    }

    /// A path that the executor resolved: relative, and without `..`.
    ///
    /// # Errors
    /// When it is something else.
    pub(crate) fn resolved(path: &Path) -> Result<Self, Invalid> {
        let normal = path.components().all(|component| matches!(component, std::path::Component::Normal(_)));
        if path == Path::new(".") || normal && !path.as_os_str().is_empty() {
            Ok(Self(path.to_owned()))
        } else {
            Err(outside(&path.to_string_lossy()))
        }
    }
}

fn outside(path: &str) -> Invalid {
    Invalid::Path(format!("{} is outside the workspace.", crate::escape::line(path)))
}

impl AsRef<Path> for WorkspacePath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

/// Only one that was resolved, for what is stored may have been changed by others.
impl<'de> Deserialize<'de> for WorkspacePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::resolved(&PathBuf::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for WorkspacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::escape::line(&self.0.to_string_lossy()))
    }
}

/// Something that a tool can do. Closed: every place that must know an action is found by the compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Read lines of a file.
    Read {
        /// Which file.
        path: WorkspacePath,
        /// First line, from 1.
        offset: u64,
        /// Lines at most.
        limit: u64,
        /// Whether each line comes with its number.
        numbers: bool,
    },
    /// List a directory.
    List {
        /// Which directory.
        path: WorkspacePath,
        /// Levels of directories, from 1.
        depth: u32,
    },
    /// Write a whole file.
    Write {
        /// Which file.
        path: WorkspacePath,
        /// Its new content.
        content: String,
        /// What is there now; the write is refused when it is not there any more.
        before: Option<Present>,
    },
    /// Replace a part of a file.
    Edit {
        /// Which file.
        path: WorkspacePath,
        /// What by what.
        edit: Edit,
        /// What comes of it; known when the file was looked at.
        edited: Edited,
    },
    /// Run a command with `/bin/sh -c`.
    Run {
        /// The command line.
        command: String,
        /// Wall time; `None`: as long as the session.
        timeout: Option<Duration>,
        /// Where it starts.
        directory: WorkspacePath,
        /// Whether one more wall keeps it from writing and from the network.
        read_only: bool,
        /// Whether the call comes back while it runs.
        background: bool,
    },
    /// Show what a command in the background printed.
    JobOutput {
        /// Its number.
        job: JobId,
    },
    /// Stop a command in the background.
    JobStop {
        /// Its number.
        job: JobId,
    },
    /// Something that an embedder's own tool does.
    Custom {
        /// The tool.
        name: &'static str,
        /// All that it does.
        effects: Vec<Effect>,
        /// What the tool gets.
        arguments: serde_json::Value,
    },
    /// Tell the time.
    Time,
}

/// A file with an edit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edited {
    /// Its new content.
    pub content: String,
    /// Places that change.
    pub places: usize,
    /// What is there now; the edit is refused when it is not there any more.
    pub before: Option<Present>,
}

/// What an action does to the world; the policy judges nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Reads, lists or searches beneath a path.
    Read(WorkspacePath),
    /// Makes or replaces a file.
    Write(WorkspacePath),
    /// Runs a command line.
    Execute {
        /// The command line.
        command: String,
        /// Whether one more wall keeps it from writing and from the network.
        read_only: bool,
    },
    /// Looks at a command in the background that this session started, or stops it.
    Job,
    /// Looks at the clock.
    Clock,
}

impl Action {
    /// Everything that the action does. Never empty: the policy denies what has no effect it knows.
    pub fn effects(&self) -> Vec<Effect> {
        match self {
            Self::Read { path, .. } | Self::List { path, .. } => vec![Effect::Read(path.clone())],
            Self::Write { path, .. } => vec![Effect::Write(path.clone())],
            Self::Edit { path, .. } => vec![Effect::Read(path.clone()), Effect::Write(path.clone())],
            Self::Run { command, read_only, .. } => {
                vec![Effect::Execute { command: command.clone(), read_only: *read_only }]
            }
            Self::JobOutput { .. } | Self::JobStop { .. } => vec![Effect::Job],
            Self::Custom { effects, .. } => effects.clone(),
            Self::Time => vec![Effect::Clock],
        }
    }

    /// The canonical name of its tool.
    pub fn tool(&self) -> &'static str {
        match self {
            Self::Read { .. } => "read_file",
            Self::List { .. } => "list_directory",
            Self::Write { .. } => "write_file",
            Self::Edit { .. } => "edit_file",
            Self::Run { .. } => "run_command",
            Self::JobOutput { .. } => "job_output",
            Self::JobStop { .. } => "job_stop",
            Self::Custom { name, .. } => name,
            Self::Time => "get_time",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<PathBuf, Invalid> {
        WorkspacePath::parse(text, &[Path::new("/work"), Path::new("/link")]).map(|path| path.0)
    }

    #[test]
    fn paths_inside_by_both_spellings() {
        assert_eq!(parse("a/b").unwrap(), Path::new("a/b"));
        assert_eq!(parse("/work/a/b").unwrap(), Path::new("a/b"));
        assert_eq!(parse("/work").unwrap(), Path::new("."));
        assert_eq!(parse("/link/a").unwrap(), Path::new("a"));
        assert_eq!(parse("a/../b").unwrap(), Path::new("a/../b"));
        assert_eq!(parse("..%2fx").unwrap(), Path::new("..%2fx"));
    }

    #[test]
    fn w1_paths_outside_are_refused_by_their_text() {
        for path in ["..", "../x", "a/../../x", "/etc/passwd", "/work-evil/x", "/work/../etc", "/", "//etc"] {
            assert!(parse(path).unwrap_err().to_string().ends_with("is outside the workspace."), "{path}");
        }
        for path in ["~", "~/x", "~/a\u{1b}"] {
            assert!(parse(path).unwrap_err().to_string().contains(": ~ is not expanded; "), "{path}");
        }
        // Names that begin with one are names.
        assert_eq!(parse("~x").unwrap(), Path::new("~x"));
        assert_eq!(parse("./~/x").unwrap(), Path::new("./~/x"));
        for path in ["", "a\0b"] {
            assert!(parse(path).unwrap_err().to_string().contains("is not a path"), "{path:?}");
        }
    }
}

//! What arrives at a door: a name and untrusted JSON. Decoding proves that it is well formed, nothing more.

use std::path::Path;

use serde_json::{Map, Value};

use crate::action::{Action, WorkspacePath};
use crate::error::Invalid;
use crate::escape;
use crate::tools;

/// Bytes of a string argument that are accepted; a file to write is the largest.
pub const MAX_TEXT: usize = 8 << 20;

/// An allegation: some model or client wants this tool with these arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Name or alias of the tool.
    pub tool: String,
    /// Its arguments; anything may stand here.
    pub arguments: Value,
}

impl Call {
    /// A call as it came.
    pub fn new(tool: impl Into<String>, arguments: Value) -> Self {
        Self { tool: tool.into(), arguments }
    }

    /// To an action of the workspace with these names, strictly: an unknown tool, an unknown or missing argument or a value of another kind is refused.
    ///
    /// # Errors
    /// For the model: what is wrong and what the tool takes.
    pub fn decode(&self, roots: &[&Path]) -> Result<Action, Invalid> {
        let Some(tool) = tools::find(&self.tool) else {
            let known: Vec<_> = tools::ALL.iter().map(|tool| tool.name).collect();
            return Err(Invalid::Arguments(format!(
                "unknown tool {:?}; the tools are {}",
                escape::line(&self.tool),
                known.join(", ")
            )));
        };
        let empty = Map::new();
        let values = match &self.arguments {
            Value::Object(values) => values,
            Value::Null => &empty,
            _ => {
                return Err(Invalid::Arguments(format!(
                    "{} takes an object of arguments; {}",
                    tool.name,
                    tool.takes()
                )));
            }
        };
        if let Some(unknown) = values.keys().find(|key| !tool.parameters.iter().any(|known| known.name == **key)) {
            return Err(Invalid::Arguments(format!("unknown argument {:?}; {}", escape::line(unknown), tool.takes())));
        }
        (tool.decode)(&Arguments { tool, values, roots })
    }
}

/// The arguments of one call, asked for one by one.
#[derive(Debug)]
pub struct Arguments<'a> {
    tool: &'static tools::Tool,
    values: &'a Map<String, Value>,
    roots: &'a [&'a Path],
}

impl Arguments<'_> {
    fn wrong(&self, name: &str, needed: &str) -> Invalid {
        Invalid::Arguments(format!("{name} must be {needed}; {}", self.tool.takes()))
    }

    /// A text that may be absent.
    ///
    /// # Errors
    /// When it is something else, or longer than [`MAX_TEXT`].
    pub fn optional_text(&self, name: &str) -> Result<Option<&str>, Invalid> {
        match self.values.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.len() > MAX_TEXT => {
                Err(Invalid::Arguments(format!("{name} is longer than {MAX_TEXT} bytes")))
            }
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(name, "a string")),
        }
    }

    /// A text.
    ///
    /// # Errors
    /// When it is absent or as [`Arguments::optional_text`].
    pub fn text(&self, name: &str) -> Result<&str, Invalid> {
        self.optional_text(name)?
            .ok_or_else(|| Invalid::Arguments(format!("missing argument \"{name}\"; {}", self.tool.takes())))
    }

    /// A path beneath the workspace.
    ///
    /// # Errors
    /// As [`WorkspacePath::parse`].
    pub fn path(&self, name: &str) -> Result<WorkspacePath, Invalid> {
        WorkspacePath::parse(self.text(name)?, self.roots)
    }

    /// A path beneath the workspace; the workspace itself when absent.
    ///
    /// # Errors
    /// As [`WorkspacePath::parse`].
    pub fn path_or_workspace(&self, name: &str) -> Result<WorkspacePath, Invalid> {
        WorkspacePath::parse(self.optional_text(name)?.unwrap_or("."), self.roots)
    }

    /// A whole number within bounds, or `default` when absent.
    ///
    /// # Errors
    /// When it is something else or out of bounds.
    pub fn number(&self, name: &str, default: u64, bounds: std::ops::RangeInclusive<u64>) -> Result<u64, Invalid> {
        let value = match self.values.get(name) {
            None | Some(Value::Null) => return Ok(default),
            Some(value) => value,
        };
        let needed = || format!("a whole number from {} to {}", bounds.start(), bounds.end());
        value.as_u64().filter(|number| bounds.contains(number)).ok_or_else(|| self.wrong(name, &needed()))
    }
}

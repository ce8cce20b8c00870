//! The arguments of a call, with the errors that tell a model what to change.

use std::ops::RangeInclusive;
use std::path::Path;

use serde_json::{Map, Value};

use super::Tool;
use crate::action::WorkspacePath;
use crate::error::Invalid;

/// Bytes of a string argument that are accepted; a file to write is the largest.
pub const MAX_TEXT: usize = 8 << 20;

/// The arguments of one call, asked for one by one.
#[derive(Debug)]
pub struct Arguments<'a> {
    tool: &'static Tool,
    values: &'a Map<String, Value>,
    roots: &'a [&'a Path],
}

impl<'a> Arguments<'a> {
    /// Of a call of `tool` in the workspace with these names.
    pub(crate) fn new(tool: &'static Tool, values: &'a Map<String, Value>, roots: &'a [&'a Path]) -> Self {
        Self { tool, values, roots }
    }

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
        self.optional_text(name)?.ok_or_else(|| self.missing(name))
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

    /// Yes or no; no when absent.
    ///
    /// # Errors
    /// When it is something else.
    pub fn flag(&self, name: &str) -> Result<bool, Invalid> {
        match self.values.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(value) => value.as_bool().ok_or_else(|| self.wrong(name, "true or false")),
        }
    }

    /// A whole number within bounds that may be absent.
    ///
    /// # Errors
    /// When it is something else or out of bounds.
    pub fn optional_number(&self, name: &str, bounds: RangeInclusive<u64>) -> Result<Option<u64>, Invalid> {
        let value = match self.values.get(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => value,
        };
        let needed = || match *bounds.end() {
            u64::MAX => format!("a whole number from {}", bounds.start()),
            end => format!("a whole number from {} to {end}", bounds.start()),
        };
        let number = value.as_u64().filter(|number| bounds.contains(number));
        number.map(Some).ok_or_else(|| self.wrong(name, &needed()))
    }

    /// A whole number within bounds, or `default` when absent.
    ///
    /// # Errors
    /// As [`Arguments::optional_number`].
    pub fn number(&self, name: &str, default: u64, bounds: RangeInclusive<u64>) -> Result<u64, Invalid> {
        Ok(self.optional_number(name, bounds)?.unwrap_or(default))
    }

    /// A whole number within bounds.
    ///
    /// # Errors
    /// When it is absent, or as [`Arguments::optional_number`].
    pub fn required_number(&self, name: &str, bounds: RangeInclusive<u64>) -> Result<u64, Invalid> {
        self.optional_number(name, bounds)?.ok_or_else(|| self.missing(name))
    }

    fn missing(&self, name: &str) -> Invalid {
        Invalid::Arguments(format!("missing argument \"{name}\"; {}", self.tool.takes()))
    }
}

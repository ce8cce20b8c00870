//! What arrives at a door: a name and untrusted JSON. Decoding proves that it is well formed, nothing more.

use std::path::Path;

use serde_json::{Map, Value};

use crate::action::Action;
use crate::error::Invalid;
use crate::escape;
use crate::tools::{self, Arguments};

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
        (tool.decode)(&Arguments::new(tool, values, roots))
    }
}

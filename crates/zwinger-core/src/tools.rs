//! The tools: one file each, with name, parameters, a worked example and the way from arguments to an action.

mod arguments;
mod edit_file;
mod get_time;
mod job_output;
mod job_stop;
mod list_directory;
mod read_file;
mod run_command;
mod write_file;

use serde_json::{Value, json};

use crate::action::Action;
use crate::error::Invalid;
pub use arguments::{Arguments, MAX_TEXT};
pub(crate) use run_command::MAX_SECONDS;

/// All tools, in the fixed order of every listing.
pub static ALL: [&Tool; 8] = [
    &read_file::TOOL,
    &list_directory::TOOL,
    &write_file::TOOL,
    &edit_file::TOOL,
    &run_command::TOOL,
    &get_time::TOOL,
    &job_output::TOOL,
    &job_stop::TOOL,
];

/// What a model is told of unless a person asks for more: each tool costs it room. The others are understood all the same.
pub fn core() -> impl Iterator<Item = &'static Tool> {
    ALL.iter().copied().take(6)
}

/// A tool as models and people see it.
#[derive(Debug)]
pub struct Tool {
    /// Its one name.
    pub name: &'static str,
    /// Other names that are understood.
    pub aliases: &'static [&'static str],
    /// For the model: what it does and what to expect.
    pub description: &'static str,
    /// What it takes.
    pub parameters: &'static [Parameter],
    /// A call as it should look.
    pub example: Example,
    pub(crate) decode: fn(&Arguments<'_>) -> Result<Action, Invalid>,
}

/// One parameter.
#[derive(Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Whether it must be given.
    pub required: bool,
    /// For the model.
    pub description: &'static str,
}

/// The kind of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A string.
    Text,
    /// A whole number.
    Number,
    /// True or false.
    Flag,
}

/// A worked example: small models follow one better than a description.
#[derive(Debug)]
pub struct Example {
    /// What a person asks.
    pub task: &'static str,
    /// The arguments, as JSON text.
    pub arguments: &'static str,
    /// What the tool answers.
    pub result: &'static str,
    /// What is then said to the person.
    pub answer: &'static str,
}

/// The tool of that name or alias.
pub fn find(name: &str) -> Option<&'static Tool> {
    ALL.iter().copied().find(|tool| tool.name == name || tool.aliases.contains(&name))
}

impl Tool {
    /// Its arguments on one line: `path, offset?, limit?, numbers?`; `None`: it takes none.
    pub fn arguments(&self) -> Option<String> {
        let mark = |parameter: &Parameter| format!("{}{}", parameter.name, if parameter.required { "" } else { "?" });
        let parameters: Vec<_> = self.parameters.iter().map(mark).collect();
        (!parameters.is_empty()).then(|| parameters.join(", "))
    }

    /// For errors: `read_file takes path, offset?, limit?, numbers?`.
    pub fn takes(&self) -> String {
        format!("{} takes {}", self.name, self.arguments().unwrap_or_else(|| "no arguments".into()))
    }

    /// The parameters as a JSON Schema.
    pub fn schema(&self) -> Value {
        let properties: serde_json::Map<String, Value> = self
            .parameters
            .iter()
            .map(|parameter| {
                let kind = match parameter.kind {
                    Kind::Text => "string",
                    Kind::Number => "integer",
                    Kind::Flag => "boolean",
                };
                (parameter.name.to_owned(), json!({"type": kind, "description": parameter.description}))
            })
            .collect();
        let required: Vec<_> =
            self.parameters.iter().filter(|parameter| parameter.required).map(|parameter| parameter.name).collect();
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Call;
    use std::path::Path;

    #[test]
    fn the_examples_are_calls_of_their_tools() {
        for tool in ALL {
            let arguments = serde_json::from_str(tool.example.arguments).unwrap();
            let action = Call::new(tool.name, arguments).decode(&[Path::new("/work")]).unwrap();
            assert_eq!(action.tool(), tool.name);
        }
    }

    #[test]
    fn decoding_is_strict() {
        let decode = |tool: &str, arguments: Value| {
            Call::new(tool, arguments).decode(&[Path::new("/work")]).unwrap_err().to_string()
        };
        insta::assert_snapshot!(
            [
                decode("format_disk", json!({})),
                decode("read_file", json!({"path": "a", "approved": true})),
                decode("read_file", json!({})),
                decode("read_file", json!({"path": 7})),
                decode("read_file", json!({"path": "a", "offset": 0})),
                decode("read_file", json!({"path": "a", "limit": -1})),
                decode("read_file", json!(["a"])),
                decode("read_file", json!({"path": "/etc/passwd"})),
                decode("write_file", json!({"path": "a"})),
                decode("run_command", json!({"command": "ls", "timeout_seconds": 1e12})),
                decode("run_command", json!({"command": "a\u{0}b"})),
                decode("run_command", json!({"command": ""})),
                decode("run_command", json!({"command": "ls", "read_only": "yes"})),
                decode("run_command", json!({"command": "ls", "cwd": "../out"})),
                decode("edit_file", json!({"path": "a", "old_text": "", "new_text": "b"})),
                decode("edit_file", json!({"path": "a", "old_text": "b", "new_text": "b"})),
                decode("list_directory", json!({"depth": 0})),
                decode("get_time", json!({"zone": "UTC"})),
                decode("job_output", json!({})),
                decode("job_stop", json!({"job": 0})),
                decode("run_command", json!({"command": "ls", "background": "yes"})),
            ]
            .join("\n")
        );
    }

    #[test]
    fn aliases_lead_to_the_tool() {
        for (alias, name) in [
            ("file_read", "read_file"),
            ("fs_write", "write_file"),
            ("shell", "run_command"),
            ("file_edit", "edit_file"),
            ("list_dir", "list_directory"),
        ] {
            assert_eq!(find(alias).unwrap().name, name);
        }
    }
}

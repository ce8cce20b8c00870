//! `read_file`: lines of a text file.

use super::{Example, Kind, Parameter, Tool};
use crate::action::Action;

/// Lines that are returned unless asked otherwise.
const DEFAULT_LINES: u64 = 2_000;
const MAX_LINES: u64 = 1_000_000;

pub(super) static TOOL: Tool = Tool {
    name: "read_file",
    aliases: &["file_read", "fs_read"],
    description: "Read a text file of the workspace.",
    parameters: &[
        Parameter { name: "path", kind: Kind::Text, required: true, description: "Path relative to the workspace" },
        Parameter { name: "offset", kind: Kind::Number, required: false, description: "First line, from 1" },
        Parameter { name: "limit", kind: Kind::Number, required: false, description: "Number of lines (2000)" },
        Parameter {
            name: "numbers",
            kind: Kind::Flag,
            required: false,
            description: "Put its number and a tab before each line",
        },
    ],
    example: Example {
        task: "Read the file README.md and tell me what it says.",
        arguments: r#"{"path": "README.md"}"#,
        result: "This tool draws maps.",
        answer: "README.md says: This tool draws maps.",
    },
    decode: |arguments| {
        Ok(Action::Read {
            path: arguments.path("path")?,
            offset: arguments.number("offset", 1, 1..=u64::MAX)?,
            limit: arguments.number("limit", DEFAULT_LINES, 1..=MAX_LINES)?,
            numbers: arguments.flag("numbers")?,
        })
    },
};

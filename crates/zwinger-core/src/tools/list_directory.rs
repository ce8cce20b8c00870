//! `list_directory`: the entries of one directory.

use super::{Example, Kind, Parameter, Tool};
use crate::action::Action;

/// Levels of directories at most.
const MAX_DEPTH: u64 = 20;

pub(super) static TOOL: Tool = Tool {
    name: "list_directory",
    aliases: &["list_dir"],
    description: "List a directory of the workspace; directories end in /.",
    parameters: &[
        Parameter {
            name: "path",
            kind: Kind::Text,
            required: false,
            description: "Path relative to the workspace (.)",
        },
        Parameter { name: "depth", kind: Kind::Number, required: false, description: "Levels of directories (1)" },
    ],
    example: Example {
        task: "List the files in src.",
        arguments: r#"{"path": "src"}"#,
        result: "docs/\nmain.py",
        answer: "The files in src are docs/ and main.py.",
    },
    decode: |arguments| {
        let depth = arguments.number("depth", 1, 1..=MAX_DEPTH)?;
        Ok(Action::List { path: arguments.path_or_workspace("path")?, depth: u32::try_from(depth).unwrap_or(1) })
    },
};

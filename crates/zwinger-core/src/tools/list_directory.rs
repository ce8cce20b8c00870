//! `list_directory`: the entries of one directory.

use super::{Example, Kind, Parameter, Tool};
use crate::action::Action;

pub(super) static TOOL: Tool = Tool {
    name: "list_directory",
    aliases: &["list_dir"],
    description: "List a directory of the workspace; directories end in /.",
    parameters: &[Parameter {
        name: "path",
        kind: Kind::Text,
        required: false,
        description: "Path relative to the workspace (.)",
    }],
    example: Example {
        task: "List the files in src.",
        arguments: r#"{"path": "src"}"#,
        result: "docs/\nmain.py",
        answer: "The files in src are docs/ and main.py.",
    },
    decode: |arguments| Ok(Action::List { path: arguments.path_or_workspace("path")? }),
};

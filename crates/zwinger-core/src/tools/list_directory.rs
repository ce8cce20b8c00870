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
        task: "Which files are here?",
        arguments: r#"{"path": "."}"#,
        result: "example.txt\nsrc/",
        answer: "There are example.txt and the directory src.",
    },
    decode: |arguments| Ok(Action::List { path: arguments.path_or_workspace("path")? }),
};

//! `write_file`: a whole file, made or replaced.

use super::{Example, Kind, Parameter, Tool};
use crate::action::Action;

pub(super) static TOOL: Tool = Tool {
    name: "write_file",
    aliases: &["file_write", "fs_write"],
    description: "Write a whole file of the workspace. The user sees the difference and may decline.",
    parameters: &[
        Parameter { name: "path", kind: Kind::Text, required: true, description: "Path relative to the workspace" },
        Parameter { name: "content", kind: Kind::Text, required: true, description: "All of the new content" },
    ],
    example: Example {
        task: "Create todo.txt with the text buy milk.",
        arguments: r#"{"path": "todo.txt", "content": "buy milk"}"#,
        result: "Wrote todo.txt (8 bytes).",
        answer: "I created todo.txt.",
    },
    decode: |arguments| {
        Ok(Action::Write {
            path: arguments.path("path")?,
            content: arguments.text("content")?.to_owned(),
            before: None,
        })
    },
};

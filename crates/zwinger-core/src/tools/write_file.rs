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
        task: "Write hello into greeting.txt.",
        arguments: r#"{"path": "greeting.txt", "content": "hello\n"}"#,
        result: "Wrote greeting.txt (6 bytes).",
        answer: "greeting.txt now says hello.",
    },
    decode: |arguments| {
        Ok(Action::Write {
            path: arguments.path("path")?,
            content: arguments.text("content")?.to_owned(),
            before: None,
        })
    },
};

//! `edit_file`: a part of a file, replaced.

use super::{Example, Kind, Parameter, Tool};
use crate::action::{Action, Edited};
use crate::edit::Edit;
use crate::error::Invalid;

pub(super) static TOOL: Tool = Tool {
    name: "edit_file",
    aliases: &["file_edit"],
    description: "Replace text in a file of the workspace. old_text must occur exactly once. The user may decline.",
    parameters: &[
        Parameter { name: "path", kind: Kind::Text, required: true, description: "Path relative to the workspace" },
        Parameter { name: "old_text", kind: Kind::Text, required: true, description: "Text in the file, exactly" },
        Parameter { name: "new_text", kind: Kind::Text, required: true, description: "What replaces it" },
        Parameter { name: "replace_all", kind: Kind::Flag, required: false, description: "Every place (false)" },
    ],
    example: Example {
        task: "In todo.txt, change milk to bread.",
        arguments: r#"{"path": "todo.txt", "old_text": "milk", "new_text": "bread"}"#,
        result: "Edited todo.txt (1 replacement, +1 −1 lines).",
        answer: "I changed milk to bread in todo.txt.",
    },
    decode: |arguments| {
        let (old, new) = (arguments.text("old_text")?.to_owned(), arguments.text("new_text")?.to_owned());
        if old.is_empty() {
            return Err(Invalid::Arguments("old_text is empty; write_file makes a file".into()));
        }
        if old == new {
            return Err(Invalid::Arguments("old_text and new_text are the same".into()));
        }
        let edit = Edit { old, new, all: arguments.flag("replace_all")? };
        Ok(Action::Edit { path: arguments.path("path")?, edit, edited: Edited::default() })
    },
};

//! `run_command`: one command line in the workspace.

use std::time::Duration;

use super::{Example, Kind, Parameter, Tool};
use crate::action::Action;
use crate::error::Invalid;

/// Wall time of a command unless asked otherwise, seconds.
const DEFAULT_SECONDS: u64 = 60;
/// What a call may ask for, seconds.
pub(crate) const MAX_SECONDS: u64 = 600;
/// Linux's bound on one argument (MAX_ARG_STRLEN, execve(2)), less some for `sh -c`.
const MAX_COMMAND: usize = 128 * 1024 - 1;

pub(super) static TOOL: Tool = Tool {
    name: "run_command",
    aliases: &["run_shell", "shell"],
    description: "Run a shell command in the workspace. No network. The user may decline.",
    parameters: &[
        Parameter { name: "command", kind: Kind::Text, required: true, description: "Command line for /bin/sh" },
        Parameter {
            name: "timeout_seconds",
            kind: Kind::Number,
            required: false,
            description: "Time limit (60), at most 600",
        },
        Parameter {
            name: "read_only",
            kind: Kind::Flag,
            required: false,
            description: "The command only looks: writes and network are refused, and the user need not be asked",
        },
        Parameter {
            name: "background",
            kind: Kind::Flag,
            required: false,
            description: "Come back at once with a job number; it runs until the session ends",
        },
        Parameter { name: "cwd", kind: Kind::Text, required: false, description: "Directory to run it in (.)" },
    ],
    example: Example {
        task: "Run the command 'make check'.",
        arguments: r#"{"command": "make check"}"#,
        result: "3 tests passed\n[exit 0 · 1.2 s · landlock]",
        answer: "make check: 3 tests passed.",
    },
    decode: |arguments| {
        let command = arguments.text("command")?;
        if command.trim().is_empty() || command.contains('\0') {
            return Err(Invalid::Arguments("command must be a command line without NUL bytes".into()));
        }
        if command.len() > MAX_COMMAND {
            return Err(Invalid::Arguments(format!(
                "the command is {} bytes, at most {MAX_COMMAND} can run; write it to a file and run that",
                command.len()
            )));
        }
        let background = arguments.flag("background")?;
        let seconds = arguments.optional_number("timeout_seconds", 1..=MAX_SECONDS)?;
        let seconds = if background { seconds } else { seconds.or(Some(DEFAULT_SECONDS)) };
        Ok(Action::Run {
            command: command.to_owned(),
            timeout: seconds.map(Duration::from_secs),
            directory: arguments.path_or_workspace("cwd")?,
            read_only: arguments.flag("read_only")?,
            background,
        })
    },
};

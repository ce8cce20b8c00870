//! `job_stop`: the end of a command in the background.

use super::job_output::JOB;
use super::{Example, Tool};
use crate::action::Action;

pub(super) static TOOL: Tool = Tool {
    name: "job_stop",
    aliases: &[],
    description: "Stop a command that was started with background, and all that it started.",
    parameters: &[JOB],
    example: Example {
        task: "Stop the server of job 1.",
        arguments: r#"{"job": 1}"#,
        result: "[exit 143 · 12.0 s · landlock]",
        answer: "The server is stopped.",
    },
    decode: |arguments| Ok(Action::JobStop { job: arguments.required_number("job", 1..=u64::MAX)? }),
};

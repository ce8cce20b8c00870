//! `job_output`: what a command in the background printed since the last look, and how it ended.

use super::{Example, Kind, Parameter, Tool};
use crate::action::Action;

/// Which of them.
pub(super) const JOB: Parameter =
    Parameter { name: "job", kind: Kind::Number, required: true, description: "Number that run_command gave" };

pub(super) static TOOL: Tool = Tool {
    name: "job_output",
    aliases: &[],
    description: "Show the new output of a command that was started with background, and whether it still runs.",
    parameters: &[JOB],
    example: Example {
        task: "Has the server of job 1 said something?",
        arguments: r#"{"job": 1}"#,
        result: "listening on 127.0.0.1:8000\n[job 1 runs · 12.0 s]",
        answer: "It listens on 127.0.0.1:8000.",
    },
    decode: |arguments| Ok(Action::JobOutput { job: arguments.required_number("job", 1..=u64::MAX)? }),
};

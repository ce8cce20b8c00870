//! Tool calls as the endpoint itself defines them: `tools`, `tool_calls`, role `tool`.

use serde_json::{Value, json};

use super::turn::{self, Call, Turn};
use super::{Task, ToolSpec, prompt};
use crate::model::{Message, Reply, Request, ToolCall};

const FORM: &str = "The answer was empty. Call a tool, or answer the task in words.";

/// The conversation before the first request.
pub(super) fn opening(task: &Task) -> Vec<Message> {
    let content = prompt::system(task.protocol, &task.tools, &task.workspace);
    vec![Message::System { content }, Message::User { content: task.text.clone() }]
}

/// The next request.
pub(super) fn request(messages: Vec<Message>, tools: &[ToolSpec]) -> Request {
    Request { messages, tools: tools.iter().map(function).collect(), ..Request::default() }
}

fn function(tool: &ToolSpec) -> Value {
    let function = json!({"name": tool.name, "description": tool.description, "parameters": tool.parameters});
    json!({"type": "function", "function": function})
}

/// Text without a call is the final answer.
pub(super) fn read(reply: &Reply) -> Turn {
    if !reply.tool_calls.is_empty() {
        return Turn::Calls(reply.tool_calls.iter().map(call).collect());
    }
    match turn::spoken(&reply.content) {
        "" => Turn::Unreadable { advice: turn::advice(FORM, reply.cut) },
        text => Turn::Answer(text.to_owned()),
    }
}

/// The reading of one of the endpoint's calls.
pub(super) fn call(call: &ToolCall) -> Call {
    let arguments = turn::parse(&call.name, &call.arguments).and_then(|value| turn::arguments(&call.name, value));
    Call { id: call.id.clone(), name: call.name.clone(), arguments }
}

/// How the conversation remembers a reply and the calls that were read from it.
pub(super) fn echo(reply: &Reply, calls: &[Call]) -> Message {
    let tool_calls = reply.tool_calls.iter().zip(calls).map(|(said, call)| ToolCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: spelling(&said.arguments, call),
    });
    Message::Assistant { content: turn::spoken(&reply.content).to_owned(), tool_calls: tool_calls.collect() }
}

/// The model's own spelling where it is an object; servers refuse a conversation with anything else.
fn spelling(said: &str, call: &Call) -> String {
    match &call.arguments {
        Ok(_) if said.trim_start().starts_with('{') => said.to_owned(),
        Ok(arguments) => arguments.to_string(),
        Err(_) => "{}".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(content: &str, calls: &[(&str, &str)]) -> Reply {
        let tool_call = |(name, arguments): &(&str, &str)| ToolCall {
            id: "c".to_owned(),
            name: (*name).to_owned(),
            arguments: (*arguments).to_owned(),
        };
        Reply { content: content.to_owned(), tool_calls: calls.iter().map(tool_call).collect(), cut: false }
    }

    #[test]
    fn text_is_the_answer_and_nothing_is_unreadable() {
        assert_eq!(read(&reply(" Done. ", &[])), Turn::Answer("Done.".to_owned()));
        assert!(matches!(read(&reply("<think>hm</think>", &[])), Turn::Unreadable { .. }));
        let Turn::Unreadable { advice } = read(&Reply { cut: true, ..reply("", &[]) }) else { panic!("readable") };
        assert!(advice.contains("cut off") && advice.contains("Call a tool"), "{advice}");
    }

    #[test]
    fn calls_come_before_text_and_keep_the_models_spelling() {
        let reply = reply("I look.", &[("a", r#"{ "y":1, "x":2 }"#), ("b", "{broken"), ("c", r#""{\"z\": 3}""#)]);
        let Turn::Calls(calls) = read(&reply) else { panic!("no calls") };
        assert_eq!(calls[0].arguments, Ok(json!({"x": 2, "y": 1})));
        assert!(calls[1].arguments.is_err());
        assert_eq!(calls[2].arguments, Ok(json!({"z": 3})));
        let echoed = serde_json::to_value(echo(&reply, &calls)).unwrap();
        assert_eq!(echoed["content"], "I look.");
        assert_eq!(echoed["tool_calls"][0]["function"]["arguments"], r#"{ "y":1, "x":2 }"#);
        assert_eq!(echoed["tool_calls"][1]["function"]["arguments"], "{}");
        assert_eq!(echoed["tool_calls"][2]["function"]["arguments"], r#"{"z":3}"#);
        assert_eq!(echoed["tool_calls"][1]["type"], "function");
    }
}

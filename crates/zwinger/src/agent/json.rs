//! Tool calls as JSON in the text of the answer: one object a turn, `{"tool": NAME, "arguments": {…}}` or
//! `{"answer": TEXT}`. The endpoint is asked to hold the model to it, the conversation begins with one worked
//! example a tool, and an endpoint or model that adds text around the object is understood all the same.

use serde_json::{Map, Value, json};

use super::turn::{self, Call, Turn};
use super::{Task, ToolSpec, native, prompt, shape, spaced};
use crate::model::{Message, Reply, Request, ToolCall};

/// What a reply has to look like, as the model is told.
pub(super) const FORM: &str =
    r#"Reply with one JSON object and nothing else: {"tool": NAME, "arguments": {...}} or {"answer": TEXT}."#;

/// Before what a person asks, in the examples and now.
const TASK: &str = "Task: ";

/// Objects in a text that are tried; each costs a pass over the rest of it.
const MAX_TRIES: usize = 64;

/// Characters of an answer. The endpoint closes the string there, where a small model would go on for ever.
const ANSWER_LENGTH: u32 = 600;

/// Tokens of a reply. A small model that is held to a schema may fill a string for ever.
const MAX_TOKENS: u32 = 1024;

/// The conversation before the first request: rules, examples, the task.
pub(super) fn opening(task: &Task) -> Vec<Message> {
    let content = prompt::system(task.protocol, &task.tools, &task.workspace);
    let mut messages = vec![Message::System { content }];
    for (index, tool) in task.tools.iter().enumerate() {
        let example = &tool.example;
        let said = |content| Message::Assistant { content, tool_calls: Vec::new() };
        messages.push(Message::User { content: format!("{TASK}{}", example.task) });
        let id = format!("example{index:02}");
        messages.push(called(&[(&id, &tool.name, &example.arguments)]));
        messages.push(Message::Tool { tool_call_id: id, content: example.result.clone() });
        messages.push(said(spaced(&json!({"answer": example.answer}))));
    }
    messages.push(Message::User { content: format!("{TASK}{}", task.text) });
    messages
}

/// The turn of a model that called tools: as text in the form of the examples, which is all that a small model's template shows
/// it, and as the endpoint's own calls, without which some endpoints refuse the results that follow.
fn called(calls: &[(&str, &str, &Value)]) -> Message {
    let text = |(_, name, arguments): &(&str, &str, &Value)| spaced(&json!({"tool": name, "arguments": arguments}));
    let call = |(id, name, arguments): &(&str, &str, &Value)| ToolCall {
        id: (*id).to_owned(),
        name: (*name).to_owned(),
        arguments: arguments.to_string(),
    };
    Message::Assistant { content: calls.iter().map(text).collect(), tool_calls: calls.iter().map(call).collect() }
}

/// The next request.
pub(super) fn request(messages: Vec<Message>, tools: &[ToolSpec]) -> Request {
    let schema = json!({"name": "step", "strict": true, "schema": schema(tools)});
    Request {
        messages,
        response_format: Some(json!({"type": "json_schema", "json_schema": schema})),
        temperature: Some(0.0),
        max_tokens: Some(MAX_TOKENS),
        ..Request::default()
    }
}

/// One object for each tool, or the final answer. The order of keys is that in which the model has to write them.
fn schema(tools: &[ToolSpec]) -> Value {
    let call = |tool: &ToolSpec| {
        let properties = json!({"tool": {"const": tool.name}, "arguments": shape::shown_parameters(tool)});
        shape::object(&properties, &["tool", "arguments"])
    };
    let answer = json!({"answer": {"type": "string", "maxLength": ANSWER_LENGTH}});
    let answer = shape::object(&answer, &["answer"]);
    json!({"anyOf": tools.iter().map(call).chain([answer]).collect::<Vec<_>>()})
}

/// The first object in the text that is a call or an answer. Some servers turn such a text into `tool_calls`
/// themselves; then the first of those counts.
pub(super) fn read(reply: &Reply) -> Turn {
    if let Some(tool_call) = reply.tool_calls.first() {
        return Turn::Calls(vec![native::call(tool_call)]);
    }
    let text = turn::spoken(&reply.content);
    text.match_indices('{')
        .take(MAX_TRIES)
        .filter_map(|(at, _)| serde_json::Deserializer::from_str(text.get(at..)?).into_iter().next()?.ok())
        .find_map(|object: Value| step(&object))
        .unwrap_or_else(|| Turn::Unreadable { advice: turn::advice(FORM, reply.cut) })
}

fn step(object: &Value) -> Option<Turn> {
    if let Some(name) = object.get("tool").and_then(Value::as_str).map(str::trim).filter(|name| !name.is_empty()) {
        let arguments = turn::arguments(name, object.get("arguments").cloned().unwrap_or_default());
        return Some(Turn::Calls(vec![Call { id: String::new(), name: name.to_owned(), arguments }]));
    }
    match object.get("answer")? {
        Value::String(answer) => Some(Turn::Answer(answer.trim().to_owned())),
        Value::Null => None,
        other => Some(Turn::Answer(other.to_string())),
    }
}

/// How the conversation remembers a call, whatever stood around it.
pub(super) fn echo(calls: &[Call]) -> Message {
    let none = Value::Object(Map::new());
    let call = |call: &'_ Call| (call.id.clone(), call.name.clone(), call.arguments.clone().unwrap_or(none.clone()));
    let calls: Vec<_> = calls.iter().map(call).collect();
    let calls: Vec<_> = calls.iter().map(|(id, name, arguments)| (id.as_str(), name.as_str(), arguments)).collect();
    called(&calls)
}

#[cfg(test)]
mod tests {
    use super::super::tests::tools;
    use super::*;

    fn says(content: &str) -> Turn {
        read(&Reply { content: content.to_owned(), ..Reply::default() })
    }

    fn called(content: &str) -> (String, Value) {
        let Turn::Calls(calls) = says(content) else { panic!("no call: {content}") };
        (calls[0].name.clone(), calls[0].arguments.clone().unwrap())
    }

    #[test]
    fn a_call_is_found_whatever_stands_around_it() {
        let call = r#"{"tool": "read_file", "arguments": {"path": "a}{"}}"#;
        for text in [
            call.to_owned(),
            format!("```json\n{call}\n```"),
            format!("Sure! I will use {{this}}:\n{call}\nand then {{\"answer\": \"x\"}}"),
            format!("<think>{{\"answer\": \"hm\"}}</think>{call}"),
            format!("{{\"thought\": \"hm\"}} {call}"),
            format!("[{call}]"),
        ] {
            assert_eq!(called(&text), ("read_file".to_owned(), json!({"path": "a}{"})), "{text}");
        }
    }

    #[test]
    fn arguments_may_be_missing_or_a_string() {
        assert_eq!(called(r#"{"tool": "get_time"}"#), ("get_time".to_owned(), json!({})));
        assert_eq!(called(r#"{"tool": " x ", "arguments": "{\"a\": 1}"}"#), ("x".to_owned(), json!({"a": 1})));
        let Turn::Calls(calls) = says(r#"{"tool": "x", "arguments": 7}"#) else { panic!("no call") };
        assert!(calls[0].arguments.is_err());
    }

    #[test]
    fn answers() {
        assert_eq!(says(r#"{"answer": " It is 10. "}"#), Turn::Answer("It is 10.".to_owned()));
        assert_eq!(says(r#"{"answer": 42}"#), Turn::Answer("42".to_owned()));
    }

    #[test]
    fn anything_else_is_unreadable_and_costs_little() {
        for text in [
            "",
            "It is 10.",
            "{}",
            r#"{"tool": ""}"#,
            r#"{"tool": 3}"#,
            r#"{"answer": null}"#,
            r#"{"answer": "cut"#,
            "{\"a\": 1, {",
        ] {
            assert!(matches!(says(text), Turn::Unreadable { .. }), "{text}");
        }
        for hostile in ["{", "{\"a\":", "{\"", "[{"] {
            assert!(matches!(says(&hostile.repeat(1 << 20)), Turn::Unreadable { .. }), "{hostile}");
        }
        let cut = Reply {
            content: r#"{"tool": "write_file", "arguments": {"content": "…"#.to_owned(),
            cut: true,
            ..Reply::default()
        };
        let Turn::Unreadable { advice } = read(&cut) else { panic!("readable") };
        assert!(advice.contains("cut off") && advice.ends_with(FORM), "{advice}");
    }

    #[test]
    fn tool_calls_of_an_eager_server_count() {
        let tool_calls =
            vec![crate::model::ToolCall { id: "1".to_owned(), name: "x".to_owned(), arguments: "{}".to_owned() }; 2];
        let Turn::Calls(calls) = read(&Reply { tool_calls, ..Reply::default() }) else { panic!("no call") };
        assert_eq!(calls.len(), 1);
    }

    #[test]
    fn the_schema_keeps_its_order() {
        let first = r#"{"anyOf": [{"type": "object", "properties": {"tool": {"const": "read_file"}, "arguments": "#;
        let schema = spaced(&schema(&tools()));
        assert!(schema.starts_with(first), "{schema}");
        let last = r#"{"type": "object", "properties": {"answer": {"type": "string", "maxLength": 600}}, "required": ["answer"], "additionalProperties": false}]}"#;
        assert!(schema.ends_with(last), "{schema}");
        let value: Value = serde_json::from_str(&schema).unwrap();
        assert_eq!(value["anyOf"].as_array().unwrap().len(), 4);
    }
}

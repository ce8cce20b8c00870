//! From an endpoint's JSON to a [`Reply`]. Endpoints deviate, so only what is needed is looked at, and each
//! missing or odd part has a harmless reading.

use serde_json::Value;

use super::{Reply, ToolCall};

/// Calls of one reply that are looked at; a runaway model repeats itself.
const MAX_CALLS: usize = 32;

/// `None` when there is no message: empty `choices`, or an error under status 200.
pub(super) fn reply(body: &Value) -> Option<Reply> {
    let choice = body.get("choices")?.get(0)?;
    let message = choice.get("message").filter(|message| message.is_object())?;
    let tool_calls = message
        .get("tool_calls")
        .and_then(Value::as_array)
        .map(|calls| calls.iter().filter_map(tool_call).take(MAX_CALLS).collect())
        .unwrap_or_default();
    let cut = choice.get("finish_reason").and_then(Value::as_str) == Some("length");
    Some(Reply { content: message.get("content").map(text).unwrap_or_default(), tool_calls, cut })
}

/// A string, or the text of a list of parts; `null` and anything else is no text.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => String::new(),
    }
}

/// `type` is not looked at, `function` may be missing around its fields; a call without a name is none.
fn tool_call(call: &Value) -> Option<ToolCall> {
    let function = call.get("function").filter(|function| function.is_object()).unwrap_or(call);
    let name = function.get("name")?.as_str()?.trim();
    // The MCP specification's bound; what is longer names no tool.
    let name = name.get(..name.floor_char_boundary(128)).unwrap_or(name);
    if name.is_empty() {
        return None;
    }
    let arguments = match function.get("arguments") {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(Value::String(text)) if text.trim().is_empty() => "{}".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let id = call.get("id").and_then(Value::as_str).filter(|id| id.len() <= 128).unwrap_or_default().to_owned();
    Some(ToolCall { id, name: name.to_owned(), arguments })
}

/// The ids of a `/models` answer.
pub(super) fn models(body: &Value) -> Option<Vec<String>> {
    let list = body.get("data").or_else(|| body.get("models"))?.as_array()?;
    Some(list.iter().filter_map(|model| Some(model.get("id")?.as_str()?.to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(message: Value) -> Reply {
        reply(&json!({"choices": [{"message": message}]})).unwrap()
    }

    fn call(name: &str, arguments: &str) -> ToolCall {
        ToolCall { id: String::new(), name: name.to_owned(), arguments: arguments.to_owned() }
    }

    #[test]
    fn content_is_text_parts_or_nothing() {
        assert_eq!(message(json!({"content": "hi"})).content, "hi");
        assert_eq!(message(json!({"content": null, "refusal": null})).content, "");
        assert_eq!(message(json!({"content": [{"type": "text", "text": "a"}, {"x": 1}, {"text": "b"}]})).content, "ab");
        assert_eq!(message(json!({})).content, "");
    }

    #[test]
    fn calls_may_be_odd() {
        let calls = message(json!({"content": null, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "a", "arguments": "{\"x\":1}"}, "index": 0},
            {"function": {"name": "b", "arguments": {"y": 2}}},
            {"id": null, "function": {"name": " c ", "arguments": null}},
            {"id": 7, "name": "d", "arguments": " "},
            {"id": "e", "function": {"name": ""}},
            {"id": "f"}, null, "g",
        ]}))
        .tool_calls;
        let first = ToolCall { id: "c1".to_owned(), ..call("a", r#"{"x":1}"#) };
        assert_eq!(calls, [first, call("b", r#"{"y":2}"#), call("c", "{}"), call("d", "{}")]);
        assert_eq!(message(json!({"content": "x", "tool_calls": null})).tool_calls, []);
        assert_eq!(message(json!({"content": "x", "tool_calls": {}})).tool_calls, []);
        let many = json!({"tool_calls": vec![json!({"name": "a"}); 1000]});
        assert_eq!(message(many).tool_calls.len(), MAX_CALLS);
    }

    #[test]
    fn a_cut_answer_says_so() {
        let at =
            |reason| reply(&json!({"choices": [{"finish_reason": reason, "message": {"content": "x"}}]})).unwrap().cut;
        assert!(at(json!("length")));
        assert!(!at(json!("stop")) && !at(json!(null)) && !at(json!(3)));
    }

    #[test]
    fn no_message_is_none() {
        for body in [
            json!({"choices": []}),
            json!({"choices": null}),
            json!({"choices": [{}]}),
            json!({"choices": [{"message": null}]}),
            json!({"error": {"message": "x"}}),
            json!([]),
            json!(null),
        ] {
            assert_eq!(reply(&body), None, "{body}");
        }
    }

    #[test]
    fn model_lists() {
        assert_eq!(models(&json!({"data": [{"id": "a"}, {"id": null}, {}, {"id": "b"}]})).unwrap(), ["a", "b"]);
        assert_eq!(models(&json!({"models": [{"id": "a"}]})).unwrap(), ["a"]);
        assert_eq!(models(&json!({"data": []})).unwrap(), [""; 0]);
        assert_eq!(models(&json!({"status": "ok"})), None);
    }
}

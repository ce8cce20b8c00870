//! What a model wants: the reading of one reply, whatever the protocol.

use serde_json::{Map, Value};

/// One reply, read.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Turn {
    /// The task is done, says the model.
    Answer(String),
    /// At least one.
    Calls(Vec<Call>),
    /// Neither; the model is to be told this.
    Unreadable { advice: String },
}

/// A call as far as the loop understands it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    /// Empty until the loop gives it one, when the endpoint gave none.
    pub(super) id: String,
    pub(super) name: String,
    /// An object, or what is wrong with it.
    pub(super) arguments: Result<Value, String>,
}

impl Call {
    /// Equal for calls that would do the same: the order of keys and white space do not matter.
    pub(super) fn identity(&self) -> (String, Result<Value, String>) {
        (self.name.clone(), self.arguments.clone())
    }
}

/// Arguments as an object. Some models encode the object once more as a string, or write `null` for no arguments.
pub(super) fn arguments(tool: &str, value: Value) -> Result<Value, String> {
    let value = match value {
        Value::String(text) => parse(tool, &text)?,
        other => other,
    };
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(Value::Object(Map::new())),
        _ => Err(format!("the arguments of {tool} have to be a JSON object")),
    }
}

/// Arguments as the endpoint gives them: JSON in a string.
pub(super) fn parse(tool: &str, text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("the arguments of {tool} are not valid JSON ({error})"))
}

/// The text of a reply without the reasoning that some servers leave at its beginning.
pub(super) fn spoken(content: &str) -> &str {
    let content = content.trim();
    match content.strip_prefix("<think>").and_then(|rest| rest.split_once("</think>")) {
        Some((_, spoken)) => spoken.trim(),
        None => content,
    }
}

/// What to tell a model whose reply could not be read.
pub(super) fn advice(form: &str, cut: bool) -> String {
    let cut = if cut { "The answer was cut off at the limit of tokens: write less at a time. " } else { "" };
    format!("{cut}{form}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_an_object_in_the_end() {
        let of = |value| arguments("t", value);
        assert_eq!(of(json!({"a": 1})), Ok(json!({"a": 1})));
        assert_eq!(of(json!(r#" {"a": 1} "#)), Ok(json!({"a": 1})));
        assert_eq!(of(json!(null)), Ok(json!({})));
        assert_eq!(of(json!("null")), Ok(json!({})));
        for bad in [json!(3), json!([1]), json!("[1]"), json!(r#""{}""#)] {
            assert!(of(bad.clone()).unwrap_err().contains("a JSON object"), "{bad}");
        }
        assert!(of(json!("{\"a\": \"raw\nnewline\"}")).unwrap_err().contains("not valid JSON"));
        let deep = "[".repeat(10_000);
        assert!(of(json!(deep)).unwrap_err().contains("not valid JSON"));
    }

    #[test]
    fn reasoning_at_the_beginning_is_not_the_answer() {
        assert_eq!(spoken(" <think>a {\"tool\": 1}</think>\n yes "), "yes");
        assert_eq!(spoken("<think>never ends"), "<think>never ends");
        assert_eq!(spoken("see </think> and <think>"), "see </think> and <think>");
        assert_eq!(spoken("\n"), "");
    }
}

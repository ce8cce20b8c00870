//! What is said to a language model and what it answers, for endpoints that speak OpenAI's `/chat/completions`.
//!
//! The types here are plain data. [`Client`] is the only place in zwinger that opens a connection of its own.

mod client;
mod decode;
mod endpoint;
mod error;
mod probe;
#[cfg(test)]
mod tests;

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use serde_json::Value;

pub(crate) use client::Client;
pub(crate) use endpoint::{Endpoint, Secret};
pub(crate) use error::{ModelError, excerpt};
pub(crate) use probe::{Probed, first_model, probe};

/// Something that answers requests; the agent loop knows no more of a model than this.
pub(crate) trait ModelClient {
    /// Sends the conversation, waits for the whole answer.
    ///
    /// # Errors
    /// As [`ModelError`] says. The conversation is unchanged, so the same request may be sent again.
    fn complete(&mut self, request: &Request) -> Result<Reply, ModelError>;
}

/// One request, without what belongs to the endpoint (the model's name, streaming).
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Request {
    /// The conversation, oldest first.
    pub(crate) messages: Vec<Message>,
    /// Function tools in OpenAI's form.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tools: Vec<Value>,
    /// OpenAI's `response_format`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) response_format: Option<Value>,
    /// 0 to 2; left to the endpoint when absent, because some models refuse the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) temperature: Option<f32>,
    /// Tokens of the answer at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_tokens: Option<u32>,
}

/// One turn of the conversation. Content is always a string: some servers answer 500 to `null`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub(crate) enum Message {
    /// The rules.
    System { content: String },
    /// The person.
    User { content: String },
    /// The model.
    Assistant {
        content: String,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
    },
    /// The result of the call with this id.
    Tool { tool_call_id: String, content: String },
}

/// A call as the model wrote it: untrusted text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolCall {
    /// Empty when the endpoint gave none.
    pub(crate) id: String,
    /// Never empty when it was decoded by [`Client`].
    pub(crate) name: String,
    /// Meant to be a JSON object; nothing is checked yet.
    pub(crate) arguments: String,
}

impl Serialize for ToolCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Function<'a> {
            name: &'a str,
            arguments: &'a str,
        }
        let mut call = serializer.serialize_struct("ToolCall", 3)?;
        call.serialize_field("id", &self.id)?;
        call.serialize_field("type", "function")?;
        call.serialize_field("function", &Function { name: &self.name, arguments: &self.arguments })?;
        call.end()
    }
}

/// The model's answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    /// Its text, empty when it only called tools.
    pub(crate) content: String,
    /// The calls in the order in which they are to run.
    pub(crate) tool_calls: Vec<ToolCall>,
    /// The endpoint ended the answer at a limit of tokens.
    pub(crate) cut: bool,
}

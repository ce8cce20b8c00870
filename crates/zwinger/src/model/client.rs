//! The HTTP side: one request, one bounded answer, no redirects, no thread.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use ureq::Agent;
use ureq::http::Response;

use super::endpoint::{Endpoint, Secret, is_loopback};
use super::error::{ModelError, excerpt, for_status};
use super::{ModelClient, Reply, Request, decode};

/// Bytes of an answer that are read.
const BODY_LIMIT: u64 = 16 * 1024 * 1024;
const CONNECT: Duration = Duration::from_secs(5);
/// A small model on a slow machine reads a long prompt for minutes before the first byte of its answer.
const ANSWER: Duration = Duration::from_secs(30 * 60);

/// The connection to one model.
pub(crate) struct Client {
    endpoint: Endpoint,
    agent: Agent,
    transcript: Option<Box<dyn Write + Send>>,
}

impl Client {
    /// Opens nothing yet. `transcript` gets one JSON line an exchange, `{"request": …, "response": …}`: never a header,
    /// never the key. An exchange without a JSON answer has `"error"` in place of `"response"`.
    pub(crate) fn new(endpoint: Endpoint, transcript: Option<Box<dyn Write + Send>>) -> Self {
        let agent = agent(endpoint.base_url(), CONNECT, ANSWER);
        Self { endpoint, agent, transcript }
    }

    /// Where it speaks to.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn exchange(&self, body: &[u8]) -> Result<Value, ModelError> {
        let endpoint = &self.endpoint;
        let url = format!("{}/chat/completions", endpoint.base_url());
        let mut request = self.agent.post(url).content_type("application/json");
        if let Some(key) = endpoint.api_key() {
            request = request.header("authorization", format!("Bearer {}", key.reveal()));
        }
        let response = request.send(body);
        json(endpoint.base_url(), endpoint.model(), endpoint.api_key(), response)
    }

    fn record(&mut self, body: &Body<'_>, answer: &Result<Value, ModelError>) -> io::Result<()> {
        #[derive(Serialize)]
        struct Line<'a> {
            request: &'a Body<'a>,
            #[serde(skip_serializing_if = "Option::is_none")]
            response: Option<&'a Value>,
            #[serde(skip_serializing_if = "Option::is_none")]
            error: Option<String>,
        }
        let Some(transcript) = &mut self.transcript else { return Ok(()) };
        let error = answer.as_ref().err().map(ToString::to_string);
        let mut line = serde_json::to_vec(&Line { request: body, response: answer.as_ref().ok(), error })?;
        line.push(b'\n');
        transcript.write_all(&line)?;
        transcript.flush()
    }
}

/// The body of a request as it is sent.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(flatten)]
    request: &'a Request,
    stream: bool,
}

impl ModelClient for Client {
    fn complete(&mut self, request: &Request) -> Result<Reply, ModelError> {
        let model = self.endpoint.model().to_owned();
        let body = Body { model: &model, request, stream: false };
        // Cannot fail: every key is a string.
        let bytes = serde_json::to_vec(&body).unwrap_or_default();
        let answer = self.exchange(&bytes);
        self.record(&body, &answer).map_err(|error| ModelError::Transcript(error.to_string()))?;
        let answer = answer?;
        decode::reply(&answer).ok_or_else(|| ModelError::NoMessage {
            url: self.endpoint.base_url().to_owned(),
            detail: excerpt(answer.to_string().as_bytes()),
        })
    }
}

/// An agent with a limit of time for each phase. A limit on the whole would make ureq look names up in a thread, and
/// walls are opened from a process that has one thread.
pub(super) fn agent(base_url: &str, connect: Duration, answer: Duration) -> Agent {
    let mut config = Agent::config_builder()
        .user_agent(concat!("zwinger/", env!("CARGO_PKG_VERSION")))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        // A server closes an idle connection while a person thinks about an approval.
        .max_idle_connections(0)
        .timeout_connect(Some(connect))
        .timeout_send_request(Some(answer))
        .timeout_send_body(Some(answer))
        .timeout_recv_response(Some(answer))
        .timeout_recv_body(Some(answer));
    if is_loopback(base_url) {
        config = config.proxy(None);
    }
    Agent::new_with_config(config.build())
}

/// The JSON of an answer with a status of 2xx. The key is taken out of it, should the server send it back.
pub(super) fn json(
    url: &str,
    model: &str,
    key: Option<&Secret>,
    response: Result<Response<ureq::Body>, ureq::Error>,
) -> Result<Value, ModelError> {
    let response = response.map_err(|error| for_transport(url, error))?;
    let (head, body) = response.into_parts();
    let body = body.into_with_config().limit(BODY_LIMIT).read_to_vec().map_err(|error| for_transport(url, error))?;
    let body = without(key, body);
    if !head.status.is_success() {
        let location = head.headers.get("location").map(|value| String::from_utf8_lossy(value.as_bytes()));
        let location = location.as_deref().unwrap_or_default();
        return Err(for_status(url, model, head.status.as_u16(), key.is_some(), location, &body));
    }
    if body.trim_ascii().is_empty() {
        return Err(ModelError::Empty { url: url.to_owned() });
    }
    serde_json::from_slice(&body).map_err(|error| ModelError::NotJson {
        url: url.to_owned(),
        reason: error.to_string(),
        detail: excerpt(&body),
    })
}

fn without(key: Option<&Secret>, body: Vec<u8>) -> Vec<u8> {
    let Some(key) = key.map(Secret::reveal) else { return body };
    if !body.windows(key.len()).any(|part| part == key.as_bytes()) {
        return body;
    }
    String::from_utf8_lossy(&body).replace(key, "[secret]").into_bytes()
}

fn for_transport(url: &str, error: ureq::Error) -> ModelError {
    let url = url.to_owned();
    match error {
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => ModelError::Refused { url },
        ureq::Error::Timeout(phase) => ModelError::Timeout { url, phase: phase.to_string() },
        ureq::Error::BodyExceedsLimit(limit) => ModelError::TooLarge { url, limit },
        // The URL was checked when the endpoint was made, so only the key is left.
        ureq::Error::Http(_) => ModelError::BadKey,
        other => ModelError::Unreachable { url, reason: excerpt(other.to_string().as_bytes()) },
    }
}

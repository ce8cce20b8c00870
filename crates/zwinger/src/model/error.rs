//! Why a model gave no answer, in words for the person.

use zwinger_core::escape;

/// Characters of a server's own text that an error shows.
const EXCERPT: usize = 300;

/// A request that got no usable answer. Texts from the endpoint are cut and carry no control characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ModelError {
    /// Not an address to send a request to.
    #[error("bad base URL {url}: {reason}")]
    Url { url: String, reason: &'static str },
    /// Nothing listens there.
    #[error("no model server answers at {url}: connection refused")]
    Refused { url: String },
    /// Something listened or should have, but no answer came in time.
    #[error("{url} did not answer in time ({phase})")]
    Timeout { url: String, phase: String },
    /// Name lookup, TLS, a broken connection, a broken answer.
    #[error("{url} cannot be reached: {reason}")]
    Unreachable { url: String, reason: String },
    /// HTTP 401 or 403.
    #[error("{url} {} (HTTP {status}): set $ZWINGER_API_KEY to its key", if *.sent { "refused the key" } else { "wants a key" })]
    Key { url: String, status: u16, sent: bool },
    /// The key cannot stand in a header.
    #[error("the key in $ZWINGER_API_KEY holds characters that cannot be sent")]
    BadKey,
    /// HTTP 404.
    #[error("{url} does not know the model {model}, or is not an OpenAI-compatible endpoint (HTTP 404): {detail}")]
    NotFound { url: String, model: String, detail: String },
    /// The endpoint names no model.
    #[error("{url} lists no model; name one with --model")]
    NoModel { url: String },
    /// The conversation is larger than the model's window.
    #[error("the conversation does not fit the window of the model any more (HTTP {status}): {detail}")]
    Window { status: u16, detail: String },
    /// A redirect, which is not followed: the key would go to another place.
    #[error("{url} redirects to {location}, which is not followed: give that as --base-url")]
    Redirect { url: String, location: String },
    /// Any other status that is not 2xx.
    #[error("{url} answered HTTP {status}: {detail}")]
    Status { url: String, status: u16, detail: String },
    /// The answer is larger than is read.
    #[error("{url} answered with more than {limit} bytes")]
    TooLarge { url: String, limit: u64 },
    /// 2xx without a body.
    #[error("{url} answered with nothing")]
    Empty { url: String },
    /// 2xx with something else.
    #[error("{url} did not answer with JSON ({reason}): {detail}")]
    NotJson { url: String, reason: String, detail: String },
    /// JSON that holds no message.
    #[error("{url} answered without a message: {detail}")]
    NoMessage { url: String, detail: String },
    /// The person asked for a transcript and it cannot be kept.
    #[error("the transcript cannot be written: {0}")]
    Transcript(String),
}

/// The first [`EXCERPT`] characters of a body, on one line, with what could act on a terminal or hide itself escaped.
pub(crate) fn excerpt(body: &[u8]) -> String {
    // Four bytes a character at most, so what is not looked at would not be shown.
    let body = body.trim_ascii();
    let text = String::from_utf8_lossy(body.get(..EXCERPT * 4).unwrap_or(body));
    let shown = escape::line(&text.chars().take(EXCERPT).collect::<String>());
    if shown.is_empty() { "(empty)".to_owned() } else { shown }
}

/// The error for a status that is not 2xx. `model` is empty when none was asked; `location` is the header of that name.
pub(super) fn for_status(url: &str, model: &str, status: u16, sent: bool, location: &str, body: &[u8]) -> ModelError {
    let url = url.to_owned();
    let detail = excerpt(body);
    match status {
        300..=399 => ModelError::Redirect { url, location: excerpt(location.as_bytes()) },
        401 | 403 => ModelError::Key { url, status, sent },
        404 if !model.is_empty() => ModelError::NotFound { url, model: excerpt(model.as_bytes()), detail },
        400 | 413 | 422 | 500 if is_overflow(&detail) => ModelError::Window { status, detail },
        _ => ModelError::Status { url, status, detail },
    }
}

/// Each server has its own words: "context_length_exceeded", "maximum context length", "[context overflow]",
/// "exceeds the available context size", "exceed context window".
fn is_overflow(detail: &str) -> bool {
    let detail = detail.to_lowercase();
    detail.contains("context")
        && ["exceed", "overflow", "maximum", "length", "too l", "window", "size"]
            .iter()
            .any(|word| detail.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_shown_cut_and_harmless() {
        assert_eq!(excerpt(b" \x1b[2Jhi\nthere\x07 "), r"\e[2Jhi\nthere\u{7}");
        assert_eq!(excerpt("a\u{202e}b\u{200b}ä".as_bytes()), r"a\u{202e}b\u{200b}ä");
        assert_eq!(excerpt(b"\xff\xfe"), "\u{fffd}\u{fffd}");
        assert_eq!(excerpt("ä".repeat(1000).as_bytes()).chars().count(), 300);
        assert_eq!(excerpt(b" \n"), "(empty)");
    }

    #[test]
    fn statuses_become_what_the_person_can_do() {
        let at =
            |status, body: &str| for_status("http://h/v1", "m", status, true, "http://x/", body.as_bytes()).to_string();
        assert_eq!(at(401, "bad sk-123"), "http://h/v1 refused the key (HTTP 401): set $ZWINGER_API_KEY to its key");
        assert!(for_status("u", "m", 403, false, "", b"").to_string().contains("wants a key (HTTP 403)"));
        assert!(at(404, r#"{"error":{"message":"model 'm' not found"}}"#).contains("does not know the model m"));
        assert!(at(307, "").contains("redirects to http://x/"));
        assert!(at(400, "This model's maximum context length is 4096 tokens").contains("does not fit the window"));
        assert!(at(400, r#"{"error":{"type":"exceed_context_size_error"}}"#).contains("does not fit the window"));
        assert!(at(400, "[context overflow]").contains("does not fit the window"));
        assert_eq!(at(400, "bad tools\n"), "http://h/v1 answered HTTP 400: bad tools");
        assert_eq!(at(503, ""), "http://h/v1 answered HTTP 503: (empty)");
    }
}

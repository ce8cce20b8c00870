//! Looks for a model on this machine.

use std::time::Duration;

use super::client::{agent, json};
use super::decode;
use super::endpoint::{Endpoint, Secret, normalized};
use super::error::ModelError;

const CONNECT: Duration = Duration::from_millis(300);
/// For each phase of the answer; a list of models comes in one piece, so two seconds are the whole.
const ANSWER: Duration = Duration::from_millis(800);
/// A named endpoint may be far away, or start its model first.
const NAMED: Duration = Duration::from_secs(30);

/// A port where servers of models usually listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// On 127.0.0.1.
    pub(crate) port: u16,
    /// The servers that choose it.
    pub(crate) servers: &'static str,
}

/// In the order in which they are looked at.
const CANDIDATES: [Candidate; 4] = [
    Candidate { port: 11434, servers: "Ollama, apfel" },
    Candidate { port: 8080, servers: "llama.cpp" },
    Candidate { port: 1234, servers: "LM Studio" },
    Candidate { port: 8000, servers: "vLLM" },
];

/// A place without a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Looked {
    /// Where.
    pub(crate) candidate: Candidate,
    /// What was there instead; usually [`ModelError::Refused`].
    pub(crate) why: ModelError,
}

/// What looking around gave.
#[derive(Debug, Clone)]
pub(crate) struct Probed {
    /// The first that lists a model, with that model.
    pub(crate) found: Option<Endpoint>,
    /// Those that were looked at before it, all when none was found.
    pub(crate) looked: Vec<Looked>,
}

/// Looks at the usual ports of 127.0.0.1, a few seconds at most. No key is sent: whoever listens there was not chosen.
pub(crate) fn probe() -> Probed {
    probe_at(&CANDIDATES)
}

pub(super) fn probe_at(candidates: &[Candidate]) -> Probed {
    let mut looked = Vec::new();
    for candidate in candidates.iter().copied() {
        let url = format!("http://127.0.0.1:{}/v1", candidate.port);
        match list(&url, None, CONNECT, ANSWER).and_then(|model| Endpoint::new(&url, &model, None)) {
            Ok(endpoint) => return Probed { found: Some(endpoint), looked },
            Err(why) => looked.push(Looked { candidate, why }),
        }
    }
    Probed { found: None, looked }
}

/// The first model that an endpoint lists, for a person who named only the endpoint.
///
/// # Errors
/// [`ModelError::NoModel`] when it lists none; else as [`ModelError`] says.
pub(crate) fn first_model(base_url: &str, key: Option<&Secret>) -> Result<String, ModelError> {
    list(&normalized(base_url)?, key, Duration::from_secs(5), NAMED)
}

fn list(url: &str, key: Option<&Secret>, connect: Duration, answer: Duration) -> Result<String, ModelError> {
    let mut request = agent(url, connect, answer).get(format!("{url}/models"));
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {}", key.reveal()));
    }
    let body = json(url, "", key, request.call())?;
    let models = decode::models(&body).unwrap_or_default();
    first_to_talk(models).ok_or_else(|| ModelError::NoModel { url: url.to_owned() })
}

/// Local servers list their embedding models among the others.
fn first_to_talk(models: Vec<String>) -> Option<String> {
    let index = models.iter().position(|id| !id.contains("embed")).unwrap_or_default();
    models.into_iter().nth(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_embedding_model_is_the_last_resort() {
        let first = |ids: &[&str]| first_to_talk(ids.iter().map(|id| (*id).to_owned()).collect());
        assert_eq!(first(&["nomic-embed-text", "qwen", "llama"]).unwrap(), "qwen");
        assert_eq!(first(&["nomic-embed-text"]).unwrap(), "nomic-embed-text");
        assert_eq!(first(&[]), None);
    }
}

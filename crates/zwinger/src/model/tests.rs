//! The client against a server over real HTTP.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::{Value, json};

use super::probe::{Candidate, probe_at};
use super::*;

#[path = "../../tests/support/scripted_model.rs"]
mod scripted_model;
use scripted_model::{Reply as Scripted, ScriptedModel, calls, says};

fn request() -> Request {
    Request { messages: vec![Message::User { content: "Hi.".to_owned() }], ..Request::default() }
}

fn client(server: &ScriptedModel, key: Option<&str>) -> Client {
    Client::new(Endpoint::new(&server.base_url(), "m", key.and_then(Secret::new)).unwrap(), None)
}

/// The answer to one request.
fn complete(reply: impl Into<Scripted>) -> Result<Reply, ModelError> {
    let server = ScriptedModel::start(vec![reply.into()]).unwrap();
    client(&server, Some("sk-key")).complete(&request())
}

fn error(reply: impl Into<Scripted>) -> String {
    complete(reply).unwrap_err().to_string()
}

#[test]
fn a_request_is_small_and_carries_the_key_in_the_header_only() {
    let server = ScriptedModel::start(vec![says("Hello."), says("Again.")]).unwrap();
    let mut with_key = client(&server, Some("sk-key\n"));
    assert_eq!(with_key.complete(&request()).unwrap().content, "Hello.");
    let mut without = client(&server, None);
    assert_eq!(without.complete(&request()).unwrap().content, "Again.");
    let body = json!({"model": "m", "stream": false, "messages": [{"role": "user", "content": "Hi."}]});
    let mut sent = server.requests();
    assert_eq!(sent[0]["_authorization"].take(), "Bearer sk-key");
    assert_eq!(sent[1]["_authorization"].take(), Value::Null);
    for mut sent in sent {
        sent.as_object_mut().unwrap().remove("_authorization");
        assert_eq!(sent, body);
    }
}

#[test]
fn calls_come_back() {
    let reply = complete(calls("c1", "read_file", &json!({"path": "a"}))).unwrap();
    let call = ToolCall { id: "c1".to_owned(), name: "read_file".to_owned(), arguments: r#"{"path":"a"}"#.to_owned() };
    assert_eq!(reply, Reply { tool_calls: vec![call], ..Reply::default() });
}

#[test]
fn odd_calls_come_back() {
    let odd = json!({"choices": [{"finish_reason": null, "message": {"role": null, "content": null, "tool_calls": [
        {"function": {"name": "read_file", "arguments": {"path": "a"}}}]}}], "usage": null});
    let call = ToolCall { id: String::new(), name: "read_file".to_owned(), arguments: r#"{"path":"a"}"#.to_owned() };
    assert_eq!(complete(odd).unwrap().tool_calls, [call]);
}

#[test]
fn statuses_are_told_apart() {
    assert!(error((401, "wrong key sk-key")).ends_with("refused the key (HTTP 401): set $ZWINGER_API_KEY to its key"));
    assert!(error((403, "")).contains("refused the key (HTTP 403)"));
    assert!(error((404, "model not found")).contains("does not know the model m"));
    assert!(error((400, "context_length_exceeded")).contains("does not fit the window"));
    assert!(error((307, "")).contains("redirects to http://127.0.0.1:9/elsewhere"));
    let binary: Vec<u8> = (0..=255).cycle().take(4096).collect();
    let text = error((500, binary));
    assert!(text.contains("answered HTTP 500: ") && text.contains(r"\u{1}"), "{text}");
    assert!(text.chars().all(|character| !character.is_control()) && text.len() < 3000, "{text}");
}

#[test]
fn the_key_does_not_come_back_in_an_error() {
    let text = error((400, "you sent 'Bearer sk-key'"));
    assert!(text.contains("Bearer [secret]"), "{text}");
}

#[test]
fn bodies_that_are_no_answer() {
    assert!(error((200, "<html>hi</html>")).contains("did not answer with JSON"));
    assert!(error((200, "")).contains("answered with nothing"));
    assert!(error((200, " \n")).contains("answered with nothing"));
    assert!(error((200, vec![0xff, 0xfe])).contains("did not answer with JSON"));
    assert!(error(json!({"choices": []})).contains("answered without a message"));
    assert!(error(json!({"error": {"message": "no memory"}})).contains("no memory"));
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(error((200, nested)).contains("recursion limit"));
    let nested_arguments = format!(
        r#"{{"choices":[{{"message":{{"tool_calls":[{{"function":{{"name":"a","arguments":{}}}}}]}}}}]}}"#,
        "[".repeat(5000)
    );
    assert!(error((200, nested_arguments)).contains("did not answer with JSON"));
}

#[test]
fn a_body_is_read_up_to_a_limit() {
    let fits = "x".repeat(15 * 1024 * 1024);
    assert_eq!(complete(says(&fits)).unwrap().content.len(), fits.len());
    assert!(error((200, vec![b' '; 17 * 1024 * 1024])).contains("more than 16777216 bytes"));
    assert!(error((500, vec![b' '; 17 * 1024 * 1024])).contains("more than 16777216 bytes"));
}

#[test]
fn nobody_listens() {
    let url = ScriptedModel::start(Vec::new()).unwrap().base_url();
    let mut client = Client::new(Endpoint::new(&url, "m", None).unwrap(), None);
    assert_eq!(client.complete(&request()), Err(ModelError::Refused { url: url.clone() }));
    assert_eq!(first_model(&url, None), Err(ModelError::Refused { url }));
}

#[test]
fn a_key_that_cannot_stand_in_a_header() {
    let server = ScriptedModel::start(Vec::new()).unwrap();
    assert_eq!(client(&server, Some("a\nb")).complete(&request()), Err(ModelError::BadKey));
    assert_eq!(first_model(&server.base_url(), Secret::new("a\nb").as_ref()), Err(ModelError::BadKey));
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_transcript_holds_every_exchange_and_no_key() {
    let server = ScriptedModel::start(vec![says("Your key is sk-key."), (500, "sk-key").into()]).unwrap();
    let endpoint = Endpoint::new(&server.base_url(), "m", Secret::new("sk-key")).unwrap();
    let kept = Shared::default();
    let mut client = Client::new(endpoint, Some(Box::new(kept.clone())));
    client.complete(&request()).unwrap();
    client.complete(&request()).unwrap_err();
    let kept = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<Value> = kept.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["request"]["messages"][0]["content"], "Hi.");
    assert_eq!(lines[0]["request"]["model"], "m");
    assert_eq!(lines[0]["response"]["choices"][0]["message"]["content"], "Your key is [secret].");
    assert!(lines[1]["error"].as_str().unwrap().contains("HTTP 500"));
    assert_eq!(lines.len(), 2);
    assert!(!kept.contains("sk-key") && !kept.to_lowercase().contains("authorization"), "{kept}");
}

#[test]
fn a_transcript_that_cannot_be_kept_is_an_error() {
    struct Full;
    impl io::Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::other("disk full"))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let server = ScriptedModel::start(vec![says("x")]).unwrap();
    let mut client = Client::new(Endpoint::new(&server.base_url(), "m", None).unwrap(), Some(Box::new(Full)));
    assert_eq!(client.complete(&request()), Err(ModelError::Transcript("disk full".to_owned())));
}

#[test]
fn looking_around_takes_the_first_that_lists_a_model() {
    let port =
        |server: &ScriptedModel| server.base_url().trim_end_matches("/v1").rsplit(':').next().unwrap().parse().unwrap();
    let candidate = |port| Candidate { port, servers: "test" };
    let closed = candidate(port(&ScriptedModel::start(Vec::new()).unwrap()));
    let server = ScriptedModel::start(Vec::new()).unwrap();
    let open = candidate(port(&server));
    let probed = probe_at(&[closed, open, closed]);
    let found = probed.found.unwrap();
    assert_eq!((found.base_url(), found.model()), (server.base_url().as_str(), "scripted"));
    let looked: Vec<Candidate> = probed.looked.iter().map(|looked| looked.candidate).collect();
    assert_eq!(looked, [closed]);
    assert!(matches!(probed.looked[0].why, ModelError::Refused { .. }));
    assert!(probe_at(&[closed]).found.is_none());
    assert_eq!(first_model(server.base_url().trim_end_matches("/v1"), None).unwrap(), "scripted");
}

#[test]
fn looking_around_does_not_wait_for_a_silent_one() {
    // The kernel accepts the connection, nobody reads it.
    #[expect(clippy::disallowed_methods, reason = "a test server listens")]
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let begun = Instant::now();
    let probed = probe_at(&[Candidate { port, servers: "test" }]);
    assert!(matches!(probed.looked[0].why, ModelError::Timeout { .. }), "{:?}", probed.looked);
    assert!(begun.elapsed().as_secs() < 4);
}

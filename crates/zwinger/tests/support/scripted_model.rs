//! An OpenAI-compatible server that says what it was told to say: real HTTP on 127.0.0.1, one thread, one request at
//! a time. Used by integration tests and, through `#[path]`, by the unit tests of the model client.
#![expect(clippy::disallowed_methods, reason = "a test server listens, and wakes itself with a connection to stop")]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

/// Bytes of a request's head and of its body that are read.
const HEAD_LIMIT: u64 = 64 * 1024;
const BODY_LIMIT: u64 = 16 * 1024 * 1024;
/// A client that stalls fails its test, it does not hang it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is answered to one request: from a JSON value (status 200), or from a status and a body.
pub(crate) struct Reply {
    status: u16,
    body: Vec<u8>,
}

impl From<Value> for Reply {
    fn from(body: Value) -> Self {
        (200, body.to_string()).into()
    }
}

impl<B: Into<Vec<u8>>> From<(u16, B)> for Reply {
    fn from((status, body): (u16, B)) -> Self {
        Self { status, body: body.into() }
    }
}

/// The model says this.
pub(crate) fn says(text: &str) -> Reply {
    let message = json!({"role": "assistant", "content": text});
    json!({"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).into()
}

/// The model calls one tool.
pub(crate) fn calls(id: &str, name: &str, arguments: &Value) -> Reply {
    let call = json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments.to_string()}});
    let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    json!({"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
        .into()
}

/// The server. Lists one model, `scripted`; every POST takes the next reply, and after the last one is answered with 500.
pub(crate) struct ScriptedModel {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Value>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ScriptedModel {
    /// Listens on a free port until it is dropped.
    pub(crate) fn start(replies: Vec<Reply>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let requests = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (record, stopped) = (Arc::clone(&requests), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let mut replies = replies.into_iter();
            for stream in listener.incoming() {
                if stopped.load(Ordering::Acquire) {
                    break;
                }
                // A client that went away is its own test's business.
                let _ = stream.and_then(|stream| serve(&stream, &mut replies, &record));
            }
        });
        Ok(Self { address, requests, stop, thread: Some(thread) })
    }

    /// For `--base-url`.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The bodies of all POST requests so far, each with the header `authorization` as `_authorization`.
    pub(crate) fn requests(&self) -> Vec<Value> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(stream: &TcpStream, replies: &mut impl Iterator<Item = Reply>, record: &Mutex<Vec<Value>>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream).take(HEAD_LIMIT);
    let (mut line, mut length, mut authorization) = (String::new(), 0, Value::Null);
    reader.read_line(&mut line)?;
    let is_get = line.starts_with("GET ");
    let is_known = is_get && line.starts_with("GET /v1/models ") || line.starts_with("POST /v1/chat/completions ");
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().map_err(io::Error::other)?,
            "authorization" => authorization = value.trim().into(),
            _ => {}
        }
    }
    reader.set_limit(BODY_LIMIT.min(length));
    let mut body = Vec::new();
    reader.read_to_end(&mut body)?;
    let reply = match (is_known, is_get) {
        (false, _) => (404, "no such path").into(),
        (true, true) => json!({"object": "list", "data": [{"id": "scripted", "object": "model"}]}).into(),
        (true, false) => {
            let mut request: Value = serde_json::from_slice(&body)?;
            if let Some(request) = request.as_object_mut() {
                request.insert("_authorization".to_owned(), authorization);
            }
            record.lock().unwrap_or_else(PoisonError::into_inner).push(request);
            replies.next().unwrap_or_else(|| (500, "the script is at its end").into())
        }
    };
    answer(stream, &reply)
}

fn answer(mut stream: &TcpStream, Reply { status, body }: &Reply) -> io::Result<()> {
    let length = body.len();
    // A redirect has to lead somewhere.
    let location = if (300..400).contains(status) { "location: http://127.0.0.1:9/elsewhere\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status} Scripted\r\nconnection: close\r\n{location}content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    stream.flush()
}

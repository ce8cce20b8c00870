//! The whole loop without a model, a tool or a clock.

use serde_json::{Value, json};

use super::*;
use crate::model::ToolCall;

pub(super) fn tools() -> Vec<ToolSpec> {
    let tool = |name: &str, description: &str, parameters: Value, arguments: Value| ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters,
        example: Example {
            task: format!("Use {name}."),
            arguments,
            result: "It worked.".to_owned(),
            answer: "Done.".to_owned(),
        },
    };
    let string = json!({"type": "string"});
    vec![
        tool(
            "read_file",
            "Reads a file.",
            json!({"type": "object", "required": ["path"],
            "properties": {"path": string, "limit": {"type": "integer"}}}),
            json!({"path": "README.md"}),
        ),
        tool(
            "write_file",
            "Writes a file.",
            json!({"type": "object", "required": ["path", "content"],
            "properties": {"path": string, "content": string}}),
            json!({"path": "todo.txt", "content": "milk"}),
        ),
        tool("get_time", "Tells the time.", json!({"type": "object", "properties": {}}), json!({})),
    ]
}

pub(super) fn task(protocol: Protocol, max_steps: u32) -> Task {
    Task { text: "Do it.".to_owned(), workspace: "app".to_owned(), tools: tools(), protocol, max_steps }
}

fn agent(max_steps: u32) -> Agent {
    Agent::new(task(Protocol::Native, max_steps))
}

fn says(content: &str) -> Event {
    Event::Reply(Reply { content: content.to_owned(), ..Reply::default() })
}

/// A reply with calls: id, name, arguments.
fn calls(calls: &[(&str, &str, &str)]) -> Event {
    let tool_calls = calls.iter().map(|(id, name, arguments)| ToolCall {
        id: (*id).to_owned(),
        name: (*name).to_owned(),
        arguments: (*arguments).to_owned(),
    });
    Event::Reply(Reply { tool_calls: tool_calls.collect(), ..Reply::default() })
}

fn finished(text: &str, success: bool) -> Event {
    Event::ToolFinished(ToolReply { text: text.to_owned(), success })
}

fn asked(effect: Effect) -> Value {
    let Effect::AskModel(request) = effect else { panic!("asks no model: {effect:?}") };
    serde_json::to_value(request).unwrap()
}

fn ran(effect: Effect) -> (String, String, Value) {
    let Effect::RunTool { id, name, arguments } = effect else { panic!("runs no tool: {effect:?}") };
    (id, name, arguments)
}

#[test]
fn native_from_task_to_answer() {
    let mut agent = agent(25);
    let request = asked(agent.handle(Event::Start));
    assert_eq!(request["messages"].as_array().unwrap().len(), 2);
    assert_eq!(request["messages"][0]["role"], "system");
    assert_eq!(request["messages"][1], json!({"role": "user", "content": "Do it."}));
    assert_eq!(request["tools"][0]["type"], "function");
    assert_eq!(request["tools"][2]["function"]["parameters"]["properties"], json!({}));
    for absent in ["response_format", "temperature", "max_tokens", "model", "stream"] {
        assert_eq!(request.get(absent), None, "{absent}");
    }
    let effect = agent.handle(calls(&[("c1", "read_file", r#"{"path":"a"}"#)]));
    assert_eq!(ran(effect), ("c1".to_owned(), "read_file".to_owned(), json!({"path": "a"})));
    let request = asked(agent.handle(finished("hello", true)));
    assert_eq!(
        request["messages"][2],
        json!({"role": "assistant", "content": "", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": "{\"path\":\"a\"}"}}]})
    );
    assert_eq!(request["messages"][3], json!({"role": "tool", "tool_call_id": "c1", "content": "hello"}));
    assert_eq!(agent.handle(says("It says hello.")), Effect::Finished("It says hello.".to_owned()));
    assert_eq!(agent.steps(), 2);
}

#[test]
fn parameters_keep_their_order() {
    let Effect::AskModel(request) = agent(1).handle(Event::Start) else { panic!("asks no model") };
    let wire = serde_json::to_string(&request.tools).unwrap();
    assert!(wire.contains(r#""properties":{"path":{"type":"string"},"content""#), "{wire}");
    assert!(wire.contains(r#""properties":{"path":{"type":"string"},"limit""#), "{wire}");
}

#[test]
fn calls_of_one_reply_run_in_order_before_the_model_is_asked() {
    let mut agent = agent(25);
    agent.handle(Event::Start);
    let effect = agent.handle(calls(&[("x", "read_file", "{}"), ("y", "get_time", ""), ("z", "write_file", "{}")]));
    assert_eq!(ran(effect).0, "x");
    // An empty text is not JSON; the loop answers that itself.
    assert_eq!(ran(agent.handle(finished("1", true))).0, "z");
    let request = asked(agent.handle(finished("3", false)));
    let results = |key: &str| -> Vec<String> {
        let messages = request["messages"].as_array().unwrap().iter().skip(3);
        messages.map(|message| message[key].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(results("tool_call_id"), ["x", "y", "z"]);
    assert!(results("content")[1].starts_with("Error: the arguments of get_time are not valid JSON"));
}

#[test]
fn ids_are_made_unique() {
    let mut agent = agent(25);
    agent.handle(Event::Start);
    let effect = agent.handle(calls(&[("", "get_time", "{}"), ("same", "get_time", "{}"), ("same", "get_time", "{}")]));
    let mut ids = vec![ran(effect).0];
    ids.push(ran(agent.handle(finished("", true))).0);
    ids.push(ran(agent.handle(finished("", true))).0);
    agent.handle(finished("", true));
    let effect =
        agent.handle(calls(&[("call00003", "get_time", "{}"), ("", "get_time", "{}"), ("same", "get_time", "{}")]));
    ids.push(ran(effect).0);
    ids.push(ran(agent.handle(finished("", true))).0);
    ids.push(ran(agent.handle(finished("", true))).0);
    assert_eq!(ids, ["call00001", "same", "call00002", "call00003", "call00004", "call00005"]);
    let request = asked(agent.handle(finished("", true)));
    for (message, id) in [(2, "call00001"), (6, "call00003")] {
        assert_eq!(request["messages"][message]["tool_calls"][0]["id"], id);
    }
}

#[test]
fn an_unknown_tool_is_left_to_the_tools() {
    let mut agent = agent(25);
    agent.handle(Event::Start);
    assert_eq!(ran(agent.handle(calls(&[("1", "fs_read", "{}")]))).1, "fs_read");
}

#[test]
fn the_step_limit_counts_requests_and_runs_nothing_after_the_last() {
    let mut agent = agent(2);
    agent.handle(Event::Start);
    ran(agent.handle(calls(&[("1", "get_time", "{}")])));
    asked(agent.handle(finished("", true)));
    let effect = agent.handle(calls(&[("2", "write_file", "{}")]));
    assert_eq!(effect, Effect::GiveUp(Reason::StepLimit(2)));
    assert_eq!(Agent::new(task(Protocol::Json, 0)).handle(Event::Start), Effect::GiveUp(Reason::StepLimit(0)));
}

#[test]
fn an_answer_in_the_last_step_counts() {
    let mut agent = agent(1);
    agent.handle(Event::Start);
    assert_eq!(agent.handle(says("Yes.")), Effect::Finished("Yes.".to_owned()));
}

#[test]
fn a_failing_call_runs_three_times_is_answered_twice_and_ends_the_loop() {
    let mut agent = agent(25);
    agent.handle(Event::Start);
    for spelling in [r#"{"path":"a","limit":1}"#, r#"{ "limit": 1, "path": "a" }"#, r#"{"path":"a","limit":1}"#] {
        ran(agent.handle(calls(&[("", "read_file", spelling)])));
        asked(agent.handle(finished("Error: a does not exist.", false)));
    }
    for _ in 0..2 {
        let request = asked(agent.handle(calls(&[("", "read_file", r#"{"path":"a","limit":1}"#)])));
        let last = request["messages"].as_array().unwrap().last().unwrap();
        assert_eq!(last["content"], repeats::ADVICE);
    }
    let effect = agent.handle(calls(&[("", "read_file", r#"{"path":"a","limit":1}"#)]));
    assert_eq!(effect, Effect::GiveUp(Reason::Repeating("read_file".to_owned())));
}

#[test]
fn the_count_of_failures_holds_within_one_reply() {
    let mut agent = agent(25);
    agent.handle(Event::Start);
    let mut effect = agent.handle(calls(&[("", "read_file", r#"{"path":"a"}"#); 9]));
    for _ in 0..3 {
        ran(effect);
        effect = agent.handle(finished("Error: no.", false));
    }
    assert_eq!(effect, Effect::GiveUp(Reason::Repeating("read_file".to_owned())));
}

#[test]
fn arguments_that_are_no_json_count_as_failures() {
    let mut agent = agent(25);
    agent.handle(Event::Start);
    for _ in 0..5 {
        asked(agent.handle(calls(&[("", "read_file", "{path")])));
    }
    let effect = agent.handle(calls(&[("", "read_file", "{path")]));
    assert_eq!(effect, Effect::GiveUp(Reason::Repeating("read_file".to_owned())));
}

#[test]
fn an_unreadable_reply_is_explained_once_in_a_row() {
    let mut agent = agent(25);
    agent.handle(Event::Start);
    let request = asked(agent.handle(says("")));
    assert_eq!(request["messages"][2], json!({"role": "assistant", "content": "(nothing)"}));
    assert!(request["messages"][3]["content"].as_str().unwrap().contains("Call a tool"));
    ran(agent.handle(calls(&[("", "get_time", "{}")])));
    agent.handle(finished("", true));
    asked(agent.handle(says(" ")));
    assert_eq!(agent.handle(says("")), Effect::GiveUp(Reason::Unreadable("(empty)".to_owned())));
    assert_eq!(agent.steps(), 4);
}

#[test]
fn an_unreadable_reply_counts_as_a_step() {
    let mut agent = agent(1);
    agent.handle(Event::Start);
    assert_eq!(agent.handle(says("")), Effect::GiveUp(Reason::StepLimit(1)));
}

#[test]
fn a_model_error_ends_the_loop() {
    let error = ModelError::Refused { url: "http://h/v1".to_owned() };
    let mut agent = agent(25);
    agent.handle(Event::Start);
    assert_eq!(agent.handle(Event::ModelFailed(error.clone())), Effect::GiveUp(Reason::Model(error)));
}

#[test]
fn events_out_of_order_end_the_loop() {
    let wrong: [fn() -> Event; 3] = [|| says("x"), || finished("", true), || Event::ModelFailed(ModelError::BadKey)];
    for event in wrong {
        assert_eq!(agent(25).handle(event()), Effect::GiveUp(Reason::OutOfOrder));
    }
    let mut waiting = agent(25);
    waiting.handle(Event::Start);
    assert_eq!(waiting.handle(Event::Start), Effect::GiveUp(Reason::OutOfOrder));
    let mut running = agent(25);
    running.handle(Event::Start);
    ran(running.handle(calls(&[("", "get_time", "{}")])));
    assert_eq!(running.handle(says("x")), Effect::GiveUp(Reason::OutOfOrder));
    let mut ended = agent(25);
    ended.handle(Event::Start);
    ended.handle(says("x"));
    for event in [Event::Start, says("x"), finished("", true)] {
        assert_eq!(ended.handle(event), Effect::GiveUp(Reason::OutOfOrder));
    }
}

#[test]
fn json_from_task_to_answer() {
    let mut agent = Agent::new(task(Protocol::Json, 25));
    let request = asked(agent.handle(Event::Start));
    let messages = request["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 1 + 4 * tools().len() + 1);
    assert_eq!(messages[1], json!({"role": "user", "content": "Task: Use read_file."}));
    let write = r#"{"tool": "write_file", "arguments": {"path": "todo.txt", "content": "milk"}}"#;
    let native = |id: &str, name: &str, arguments: &str| json!([{"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}]);
    let calls = native("example01", "write_file", r#"{"path":"todo.txt","content":"milk"}"#);
    assert_eq!(messages[6], json!({"role": "assistant", "content": write, "tool_calls": calls}));
    assert_eq!(messages[7], json!({"role": "tool", "tool_call_id": "example01", "content": "It worked."}));
    assert_eq!(messages[8], json!({"role": "assistant", "content": r#"{"answer": "Done."}"#}));
    assert_eq!(messages[13], json!({"role": "user", "content": "Task: Do it."}));
    assert_eq!(request["response_format"]["type"], "json_schema");
    assert_eq!(request.get("tools"), None);
    let effect = agent.handle(says(r#"Well: {"tool":"write_file","arguments":{"path":"y","content":"x"}}"#));
    assert_eq!(ran(effect), ("call00001".to_owned(), "write_file".to_owned(), json!({"path": "y", "content": "x"})));
    let request = asked(agent.handle(finished("Wrote y.", true)));
    let written = r#"{"tool": "write_file", "arguments": {"path": "y", "content": "x"}}"#;
    let calls = native("call00001", "write_file", r#"{"path":"y","content":"x"}"#);
    assert_eq!(request["messages"][14], json!({"role": "assistant", "content": written, "tool_calls": calls}));
    assert_eq!(request["messages"][15], json!({"role": "tool", "tool_call_id": "call00001", "content": "Wrote y."}));
    let request = asked(agent.handle(says("It is written.")));
    assert_eq!(request["messages"][16], json!({"role": "assistant", "content": "It is written."}));
    assert_eq!(request["messages"][17], json!({"role": "user", "content": json::FORM}));
    assert_eq!(agent.handle(says(r#"{"answer": "y is written."}"#)), Effect::Finished("y is written.".to_owned()));
}

//! `zwinger ask` with a model that says what it was told to say, over real HTTP.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::Tag;
use crate::scratch::{Ended, Scratch, list, read_text};
use crate::scripted_model::{Reply, ScriptedModel, calls, says};

fn ask(scratch: &Scratch, model: &ScriptedModel, options: &[&str]) -> Ended {
    let url = model.base_url();
    let words = [&["ask", "--base-url", &url], options, &["do it"]].concat();
    scratch.start(scratch.zwinger(&words)).end()
}

fn model(replies: Vec<Reply>) -> ScriptedModel {
    ScriptedModel::start(replies).unwrap()
}

/// The tool messages of the last request.
fn results(model: &ScriptedModel) -> Vec<String> {
    let requests = model.requests();
    let messages = requests.last().and_then(|request| request["messages"].as_array()).cloned().unwrap_or_default();
    let of_tools = messages.iter().filter(|message| message["role"] == "tool");
    of_tools.filter_map(|message| message["content"].as_str().map(str::to_owned)).collect()
}

#[test]
fn a_model_reads_writes_and_answers() {
    let scratch = Scratch::new();
    let script = vec![
        calls("1", "list_directory", &json!({})),
        calls("2", "read_file", &json!({"path": "sub/inside.txt"})),
        calls("3", "write_file", &json!({"path": "new.txt", "content": "made\n"})),
        calls("4", "run_command", &json!({"command": "cat new.txt"})),
        says("all done"),
    ];
    let model = model(script);
    let ended = ask(&scratch, &model, &["--approve", "yes"]);
    assert_eq!((ended.code, ended.text().as_str()), (0, "all done\n"), "{ended:?}");
    assert!(ended.stderr.contains("→ tool call: read_file({\"path\": \"sub/inside.txt\"})  [landlock]"), "{ended:?}");
    let results = results(&model);
    assert_eq!(results[..3], ["sub/", "inside\n", "Wrote new.txt (5 bytes)."]);
    assert!(results[3].starts_with("made\n[exit 0 · "), "{results:?}");
    assert_eq!(read_text(scratch.work.join("new.txt")), "made\n");
    assert_eq!(scratch.audit().iter().filter(|record| record["event"] == "begin").count(), 4);
}

#[test]
fn json_steps_are_held_by_a_schema_and_reach_the_tools() {
    let scratch = Scratch::new();
    let model = model(vec![
        says(r#"{"tool": "read_file", "arguments": {"path": "sub/inside.txt"}}"#),
        says(r#"{"answer": "it says inside"}"#),
    ]);
    let ended = ask(&scratch, &model, &["--tool-calls", "json"]);
    assert_eq!((ended.code, ended.text().as_str()), (0, "it says inside\n"), "{ended:?}");
    assert_eq!(results(&model).last().map(String::as_str), Some("inside\n"));
    let first = &model.requests()[0];
    assert_eq!(first["response_format"]["type"], "json_schema");
    assert!(first.get("tools").is_none());
    // One worked example a tool.
    let examples = first["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "tool").count();
    assert_eq!(examples, 6);
}

#[test]
fn the_model_is_told_the_rules() {
    let scratch = Scratch::new();
    let model = model(vec![says("done")]);
    assert_eq!(ask(&scratch, &model, &[]).code, 0);
    let request = &model.requests()[0];
    let prompt = request["messages"][0]["content"].as_str().unwrap();
    for rule in
        ["only with them", "Paths are relative", "read a file before you change it", "need the person's approval"]
    {
        assert!(prompt.contains(rule), "{rule:?} is not in {prompt}");
    }
    let tools = request["tools"].as_array().unwrap();
    for tool in tools {
        let function = &tool["function"];
        assert_ne!(function["description"].as_str().unwrap_or_default(), "", "{tool}");
        assert_eq!(function["parameters"]["additionalProperties"], false, "{tool}");
    }
    let write = tools.iter().find(|tool| tool["function"]["name"] == "write_file").unwrap();
    assert!(write.to_string().contains("All of the new content"), "{write}");
}

#[test]
fn twenty_five_steps_unless_asked_otherwise() {
    let scratch = Scratch::new();
    let model = model((0..30).map(|_| calls("1", "get_time", &json!({}))).collect());
    assert_eq!(ask(&scratch, &model, &[]).code, 4);
    assert_eq!(model.requests().len(), 25);
}

#[test]
fn a_denial_and_a_path_outside_are_results_and_the_task_goes_on() {
    let scratch = Scratch::new();
    let model = model(vec![
        calls("1", "write_file", &json!({"path": "no.txt", "content": "x"})),
        calls("2", "read_file", &json!({"path": "../work-evil/marker"})),
        calls("3", "read_file", &json!({"path": "sub/inside.txt", "approved": true})),
        calls("4", "format_disk", &json!({})),
        says("I could not"),
    ]);
    let ended = ask(&scratch, &model, &["--approve", "no"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let results = results(&model);
    assert_eq!(results[0], "Error: write to no.txt declined by the user.");
    assert_eq!(results[1], "Error: ../work-evil/marker is outside the workspace.");
    assert!(results[2].contains("unknown argument \"approved\""), "{results:?}");
    assert!(results[3].contains("unknown tool"), "{results:?}");
    assert!(!model.requests().iter().any(|request| request.to_string().contains(&scratch.secret)));
    assert_eq!(list(&scratch.work), ["sub"]);
    scratch.assert_out_untouched();
}

#[test]
fn the_exit_statuses() {
    let scratch = Scratch::new();
    let endless = || model((0..9).map(|_| calls("1", "get_time", &json!({}))).collect());
    assert_eq!(ask(&scratch, &endless(), &["--max-steps", "3"]).code, 4);
    let mute = model(vec![says(""), says("")]);
    assert_eq!(ask(&scratch, &mute, &[]).code, 1);
    let broken = model(vec![(500, "out of order").into()]);
    let ended = ask(&scratch, &broken, &[]);
    assert!(ended.code == 5 && ended.stderr.contains("500"), "{ended:?}");
    let closed = scratch.zwinger(&["ask", "--base-url", "http://127.0.0.1:9/v1", "--model", "m", "do it"]);
    let ended = scratch.start(closed).end();
    assert!(ended.code == 5 && ended.stderr.contains("connection refused"), "{ended:?}");
    assert_eq!(ask(&scratch, &mute, &["--backend", "castle"]).code, 2);
}

#[test]
fn the_key_goes_to_the_endpoint_and_nowhere_else() {
    let scratch = Scratch::new();
    let model = model(vec![calls("1", "run_command", &json!({"command": "env"})), says("done")]);
    let transcript = scratch.base.join("transcript");
    let url = model.base_url();
    let words = ["ask", "--base-url", &url, "--approve", "yes", "--transcript", transcript.to_str().unwrap(), "do it"];
    let mut command = scratch.zwinger(&words);
    command.env("ZWINGER_API_KEY", "key-of-the-test");
    let ended = scratch.start(command).end();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(model.requests()[0]["_authorization"], "Bearer key-of-the-test");
    assert!(results(&model)[0].contains("PATH="));
    for text in [read_text(&transcript), read_text(scratch.audit_log()), results(&model).concat(), ended.stderr.clone()]
    {
        assert!(!text.contains("key-of-the-test"), "{text}");
    }
    assert_eq!(read_text(&transcript).lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count(), 2);
}

#[test]
fn f04_a_models_text_cannot_act_on_the_terminal() {
    let scratch = Scratch::new();
    let model =
        model(vec![calls("1", "read_file", &json!({"path": "a\u{1b}[2Kb\u{202e}c"})), says("done\u{1b}]0;title\u{7}")]);
    let ended = ask(&scratch, &model, &[]);
    assert!(!ended.shows("\u{1b}") && !ended.shows("\u{202e}") && !ended.shows("\u{7}"), "{ended:?}");
    assert!(ended.text().contains("done\\e]0;title"), "{ended:?}");
}

#[test]
fn i10_what_a_task_left_is_settled_first() {
    let scratch = Scratch::new();
    let tag = Tag::new();
    let command = format!("echo x > AGENTS.md; sleep {}", tag.0);
    let model = model(vec![calls("1", "run_command", &json!({"command": command})), says("never")]);
    let url = model.base_url();
    let running = scratch.start(scratch.zwinger(&["ask", "--base-url", &url, "--approve", "yes", "do it"]));
    tag.wait_for(1);
    running.signal(Signal::TERM);
    let ended = running.end();
    assert_eq!((tag.asleep().len(), scratch.work.join("AGENTS.md").exists()), (0, false), "{ended:?}");
    assert!(ended.code == 128 + 15 && ended.stderr.contains("quarantined AGENTS.md"), "{ended:?}");
    assert_eq!(ended.text(), "");
}

//! Sessions that are kept: what comes back, what never does by itself, and what cannot be used.

use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};
use zwinger_core::gate::Decision;
use zwinger_core::policy::Mode;
use zwinger_core::sandbox::{Backend, Confinement};
use zwinger_core::session::{Opening, Which};
use zwinger_core::{Call, Options, Runtime};

use crate::gate::Terminal;
use crate::library::{Scripted, always};
use crate::process::{Tag, command};
use crate::scratch::{Ended, Scratch, ZWINGER, link, list, make_dir, read_text, remove, rename, write};
use crate::scripted_model::{ScriptedModel, says};

/// A session that is kept, by the library.
fn open(scratch: &Scratch, mode: Option<Mode>, approver: Scripted) -> Runtime {
    let options = Options {
        confinement: Confinement::new(&scratch.work, Some(&scratch.home)).unwrap(),
        backend: Backend::Landlock,
        approver: Box::new(approver),
        state: scratch.state(),
        program: ZWINGER.into(),
    };
    Runtime::open_as(options, &Opening { door: "library".into(), mode, which: Which::New, one_call: false }).unwrap()
}

/// The name of a new one that nobody uses any more.
pub(crate) fn kept(scratch: &Scratch, mode: Option<Mode>) -> String {
    let runtime = open(scratch, mode, always(Decision::Session));
    let id = runtime.session().to_string();
    runtime.close();
    id
}

pub(crate) fn session(scratch: &Scratch, words: &[&str]) -> Ended {
    scratch.start(scratch.zwinger(&[&["session"], words].concat())).end()
}

pub(crate) fn directory(scratch: &Scratch) -> PathBuf {
    let workspaces = scratch.state().join("workspaces");
    let [id] = list(&workspaces).try_into().expect("one workspace");
    workspaces.join(id).join("sessions")
}

fn put(scratch: &Scratch, path: &str, options: &[&str]) -> Ended {
    scratch.tool("write_file", &json!({"path": path, "content": "x"}), options)
}

for_every_caller!(a_session_is_gone_on_with);

/// By the command line alone, for every caller: `ask` keeps it, `tool` goes on with it.
fn a_session_is_gone_on_with(scratch: &Scratch) {
    assert_eq!(session(scratch, &["list"]).text(), "");
    assert_eq!(put(scratch, "f", &["--session", "last"]).code, 125);
    let model = ScriptedModel::start(vec![says("done")]).unwrap();
    let url = model.base_url();
    let ended = scratch.start(scratch.zwinger(&["ask", "--base-url", &url, "--mode", "plan", "do it"])).end();
    assert_eq!(ended.code, 0, "{ended:?}");
    let [id] = list(&directory(scratch)).try_into().expect("one session");
    assert!(ended.stderr.contains(&format!("session: {id}\n")), "{ended:?}");
    let listed = session(scratch, &["list"]).text();
    assert!(listed.starts_with(&id) && listed.ends_with("  ask  plan  0 grants\n"), "{listed}");
    for which in ["last", &id] {
        let ended = put(scratch, "f", &["--approve", "yes", "--session", which]);
        assert!(ended.code == 3 && ended.error().contains("plan mode"), "{ended:?}");
        // Its walls are those of the mode too.
        let touch = json!({"command": "touch f"});
        let ended = scratch.tool("run_command", &touch, &["--session", which]);
        assert_ne!(ended.json().get("exit_code"), Some(&json!(0)), "{ended:?}");
    }
    assert_eq!(list(&scratch.work), ["sub"]);
    assert_eq!(put(scratch, "f", &["--approve", "yes", "--session", &id, "--mode", "sandbox"]).code, 0);
    assert!(scratch.audit().iter().all(|record| record["session"] == id.as_str()));
    let shown = session(scratch, &["show", &id]).text();
    assert!(shown.contains("\nmode       sandbox\n") && shown.contains(", ended\n"), "{shown}");
    assert_eq!(session(scratch, &["show", "last"]).text(), shown);
    let deleted = session(scratch, &["delete", "last"]);
    assert!(deleted.code == 0 && deleted.stderr.contains(&id), "{deleted:?}");
    for words in [["show", "last"], ["delete", "last"]] {
        let ended = session(scratch, &words);
        assert!(ended.code == 1 && ended.stderr.contains("no session is stored"), "{ended:?}");
    }
    assert_eq!((session(scratch, &["list"]).text().as_str(), list(&directory(scratch)).len()), ("", 0));
}

#[test]
fn a_grant_is_on_the_disk_when_it_is_given() {
    let scratch = Scratch::new();
    let runtime = open(&scratch, None, always(Decision::Session));
    let id = runtime.session().to_string();
    for call in [
        Call::new("write_file", json!({"path": "sub/f", "content": "x"})),
        Call::new("run_command", json!({"command": "echo a\u{1b}[2K\n > g"})),
    ] {
        assert!(runtime.call(&call).success);
    }
    // As if it had been killed: what was granted is on the disk already.
    std::mem::forget(runtime);
    let stored: Value = serde_json::from_str(&read_text(directory(&scratch).join(&id).join("session.json"))).unwrap();
    assert_eq!(stored["granted"][0]["grants"].as_array().map(Vec::len), Some(2), "{stored}");
}

#[test]
fn grants_are_gone_on_with() {
    let scratch = Scratch::new();
    let id = kept(&scratch, None);
    let mut terminal = Terminal::new();
    let arguments = json!({"path": "sub/f", "content": "x"}).to_string();
    let running = terminal.zwinger(&scratch, &["tool", "write_file", &arguments, "--session", &id], "");
    assert_eq!(terminal.answer(running, "a").code, 0);
    remove(scratch.work.join("sub/f"));
    let before = scratch.audit().len();
    assert_eq!(put(&scratch, "sub/f", &["--session", &id]).code, 0);
    assert_eq!(scratch.audit()[before]["by"], "grant");
    for (path, options) in [("sub/g", &["--session", &id][..]), ("sub/f", &[])] {
        assert_eq!(put(&scratch, path, options).code, 3, "{path}");
    }
    let shown = session(&scratch, &["show", &id]).text();
    assert!(shown.ends_with("\ngrant      write sub/f\n"), "{shown}");
    // Of another workspace it is none.
    let other = scratch.base.join("other");
    make_dir(&other);
    let options = ["--session", &id, "--workdir", other.to_str().unwrap()];
    let ended = put(&scratch, "sub/f", &options);
    assert!(ended.code == 125 && ended.stderr.contains("there is no session"), "{ended:?}");
}

#[test]
fn a_looser_mode_is_a_persons_word() {
    let scratch = Scratch::new();
    let id = kept(&scratch, None);
    let full = |options: &[&str]| put(&scratch, "f", &[&["--session", &id], options].concat());
    let ended = full(&["--mode", "full-access"]);
    assert!(ended.code == 0 && ended.stderr.contains("no walls"), "{ended:?}");
    let file = directory(&scratch).join(&id).join("session.json");
    let stored = read_text(&file);
    assert!(stored.contains("\"full-access\""), "{stored}");
    let ended = full(&[]);
    assert!(ended.code == 125 && ended.stderr.contains("say --mode full-access"), "{ended:?}");
    assert_eq!(read_text(&file), stored);
    assert_eq!(full(&["--mode", "sandbox"]).code, 3);
    assert!(read_text(&file).contains("\"sandbox\""));
    for options in [&["--mode", "plan", "--backend", "none"][..], &["--mode", "full-access", "--backend", "landlock"]] {
        assert_eq!(full(options).code, 125, "{options:?}");
    }
}

#[test]
fn what_is_not_a_session_is_refused_by_name_and_kept() {
    let scratch = Scratch::new();
    let id = kept(&scratch, None);
    let file = directory(&scratch).join(&id).join("session.json");
    let good = read_text(&file);
    let other = kept(&scratch, None);
    let foreign = read_text(directory(&scratch).join(&other).join("session.json"));
    let granted = |grant: &str| good.replace("[]", &format!("[{{\"under\": [], \"grants\": [{grant}]}}]"));
    for (bad, says) in [
        ("", "EOF"),
        ("{}", "missing field"),
        (good.split_at(good.len() / 2).0, "EOF"),
        (&good.replace("\"taint\": null", "\"taint\": \"restricted\""), "another version's"),
        (&good.replace("\"version\": 1", "\"version\": 2"), "another version's"),
        (&good.replace("\"sandbox\"", "\"staged\""), "unknown variant"),
        (&good.replace("\"pid\"", "\"approved\": true, \"pid\""), "unknown field"),
        (&granted("{\"file\": \"../../etc\"}"), "outside the workspace"),
        (&granted("{\"file\": \"/etc/x\"}"), "outside the workspace"),
        (&granted("{\"socket\": \"x\"}"), "unknown variant"),
        (
            &granted(
                "{\"command\": {\"command\": \"x\", \"directory\": \".\", \"read_only\": false, \"background\": false}}",
            ),
            "missing field",
        ),
        (&granted("{\"file\": \"x\"}").replace("\"under\": [], ", ""), "missing field"),
        (&granted("{\"file\": \"x\"}").replace("\"under\"", "\"until\": 1, \"under\""), "unknown field"),
        (&granted(&format!("{{\"file\": \"{}\"}}", "x".repeat(5 << 20))), "too large"),
        (&foreign, "another session's"),
    ] {
        write(&file, bad);
        let ended = put(&scratch, "f", &["--approve", "yes", "--session", &id]);
        assert!(ended.code == 125 && ended.stderr.contains(says) && ended.stderr.contains(&id), "{says} {ended:?}");
        assert_eq!(session(&scratch, &["show", &id]).code, 1, "{says}");
        assert!(session(&scratch, &["list"]).text().contains(&other), "{says}");
        assert_eq!(read_text(&file), bad, "{says}");
    }
    // What it leads to is neither read nor written.
    remove(&file);
    link(scratch.out.join("marker").to_str().unwrap(), &file);
    assert_eq!(put(&scratch, "f", &["--approve", "yes", "--session", &id]).code, 125);
    remove(&file);
    remove_session(&scratch, &id);
    link(scratch.out.to_str().unwrap(), directory(&scratch).join(&id));
    for ended in [put(&scratch, "f", &["--session", &id]), session(&scratch, &["delete", &id])] {
        assert_ne!(ended.code, 0, "{ended:?}");
    }
    assert_eq!(list(&scratch.work), ["sub"]);
    scratch.assert_out_untouched();
}

fn remove_session(scratch: &Scratch, id: &str) {
    rename(directory(scratch).join(id), scratch.base.join("was"));
}

#[test]
fn names_are_names() {
    let scratch = Scratch::new();
    let id = kept(&scratch, None);
    let absolute = directory(&scratch).join(&id).to_str().unwrap().to_owned();
    for name in [
        "",
        ".",
        "..",
        "../../../audit",
        &format!("./{id}"),
        &format!("{id}/"),
        &id.to_uppercase().replace(|c: char| c.is_ascii_digit(), "A"),
        &absolute,
        "*",
        "last/..",
        "0123456789abcde",
    ] {
        for words in [["show", name], ["delete", name]] {
            assert_eq!(session(&scratch, &words).code, 2, "{words:?}");
        }
        assert_eq!(put(&scratch, "f", &["--session", name]).code, 2, "{name}");
    }
    for words in [["show", "0123456789abcdef"], ["delete", "0123456789abcdef"]] {
        let ended = session(&scratch, &words);
        assert!(ended.code == 1 && ended.stderr.contains("there is no session 0123456789abcdef"), "{ended:?}");
    }
    assert_eq!(list(&directory(&scratch)), [id]);
}

#[test]
fn one_in_use_is_left_alone() {
    let scratch = Scratch::new();
    let id = kept(&scratch, None);
    let tag = Tag::new();
    let sleep = json!({"command": format!("sleep {}", tag.0)}).to_string();
    let running =
        scratch.start(scratch.zwinger(&["tool", "run_command", &sleep, "--approve", "yes", "--session", &id]));
    tag.wait_for(1);
    assert!(session(&scratch, &["list"]).text().ends_with("  in use\n"));
    for ended in [session(&scratch, &["delete", &id]), put(&scratch, "f", &["--session", &id])] {
        assert!(ended.code != 0 && ended.stderr.contains(&format!("session {id} is in use by process ")), "{ended:?}");
    }
    assert_eq!(list(&directory(&scratch)), std::slice::from_ref(&id));
    running.signal(Signal::KILL);
    running.end();
    tag.assert_gone();
    assert_eq!(session(&scratch, &["delete", &id]).code, 0);
    assert_eq!(list(&directory(&scratch)), Vec::<String>::new());
}

#[test]
fn old_and_large_ones_go_when_another_is_opened() {
    let scratch = Scratch::new();
    let ids: Vec<_> = (0..4).map(|_| kept(&scratch, None)).collect();
    let file = |id: &str| directory(&scratch).join(id).join("session.json");
    let touch = |id: &str, when: &str| {
        assert!(command(&["touch", "-d", when, file(id).to_str().unwrap()]).status().unwrap().success());
    };
    touch(&ids[0], "31 days ago");
    touch(&ids[1], "29 days ago");
    // The clock was ahead.
    touch(&ids[2], "400 days");
    assert!(session(&scratch, &["list"]).text().starts_with(&ids[2]));
    touch(&ids[3], "40 days ago");
    let large = directory(&scratch).join(&ids[1]).join("large");
    assert!(command(&["truncate", "-s", "1G", large.to_str().unwrap()]).status().unwrap().success());
    // One that is opened is in use.
    assert_eq!(put(&scratch, "f", &["--approve", "yes", "--session", &ids[2]]).code, 0);
    assert_eq!(list(&directory(&scratch)), [ids[2].clone()]);
    // Not by a session that is not kept.
    touch(&ids[2], "31 days ago");
    assert_eq!(put(&scratch, "f", &["--approve", "yes"]).code, 0);
    assert_eq!(list(&directory(&scratch)), [ids[2].clone()]);
    // Those that are open are never too old.
    let runtime = open(&scratch, None, always(Decision::Deny));
    let id = runtime.session().to_string();
    touch(&id, "31 days ago");
    let other = kept(&scratch, None);
    let mut left = vec![id, other];
    left.sort();
    assert_eq!(list(&directory(&scratch)), left);
}

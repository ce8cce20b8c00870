//! The library as an embedder uses it, with an approver of its own.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use zwinger_core::action::WorkspacePath;
use zwinger_core::gate::{Approver, Decision, Question};
use zwinger_core::output::{Kind, Outcome};
use zwinger_core::sandbox::{Backend, Confinement};
use zwinger_core::{Call, CustomTool, During, Effect, Failed, Invalid, OpenError, Options, Runtime};

use crate::scratch::{Scratch, ZWINGER, list, make_dir, read_text, remove, write};

/// Answers by a function and keeps what it was shown.
#[derive(Clone)]
pub(crate) struct Scripted {
    decide: Arc<dyn Fn(usize) -> Decision + Send + Sync>,
    asked: Arc<AtomicUsize>,
    shown: Arc<Mutex<Vec<Question>>>,
}

impl Scripted {
    fn new(decide: impl Fn(usize) -> Decision + Send + Sync + 'static) -> Self {
        Self { decide: Arc::new(decide), asked: Arc::default(), shown: Arc::default() }
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Approver for Scripted {
    fn decide(&self, question: &Question) -> Decision {
        self.shown.lock().unwrap().push(question.clone());
        (self.decide)(self.asked.fetch_add(1, Ordering::Relaxed))
    }

    fn name(&self) -> &str {
        "scripted"
    }
}

pub(crate) fn always(decision: Decision) -> Scripted {
    Scripted::new(move |_| decision.clone())
}

pub(crate) fn open(scratch: &Scratch, backend: Backend, approver: Scripted) -> Runtime {
    try_open(scratch, backend, approver).unwrap()
}

fn try_open(scratch: &Scratch, backend: Backend, approver: Scripted) -> Result<Runtime, OpenError> {
    Runtime::open(Options {
        confinement: Confinement::new(&scratch.work, Some(&scratch.home)).unwrap(),
        backend,
        approver: Box::new(approver),
        state: scratch.state(),
        program: ZWINGER.into(),
    })
}

fn put(runtime: &Runtime, path: &str, content: &str) -> Outcome {
    runtime.call(&Call::new("write_file", json!({"path": path, "content": content})))
}

fn command(runtime: &Runtime, command: &str) -> Outcome {
    runtime.call(&Call::new("run_command", json!({"command": command})))
}

#[test]
fn structural_refusals_ask_nobody() {
    for backend in [Backend::Landlock, Backend::None] {
        let scratch = Scratch::new();
        scratch.plant();
        let approver = always(Decision::Session);
        let runtime = open(&scratch, backend, approver.clone());
        for way in scratch.ways_out() {
            assert_eq!(put(&runtime, &way, "x").kind, Kind::PathRefused, "{way}");
        }
        for (tool, arguments) in [
            ("write_file", json!({"path": "f", "content": "x", "approved": true})),
            ("write_file", json!({"path": "f\0", "content": "x"})),
            ("write_file", json!({"path": "sub", "content": "x"})),
            ("write_file", json!({"path": "missing/f", "content": "x"})),
            ("write_file", json!({"path": "f"})),
            ("run_command", json!({"command": ""})),
            ("run_command", json!({"command": "sudo id"})),
            ("format_disk", json!({})),
            ("write_file", Value::Null),
        ] {
            assert!(!runtime.call(&Call::new(tool, arguments.clone())).success, "{tool} {arguments}");
        }
        assert_eq!(approver.asked(), 0);
        scratch.assert_out_untouched();
        assert!(put(&runtime, "f", "x").success);
        assert_eq!(approver.asked(), 1);
    }
}

#[test]
fn reads_ask_nobody_and_writes_ask_each_time() {
    let scratch = Scratch::new();
    let approver = always(Decision::Once);
    let runtime = open(&scratch, Backend::Landlock, approver.clone());
    for (tool, arguments) in
        [("read_file", json!({"path": "sub/inside.txt"})), ("list_directory", json!({})), ("get_time", json!({}))]
    {
        assert!(runtime.call(&Call::new(tool, arguments)).success);
    }
    assert_eq!(approver.asked(), 0);
    for asked in 1..=3 {
        assert!(put(&runtime, "f", &asked.to_string()).success);
        assert_eq!(approver.asked(), asked);
    }
}

#[test]
fn f07_a_session_covers_what_was_shown_and_nothing_else() {
    let scratch = Scratch::new();
    let approver = Scripted::new(|asked| if asked % 2 == 0 { Decision::Session } else { Decision::Deny });
    let runtime = open(&scratch, Backend::Landlock, approver.clone());
    assert!(put(&runtime, "f", "1").success);
    assert!(put(&runtime, "f", "2").success && put(&runtime, scratch.work.join("f").to_str().unwrap(), "3").success);
    assert_eq!((approver.asked(), approver.shown.lock().unwrap()[0].scope.as_str()), (1, "this file"));
    assert_eq!(put(&runtime, "g", "1").kind, Kind::Denied);
    assert_eq!(approver.asked(), 2);
    assert!(command(&runtime, "echo x >> log").success && command(&runtime, "echo x >> log").success);
    assert_eq!(approver.asked(), 3);
    // Not this command: more of it, or the same behind a denial.
    assert_eq!(command(&runtime, "echo x >> log && touch h").kind, Kind::Denied);
    assert_eq!(approver.asked(), 4);
    assert_eq!(list(&scratch.work), ["f", "log", "sub"]);
    // A grant ends with its session.
    let next = open(&scratch, Backend::Landlock, always(Decision::Deny));
    assert_eq!(put(&next, "f", "4").kind, Kind::Denied);
    assert_eq!(read_text(scratch.work.join("f")), "3");
}

#[test]
fn a_denial_leaves_no_file_and_starts_nothing() {
    let scratch = Scratch::new();
    for decision in [Decision::Deny, Decision::Unanswered("nobody is there".into())] {
        let approver = always(decision);
        let runtime = open(&scratch, Backend::Landlock, approver.clone());
        assert_eq!(put(&runtime, "f", "x").kind, Kind::Denied);
        assert_eq!(put(&runtime, "sub/inside.txt", "x").kind, Kind::Denied);
        assert_eq!(command(&runtime, "touch ran").kind, Kind::Denied);
        assert_eq!(approver.asked(), 3);
    }
    assert_eq!(list(&scratch.work), ["sub"]);
    assert_eq!(read_text(scratch.work.join("sub/inside.txt")), "inside\n");
}

/// Runs `meanwhile` on the workspace while the person looks at the question, says yes, and gives the outcome.
fn with_a_change(scratch: &Scratch, path: &str, meanwhile: impl Fn(&Path) + Send + Sync + 'static) -> Outcome {
    let work = scratch.work.clone();
    let approver = Scripted::new(move |_| {
        meanwhile(&work);
        Decision::Once
    });
    put(&open(scratch, Backend::Landlock, approver), path, "approved")
}

fn assert_changed(outcome: &Outcome) {
    let error = outcome.error.clone().unwrap_or_default();
    assert!(!outcome.success && outcome.kind == Kind::Failed && error.contains("changed meanwhile"), "{outcome:?}");
}

#[test]
fn f19_a_file_that_changed_during_the_question_is_kept() {
    let scratch = Scratch::new();
    let file = scratch.work.join("sub/inside.txt");
    assert_changed(&with_a_change(&scratch, "sub/inside.txt", |work| write(work.join("sub/inside.txt"), "newer\n")));
    assert_eq!(read_text(&file), "newer\n");
    assert_changed(&with_a_change(&scratch, "sub/inside.txt", |work| remove(work.join("sub/inside.txt"))));
    assert!(!file.exists());
    assert_changed(&with_a_change(&scratch, "sub/inside.txt", |work| write(work.join("sub/inside.txt"), "made\n")));
    assert_eq!(read_text(&file), "made\n");
    // A change that leaves the same bytes is none.
    assert!(with_a_change(&scratch, "sub/inside.txt", |work| write(work.join("sub/inside.txt"), "made\n")).success);
    assert_eq!(read_text(&file), "approved");
    assert_eq!(list(&scratch.work.join("sub")), ["inside.txt"], "no temporary file is left");
}

#[test]
fn f19_a_path_that_was_turned_outside_during_the_question() {
    let scratch = Scratch::new();
    let out = scratch.out.clone();
    let outcome = with_a_change(&scratch, "sub/inside.txt", move |work| {
        remove(work.join("sub/inside.txt"));
        std::os::unix::fs::symlink(out.join("marker"), work.join("sub/inside.txt")).unwrap();
    });
    assert!(!outcome.success && !format!("{outcome:?}").contains(&scratch.secret), "{outcome:?}");
    let out = scratch.out.clone();
    let outcome = with_a_change(&scratch, "d/f", move |work| {
        crate::scratch::remove_dir(&work.join("d"));
        std::os::unix::fs::symlink(&out, work.join("d")).unwrap();
    });
    assert!(!outcome.success, "{outcome:?}");
    make_dir(scratch.work.join("e"));
    let out = scratch.out.clone();
    let outcome = with_a_change(&scratch, "e/f", move |work| {
        crate::scratch::remove_dir(&work.join("e"));
        std::os::unix::fs::symlink(&out, work.join("e")).unwrap();
    });
    assert_eq!(outcome.error.as_deref(), Some("Error: e/f is outside the workspace."));
    scratch.assert_out_untouched();
}

#[test]
fn what_is_shown_is_what_runs() {
    let scratch = Scratch::new();
    let approver = always(Decision::Once);
    let runtime = open(&scratch, Backend::Landlock, approver.clone());
    put(&runtime, "sub/inside.txt", "inside\nmore\n");
    command(&runtime, "echo 'a  b'\techo");
    let shown = approver.shown.lock().unwrap().clone();
    let [write, run] = shown.as_slice() else { panic!("{shown:?}") };
    assert_eq!((write.tool, write.summary.as_str()), ("write_file", "write sub/inside.txt (12 bytes)"));
    assert!(write.detail.contains(" inside\n+more\n"), "{write:?}");
    assert_eq!((run.tool, run.detail.as_str()), ("run_command", "echo 'a  b'\\techo"));
    assert!(run.walls.starts_with("landlock · files full"), "{run:?}");
}

#[test]
fn a_model_whose_command_failed_is_told_of_the_walls() {
    for backend in [Backend::Landlock, Backend::None] {
        let scratch = Scratch::new();
        write(scratch.work.join(".env"), "x");
        let runtime = open(&scratch, backend, always(Decision::Once));
        let failed = command(&runtime, "exit 3").for_model();
        let line = "walls: writable here: ., $TMPDIR · network off · hidden: .env, most of ~ · this is policy, do not retry elsewhere";
        assert_eq!(failed.lines().nth(1), (backend == Backend::Landlock).then_some(line), "{failed}");
        assert_eq!(command(&runtime, "true").for_model().lines().count(), 1);
    }
}

#[test]
fn a_session_outlives_the_thread_that_opened_it() {
    let scratch = Scratch::new();
    for backend in [Backend::Landlock, Backend::None] {
        let approver = always(Decision::Once);
        let runtime =
            std::thread::scope(|scope| scope.spawn(|| open(&scratch, backend, approver.clone())).join().unwrap());
        // As on a pool whose threads come and go: the kernel's death signal looks at threads.
        for _ in 0..3 {
            let outcome = std::thread::scope(|scope| scope.spawn(|| command(&runtime, "echo on")).join().unwrap());
            assert_eq!((outcome.success, outcome.output.as_str()), (true, "on\n"), "{backend} {:?}", outcome.error);
        }
    }
}

#[test]
fn calls_from_several_threads() {
    let scratch = Scratch::new();
    let runtime = open(&scratch, Backend::Landlock, always(Decision::Once));
    std::thread::scope(|scope| {
        for number in 0..8 {
            let runtime = &runtime;
            scope.spawn(move || {
                let path = format!("f{number}");
                assert!(put(runtime, &path, &path).success);
                let outcome = command(runtime, &format!("cat {path}; exit {number}"));
                assert_eq!((outcome.output, outcome.command.map(|command| command.exit_code)), (path, Some(number)));
            });
        }
    });
    let records = scratch.audit();
    assert_eq!(records.len(), 8 * 2 * 2);
}

#[test]
fn without_an_audit_there_is_no_session() {
    let scratch = Scratch::new();
    drop(open(&scratch, Backend::Landlock, always(Decision::Once)));
    remove(scratch.audit_log());
    make_dir(scratch.audit_log());
    let error = try_open(&scratch, Backend::Landlock, always(Decision::Once)).err();
    assert!(matches!(error, Some(OpenError::Audit(_))), "{:?}", error.map(|error| error.to_string()));
}

#[test]
fn a_program_that_is_no_zwinger_is_told_so() {
    let scratch = Scratch::new();
    let confinement = || Confinement::new(&scratch.work, Some(&scratch.home)).unwrap();
    for (program, backend) in
        [("/bin/true", Backend::Landlock), ("/bin/true", Backend::None), ("/missing", Backend::None)]
    {
        let opened = Runtime::open(Options {
            confinement: confinement(),
            backend,
            approver: Box::new(always(Decision::Once)),
            state: scratch.state(),
            program: program.into(),
        });
        assert!(matches!(opened.err(), Some(OpenError::Session(_))), "{program}");
    }
}

/// Writes a file of the workspace in capitals, by itself.
struct Shout(std::path::PathBuf);

impl CustomTool for Shout {
    fn name(&self) -> &'static str {
        "shout"
    }

    fn effects(&self, arguments: &Value, roots: &[&Path]) -> Result<Vec<Effect>, Invalid> {
        if arguments.get("idle").is_some() {
            return Ok(Vec::new());
        }
        let path = arguments["path"].as_str().ok_or_else(|| Invalid::Arguments("shout takes path".into()))?;
        Ok(vec![Effect::Write(WorkspacePath::parse(path, roots)?)])
    }

    fn run(&self, arguments: &Value, _: During<'_>) -> Result<String, Failed> {
        let path = arguments["path"].as_str().unwrap_or_default();
        write(self.0.join(path), "HEY");
        match path {
            "bad" => Err(Failed("hoarse,\nand \u{1b}.".into())),
            "long" => Ok("é".repeat(1 << 20)),
            _ => Ok("shouted".into()),
        }
    }
}

#[test]
fn an_embedders_tool_goes_through_the_same_gate() {
    let scratch = Scratch::new();
    let with = |approver: Scripted| {
        open(&scratch, Backend::Landlock, approver).with_tool(Box::new(Shout(scratch.work.clone()))).unwrap()
    };
    let shout = |runtime: &Runtime, arguments: Value| runtime.call(&Call::new("shout", arguments));
    let no = always(Decision::Deny);
    let runtime = with(no.clone());
    assert_eq!(shout(&runtime, json!({"path": "f"})).kind, Kind::Denied);
    assert_eq!(no.asked(), 1);
    let shown = no.shown.lock().unwrap()[0].clone();
    assert_eq!((shown.tool, shown.detail.as_str()), ("shout", r#"{"path":"f"}"#));
    // Nobody is asked about what cannot be.
    assert_eq!(shout(&runtime, json!({"path": "../out"})).kind, Kind::PathRefused);
    assert_eq!(shout(&runtime, json!({})).kind, Kind::Invalid);
    assert_eq!(shout(&runtime, json!({"idle": 1})).kind, Kind::Denied);
    assert_eq!((no.asked(), list(&scratch.work)), (1, vec!["sub".to_owned()]));
    drop(runtime);
    // Once is once: no session's yes covers what only the embedder understands.
    let yes = always(Decision::Session);
    let runtime = with(yes.clone());
    for _ in 0..2 {
        assert_eq!(shout(&runtime, json!({"path": "f"})).output, "shouted");
    }
    assert_eq!((yes.asked(), read_text(scratch.work.join("f")).as_str()), (2, "HEY"));
    assert_eq!(shout(&runtime, json!({"path": "bad"})).error.unwrap(), r"Error: hoarse,\nand \e.");
    let long = shout(&runtime, json!({"path": "long"})).output;
    assert!(long.len() < (1 << 20) + 100 && long.contains("bytes dropped") && !long.contains('\u{fffd}'));
    let audit = scratch.audit();
    let of = |event: &str| audit.iter().filter(|record| record["event"] == event).count();
    assert_eq!((of("denied"), of("invalid"), of("begin"), of("end")), (2, 2, 4, 4));
    struct Taken;
    impl CustomTool for Taken {
        fn name(&self) -> &'static str {
            "shell"
        }
        fn effects(&self, _: &Value, _: &[&Path]) -> Result<Vec<Effect>, Invalid> {
            Ok(vec![Effect::Clock])
        }
        fn run(&self, _: &Value, _: During<'_>) -> Result<String, Failed> {
            Ok(String::new())
        }
    }
    assert!(matches!(runtime.with_tool(Box::new(Taken)), Err(OpenError::Tool("shell"))));
}

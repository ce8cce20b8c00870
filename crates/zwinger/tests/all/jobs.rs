//! Commands in the background: one call starts them, later ones use, see and stop them.

use rustix::process::Signal;
use serde_json::{Value, json};
use zwinger_core::output::{Kind, Outcome};
use zwinger_core::sandbox::Backend;
use zwinger_core::{Call, Decision, Runtime};

use crate::caller::skipped;
use crate::library::{always, open};
use crate::process::{self, Tag, executor_of_this_process, until};
use crate::scratch::{Scratch, list, write};

const BACKENDS: [Backend; 2] = [Backend::Landlock, Backend::None];

fn call(runtime: &Runtime, tool: &str, arguments: Value) -> Outcome {
    runtime.call(&Call::new(tool, arguments))
}

fn run(runtime: &Runtime, command: &str) -> Outcome {
    call(runtime, "run_command", json!({"command": command}))
}

fn begin(runtime: &Runtime, command: &str) -> Outcome {
    call(runtime, "run_command", json!({"command": command, "background": true}))
}

fn look(runtime: &Runtime, job: u64) -> Outcome {
    call(runtime, "job_output", json!({"job": job}))
}

fn stop(runtime: &Runtime, job: u64) -> Outcome {
    call(runtime, "job_stop", json!({"job": job}))
}

fn exit_code(outcome: &Outcome) -> Option<i32> {
    outcome.command.as_ref().map(|command| command.exit_code)
}

/// Says its port, then answers every request with `hello`.
const SERVER: &str = r#"exec perl -MIO::Socket::INET -e '$| = 1;
    $s = IO::Socket::INET->new(Listen => 9, LocalAddr => "127.0.0.1") or die "no server: $!\n";
    print $s->sockport, "\n";
    while ($c = $s->accept) { 1 while <$c> =~ /\S/; print $c "HTTP/1.0 200 OK\r\n\r\nhello\n"; close $c }'"#;

fn client(port: &str) -> String {
    format!(
        r#"perl -MIO::Socket::INET -e '$c = IO::Socket::INET->new("127.0.0.1:{port}") or die "$!\n"; print $c "GET /\n\n"; print((<$c>)[-1])'"#
    )
}

#[test]
fn i23_a_server_of_one_call_answers_the_next_and_outlives_the_strays_of_others() {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        let runtime = open(&scratch, backend, always(Decision::Once));
        let begun = begin(&runtime, SERVER);
        assert_eq!((begun.success, begun.job), (true, Some(1)), "{backend} {begun:?}");
        let mut said = begun.output;
        until("the port", || {
            said.push_str(&look(&runtime, 1).output);
            said.lines().any(|line| line.parse::<u16>().is_ok()).then_some(())
        });
        let port = said.lines().find(|line| line.parse::<u16>().is_ok()).unwrap().to_owned();
        let asked = run(&runtime, &client(&port));
        assert_eq!((asked.success, asked.output.as_str()), (true, "hello\n"), "{backend} {asked:?}");
        match process::succeeds(&["curl", "--version"]) {
            true => assert_eq!(run(&runtime, &format!("curl -s 127.0.0.1:{port}")).output, "hello\n"),
            false => skipped("i23_a_server_of_one_call_answers_curl", "no curl"),
        }
        let tag = Tag::new();
        let left = run(&runtime, &format!("setsid sleep {} & (sleep {0} &)", tag.0));
        assert!(left.command.is_some_and(|command| command.leftovers > 0));
        tag.assert_gone();
        assert_eq!(run(&runtime, &client(&port)).output, "hello\n");
        let stopped = stop(&runtime, 1);
        assert_eq!((stopped.success, stopped.error.as_deref()), (true, None), "{stopped:?}");
        assert!(!run(&runtime, &client(&port)).success);
    }
}

#[test]
fn output_comes_once_and_the_end_with_the_last_of_it() {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        let runtime = open(&scratch, backend, always(Decision::Once));
        let begun = begin(&runtime, "echo one; while [ ! -e go ]; do sleep 0.02; done; echo two; exit 3");
        assert!(begun.output.starts_with("one\n[job 1 runs until the session ends"), "{begun:?}");
        let nothing = look(&runtime, 1);
        assert!(nothing.output.starts_with("[job 1 runs · ") && nothing.command.is_none(), "{nothing:?}");
        assert!(run(&runtime, "touch go").success);
        let mut said = String::new();
        let ended = until("the end", || {
            let looked = look(&runtime, 1);
            said.push_str(&looked.output);
            looked.command.is_some().then_some(looked)
        });
        assert_eq!((exit_code(&ended), ended.kind, ended.job), (Some(3), Kind::Failed, None));
        assert!(said.contains("two\n") && !said.contains("one"), "{said}");
        // Once seen, it is forgotten, and its number is nobody else's.
        assert_eq!(look(&runtime, 1).error.as_deref(), Some("Error: there is no job 1, nor any other."));
        let quick = begin(&runtime, "exit 7");
        assert_eq!((quick.output.as_str(), exit_code(&quick)), ("", Some(7)), "{quick:?}");
        assert_eq!(begin(&runtime, "sleep 60").job, Some(3));
        assert_eq!(stop(&runtime, 9).error.as_deref(), Some("Error: there is no job 9; there are: 3."));
    }
}

#[test]
fn all_of_a_job_ends_with_job_stop_with_the_session_and_with_its_own_limit() {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        let runtime = open(&scratch, backend, always(Decision::Once));
        let (one, other) = (Tag::new(), Tag::new());
        let two = |tag: &Tag| format!("setsid sleep {0} & sleep {0}; true", tag.0);
        assert_eq!(begin(&runtime, &two(&one)).job, Some(1));
        assert_eq!(begin(&runtime, &two(&other)).job, Some(2));
        one.wait_for(2);
        other.wait_for(2);
        assert!(stop(&runtime, 1).success);
        one.assert_gone();
        other.wait_for(2);
        let limited =
            call(&runtime, "run_command", json!({"command": "sleep 61", "background": true, "timeout_seconds": 1}));
        assert_eq!(limited.job, Some(3));
        let ended = until("its limit", || Some(look(&runtime, 3)).filter(|looked| looked.command.is_some()));
        assert!(ended.command.is_some_and(|command| command.timed_out), "{backend}");
        runtime.close();
        other.assert_gone();
    }
}

#[test]
fn a_flood_is_cut_and_what_its_end_kept_is_shown() {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        let runtime = open(&scratch, backend, always(Decision::Once));
        begin(&runtime, "yes | head -c 50000000; echo last");
        let ended = until("the end", || Some(look(&runtime, 1)).filter(|looked| looked.command.is_some()));
        assert!(ended.output.ends_with("y\nlast\n"), "{}", ended.output.len());
        assert!(ended.output.len() < 4 << 20);
        let cut = ended.command.and_then(|command| command.truncated).unwrap();
        assert_eq!(cut.kept + cut.dropped, 50_000_005);
    }
}

#[test]
fn a_job_that_is_lost_is_named() {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        let runtime = open(&scratch, backend, always(Decision::Once));
        let (tag, waited) = (Tag::new(), Tag::new());
        assert_eq!(begin(&runtime, &format!("exec sleep {}", tag.0)).job, Some(1));
        let lost = std::thread::scope(|scope| {
            let call = scope.spawn(|| run(&runtime, &format!("exec sleep {}", waited.0)));
            waited.wait_for(1);
            rustix::process::kill_process(executor_of_this_process().unwrap(), Signal::KILL).unwrap();
            call.join().unwrap()
        });
        let says = format!("job 1 (run_command exec sleep {})", tag.0);
        assert!(lost.error.as_ref().is_some_and(|error| error.contains(&says)), "{lost:?}");
        tag.assert_gone();
        let looked = until("the news", || look(&runtime, 1).error);
        assert!(looked.starts_with("Error: job 1: the executor ended while it worked"), "{looked}");
        assert!(run(&runtime, "true").success);
    }
}

#[test]
fn there_are_so_many_and_a_refused_one_is_none() {
    let scratch = Scratch::new();
    let runtime = open(&scratch, Backend::Landlock, always(Decision::Once));
    let tag = Tag::new();
    for number in 1..=16 {
        assert_eq!(begin(&runtime, &format!("exec sleep {}", tag.0)).job, Some(number));
    }
    let more = begin(&runtime, "touch made");
    assert!(more.error.is_some_and(|error| error.contains("16 commands already run in the background")));
    assert_eq!(list(&scratch.work), ["sub"]);
    // Those that are waited for have their own room.
    assert!(run(&runtime, "true").success);
    assert!(stop(&runtime, 4).success);
    assert_eq!(begin(&runtime, &format!("exec sleep {}", tag.0)).job, Some(17));
    runtime.close();
    tag.assert_gone();
}

#[test]
fn a_read_only_job_writes_nothing() {
    let scratch = Scratch::new();
    let runtime = open(&scratch, Backend::Landlock, always(Decision::Deny));
    let arguments =
        json!({"command": "m=$(touch made 2>&1); echo $m; sleep 60", "background": true, "read_only": true});
    let begun = call(&runtime, "run_command", arguments);
    assert!(begun.output.contains("made") && begun.job == Some(1), "{begun:?}");
    assert!(stop(&runtime, 1).success);
    assert_eq!(list(&scratch.work), ["sub"]);
    assert_eq!(begin(&runtime, "sleep 60").kind, Kind::Denied);
}

#[test]
fn a_session_of_one_call_has_no_background() {
    let scratch = Scratch::new();
    let arguments = json!({"command": "touch made", "background": true});
    let ended = scratch.tool("run_command", &arguments, &["--approve", "yes"]);
    assert_eq!((ended.code, list(&scratch.work)), (2, vec!["sub".to_owned()]));
    assert!(ended.error().contains("leave it out"), "{ended:?}");
}

#[test]
fn several_who_stop_one_job_are_told_at_once() {
    let scratch = Scratch::new();
    let runtime = open(&scratch, Backend::Landlock, always(Decision::Once));
    for job in 1..=5 {
        assert_eq!(begin(&runtime, "exec sleep 60").job, Some(job));
        let told = std::thread::scope(|scope| {
            let stops = [(); 3].map(|()| scope.spawn(|| stop(&runtime, job)));
            stops.map(|stop| stop.join().unwrap())
        });
        assert_eq!(told.iter().filter(|outcome| outcome.success).count(), 1, "{told:?}");
        let others = told.iter().filter_map(|outcome| outcome.error.as_deref());
        others.for_each(|error| {
            assert!(error.ends_with("another call was told how.") || error.contains("there is no job"), "{error}")
        });
    }
}

#[test]
fn j07_a_look_cuts_no_character() {
    let scratch = Scratch::new();
    let runtime = open(&scratch, Backend::Landlock, always(Decision::Once));
    let begun = begin(&runtime, r"printf 'a\303'; while [ ! -e go ]; do sleep 0.02; done; printf '\251z'; sleep 60");
    assert!(begun.output.starts_with("a\n[job 1"), "{begun:?}");
    write(scratch.work.join("go"), "");
    let said = until("the rest", || Some(look(&runtime, 1).output).filter(|said| said.contains('z')));
    assert!(said.starts_with("éz\n[job 1"), "{said}");
}

/// Those that have ended are kept until somebody looks, but no more of them than may run.
#[test]
fn what_nobody_looks_at_is_bounded() {
    let scratch = Scratch::new();
    let runtime = open(&scratch, Backend::Landlock, always(Decision::Once));
    for job in 1..=17 {
        let begun = begin(&runtime, "echo x; while [ ! -e go ]; do sleep 0.02; done; exit 5");
        if job == 17 {
            assert!(begun.error.is_some_and(|error| error.contains("end one with job_stop")));
            break;
        }
        assert_eq!(begun.job, Some(job));
    }
    write(scratch.work.join("go"), "");
    until("the end of the first two", || {
        [15, 16].iter().all(|job| !look(&runtime, *job).output.contains("runs")).then_some(())
    });
    for _ in 0..3 {
        assert!(begin(&runtime, "sleep 60").success);
    }
    assert_eq!(
        look(&runtime, 1).error.as_deref().map(|error| error.starts_with("Error: there is no job 1;")),
        Some(true)
    );
    assert_eq!(exit_code(&look(&runtime, 2)), Some(5));
}

#[test]
fn a_job_is_recorded_as_ended_when_it_is() {
    let scratch = Scratch::new();
    let runtime = open(&scratch, Backend::Landlock, always(Decision::Once));
    let ends = |scratch: &Scratch| -> Vec<Value> {
        scratch.audit().into_iter().filter(|record| record["event"] == "end").collect()
    };
    let waits = "echo x; while [ ! -e go ]; do sleep 0.02; done; exit 5";
    for script in [waits, waits, "echo x; sleep 60"] {
        assert!(begin(&runtime, script).job.is_some());
    }
    assert_eq!(ends(&scratch).len(), 0);
    write(scratch.work.join("go"), "");
    until("its end", || look(&runtime, 1).command);
    let of_first = ends(&scratch).into_iter().filter(|record| record["exit_code"] == 5).count();
    assert_eq!(of_first, 2, "its own, and that of the look at it");
    // The second ends by itself, and nobody looks; the third runs.
    std::thread::sleep(std::time::Duration::from_millis(300));
    runtime.close();
    let ends = ends(&scratch);
    assert_eq!(ends.iter().filter(|record| record["exit_code"] == 5).count(), 3, "{ends:?}");
    assert_eq!(ends.iter().filter(|record| record["error"] == "ended with the session").count(), 1, "{ends:?}");
}

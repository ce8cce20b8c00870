//! `--json` and `--report`.

use serde_json::json;

use crate::scratch::{Scratch, read_text, write};

#[test]
fn json_has_the_output_and_the_commands_own_status() {
    let scratch = Scratch::new();
    let ended = scratch.sh_with(&["--json"], "echo out; echo err >&2; exit 3");
    assert_eq!(ended.code, 3, "{ended:?}");
    let result = ended.json();
    assert_eq!((&result["stdout"], &result["stderr"]), (&json!("out\n"), &json!("err\n")));
    assert_eq!((&result["success"], &result["exit_code"]), (&json!(false), &json!(3)));
    assert_eq!(result["enforcement"]["files"]["level"], "full");
    assert_eq!(ended.stderr, "");
}

#[test]
fn j01_json_keeps_head_and_tail_and_counts_exactly() {
    let scratch = Scratch::new();
    let script = "echo HEAD; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo TAIL; head -c 30000000 /dev/zero >&2";
    let result = scratch.sh_with(&["--json", "--output-limit", "4096"], script).json();
    let stdout = result["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("HEAD\n") && stdout.ends_with("x\nTAIL\n"), "{stdout}");
    // HEAD and TAIL with their ends of line, and one between.
    let dropped = 5 + 50_000_000 + 1 + 5 - 4096;
    assert!(stdout.contains(&format!("[… {dropped} bytes dropped …]")), "{stdout}");
    let truncated = &result["truncated"];
    let (kept, dropped) = (truncated["kept"].as_u64().unwrap(), truncated["dropped"].as_u64().unwrap());
    assert_eq!((kept, kept + dropped), (4096, 50_000_011 + 30_000_000));
}

#[test]
fn a_time_limit_is_named() {
    let scratch = Scratch::new();
    let ended = scratch.sh_with(&["--json", "--timeout", "1"], "echo start; sleep 600");
    assert_eq!((ended.code, &ended.json()["output"]), (124, &json!("start\n")));
    assert_eq!(ended.error(), "Error: stopped after 1 s (--timeout).");
}

#[test]
fn a_report_stands_beside_streams_that_pass_through() {
    let scratch = Scratch::new();
    let report = scratch.base.join("report");
    let ended = scratch.sh_with(&["--report", report.to_str().unwrap()], "echo seen; exit 4");
    assert_eq!((ended.code, ended.text().as_str()), (4, "seen\n"));
    let report: serde_json::Value = serde_json::from_str(&read_text(&report)).unwrap();
    assert_eq!((&report["exit_code"], report.get("stdout"), report.get("output")), (&json!(4), None, None));
    let nowhere = scratch.base.join("missing/report");
    let ended = scratch.sh_with(&["--report", nowhere.to_str().unwrap()], "touch ran");
    assert_eq!(ended.code, 125, "{ended:?}");
    assert!(!scratch.work.join("ran").exists(), "nothing runs without the report that was asked for");
}

#[test]
fn json_says_why_nothing_ran() {
    let scratch = Scratch::new();
    write(scratch.work.join("plain"), "");
    for (program, code, reason) in [("no-such-program", 127, "inside the walls"), ("./plain", 126, "ermission denied")]
    {
        let ended = scratch.run(&["--json", "--", program]);
        let error = ended.error();
        assert!(
            ended.code == code && error.starts_with(&format!("Error: {program}: ")) && error.contains(reason),
            "{ended:?}"
        );
        assert_eq!(scratch.audit().pop().unwrap()["error"], json!(error));
    }
    // Nor where zwinger itself could not.
    for options in [&["--json", "--read", "missing"][..], &["--json", "--backend", "none", "--hide", "plain"]] {
        let ended = scratch.sh_with(options, "echo ran");
        assert_eq!((ended.code, &ended.json()["success"]), (125, &json!(false)), "{ended:?}");
        let error = ended.error();
        let told = format!("zwinger: {}", error.strip_prefix("Error: ").unwrap());
        assert_eq!(ended.stderr.lines().last(), Some(told.as_str()));
    }
    assert_eq!(scratch.sh_with(&["--read", "missing"], "echo ran").text(), "");
}

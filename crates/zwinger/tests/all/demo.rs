//! `zwinger demo`, and the transcript of it that people are shown.

use crate::caller::skipped;
use crate::scratch::{Scratch, read_text, write};

const BEGIN: &str = "```console\n";
const END: &str = "```\n";

/// What differs from one machine and one run to the next is written in one way.
fn transcript(scratch: &Scratch, options: &[&str]) -> String {
    let ended = scratch.start(scratch.zwinger(&[&["demo"], options].concat())).end();
    assert_eq!((ended.code, ended.text().as_str()), (0, "Nothing got out.\n"), "{ended:?}");
    let told = ended.stderr.replace(scratch.home.to_str().unwrap(), "/home/you");
    let line = |line: &str| match line.strip_prefix("  (landlock · files full · network full · ") {
        Some(_) => "  (landlock · files full · network full · …)".to_owned(),
        None if line.starts_with("  [exit ") => {
            let mut parts = line.split(" · ");
            let (exit, _, backend) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
            format!("{exit} · 0.0 s · {backend}")
        }
        None => line.to_owned(),
    };
    let mut lines: Vec<String> = told.lines().map(line).collect();
    lines.push("Nothing got out.".into());
    lines.join("\n") + "\n"
}

/// ZWINGER_UPDATE_DOCS=1 writes the document anew.
#[test]
fn the_demo_is_what_the_document_shows() {
    let scratch = Scratch::new();
    if !scratch.caller.has_namespaces() {
        return skipped("demo::the_demo_is_what_the_document_shows", "no user namespaces: other words of the kernel");
    }
    let shown = format!("{BEGIN}$ zwinger demo --approve yes\n{}{END}", transcript(&scratch, &["--approve", "yes"]));
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/demo.md");
    let document = read_text(&path);
    let (before, rest) = document.split_once(BEGIN).unwrap();
    let after = rest.split_once(END).unwrap().1;
    if std::env::var_os("ZWINGER_UPDATE_DOCS").is_some() {
        return write(&path, format!("{before}{shown}{after}"));
    }
    assert!(
        document.contains(&shown),
        "docs/demo.md shows another one (ZWINGER_UPDATE_DOCS=1 writes it anew):\n{shown}"
    );
}

#[test]
fn without_anyone_to_ask_nothing_is_changed() {
    let scratch = Scratch::new();
    for options in [&["--approve", "no"][..], &[]] {
        let transcript = transcript(&scratch, options);
        let read = transcript.split("cat prices.txt").nth(1).unwrap();
        assert_eq!(read.lines().nth(1), Some("  320"), "{transcript}");
        // The link was not made, so nothing is said to have refused it.
        assert!(transcript.contains("(not tried, then)") && !transcript.contains("NOT HELD"), "{transcript}");
    }
}

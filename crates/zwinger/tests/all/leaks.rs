//! Nothing stays behind, whichever way a run ends. `scripts/soak` does the same with thousands of runs.

use std::path::Path;
use std::time::Duration;

use crate::scratch::{Ended, Scratch, chmod, read_text, write};

for_every_caller!(runs_leave_nothing);

/// Runs the script for a zwinger. By its text: an ordinary caller need not reach the repository.
fn soak(scratch: &Scratch, zwinger: &Path, runs: &str) -> Ended {
    let script = read_text(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/soak"));
    assert!(script.starts_with("#!/bin/sh\n"));
    let mut command = scratch.command(&["sh", "-c", &script, "soak", runs]);
    command.env("ZWINGER", zwinger).env("TMPDIR", scratch.base.join("tmp"));
    scratch.start(command).end_within(Duration::from_secs(110))
}

fn runs_leave_nothing(scratch: &Scratch) {
    let ended = soak(scratch, &scratch.base.join("zwinger"), "30");
    assert!(ended.code == 0 && ended.text().contains("30 runs"), "{}\n{}", ended.text(), ended.stderr);
}

#[test]
fn a_leak_is_seen() {
    let scratch = Scratch::new();
    let leaky = scratch.base.join("leaky");
    write(&leaky, "#!/bin/sh\nmktemp >/dev/null\nmktemp ../work/XXXXXX >/dev/null\n");
    chmod(&leaky, 0o755);
    let ended = soak(&scratch, &leaky, "6");
    assert_eq!(ended.code, 1, "{}\n{}", ended.text(), ended.stderr);
    // Six, and the one at the end.
    for kind in ["temporary files", "workspace"] {
        let line = ended.text().lines().find(|line| line.starts_with(kind)).unwrap_or_default().to_owned();
        assert!(line.ends_with(" 7 new"), "{line}");
    }
}

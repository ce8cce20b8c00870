//! A file that the host renames over a hidden or kept one takes the cover with it, as the save of an editor does. It is hidden and
//! kept again, while the command runs.

use std::path::Path;

use crate::process::until;
use crate::scratch::{Scratch, make_dir, read_text, rename, write};

for_every_caller!(
    g13_what_the_host_replaces_stays_hidden,
    g13_what_lies_above_cannot_be_moved_away,
    g13_credentials_that_appear_are_hidden,
    b05_what_the_host_replaces_stays_pinned,
);

/// Waits for the host's `replaced`, and then for the end of `reached`, for the new cover comes a moment after the file. One that
/// never comes ends at the time limit.
fn after_replacement(reached: &str) -> String {
    format!(
        "echo x > ready; until [ -e replaced ]; do sleep 0.01; done; while ({reached}) >/dev/null 2>&1; do sleep 0.01; done; echo HELD"
    )
}

/// Runs it, and replaces a file by another when it runs.
fn replace(scratch: &Scratch, path: &Path, script: &str) -> String {
    let words = ["run", "--timeout", "15", "--", "sh", "-c", script];
    let running = scratch.start(scratch.zwinger(&words));
    until("a command that runs", || scratch.work.join("ready").exists().then_some(()));
    write(scratch.work.join("new"), "the host's new one");
    scratch.give_all();
    rename(scratch.work.join("new"), path);
    write(scratch.work.join("replaced"), "");
    let ended = running.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.text()
}

fn g13_what_the_host_replaces_stays_hidden(scratch: &Scratch) {
    if !scratch.caller.has_namespaces() {
        // Nothing runs there while something is to be hidden.
        return;
    }
    make_dir(scratch.work.join("conf"));
    write(scratch.work.join("conf/.env"), "old");
    scratch.give_all();
    assert_eq!(
        replace(scratch, &scratch.work.join("conf/.env"), &after_replacement("grep -q new conf/.env")),
        "HELD\n"
    );
    assert_eq!(read_text(scratch.work.join("conf/.env")), "the host's new one");
}

fn g13_what_lies_above_cannot_be_moved_away(scratch: &Scratch) {
    if !scratch.caller.has_namespaces() {
        return;
    }
    make_dir(scratch.work.join("conf"));
    write(scratch.work.join("conf/.env"), "old");
    scratch.give_all();
    // What lies above the workspace is nothing but empty directories in memory, where the workspace is below /tmp.
    let base = scratch.base.display();
    let script = format!(
        "mv conf conf2 && exit 3; mv {base} {base}-moved 2>/dev/null && cd {base}-moved/work; {}",
        after_replacement("grep -q new conf/.env")
    );
    assert_eq!(replace(scratch, &scratch.work.join("conf/.env"), &script), "HELD\n");
}

fn g13_credentials_that_appear_are_hidden(scratch: &Scratch) {
    if !scratch.caller.has_namespaces() {
        return;
    }
    make_dir(scratch.home.join(".cargo"));
    scratch.give_all();
    let script = after_replacement("grep -q new ~/.cargo/credentials.toml");
    assert_eq!(replace(scratch, &scratch.home.join(".cargo/credentials.toml"), &script), "HELD\n");
}

fn b05_what_the_host_replaces_stays_pinned(scratch: &Scratch) {
    if !scratch.caller.has_namespaces() {
        return;
    }
    make_dir(scratch.work.join(".git"));
    write(scratch.work.join(".git/config"), "old");
    scratch.give_all();
    // Opening for writing is enough to tell, and changes nothing.
    assert_eq!(replace(scratch, &scratch.work.join(".git/config"), &after_replacement(": >> .git/config")), "HELD\n");
}

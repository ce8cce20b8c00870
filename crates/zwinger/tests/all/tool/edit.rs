//! `edit_file`, deeper listings, and the directory that a command starts in.

use serde_json::{Value, json};

use super::{NO, YES};
use crate::scratch::{Ended, Scratch, chmod, list, make_dir, read_text, write};

fn edit(scratch: &Scratch, old: &str, new: &str, more: Value, options: &[&str]) -> Ended {
    let mut arguments = json!({"path": "f", "old_text": old, "new_text": new});
    arguments.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    scratch.tool("edit_file", &arguments, options)
}

#[test]
fn one_place_is_edited_and_shown() {
    let scratch = Scratch::new();
    let file = scratch.work.join("f");
    write(&file, "one\r\ntwo\r\nthree");
    chmod(&file, 0o751);
    let ended = edit(&scratch, "two\nthree", "2\nmore\n3", json!({}), &YES);
    assert_eq!(ended.json(), json!({"success": true, "output": "Edited f (1 replacement, +3 −2 lines)."}), "{ended:?}");
    assert_eq!(read_text(&file), "one\r\n2\r\nmore\r\n3");
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
    assert_eq!(mode & 0o7777, 0o751);
    // The person sees the difference.
    assert!(ended.stderr.contains("edit_file · edit f (1 replacement)"), "{ended:?}");
    assert!(ended.stderr.contains("  +more\\r"), "{ended:?}");
}

#[test]
fn an_edit_that_is_not_clear_asks_nobody_and_changes_nothing() {
    let scratch = Scratch::new();
    write(scratch.work.join("f"), "a b a\n");
    for (old, says) in [("a", "contains old_text 2 times"), ("z", "does not contain old_text")] {
        let ended = edit(&scratch, old, "x", json!({}), &YES);
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(ended.error().starts_with("Error: f ") && ended.error().contains(says), "{ended:?}");
        assert!(!ended.stderr.contains("edit_file"), "{ended:?}");
    }
    assert_eq!(read_text(scratch.work.join("f")), "a b a\n");
    let ended = edit(&scratch, "a", "x", json!({"replace_all": true}), &YES);
    assert_eq!(ended.json().get("output"), Some(&json!("Edited f (2 replacements, +1 −1 lines).")));
    assert_eq!(read_text(scratch.work.join("f")), "x b x\n");
    let denied = edit(&scratch, "b", "c", json!({}), &NO);
    assert_eq!((denied.code, denied.error().as_str()), (3, "Error: write to f declined by the user."));
    assert_eq!(read_text(scratch.work.join("f")), "x b x\n");
}

#[test]
fn a_listing_goes_as_deep_as_asked() {
    let scratch = Scratch::new();
    make_dir(scratch.work.join("sub/deep"));
    make_dir(scratch.work.join("sub/deep/er"));
    write(scratch.work.join("top"), "");
    let list =
        |arguments: Value| scratch.tool("list_directory", &arguments, &[]).json().get("output").cloned().unwrap();
    assert_eq!(list(json!({})), "sub/\ntop");
    assert_eq!(list(json!({"depth": 2})), "sub/\nsub/deep/\nsub/inside.txt\ntop");
    assert_eq!(list(json!({"path": "sub", "depth": 20})), "deep/\ndeep/er/\ninside.txt");
}

#[test]
fn a_command_starts_where_it_is_told_to_inside() {
    for backend in ["landlock", "none"] {
        let scratch = Scratch::new();
        scratch.plant();
        let options = [&["--backend", backend][..], &YES].concat();
        let run = |cwd: &str| scratch.tool("run_command", &json!({"command": "pwd; touch made", "cwd": cwd}), &options);
        let ended = run("sub");
        assert_eq!(ended.json().get("output"), Some(&json!(format!("{}\n", scratch.work.join("sub").display()))));
        assert!(ended.stderr.contains("run a command in sub, "), "{ended:?}");
        assert_eq!(list(&scratch.work.join("sub")), ["inside.txt", "made"]);
        for way in
            ["..", "../work-evil", "absolute-link", "chain-1", "/", "magic-link", "sub/inside.txt", "missing", "fifo"]
        {
            let ended = run(way);
            assert_eq!((ended.code, ended.json().get("output").cloned()), (1, Some(json!(""))), "{way} {ended:?}");
            assert!(!ended.stderr.contains("run_command"), "nobody is asked: {ended:?}");
        }
        scratch.assert_out_untouched();
    }
}

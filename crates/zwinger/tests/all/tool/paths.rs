//! File tools and the paths that models invent: nothing outside is read, listed, made or changed, on any backend.

use serde_json::{Value, json};

use super::YES;
use crate::scratch::{Ended, Scratch, list, read_text};

const BACKENDS: [&str; 2] = ["landlock", "none"];

/// A refusal: exit 1, `Error: …` that names what is wrong, and nothing of the secret anywhere.
fn assert_refused(scratch: &Scratch, way: &str, ended: &Ended) {
    assert_eq!(ended.code, 1, "{way} {ended:?}");
    assert!(ended.error().starts_with("Error: "), "{way} {ended:?}");
    assert_eq!(ended.json().get("output"), Some(&json!("")), "{way} {ended:?}");
    assert!(!ended.shows(&scratch.secret) && !ended.shows("root:"), "{way} {ended:?}");
}

fn each_way(work: impl Fn(&Scratch, &str, &dyn Fn(&str, Value) -> Ended)) {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        scratch.plant();
        let planted = list(&scratch.work);
        for way in scratch.ways_out() {
            work(&scratch, &way, &|tool, arguments| {
                scratch.tool(tool, &arguments, &[&["--backend", backend], &YES[..]].concat())
            });
        }
        scratch.assert_out_untouched();
        assert_eq!(list(&scratch.work), planted);
        // The same tools work inside, so it is the path that was refused.
        let tool =
            |name, arguments: Value| scratch.tool(name, &arguments, &[&["--backend", backend], &YES[..]].concat());
        assert_eq!(tool("read_file", json!({"path": "sub/inside.txt"})).code, 0);
        assert_eq!(tool("read_file", json!({"path": scratch.work.join("sub/inside.txt")})).code, 0);
        assert_eq!(tool("read_file", json!({"path": "sub/../sub/inside.txt"})).code, 0);
        assert_eq!(tool("write_file", json!({"path": "sub/inside.txt", "content": "new"})).code, 0);
        assert_eq!(read_text(scratch.work.join("sub/inside.txt")), "new");
    }
}

#[test]
fn a01_a07_k17_reads_stay_inside() {
    each_way(|scratch, way, tool| assert_refused(scratch, way, &tool("read_file", json!({"path": way}))));
}

#[test]
fn a04_a05_writes_stay_inside() {
    each_way(|scratch, way, tool| {
        assert_refused(scratch, way, &tool("write_file", json!({"path": way, "content": "x"})));
    });
}

#[test]
fn a04_edits_stay_inside() {
    each_way(|scratch, way, tool| {
        let arguments = json!({"path": way, "old_text": "secret", "new_text": "x"});
        assert_refused(scratch, way, &tool("edit_file", arguments));
    });
}

/// The control of all these: without zwinger each path is a way out.
#[test]
fn the_ways_out_lead_out() {
    let scratch = Scratch::new();
    scratch.plant();
    for way in scratch.ways_out() {
        let path = scratch.work.join(&way);
        if way.ends_with("made") || way == "dangling-link" {
            crate::scratch::write(&path, "x");
            crate::scratch::remove(scratch.out.join("made"));
        } else if !way.contains("fifo") && !way.contains("device") {
            assert_eq!(read_text(&path), scratch.secret, "{way}");
        }
    }
}

#[test]
fn a04_nothing_is_made_on_the_way_out() {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        scratch.plant();
        for path in ["absolute-link/newdir/f", "relative-link/newdir/f", "chain-1/f", "../work-evil/newdir/f"] {
            let arguments = json!({"path": path, "content": "x"});
            let ended = scratch.tool("write_file", &arguments, &[&["--backend", backend], &YES[..]].concat());
            assert_refused(&scratch, path, &ended);
        }
        scratch.assert_out_untouched();
    }
}

#[test]
fn a01_listings_stay_inside() {
    let scratch = Scratch::new();
    scratch.plant();
    for way in ["..", "../work-evil", "/", "/etc", "etc-link", "absolute-link", "chain-1", "magic-link", "fifo"] {
        assert_refused(&scratch, way, &scratch.tool("list_directory", &json!({"path": way}), &[]));
    }
    let listed = scratch.tool("list_directory", &json!({"path": "sub"}), &[]);
    assert_eq!(listed.json(), json!({"success": true, "output": "inside.txt"}));
}

#[test]
fn w1_a_path_outside_is_called_that() {
    let scratch = Scratch::new();
    scratch.plant();
    let out = scratch.out.join("marker");
    for way in ["../x", "absolute-link/marker", "chain-1/marker", "etc-link/passwd", out.to_str().unwrap()] {
        let ended = scratch.tool("read_file", &json!({"path": way}), &[]);
        assert_eq!(ended.error(), format!("Error: {way} is outside the workspace."));
    }
    let fifo = scratch.tool("read_file", &json!({"path": "fifo"}), &[]);
    assert!(fifo.error().contains("special file"), "{fifo:?}");
}

#[test]
fn k17_spellings_of_others_mean_nothing_here() {
    let scratch = Scratch::new();
    for path in ["~root/.profile", "~/private", "$HOME/private", "..%2fwork-evil%2fmarker", "..\\work-evil\\marker"] {
        let ended = scratch.tool("read_file", &json!({"path": path}), &[]);
        assert_refused(&scratch, path, &ended);
        assert!(ended.error().contains("does not exist"), "{ended:?}");
    }
    for path in ["marker\0", "\0", "", "sub/inside.txt\0.png"] {
        for (tool, arguments) in
            [("read_file", json!({"path": path})), ("write_file", json!({"path": path, "content": "x"}))]
        {
            let ended = scratch.tool(tool, &arguments, &YES);
            assert_refused(&scratch, path, &ended);
            assert!(ended.error().contains("is not a path"), "{ended:?}");
        }
    }
    assert_eq!(list(&scratch.work), ["sub"]);
    scratch.assert_out_untouched();
}

fn read_behind_a_link(path: impl Fn(&Scratch) -> std::path::PathBuf) -> i32 {
    let scratch = Scratch::new();
    let link = scratch.base.join("link");
    std::os::unix::fs::symlink(&scratch.work, &link).unwrap();
    scratch.tool("read_file", &json!({"path": path(&scratch)}), &["--workdir", link.to_str().unwrap()]).code
}

#[test]
fn a08_a_workspace_behind_a_link() {
    assert_eq!(read_behind_a_link(|_| "sub/inside.txt".into()), 0);
    assert_eq!(read_behind_a_link(|scratch| scratch.work.join("sub/inside.txt")), 0);
    assert_eq!(read_behind_a_link(|_| "../work-evil/marker".into()), 1);
    assert_eq!(read_behind_a_link(|scratch| scratch.out.join("marker")), 1);
}

#[test]
fn a08_a_workspace_behind_a_link_by_the_links_own_name() {
    assert_eq!(read_behind_a_link(|scratch| scratch.base.join("link/sub/inside.txt")), 0);
}

#[test]
fn a26_a_link_made_by_a_command_leads_nowhere() {
    let scratch = Scratch::new();
    let command = format!("ln -sf /etc/passwd out.txt; ln -s {} d", scratch.out.display());
    assert_eq!(scratch.tool("run_command", &json!({"command": command}), &YES).code, 0);
    assert_refused(&scratch, "out.txt", &scratch.tool("read_file", &json!({"path": "out.txt"}), &[]));
    let ended = scratch.tool("write_file", &json!({"path": "d/marker", "content": "x"}), &YES);
    assert_refused(&scratch, "d/marker", &ended);
    scratch.assert_out_untouched();
}

//! File tools and the paths that models invent: nothing outside is read, listed, made or changed, on any backend.

use serde_json::{Value, json};

use super::YES;
use crate::scratch::{Ended, Scratch, list, read_text, write};

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
    for path in ["~root/.profile", "$HOME/private", "..%2fwork-evil%2fmarker", "..\\work-evil\\marker"] {
        let ended = scratch.tool("read_file", &json!({"path": path}), &[]);
        assert_refused(&scratch, path, &ended);
        assert!(ended.error().contains("does not exist"), "{ended:?}");
    }
    let home = scratch.tool("read_file", &json!({"path": "~/private"}), &[]);
    assert_refused(&scratch, "~/private", &home);
    assert!(home.error().contains("~ is not expanded; give a path relative to the workspace"), "{home:?}");
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

#[test]
fn a_path_that_is_wrong_has_its_next_step() {
    let scratch = Scratch::new();
    write(scratch.work.join("README.md"), "x");
    write(scratch.work.join(".env"), "x");
    let edit = |path: &str| json!({"path": path, "old_text": "x", "new_text": "y"});
    for (tool, arguments, says) in [
        ("read_file", json!({"path": "readme.md"}), "readme.md does not exist; there is README.md."),
        ("read_file", json!({"path": "sub/insid.txt"}), "sub/insid.txt does not exist; there is sub/inside.txt."),
        ("list_directory", json!({"path": "sbu"}), "sbu does not exist; there is sub."),
        ("edit_file", edit("READNE.md"), "READNE.md does not exist; there is README.md."),
        ("edit_file", edit("missing/f"), "missing/f does not exist; list_directory shows what there is."),
        // A hidden one is no help.
        ("read_file", json!({"path": ".envv"}), ".envv does not exist; list_directory shows what there is."),
        ("read_file", json!({"path": "sub"}), "sub is a directory; list_directory shows it."),
        ("write_file", json!({"path": "sub", "content": "x"}), "sub is a directory; list_directory shows it."),
        ("list_directory", json!({"path": "README.md"}), "README.md is not a directory; read_file shows a file."),
    ] {
        let ended = scratch.tool(tool, &arguments, &YES);
        assert_eq!((ended.code, ended.error()), (1, format!("Error: {says}")), "{tool} {arguments}");
    }
}

#[test]
fn an_offset_behind_the_end_is_said() {
    let scratch = Scratch::new();
    write(scratch.work.join("f"), "one\ntwo\nthree");
    let read =
        |path: &str, offset: u64| scratch.tool("read_file", &json!({"path": path, "offset": offset}), &[]).json();
    assert_eq!(read("f", 3), json!({"success": true, "output": "three"}));
    for offset in [4, u64::MAX] {
        assert_eq!(read("f", offset), json!({"success": true, "output": "[f has 3 lines]\n"}));
    }
    assert_eq!(read("sub/inside.txt", 2), json!({"success": true, "output": "[sub/inside.txt has 1 line]\n"}));
}

#[test]
fn lines_come_with_their_numbers() {
    let scratch = Scratch::new();
    write(scratch.work.join("f"), "one\n\nthree\tx\nfour");
    let read = |offset: u64, limit: u64| {
        let arguments = json!({"path": "f", "offset": offset, "limit": limit, "numbers": true});
        scratch.tool("read_file", &arguments, &[]).json()["output"].as_str().unwrap().to_owned()
    };
    assert_eq!(read(1, 9), "     1\tone\n     2\t\n     3\tthree\tx\n     4\tfour");
    let goes_on = "[lines 2–3; the file goes on: read_file with offset 4]\n";
    assert_eq!(read(2, 2), format!("     2\t\n     3\tthree\tx\n{goes_on}"));
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

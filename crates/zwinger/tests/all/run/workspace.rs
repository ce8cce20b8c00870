//! What stays closed inside the workspace: its secrets, and what the host would run by itself.

use serde_json::json;

use crate::scratch::{Scratch, chmod, make_dir, read_text, write};

for_every_caller!(
    g13_secrets_are_hidden,
    g13_a_directory_that_can_only_be_searched_is_hidden,
    d11_devices_and_proc_are_read_only_mounts,
    b05_what_git_runs_is_not_changed,
    n02_state_is_hidden_whatever_is_granted,
);

const SECRETS: [&str; 3] = [".env", "sub/.env", "sub/.env.production"];

fn g13_a_directory_that_can_only_be_searched_is_hidden(scratch: &Scratch) {
    let directory = scratch.out.join("d");
    make_dir(&directory);
    write(directory.join("f"), &scratch.secret);
    chmod(directory.join("f"), 0o644);
    chmod(&directory, 0o111);
    let words = ["--read", scratch.out.to_str().unwrap(), "--hide", directory.to_str().unwrap()];
    let cat = format!("cat {}/f", directory.display());
    assert!(!scratch.sh_with(&words, &cat).shows(&scratch.secret));
    // It is that option that hides it.
    let shown = scratch.sh_with(&words[..2], &cat);
    chmod(&directory, 0o755);
    assert!(shown.shows(&scratch.secret), "{shown:?}");
}

fn n02_state_is_hidden_whatever_is_granted(scratch: &Scratch) {
    let state = scratch.state();
    scratch.sh("true");
    write(state.join("audit/secret"), &scratch.secret);
    chmod(state.join("audit/secret"), 0o644);
    let base = scratch.base.to_str().unwrap();
    let script = format!(
        "cat {base}/state/zwinger/audit/* {base}/tmp/../state/zwinger/audit/*; ls -R {base}; cat {base}/work-evil/marker > seen"
    );
    for options in [&["--read", base][..], &["--mode", "plan", "--write", base]] {
        let ended = scratch.sh_with(options, &script);
        assert!(!ended.shows(&scratch.secret) && !ended.shows("audit.jsonl"), "{options:?} {ended:?}");
        match scratch.caller.has_namespaces() {
            // The rest of what is granted is there.
            true => assert!(ended.text().contains("work-evil"), "{options:?} {ended:?}"),
            false => assert!(ended.code == 125 && ended.stderr.contains("XDG_STATE_HOME"), "{options:?} {ended:?}"),
        }
        let ended =
            scratch.tool("run_command", &json!({"command": script}), &[options, &["--approve", "yes"]].concat());
        assert!(!ended.shows(&scratch.secret) && !ended.shows("audit.jsonl"), "{options:?} {ended:?}");
    }
    // What can be written cannot be hidden for good, and a part of the state alone is a mistake.
    let [whole, part] = [state.to_str().unwrap().to_owned(), state.join("audit/secret").to_str().unwrap().to_owned()];
    for options in [["--write", base], ["--read", &whole], ["--read", &part], ["--write", &part]] {
        let ended = scratch.sh_with(&options, &script);
        assert!(ended.code == 125 && ended.stderr.contains("state"), "{options:?} {ended:?}");
    }
}

/// What is the machine's in the tree keeps its modes, owners and times: Landlock knows nothing of them.
fn d11_devices_and_proc_are_read_only_mounts(scratch: &Scratch) {
    if !scratch.caller.has_namespaces() {
        return;
    }
    let mounts = scratch.sh("cat /proc/self/mountinfo").text();
    for at in ["/proc", "/dev/null", "/dev/tty"] {
        let mount = mounts.lines().rfind(|line| line.split(' ').nth(4) == Some(at));
        let options = mount.and_then(|mount| mount.split(' ').nth(5)).unwrap_or_default();
        assert!(options.split(',').any(|option| option == "ro"), "{at}: {mounts}");
    }
    // They can be written all the same.
    assert_eq!(scratch.sh("echo x > /dev/null && echo written").text(), "written\n");
}

fn g13_secrets_are_hidden(scratch: &Scratch) {
    for path in SECRETS.iter().chain(&["sub/.env.example"]) {
        write(scratch.work.join(path), &scratch.secret);
        chmod(scratch.work.join(path), 0o644);
    }
    std::os::unix::fs::symlink(".env", scratch.work.join("link")).unwrap();
    let mut shown: Vec<&str> = SECRETS.iter().flat_map(|path| ["--show", path]).collect();
    if !scratch.caller.has_namespaces() {
        // Only a mount can hide it, so nothing runs until a person has said that it may be read.
        let ended = scratch.sh("touch ran");
        assert_eq!((ended.code, scratch.work.join("ran").exists()), (125, false), "{ended:?}");
        assert!(ended.stderr.contains("--show") && ended.stderr.contains(".env"), "{ended:?}");
        assert_eq!(scratch.sh_with(&shown, "cat .env").text(), scratch.secret);
        return;
    }
    let ways = [
        "cat .env",
        "cat sub/.env",
        "cat sub/.env.production",
        "cat link",
        "mv .env m; cat m",
        "ln .env m; cat m",
        "grep -r . . | grep -v example",
    ];
    for way in ways {
        assert!(!scratch.sh(way).shows(&scratch.secret), "{way}");
    }
    assert_eq!(scratch.sh("cat sub/.env.example").text(), scratch.secret);
    for path in SECRETS {
        assert!(!scratch.tool("read_file", &json!({"path": path}), &[]).shows(&scratch.secret), "{path}");
        let ended = scratch.tool("write_file", &json!({"path": path, "content": "x"}), &["--approve", "yes"]);
        assert_ne!(ended.code, 0, "{path} {ended:?}");
        assert_eq!(read_text(scratch.work.join(path)), scratch.secret);
    }
    shown.truncate(2);
    assert_eq!(scratch.sh_with(&shown, "cat .env; cat sub/.env").text(), scratch.secret);
    assert!(scratch.sh_with(&["--backend", "none"], "cat sub/.env").shows(&scratch.secret));
}

/// Ways to leave something that the next git command of the host would run.
const CHANGES: [&str; 8] = [
    "echo x > .git/hooks/pre-commit",
    "echo x > .git/x && mv .git/x .git/hooks/pre-commit",
    "echo '[core] hooksPath = /tmp/h' >> .git/config",
    "mv .git/config .git/old && echo x > .git/config",
    "ln -f sub/inside.txt .git/config",
    "rm -rf .git/hooks && mkdir .git/hooks && echo x > .git/hooks/pre-commit",
    "mv .git old && mkdir -p .git/hooks && echo x > .git/hooks/pre-commit",
    "echo x > sub/.git/config",
];

fn b05_what_git_runs_is_not_changed(scratch: &Scratch) {
    let arrange = |scratch: &Scratch| {
        for repository in [".git", "sub/.git"] {
            make_dir(scratch.work.join(repository));
            make_dir(scratch.work.join(repository).join("hooks"));
            write(scratch.work.join(repository).join("config"), "[core]\n");
        }
        scratch.give_all();
    };
    let kept = |scratch: &Scratch| {
        [".git", "sub/.git"].iter().all(|repository| {
            let repository = scratch.work.join(repository);
            read_text(repository.join("config")) == "[core]\n" && !repository.join("hooks/pre-commit").exists()
        })
    };
    arrange(scratch);
    let ended = scratch.tool("run_command", &json!({"command": "true"}), &["--approve", "yes"]);
    let metadata = ended.json().pointer("/enforcement/metadata").cloned().unwrap_or_default();
    if !scratch.caller.has_namespaces() {
        // Not held there, but found at the end; that is said, and tried by the tests of the quarantine.
        assert!(metadata.get("level") == Some(&json!("partial")), "{metadata}");
        assert!(metadata.to_string().contains("changed or made anew is quarantined"), "{metadata}");
        return;
    }
    // A repository made anew is not held but found at the end, and one whose parent directory was moved away; that is said too.
    assert!(metadata.get("level") == Some(&json!("partial")) && metadata.to_string().contains("anew"), "{metadata}");
    for change in CHANGES {
        scratch.sh(change);
        assert!(kept(scratch), "{change}");
        let bare = Scratch::of(scratch.caller, crate::scratch::System::Own);
        arrange(&bare);
        // Without a place for it nothing is put in quarantine, nor back.
        bare.block_quarantine();
        bare.sh_with(&["--backend", "none"], change);
        assert!(!kept(&bare), "{change} changes something where nothing holds it");
    }
    for path in [".git/hooks/pre-commit", ".git/config", "sub/.git/config"] {
        let ended = scratch.tool("write_file", &json!({"path": path, "content": "x"}), &["--approve", "yes"]);
        assert!(ended.code != 0 && kept(scratch), "{path} {ended:?}");
    }
    assert_eq!(scratch.sh("echo x > .git/index && cat .git/config").text(), "[core]\n");
}

#[test]
fn b13_git_itself_goes_on() {
    let name = concat!(module_path!(), "::b13_git_itself_goes_on");
    if !crate::process::succeeds(&["git", "--version"]) {
        return crate::caller::skipped(name, "no git");
    }
    let scratch = Scratch::new();
    const MAKE: &str = "git init -q . && git config user.name n && git config user.email e@x";
    assert_eq!(scratch.sh(MAKE).code, 0, "there is no repository yet whose settings could be changed");
    const WORK: &str = "git add . && git commit -qm one && git checkout -qb side && echo x > sub/new && git add . \
        && git commit -qm two && git checkout -q - && git merge -q side && git stash -q; git log --oneline | wc -l";
    let ended = scratch.sh(WORK);
    assert_eq!((ended.code, ended.text().trim()), (0, "2"), "{ended:?}");
}

//! What a session newly makes of the kind that the host runs by itself is moved away when it is over, shown and kept; what git
//! makes for its own work stays.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::caller::{Caller, skipped};
use crate::process::{self, Tag};
use crate::scratch::{Ended, Scratch, chmod, link, list, make_dir, read_text, write};

for_every_caller!(
    b01_new_settings_are_moved_away,
    b01_a_killed_session_is_settled_at_the_next_start,
    b05_changed_settings_are_as_before,
    b13_git_leaves_nothing_in_quarantine,
    b05_a_rebase_that_is_left_runs_nothing,
    a29_nothing_outside_is_moved,
    without_a_place_it_is_named,
    names_are_shown_escaped,
    two_sessions_at_once,
    b01_what_a_living_session_made_is_not_trusted,
    b01_a_killed_session_is_settled_by_one_that_starts_below,
);

/// A script, and what of it must be gone, by its path in the workspace.
const MADE: [(&str, &[&str]); 29] = [
    (
        "d=.git/objects/e; mkdir -p $d/objects $d/refs .git/lfs/x/.git .git/refs; echo x > $d/HEAD; ln -s $d src; ln -s ../.git/lfs/x sub/y; ln -s .git/refs .env.r",
        &["src", "sub/y", ".env.r"],
    ),
    (
        "mkdir -p .git/docs/.claude; echo x > .git/docs/CLAUDE.md; ln -s $PWD/.git/docs docs; ln -s .git all; mkdir n; ln -s ../all n/most",
        &["docs", "all"],
    ),
    (
        "mkdir -p .git/branches; echo ext::x > .git/branches/origin; echo x > .git/lazygit.yml",
        &[".git/branches/origin", ".git/lazygit.yml"],
    ),
    (
        "for m in lib modules; do mkdir -p .git/modules/$m/hooks; echo x > .git/modules/$m/hooks/update; done",
        &[".git/modules/lib/hooks/update", ".git/modules/modules/hooks/update"],
    ),
    (
        "mkdir -p .config/mise .helix p/.qwen; for f in .config/mise/config.toml .config/lefthook.yml .helix/x p/.qwen/x; do echo x > $f; done",
        &[".config/mise", ".config/lefthook.yml", ".helix", "p/.qwen"],
    ),
    (
        "mkdir c; echo x > c/mise.toml; ln -s c .config; echo x > opencode.jsonc; echo x > .irbrc; mkdir g; ln -s ../g sub/.github",
        &[".config", "opencode.jsonc", ".irbrc", "sub/.github"],
    ),
    (
        "echo x > .lefthook-local.toml; echo x > .mise.local.toml; echo x > sub/AGENT.md; echo x > sub/mise.toml",
        &[".lefthook-local.toml", ".mise.local.toml", "sub/AGENT.md"],
    ),
    (
        "mkdir -p p/.vscode p/.zed .github; echo x > p/.vscode/tasks.json; echo x > .github/copilot-instructions.md; echo x > sub/CLAUDE.md",
        &["p/.vscode", "p/.zed", ".github/copilot-instructions.md", "sub/CLAUDE.md"],
    ),
    (
        "mkdir -p node_modules/p/.vscode p/.junie; echo x > node_modules/p/AGENTS.md; echo x > x.code-workspace; mkdir .junie",
        &["node_modules/p/AGENTS.md", "x.code-workspace", ".junie"],
    ),
    (
        "mkdir -p sub/.github/hooks; echo x > sub/.github/hooks/a; echo x > .roorules",
        &["sub/.github/hooks", ".roorules"],
    ),
    (
        "M=.git/modules/lib; mkdir -p $M/objects/zlib/objects $M/objects/zlib/refs; echo x > $M/HEAD; echo x > $M/objects/zlib/HEAD; echo /x > $M/objects/zlib/commondir",
        &[".git/modules/lib/objects/zlib/HEAD", ".git/modules/lib/objects/zlib/commondir"],
    ),
    (
        "mkdir -p sub/.cargo && echo x > sub/.cargo/config; echo x > CLAUDE.local.md",
        &["sub/.cargo/config", "CLAUDE.local.md"],
    ),
    ("mkdir .vscode && echo x > .vscode/tasks.json", &[".vscode"]),
    ("echo x > .envrc; echo x > AGENTS.md", &[".envrc", "AGENTS.md"]),
    ("mkdir -p sub/.cargo && echo x > sub/.cargo/config.toml", &["sub/.cargo/config.toml"]),
    ("mkdir real && echo x > real/config.toml && ln -s real .cargo", &[".cargo"]),
    ("mkdir -p sub/.git/hooks && echo x > sub/.git/hooks/post-checkout", &["sub/.git/hooks/post-checkout"]),
    ("mkdir -p .git/hooks && echo x > .git/hooks/post-checkout", &[".git/hooks/post-checkout"]),
    ("mkdir h && echo x > h/pre-commit && ln -s ../h .git/hooks", &[".git/hooks"]),
    ("echo '[core] fsmonitor = x' > .git/config.worktree", &[".git/config.worktree"]),
    ("mkdir -p .git/info && echo '* filter=x' > .git/info/attributes", &[".git/info/attributes"]),
    ("mkdir i && echo '* filter=x' > i/attributes && ln -s ../i .git/info", &[".git/info"]),
    ("mkdir -p new/.git && printf '[core]\\n\\tfsmonitor = x\\n' > new/.git/config", &["new/.git/config"]),
    ("mkdir -p new/.git && printf '[core]\\nhooksPath = x\\n' > new/.git/config", &["new/.git/config"]),
    ("mkdir -p new/.git && printf '[include]\\npath = x\\n' > new/.git/config", &["new/.git/config"]),
    ("mkdir a; ln -s ../OUT a/.git", &["a/.git"]),
    ("mkdir a; echo gitdir: /OUT/x > a/.git", &["a/.git"]),
    (
        "mkdir -p a/objects a/refs a/hooks; cd a; echo x > HEAD; printf '[core]\\nfsmonitor = x\\n' > config; echo x > hooks/update",
        &["a/HEAD", "a/config", "a/hooks/update"],
    ),
    ("mkdir c; mkdir -p c/.git/hooks; echo x > c/.git/hooks/update; chmod 500 c/.git/hooks", &["c/.git/hooks/update"]),
];

/// A git directory that was there before.
fn arrange(scratch: &Scratch) {
    make_dir(scratch.work.join(".git"));
    write(scratch.work.join(".git/HEAD"), "ref: refs/heads/main\n");
    write(scratch.work.join(".git/config"), "[core]\n\teditor = vi\n");
    scratch.give_all();
}

fn is_there(path: impl AsRef<Path>) -> bool {
    path.as_ref().symlink_metadata().is_ok()
}

/// Zwinger's directory for the one workspace of a scratch.
fn place(scratch: &Scratch) -> PathBuf {
    let workspaces = scratch.state().join("workspaces");
    workspaces.join(only(list(&workspaces)))
}

/// The quarantine of the one session that has one.
fn quarantine(scratch: &Scratch) -> PathBuf {
    let quarantine = place(scratch).join("quarantine");
    quarantine.join(only(list(&quarantine)))
}

fn only<T: std::fmt::Debug>(found: Vec<T>) -> T {
    <[T; 1]>::try_from(found).map(|[one]| one).unwrap()
}

/// The lines about what was moved.
fn said_of_quarantine(ended: &Ended) -> Vec<&str> {
    let words = ["zwinger: quarantined ", "zwinger: NOT MOVED", "zwinger: an earlier session", "zwinger: not all"];
    ended.stderr.lines().filter(|line| words.iter().any(|word| line.starts_with(word))).collect()
}

/// One that is closed stays.
fn assert_no_journal(scratch: &Scratch) {
    let left = list(&place(scratch)).into_iter().filter(|name| name != "quarantine").collect::<Vec<_>>();
    assert_eq!(left, ["journal"]);
    assert!(read_text(place(scratch).join("journal")).starts_with('\0'), "it is open");
}

fn b01_new_settings_are_moved_away(scratch: &Scratch) {
    for (script, gone) in MADE {
        for backend in ["auto", "none"] {
            let scratch = Scratch::of(scratch.caller, crate::scratch::System::Own);
            arrange(&scratch);
            let ended = scratch.sh_with(&["--backend", backend], script);
            assert_eq!(ended.code, 0, "{script} {ended:?}");
            let kept = quarantine(&scratch);
            for path in gone {
                assert!(!is_there(scratch.work.join(path)), "{script} leaves {path}");
                assert!(is_there(kept.join(path)), "{script} {path} is not kept");
                assert!(ended.stderr.contains(&format!("zwinger: quarantined {path} (")), "{script} {ended:?}");
            }
            assert_eq!(ended.stderr.matches("zwinger: quarantined").count(), gone.len(), "{script} {ended:?}");
            assert_eq!(read_text(scratch.work.join(".git/config")), "[core]\n\teditor = vi\n");
            assert_no_journal(&scratch);
            scratch.assert_out_untouched();
        }
    }
    // By the other doors too.
    arrange(scratch);
    let arguments = json!({"command": "mkdir .vscode; echo x > .vscode/tasks.json"});
    let ended = scratch.tool("run_command", &arguments, &["--approve", "yes"]);
    assert!(ended.stderr.contains("zwinger: quarantined .vscode ("), "{ended:?}");
    assert!(!is_there(scratch.work.join(".vscode")));
    let ended = scratch.sh_with(&["--json"], "echo x > .envrc; chmod 6755 .envrc");
    let field =
        |name| ended.json().pointer(&format!("/quarantined/0/{name}")).and_then(Value::as_str).map(str::to_owned);
    assert_eq!(field("path").as_deref(), Some(".envrc"), "{ended:?}");
    let kept_at = PathBuf::from(field("kept_at").unwrap());
    assert_eq!(read_text(&kept_at), "x\n");
    // Without the rights of its owner.
    assert_eq!(kept_at.symlink_metadata().unwrap().permissions().mode() & 0o6000, 0);
    let ended = scratch.sh_with(&["--json"], "echo x > harmless");
    assert_eq!(ended.json().get("quarantined"), Some(&json!([])));
    assert_no_journal(scratch);
}

fn b01_a_killed_session_is_settled_at_the_next_start(scratch: &Scratch) {
    arrange(scratch);
    let tag = Tag::new();
    let script = format!("mkdir -p sub/.git/hooks; echo x > sub/.git/hooks/post-checkout; sleep {}", tag.0);
    let running = scratch.start(scratch.zwinger(&["run", "--", "sh", "-c", &script]));
    tag.wait_for(1);
    // While it lives, another session lets it be.
    let ended = scratch.sh("true");
    assert_eq!((ended.code, said_of_quarantine(&ended).len()), (0, 0), "{ended:?}");
    running.signal(Signal::KILL);
    running.end();
    assert!(is_there(scratch.work.join("sub/.git/hooks/post-checkout")));
    // At once: what it ran may still be ending.
    let ended = scratch.sh("test ! -e sub/.git/hooks/post-checkout");
    assert_eq!(ended.code, 0, "{ended:?}");
    let said = "zwinger: an earlier session was killed; put in quarantine: sub/.git/hooks/post-checkout (a hook)";
    assert!(ended.stderr.contains(said), "{ended:?}");
    assert_eq!(read_text(quarantine(scratch).join("sub/.git/hooks/post-checkout")), "x\n");
    assert!(said_of_quarantine(&scratch.sh("true")).is_empty());
    assert_no_journal(scratch);
    tag.assert_gone();
}

fn b05_changed_settings_are_as_before(scratch: &Scratch) {
    arrange(scratch);
    make_dir(scratch.work.join(".git/hooks"));
    for (path, mode) in [(".git/hooks/pre-commit", 0o755), (".git/hooks/idle", 0o644), ("AGENTS.md", 0o644)] {
        write(scratch.work.join(path), "before\n");
        chmod(scratch.work.join(path), mode);
    }
    scratch.give_all();
    const CHANGE: &str = "exec 2> /dev/null; for f in .git/hooks/pre-commit AGENTS.md; do echo after >> $f; done;
        chmod +x .git/hooks/idle; printf '[core]\\n\\teditor = ./x\\n' > .git/config; true";
    let ended = scratch.sh(CHANGE);
    for path in [".git/hooks/pre-commit", ".git/hooks/idle", "AGENTS.md"] {
        assert_eq!(read_text(scratch.work.join(path)), "before\n", "{path} {ended:?}");
        let changed = ended.stderr.contains(&format!("quarantined {path} (changed: "));
        assert_eq!(changed, !scratch.caller.has_namespaces(), "{path} {ended:?}");
    }
    assert_eq!(read_text(scratch.work.join(".git/config")), "[core]\n\teditor = vi\n");
    let mode = |path: &str| scratch.work.join(path).symlink_metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!([mode(".git/hooks/pre-commit"), mode(".git/hooks/idle")], [0o755, 0o644]);
    // What git writes of branches and remotes is no danger.
    let tracked = "[core]\n\teditor = vi\n[branch \"x\"]\n\tremote = origin\n\tmerge = refs/heads/x\n";
    let ended =
        scratch.sh_with(&["--backend", "none"], &format!("printf '{}' > .git/config", tracked.replace('\n', "\\n")));
    assert!(said_of_quarantine(&ended).is_empty(), "{ended:?}");
    assert_eq!(read_text(scratch.work.join(".git/config")), tracked);
}

const IDENTITY: &str = "export GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=e@x GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=e@x; ";

fn b13_git_leaves_nothing_in_quarantine(scratch: &Scratch) {
    if !process::succeeds(&["git", "--version"]) {
        return skipped(concat!(module_path!(), "::b13_git_leaves_nothing_in_quarantine"), "no git");
    }
    let git = |script: &str| -> Ended {
        let ended = scratch.sh(&format!("set -e; {IDENTITY}{script}"));
        assert_eq!((ended.code, ended.stderr.contains("zwinger: quarantined")), (0, false), "{script} {ended:?}");
        ended
    };
    git("git init -q origin; cd origin; echo 1 > f; git add f; git commit -qm 1");
    git("git clone -q origin clone; git -C clone status");
    // A directory of templates may have `branches`, as that of older versions has.
    git(
        "mkdir -p template/branches; git init -q --shared --template=$PWD/template shared; cd shared; git config pull.rebase true",
    );
    assert!(is_there(scratch.work.join("shared/.git/branches")));
    let text = read_text(scratch.work.join("shared/.git/config"));
    assert!(text.contains("sharedrepository = 1") && text.contains("denyNonFastforwards = true"), "{text}");
    git(
        "cd clone; git checkout -qb side; echo 2 > g; git add g; git commit -qm 2; git checkout -q -; git merge -q side",
    );
    git("cd clone; echo 3 >> f; git stash -q; git stash pop -q; git checkout -q f");
    git("cd origin; echo 4 > h; git add h; git commit -qm 4; cd ../clone; git fetch -q; git merge -q -m m origin/HEAD");
    git("cd clone; git worktree add -q ../tree; cd ../tree; git status; echo 5 > i; git add i; git commit -qm 5");
    let ended = git("cd tree; git log --oneline | wc -l; git worktree list | wc -l");
    assert_eq!(ended.text().split_whitespace().collect::<Vec<_>>(), ["5", "2"]);
    // One that was there at the beginning is pinned, so that only a new one can be removed.
    git("cd clone; git worktree add -q -b b ../other; git worktree remove ../other; git gc -q; git tag t");
    // What git fetches later, or only in part, and repositories in it.
    git("git init -q lib; cd lib; echo 1 > l; git add l; git commit -qm 1");
    let settings = scratch.work.join("lib/.git/config");
    write(&settings, format!("{}[uploadpack]\n\tallowFilter = true\n", read_text(&settings)));
    git("export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=protocol.file.allow GIT_CONFIG_VALUE_0=always
        cd origin; git submodule -q add $PWD/../lib lib; git commit -qm lib; cd ..
        git clone -q --recurse-submodules \"file://$PWD/origin\" whole; cd whole/lib; git status; cd ..; git submodule status");
    git("git clone -q --no-tags --filter=blob:none \"file://$PWD/lib\" partial; cat partial/l");
    git("git clone -q --sparse \"file://$PWD/origin\" sparse; cd sparse; git sparse-checkout set other; git status");
    // One may be named as a part of a git directory is.
    git("cd clone; for n in branches hooks; do git worktree add -q -b $n ../$n; done; cd ../branches; git status");
    git("cd hooks; echo 1 > j; git add j; git commit -qm j");
    for (settings, key) in [
        ("whole/.git/config", "[submodule \"lib\"]"),
        ("whole/.git/modules/lib/config", "worktree = ../../../lib"),
        ("partial/.git/config", "partialclonefilter = blob:none"),
        ("sparse/.git/config.worktree", "sparseCheckout = true"),
    ] {
        let text = read_text(scratch.work.join(settings));
        assert!(text.contains(key), "{settings} {text}");
    }
    assert!(!is_there(place(scratch).join("quarantine")));
    assert_no_journal(scratch);
}

fn b05_a_rebase_that_is_left_runs_nothing(scratch: &Scratch) {
    if !process::succeeds(&["git", "--version"]) {
        return skipped(concat!(module_path!(), "::b05_a_rebase_that_is_left_runs_nothing"), "no git");
    }
    let git = |script: &str| {
        let ended = scratch.sh(&format!("{IDENTITY}{script}"));
        let moved: Vec<_> = said_of_quarantine(&ended).into_iter().map(str::to_owned).collect();
        (ended, moved)
    };
    let (ended, moved) = git("set -e; git init -q r; cd r; echo 1 > f; git add f; git commit -qm 1; git checkout -qb side
        echo 2 > f; git commit -qam 2; echo 4 > g; git add g; git commit -qm 4; git checkout -q -; echo 3 > f; git commit -qam 3
        git worktree add -q ../tree side");
    assert_eq!((ended.code, moved.len()), (0, 0), "{ended:?}");
    // One that ends in the command that started it, with what it runs.
    let (ended, moved) = git("cd r; git checkout -q --detach; git rebase -q --exec 'echo ran >> ../log' --root");
    assert_eq!((ended.code, moved.len()), (0, 0), "{ended:?}");
    assert_eq!(read_text(scratch.work.join("log")), "ran\nran\n");
    // One that stops at a conflict, and would only pick; then goes on in another.
    let start = "cd tree; git rebase -q master || git rebase -q main";
    let (ended, moved) = git(&format!("{start}; git status | grep -q 'in progress'"));
    assert_eq!((ended.code, moved.len()), (0, 0), "{ended:?}");
    let todo = "r/.git/worktrees/tree/rebase-merge/git-rebase-todo";
    assert!(read_text(scratch.work.join(todo)).starts_with("pick "));
    let (ended, moved) = git("set -e; cd tree; echo 5 > f; git add f; GIT_EDITOR=true git rebase --continue");
    assert_eq!((ended.code, moved.len()), (0, 0), "{ended:?}");
    // One that would run something, by git's own hand or written there.
    let (ended, moved) = git(
        "set -e; cd tree; git reset -q --hard HEAD~2; echo 6 > f; git commit -qam 6; cd ../r; git checkout -q --detach
        echo 7 > f; git commit -qam 7; git tag t; cd ../tree; git rebase -q --exec ../x t || true",
    );
    assert!(ended.code == 0 && !is_there(scratch.work.join(todo)), "{ended:?}");
    assert!(only(moved).contains(&format!("quarantined {todo} (a rebase in progress")), "{ended:?}");
    let (ended, moved) = git("cd tree; git rebase --abort && git status");
    assert_eq!((ended.code, moved.len()), (0, 0), "{ended:?}");
    // Of one that the person started, what is left to do may become less, and no other.
    let directory = scratch.work.join("r/.git/rebase-merge");
    make_dir(&directory);
    write(directory.join("git-rebase-todo"), "exec ./a\nexec ./b\n");
    scratch.give_all();
    let place = "r/.git/rebase-merge/git-rebase-todo";
    let (ended, moved) = git(&format!("echo exec ./b > n; mv n {place}"));
    assert_eq!((ended.code, moved.len()), (0, 0), "{ended:?}");
    let (ended, moved) = git(&format!("echo exec ./evil >> {place}"));
    assert!(only(moved).contains("(changed: a rebase in progress"), "{ended:?}");
    assert_eq!(read_text(scratch.work.join(place)), "exec ./b\n");
    let (ended, moved) =
        git("mkdir l; echo exec ./x > l/git-rebase-todo; rm -r r/.git/rebase-merge; ln -s ../../l r/.git/rebase-merge");
    assert!(only(moved).contains("quarantined r/.git/rebase-merge (a link"), "{ended:?}");
}

fn b01_a_killed_session_is_settled_by_one_that_starts_below(scratch: &Scratch) {
    arrange(scratch);
    let tag = Tag::new();
    let script = format!("echo x > .envrc; mkdir sub/.cargo; echo x > sub/.cargo/config.toml; sleep {}", tag.0);
    let running = scratch.start(scratch.zwinger(&["run", "--", "sh", "-c", &script]));
    tag.wait_for(1);
    let below = || {
        let mut command = scratch.zwinger(&["run", "--", "true"]);
        command.current_dir(scratch.work.join("sub"));
        scratch.start(command).end()
    };
    // While it lives, it is not settled, nor is what it made there taken for new.
    let ended = below();
    assert_eq!((ended.code, said_of_quarantine(&ended).len()), (0, 0), "{ended:?}");
    running.signal(Signal::KILL);
    running.end();
    let ended = below();
    for path in [".envrc", "sub/.cargo/config.toml"] {
        let said = format!("was killed; put in quarantine: {} (", scratch.work.join(path).display());
        assert!(ended.stderr.contains(&said), "{ended:?}");
        assert!(!is_there(scratch.work.join(path)));
    }
    assert!(said_of_quarantine(&below()).is_empty());
    tag.assert_gone();
}

fn a29_nothing_outside_is_moved(scratch: &Scratch) {
    arrange(scratch);
    // What is outside has the very names, and the workspace had directories where links to it are at the end.
    let names = ["hooks", "objects", "refs"];
    for name in names {
        make_dir(scratch.base.join("etc").join(name));
    }
    for name in ["HEAD", "config", "hooks/update"] {
        write(scratch.base.join("etc").join(name), "[core]\nfsmonitor = x\n");
    }
    make_dir(scratch.work.join("repository"));
    make_dir(scratch.work.join("repository/.git"));
    scratch.give_all();
    let script =
        "mkdir -p a/.git/hooks && echo x > a/.git/hooks/update && rm -rf a && ln -s ../etc a; rm -rf repository;
        ln -s ../etc repository; mkdir b; ln -s ../../etc b/.git; ln -s ../../etc .git/modules; true";
    let ended = scratch.sh_with(&["--backend", "none"], script);
    assert!(is_there(scratch.work.join("a")) && is_there(scratch.work.join("repository")), "{ended:?}");
    assert!(!is_there(scratch.work.join("b/.git")) && !is_there(scratch.work.join(".git/modules")), "{ended:?}");
    assert_eq!(list(&scratch.base.join("etc")), ["HEAD", "config", "hooks", "objects", "passwd", "refs"]);
    assert_eq!(list(&scratch.base.join("etc/hooks")), ["update"]);
    assert!(quarantine(scratch).join("b/.git").symlink_metadata().unwrap().is_symlink());
}

fn without_a_place_it_is_named(scratch: &Scratch) {
    scratch.block_quarantine();
    arrange(scratch);
    let run = |options: &[&str], script: &str| scratch.sh_with(options, script);
    if !scratch.caller.has_namespaces() {
        // Nothing at all would be held of the kind.
        let ended = run(&[], "echo x > .envrc");
        assert!(ended.code == 125 && ended.stderr.contains("metadata would be none: "), "{ended:?}");
        assert!(!is_there(scratch.work.join(".envrc")));
        return;
    }
    let ended = run(&[], "echo x > .envrc");
    assert!(ended.code == 0 && ended.stderr.contains("NOT MOVED AWAY: .envrc ("), "{ended:?}");
    assert!(is_there(scratch.work.join(".envrc")));
    let ended = run(&["--json"], "true");
    let reason = ended.json().pointer("/enforcement/metadata/reason").cloned().unwrap_or_default();
    assert!(reason.to_string().contains("no quarantine"), "{reason}");
    // Without a state there is no audit either, and one that could be written from inside is none.
    let mut command = scratch.zwinger(&["run", "--", "sh", "-c", "echo x > AGENTS.md"]);
    command.env("XDG_STATE_HOME", "/proc/nowhere");
    let ended = scratch.start(command).end();
    assert!(ended.code == 125 && ended.stderr.contains("/proc/nowhere"), "{ended:?}");
    let mut command = scratch.zwinger(&["run", "--", "sh", "-c", "echo x > AGENTS.md"]);
    command.env("XDG_STATE_HOME", scratch.work.join("state"));
    let ended = scratch.start(command).end();
    assert!(ended.code == 125 && ended.stderr.contains("can be written from inside the walls"), "{ended:?}");
    assert!(!is_there(scratch.work.join("state")) && !is_there(scratch.work.join("AGENTS.md")));
}

fn names_are_shown_escaped(scratch: &Scratch) {
    arrange(scratch);
    let ended =
        scratch.sh("d=$(printf \"it's\\n\\033[2Kx\"); mkdir -p \"$d/.cargo\"; echo x > \"$d/.cargo/config.toml\"");
    let line = only(said_of_quarantine(&ended));
    assert!(line.contains("quarantined it's\\n\\e[2Kx/.cargo/config.toml ("), "{ended:?}");
    assert!(!ended.stderr.contains('\x1b'));
    // What is shown puts it back.
    if !process::succeeds(&["bash", "-c", "true"]) {
        return skipped(concat!(module_path!(), "::names_are_shown_escaped"), "no bash to try the words in");
    }
    let put_back = line.split_once("put it back: ").unwrap().1;
    assert!(process::succeeds(&["bash", "-c", put_back]), "{put_back}");
    assert_eq!(read_text(scratch.work.join("it's\n\x1b[2Kx/.cargo/config.toml")), "x\n");
}

fn two_sessions_at_once(scratch: &Scratch) {
    arrange(scratch);
    let tag = Tag::new();
    let script = format!("sleep {} & while ! test -e go; do sleep 0.01; done; echo x > .envrc", tag.0);
    let running = scratch.start(scratch.zwinger(&["run", "--", "sh", "-c", &script]));
    tag.wait_for(1);
    let ended = scratch.sh("echo x > AGENTS.md; touch go; while ! test -e .envrc; do sleep 0.01; done");
    let other = running.end();
    assert_eq!((ended.code, other.code), (0, 0), "{ended:?} {other:?}");
    let said = format!("{}{}", ended.stderr, other.stderr);
    for path in [".envrc", "AGENTS.md"] {
        assert!(!is_there(scratch.work.join(path)), "{path} {said}");
        assert!(said.contains(&format!("quarantined {path} (")), "{path} {said}");
    }
    assert!(!said.contains("NOT MOVED"), "{said}");
    assert_no_journal(scratch);
}

/// What one session has made when another begins is made again by that when the first is over.
fn b01_what_a_living_session_made_is_not_trusted(scratch: &Scratch) {
    arrange(scratch);
    let tag = Tag::new();
    let script = format!("echo x > .envrc; sleep {} & while ! test -e go; do sleep 0.01; done", tag.0);
    let first = scratch.start(scratch.zwinger(&["run", "--", "sh", "-c", &script]));
    tag.wait_for(1);
    let second = "touch begun; while ! test -e again; do sleep 0.01; done; echo x > .envrc";
    let second = scratch.start(scratch.zwinger(&["run", "--", "sh", "-c", second]));
    crate::process::until("the second session", || is_there(scratch.work.join("begun")).then_some(()));
    write(scratch.work.join("go"), "");
    let first = first.end();
    assert!(first.stderr.contains("quarantined .envrc (") && !is_there(scratch.work.join(".envrc")), "{first:?}");
    write(scratch.work.join("again"), "");
    let second = second.end();
    assert!(second.stderr.contains("quarantined .envrc (") && !is_there(scratch.work.join(".envrc")), "{second:?}");
    assert_no_journal(scratch);
}

#[test]
fn a_link_that_was_there_stays() {
    let scratch = Scratch::new();
    arrange(&scratch);
    make_dir(scratch.work.join("conf"));
    link("conf", scratch.work.join(".vscode"));
    write(scratch.work.join("CLAUDE.md"), "x");
    let ended = scratch.sh_with(&["--backend", "none"], "touch conf/x; rm CLAUDE.md; ln -s conf CLAUDE.md");
    assert!(scratch.work.join(".vscode").symlink_metadata().unwrap().is_symlink(), "{ended:?}");
    assert!(ended.stderr.contains("quarantined CLAUDE.md (changed: "), "{ended:?}");
    assert_eq!(read_text(scratch.work.join("CLAUDE.md")), "x");
}

#[test]
fn a_killed_session_of_tools_is_settled_too() {
    let scratch = Scratch::new();
    arrange(&scratch);
    let tag = Tag::new();
    let arguments = json!({"command": format!("echo x > .envrc; sleep {}", tag.0)}).to_string();
    let running = scratch.start(scratch.zwinger(&["tool", "run_command", &arguments, "--approve", "yes"]));
    tag.wait_for(1);
    running.signal(Signal::KILL);
    running.end();
    let ended = scratch.tool("get_time", &json!({}), &[]);
    assert!(ended.stderr.contains("an earlier session was killed; put in quarantine: .envrc ("), "{ended:?}");
    assert!(!is_there(scratch.work.join(".envrc")));
    assert_no_journal(&scratch);
}

/// A state directory on another file system than the workspace.
fn elsewhere(scratch: &Scratch) -> Option<tempfile::TempDir> {
    use std::os::unix::fs::MetadataExt;
    let elsewhere = tempfile::tempdir_in("/dev/shm").ok()?;
    let device = |path: &Path| path.symlink_metadata().map(|found| found.dev()).ok();
    (device(elsewhere.path()) != device(&scratch.work)).then_some(elsewhere)
}

#[test]
fn a_quarantine_on_another_file_system() {
    let scratch = Scratch::new();
    let Some(state) = elsewhere(&scratch) else {
        return skipped(concat!(module_path!(), "::a_quarantine_on_another_file_system"), "/dev/shm is no other one");
    };
    arrange(&scratch);
    let run = |script: &str| {
        let mut command = scratch.zwinger(&["run", "--", "sh", "-c", script]);
        command.env("XDG_STATE_HOME", state.path());
        scratch.start(command).end()
    };
    let ended = run(
        "mkdir .vscode; echo x > .vscode/a; ln -s ../../work-evil .vscode/out; echo x > AGENTS.md; chmod 4755 AGENTS.md",
    );
    assert_eq!(said_of_quarantine(&ended).len(), 2, "{ended:?}");
    assert!(!is_there(scratch.work.join(".vscode")) && !is_there(scratch.work.join("AGENTS.md")));
    // What is too large for that is made harmless where it is, and so is all in it that would do something by itself.
    let ended = run("mkdir -p .idea/x/.git/hooks; echo x > .idea/x/.git/hooks/update; truncate -s 20M .idea/large");
    assert!(ended.stderr.contains("so it was renamed") && ended.stderr.contains("hooks/update (a hook)"), "{ended:?}");
    let left = list(&scratch.work);
    assert!(
        !left.contains(&".idea".into()) && left.iter().any(|name| name.starts_with(".idea.quarantined-")),
        "{left:?}"
    );
    let renamed = left.iter().find(|name| name.starts_with(".idea.")).unwrap();
    assert_eq!(list(&scratch.work.join(renamed).join("x/.git/hooks")), Vec::<String>::new());
    scratch.assert_out_untouched();
}

#[test]
fn a_directory_that_nobody_can_look_into() {
    let name = concat!(module_path!(), "::a_directory_that_nobody_can_look_into");
    let caller = if rustix::process::geteuid().is_root() { Caller::Ordinary } else { Caller::Plain };
    if let Some(reason) = caller.unavailable() {
        return skipped(name, reason);
    }
    let scratch = Scratch::of(caller, crate::scratch::System::Own);
    arrange(&scratch);
    // Git finds a repository in it, for that needs no right to list.
    let ended = scratch.sh("mkdir -p shut/.git/hooks; echo x > shut/.git/hooks/update; chmod 311 shut");
    assert!(ended.stderr.contains("quarantined shut (a directory that nobody can look into)"), "{ended:?}");
    assert!(!is_there(scratch.work.join("shut")));
}

#[test]
fn a_link_into_git_that_was_there_stays() {
    let scratch = Scratch::new();
    for directory in [".git", ".git/info"] {
        make_dir(scratch.work.join(directory));
    }
    write(scratch.work.join(".git/info/it"), "as it was");
    link(".git/info", scratch.work.join("about"));
    assert_eq!(scratch.sh("touch sub/new; ln -s gone/.git/x nowhere").code, 0);
    assert_eq!(list(&scratch.work), [".git", "about", "nowhere", "sub"]);
    assert_eq!(scratch.sh("rm about; ln -s .git/refs about; mkdir .git/refs").code, 0);
    assert_eq!(read_text(scratch.work.join("about/it")), "as it was");
}

//! Programs of every day work inside. Each test is skipped by name where its program is missing.

use std::path::Path;
use std::time::Duration;

use crate::caller::{Caller, skipped};

use crate::scratch::{Ended, Scratch, make_dir, write};

for_every_caller!(git, git_worktrees, cargo_build, python_venv, node, npm_install, make_and_gcc);

/// A build on a busy machine.
const LONG: Duration = Duration::from_secs(100);

/// Whether this scratch's caller can run a program at all, without walls; says so if not.
fn is_here(scratch: &Scratch, test: &str, words: &[&str]) -> bool {
    let found = output(scratch, words).is_some();
    if !found {
        skipped(
            &format!("{}::{test} {:?}", module_path!(), scratch.caller),
            &format!("{} does not run here", words.first().unwrap()),
        );
    }
    found
}

/// What a program prints without walls; `None` when it fails.
fn output(scratch: &Scratch, words: &[&str]) -> Option<String> {
    // By a shell of the caller: setpriv(1) still has root's rights when it looks for a program.
    let mut command = scratch.command(&[&["sh", "-c", "exec \"$@\"", "sh"], words].concat());
    let output = command.env("HOME", &scratch.home).env("PATH", path()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Where the tests' own programs were found: a toolchain need not be the system's.
fn path() -> std::ffi::OsString {
    let usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    match std::env::var_os("CARGO").as_deref().map(Path::new).and_then(Path::parent) {
        Some(toolchain) => format!("{}:{usual}", toolchain.display()).into(),
        None => usual.into(),
    }
}

fn run(scratch: &Scratch, options: &[&str], script: &str) -> Ended {
    let mut command = scratch.zwinger(&[&["run"], options, &["--", "sh", "-ec", script]].concat());
    command.env("PATH", path());
    scratch.start(command).end_within(LONG)
}

fn works(scratch: &Scratch, options: &[&str], script: &str) -> String {
    let ended = run(scratch, options, script);
    assert_eq!(ended.code, 0, "{script}\n{}\n{}", ended.text(), ended.stderr);
    ended.text()
}

/// A repository with one commit, made outside as a person makes it.
fn repository(scratch: &Scratch) {
    write(scratch.home.join(".gitconfig"), "[user]\n\tname = n\n\temail = e@x\n[init]\n\tdefaultBranch = trunk\n");
    crate::scratch::chmod(scratch.home.join(".gitconfig"), 0o644);
    let mut command = scratch.command(&["sh", "-ec", "git init -q . && git add . && git commit -qm first"]);
    command.env("HOME", &scratch.home);
    assert!(command.status().unwrap().success());
}

fn git(scratch: &Scratch) {
    if !is_here(scratch, "git", &["git", "--version"]) {
        return;
    }
    repository(scratch);
    let other = scratch.base.join("other");
    make_dir(&other);
    crate::scratch::chmod(&other, 0o777);
    let mut command = scratch.command(&["git", "clone", "-q", ".", "../other/clone"]);
    assert!(command.env("HOME", &scratch.home).status().unwrap().success());
    works(scratch, &[], "test -z \"$(git status --porcelain)\"");
    works(scratch, &[], "echo x > new && git add new && git commit -qm second && git log -1 --format=%an | grep -qx n");
    works(scratch, &[], "git checkout -qb side && echo y >> new && git commit -qam third && git checkout -q trunk");
    works(scratch, &[], "git merge -q side && git log --oneline | wc -l | grep -qx 3");
    works(
        scratch,
        &[],
        "echo z >> new && git stash -q && git stash pop -q && ! git diff --quiet && git checkout -q new",
    );
    works(scratch, &[], "git branch -q -d side && git tag v1 && git rebase -q trunk && git gc -q && git fsck");
    let visible = ["--read", other.to_str().unwrap()];
    let fetch = format!("git fetch -q {}/clone trunk && git log --oneline FETCH_HEAD | wc -l", other.display());
    assert_eq!(works(scratch, &visible, &fetch).trim(), "1");
    assert_ne!(run(scratch, &[], &fetch).code, 0, "what is not visible is not fetched");
}

fn git_worktrees(scratch: &Scratch) {
    if !is_here(scratch, "git_worktrees", &["git", "--version"]) {
        return;
    }
    repository(scratch);
    works(
        scratch,
        &[],
        "git worktree add -q -b side tree && cd tree && echo x > new && git add new && git commit -qm two",
    );
    works(scratch, &[], "cd tree && git status --porcelain && git log --oneline | wc -l | grep -qx 2");
    works(scratch, &[], "git merge -q side && git worktree list | wc -l | grep -qx 2");
}

/// Where a toolchain lies that no list of the walls knows, because the scratch has a home of its own.
fn toolchain(scratch: &Scratch, words: &[&str]) -> String {
    output(scratch, words).unwrap().trim().to_owned()
}

fn cargo_build(scratch: &Scratch) {
    if !is_here(scratch, "cargo_build", &["cargo", "--version"])
        || !is_here(scratch, "cargo_build", &["cc", "--version"])
    {
        return;
    }
    let sysroot = toolchain(scratch, &["rustc", "--print", "sysroot"]);
    let read = ["--read", &sysroot];
    // The end of the search for a Cargo.toml above it, which is not visible; "cargo new" knows no such end.
    make_dir(scratch.work.join("hello"));
    write(scratch.work.join("hello/Cargo.toml"), "[package]\nname = \"hello\"\nedition = \"2024\"\n[workspace]\n");
    make_dir(scratch.work.join("hello/src"));
    write(scratch.work.join("hello/src/main.rs"), "fn main() { println!(\"Hello, world!\") }\n");
    scratch.give_all();
    works(scratch, &read, "cd hello && cargo build -q --offline && ./target/debug/hello | grep -qx 'Hello, world!'");
    works(scratch, &read, "cd hello && cargo test -q --offline");
}

fn python_venv(scratch: &Scratch) {
    // Without pip, which Debian packages apart.
    const MAKE: [&str; 6] = ["python3", "-m", "venv", "--without-pip", "--clear", "venv"];
    if !is_here(scratch, "python_venv", &MAKE) {
        return;
    }
    let prefix = toolchain(scratch, &["python3", "-c", "import sys; print(sys.base_prefix)"]);
    works(
        scratch,
        &["--read", &prefix],
        "rm -rf venv && python3 -m venv --without-pip venv && venv/bin/python -c 'print(sum(range(5)))' | grep -qx 10",
    );
    // Unpacking pip takes seconds, so not for every caller.
    if scratch.caller == Caller::Plain
        && is_here(scratch, "python_venv (pip)", &["python3", "-m", "ensurepip", "--version"])
    {
        works(scratch, &["--read", &prefix], "python3 -m venv full && full/bin/pip --version");
    }
}

fn node(scratch: &Scratch) {
    if !is_here(scratch, "node", &["node", "--version"]) {
        return;
    }
    let script = "const fs = require('fs'); fs.writeFileSync('made', 'x'); \
        require('child_process').execFile('cat', ['made'], (error, out) => console.log(error || out + '!'))";
    write(scratch.work.join("a.js"), script);
    crate::scratch::chmod(scratch.work.join("a.js"), 0o644);
    assert_eq!(works(scratch, &[], "node a.js"), "x!\n");
    works(scratch, &[], "node -e 'new (require(\"worker_threads\").Worker)(\"process.exit(0)\", {eval: true})'");
}

fn npm_install(scratch: &Scratch) {
    if !is_here(scratch, "npm_install", &["npm", "--version"]) {
        return;
    }
    for (name, text) in [
        (
            "package.json",
            r#"{"name": "top", "version": "1.0.0", "scripts": {"start": "node -p 'require(\"local\")'"}}"#,
        ),
        ("local/package.json", r#"{"name": "local", "version": "1.0.0", "scripts": {"install": "node -e 0"}}"#),
        ("local/index.js", "module.exports = 7"),
    ] {
        if !scratch.work.join("local").exists() {
            make_dir(scratch.work.join("local"));
        }
        write(scratch.work.join(name), text);
    }
    scratch.give_all();
    works(scratch, &[], "npm install --no-audit --no-fund ./local && npm start --silent | grep -qx 7");
}

fn make_and_gcc(scratch: &Scratch) {
    if !is_here(scratch, "make_and_gcc", &["make", "--version"])
        || !is_here(scratch, "make_and_gcc", &["gcc", "--version"])
    {
        return;
    }
    write(scratch.work.join("Makefile"), "hello: hello.c\n\tgcc -O2 -pipe -o $@ $<\n");
    write(scratch.work.join("hello.c"), "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n");
    scratch.give_all();
    assert_eq!(works(scratch, &[], "make -s -j4 && ./hello"), "hello\n");
}

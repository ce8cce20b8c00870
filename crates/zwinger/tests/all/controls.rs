//! Every attack that the walls refuse, tried once more with the one dimension off that refuses it: there it has to succeed, or the
//! test has no power. What is attacked belongs to the test alone.

mod kernel;
mod rest;

use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;

use crate::caller::{Caller, skipped};
use crate::scratch::{Ended, Scratch, chmod, make_dir, read_text, write};

/// Printed by an attack that has reached its aim, in two parts so that no error message that shows the script shows it.
const DONE: &str = "echo DO''NE";

/// How the dimension is switched off.
enum Off<'a> {
    /// `zwinger run` with these options.
    Options(&'a [&'a str]),
    /// No zwinger.
    Bare,
}

/// An attack, and how its success is seen.
struct Attack<'a> {
    /// `sh -c` this; `$1` is the pid of a stranger.
    script: &'a str,
    /// Options of the run that must refuse it.
    walls: &'a [&'a str],
    off: Off<'a>,
    succeeded: &'a dyn Fn(&Ended) -> bool,
}

const NO_WALLS: Off<'_> = Off::Options(&["--backend", "none"]);

/// Whether `DONE` was printed, or the scratch's secret.
fn tells(scratch: &Scratch) -> impl Fn(&Ended) -> bool {
    |ended| ended.text().contains("DONE") || ended.text().contains(&scratch.secret)
}

/// Behind the walls it must fail, with the dimension off it must succeed. What this machine itself refuses is no test.
fn try_out(scratch: &Scratch, attack: &Attack<'_>) {
    let script = attack.script;
    let walled = run(scratch, attack.walls, script);
    assert!(!(attack.succeeded)(&walled), "behind walls: {script}\n{walled:?}");
    let control = match attack.off {
        Off::Options(options) => run(scratch, options, script),
        Off::Bare => bare(scratch, script),
    };
    if !(attack.succeeded)(&control) {
        let bare = bare(scratch, script);
        assert!(!(attack.succeeded)(&bare), "the control run failed: {script}\n{control:?}");
        let last = bare.stderr.lines().last().unwrap_or_default().to_owned();
        skipped(
            &format!("control of {script:?} for {:?}", scratch.caller),
            &format!("refused without zwinger too: {last}"),
        );
    }
}

/// With every run come a secret variable, an open file as descriptor 9, and a process of the same user beside it, in whose
/// environment the secret is too; its pid is the last argument.
fn with_gifts(scratch: &Scratch, words: &[&str]) -> Ended {
    let gifts = format!(
        "exec 9< {}; sleep 600 & victim=$!; \"$@\" $victim; status=$?; kill -9 $victim; exit $status",
        scratch.out.join("marker").display()
    );
    let mut command = scratch.command(&[&["sh", "-c", &gifts, "sh"], words].concat());
    command.env("HOME", &scratch.home).env("XDG_STATE_HOME", scratch.base.join("state")).env("TERM", "dumb");
    command.env("TMPDIR", scratch.base.join("tmp")).env("FOO_API_KEY", &scratch.secret);
    scratch.start(command).end()
}

fn run(scratch: &Scratch, options: &[&str], script: &str) -> Ended {
    let zwinger = scratch.base.join("zwinger");
    let words = [&[zwinger.to_str().unwrap(), "run"], options, &["--", "sh", "-c", script, "sh"]].concat();
    with_gifts(scratch, &words)
}

fn bare(scratch: &Scratch, script: &str) -> Ended {
    with_gifts(scratch, &["sh", "-c", script, "sh"])
}

for_every_caller!(files, network, sockets_with_a_path, processes, secrets, metadata);

fn files(scratch: &Scratch) {
    let [out, home] = [&scratch.out, &scratch.home].map(|path| path.to_str().unwrap());
    let show = tells(scratch);
    let (read, write, read_home) = (["--read", out], ["--write", out], ["--read", home]);
    for (script, off) in [
        (format!("cat {out}/marker"), Off::Options(&read)),
        ("cat ../work-evil/marker".into(), Off::Options(&read)),
        (format!("ln -s {out} l; cat l/marker; rm l"), Off::Options(&read)),
        (format!("cat /proc/self/root{out}/marker"), Off::Options(&read)),
        (format!("tar -cf - -C {out} marker"), Off::Options(&read)),
        ("cat $HOME/private".into(), Off::Options(&read_home)),
        (format!("ln {out}/marker m && cat m; rm -f m"), NO_WALLS),
        (format!("echo x > {out}/new && {DONE}"), Off::Options(&write)),
        (format!("mkdir {out}/d && rmdir {out}/d && {DONE}"), Off::Options(&write)),
        (format!("mv {out}/new {out}/moved && {DONE}"), Off::Options(&write)),
        (format!("cp /bin/sh {out}/moved && rm {out}/moved && {DONE}"), Off::Options(&write)),
        (format!("truncate -s 0 {out}/marker && {DONE}"), Off::Options(&write)),
    ] {
        try_out(scratch, &Attack { script: &script, walls: &[], off, succeeded: &show });
    }
    if scratch.caller.has_namespaces() {
        // Landlock alone leaves these open, which is said.
        for script in [
            format!("chmod 600 {out}/marker && {DONE}"),
            format!("perl -e 'exit !utime 1, 1, \"{out}/marker\"' && {DONE}"),
        ] {
            let off = Off::Options(&write);
            try_out(scratch, &Attack { script: &script, walls: &[], off, succeeded: &show });
        }
    }
}

const CONNECT: &str = "perl -MSocket -e 'socket S, AF_INET, SOCK_STREAM, 0; connect S, pack_sockaddr_in $ARGV[0], INADDR_LOOPBACK or die $!'";
const SEND: &str = "perl -MSocket -e 'socket S, AF_INET, SOCK_DGRAM, 0; send S, 1, 0, pack_sockaddr_in $ARGV[0], INADDR_LOOPBACK or die $!'";
const UNIX: &str =
    "perl -MSocket -e 'socket S, AF_UNIX, SOCK_STREAM, 0; connect S, pack_sockaddr_un $ARGV[0] or die $!'";

#[expect(clippy::disallowed_methods, reason = "the test is the server that must not be reached")]
fn network(scratch: &Scratch) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let heard = |_: &Ended| listener.accept().is_ok();
    let script = format!("{CONNECT} {}", listener.local_addr().unwrap().port());
    let off = || Off::Options(&["--net", "on"]);
    try_out(scratch, &Attack { script: &script, walls: &[], off: off(), succeeded: &heard });
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let heard = |_: &Ended| socket.recv(&mut [0_u8; 8]).is_ok();
    let script = format!("{SEND} {}", socket.local_addr().unwrap().port());
    try_out(scratch, &Attack { script: &script, walls: &[], off: off(), succeeded: &heard });
}

fn sockets_with_a_path(scratch: &Scratch) {
    // One beside the workspace and one in /tmp, where the host's services keep theirs.
    let shared = tempfile::Builder::new().prefix("zwinger-test-").tempdir_in("/tmp").unwrap();
    chmod(shared.path(), 0o755);
    for directory in [&scratch.out, shared.path()] {
        let path = directory.join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        chmod(&path, 0o777);
        listener.set_nonblocking(true).unwrap();
        let heard = |_: &Ended| listener.accept().is_ok();
        let script = format!("{UNIX} {}", path.display());
        // The host's network is not the host's sockets.
        for walls in [&[][..], &["--net", "on"]] {
            try_out(scratch, &Attack { script: &script, walls, off: NO_WALLS, succeeded: &heard });
        }
    }
}

fn processes(scratch: &Scratch) {
    let show = tells(scratch);
    let mut scripts = vec![
        "cat /proc/$1/environ".to_owned(),
        "cat /proc/$1/cwd/../work-evil/marker".to_owned(),
        "cat /proc/$1/fd/9".to_owned(),
        format!("kill -0 $1 && {DONE}"),
        format!("kill -9 $1 && {DONE}"),
    ];
    if scratch.caller.has_namespaces() {
        // Without a /proc of its own it sees that they are there, and no more.
        scripts.push(format!("grep -q sleep /proc/$1/comm && {DONE}"));
    }
    for script in &scripts {
        try_out(scratch, &Attack { script, walls: &[], off: NO_WALLS, succeeded: &show });
    }
}

fn secrets(scratch: &Scratch) {
    write(scratch.work.join(".env"), &scratch.secret);
    write(scratch.work.join("sub/.env.local"), &scratch.secret);
    scratch.give_all();
    let show = tells(scratch);
    let all = ["--show", ".env", "--show", "sub/.env.local"];
    for script in
        ["cat .env", "cat sub/.env.local", "grep -rh secret .", "cp .env c; cat c; rm c", "cat /proc/self/cwd/.env"]
    {
        try_out(scratch, &Attack { script, walls: &[], off: Off::Options(&all), succeeded: &show });
    }
    let hide = ["--hide", "sub/.env.local", "--show", ".env"];
    try_out(scratch, &Attack { script: "cat sub/.env.local", walls: &hide, off: Off::Options(&all), succeeded: &show });
}

fn metadata(scratch: &Scratch) {
    if !scratch.caller.has_namespaces() {
        // What is protected there is found afterwards, not held.
        return;
    }
    for directory in [".git", ".git/hooks", ".vscode", ".cargo"] {
        make_dir(scratch.work.join(directory));
    }
    for file in [".git/config", ".vscode/tasks.json", ".cargo/config.toml", "AGENTS.md", ".envrc"] {
        write(scratch.work.join(file), "before");
    }
    scratch.give_all();
    let kept = |ended: &Ended, path: &str| ended.text().contains("DONE") && !scratch.work.join(path).exists();
    for (script, path) in [
        ("mv .git/config .git/old", ".git/config"),
        ("mv .git/hooks .git/old-hooks", ".git/hooks"),
        ("mv .git old-git", ".git"),
        ("mv .vscode old-vscode", ".vscode/tasks.json"),
        ("rm .cargo/config.toml", ".cargo/config.toml"),
        ("rm AGENTS.md", "AGENTS.md"),
        ("mv .envrc old-envrc", ".envrc"),
    ] {
        let script = format!("{script} && {DONE}");
        try_out(scratch, &Attack { script: &script, walls: &[], off: NO_WALLS, succeeded: &|ended| kept(ended, path) });
    }
    // Written in place: the same bytes elsewhere are written.
    write(scratch.work.join("AGENTS.md"), "before");
    write(scratch.work.join("NOTES.md"), "before");
    scratch.give_all();
    assert_ne!(run(scratch, &[], "echo x > AGENTS.md").code, 0);
    assert_eq!(run(scratch, &[], "echo x > NOTES.md").code, 0);
    assert_eq!(read_text(scratch.work.join("AGENTS.md")), "before");
    // What is changed there all the same is put back afterwards.
    assert_eq!(run(scratch, &["--backend", "none"], "echo x > AGENTS.md && cat AGENTS.md").text(), "x\n");
}

#[test]
fn a_control_that_fails_is_noticed() {
    let scratch = Scratch::of(Caller::Plain, crate::scratch::System::Own);
    let without_power = || {
        let off = Off::Options(&["--net", "on"]);
        let script = format!("cat {}/marker", scratch.out.display());
        try_out(&scratch, &Attack { script: &script, walls: &[], off, succeeded: &tells(&scratch) });
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(without_power)).is_err());
}

//! `read_only`: a wall of one command, which nobody needs to be asked about where the others stand.

use std::net::TcpListener;

use serde_json::{Value, json};

use super::YES;
use crate::process::Tag;
use crate::scratch::{Ended, Scratch, list, read_text, write};

for_every_caller!(nothing_is_written, what_reads_goes_on);

/// Each of these changes something; the words before the first `:` name it.
const WRITES: [&str; 17] = [
    "make: : > new",
    "overwrite: echo x > f",
    "append: echo x >> f",
    "edit: sed -i s/a/b/ f",
    "remove: rm f2",
    "directory: mkdir d",
    "link: ln -s f l",
    "hard link: ln f l2",
    "rename: mv sub sub2",
    "mode: chmod 777 f",
    "times: touch -d 2001-01-01 f",
    "truncate: truncate -s 0 f",
    "fifo: mkfifo p",
    "shared memory: d=/dev/shm/zwinger-test-$$; : > $d && rm $d",
    "pair: perl -e 'truncate(\"f\", 1) or die'",
    "socket: perl -MSocket -e 'socket S, AF_UNIX, SOCK_STREAM, 0 or die; bind S, pack_sockaddr_un \"s\" or die'",
    "inet: perl -MSocket -e 'socket S, AF_INET, SOCK_STREAM, 0 or die'",
];

fn run(scratch: &Scratch, script: &str, read_only: bool, options: &[&str]) -> Ended {
    scratch.tool("run_command", &json!({"command": script, "read_only": read_only}), options)
}

fn output(ended: &Ended) -> String {
    ended.json().get("output").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn nothing_is_written(scratch: &Scratch) {
    let script: String = WRITES
        .iter()
        .map(|attempt| {
            let (name, attempt) = attempt.split_once(": ").unwrap();
            format!("({attempt}) 2>/dev/null && echo 'DONE {name}'\n")
        })
        .chain(["true".to_owned()])
        .collect();
    for backend in ["landlock", "none"] {
        let options = [&["--backend", backend][..], &YES].concat();
        for name in ["f", "f2"] {
            write(scratch.work.join(name), "a\n");
        }
        scratch.give_all();
        let names = list(&scratch.work);
        let held = run(scratch, &script, true, &options);
        assert_eq!((held.code, output(&held).as_str()), (0, ""), "{backend} {held:?}");
        assert_eq!((list(&scratch.work), read_text(scratch.work.join("f")).as_str()), (names, "a\n"));
        // Without it, each of them does what it says, but where the other walls refuse it.
        let control = output(&run(scratch, &script, false, &options));
        let done: Vec<_> = control.lines().collect();
        let refused = WRITES.len() - done.len();
        assert!(refused == 0 || backend == "landlock" && refused <= 3, "{backend} {control}");
        assert_eq!(run(scratch, "rm -r d l l2 p s new; mv sub2 sub", false, &options).code, 0);
        scratch.give_all();
    }
}

fn what_reads_goes_on(scratch: &Scratch) {
    write(scratch.work.join("f"), "a\n");
    scratch.give_all();
    for backend in ["landlock", "none"] {
        let script = "cat f && grep -r inside sub | sort && echo x > /dev/null && echo x > $TMPDIR/zwinger-test-$$ && \
                      rm $TMPDIR/zwinger-test-$$ && ls | wc -l && sh -c 'exit 0' && if type git > /dev/null; then git --version > /dev/null; fi";
        let ended = run(scratch, script, true, &[&["--backend", backend][..], &YES].concat());
        assert_eq!((ended.code, output(&ended).as_str()), (0, "a\nsub/inside.txt:inside\n2\n"), "{backend} {ended:?}");
    }
}

#[test]
fn nobody_is_asked_where_walls_hold_it() {
    let scratch = Scratch::new();
    let no = ["--approve", "no"];
    let ended = run(&scratch, "cat sub/inside.txt", true, &no);
    assert_eq!((ended.code, output(&ended).as_str()), (0, "inside\n"), "{ended:?}");
    assert_eq!(run(&scratch, "cat sub/inside.txt", false, &no).code, 3);
    for options in [&["--backend", "none", "--approve", "no"][..], &["--net", "on", "--approve", "no"]] {
        assert_eq!(run(&scratch, "cat sub/inside.txt", true, options).code, 3, "{options:?}");
    }
    // The denylist comes first.
    assert_eq!(run(&scratch, "sudo cat sub/inside.txt", true, &no).code, 3);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test is the server that must not be reached")]
fn the_network_is_off_in_it() {
    let scratch = Scratch::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let connect = "perl -MSocket -e 'socket S, AF_INET, SOCK_STREAM, 0; connect S, pack_sockaddr_in $ARGV[0], INADDR_LOOPBACK or die $!'";
    let script = format!("{connect} {}", listener.local_addr().unwrap().port());
    for backend in ["landlock", "none"] {
        let options = [&["--net", "on", "--backend", backend][..], &YES].concat();
        assert_ne!(run(&scratch, &script, true, &options).code, 0);
        assert!(listener.accept().is_err());
        assert_eq!(run(&scratch, &script, false, &options).code, 0);
        assert!(listener.accept().is_ok());
    }
}

#[test]
fn it_ends_no_other_command() {
    use zwinger_core::{Call, Cancel, Decision, During};
    let scratch = Scratch::new();
    let approver = crate::library::always(Decision::Once);
    let runtime = crate::library::open(&scratch, zwinger_core::sandbox::Backend::Landlock, approver);
    let (tag, cancel) = (Tag::new(), Cancel::default());
    std::thread::scope(|scope| {
        let sleep = Call::new("run_command", json!({"command": format!("exec sleep {}", tag.0)}));
        let (runtime, during) = (&runtime, During { cancel: Some(&cancel), live: None });
        scope.spawn(move || runtime.call_with(&sleep, during));
        tag.wait_for(1);
        let kill = |read_only: bool| {
            let command = "for p in /proc/[0-9]*; do grep -q '^sleep' $p/cmdline && kill -9 ${p#/proc/} 2>/dev/null && echo DONE; done; true";
            runtime.call(&Call::new("run_command", json!({"command": command, "read_only": read_only}))).output
        };
        let held = kill(true);
        let still = tag.asleep().len();
        let control = kill(false);
        cancel.cancel();
        assert_eq!((held.as_str(), still, control.as_str()), ("", 1, "DONE\n"));
    });
}

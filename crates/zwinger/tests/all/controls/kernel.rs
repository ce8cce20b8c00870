//! System calls, and keys typed into the terminal.

use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::{Attack, DONE, NO_WALLS, tells, try_out};
use crate::caller::{Caller, skipped};
use crate::scratch::{Scratch, open};

for_every_caller!(system_calls, keys_typed_into_the_terminal);

/// Numbers of x86-64; each has to succeed without walls and leaves nothing that outlives its process.
fn system_calls(scratch: &Scratch) {
    if !cfg!(target_arch = "x86_64") {
        return skipped("controls::kernel::system_calls", "the numbers are those of x86-64");
    }
    let show = tells(scratch);
    let mut scripts = vec![
        // A child of its own: PTRACE_ATTACH, and the end of both.
        "perl -e '$p = fork // die; unless ($p) { sleep 60; exit } $r = syscall 101, 16, $p, 0, 0; kill 9, $p;
            die $! if $r < 0; print \"DO\", \"NE\"'",
        "perl -e '$p = fork // die; unless ($p) { sleep 60; exit } $b = \" \" x 8; $l = pack \"P Q\", $b, 8;
            open M, \"/proc/$p/maps\"; ($a) = <M> =~ /^(\\w+)/; $r = pack \"Q Q\", hex $a, 8;
            $n = syscall 310, $p, $l, 1, $r, 1, 0; kill 9, $p; die $! if $n < 1; print \"DO\", \"NE\"'",
        // KEYCTL_JOIN_SESSION_KEYRING: an anonymous keyring of this process.
        "perl -e 'syscall(250, 1, 0, 0, 0, 0) > 0 or die $!; print \"DO\", \"NE\"'",
        "perl -e '$p = \"\\0\" x 120; syscall(425, 4, $p) >= 0 or die $!; print \"DO\", \"NE\"'",
        "perl -e 'syscall(323, 1) >= 0 or die $!; print \"DO\", \"NE\"'",
    ];
    let namespaces = [
        format!("unshare -Ur true && {DONE}"),
        format!("unshare -Urn true && {DONE}"),
        format!("unshare -Urm sh -c 'mount -t tmpfs none sub && touch sub/f' && {DONE}"),
        format!(
            "unshare -Urm perl -e 'syscall(165, $s = \"none\", $t = \"sub\", $f = \"tmpfs\", 0, 0) and die $!' && {DONE}"
        ),
        format!("unshare -Ur chroot / true && {DONE}"),
    ];
    // Where there are none, making one fails without zwinger.
    if scratch.caller.has_namespaces() {
        scripts.extend(namespaces.iter().map(String::as_str));
    }
    for script in scripts {
        try_out(scratch, &Attack { script, walls: &[], off: NO_WALLS, succeeded: &show });
    }
}

/// TIOCSTI on the terminal that is standard input: what it types, the person's shell would run after zwinger has ended.
fn keys_typed_into_the_terminal(scratch: &Scratch) {
    const TYPE: &str = "perl -e 'ioctl STDIN, 0x5412, $c = \"x\" or die $!; print \"DO\", \"NE\"'";
    let zwinger = scratch.base.join("zwinger");
    let typed = |options: &[&str]| {
        let control = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&control).unwrap();
        unlockpt(&control).unwrap();
        let name = ptsname(&control, Vec::new()).unwrap();
        let words: &[&str] = &[zwinger.to_str().unwrap(), "run"];
        let words = if options == ["bare"] { Vec::new() } else { [words, options, &["--"]].concat() };
        let mut command = scratch.command(&[&["setsid", "-cw"], words.as_slice(), &["sh", "-c", TYPE]].concat());
        command.env("HOME", &scratch.home).stdin(Stdio::from(open(std::path::Path::new(name.to_str().unwrap()))));
        scratch.start(command).end()
    };
    assert!(!tells(scratch)(&typed(&[])));
    if !tells(scratch)(&typed(&["--backend", "none"])) {
        let bare = typed(&["bare"]);
        assert!(!tells(scratch)(&bare), "the control run failed");
        let name = format!("controls::kernel::keys_typed_into_the_terminal {:?}", scratch.caller);
        skipped(&name, &format!("refused without zwinger too: {}", bare.stderr.trim()));
        assert!(scratch.caller != Caller::Plain || !rustix::process::geteuid().is_root(), "root may: {bare:?}");
    }
}

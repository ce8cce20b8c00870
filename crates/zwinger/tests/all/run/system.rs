//! System calls and files of the system that a command has no business with.

use crate::caller::{Caller, skipped};
use crate::process::Tag;
use crate::scratch::{Scratch, read_text};

for_every_caller!(
    c20_no_namespaces_inside,
    c07_dangerous_calls_are_refused,
    c04_nothing_is_typed_into_the_terminal,
    c05_no_foreign_calls,
    c16_zwinger_itself_is_not_overwritten,
    d11_no_signal_leaves,
    i20_zwinger_is_not_ended_by_name,
    no_new_privileges,
    watches_are_left_for_others,
);

fn watches_are_left_for_others(scratch: &Scratch) {
    if !cfg!(target_arch = "x86_64") || !scratch.caller.has_namespaces() {
        return skipped("watches_are_left_for_others", "needs user namespaces, and the numbers of x86-64");
    }
    // inotify_init1(2).
    let program = "$n = 0; $n++ until $n == 1e6 || syscall(294, 0) < 0; print $n";
    let most: u32 = read_text("/proc/sys/fs/inotify/max_user_instances").trim().parse().unwrap();
    let ended = scratch.run(&["--", "perl", "-e", program]);
    let taken: u32 = ended.text().parse().unwrap();
    assert!((1..=most.div_ceil(2)).contains(&taken), "{taken} of {most}");
    let raise = "echo 100000 > /proc/sys/user/max_inotify_instances";
    assert_ne!(scratch.sh(raise).code, 0, "not to be raised from inside");
}

fn c20_no_namespaces_inside(scratch: &Scratch) {
    for words in [&["unshare", "-Ur", "true"][..], &["unshare", "-U", "true"], &["unshare", "-m", "true"]] {
        let ended = scratch.run(&[&["--"], words].concat());
        assert!(ended.code != 0 && ended.stderr.contains("not permitted"), "{words:?} {ended:?}");
    }
    if scratch.caller.has_namespaces() {
        assert_eq!(scratch.run(&["--backend", "none", "--", "unshare", "-Ur", "true"]).code, 0);
    }
}

/// Makes system calls, one an argument (`NAME:NUMBER,ARGUMENT,…`), and prints for each `NAME=ERRNO`.
const CALLS: &str = r#"for (@ARGV) { ($n, $c) = split /:/; ($c, @a) = map { hex } split /,/, $c; $! = 0;
    syscall($c, @a, (0) x (5 - @a)); print "$n=", $! + 0, "\n" }"#;

const EPERM: i32 = 1;
const ENOSYS: i32 = 38;

fn calls(scratch: &Scratch, options: &[&str], calls: &[&str]) -> String {
    let ended = scratch.run(&[options, &["--", "perl", "-e", CALLS], calls].concat());
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.text()
}

/// Numbers and arguments in hexadecimal, for x86-64.
fn c07_dangerous_calls_are_refused(scratch: &Scratch) {
    if !cfg!(target_arch = "x86_64") {
        return skipped("c07_dangerous_calls_are_refused", "the numbers are those of x86-64");
    }
    let refused = [
        "ptrace:65,10,1",
        "process_vm_readv:136,1",
        "mount:a5",
        "umount2:a6",
        "pivot_root:9b",
        "chroot:a1",
        "unshare:110,10000000",
        "unshare-net:110,40000000",
        "clone-user:38,10000000",
        "setns:134",
        "bpf:141,5",
        "keyctl:fa,0",
        "add_key:f8",
        "perf_event_open:12a",
        "userfaultfd:143",
        "open_by_handle_at:130",
        "fsopen:1ae",
        "mount_setattr:1ba",
        "move_mount:1ad",
        "kexec_load:f6",
        "init_module:af",
        "reboot:a9",
        "swapon:a7",
    ];
    let absent = ["io_uring_setup:1a9", "clone3:1b3"];
    for net in ["off", "on"] {
        let text = calls(scratch, &["--net", net], &refused);
        assert!(text.lines().all(|line| line.ends_with(&format!("={EPERM}"))), "{text}");
        let text = calls(scratch, &["--net", net], &absent);
        assert!(text.lines().all(|line| line.ends_with(&format!("={ENOSYS}"))), "{text}");
    }
    // Calls whose empty arguments do nothing: without walls the kernel looks at them.
    let text = calls(scratch, &["--backend", "none"], &["keyctl:fa,0", "clone3:1b3", "process_vm_readv:136,1"]);
    assert!(text.lines().all(|line| !line.ends_with("=1") && !line.ends_with("=38")), "{text}");
}

fn c04_nothing_is_typed_into_the_terminal(scratch: &Scratch) {
    if !cfg!(target_arch = "x86_64") {
        return skipped("c04_nothing_is_typed_into_the_terminal", "the numbers are those of x86-64");
    }
    let injects = ["TIOCSTI:10,0,5412", "TIOCSTI-high:10,0,100005412", "TIOCLINUX:10,0,541c", "high:10,0,70000541c"];
    let text = calls(scratch, &[], &injects);
    assert!(text.lines().all(|line| line.ends_with(&format!("={EPERM}"))), "{text}");
    // TCGETS is let through and fails because /dev/null is no terminal.
    assert_eq!(calls(scratch, &[], &["TCGETS:10,0,5401"]), "TCGETS=25\n");
}

fn c05_no_foreign_calls(scratch: &Scratch) {
    if !cfg!(target_arch = "x86_64") {
        return skipped("c05_no_foreign_calls", "x32 is x86-64's");
    }
    // socket(AF_INET, SOCK_STREAM) and getpid by their x32 numbers.
    for call in ["x32-socket:40000029,2,1", "x32-getpid:40000027"] {
        let ended = scratch.run(&["--", "perl", "-e", CALLS, call]);
        assert_eq!(ended.code, 128 + 31, "not killed by SIGSYS: {ended:?}");
    }
}

fn c16_zwinger_itself_is_not_overwritten(scratch: &Scratch) {
    let zwinger = scratch.base.join("zwinger");
    let status = || std::path::Path::metadata(&zwinger).map(|found| (found.len(), found.modified().unwrap())).unwrap();
    let before = status();
    let path = zwinger.display();
    for script in [": >> /proc/1/exe", ": >> /proc/$PPID/exe", "rm /proc/1/exe"] {
        assert_ne!(scratch.sh(script).code, 0, "{script}");
    }
    scratch.sh(&format!("echo x >> {path}; mv {path} {path}-gone; rm {path}"));
    assert_eq!(status(), before);
}

fn d11_no_signal_leaves(scratch: &Scratch) {
    let tag = Tag::new();
    let _stranger = scratch.start(scratch.command(&["sleep", &tag.0]));
    let pid = tag.wait_for(1).first().unwrap().as_raw_pid();
    let script = format!("kill -0 {pid}");
    assert_ne!(scratch.sh(&script).code, 0);
    assert_eq!(scratch.sh_with(&["--backend", "none"], &script).code, 0);
}

fn i20_zwinger_is_not_ended_by_name(scratch: &Scratch) {
    // pkill(1) is not everywhere; this is what it does. Nothing but what has this scratch's path among its arguments is meant.
    let script = format!(
        "for p in /proc/[0-9]*; do p=${{p#/proc/}}; [ $p = $$ ] || ! grep -q {} /proc/$p/cmdline || kill -9 $p; done
         echo survived",
        scratch.base.join("zwinger").display()
    );
    let ended = scratch.sh(&script);
    // Its supervisors are fair game, the process that waits for it is not: the end is told in either case.
    assert!(matches!(ended.code, 0 | 125), "{ended:?}");
}

fn no_new_privileges(scratch: &Scratch) {
    for net in ["off", "on"] {
        let text = scratch.sh_with(&["--net", net], "cat /proc/self/status").text();
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
        assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1", "2"));
        let held =
            u64::from_str_radix(field("CapBnd:"), 16).unwrap() & u64::from_str_radix(field("CapPrm:"), 16).unwrap();
        // CHOWN, DAC_OVERRIDE, FOWNER and FSETID, over files of the workspace, for a caller that is root.
        assert_eq!(held & !0x1b, 0, "{held:x}");
    }
}

#[test]
fn c19_root_makes_no_devices() {
    let name = concat!(module_path!(), "::c19_root_makes_no_devices");
    if Caller::Ordinary.unavailable().is_some() {
        return skipped(name, "needs root over the machine");
    }
    let scratch = Scratch::new();
    let make = |options: &[&str]| scratch.sh_with(options, "mknod device c 1 5").code;
    assert_ne!(make(&[]), 0);
    assert!(!scratch.work.join("device").exists());
    assert_eq!(make(&["--backend", "none"]), 0);
}

/// Root's own right to these files is what the walls must take away; another user never had it.
fn root_sees_no_secrets(scratch: &Scratch) {
    for secret in ["/etc/shadow", "/etc/gshadow"] {
        assert!(read_text(secret).contains("root:"), "there is something to be read");
        for path in [secret.to_owned(), format!("/proc/1/root{secret}"), format!("/proc/self/root{secret}")] {
            let ended = scratch.sh(&format!("cat {path}"));
            assert_eq!(ended.text(), "", "{path}");
        }
    }
    assert!(scratch.sh("cat /etc/passwd").text().contains("root:"), "what is no secret stays");
    for script in ["head -c 1 /proc/kcore", "echo zwinger > /proc/sys/kernel/hostname", "echo h > /proc/sysrq-trigger"]
    {
        let ended = scratch.sh(script);
        assert!(ended.code != 0 || ended.text().is_empty(), "{script} {ended:?}");
    }
}

mod as_root {
    use crate::caller::{Caller, each, skipped};

    fn of(caller: Caller, name: &str) {
        if rustix::process::geteuid().is_root() {
            each(caller, name, super::root_sees_no_secrets);
        } else {
            skipped(name, "needs root");
        }
    }

    #[test]
    fn g10_root_sees_no_secrets() {
        of(Caller::Plain, concat!(module_path!(), "::g10_root_sees_no_secrets"));
    }

    #[test]
    fn g10_root_sees_no_secrets_without_namespaces() {
        of(Caller::NoNamespaces, concat!(module_path!(), "::g10_root_sees_no_secrets_without_namespaces"));
    }
}

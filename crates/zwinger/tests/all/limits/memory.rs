//! Memory that is in no process's own: files in memory and shared segments, mapped or not.

use super::{assert_stopped, perl};
use crate::caller::skipped;
use crate::process::Tag;
use crate::scratch::Scratch;

for_every_caller!(files_in_memory_count_unmapped, segments_count_unattached, temporary_files_are_bounded);

const STOPPED: &str = "zwinger: stopped: more than 64 MiB of memory (--memory)\n";

/// By their numbers on x86-64: memfd_create is 319, shmget 29, shmat 30, shmdt 67.
fn files_in_memory_count_unmapped(scratch: &Scratch) {
    if !cfg!(target_arch = "x86_64") {
        return skipped("files_in_memory_count_unmapped", "the numbers are those of x86-64");
    }
    // Three, of which none is too large by itself. More than one process has them open.
    let program = r#"$n = "x"; for $f (1 .. 3) { open $h[$f], "+<&=", syscall 319, $n, 0 or die;
        for (1 .. shift) { syswrite $h[$f], "a" x (1 << 20) } } fork; sleep shift; print "all\n" if wait == -1"#;
    let tag = Tag::new();
    let run = |mebibytes: [&str; 3], seconds: &str| {
        let words = [&perl(program, &tag)[..4], &mebibytes, &[seconds, &tag.0]].concat();
        scratch.run(&[&["--memory", "64"], &words[..]].concat())
    };
    assert_stopped(&run(["30", "30", "30"], "600"), STOPPED);
    tag.assert_gone();
    let ended = run(["15", "15", "15"], "1");
    assert_eq!((ended.code, ended.text().lines().last()), (0, Some("all")), "{ended:?}");
}

fn segments_count_unattached(scratch: &Scratch) {
    if !cfg!(target_arch = "x86_64") {
        return skipped("segments_count_unattached", "the numbers are those of x86-64");
    }
    let program = r#"$m = shift; for (1 .. 2) { $id = syscall 29, 0, $m << 20, 0600; die "none\n" if $id < 0;
        shmwrite $id, "a" x ($m << 20), 0, $m << 20 or die } sleep shift; print "all\n""#;
    let tag = Tag::new();
    let run = |mebibytes: &str, seconds: &str| {
        let words = [&perl(program, &tag)[..4], &[mebibytes, seconds, &tag.0]].concat();
        scratch.run(&[&["--memory", "64"], &words[..]].concat())
    };
    let ended = run("40", "600");
    if !scratch.caller.has_namespaces() {
        // There they would be the machine's.
        assert!(ended.code == 1 && ended.stderr.starts_with("none\n"), "{ended:?}");
        return;
    }
    assert_stopped(&ended, STOPPED);
    tag.assert_gone();
    let ended = run("20", "1");
    assert_eq!((ended.code, ended.text().as_str()), (0, "all\n"), "{ended:?}");
}

fn temporary_files_are_bounded(scratch: &Scratch) {
    if !scratch.caller.has_namespaces() {
        return skipped("temporary_files_are_bounded", "without a private /tmp they are files of a disk");
    }
    let script = "for n in 1 2 3; do head -c 40000000 /dev/zero > /tmp/$n 2>/dev/null; done; \
                  head -c 40000000 /dev/zero > /dev/shm/4 2>/dev/null; cat /tmp/? /dev/shm/4 | wc -c";
    let bytes = |options: &[&str]| scratch.sh_with(options, script).text().trim().parse::<u64>().unwrap();
    let bounded = bytes(&["--memory", "64"]);
    assert!((64 << 20..=65 << 20).contains(&bounded), "{bounded}");
    assert_eq!(bytes(&[]), 160_000_000);
}

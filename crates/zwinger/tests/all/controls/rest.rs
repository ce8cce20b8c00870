//! Environment, descriptors, time and output.

use super::{Attack, DONE, Off, tells, try_out};
use crate::scratch::{Ended, Scratch};

for_every_caller!(environment, descriptors, time, output);

fn environment(scratch: &Scratch) {
    let show = tells(scratch);
    for script in ["printenv FOO_API_KEY", "env", "cat /proc/self/environ", "perl -e 'print $ENV{FOO_API_KEY}'"] {
        // It is no wall that keeps it out, so it stays out without walls.
        for walls in [&[][..], &["--backend", "none"]] {
            try_out(scratch, &Attack { script, walls, off: Off::Bare, succeeded: &show });
        }
    }
}

fn descriptors(scratch: &Scratch) {
    let show = tells(scratch);
    for script in ["cat <&9", "cat /proc/self/fd/9", "perl -e 'open F, \"<&=9\" or die $!; print <F>'"] {
        for walls in [&[][..], &["--backend", "none"]] {
            try_out(scratch, &Attack { script, walls, off: Off::Bare, succeeded: &show });
        }
    }
}

fn time(scratch: &Scratch) {
    let show = tells(scratch);
    let script = format!("trap '' TERM; sleep 4; {DONE}");
    let (walls, off) = (&["--timeout", "1"], Off::Options(&[]));
    try_out(scratch, &Attack { script: &script, walls, off, succeeded: &show });
}

fn output(scratch: &Scratch) {
    let script = format!("yes x | head -c 4000; {DONE}; yes x | head -c 4000");
    let (walls, off) = (&["--json", "--output-limit", "2048"], Off::Options(&["--json", "--output-limit", "16384"]));
    let shown = |ended: &Ended| ended.json().get("stdout").unwrap().as_str().unwrap().contains("DONE");
    try_out(scratch, &Attack { script: &script, walls, off, succeeded: &shown });
}

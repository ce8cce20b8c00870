//! A path that changes between the look and the use.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags};
use zwinger_core::executor::wire::Response;

use super::{BACKENDS, Live, read, write};
use crate::scratch::{Scratch, make_dir, read_plainly};

const ROUNDS: usize = 5_000;

/// While `d` is now a directory, now a link to the outside, does something.
fn while_it_flips<T>(scratch: &Scratch, work: impl FnOnce() -> T) -> T {
    let (d, l) = (scratch.work.join("d"), scratch.work.join("l"));
    make_dir(&d);
    crate::scratch::write(d.join("marker"), "inside");
    std::os::unix::fs::symlink(&scratch.out, &l).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, &d, CWD, &l, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let result = work();
        stop.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn a11_a_flipping_directory_never_leads_a_read_out() {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        let mut live = Live::open(&scratch, backend);
        let (mut inside, mut refused, mut leaked) = (0, 0, 0);
        while_it_flips(&scratch, || {
            for _ in 0..ROUNDS {
                match live.ask(read("d/marker")) {
                    Response::Read { content, .. } => {
                        assert_eq!(content, b"inside");
                        inside += 1;
                    }
                    Response::Refused(_) => refused += 1,
                    other => panic!("{other:?}"),
                }
            }
            for _ in 0..ROUNDS {
                let content = read_plainly(&scratch.work.join("d/marker")).unwrap_or_default();
                leaked += usize::from(content == scratch.secret.as_bytes());
            }
        });
        assert!(inside > 0 && refused > 0, "it flipped: {inside} inside, {refused} refused");
        assert!(leaked > 0, "a plain open is led out, so the race is one");
    }
}

#[test]
fn a11_a_flipping_directory_never_leads_a_write_out() {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        let mut live = Live::open(&scratch, backend);
        let (mut written, mut refused) = (0, 0);
        while_it_flips(&scratch, || {
            for number in 0..ROUNDS / 5 {
                match live.ask(write(&format!("d/new-{number}"))) {
                    Response::Written => written += 1,
                    Response::Refused(_) => refused += 1,
                    other => panic!("{other:?}"),
                }
            }
        });
        assert!(written > 0 && refused > 0, "it flipped: {written} written, {refused} refused");
        scratch.assert_out_untouched();
    }
}

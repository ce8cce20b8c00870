//! A path that changes between the look and the use.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use rustix::fs::{CWD, RenameFlags};
use zwinger_core::executor::wire::Response;

use super::{BACKENDS, Live, read, write};
use crate::process::{SOON, until};
use crate::scratch::{Scratch, make_dir, read_plainly, write as write_plainly};

const READS: usize = 5_000;
/// Changes of the path at least.
const FLIPS: usize = 100_000;
/// Each is synced to the disk.
const WRITES: usize = 1_000;

/// Stops the flipping however its scope is left: by a failed assertion too.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// While `d` is now a directory, now a link to the outside, does something.
fn while_it_flips(scratch: &Scratch, work: impl FnOnce(&AtomicUsize)) {
    let (d, l) = (scratch.work.join("d"), scratch.work.join("l"));
    make_dir(&d);
    crate::scratch::write(d.join("marker"), "inside");
    std::os::unix::fs::symlink(&scratch.out, &l).unwrap();
    let (stopped, flips) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _stop = Stop(&stopped);
        scope.spawn(|| {
            while !stopped.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, &d, CWD, &l, RenameFlags::EXCHANGE).unwrap();
                flips.fetch_add(1, Ordering::Relaxed);
            }
        });
        work(&flips);
    });
}

/// Whether there were so many rounds and flips, and more of them until both states of `d` were met, however the threads are
/// scheduled.
fn enough(needed: usize, met: [usize; 2], flips: &AtomicUsize, start: Instant) -> bool {
    let (rounds, flips) = (met.iter().sum::<usize>(), flips.load(Ordering::Relaxed));
    assert!(start.elapsed() < 2 * SOON || rounds < needed, "it does not flip: {met:?}, {flips} times");
    rounds >= needed && flips >= FLIPS && met.iter().all(|times| *times > 0)
}

#[test]
fn a11_a_flipping_directory_never_leads_a_read_out() {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        let mut live = Live::open(&scratch, backend);
        let (mut inside, mut refused, start) = (0, 0, Instant::now());
        while_it_flips(&scratch, |flips| {
            while !enough(READS, [inside, refused], flips, start) {
                match live.ask(read("d/marker")) {
                    Response::Read { content, .. } => {
                        assert_eq!(content, b"inside");
                        inside += 1;
                    }
                    Response::Refused(_) => refused += 1,
                    other => panic!("{other:?}"),
                }
            }
            // A plain open is led out, so the race is one.
            until("a leak", || {
                let content = read_plainly(&scratch.work.join("d/marker")).unwrap_or_default();
                (content == scratch.secret.as_bytes()).then_some(())
            });
        });
    }
}

#[test]
fn a11_a_flipping_directory_never_leads_a_write_out() {
    for backend in BACKENDS {
        let scratch = Scratch::new();
        let mut live = Live::open(&scratch, backend);
        let (mut written, mut refused, start) = (0, 0, Instant::now());
        while_it_flips(&scratch, |flips| {
            while !enough(WRITES, [written, refused], flips, start) {
                match live.ask(write(&format!("d/new-{}", written + refused))) {
                    Response::Written => written += 1,
                    Response::Refused(_) => refused += 1,
                    other => panic!("{other:?}"),
                }
            }
            scratch.assert_out_untouched();
            // A plain write is led out, so the race is one.
            let leak = scratch.work.join("d/leak");
            until("a leak", || {
                write_plainly(&leak, "x");
                scratch.out.join("leak").exists().then_some(())
            });
        });
    }
}

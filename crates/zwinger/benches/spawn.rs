//! The cost of one whole confined command, cold, as a ratio to `sh -c true` in the same run and against the peers that are here.
//!
//! Run by `bench/spawn`, which builds the binary and names it. Figures are medians of alternating runs; `--check` ends with 1 when
//! a bound is broken or a peer is faster.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement starts processes, and ends when it cannot"
)]

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Ratio to `sh -c true` at most, with and without a network namespace; and to bwrap.
const BOUND: f64 = 4.5;
const BOUND_WITHOUT_NETWORK: f64 = 3.0;
const BOUND_TO_BWRAP: f64 = 0.6;

struct Contender {
    name: &'static str,
    argv: Vec<String>,
    times: Vec<Duration>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = arguments.iter().any(|argument| argument == "--check");
    let runs = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(200);
    let zwinger = std::env::var("ZWINGER").unwrap_or_else(|_| env!("CARGO_BIN_EXE_zwinger").to_owned());
    let workspace = std::env::temp_dir().join(format!("zwinger-bench-{}", std::process::id()));
    std::fs::create_dir(&workspace).unwrap();
    std::env::set_current_dir(&workspace).unwrap();
    let mut contenders = contenders(&zwinger);
    // Alternating, so that a machine that slows down slows all of them.
    for run in 0..runs + 5 {
        for contender in &mut contenders {
            let time = measure(&contender.argv);
            if run >= 5 {
                contender.times.push(time);
            }
        }
    }
    std::fs::remove_dir_all(&workspace).unwrap();
    ExitCode::from(u8::from(!report(&mut contenders) && check))
}

fn contenders(zwinger: &str) -> Vec<Contender> {
    let bwrap = "bwrap --unshare-all --die-with-parent --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp true";
    let all = [
        ("sh -c true", "sh -c true".to_owned()),
        ("zwinger run", format!("{zwinger} run -- true")),
        ("zwinger run --net on", format!("{zwinger} run --net on -- true")),
        ("bwrap", bwrap.to_owned()),
        ("firejail", "firejail --quiet --noprofile --net=none --private-tmp true".to_owned()),
        ("nono wrap", "nono wrap --allow . -- true".to_owned()),
        ("codex sandbox", "codex sandbox -- true".to_owned()),
        ("srt", "srt true".to_owned()),
    ];
    let contender = |(name, line): (&'static str, String)| {
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let works = command(&argv).status().is_ok_and(|status| status.success());
        if !works {
            println!("SKIPPED: {name} (not installed, or does not run here)");
        }
        works.then_some(Contender { name, argv, times: Vec::new() })
    };
    all.into_iter().filter_map(contender).collect()
}

fn command(argv: &[String]) -> Command {
    let mut words = argv.iter();
    let mut command = Command::new(words.next().unwrap());
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn measure(argv: &[String]) -> Duration {
    let mut command = command(argv);
    let start = Instant::now();
    let status = command.status().unwrap();
    let time = start.elapsed();
    assert!(status.success(), "{argv:?}");
    time
}

/// Prints the table; `true` when every bound holds.
fn report(contenders: &mut [Contender]) -> bool {
    let mut medians = Vec::new();
    for contender in contenders.iter_mut() {
        contender.times.sort();
        let [half, last] = [50, 99].map(|percent| contender.times.len() * percent / 100);
        medians.push((contender.name, contender.times.get(half).unwrap().as_secs_f64()));
        let [p50, p99] = [half, last].map(|index| contender.times.get(index).unwrap().as_micros());
        let base = medians.first().unwrap().1;
        println!(
            "{:<22} p50 {p50:>7} µs  p99 {p99:>7} µs  {:>6.2} ×",
            contender.name,
            medians.last().unwrap().1 / base
        );
    }
    let of = |name: &str| medians.iter().find(|(known, _)| *known == name).map(|(_, median)| *median);
    let (base, ours) = (of("sh -c true").unwrap(), of("zwinger run").unwrap());
    let mut bounds = vec![
        ("zwinger run / sh -c true", ours / base, BOUND),
        ("zwinger run --net on / sh -c true", of("zwinger run --net on").unwrap() / base, BOUND_WITHOUT_NETWORK),
    ];
    bounds.extend(of("bwrap").map(|bwrap| ("zwinger run / bwrap", ours / bwrap, BOUND_TO_BWRAP)));
    let peers =
        ["firejail", "nono wrap", "codex sandbox", "srt"].into_iter().filter_map(|name| Some((name, of(name)?)));
    bounds.extend(peers.map(|(name, peer)| (name, ours / peer, 1.0)));
    let mut held = true;
    for (what, ratio, bound) in bounds {
        let verdict = if ratio <= bound { "holds" } else { "BROKEN" };
        held = held && ratio <= bound;
        println!("{verdict:<6} {what}: {ratio:.2}, at most {bound}");
    }
    held
}

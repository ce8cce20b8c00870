//! The cost of one whole confined command, cold, as a ratio to `sh -c true` in the same run and against the peers that are here.
//!
//! Run by `bench/spawn`, which builds the binary and names it. The peers get walls like ours, which are tried first. Figures are
//! medians of alternating runs; `--check` ends with 1 when a bound is broken or a peer is faster.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement starts processes, and ends when it cannot"
)]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Ratio to `sh -c true` at most, with and without a network namespace; and to bwrap.
const BOUND: f64 = 4.5;
const BOUND_WITHOUT_NETWORK: f64 = 3.0;
const BOUND_TO_BWRAP: f64 = 0.6;

/// Of the rounds an expensive peer runs in every so many-th, so that the whole ends within minutes.
const EXPENSIVE: usize = 10;

/// Between two runs. A network namespace takes the kernel milliseconds to remove, after the command has ended.
const SETTLE: Duration = Duration::from_millis(20);

/// What a contender's walls hold; it is tried before anything is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Nothing,
    /// Nothing but the workspace is written.
    Files,
    /// And the host's network is not reached.
    All,
    /// As `All`, but the workspace cannot be written either.
    Everything,
}

struct Contender {
    name: &'static str,
    argv: Vec<String>,
    every: usize,
    times: Vec<Duration>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = arguments.iter().any(|argument| argument == "--check");
    let runs = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(200);
    let zwinger = std::env::var("ZWINGER").unwrap_or_else(|_| env!("CARGO_BIN_EXE_zwinger").to_owned());
    // Not in /tmp or /var/tmp, which some peers leave open and some cover as a whole.
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap();
    let base = home.join(format!("zwinger-bench-{}", std::process::id()));
    for directory in ["", "work", "home", "out"] {
        std::fs::create_dir(base.join(directory)).unwrap();
    }
    std::env::set_current_dir(base.join("work")).unwrap();
    let mut contenders = contenders(&zwinger, &base);
    // Alternating, so that a machine that slows down slows all of them.
    for run in 0..runs + 5 {
        for contender in contenders.iter_mut().filter(|contender| run % contender.every == 0) {
            // What the kernel still tears down of the one before is not this one's time.
            std::thread::sleep(SETTLE);
            let time = measure(&contender.argv, &base);
            if run >= 5 {
                contender.times.push(time);
            }
        }
    }
    std::fs::remove_dir_all(&base).unwrap();
    ExitCode::from(u8::from(!report(&mut contenders) && check))
}

fn contenders(zwinger: &str, base: &Path) -> Vec<Contender> {
    let base = base.display();
    std::fs::write(
        format!("{base}/srt.json"),
        format!(
            r#"{{"filesystem": {{"denyRead": ["{base}/home"], "allowWrite": ["{base}/work"], "denyWrite": []}},
            "network": {{"allowedDomains": [], "deniedDomains": []}}}}"#
        ),
    )
    .unwrap();
    let bwrap = format!(
        "bwrap --unshare-all --die-with-parent --new-session --cap-drop ALL --ro-bind / / --dev /dev --proc /proc \
         --tmpfs /tmp --tmpfs /var/tmp --tmpfs /run --tmpfs {base}/home --bind {base}/work {base}/work --chdir {base}/work"
    );
    let firejail = format!(
        "firejail --quiet --noprofile --net=none --private-tmp --private-dev --whitelist={base}/work --seccomp \
         --caps.drop=all --nonewprivs"
    );
    let image = std::env::var("ZWINGER_BENCH_IMAGE").unwrap_or_else(|_| "debian:12-slim".to_owned());
    let docker = format!(
        "docker run --rm --pull never --network none --cap-drop ALL --volume {base}/work:{base}/work \
         --workdir {base}/work {image}"
    );
    let all = [
        ("sh -c true", String::new(), Holds::Nothing, 1),
        ("zwinger run", format!("{zwinger} run --"), Holds::All, 1),
        ("zwinger run --net on", format!("{zwinger} run --net on --"), Holds::Files, 1),
        ("bwrap", bwrap, Holds::All, 1),
        (
            "bwrap, the least",
            "bwrap --unshare-all --die-with-parent --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp".to_owned(),
            Holds::Everything,
            1,
        ),
        ("nono wrap", "nono wrap --silent --allow . --block-net --".to_owned(), Holds::All, 1),
        ("firejail", firejail, Holds::All, EXPENSIVE),
        ("codex sandbox", "codex sandbox -P :workspace --".to_owned(), Holds::All, EXPENSIVE),
        ("srt", format!("srt --settings {base}/srt.json"), Holds::All, EXPENSIVE),
        ("docker run", docker, Holds::All, EXPENSIVE),
    ];
    let contender = |(name, line, holds, every): (&'static str, String, Holds, usize)| {
        let prefix: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let end: &[&str] = if holds == Holds::Nothing { &["sh", "-c", "true"] } else { &["true"] };
        let argv = [prefix.clone(), end.iter().map(|word| (*word).to_owned()).collect()].concat();
        let fault = fault(&prefix, holds, Path::new(&base.to_string()));
        if let Some(fault) = &fault {
            println!("SKIPPED: {name} ({fault})");
        }
        fault.is_none().then_some(Contender { name, argv, every, times: Vec::new() })
    };
    all.into_iter().filter_map(contender).collect()
}

/// Why a contender is none: it does not run here, or does not hold what it is compared for. One that holds nothing must show
/// that the attack works.
fn fault(prefix: &[String], holds: Holds, base: &Path) -> Option<String> {
    const CONNECT: &str = "use IO::Socket::INET; IO::Socket::INET->new(PeerAddr => $ARGV[0])";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let (inside, outside) = (base.join("work/inside"), base.join("out/outside"));
    let attack = format!(
        "echo x > inside; echo x > {}; perl -e '{CONNECT}' {}; true",
        outside.display(),
        listener.local_addr().unwrap()
    );
    let argv = [prefix, &["sh", "-c", &attack].map(str::to_owned)].concat();
    if !command(&argv, base).status().is_ok_and(|status| status.success()) {
        return Some("not installed, or does not run here".into());
    }
    let [written, left] = [&inside, &outside].map(|path| std::fs::remove_file(path).is_ok());
    let reached = listener.accept().is_ok();
    // The workspace can be written, something outside was written, the network was reached.
    let expected = match holds {
        Holds::Nothing => (true, true, true),
        Holds::Files => (true, false, true),
        Holds::All => (true, false, false),
        Holds::Everything => (false, false, false),
    };
    (expected != (written, left, reached)).then(|| {
        format!(
            "does not hold what it should: inside written {written}, outside written {left}, network reached {reached}"
        )
    })
}

fn command(argv: &[String], base: &Path) -> Command {
    let mut words = argv.iter();
    let mut command = Command::new(words.next().unwrap());
    command.args(words).env("HOME", base.join("home")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn measure(argv: &[String], base: &Path) -> Duration {
    let mut command = command(argv, base);
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
            "{:<22} p50 {p50:>7} µs  p99 {p99:>7} µs  {:>7.2} ×  {:>4} runs",
            contender.name,
            medians.last().unwrap().1 / base,
            contender.times.len()
        );
    }
    let of = |name: &str| medians.iter().find(|(known, _)| *known == name).map(|(_, median)| *median);
    let (base, ours) = (of("sh -c true").unwrap(), of("zwinger run").unwrap());
    let mut bounds = vec![
        ("zwinger run / sh -c true", ours / base, BOUND),
        ("zwinger run --net on / sh -c true", of("zwinger run --net on").unwrap() / base, BOUND_WITHOUT_NETWORK),
    ];
    bounds.extend(of("bwrap").map(|bwrap| ("zwinger run / bwrap", ours / bwrap, BOUND_TO_BWRAP)));
    let peers = ["firejail", "nono wrap", "codex sandbox", "srt", "docker run"]
        .into_iter()
        .filter_map(|name| Some((name, of(name)?)));
    bounds.extend(peers.map(|(name, peer)| (name, ours / peer, 1.0)));
    let mut held = true;
    for (what, ratio, bound) in bounds {
        let verdict = if ratio <= bound { "holds" } else { "BROKEN" };
        held = held && ratio <= bound;
        println!("{verdict:<6} {what}: {ratio:.2}, at most {bound}");
    }
    held
}

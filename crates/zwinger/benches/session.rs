//! The cost of one call in an open session, limits and audit on, as a ratio to a bare process that runs the same `sh -c true`.
//!
//! Run by `bench/session`, which builds the binary and names it. All kinds alternate in one run. `--check` ends with 1 when the
//! bound is broken.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement starts processes, and ends when it cannot"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use zwinger_core::gate::{Approver, Decision, Question};
use zwinger_core::sandbox::{Backend, Confinement};
use zwinger_core::{Call, Options, Runtime};

/// Ratio of `run_command true` to a bare `sh -c true` at most, by their medians.
const BOUND: f64 = 1.5;
/// Rounds that are not counted.
const WARM: usize = 20;

/// A yes for the session: what follows is covered by it. A yes is synced to the disk before what it permits is done.
struct Yes;

impl Approver for Yes {
    fn decide(&self, _: &Question) -> Decision {
        Decision::Session
    }

    fn name(&self) -> &str {
        "bench"
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = arguments.iter().any(|argument| argument == "--check");
    let runs = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(1000);
    let base = PathBuf::from(std::env::var_os("HOME").unwrap()).join(format!("zwinger-bench-{}", std::process::id()));
    for directory in ["", "work", "home"] {
        std::fs::create_dir(base.join(directory)).unwrap();
    }
    std::fs::write(base.join("work/read"), "line of thirty-two characters..\n".repeat(128)).unwrap();
    let runtime = open(&base);
    let mut kinds: Vec<(&str, Vec<Duration>)> = Vec::new();
    for round in 0..runs + WARM {
        let content: String = (0..292).map(|line| format!("{round:08} {line:04}\n")).collect();
        let edit = json!({"path": "written", "old_text": format!("{round:08} 0100\n"), "new_text": "edited\n"});
        let times = [
            ("sh -c true, bare", bare()),
            ("run_command true", call(&runtime, "run_command", json!({"command": "true"}))),
            ("run_command, asked", call(&runtime, "run_command", json!({"command": format!("true {round}")}))),
            ("run_command read-only", call(&runtime, "run_command", json!({"command": "true", "read_only": true}))),
            ("read_file, 4 KiB", call(&runtime, "read_file", json!({"path": "read"}))),
            ("write_file, 4 KiB", call(&runtime, "write_file", json!({"path": "written", "content": content}))),
            ("edit_file, 4 KiB", call(&runtime, "edit_file", edit)),
        ];
        kinds.resize_with(times.len(), || ("", Vec::new()));
        for (kind, (name, time)) in kinds.iter_mut().zip(times).filter(|_| round >= WARM) {
            kind.0 = name;
            kind.1.push(time);
        }
    }
    runtime.close();
    std::fs::remove_dir_all(&base).unwrap();
    ExitCode::from(u8::from(!report(&mut kinds) && check))
}

fn open(base: &Path) -> Runtime {
    let program = std::env::var_os("ZWINGER").unwrap_or_else(|| env!("CARGO_BIN_EXE_zwinger").into());
    let mut confinement = Confinement::new(&base.join("work"), Some(&base.join("home"))).unwrap();
    confinement.limits.time = Some(Duration::from_secs(60));
    confinement.limits.memory = Some(512 << 20);
    confinement.limits.set_processes(10);
    let state = base.join("state");
    let (backend, approver) = (Backend::Landlock, Box::new(Yes));
    Runtime::open(Options { confinement, backend, approver, state, program: program.into() }).unwrap()
}

fn call(runtime: &Runtime, tool: &str, arguments: Value) -> Duration {
    let call = Call::new(tool, arguments);
    let start = Instant::now();
    let outcome = runtime.call(&call);
    let time = start.elapsed();
    assert!(outcome.success, "{outcome:?}");
    time
}

/// std starts it by posix_spawn(3), which copies nothing of this process.
fn bare() -> Duration {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status().unwrap();
    let time = start.elapsed();
    assert!(status.success());
    time
}

/// Prints the table; `true` when the bound holds.
fn report(kinds: &mut [(&str, Vec<Duration>)]) -> bool {
    let mut medians = Vec::new();
    for (name, times) in kinds.iter_mut() {
        times.sort();
        let [p50, p99] = [50, 99].map(|percent| times.get(times.len() * percent / 100).unwrap().as_secs_f64());
        medians.push(p50);
        let ratio = p50 / medians.first().unwrap();
        println!("{name:<22} p50 {:>7.0} µs  p99 {:>7.0} µs  {ratio:>6.2} ×", p50 * 1e6, p99 * 1e6);
    }
    let ratio = medians.get(1).unwrap() / medians.first().unwrap();
    let verdict = if ratio <= BOUND { "holds" } else { "BROKEN" };
    println!("{verdict:<6} run_command true / bare sh -c true: {ratio:.2}, at most {BOUND}");
    ratio <= BOUND
}

//! 1 GB on each of stdout and stderr through every way to run a command: what is kept, what is counted, and the memory used.
//!
//! Run by `bench/output`, which builds the binary and names it. Arguments: MiB on each stream in writes of 1 MiB, and MiB in writes
//! of one byte. Ends with 1 when something is wrong or a process had more in memory than it may.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement starts processes, and ends when it cannot"
)]

#[path = "../tests/support/flood.rs"]
mod flood;

use std::process::{Command, ExitCode, Stdio};

use flood::{BLOCK, Flood, PEAK, WRITER};

fn main() -> ExitCode {
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let of = |index: usize| sizes.get(index).copied().unwrap_or(1000);
    let zwinger = std::env::var("ZWINGER").unwrap_or_else(|_| env!("CARGO_BIN_EXE_zwinger").to_owned());
    let base = std::env::temp_dir().join(format!("zwinger-output-{}", std::process::id()));
    let work = base.join("work");
    std::fs::create_dir_all(&work).unwrap();
    println!("{:>9} × 2  {:>11}  {:<30} {:>8}  {:>10}", "MiB", "bytes/write", "through", "s", "peak, KiB");
    let mut held = true;
    for (mebibytes, size) in [(of(0), 1 << 20), (of(1), 1)] {
        let blocks = mebibytes * (1 << 20) / BLOCK;
        let words = ["perl", "-e", WRITER, &blocks.to_string(), &size.to_string()].map(str::to_owned);
        let tool =
            serde_json::json!({"command": format!("perl -e '{WRITER}' {blocks} {size}"), "timeout_seconds": 600});
        for (name, options) in [
            ("run --json", vec!["run", "--json", "--"]),
            ("run --json --backend none", vec!["run", "--json", "--backend", "none", "--"]),
            ("tool run_command", vec!["tool", "run_command", &tool.to_string(), "--approve", "yes"]),
        ] {
            let mut command = Command::new(&zwinger);
            command.args(&options).current_dir(&work).stdin(Stdio::null()).stderr(Stdio::null());
            command.env("XDG_STATE_HOME", base.join("state"));
            if name.starts_with("run") {
                command.args(&words);
            }
            let start = std::time::Instant::now();
            let flood = Flood::of(command);
            let (seconds, peak) = (start.elapsed().as_secs_f64(), flood.peak());
            let fault = flood.fault(blocks).or_else(|| (peak >= PEAK).then(|| format!("at most {PEAK} KiB")));
            held = held && fault.is_none();
            let verdict = fault.map_or("holds".to_owned(), |fault| format!("BROKEN: {fault}"));
            println!("{mebibytes:>9} × 2  {size:>11}  {name:<30} {seconds:>8.1}  {peak:>10}  {verdict}");
        }
    }
    std::fs::remove_dir_all(&base).unwrap();
    ExitCode::from(u8::from(!held))
}

//! A command that floods both of its streams, what must be kept of it, and the memory of every zwinger meanwhile.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a helper of tests and measurements looks at processes from outside"
)]

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::process::{Command, ExitStatus, Stdio};

use serde_json::Value;

/// Kept of each stream when nobody says otherwise.
const LIMIT: usize = 1 << 20;
/// Bytes with a number of their own, so that head and tail show which part of the stream they are.
pub(crate) const BLOCK: usize = 1 << 16;
/// No zwinger process may ever have more in memory (DESIGN's bound, in KiB).
pub(crate) const PEAK: u64 = 32 * 1024;

/// Writes blocks (first argument: their number) to both streams in turn, so many bytes (second argument) a write.
pub(crate) const WRITER: &str = r#"($blocks, $size) = @ARGV;
    $fill = substr "abcdefghijklmnopqrstuvwxyz\n" x 2500, 0, 65536 - 10;
    sub put { my ($to, $length) = (shift, length $_[0]);
        for (my $at = 0; $at < $length; ) { $at += syswrite($to, $_[0], $size, $at) || die } }
    $many = $size > 65536 ? $size / 65536 : 1;
    for ($k = 0; $k < $blocks; $k += $many) {
        for (["O", \*STDOUT], ["E", \*STDERR]) { ($mark, $to) = @$_;
            put($to, join "", map { sprintf("%s%08d\n", $mark, $_) . $fill } $k .. $k + $many - 1) } }"#;

/// What WRITER wrote into one stream from block `from` on.
fn blocks(mark: char, from: usize, number: usize) -> String {
    let mut fill = "abcdefghijklmnopqrstuvwxyz\n".repeat(2500);
    fill.truncate(BLOCK - 10);
    (from..from + number).map(|block| format!("{mark}{block:08}\n{fill}")).collect()
}

/// The stream as a result must show it: head, exact count of what is missing, tail.
fn kept(mark: char, number: usize) -> String {
    let half = LIMIT / 2;
    if number * BLOCK <= LIMIT {
        return blocks(mark, 0, number);
    }
    let dropped = number * BLOCK - LIMIT;
    let [head, tail] = [0, number - half / BLOCK].map(|from| blocks(mark, from, half / BLOCK));
    format!("{head}\n[… {dropped} bytes dropped …]\n{tail}")
}

/// What a flood left behind.
pub(crate) struct Flood {
    pub(crate) status: ExitStatus,
    pub(crate) result: Vec<u8>,
    /// VmHWM in KiB of every process that was zwinger, by pid.
    pub(crate) peaks: BTreeMap<u32, u64>,
}

impl Flood {
    /// Runs a command that ends with a result on its standard output, and looks at its memory all the while. The result is
    /// taken slowly, so that the process that made it is still there to be looked at.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        rustix::io::ioctl_fionbio(&stdout, true).unwrap();
        let (mut result, mut peaks) = (Vec::new(), BTreeMap::new());
        let mut chunk = vec![0; 1 << 20];
        loop {
            look(child.id(), &mut peaks);
            match stdout.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => result.extend_from_slice(chunk.get(..count).unwrap()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
                Err(error) => panic!("{error}"),
            }
        }
        Self { status: child.wait().unwrap(), result, peaks }
    }

    /// Why this is not what so many blocks on both streams must leave; `None` if it is.
    pub(crate) fn fault(&self, blocks: usize) -> Option<String> {
        let Ok(result) = serde_json::from_slice::<Value>(&self.result) else {
            return Some(format!("no JSON, {:?}", self.status));
        };
        let number = |path: &str| result.pointer(path).and_then(Value::as_u64).unwrap_or_default();
        let total = 2 * (blocks * BLOCK) as u64;
        let counted = number("/truncated/kept") + number("/truncated/dropped");
        let streams = [("stdout", 'O'), ("stderr", 'E')];
        let wrong = streams.iter().find(|(name, mark)| result[*name].as_str() != Some(&kept(*mark, blocks)));
        match wrong {
            _ if result["exit_code"] != 0 => Some(format!("exit code {}: {}", result["exit_code"], result["error"])),
            Some((name, _)) => Some(format!("{name} is not the head, the exact loss and the tail")),
            None if counted != total => Some(format!("{counted} bytes are counted of {total}")),
            None if number("/truncated/kept") > LIMIT as u64 => Some("more than the limit is kept".into()),
            None if self.peaks.is_empty() => Some("no zwinger was seen".into()),
            None => None,
        }
    }

    /// The most that any of the processes had, in KiB.
    pub(crate) fn peak(&self) -> u64 {
        self.peaks.values().copied().max().unwrap_or_default()
    }
}

/// Notes the peaks of `top` and of everything below it that is zwinger, by name: a process that is not dumpable shows no more.
fn look(top: u32, peaks: &mut BTreeMap<u32, u64>) {
    let read = |path: String| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let status = read(format!("/proc/{pid}/status"));
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let Some(parent) = field("PPid:").and_then(|parent| parent.parse::<u32>().ok()) else { continue };
        let peak: Option<u64> = field("VmHWM:").and_then(|peak| peak.split(' ').next()?.parse().ok());
        // The keeper and the executor go by names of their own.
        let ours = field("Name:") == Some("zwinger") || read(format!("/proc/{pid}/cmdline")).starts_with("zwinger:");
        found.insert(pid, (parent, peak.filter(|_| ours)));
    }
    for (pid, (_, peak)) in &found {
        let mut ancestor = *pid;
        while ancestor != top {
            let Some((parent, _)) = found.get(&ancestor) else { break };
            ancestor = *parent;
        }
        if let Some(peak) = peak.filter(|_| ancestor == top) {
            peaks.entry(*pid).and_modify(|known: &mut u64| *known = peak.max(*known)).or_insert(peak);
        }
    }
}

//! Output without end: every stream is taken in constant memory, and what is lost is counted.

use serde_json::json;

use crate::flood::{BLOCK, Flood, PEAK, WRITER};
use crate::scratch::Scratch;

const MIB: usize = 1 << 20;

/// Both streams get so many bytes, so many a write, through each of the ways to run a command. `bench/output` runs it with 1 GB.
fn floods_cost_no_memory(bytes: usize, write: usize) {
    let scratch = Scratch::new();
    let (blocks, size) = ((bytes / BLOCK).to_string(), write.to_string());
    let words = ["perl", "-e", WRITER, &blocks, &size];
    let command = json!({"command": format!("perl -e '{WRITER}' {blocks} {size}")}).to_string();
    for arguments in [
        [&["run", "--json", "--"], words.as_slice()].concat(),
        [&["run", "--json", "--backend", "none", "--"], words.as_slice()].concat(),
        vec!["tool", "run_command", &command, "--approve", "yes"],
    ] {
        let flood = Flood::of(scratch.zwinger(&arguments));
        assert_eq!(flood.fault(bytes / BLOCK), None, "{arguments:?}");
        assert!(flood.peak() < PEAK, "{arguments:?}: KiB at most, by process: {:?}", flood.peaks);
    }
}

#[test]
fn j01_floods_in_large_writes_cost_no_memory() {
    floods_cost_no_memory(256 * MIB, MIB);
}

#[test]
fn j01_floods_in_single_bytes_cost_no_memory() {
    floods_cost_no_memory(2 * MIB, 1);
}

#[test]
fn j08_bytes_that_json_spells_out_cost_no_more() {
    let scratch = Scratch::new();
    let flood = r#"perl -e '$b = "\x01" x (1 << 21); syswrite STDOUT, $b; syswrite STDERR, $b'"#;
    let command = json!({"command": flood}).to_string();
    for arguments in
        [&["run", "--json", "--", "sh", "-c", flood][..], &["tool", "run_command", &command, "--approve", "yes"]]
    {
        let flood = Flood::of(scratch.zwinger(arguments));
        assert!(flood.status.success() && flood.result.len() > 12 * MIB, "{:?} {}", flood.status, flood.result.len());
        assert!(flood.peak() < PEAK, "{arguments:?}: KiB at most, by process: {:?}", flood.peaks);
    }
}

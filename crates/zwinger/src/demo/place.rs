//! The demo's own workspace, something beside it to steal, and an audit of its own. All of it goes with the demo.
#![expect(clippy::disallowed_methods, reason = "the directory is the demo's own, made and removed by it")]

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use zwinger_core::sandbox::{Backend, Confinement};
use zwinger_core::{Options, Runtime, escape};

use crate::terminal::{self, Approve};

pub(super) struct Place(PathBuf);

impl Place {
    pub(super) fn create() -> io::Result<Self> {
        let mut random = [0_u8; 8];
        rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())?;
        let base = std::env::temp_dir().join(format!("zwinger-demo-{:016x}", u64::from_ne_bytes(random)));
        // mkdir(2) fails on whatever is already there, a link included.
        std::fs::DirBuilder::new().mode(0o700).create(&base)?;
        let place = Self(base);
        for directory in ["work", "outside", "state"] {
            std::fs::DirBuilder::new().mode(0o700).create(place.0.join(directory))?;
        }
        std::fs::write(place.0.join("work/prices.txt"), "320\n115\n275\n")?;
        std::fs::write(place.0.join("work/README.md"), "What things cost.\n")?;
        std::fs::write(place.0.join("outside/secret.txt"), "nobody inside may read this\n")?;
        Ok(place)
    }

    pub(super) fn open(&self, approve: Approve) -> anyhow::Result<Runtime> {
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let confinement = Confinement::new(&self.0.join("work"), home.as_deref())?;
        Ok(Runtime::open(Options {
            confinement,
            backend: Backend::Landlock,
            approver: terminal::approver(approve),
            state: self.state(),
            program: "/proc/self/exe".into(),
        })?)
    }

    fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    /// The records in a few words each.
    pub(super) fn audit(&self) -> Vec<String> {
        let records = std::fs::read_to_string(self.state().join(Path::new("audit/audit.jsonl"))).unwrap_or_default();
        let records = records.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        records.map(|record| escape::line(&in_words(&record))).collect()
    }
}

fn in_words(record: &Value) -> String {
    let text = |name: &str| record.get(name).and_then(Value::as_str).unwrap_or_default();
    let told = match text("event") {
        "begin" | "denied" => format!("{}: {} by {}", text("tool"), text("decision"), text("by")),
        "end" if record.get("success") == Some(&Value::Bool(true)) => "done".to_owned(),
        "end" => match record.get("exit_code").and_then(Value::as_i64) {
            Some(code) => format!("exit {code}"),
            None => text("error").to_owned(),
        },
        _ => format!("{}: {}", text("tool"), text("error")),
    };
    format!("{:<8} {told}", text("event"))
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

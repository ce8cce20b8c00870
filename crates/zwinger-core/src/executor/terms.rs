//! The walls in words, for a model whose command failed behind them.

use std::path::Path;
use std::time::Duration;

use zwinger_sandbox::{Confinement, HostPath, Network};

use crate::escape;

/// Names of what is hidden that are told.
const MOST: usize = 5;

/// What a session's commands may do, in words.
#[derive(Debug, Clone)]
pub struct Terms {
    writable: String,
    network: &'static str,
    hidden: String,
    time: Option<Duration>,
}

impl Terms {
    pub(super) fn of(confinement: &Confinement, hidden: &[HostPath]) -> Self {
        let workspace = confinement.workspace();
        let name = |path: &Path| match path.strip_prefix(workspace) {
            Ok(below) if below.as_os_str().is_empty() => ".".to_owned(),
            Ok(below) => escape::line(&below.to_string_lossy()),
            Err(_) => escape::line(&path.to_string_lossy()),
        };
        // The workspace is the first of them, and in plan mode only read.
        let writable = confinement.writable().skip(usize::from(confinement.is_read_only()));
        let writable: String = writable.map(|path| name(path) + ", ").collect();
        let mut hidden_names: Vec<_> = hidden.iter().take(MOST).map(|path| name(path)).collect();
        if hidden.len() > MOST {
            hidden_names.push(format!("{} more", hidden.len() - MOST));
        }
        if confinement.home().is_some_and(|home| !confinement.is_granted(home)) {
            hidden_names.push("most of ~".into());
        }
        Self {
            writable,
            network: if confinement.network() == Network::Off { "off" } else { "on" },
            hidden: hidden_names.join(", "),
            time: confinement.limits.time,
        }
    }

    /// How long a command may run at most.
    pub(crate) fn time(&self) -> Option<Duration> {
        self.time
    }

    /// The line for a command that failed.
    pub(crate) fn line(&self, read_only: bool) -> String {
        let writable = if read_only { "" } else { &self.writable };
        let network = if read_only { "off" } else { self.network };
        let hidden = if self.hidden.is_empty() { String::new() } else { format!(" · hidden: {}", self.hidden) };
        format!(
            "walls: writable here: {writable}$TMPDIR · network {network}{hidden} · this is policy, do not retry elsewhere"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_holds() {
        let dir = tempfile::tempdir().unwrap();
        let mut confinement = Confinement::new(dir.path(), Some(Path::new("/root"))).unwrap();
        confinement.grant_write(Path::new("/srv")).unwrap();
        let secret = HostPath::from(confinement.workspace().join("a/.env"));
        let terms = Terms::of(&confinement, &[secret]);
        let end = "· hidden: a/.env, most of ~ · this is policy, do not retry elsewhere";
        assert_eq!(terms.line(false), format!("walls: writable here: ., /srv, $TMPDIR · network off {end}"));
        confinement.set_network(Network::On);
        let terms = Terms::of(&confinement, &[HostPath::from(confinement.workspace().join("a/.env"))]);
        assert!(terms.line(false).contains("network on"));
        assert_eq!(terms.line(true), format!("walls: writable here: $TMPDIR · network off {end}"));
        confinement.set_read_only();
        assert!(Terms::of(&confinement, &[]).line(false).starts_with("walls: writable here: $TMPDIR · network on"));
    }
}

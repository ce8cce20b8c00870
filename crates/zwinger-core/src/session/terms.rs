//! The terms under which something was granted, so that it holds under the same ones alone.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use zwinger_sandbox::Surroundings;

use crate::executor::Executor;
use crate::policy::Mode;

/// All that decides what a granted action can do, a line each: the mode, what builds the walls, what was asked of them, what they
/// hold here and with which kernel, and what of the host is readable besides. Terms are the same where the lines are equal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GrantTerms(BTreeSet<String>);

impl GrantTerms {
    /// Those of an open session. Its walls stay as they are until it ends: an executor that is started again is started in them.
    pub(crate) fn of(mode: Mode, executor: &Executor, around: &Surroundings) -> Self {
        let confinement = executor.confinement();
        let mut lines = confinement.lines();
        lines.extend([format!("mode {mode}"), format!("backend {}", executor.backend())]);
        lines.extend(executor.enforcement().dimensions().map(|(name, held)| format!("{name} {}", held.level)));
        lines.extend(around.toolchains(confinement).iter().map(|path| path.line("readable")));
        lines.insert(format!("landlock {}", around.landlock_abi));
        lines.extend(executor.has_namespaces().then(|| "namespaces".to_owned()));
        lines.extend(around.root_caller.then(|| "root".to_owned()));
        Self(lines)
    }
}

impl fmt::Display for GrantTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, line) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { " · " };
            write!(f, "{separator}{}", crate::escape::line(line))?;
        }
        Ok(())
    }
}

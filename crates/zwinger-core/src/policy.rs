//! The judgement over effects: a pure function, without files, clocks or people. What it cannot judge is denied.

mod denylist;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::action::Effect;

/// What a session may do to its workspace; walls hold it, and the table here follows. Strictest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Read it: the workspace cannot be written.
    Plan,
    /// Read and write it, and nothing else.
    Sandbox,
    /// Anything: no walls.
    FullAccess,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plan => "plan",
            Self::Sandbox => "sandbox",
            Self::FullAccess => "full-access",
        })
    }
}

/// What the policy says of an action, with the rule that said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The answer.
    pub judgement: Judgement,
    /// Which rule gave it, for people and the audit.
    pub rule: &'static str,
    /// For a denial: why, in words for the model.
    pub reason: String,
}

/// Strictest last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Judgement {
    /// Nobody needs to be asked.
    Allow,
    /// A person decides.
    Ask,
    /// Nobody can permit it.
    Deny,
}

impl Judgement {
    /// As it stands in the audit.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// Judges every effect of an action; the strictest verdict holds, and no effect at all is a denial.
pub fn judge(effects: &[Effect], mode: Mode) -> Verdict {
    let verdicts = effects.iter().map(|effect| judge_one(effect, mode));
    verdicts.max_by_key(|verdict| verdict.judgement).unwrap_or(Verdict {
        judgement: Judgement::Deny,
        rule: "built-in: an action without effects",
        reason: "nothing is known of what this does".into(),
    })
}

/// The built-in table.
fn judge_one(effect: &Effect, mode: Mode) -> Verdict {
    let verdict = |judgement, rule| Verdict { judgement, rule, reason: String::new() };
    match (effect, mode) {
        (Effect::Read(_), _) => verdict(Judgement::Allow, "built-in: reads in the workspace"),
        (Effect::Clock, _) => verdict(Judgement::Allow, "built-in: the clock"),
        (Effect::Write(_), Mode::Plan) => Verdict {
            judgement: Judgement::Deny,
            rule: "built-in: plan mode",
            reason: "nothing is written in plan mode; the user can leave it with --mode sandbox".into(),
        },
        (Effect::Write(_), Mode::Sandbox) => verdict(Judgement::Ask, "built-in: writes"),
        (Effect::Write(_), Mode::FullAccess) => verdict(Judgement::Allow, "built-in: writes with full access"),
        (Effect::Execute(command), _) => match (denylist::refuses(command), mode) {
            (Some(reason), _) => Verdict { judgement: Judgement::Deny, rule: "built-in: denylist", reason },
            (None, Mode::Plan) => verdict(Judgement::Allow, "built-in: commands that cannot write"),
            // With full access too, until destructive ones can be told from others.
            (None, Mode::Sandbox | Mode::FullAccess) => verdict(Judgement::Ask, "built-in: commands"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::WorkspacePath;
    use std::path::Path;

    #[test]
    fn the_table() {
        let path = WorkspacePath::parse("a", &[Path::new("/work")]).unwrap();
        let effects = [
            Effect::Read(path.clone()),
            Effect::Clock,
            Effect::Write(path.clone()),
            Effect::Execute("cargo test".into()),
            Effect::Execute("sudo cargo test".into()),
        ];
        let row = |effect: &Effect, mode: Mode| {
            let verdict = judge(std::slice::from_ref(effect), mode);
            format!("{mode}: {effect:?} → {} ({}) {}", verdict.judgement.name(), verdict.rule, verdict.reason)
        };
        let modes = [Mode::Plan, Mode::Sandbox, Mode::FullAccess];
        let rows: Vec<_> = modes.iter().flat_map(|mode| effects.iter().map(move |effect| row(effect, *mode))).collect();
        insta::assert_snapshot!(rows.join("\n"));
    }

    #[test]
    fn the_strictest_effect_decides_and_none_is_denied() {
        let path = WorkspacePath::parse("a", &[Path::new("/work")]).unwrap();
        let both = [Effect::Read(path), Effect::Execute("sudo id".into())];
        assert_eq!(judge(&both, Mode::Sandbox).judgement, Judgement::Deny);
        assert_eq!(judge(&[], Mode::FullAccess).judgement, Judgement::Deny);
    }
}

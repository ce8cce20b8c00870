//! The judgement over effects: a pure function, without files, clocks or people. What it cannot judge is denied.

mod denylist;

use crate::action::Effect;

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
pub fn judge(effects: &[Effect]) -> Verdict {
    effects.iter().map(judge_one).max_by_key(|verdict| verdict.judgement).unwrap_or(Verdict {
        judgement: Judgement::Deny,
        rule: "built-in: an action without effects",
        reason: "nothing is known of what this does".into(),
    })
}

/// The built-in table, mode `sandbox`.
fn judge_one(effect: &Effect) -> Verdict {
    let verdict = |judgement, rule| Verdict { judgement, rule, reason: String::new() };
    match effect {
        Effect::Read(_) => verdict(Judgement::Allow, "built-in: reads in the workspace"),
        Effect::Clock => verdict(Judgement::Allow, "built-in: the clock"),
        Effect::Write(_) => verdict(Judgement::Ask, "built-in: writes"),
        Effect::Execute(command) => match denylist::refuses(command) {
            Some(reason) => Verdict { judgement: Judgement::Deny, rule: "built-in: denylist", reason },
            None => verdict(Judgement::Ask, "built-in: commands"),
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
        let rows: Vec<_> = effects
            .iter()
            .map(|effect| {
                let verdict = judge(std::slice::from_ref(effect));
                format!("{effect:?} → {} ({}) {}", verdict.judgement.name(), verdict.rule, verdict.reason)
            })
            .collect();
        insta::assert_snapshot!(rows.join("\n"));
    }

    #[test]
    fn the_strictest_effect_decides_and_none_is_denied() {
        let path = WorkspacePath::parse("a", &[Path::new("/work")]).unwrap();
        let both = [Effect::Read(path), Effect::Execute("sudo id".into())];
        assert_eq!(judge(&both).judgement, Judgement::Deny);
        assert_eq!(judge(&[]).judgement, Judgement::Deny);
    }
}

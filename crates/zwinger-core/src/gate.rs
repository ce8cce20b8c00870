//! The gate: turns a judged action into permission. The only place that makes [`Authorized`].

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::action::{Action, Edited};
use crate::audit::{Audit, Ticket};
use crate::error::{Broken, Denied};
use crate::policy::{Judgement, Verdict};
use crate::session::Kept;

/// Permission to do one action, recorded in the audit. It holds the very value that was shown. It cannot be made elsewhere,
/// copied, stored or spent twice.
#[derive(Debug)]
#[must_use = "a permission that is not spent is recorded as abandoned"]
pub struct Authorized {
    action: Action,
    ticket: Ticket,
    seen: bool,
}

impl Authorized {
    /// The file and the content that a person saw and let be written.
    pub(crate) fn seen_write(&self) -> Option<(&Path, &str)> {
        match &self.action {
            Action::Write { path, content, .. } | Action::Edit { path, edited: Edited { content, .. }, .. } => {
                self.seen.then_some((path.as_ref(), content))
            }
            Action::Read { .. }
            | Action::List { .. }
            | Action::Run { .. }
            | Action::JobOutput { .. }
            | Action::JobStop { .. }
            | Action::Custom { .. }
            | Action::Time => None,
        }
    }

    /// Spends the permission.
    pub(crate) fn spend(self) -> (Action, Ticket) {
        (self.action, self.ticket)
    }
}

/// What a person is shown. All text is escaped already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Name of the tool.
    pub tool: &'static str,
    /// One line: what will be done.
    pub summary: String,
    /// The whole command or difference.
    pub detail: String,
    /// What `session` would cover, in words.
    pub scope: String,
    /// What holds around it.
    pub walls: String,
}

/// A person's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// This one time.
    Once,
    /// This and all the same until the session ends; what the same is was shown as [`Question::scope`].
    Session,
    /// No.
    Deny,
    /// Nobody could be asked, for this reason. A denial, but not a person's.
    Unanswered(String),
}

/// Asks a person. Implemented by doors; an embedder brings its own.
pub trait Approver: Send + Sync {
    /// Shows the question and waits for the answer. End of input is a denial.
    fn decide(&self, question: &Question) -> Decision;
    /// Who that is, for the audit: `terminal`, `--approve yes`.
    fn name(&self) -> &str;
    /// Whether a person sees each question before it is answered. What nobody saw is permitted like everything else, but settings
    /// that programs read by themselves do not stay when the session ends.
    fn is_person(&self) -> bool {
        true
    }
}

/// Decisions that were given for the rest of the session. What is stored is what was shown, one file or one command
/// line, and holds under the terms of this session alone.
#[derive(Debug, Default)]
pub struct Grants {
    given: Mutex<BTreeSet<Grant>>,
    kept: Option<Kept>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grant {
    /// To write this file.
    File(crate::action::WorkspacePath),
    /// To run this command.
    Command(GrantedCommand),
}

/// A command as it was shown.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantedCommand {
    /// The command line.
    pub command: String,
    /// Where it starts. In another directory the same words are another command.
    pub directory: crate::action::WorkspacePath,
    /// Whether it can only read.
    pub read_only: bool,
    /// Whether it runs in the background.
    pub background: bool,
    /// For how long at most; [`GrantedCommand::ENDLESS`] is as long as the session.
    pub seconds: u64,
}

impl GrantedCommand {
    /// No limit of its own.
    pub const ENDLESS: u64 = u64::MAX;
}

impl Grant {
    /// What a session's yes to this action would cover; `None`: it cannot be given for a session.
    fn of(action: &Action) -> Option<Self> {
        match action {
            Action::Write { path, .. } | Action::Edit { path, .. } => Some(Self::File(path.clone())),
            Action::Run { command, directory, read_only, background, timeout } => Some(Self::Command(GrantedCommand {
                command: command.clone(),
                directory: directory.clone(),
                read_only: *read_only,
                background: *background,
                seconds: timeout.map_or(GrantedCommand::ENDLESS, |timeout| timeout.as_secs()),
            })),
            Action::Read { .. }
            | Action::List { .. }
            | Action::JobOutput { .. }
            | Action::JobStop { .. }
            | Action::Custom { .. }
            | Action::Time => None,
        }
    }

    /// Whether it is enough where another would be needed. A command may ask for less time than was shown, and not for more.
    fn covers(&self, wanted: &Self) -> bool {
        match (self, wanted) {
            (Self::Command(given), Self::Command(wanted)) => {
                wanted.seconds <= given.seconds && *given == GrantedCommand { seconds: given.seconds, ..wanted.clone() }
            }
            (Self::File(_) | Self::Command(_), _) => self == wanted,
        }
    }
}

impl Grants {
    /// Of a session that is kept, with those that it was given earlier under the same terms.
    pub(crate) fn kept_in(kept: Kept) -> Self {
        Self { given: Mutex::new(kept.grants()), kept: Some(kept) }
    }

    /// Writes down that the session was used until now.
    pub(crate) fn close(&self) {
        self.store(&self.lock());
    }

    /// How many there are that do not hold here.
    pub(crate) fn under_other_terms(&self) -> usize {
        self.kept.iter().flat_map(Kept::others).map(|granted| granted.grants.len()).sum()
    }

    fn covers(&self, action: &Action) -> bool {
        Grant::of(action).is_some_and(|wanted| self.lock().iter().any(|given| given.covers(&wanted)))
    }

    fn remember(&self, action: &Action) {
        if let Some(grant) = Grant::of(action) {
            let mut given = self.lock();
            given.retain(|given| !grant.covers(given));
            given.insert(grant);
            self.store(&given);
        }
    }

    fn store(&self, given: &BTreeSet<Grant>) {
        // One that cannot be written holds as long as this process, and is asked for again after that.
        let _ = self.kept.as_ref().map(|kept| kept.store(given));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<Grant>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a call got past, or did not get past, the gate.
#[derive(Debug, thiserror::Error)]
pub enum Settlement {
    /// No.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The audit could not be written, which is a no as well.
    #[error(transparent)]
    Broken(#[from] Broken),
}

/// Settles a judged action: a denial never reaches a person, an ask does unless a grant covers it, and nothing is permitted
/// before its audit line is written.
///
/// # Errors
/// The denial, for the model; or what broke.
pub fn settle(
    action: Action,
    verdict: &Verdict,
    question: impl FnOnce(&Action) -> Question,
    approver: &dyn Approver,
    grants: &Grants,
    audit: &Audit,
) -> Result<Authorized, Settlement> {
    let (decision, by, seen) = match verdict.judgement {
        Judgement::Deny => {
            audit.refused(&action, verdict, "deny", "policy")?;
            return Err(Denied(format!("refused: {} ({}).", verdict.reason, short(verdict.rule))).into());
        }
        Judgement::Allow => ("allow", "policy", false),
        Judgement::Ask if grants.covers(&action) => ("session", "grant", false),
        Judgement::Ask => match approver.decide(&question(&action)) {
            Decision::Once => ("once", approver.name(), approver.is_person()),
            Decision::Session => ("session", approver.name(), approver.is_person()),
            Decision::Deny => {
                audit.refused(&action, verdict, "deny", approver.name())?;
                return Err(declined(&action).into());
            }
            Decision::Unanswered(reason) => {
                audit.refused(&action, verdict, "unanswered", approver.name())?;
                return Err(Denied(format!("denied: {reason}")).into());
            }
        },
    };
    let ticket = audit.begin(&action, verdict, decision, by)?;
    // An approval is on the disk before what it permits is done; all else follows within a second.
    if verdict.judgement == Judgement::Ask && by == approver.name() {
        audit.sync()?;
        // Only now: no grant without a record of who gave it.
        if decision == "session" {
            grants.remember(&action);
        }
    }
    Ok(Authorized { action, ticket, seen })
}

fn declined(action: &Action) -> Denied {
    Denied(match action {
        Action::Write { path, .. } | Action::Edit { path, .. } => format!("write to {path} declined by the user."),
        Action::Run { .. } => "command declined by the user.".into(),
        Action::Read { .. }
        | Action::List { .. }
        | Action::JobOutput { .. }
        | Action::JobStop { .. }
        | Action::Custom { .. }
        | Action::Time => "declined by the user.".into(),
    })
}

/// `built-in: denylist` → `denylist`.
fn short(rule: &str) -> &str {
    rule.rsplit(": ").next().unwrap_or(rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::WorkspacePath;

    #[test]
    fn a_grant_is_for_what_was_shown_and_less_time() {
        let place = |name: &str| WorkspacePath::resolved(Path::new(name)).unwrap();
        let given = GrantedCommand {
            command: "make".into(),
            directory: place("."),
            read_only: false,
            background: false,
            seconds: 60,
        };
        let covers = |wanted: GrantedCommand| Grant::Command(given.clone()).covers(&Grant::Command(wanted));
        for seconds in [1, 60] {
            assert!(covers(GrantedCommand { seconds, ..given.clone() }));
        }
        for other in [
            GrantedCommand { seconds: 61, ..given.clone() },
            GrantedCommand { seconds: GrantedCommand::ENDLESS, ..given.clone() },
            GrantedCommand { command: "make x".into(), ..given.clone() },
            GrantedCommand { directory: place("sub"), ..given.clone() },
            GrantedCommand { read_only: true, ..given.clone() },
            GrantedCommand { background: true, ..given.clone() },
        ] {
            assert!(!covers(other.clone()), "{other:?}");
        }
        assert!(Grant::File(place("make")).covers(&Grant::File(place("make"))));
        assert!(!Grant::File(place("make")).covers(&Grant::Command(given)));
    }
}

//! Permission comes from the gate.

use zwinger_core::Action;
use zwinger_core::audit::Audit;
use zwinger_core::gate::{self, Approver, Authorized, Grants, Question, Settlement};
use zwinger_core::policy::Verdict;

fn permitted(
    action: Action,
    verdict: &Verdict,
    ask: fn(&Action) -> Question,
    approver: &dyn Approver,
    audit: &Audit,
) -> Result<Authorized, Settlement> {
    gate::settle(action, verdict, ask, approver, &Grants::default(), audit)
}

pub(super) fn main() {
    let _ = permitted;
}

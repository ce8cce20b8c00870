//! The text of an outcome can be taken.

use zwinger_core::Outcome;

fn text(outcome: Outcome) -> String {
    outcome.output
}

pub(super) fn main() {
    let _ = text;
}

//! What is safe to leave can be serialised.

use zwinger_core::Outcome;

fn stored<T: serde::Serialize>() {}

pub(super) fn main() {
    let _ = stored::<Outcome>;
}

//! What was decided can be copied; it permits nothing.

use zwinger_core::gate::Decision;

fn two(decision: &Decision) -> [Decision; 2] {
    [decision.clone(), decision.clone()]
}

pub(super) fn main() {
    let _ = two;
}

//! An action can be looked at and altered before it is judged.

use zwinger_core::Action;

fn alter(action: &mut Action) {
    *action = Action::Time;
}

pub(super) fn main() {
    let _ = alter;
}

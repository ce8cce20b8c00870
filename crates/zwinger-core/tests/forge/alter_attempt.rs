//! The action of a permission altered after it was shown.

use zwinger_core::Action;
use zwinger_core::gate::Authorized;

fn alter(authorized: &mut Authorized) {
    authorized.action = Action::Time;
}

fn main() {
    let _ = alter;
}

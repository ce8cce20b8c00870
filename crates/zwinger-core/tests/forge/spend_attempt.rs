//! A permission spent outside the runtime, to do something else with its action.

use zwinger_core::Action;
use zwinger_core::gate::Authorized;

fn action_of(authorized: Authorized) -> Action {
    authorized.spend().0
}

fn main() {
    let _ = action_of;
}

//! Permission made by hand.

use zwinger_core::Action;
use zwinger_core::audit::Ticket;
use zwinger_core::gate::Authorized;

fn permitted(action: Action, ticket: Ticket) -> Authorized {
    Authorized { action, ticket, seen: true }
}

fn main() {
    let _ = permitted;
}

//! The same permission used twice.

use zwinger_core::gate::Authorized;

fn give_up(authorized: Authorized) {
    drop(authorized);
    drop(authorized);
}

fn main() {
    let _ = give_up;
}

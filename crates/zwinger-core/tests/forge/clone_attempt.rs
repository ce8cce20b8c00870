//! One permission copied to be spent twice.

use zwinger_core::gate::Authorized;

fn two(authorized: &Authorized) -> [Authorized; 2] {
    [authorized.clone(), authorized.clone()]
}

fn main() {
    let _ = two;
}

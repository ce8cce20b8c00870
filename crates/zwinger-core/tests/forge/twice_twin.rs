//! A permission can be given up once.

use zwinger_core::gate::Authorized;

fn give_up(authorized: Authorized) {
    drop(authorized);
}

pub(super) fn main() {
    let _ = give_up;
}

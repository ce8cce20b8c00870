//! A permission stored.

use zwinger_core::gate::Authorized;

fn stored<T: serde::Serialize>() {}

fn main() {
    let _ = stored::<Authorized>;
}

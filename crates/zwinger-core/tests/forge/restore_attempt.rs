//! A permission read from a file that anybody may have written.

use zwinger_core::gate::Authorized;

fn restored<T: serde::de::DeserializeOwned>() {}

fn main() {
    let _ = restored::<Authorized>;
}

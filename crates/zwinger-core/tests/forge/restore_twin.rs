//! Terms that only narrow can be read back.

use zwinger_core::sandbox::Confinement;

fn restored<T: serde::de::DeserializeOwned>() {}

pub(super) fn main() {
    let _ = restored::<Confinement>;
}

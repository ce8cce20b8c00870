//! What came from inside the walls serialised before it was made safe.

use zwinger_core::output::Raw;

fn stored<T: serde::Serialize>() {}

fn main() {
    let _ = stored::<Raw>;
}

//! What came from inside the walls taken before it was made safe.

use zwinger_core::executor::wire::Response;
use zwinger_core::output::Raw;

fn taken(raw: Raw) -> Option<Response> {
    raw.0.ok()
}

fn main() {
    let _ = taken;
}

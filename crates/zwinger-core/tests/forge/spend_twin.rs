//! A call is done by the runtime.

use zwinger_core::{Call, Outcome, Runtime};

fn done(runtime: &Runtime, call: &Call) -> Outcome {
    runtime.call(call)
}

pub(super) fn main() {
    let _ = done;
}

//! An executor tells what its walls hold.

use zwinger_core::executor::Executor;
use zwinger_core::sandbox::Enforcement;

fn held(executor: &Executor) -> &Enforcement {
    executor.enforcement()
}

pub(super) fn main() {
    let _ = held;
}

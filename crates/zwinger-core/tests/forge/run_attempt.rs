//! An executor told to do an action that nobody permitted.

use zwinger_core::Action;
use zwinger_core::executor::Executor;

fn done(executor: &Executor, action: &Action) {
    executor.run(action);
}

fn main() {
    let _ = done;
}

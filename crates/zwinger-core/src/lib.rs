//! Files and a shell for language models, between two walls: the library.
//!
//! The flow, in the order of [`Runtime::call`]: a [`Call`] (untrusted JSON) is decoded to an [`Action`], judged by the [`policy`]
//! over its [`Effect`]s, settled at the [`gate`], which alone makes [`Authorized`], spent by the [`executor`] inside the walls, and
//! what comes back is raw until [`output`] has made it safe to leave. The [`audit`] has a line before and a line after.
//!
//! The library is synchronous, talks to no model and to no terminal. A program that embeds it calls [`child_main`] first.

pub mod action;
pub mod audit;
pub mod call;
pub mod custody;
pub mod custom;
pub mod edit;
pub mod error;
pub mod escape;
pub mod executor;
pub mod gate;
pub mod output;
pub mod policy;
pub mod process;
mod question;
pub mod runtime;
pub mod session;
pub mod tools;

pub use action::{Action, Effect};
pub use call::Call;
pub use custom::CustomTool;
pub use error::{Broken, Denied, Failed, Invalid};
pub use executor::{Cancel, During};
pub use gate::{Approver, Authorized, Decision, Question};
pub use output::Outcome;
pub use runtime::{OpenError, Options, Runtime};
pub use zwinger_sandbox as sandbox;

/// Whether this process was started as a keeper or an executor.
pub(crate) fn is_child() -> bool {
    let name = std::env::args_os().next();
    name.is_some_and(|name| name == zwinger_sandbox::KEEPER || name == zwinger_sandbox::EXECUTOR)
}

/// Becomes the keeper or the executor when this process was started as one, and does not return then. To be called as the
/// first statement of `main`, before any thread or descriptor exists.
pub fn child_main() {
    match std::env::args_os().next() {
        Some(name) if name == zwinger_sandbox::KEEPER => zwinger_sandbox::keeper_main(),
        Some(name) if name == zwinger_sandbox::EXECUTOR => executor::serve::main(),
        _ => {}
    }
}

//! The outer wall of zwinger: what the kernel holds, whatever the process inside tries.
//!
//! - [`Confinement`]: what a session may touch, as plain data that can only narrow.
//! - [`Backend`]: what builds the walls; [`Plan`]: the exact steps, computed without opening anything.
//! - [`Launch`]: one command behind walls of its own. [`Session`]: walls that stay, with an executor inside.
//! - [`supervisor`]: one command to the proof that nothing of it is left. [`Root`]: files beneath a directory.
//! - [`Journal`]: what of the kind that the host runs by itself a session newly made, found when it is over and moved away.
//! - [`Enforcement`]: what really holds, returned by every launch. Nothing is ever silently weaker.
//!
//! This crate knows no tools, policies or models. It is the only one of the workspace that opens files and starts processes,
//! and `sys` is its only file with `unsafe`.

mod backend;
mod capture;
mod confinement;
mod directory;
mod end_signals;
mod enforcement;
pub mod environment;
mod exec;
mod executor_side;
mod findings;
mod git_config;
mod host_path;
mod inventory;
mod journal;
mod keeper;
mod metadata;
mod once;
mod outputs;
mod plan;
mod private;
mod processors;
mod quarantine;
mod rebase_todo;
mod root;
mod scan;
mod session;
pub mod supervisor;
mod sys;
mod task_group;
mod temporary;
mod walls;
mod watch;

pub use backend::{Backend, BackendError, UnknownBackend};
pub use capture::{Capture, Captured, incomplete_end};
pub use confinement::{Confinement, Exceptions, Limits, Network, WorkspaceError, home_of_user};
pub use end_signals::EndSignals;
pub use enforcement::{Enforcement, Held, Level};
pub use executor_side::{abandon, take_streams};
pub use host_path::HostPath;
pub use journal::{Journal, Journals};
pub use keeper::main as keeper_main;
pub use once::{Launch, Output, RunError};
pub use plan::{Bind, Mounts, Piece, Plan, Rights, Rule, Seal, Surroundings};
pub use private::{DirectoryLock, PrivateDirectory};
pub use quarantine::{Quarantined, Settled};
pub use root::{Entry, PathError, Root, read_up_to};
pub use scan::Scan;
pub use session::{ExecutorLink, Session, SessionError};
pub use walls::{WallError, read_only, seal, seal_thread};

/// `argv[0]` of the process that holds a session's walls.
pub const KEEPER: &str = "zwinger:keeper";
/// `argv[0]` of the process that serves inside them.
pub const EXECUTOR: &str = "zwinger:executor";

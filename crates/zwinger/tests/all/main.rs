//! The whole of zwinger from outside: its binary, its library, and a live executor without the library in between.
//!
//! A name that begins with a case id (`a01_`, `i08_`) is a case of the collected attacks. What cannot run on a machine
//! prints `SKIPPED: name (reason)`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper that cannot do its work fails the test"
)]

#[macro_use]
mod caller;

mod ask;
mod audit;
mod calls;
mod controls;
mod demo;
mod doctor;
mod documents;
#[path = "../support/flood.rs"]
mod flood;
mod found;
mod gate;
mod grants;
mod jobs;
mod killed;
mod leaks;
mod library;
mod limits;
mod output;
mod process;
mod programs;
mod quarantine;
mod replaced;
mod run;
mod scratch;
#[path = "../support/scripted_model.rs"]
mod scripted_model;
mod session;
mod tool;
mod walls;

//! A path that nobody checked.

use std::path::PathBuf;
use zwinger_core::action::WorkspacePath;

fn path(text: &str) -> WorkspacePath {
    WorkspacePath(PathBuf::from(text))
}

fn main() {
    let _ = path;
}

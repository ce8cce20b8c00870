//! A path is checked when it becomes one of the workspace.

use std::path::Path;
use zwinger_core::action::WorkspacePath;

fn path(text: &str) -> Option<WorkspacePath> {
    WorkspacePath::parse(text, &[Path::new("/work")]).ok()
}

pub(super) fn main() {
    assert!(path("../x").is_none() && path("x").is_some());
}

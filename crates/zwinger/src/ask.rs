//! `zwinger ask`: a task for a model.

use crate::args::Ask;
use std::process::ExitCode;
pub(crate) fn run(_arguments: &Ask) -> ExitCode {
    1.into()
}

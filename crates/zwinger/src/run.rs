//! `zwinger run`: one command inside the walls, with this terminal's streams.

use std::process::ExitCode;

use zwinger_core::sandbox::run_once;
use zwinger_core::sandbox::supervisor::End;

use crate::args::Run;
use crate::{BROKEN, complain};

pub(crate) fn run(arguments: &Run) -> ExitCode {
    let confinement = match arguments.walls.confinement(None) {
        Ok(confinement) => confinement,
        Err(error) => {
            complain(&error);
            return BROKEN.into();
        }
    };
    let limit = confinement.limits.time;
    let finished = match run_once(arguments.walls.backend, &confinement, arguments.command.clone()) {
        Ok((finished, _enforcement)) => finished,
        Err(error) => {
            complain(&error);
            return BROKEN.into();
        }
    };
    if let End::NotStarted(errno) = finished.end {
        let program = arguments.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
        let program = zwinger_core::escape::line(&program);
        complain(&format_args!("{program}: {}", std::io::Error::from_raw_os_error(errno)));
    }
    if finished.leftovers > 0 {
        complain(&format_args!("{} processes that the command left running were stopped", finished.leftovers));
    }
    if let (true, Some(limit)) = (finished.timed_out, limit) {
        complain(&format_args!("stopped after {} s (--timeout)", limit.as_secs()));
        return 124.into();
    }
    u8::try_from(finished.end.exit_code()).unwrap_or(BROKEN).into()
}

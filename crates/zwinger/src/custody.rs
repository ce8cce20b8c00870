//! What a person is shown of what a session left behind and zwinger moved away.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::{Value, json};
use zwinger_core::sandbox::{Quarantined, Settled};
use zwinger_core::{Runtime, escape};

use crate::{complain, tell};

/// What sessions left that were killed.
pub(crate) fn show_earlier(workspace: &Path, settled: &Settled) {
    for quarantined in &settled.quarantined {
        tell(&format!("zwinger: an earlier session was killed; put in quarantine: {}", line(workspace, quarantined)));
    }
    show_unseen(settled);
}

/// What this session left.
pub(crate) fn show(workspace: &Path, settled: &Settled) {
    for quarantined in &settled.quarantined {
        let what = if quarantined.kept_at.is_some() { "quarantined" } else { "NOT MOVED AWAY:" };
        tell(&format!("zwinger: {what} {}", line(workspace, quarantined)));
    }
    show_unseen(settled);
}

fn show_unseen(settled: &Settled) {
    for unseen in &settled.unseen {
        complain(&format_args!("not all that the session left was looked at: {}", escape::line(unseen)));
    }
}

/// Names and reasons are the session's, so that all of it is escaped.
fn line(workspace: &Path, quarantined: &Quarantined) -> String {
    let Quarantined { path, kept_at, why } = quarantined;
    let shown = format!("{} ({})", escape::line(&path.to_string_lossy()), escape::line(why));
    match kept_at {
        None => format!("{shown}; look at it before you run anything in the workspace"),
        Some(kept_at) => {
            let [from, to] = [kept_at, &workspace.join(path)].map(|path| escape::word(path.as_os_str().as_bytes()));
            let kept_at = escape::line(&kept_at.to_string_lossy());
            format!("{shown}: kept at {kept_at}; to put it back: mv {from} {to}")
        }
    }
}

/// For programs; paths that are no UTF-8 are shown with a sign in place of what is not.
pub(crate) fn fields(settled: &Settled) -> Value {
    let quarantined = settled.quarantined.iter().map(|quarantined| {
        json!({
            "path": quarantined.path.to_string_lossy(),
            "kept_at": quarantined.kept_at.as_ref().map(|path| path.to_string_lossy()),
            "why": quarantined.why,
        })
    });
    quarantined.collect()
}

/// Ends a session of tools and shows what it left, which comes back for programs.
pub(crate) fn close(runtime: Runtime) -> Settled {
    let workspace = runtime.workspace().to_owned();
    let settled = runtime.close();
    show(&workspace, &settled);
    settled
}

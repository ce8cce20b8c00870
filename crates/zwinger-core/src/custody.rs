//! What of the kind that the host runs by itself a session leaves behind: looked for when it is over and moved to quarantine, for
//! every door in the same way.

use std::os::fd::BorrowedFd;
use std::path::Path;

use zwinger_sandbox::{Confinement, Journal, Journals, Settled, Surroundings};

use crate::gate::Authorized;
use crate::session::{State, StateError};

/// Of one session, from before anything of it runs until nothing does any more.
#[derive(Debug)]
pub struct Custody {
    journal: Journal,
    earlier: Settled,
}

impl Custody {
    /// Settles what earlier sessions left that were killed, in this workspace or in one around it, looks at the workspace and begins the journal of this session. Without
    /// a state directory, or where nothing can be written in it, what the session leaves is named at its end but not moved, and
    /// the surroundings say so.
    pub fn open(confinement: &Confinement, state: Result<&State, &StateError>) -> (Self, Surroundings) {
        let workspace = confinement.workspace();
        let mut earlier = Settled::default();
        let journals = state.map_err(ToString::to_string).and_then(|state| {
            // From the top down, as everyone does it: each waits for those that have a turn there.
            let above = settle_above(state, workspace, &mut earlier);
            let mut journals =
                Journals::open(&state.of_workspace(workspace), workspace).map_err(|error| error.to_string())?;
            add(&mut earlier, journals.settle(&stamp()).map_err(|error| error.to_string())?);
            Ok((journals, above))
        });
        // After that, so that what was moved is neither hidden nor kept as it was.
        let mut around = Surroundings::of(confinement);
        around.state = state.ok().map(|state| state.path().into());
        let begun = journals
            .and_then(|(journals, above)| journals.begin(&around.scan, &above).map_err(|error| error.to_string()));
        let journal = begun.unwrap_or_else(|error| {
            around.no_quarantine = Some(error);
            Journal::without_place(workspace, &around.scan)
        });
        (Self { journal, earlier }, around)
    }

    /// What was found of sessions that were killed.
    pub fn earlier(&self) -> &Settled {
        &self.earlier
    }

    /// The lock of the journal: whoever has it open counts as a part of the session that still runs.
    pub fn lock(&self) -> Option<BorrowedFd<'_>> {
        self.journal.lock()
    }

    /// Lets what a person saw and let be written stay, as long as nothing else changes it. Told before it is written, so that it
    /// stays also if zwinger is killed then. What cannot be told goes to quarantine and is shown, as all else does.
    pub(crate) fn heed(&self, authorized: Authorized) -> Authorized {
        if let Some((path, content)) = authorized.seen_write() {
            let _ = self.journal.approve(path, content.as_bytes());
        }
        authorized
    }

    /// Looks at the workspace again and moves what must not stay. To be called when nothing of the session runs any more; without
    /// it, the next session on this workspace does it.
    pub fn close(self) -> Settled {
        self.journal.close(&stamp())
    }
}

/// Settles what sessions left in the directories above, of which the workspace is a part.
fn settle_above(state: &State, workspace: &Path, earlier: &mut Settled) -> Vec<Journals> {
    let directories: Vec<&Path> = workspace.ancestors().skip(1).filter(|above| above.parent().is_some()).collect();
    let mut settled_above = Vec::new();
    for above in directories.into_iter().rev() {
        let found = Journals::find(&state.of_workspace(above), above);
        let settled = found.and_then(|found| {
            let settle = |mut journals: Journals| Ok::<_, std::io::Error>((journals.settle(&stamp())?, journals));
            found.map(settle).transpose()
        });
        match settled {
            Ok(None) => {}
            Ok(Some((mut settled, journals))) => {
                for quarantined in &mut settled.quarantined {
                    quarantined.path = above.join(&quarantined.path);
                }
                add(earlier, settled);
                settled_above.push(journals);
            }
            Err(error) => earlier.unseen.push(format!("what sessions in {} left: {error}", above.display())),
        }
    }
    settled_above
}

fn add(earlier: &mut Settled, settled: Settled) {
    earlier.quarantined.extend(settled.quarantined);
    earlier.unseen.extend(settled.unseen);
}

/// Names a directory in the quarantine: UTC, and this process.
fn stamp() -> String {
    format!("{}-{}", jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S.%3fZ"), std::process::id())
}

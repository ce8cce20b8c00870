//! Gets what was written to the disk, beside the path of the calls: within a second, and at the end.

use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How old an unsynced line may become.
const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Pending {
    is_dirty: bool,
    is_over: bool,
    /// Why a sync did not succeed; nothing may be permitted any more.
    failed: Option<String>,
}

/// The thread that syncs. Dropping it syncs for the last time.
#[derive(Debug)]
pub(super) struct Syncing {
    shared: Arc<(Mutex<Pending>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Syncing {
    pub(super) fn start(file: File) -> io::Result<Self> {
        let shared = Arc::new((Mutex::new(Pending::default()), Condvar::new()));
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("audit".into()).spawn(move || work(&file, &of_thread))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Something was written; or says what failed earlier.
    pub(super) fn written(&self) -> Result<(), String> {
        let mut pending = lock(&self.shared.0);
        pending.is_dirty = true;
        self.shared.1.notify_all();
        pending.failed.clone().map_or(Ok(()), Err)
    }
}

fn work(file: &File, (pending, changed): &(Mutex<Pending>, Condvar)) {
    let mut guard = lock(pending);
    loop {
        guard = changed
            .wait_while(guard, |pending| !pending.is_dirty && !pending.is_over)
            .unwrap_or_else(PoisonError::into_inner);
        // What comes within the interval goes with it.
        let waited = changed.wait_timeout_while(guard, INTERVAL, |pending| !pending.is_over);
        guard = waited.unwrap_or_else(PoisonError::into_inner).0;
        if std::mem::take(&mut guard.is_dirty) {
            drop(guard);
            let synced = file.sync_data();
            guard = lock(pending);
            if let Err(error) = synced {
                guard.failed = Some(error.to_string());
            }
        } else if guard.is_over {
            return;
        }
    }
}

fn lock(pending: &Mutex<Pending>) -> MutexGuard<'_, Pending> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Syncing {
    fn drop(&mut self) {
        lock(&self.shared.0).is_over = true;
        self.shared.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

//! A session of tools that SIGTERM or SIGHUP ends as its door does: the call that runs is stopped, and what is left is settled.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zwinger_core::output::Outcome;
use zwinger_core::sandbox::{EndSignals, Settled};
use zwinger_core::{Call, Cancel, During, Runtime};

use crate::{custody, end_of, terminal};

/// Its runtime, until somebody has closed it.
pub(crate) struct OpenSession {
    runtime: Arc<Mutex<Option<Runtime>>>,
    cancel: Cancel,
}

impl OpenSession {
    /// From now on the signals end the process by a thread of this.
    pub(crate) fn new(runtime: Runtime, signals: EndSignals) -> std::io::Result<Self> {
        let (runtime, cancel) = (Arc::new(Mutex::new(Some(runtime))), Cancel::default());
        let (closed, cancelled) = (Arc::clone(&runtime), cancel.clone());
        std::thread::Builder::new().name("signals".into()).spawn(move || end(&signals, closed, &cancelled))?;
        Ok(Self { runtime, cancel })
    }

    pub(crate) fn call(&self, call: &Call) -> Outcome {
        self.with(|runtime| runtime.call_with(call, During { cancel: Some(&self.cancel), live: None }))
    }

    /// Arguments that are no JSON.
    pub(crate) fn refuse_text(&self, tool: &str, text: &str, error: &dyn std::fmt::Display) -> Outcome {
        self.with(|runtime| runtime.refuse_text(tool, text, error))
    }

    fn with(&self, act: impl FnOnce(&Runtime) -> Outcome) -> Outcome {
        self.give_way();
        match &*lock(&self.runtime) {
            Some(runtime) => act(runtime),
            None => wait_for_the_end(),
        }
    }

    /// Once a signal has come, the session is the other thread's.
    fn give_way(&self) {
        if self.cancel.is_cancelled() {
            wait_for_the_end();
        }
    }

    /// Ends it and shows what it left.
    pub(crate) fn close(self) -> Settled {
        self.give_way();
        match lock(&self.runtime).take() {
            Some(runtime) => custody::close(runtime),
            None => wait_for_the_end(),
        }
    }
}

fn lock(runtime: &Mutex<Option<Runtime>>) -> MutexGuard<'_, Option<Runtime>> {
    runtime.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Another thread has the session, and ends the process.
fn wait_for_the_end() -> ! {
    loop {
        std::thread::park();
    }
}

/// Ends the process at a signal; at a second one without waiting.
fn end(signals: &EndSignals, runtime: Arc<Mutex<Option<Runtime>>>, cancel: &Cancel) {
    let Ok(signal) = signals.wait() else { return };
    let exit = move || std::process::exit(end_of(signal).into());
    cancel.cancel();
    let settle = move || {
        // The call that runs has it until it is stopped; whoever waits for a model or a key has not.
        if let Some(runtime) = lock(&runtime).take() {
            custody::close(runtime);
        }
        exit()
    };
    // Nobody may come to answer: what was left is settled by the next session.
    if terminal::is_asking() || std::thread::Builder::new().spawn(settle).is_err() || signals.wait().is_ok() {
        exit()
    }
}

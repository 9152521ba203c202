//! A thread of a volume's own. It decides when it begins: with the first work.

use penstock_base::{Error, Kind, Result};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// A thread that is started once.
#[derive(Default)]
pub(crate) struct Worker(Mutex<Option<JoinHandle<()>>>);

impl Worker {
    /// Starts the thread unless it is there.
    ///
    /// # Errors
    /// `Exhausted` where the system gives none.
    pub(crate) fn start(&self, name: &str, job: impl FnOnce() + Send + 'static) -> Result<()> {
        let mut thread = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let started = Builder::new().name(name.into()).spawn(job);
            *thread = Some(started.map_err(|error| {
                Error::new(Kind::Exhausted, error.to_string())
                    .with_operation("volume thread")
                    .with_hint("Raise the limit of threads")
            })?);
        }
        Ok(())
    }

    /// Waits for its end, if it ever began; the job has been told to end.
    pub(crate) fn join(&self) {
        let thread = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic there has been told already, and nobody waits for its work any more.
            let _ = thread.join();
        }
    }
}

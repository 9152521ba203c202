//! A thread of a volume's own. It decides when it begins: with the first work.

use penstock_base::{Error, Kind, Result};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// A thread that is started once.
#[derive(Default)]
pub(crate) struct Worker {
    thread: Mutex<Option<JoinHandle<()>>>,
    #[cfg(test)]
    is_barred: std::sync::atomic::AtomicBool,
}

impl Worker {
    /// Starts the thread unless it is there.
    ///
    /// # Errors
    /// `Exhausted` where the system gives none.
    pub(crate) fn start(&self, name: &str, job: impl FnOnce() + Send + 'static) -> Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let builder = Builder::new().name(name.into());
            #[cfg(test)]
            let builder = match self.is_barred.load(std::sync::atomic::Ordering::Acquire) {
                // More than there is of addresses.
                true => builder.stack_size(1 << 60),
                false => builder,
            };
            let started = builder.spawn(job);
            *thread = Some(started.map_err(|error| {
                Error::new(Kind::Exhausted, error.to_string())
                    .with_operation("volume thread")
                    .with_hint("Raise the limit of threads")
            })?);
        }
        Ok(())
    }

    /// Lets the system give no thread.
    #[cfg(test)]
    pub(crate) fn bar(&self) {
        self.is_barred.store(true, std::sync::atomic::Ordering::Release);
    }

    /// Waits for its end, if it ever began; the job has been told to end.
    pub(crate) fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic there has been told already, and nobody waits for its work any more.
            let _ = thread.join();
        }
    }
}

//! A flag that stops everything which awaits it.

use penstock_base::{Error, Kind, Result};
use std::future::Future;
use std::pin::pin;
use tokio::sync::watch;

/// Cancels once, for all who hold a clone.
#[derive(Clone, Debug)]
pub struct Cancellation(watch::Sender<bool>);

impl Default for Cancellation {
    fn default() -> Self {
        Cancellation(watch::Sender::new(false))
    }
}

impl Cancellation {
    /// Stops everything that waits on this flag, now and later.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Resolves when it is cancelled.
    pub async fn cancelled(&self) {
        let mut flag = self.0.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = flag.wait_for(|cancelled| *cancelled).await;
    }

    /// Runs `future` unless cancelled before it ends; then the future is dropped.
    ///
    /// # Errors
    /// The future's own, or `Cancelled`.
    pub async fn race<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        let stop = pin!(self.cancelled());
        let work = pin!(future);
        tokio::select! {
            biased;
            () = stop => Err(cancelled()),
            result = work => result,
        }
    }
}

/// The error of work that was stopped on request.
pub(crate) fn cancelled() -> Error {
    Error::new(Kind::Cancelled, "cancelled on request")
}

//! Background work that tidies up after uploads that were given up.

use crate::query::QueryCore;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::watch;

/// Counts the tidying that is still going on.
#[derive(Debug)]
pub(crate) struct Cleanups(watch::Sender<usize>);

impl Default for Cleanups {
    fn default() -> Self {
        Cleanups(watch::Sender::new(0))
    }
}

/// Counts one task, also when it panics or its runtime ends.
struct Running(watch::Sender<usize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}

impl Cleanups {
    /// Runs a task that [`Cleanups::finished`] waits for. Its requests count for the query.
    pub fn spawn(&self, query: &Arc<QueryCore>, task: impl Future<Output = ()> + Send + 'static) {
        self.0.send_modify(|running| *running += 1);
        let running = Running(self.0.clone());
        let scoped = query.scope.run(task);
        query.engine.handle.spawn(async move {
            let _running = running;
            scoped.await;
        });
    }

    /// Resolves when nothing is left to tidy up.
    pub async fn finished(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|running| *running == 0).await;
    }
}

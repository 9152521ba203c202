//! What comes from the store for files that are opened ahead.

use crate::request_log::Scope;
use penstock_base::Metric;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

tokio::task_local! {
    static ARRIVED: Arc<Arrived>;
}

/// Counts the bytes that come from the store ahead of reads, as they come.
#[derive(Debug)]
pub(super) struct Arrived {
    bytes: AtomicU64,
    scope: Arc<Scope>,
}

impl Arrived {
    /// Of a statement.
    pub fn of(scope: &Arc<Scope>) -> Arc<Self> {
        Arc::new(Arrived { bytes: AtomicU64::new(0), scope: Arc::clone(scope) })
    }

    /// Counts what comes while a future runs.
    pub fn during<F: Future>(
        self: &Arc<Self>,
        future: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        ARRIVED.scope(Arc::clone(self), future)
    }

    /// So far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Bytes have come; few of them are counted.
pub(super) fn count(bytes: u64) {
    let _ = ARRIVED.try_with(|arrived| {
        arrived.bytes.fetch_add(bytes, Ordering::Relaxed);
        arrived.scope.count(Metric::ReadAheadBytes, bytes);
    });
}

//! Bytes that a request brings ahead of reads: in vain, unless a read of any statement wants them.
//!
//! Several blocks may have a part in one request: the one that it is for, and those of other
//! statements that came with it, or were copied from where its bytes lay ready. What no read wanted
//! is known when the last of them is gone, and counted then, once.

use crate::read::ranges::Ranges;
use crate::request_log::Scope;
use penstock_base::{ByteRange, Metric};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The bytes of one request. Dropping it counts those in vain.
#[derive(Debug)]
pub(super) struct Debt {
    range: ByteRange,
    /// Bytes from the start on that have come.
    come_bytes: AtomicU64,
    used: Mutex<Ranges>,
    scope: Arc<Scope>,
}

impl Debt {
    /// They are asked for; nothing has come yet.
    pub fn new(range: ByteRange, scope: &Arc<Scope>) -> Arc<Self> {
        scope.count(Metric::ReadAheadBytes, range.len());
        let (come_bytes, used) = Default::default();
        Arc::new(Debt { range, come_bytes, used, scope: Arc::clone(scope) })
    }

    /// So many bytes have come by now.
    pub fn come(&self, bytes: u64) {
        self.come_bytes.store(bytes, Ordering::Relaxed);
    }

    /// A read wants these.
    pub fn used(&self, range: ByteRange) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).add(range);
    }
}

impl Drop for Debt {
    fn drop(&mut self) {
        let come_bytes = *self.come_bytes.get_mut();
        let come = ByteRange { end: self.range.start + come_bytes, ..self.range };
        let used = self.used.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.scope.count(Metric::ReadAheadWastedBytes, come_bytes - used.bytes_in(come));
    }
}

/// The debts that a block has a part in, until it is gone.
#[derive(Debug)]
pub(super) struct Debts(Mutex<Option<Vec<Arc<Debt>>>>);

impl Default for Debts {
    fn default() -> Self {
        Debts(Mutex::new(Some(Vec::new())))
    }
}

impl Debts {
    /// Takes a part in one more. The block may be gone already: then it is not its own any more.
    pub fn add(&self, debt: Arc<Debt>) {
        let surplus = match &mut *self.lock() {
            Some(debts) if debts.iter().any(|known| Arc::ptr_eq(known, &debt)) => Some(debt),
            Some(debts) => {
                debts.push(debt);
                None
            }
            None => Some(debt),
        };
        // Not under the lock, nor counted there.
        drop(surplus);
    }

    /// Those of bytes in a range.
    pub fn of(&self, range: ByteRange) -> Vec<Arc<Debt>> {
        let debts = self.lock();
        let debts = debts.iter().flatten().filter(|debt| debt.range.overlaps(&range));
        debts.cloned().collect()
    }

    /// The block is gone, of which reads wanted these bytes.
    pub fn settle(&self, used: &[ByteRange]) {
        let debts = self.lock().take();
        for debt in debts.into_iter().flatten() {
            used.iter().for_each(|range| debt.used(*range));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Arc<Debt>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_log::{EngineObserver, RequestLog};
    use penstock_base::Metrics;

    const RANGE: ByteRange = ByteRange { start: 100, end: 200 };

    fn scope() -> (Arc<Metrics>, Arc<Scope>) {
        let metrics: Arc<Metrics> = Arc::default();
        let engine = Arc::new(EngineObserver::new(Arc::clone(&metrics), 0));
        let (metrics_of, log) = (Arc::default(), RequestLog::new(0));
        let scope = Scope::new(0, metrics_of, log, engine);
        (metrics, scope)
    }

    #[test]
    fn what_any_block_used_is_not_in_vain_and_the_rest_is_counted_once() {
        let (metrics, scope) = scope();
        let wasted = || metrics.get(Metric::ReadAheadWastedBytes);
        let debt = Debt::new(RANGE, &scope);
        let (mine, theirs) = (Debts::default(), Debts::default());
        mine.add(debt);
        mine.of(RANGE).into_iter().for_each(|debt| {
            debt.come(80);
            theirs.add(Arc::clone(&debt));
            // It came in two parts.
            theirs.add(debt);
            assert_eq!(theirs.of(RANGE).len(), 1);
        });
        mine.settle(&[ByteRange { start: 0, end: 120 }]);
        assert_eq!(wasted(), 0, "the other one may want more");
        theirs.settle(&[ByteRange { start: 110, end: 150 }, ByteRange { start: 170, end: 400 }]);
        assert_eq!(wasted(), 20);
        // Whoever is gone takes part in nothing.
        let late = Debt::new(RANGE, &scope);
        late.come(7);
        mine.add(late);
        assert_eq!(wasted(), 27);
    }
}

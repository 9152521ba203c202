//! How many requests of one store may run for reads that have not come yet.
//!
//! Connections are given first come, first served, and a request that nobody reads keeps its own
//! until it is taken over. So those ahead of reads have half of `connections_per_host` at most, all
//! runs and scans together, and none where there is only one: a read on demand never waits for
//! them alone. Small blocks of a reader that goes front to back do not count: two at most, which
//! end by themselves.

use crate::location::Mount;
use penstock_base::Settings;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The requests of a store that run ahead of reads.
#[derive(Debug, Default)]
pub(crate) struct Spare(AtomicUsize);

/// One of them; dropping it makes room for another one.
#[derive(Debug)]
pub(crate) struct SpareSlot(Arc<Mount>);

impl Spare {
    /// How many more may begin.
    pub fn free(&self, settings: &Settings) -> usize {
        most(settings).saturating_sub(self.0.load(Ordering::Relaxed))
    }

    /// Room for one of a mount's, if there is any.
    pub fn take(mount: &Arc<Mount>, settings: &Settings) -> Option<SpareSlot> {
        let most = most(settings);
        let add = |count: usize| (count < most).then_some(count + 1);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let taken = mount.spare.0.fetch_update(set, fetch, add).is_ok();
        taken.then(|| SpareSlot(Arc::clone(mount)))
    }
}

impl Drop for SpareSlot {
    fn drop(&mut self) {
        self.0.spare.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn most(settings: &Settings) -> usize {
    usize::try_from(settings.connections_per_host / 2).unwrap_or(usize::MAX)
}

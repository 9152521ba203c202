//! A block that is fetched ahead of its readers: its request, its bytes, what was used of it.

use crate::budget::Lease;
use crate::cache::CachedObject;
use crate::cause::Cause;
use crate::location::Location;
use crate::query::QueryCore;
use crate::read::debt::Debts;
use crate::read::flight::{Listed, Progress, Wanted};
use crate::read::flow::Flow;
use crate::read::held::Piece;
use crate::read::ranges::Ranges;
use crate::read::ready::copy_held;
use crate::read::room::Room;
use crate::read::spare::SpareSlot;
use crate::read::version::Version;
use penstock_base::{ByteRange, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// A block on its way or ready. Dropping it stops its request.
#[derive(Debug)]
pub(super) struct Block {
    pub range: ByteRange,
    arrival: watch::Receiver<Arrival>,
    task: AbortHandle,
    /// With the task while the request runs, with the bytes afterwards.
    lease: Weak<Lease>,
    /// Bytes of it that have come over the network: none where the cache had them.
    come_bytes: Arc<AtomicU64>,
    /// What of it reads wanted, and how many bytes that is.
    used: Mutex<Ranges>,
    used_bytes: AtomicU64,
    /// What its bytes cost, and who may still want them.
    debts: Arc<Debts>,
    _listed: Listed,
}

/// How a block's request went.
#[derive(Clone, Debug, Default)]
enum Arrival {
    #[default]
    Pending,
    Ready(Piece),
    /// The caches have it, as far as they took it.
    Cached,
    /// The read that needs the bytes asks for them itself, and tells its own error.
    Failed,
}

impl Drop for Block {
    fn drop(&mut self) {
        // Before the task is stopped: it ends on another thread, and gives its memory back there.
        self.let_go();
        self.task.abort();
        // Of one that failed whoever wanted it asked again.
        let is_failed = matches!(*self.arrival.borrow(), Arrival::Failed);
        let used = self.used.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.debts.settle(if is_failed { &[] } else { used.all() });
    }
}

impl Block {
    /// Takes note that a read wants what of it lies in this range.
    pub fn used(&self, range: ByteRange) {
        if let Some(shared) = self.shared(range) {
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            let new_bytes = used.add(shared);
            let used_bytes = self.used_bytes.fetch_add(new_bytes, Ordering::Relaxed) + new_bytes;
            drop(used);
            if used_bytes >= self.range.len()
                && let Some(lease) = self.lease.upgrade()
            {
                lease.set_wanted();
            }
        }
    }

    fn shared(&self, range: ByteRange) -> Option<ByteRange> {
        let (start, end) = (self.range.start.max(range.start), self.range.end.min(range.end));
        (start < end).then_some(ByteRange { start, end })
    }

    /// How many bytes of this range it has, here or on their way.
    pub fn shared_bytes(&self, range: ByteRange) -> u64 {
        self.range.shared_bytes(&range)
    }

    /// Bytes that have come over the network.
    pub fn come_bytes(&self) -> u64 {
        self.come_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that no read has wanted yet.
    pub fn unused_bytes(&self) -> u64 {
        self.range.len().saturating_sub(self.used_bytes.load(Ordering::Relaxed))
    }

    /// Bytes that no read has wanted yet. Those of a request that runs do not count once they have
    /// come: they are not on the link any more, and no reader can take them.
    pub fn to_come_bytes(&self) -> u64 {
        let come_bytes = if self.is_pending() { self.come_bytes() } else { 0 };
        self.unused_bytes().min(self.range.len().saturating_sub(come_bytes))
    }

    /// Bytes of it that have come over the network and that no read wanted: in vain, if it were
    /// dropped now.
    pub fn in_vain_bytes(&self) -> u64 {
        let come_bytes = self.come_bytes();
        match &*self.arrival.borrow() {
            Arrival::Ready(_) | Arrival::Cached => come_bytes.min(self.unused_bytes()),
            // What has come of a request that is stopped here is what it begins with.
            Arrival::Pending => {
                let come = ByteRange { end: self.range.start + come_bytes, ..self.range };
                let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
                come_bytes - used.bytes_in(come)
            }
            // Whoever wanted it asked again.
            Arrival::Failed => come_bytes,
        }
    }

    /// Says that its memory comes back, as soon as its task is gone or those who read it are done.
    pub fn let_go(&self) {
        if let Some(lease) = self.lease.upgrade() {
            lease.set_returning();
        }
    }

    /// Memory that it holds.
    pub fn leased_bytes(&self) -> u64 {
        self.lease.upgrade().map_or(0, |lease| lease.bytes())
    }

    /// What its bytes cost.
    pub fn debts(&self) -> &Debts {
        &self.debts
    }

    /// Its bytes, if they are here.
    pub fn piece(&self) -> Option<Piece> {
        match &*self.arrival.borrow() {
            Arrival::Ready(piece) => Some(piece.clone()),
            _ => None,
        }
    }

    /// Whether its request runs.
    pub fn is_pending(&self) -> bool {
        matches!(*self.arrival.borrow(), Arrival::Pending)
    }

    /// Its bytes; `None` when its request failed.
    pub async fn arrived(&self) -> Option<Piece> {
        let mut arrival = self.arrival.clone();
        match arrival.wait_for(|arrival| !matches!(arrival, Arrival::Pending)).await.as_deref() {
            Ok(Arrival::Ready(piece)) => Some(piece.clone()),
            _ => None,
        }
    }
}

/// What a block is fetched from.
pub(crate) struct Source<'a> {
    pub query: &'a Arc<QueryCore>,
    pub at: &'a Location,
    pub version: &'a Version,
    pub size_bytes: u64,
}

/// What a block is fetched for.
pub(super) enum Purpose {
    /// A reader that goes front to back.
    Reader,
    Scan(Scanning),
    /// Who asks the caches; the block holds nothing once it has come.
    Caches(SpareSlot),
}

/// The scan that a block is fetched for.
pub(super) struct Scanning {
    pub slot: SpareSlot,
    /// Learns from the request how fast the store is.
    pub flow: Arc<Flow>,
    /// The files of it.
    pub files: u64,
}

/// Notes what has come of a block, and asks for more as there is room.
struct Coming {
    bytes: Arc<AtomicU64>,
    flow: Arc<Flow>,
    query: Arc<QueryCore>,
    files: u64,
}

impl Coming {
    fn pull(&self) {
        self.query.neighbours.pull(&self.query, self.files);
    }
}

impl Progress for Coming {
    fn arrived(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.flow.come(bytes) {
            self.pull();
        }
    }

    fn copied(&self, bytes: u64) {
        self.arrived(bytes);
    }
}

/// Notes what has come of a block that no scan wants.
struct Come(Arc<AtomicU64>);

impl Progress for Come {
    fn arrived(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn copied(&self, bytes: u64) {
        self.arrived(bytes);
    }
}

/// Begins the request of a block.
pub(super) fn fetch(
    source: &Source<'_>,
    range: ByteRange,
    lease: Lease,
    purpose: Purpose,
) -> Arc<Block> {
    let (query, at) = (Arc::clone(source.query), source.at.clone());
    let version = source.version.clone();
    let (told, arrival) = watch::channel(Arrival::Pending);
    let scope = Arc::clone(&query.scope);
    let come_bytes = Arc::new(AtomicU64::new(0));
    let (scan, slot) = match purpose {
        Purpose::Reader => (None, None),
        Purpose::Scan(scan) => (Some(scan), None),
        Purpose::Caches(slot) => (None, Some(slot)),
    };
    let scan = scan.map(|Scanning { slot, flow, files }| {
        let (bytes, query) = (Arc::clone(&come_bytes), Arc::clone(&query));
        (flow.begin(), slot, Coming { bytes, flow, query, files })
    });
    let come = Come(Arc::clone(&come_bytes));
    let lease = Arc::new(lease);
    let shared = Arc::downgrade(&lease);
    let debts: Arc<Debts> = Arc::default();
    let costs = Arc::clone(&debts);
    let task = query.engine.handle.clone().spawn(scope.run_for(Cause::Ahead, async move {
        let progress = scan.as_ref().map_or(&come as &dyn Progress, |(.., coming)| coming);
        let bytes =
            query.cancel.race(fetch_bytes(&query, (&at, &version), range, progress, &costs)).await;
        let is_here = bytes.is_ok();
        let arrival = match bytes {
            Ok(_) if slot.is_some() => Arrival::Cached,
            Ok(bytes) => Arrival::Ready(Piece::new(range.start, bytes, lease)),
            Err(_) => Arrival::Failed,
        };
        // The reader may be gone.
        let _ = told.send(arrival);
        if let Some((running, slot, coming)) = scan {
            if is_here {
                coming.flow.end(&running);
            }
            // There is room for another one.
            drop(slot);
            coming.pull();
        }
    }));
    let task = task.abort_handle();
    let (used, used_bytes) = Default::default();
    Arc::new_cyclic(|block: &Weak<Block>| {
        let flights = &source.query.engine.flights;
        let listed = flights.list(source.query, source.at.id(), source.version, Weak::clone(block));
        let lease = shared;
        Block { range, arrival, task, lease, come_bytes, used, used_bytes, debts, _listed: listed }
    })
}

async fn fetch_bytes(
    query: &Arc<QueryCore>,
    (at, version): (&Location, &Version),
    range: ByteRange,
    progress: &dyn Progress,
    debts: &Debts,
) -> Result<bytes::Bytes> {
    let cached = CachedObject::of(query, at, version);
    if let Some(cached) = &cached
        && let Some(bytes) = cached.fetch(query, range).await
    {
        return Ok(bytes);
    }
    let cached = cached.as_ref();
    let (progress, debts) = (Some(progress), Some(debts));
    let wanted = Wanted { query, at, version, cached, meta: None, progress, debts };
    let mut bytes = Room::of(range.len());
    wanted.fetch(&mut bytes, range, None).await?;
    Ok(bytes.freeze())
}

/// Fills `buf` from a block, or from the store where that failed; true where it held nothing up.
pub(super) async fn copy_ahead(
    wanted: Wanted<'_>,
    block: Arc<Block>,
    buf: &mut [u8],
    range: ByteRange,
) -> Result<bool> {
    let is_here = !block.is_pending();
    let Some(piece) = block.arrived().await else {
        return wanted.fetch(buf, range, None).await.map(|_| false);
    };
    copy_held(buf, range.start, &piece);
    wanted.progress.inspect(|progress| progress.copied(range.len()));
    Ok(is_here)
}

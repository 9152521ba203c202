//! Whole objects, from servers that serve nothing else: in memory while a reader has them, within
//! `memory_limit_bytes` together with everything else.

use crate::location::Location;
use crate::query::QueryCore;
use crate::read::held::Held;
use crate::read::stream::Stream;
use crate::read::version::{Version, changed};
use penstock_base::{Error, Kind, Result};
use penstock_store::{GetRange, ObjectMeta};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use tokio::sync::Mutex;

/// Those that stay with their query take at most this part of the memory limit.
const KEPT_OF_LIMIT: u64 = 8;
/// Of an object without a known size, so much more memory is taken at once: a quarter of what has
/// come, within these bounds.
const STEP_BYTES_MIN: u64 = 64 << 10;
const STEP_BYTES_MAX: u64 = 64 << 20;

/// A whole object that a query opened.
#[derive(Debug)]
pub(super) struct Whole(Mutex<Slot>);

#[derive(Debug)]
struct Slot {
    /// For the first reader; or, as long as the query, for all.
    here: Option<Arc<Held>>,
    /// So it is with a small one: DuckDB closes files while it finds out what is in them, and opens
    /// them again.
    stays: bool,
    /// The other ones share it, as long as one of them is open.
    last: Weak<Held>,
}

impl Whole {
    /// Fetches an object.
    ///
    /// # Errors
    /// `Exhausted` when there is no memory for it; else as a GET's.
    pub async fn fetch(query: &Arc<QueryCore>, at: &Location) -> Result<(ObjectMeta, Self)> {
        let (meta, held) = fetch(query, at).await?;
        let stays = keeps(query, meta.size_bytes.unwrap_or_default());
        let last = Arc::downgrade(&held);
        Ok((meta, Whole(Mutex::new(Slot { here: Some(held), stays, last }))))
    }

    /// Its bytes; where its readers are gone and it with them, they are fetched again.
    ///
    /// # Errors
    /// `Conflict` when it is another version by then; as [`Whole::fetch`].
    pub async fn held(
        &self,
        query: &Arc<QueryCore>,
        at: &Location,
        meta: &ObjectMeta,
    ) -> Result<Arc<Held>> {
        let mut slot = self.0.lock().await;
        let here = if slot.stays { slot.here.clone() } else { slot.here.take() };
        if let Some(held) = here.or_else(|| slot.last.upgrade()) {
            return Ok(held);
        }
        let (answered, held) = fetch(query, at).await?;
        if !Version::of(meta).matches(&answered) {
            query.forget(at);
            return Err(changed(at.url()));
        }
        slot.last = Arc::downgrade(&held);
        Ok(held)
    }
}

/// Whether an object stays in memory with its query, with the others of which that was said.
fn keeps(query: &QueryCore, size_bytes: u64) -> bool {
    let limit = query.engine.budget.limit_bytes();
    let add = |kept: u64| Some(kept + size_bytes).filter(|kept| *kept <= limit / KEPT_OF_LIMIT);
    let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
    query.whole_bytes.fetch_update(set, fetch, add).is_ok()
}

async fn fetch(query: &Arc<QueryCore>, at: &Location) -> Result<(ObjectMeta, Arc<Held>)> {
    let mut stream = Stream::start(query, at, GetRange::All).await?;
    let budget = &query.engine.budget;
    let limit = budget.limit_bytes();
    let size = Some(stream.range()).filter(|range| range.end != u64::MAX).map(|range| range.len());
    let mut lease = budget.lease_now(0);
    let mut bytes = Vec::new();
    let mut filled = 0;
    loop {
        let come = filled as u64;
        let step = match size {
            Some(size) => size - come,
            None => (come / 4).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX),
        };
        if size.is_some_and(|size| size > limit) || (size.is_none() && come == limit) {
            return Err(no_room(at, "memory_limit_bytes"));
        }
        let step = step.min(limit - come);
        let more = budget.lease_within(step).await;
        lease.join(more.ok_or_else(|| no_room(at, "what is free of memory_limit_bytes"))?);
        let room = usize::try_from(step).unwrap_or(usize::MAX);
        bytes.reserve_exact(room);
        bytes.resize(filled + room, 0);
        while filled < bytes.len() {
            match stream.read_some(&mut bytes[filled..]).await? {
                0 => break,
                count => filled += count,
            }
        }
        if filled < bytes.len() || size.is_some() {
            break;
        }
    }
    bytes.truncate(filled);
    bytes.shrink_to_fit();
    lease.shrink(filled as u64);
    let meta = ObjectMeta { size_bytes: Some(filled as u64), ..stream.meta().clone() };
    Ok((meta, Arc::new(Held::whole(bytes.into(), lease))))
}

fn no_room(at: &Location, limit: &str) -> Error {
    let why = format!("the server does not serve ranges, and the object does not fit into {limit}");
    Error::new(Kind::Exhausted, why).with_operation("GET").with_object(at.url()).with_hint(
        "Raise memory_limit_bytes, read fewer such objects at once, copy them to a store with \
             ranges, or download them",
    )
}

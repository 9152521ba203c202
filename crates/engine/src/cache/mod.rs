//! Bytes of objects kept from one query, and one process, to the next.
//!
//! There are two: a disk, and memory for what DuckDB does not keep itself. Cached is what was read,
//! by where the object really is and its strong ETag: another version is another object, so nothing
//! has to be thrown away when one changes. Objects without such a tag, and local ones, are not
//! cached.

mod changes;
mod disk;
mod files;
mod holdings;
mod home;
mod host;
mod index;
mod marks;
mod medium;
mod memory;
mod object;
mod outdated;
mod piece;
mod record;
mod region;
mod room;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use changes::NOTING_MAX;
pub(crate) use disk::DiskCache;
pub use holdings::CacheEntry;
pub(crate) use home::Home;
pub use host::IsKept;
pub(crate) use host::{HostCache, HostVersions};
pub(crate) use memory::MemoryCache;
pub(crate) use object::{CachedBlock, CachedObject, name_in_cache};
pub(crate) use piece::Piece;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use record::fuzz as fuzz_record;
pub use region::{CacheDevice, format_device, look_at_device};

use penstock_base::{Error, Kind, Metrics, Result, Settings};
use std::collections::HashSet;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A cache that somebody else has is tried again after so long.
const BUSY: Duration = Duration::from_secs(5);

/// The disk cache that an engine keeps open from one query to the next: the one that the query
/// asked for which began last. A query that asked for another one keeps that to its own end.
#[derive(Debug, Default)]
pub(crate) struct DiskSlot {
    queries: AtomicU64,
    used: Mutex<Option<Used>>,
    /// Those that somebody else has, of which that was said.
    told: Mutex<HashSet<String>>,
}

#[derive(Debug)]
struct Used {
    dir: String,
    capacity_bytes: u64,
    cache: Option<Arc<DiskCache>>,
    /// Since when somebody else is known to have it, and queries go without.
    busy_since: Option<Instant>,
    /// The query that asked for it.
    number: u64,
}

impl DiskSlot {
    /// Numbers the queries of the engine, from 1.
    pub fn query_begins(&self) -> u64 {
        self.queries.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The cache that the settings of the query of this number ask for; opened when they ask for
    /// another one than is kept open. `metrics` are the engine's. None of one that somebody else
    /// has, which is said once: reading needs no cache.
    ///
    /// # Errors
    /// As [`DiskCache::open`] otherwise.
    pub fn of(
        &self,
        settings: &Settings,
        number: u64,
        metrics: &Arc<Metrics>,
    ) -> Result<Option<Arc<DiskCache>>> {
        let mut slot = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let (dir, capacity_bytes) = (&settings.cache_dir, settings.cache_disk_bytes);
        if dir.is_empty() && slot.is_none() {
            return Ok(None);
        }
        // How large it is says who began last, too. One whose directory was removed is opened anew.
        let is_same = |used: &&mut Used| {
            used.dir == *dir
                && (used.capacity_bytes == capacity_bytes || used.number > number)
                && used.cache.as_ref().is_none_or(|cache| cache.is_held())
                && used.busy_since.is_none_or(|since| since.elapsed() < BUSY)
        };
        if let Some(used) = slot.as_mut().filter(is_same) {
            used.number = used.number.max(number);
            return Ok(used.cache.clone());
        }
        let opened = match dir.as_str() {
            "" => Ok(None),
            _ => DiskCache::open(&Home::of(settings)?, capacity_bytes, metrics).map(Some),
        };
        let (wanted, busy_since) = match opened {
            Err(error) if error.kind() == Kind::Conflict => {
                self.say_once(dir, &error);
                (None, Some(Instant::now()))
            }
            opened => (opened?, None),
        };
        let mut before = None;
        if slot.as_ref().is_none_or(|used| used.number <= number) {
            let (dir, cache) = (dir.clone(), wanted.clone());
            before = slot.replace(Used { dir, capacity_bytes, cache, busy_since, number });
        }
        drop(slot);
        // The last to use it waits for its blocks to be written.
        drop(before);
        Ok(wanted)
    }

    /// On stderr, since no statement fails for it.
    fn say_once(&self, dir: &str, error: &Error) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert(dir.to_string()) {
            // Who closed stderr wants to hear nothing.
            let _ = writeln!(std::io::stderr(), "penstock: reading without disk cache: {error}");
        }
    }
}

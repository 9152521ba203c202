//! Bytes of objects kept from one query, and one process, to the next.
//!
//! There are two: a disk, and memory for what DuckDB does not keep itself. Cached is what was read,
//! by where the object really is and its strong ETag: another version is another object, so nothing
//! has to be thrown away when one changes. Objects without such a tag, and local ones, are not
//! cached.

mod disk;
mod files;
mod holdings;
mod home;
mod index;
mod medium;
mod memory;
mod object;
mod record;
mod region;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use disk::DiskCache;
pub use holdings::CacheEntry;
pub(crate) use home::Home;
pub(crate) use memory::MemoryCache;
pub(crate) use object::{CachedBlock, CachedObject};
pub use region::{CacheDevice, format_device, look_at_device};

use penstock_base::{Result, Settings};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The disk cache that an engine uses now.
#[derive(Debug, Default)]
pub(crate) struct DiskSlot(Mutex<Option<Used>>);

#[derive(Debug)]
struct Used {
    dir: String,
    capacity_bytes: u64,
    cache: Arc<DiskCache>,
}

impl DiskSlot {
    /// The cache that the settings ask for; opened when they ask for another one than before.
    ///
    /// # Errors
    /// As [`DiskCache::open`].
    pub fn of(&self, settings: &Settings) -> Result<Option<Arc<DiskCache>>> {
        let mut slot = self.lock();
        let (dir, capacity_bytes) = (&settings.cache_dir, settings.cache_disk_bytes);
        let is_same = |used: &&mut Used| used.dir == *dir && used.capacity_bytes == capacity_bytes;
        if let Some(used) = slot.as_mut().filter(is_same) {
            return Ok(Some(Arc::clone(&used.cache)));
        }
        if dir.is_empty() && slot.is_none() {
            return Ok(None);
        }
        let wanted = match dir.as_str() {
            "" => None,
            dir => Some(DiskCache::open(&Home::of(dir)?, capacity_bytes)?),
        };
        let used = wanted.as_ref().map(|cache| Used {
            dir: dir.clone(),
            capacity_bytes,
            cache: Arc::clone(cache),
        });
        let before = std::mem::replace(&mut *slot, used);
        drop(slot);
        // The last to use it waits for its blocks to be written.
        drop(before);
        Ok(wanted)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Used>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

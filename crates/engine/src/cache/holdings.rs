//! What the caches hold, for people to look at.

use crate::cache::DiskCache;
use crate::cache::index::ObjectVersion;
use crate::engine::Engine;
use penstock_store::ObjectMeta;

/// One version of an object in one cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheEntry {
    /// `metadata` (size and ETag in memory) or `disk` (bytes).
    pub cache: &'static str,
    /// Its URL; of the disk the one that the store really has, endpoint and all.
    pub object: String,
    /// Its version; empty where the store has none.
    pub etag: String,
    /// Its size, where that is known.
    pub size_bytes: Option<u64>,
    /// Bytes of it that are kept.
    pub cached_bytes: u64,
    /// In so many runs.
    pub blocks: u64,
}

impl Engine {
    /// Everything that is remembered of objects, in no order.
    pub fn cache_entries(&self) -> Vec<CacheEntry> {
        let mut entries = Vec::new();
        self.metadata.each(|name, meta| entries.push(remembered(name, meta)));
        if let Some(disk) = self.disk.now() {
            entries.extend(on_disk(&disk));
        }
        entries
    }
}

fn remembered(name: &str, meta: &ObjectMeta) -> CacheEntry {
    CacheEntry {
        cache: "metadata",
        object: name.to_string(),
        etag: meta.etag.as_ref().map_or_else(String::new, |etag| etag.0.clone()),
        size_bytes: meta.size_bytes,
        cached_bytes: 0,
        blocks: 0,
    }
}

fn on_disk(disk: &DiskCache) -> Vec<CacheEntry> {
    let entry = |(version, blocks, cached_bytes): (ObjectVersion, u64, u64)| CacheEntry {
        cache: "disk",
        object: version.name.to_string(),
        etag: version.etag.to_string(),
        size_bytes: Some(version.size_bytes),
        cached_bytes,
        blocks,
    };
    disk.objects().into_iter().map(entry).collect()
}

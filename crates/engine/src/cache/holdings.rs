//! What the caches hold, for people to look at.

use crate::cache::index::ObjectVersion;
use crate::names::Turned;
use crate::query::Query;
use crate::read::Shown;
use crate::spellings::Spellings;
use penstock_base::{Result, redact};
use penstock_store::ObjectMeta;

/// One version of an object in one cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheEntry {
    /// `metadata` (size and ETag in memory), `listing` (names), `opened` (bytes in memory that came
    /// with the request that opened it, footers above all), `memory` or `disk` (bytes).
    pub cache: &'static str,
    /// Its URL as its user spelt it, where this process has used its store; else as `object`.
    pub url: String,
    /// The URL that it really has, endpoint and all; of a listing what its names begin with.
    pub object: String,
    /// Its version; empty where the store has none.
    pub etag: String,
    /// Its size, where that is known.
    pub size_bytes: Option<u64>,
    /// Bytes of it that are kept.
    pub cached_bytes: u64,
    /// In so many runs, pieces or pages.
    pub blocks: u64,
}

impl Query {
    /// Everything that is remembered of objects, in no order.
    ///
    /// # Errors
    /// `Invalid` when the disk cache cannot be used; `Unsupported` in a forked child, whose parent
    /// it is that has a cache.
    pub fn cache_entries(&self) -> Result<Vec<CacheEntry>> {
        self.engine().refuse_child()?;
        let disk = self.core.disk()?;
        let mut entries = Vec::new();
        self.engine().metadata.each(|name, meta| entries.push(remembered(name, meta)));
        self.engine().kept_listings.each(|listing| entries.push(listed(listing)));
        entries.extend(self.engine().held.objects().into_iter().map(opened));
        let memory = self.engine().memory.objects();
        entries.extend(memory.into_iter().map(|object| kept("memory", object)));
        if let Some(disk) = disk {
            entries.extend(disk.objects().into_iter().map(|object| kept("disk", object)));
        }
        let spellings = Spellings::of(&self.engine().mounts);
        entries.iter_mut().for_each(|entry| entry.url = spellings.url(&entry.object));
        Ok(entries)
    }

    /// Forgets remembered metadata and bytes, also those of the disk cache.
    ///
    /// # Errors
    /// `Invalid` when the disk cache cannot be used; what is in memory is forgotten. `Unsupported`
    /// in a forked child: it would remove its parent's files.
    pub fn clear_cache(&self) -> Result<()> {
        self.engine().refuse_child()?;
        self.engine().clear_cache();
        if let Some(disk) = self.core.disk()? {
            disk.clear();
        }
        Ok(())
    }
}

fn remembered(name: &str, meta: &ObjectMeta) -> CacheEntry {
    CacheEntry {
        cache: "metadata",
        url: String::new(),
        object: redact::url(name).into_owned(),
        etag: meta.etag.as_ref().map_or_else(String::new, |etag| etag.0.clone()),
        size_bytes: meta.size_bytes,
        cached_bytes: 0,
        blocks: 0,
    }
}

fn listed(listing: &Turned) -> CacheEntry {
    let (blocks, cached_bytes) = listing.held();
    CacheEntry {
        cache: "listing",
        url: String::new(),
        object: redact::url(&listing.key.below).into_owned(),
        etag: String::new(),
        size_bytes: None,
        cached_bytes,
        blocks,
    }
}

fn opened(shown: Shown) -> CacheEntry {
    CacheEntry {
        cache: "opened",
        url: String::new(),
        object: redact::url(&shown.name).into_owned(),
        etag: shown.version.etag.map_or_else(String::new, |etag| etag.0),
        size_bytes: shown.version.size_bytes,
        cached_bytes: shown.bytes,
        blocks: shown.pieces,
    }
}

fn kept(
    cache: &'static str,
    (version, blocks, cached_bytes): (ObjectVersion, u64, u64),
) -> CacheEntry {
    CacheEntry {
        cache,
        url: String::new(),
        object: version.name.to_string(),
        etag: version.etag.to_string(),
        size_bytes: Some(version.size_bytes),
        cached_bytes,
        blocks,
    }
}

//! One version of an object as its readers see the cache.

use crate::cache::disk::DiskCache;
use crate::cache::index::{Found, ObjectVersion, Place};
use crate::cache::memory::MemoryCache;
use crate::cache::piece::Piece;
use crate::location::Location;
use crate::query::QueryCore;
use crate::read::{Version, copy_into};
use bytes::Bytes;
use penstock_base::{ByteRange, Metric, redact};
use penstock_device::populate;
use penstock_store::{ETag, ObjectMeta};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tokio::time::Instant;

/// Bytes are given to the disk in pieces of so many: few enough for any memory limit.
const PIECE_BYTES: u64 = 4 << 20;

/// A version of an object that may be cached.
#[derive(Clone, Debug)]
pub(crate) struct CachedObject {
    /// At least one of the two is there.
    disk: Option<Arc<DiskCache>>,
    memory: Option<Arc<MemoryCache>>,
    /// The host may keep this version in memory of its own.
    host_takes: bool,
    version: ObjectVersion,
    at: Location,
}

/// A cached block that a read overlaps.
#[derive(Debug)]
pub(crate) struct CachedBlock(Found);

impl CachedBlock {
    /// Its bytes in the object.
    pub fn range(&self) -> ByteRange {
        self.0.block
    }

    /// Bytes of it without a copy, where they are in memory.
    fn shared(&self, range: ByteRange) -> Option<Bytes> {
        let Place::Queued(bytes) = &self.0.place else { return None };
        let part = |at: u64| usize::try_from(at - self.0.block.start).unwrap_or(usize::MAX);
        self.0.block.contains(&range).then(|| bytes.slice(part(range.start)..part(range.end)))
    }

    /// So many bytes of it were read.
    fn count(&self, query: &QueryCore, read_bytes: u64) {
        let (hits, bytes) = match &self.0.place {
            Place::Queued(_) => (Metric::CacheMemoryHits, Metric::CacheMemoryBytesRead),
            Place::File { .. } => (Metric::CacheDiskHits, Metric::CacheDiskBytesRead),
        };
        query.scope.count(hits, 1);
        query.scope.count(bytes, read_bytes);
        query.scope.count(Metric::CacheHits, 1);
        query.scope.count(Metric::CacheBytesRead, read_bytes);
    }
}

impl CachedObject {
    /// As a query's settings have it. `None` for what is not cached: objects without a size and a
    /// strong ETag, which alone promise equal bytes (RFC 9110 section 8.8.1), and objects that are
    /// near already.
    pub fn of(query: &QueryCore, at: &Location, version: &Version) -> Option<Self> {
        // Opening the object told the error of a cache that cannot be used.
        let disk = query.disk().ok().flatten();
        let memory = &query.engine.memory;
        let memory = memory.is_on().then(|| Arc::clone(memory));
        if disk.is_none() && memory.is_none() {
            return None;
        }
        // A version that the host is not told it does not keep.
        let takes = || query.engine.host_versions.takes(|| at.url(), version);
        let host_takes = memory.is_some() && takes();
        let version = version_of(at, version)?;
        Some(CachedObject { disk, memory, host_takes, version, at: at.clone() })
    }

    /// Whether all of a range is cached: fetching it ahead of its reads would read it twice.
    pub fn has(query: &QueryCore, at: &Location, version: &Version, range: ByteRange) -> bool {
        CachedObject::of(query, at, version).is_some_and(|cached| cached.covers(range))
    }

    /// Size and tag of the version of an object that was cached last, and whether nothing is known
    /// against taking it for the object.
    pub fn latest(query: &QueryCore, at: &Location) -> Option<(ObjectMeta, bool)> {
        let disk = query.disk().ok().flatten()?;
        let (version, is_present) = disk.latest(&name_in_cache(at)?)?;
        let meta = ObjectMeta {
            size_bytes: Some(version.size_bytes),
            etag: Some(ETag(version.etag.to_string())),
            ..ObjectMeta::default()
        };
        Some((meta, is_present))
    }

    /// How much the larger of the caches that keep it holds.
    pub fn capacity_bytes(&self) -> u64 {
        let memory = self.memory.as_ref().map_or(0, |memory| memory.capacity_bytes());
        let disk = self.disk.as_ref().map_or(0, |disk| disk.capacity_bytes());
        memory.max(disk)
    }

    /// How many bytes of a range are cached, at least.
    pub fn cached_bytes(&self, range: ByteRange) -> u64 {
        let disk = self.disk.as_ref().map_or(0, |disk| disk.cached_bytes(&self.version, range));
        let memory = self.memory.as_ref();
        memory.map_or(0, |memory| memory.cached_bytes(&self.version, range)).max(disk)
    }

    /// The blocks that a range overlaps, in the order of their starts; those of the disk and of
    /// memory may overlap each other.
    pub fn find(&self, range: ByteRange) -> Vec<CachedBlock> {
        let memory = self.memory.as_ref();
        let mut found = memory.map_or_else(Vec::new, |memory| memory.find(&self.version, range));
        if let Some(disk) = &self.disk
            && !covers(&found, range)
        {
            let on_disk = disk.find(&self.version, range);
            let is_new =
                |block: &Found| !found.iter().any(|known| known.block.contains(&block.block));
            let on_disk: Vec<Found> = on_disk.into_iter().filter(is_new).collect();
            found.extend(on_disk);
            found.sort_by_key(|found| found.block.start);
        }
        found.into_iter().map(CachedBlock).collect()
    }

    /// Whether all of a range is cached.
    pub fn covers(&self, range: ByteRange) -> bool {
        let blocks: Vec<Found> = self.find(range).into_iter().map(|block| block.0).collect();
        covers(&blocks, range)
    }

    /// Fills `buf` with the bytes of a block from `start` on; `false` when they are lost, and `buf`
    /// then holds anything. Waits for the disk on the calling thread.
    pub fn read(&self, query: &QueryCore, block: &CachedBlock, start: u64, buf: &mut [u8]) -> bool {
        let is_read = match (&block.0.place, &self.disk) {
            (Place::Queued(bytes), _) => {
                let from = usize::try_from(start - block.0.block.start).unwrap_or(usize::MAX);
                let length = buf.len();
                copy_into(buf, &bytes[from..from + length]);
                true
            }
            (Place::File { .. }, Some(disk)) => {
                populate(buf);
                disk.read(&self.version, &block.0, start, buf)
            }
            (Place::File { .. }, None) => false,
        };
        if is_read {
            block.count(query, buf.len() as u64);
        }
        is_read
    }

    /// Bytes from `start` on, at least one and at most `most`, without a copy: if a block in memory
    /// has them.
    pub fn share(&self, query: &QueryCore, start: u64, most: u64) -> Option<Bytes> {
        let first = ByteRange { start, end: start + 1 };
        let block = self.memory.as_ref()?.find(&self.version, first).pop().map(CachedBlock)?;
        let end = block.range().end.min(start.saturating_add(most));
        let bytes = block.shared(ByteRange { start, end })?;
        block.count(query, end - start);
        Some(bytes)
    }

    /// All bytes of a range, if they are cached; read on a thread that may wait for a disk.
    pub async fn fetch(&self, query: &Arc<QueryCore>, range: ByteRange) -> Option<Bytes> {
        let blocks = self.find(range);
        if let [block] = &blocks[..]
            && let Some(bytes) = block.shared(range)
        {
            block.count(query, range.len());
            return Some(bytes);
        }
        if blocks.iter().all(|block| matches!(block.0.place, Place::Queued(_))) {
            return self.read_all(query, &blocks, range);
        }
        let (cached, query) = (self.clone(), Arc::clone(query));
        let handle = query.engine.handle.clone();
        let read = handle.spawn_blocking(move || cached.read_all(&query, &blocks, range));
        read.await.ok().flatten()
    }

    fn read_all(
        &self,
        query: &QueryCore,
        blocks: &[CachedBlock],
        range: ByteRange,
    ) -> Option<Bytes> {
        let mut bytes = vec![0; usize::try_from(range.len()).ok()?];
        let (mut rest, mut next) = (&mut bytes[..], range.start);
        for block in blocks {
            let end = block.range().end.min(range.end);
            if end <= next || block.range().start > next {
                continue;
            }
            let (part, behind) = rest.split_at_mut(usize::try_from(end - next).ok()?);
            if !self.read(query, block, next, part) {
                return None;
            }
            (rest, next) = (behind, end);
        }
        (next == range.end).then(|| bytes.into())
    }

    /// Keeps bytes that a store sent. A copy of what the disk lacks is given to it bit by bit, and
    /// waited for where it cannot take more: a part of them alone would have the next query fetch
    /// the rest again. What it does not take is counted.
    pub async fn keep(&self, query: &QueryCore, piece: Piece<'_>) {
        let lease = |bytes| query.engine.budget.try_lease(bytes);
        // The host may ask for the version, and so say that it keeps the object, after opening it.
        let is_kept_by_host = self.host_takes && query.host_cache.keeps(&self.at.key);
        if let Some(memory) = self.memory.as_ref().filter(|_| !is_kept_by_host) {
            memory.keep(&self.version, piece, lease);
        }
        let Some(disk) = &self.disk else { return };
        // Bytes that were on their way when the object changed.
        let has_outgrown = || query.engine.metadata.has_outgrown(&self.at, &self.version.etag);
        let ByteRange { start: mut at, end } = piece.range();
        while at < end {
            let part = ByteRange { start: at, end: end.min(at + PIECE_BYTES) };
            at = part.end;
            for gap in disk.wanted(&self.version, part) {
                let Some((room, lease)) = disk.room(gap.len(), lease).await else {
                    self.skipped(query, gap.len());
                    continue;
                };
                disk.offer(&self.version, gap.start, &piece.part(gap), lease, has_outgrown);
                drop(room);
            }
        }
    }

    /// Counts bytes that are not given to the disk.
    pub fn skipped(&self, query: &QueryCore, bytes: u64) {
        if self.disk.is_some() {
            query.scope.count(Metric::CacheDiskBytesSkipped, bytes);
        }
    }
}

impl QueryCore {
    /// The store just told this of an object, to a request that began at `asked`: what the disk
    /// cache has of that version is the object.
    pub(crate) fn confirm(&self, at: &Location, meta: &ObjectMeta, asked: Instant) {
        at.mount.heads.settle(|| at.id(), meta);
        let confirm = || self.engine.metadata.confirm(at, meta, false, asked);
        let disk = self.opened_disk();
        match disk.and_then(|disk| Some((disk, version_of(at, &Version::of(meta))?))) {
            Some((disk, version)) if disk.is_outdated(&version) => disk.confirm(&version, confirm),
            _ => drop(confirm()),
        }
    }
}

/// None of what is not cached.
fn version_of(at: &Location, version: &Version) -> Option<ObjectVersion> {
    Some(ObjectVersion {
        name: name_in_cache(at)?.into(),
        etag: version.if_match()?.0.into(),
        size_bytes: version.size_bytes?,
    })
}

/// The name that blocks of an object have; none where none are cached.
pub(crate) fn name_in_cache(at: &Location) -> Option<String> {
    Some(name_of(&format!("{}{}", at.mount.origin.as_deref()?, at.key)))
}

/// The name that is written to the disk: of a signed URL without its secrets, but of each another.
fn name_of(url: &str) -> String {
    let shown = redact::url(url);
    if shown == url {
        return shown.into_owned();
    }
    let mut hasher = DefaultHasher::new();
    url.hash(&mut hasher);
    format!("{shown}#{:016x}", hasher.finish())
}

fn covers(blocks: &[Found], range: ByteRange) -> bool {
    let end = blocks.iter().fold(range.start, |end, found| match found.block {
        block if block.start <= end => end.max(block.end),
        _ => end,
    });
    end >= range.end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_urls_are_named_without_their_secrets_and_apart() {
        let plain = "https://h/b/a%20b?x=1";
        assert_eq!(name_of(plain), plain);
        let one = name_of("https://h/p?versionId=3&X-Amz-Signature=5c4eda53");
        assert!(one.starts_with("https://h/p?versionId=3&X-Amz-Signature=***#"), "{one}");
        assert_ne!(one, name_of("https://h/p?versionId=3&X-Amz-Signature=5c4eda54"));
    }
}

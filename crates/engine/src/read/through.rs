//! A GET through the caches of bytes, for the gateway and the command line: what lies there is not
//! fetched again, and what is fetched is kept there.
//!
//! Unless `cache_validation` says otherwise, the store is asked for the object's version before a
//! byte is served from the disk; where less than half of what is wanted lies there, the GET itself
//! is the question. Bytes that the disk loses meanwhile are fetched, of the same version.

use crate::budget::Lease;
use crate::cache::{CachedObject, Piece};
use crate::cause::Cause;
use crate::location::Location;
use crate::metadata::{Remembered, Validity};
use crate::query::QueryCore;
use crate::read::flight::Joined;
use crate::read::look;
use crate::read::stream::Stream;
use crate::read::version::Version;
use bytes::{Buf, Bytes};
use penstock_base::settings::Validation;
use penstock_base::{ByteRange, Error, Kind, Metric, Result};
use penstock_store::{GetRequest, ObjectMeta};
use std::sync::Arc;
use tokio::time::Instant;

/// Bytes collected before they are offered to the cache.
const PIECE_BYTES: u64 = 1 << 20;
/// Shorter runs of cached bytes are not worth a second request for what follows them.
const RUN_BYTES_MIN: u64 = 1 << 20;
/// So far is looked ahead for what is cached.
const LOOK_BYTES: u64 = 64 << 20;

/// What a GET is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    Bytes,
    /// The content type and the metadata with them.
    Headers,
}

/// The cache beside a stream.
#[derive(Debug)]
pub(crate) struct Through {
    cached: CachedObject,
    /// From the disk, what comes next.
    ready: Bytes,
    /// Where it came ahead of this, on a flight: until it is read.
    joined: Option<Joined>,
    /// From the store, what will be kept.
    piece: Vec<u8>,
    piece_start: u64,
    /// The right to hold the piece.
    lease: Option<Lease>,
}

/// Begins a GET.
pub(crate) async fn get(
    query: &Arc<QueryCore>,
    at: &Location,
    request: GetRequest,
    wants: Wants,
) -> Result<Stream> {
    if query.disk()?.is_none() && !query.engine.memory.is_on() {
        return Stream::start(query, at, (Cause::Read, request)).await;
    }
    if let Some((meta, range)) = cached(query, at, &request, wants).await?
        && let Some(through) = Through::of(query, at, &meta)
    {
        return Ok(Stream::cached(query, at, meta, range, through));
    }
    let asked = Instant::now();
    let mut stream = Stream::start(query, at, (Cause::Read, request)).await?;
    query.confirm(at, stream.meta(), asked);
    stream.through = Through::of(query, at, stream.meta());
    Ok(stream)
}

/// What the store says of an object of whose wanted range at least half is cached, and that range.
async fn cached(
    query: &Arc<QueryCore>,
    at: &Location,
    request: &GetRequest,
    wants: Wants,
) -> Result<Option<(ObjectMeta, ByteRange)>> {
    let (known, is_fresh) = match query.remembered(at, Validation::Always) {
        Remembered::Nothing => return Ok(None),
        Remembered::Stale(meta) => (meta, false),
        // Neither a listing nor the disk tells all that a GET does.
        Remembered::Fresh(meta) => {
            let is_enough = wants == Wants::Bytes || meta.content_type.is_some();
            (meta, is_enough)
        }
    };
    let version = Version::of(&known);
    // The GET tells in one request whether that still holds, and brings what changed.
    if !is_fresh && request.has_already(&known) {
        return Ok(None);
    }
    let range = request.range.resolve(known.size_bytes.unwrap_or(0));
    // What is on its way is as good: it is waited for.
    let here_bytes = |cached: CachedObject| {
        let coming_bytes = query.engine.flights.coming_bytes(query, &at.id(), &version, range);
        cached.cached_bytes(range).saturating_add(coming_bytes)
    };
    let is_worth_while = CachedObject::of(query, at, &version)
        .is_some_and(|cached| here_bytes(cached).saturating_mul(2) >= range.len());
    let other = request.if_match.as_ref().is_some_and(|tag| Some(tag) != known.etag.as_ref());
    if range.is_empty() || !is_worth_while || other {
        return Ok(None);
    }
    if is_fresh {
        query.scope.count(Metric::MetadataHits, 1);
        request.refuse_unchanged(&known).map_err(|error| named(error, at))?;
        return Ok(Some((known, range)));
    }
    query.scope.count(Metric::MetadataMisses, 1);
    match look(query, at, Some(&known)).await {
        Ok(Some(meta)) if version.matches(&meta) && meta.etag.is_some() => {
            request.refuse_unchanged(&meta).map_err(|error| named(error, at))?;
            Ok(Some((meta, range)))
        }
        // The GET brings the new version, or says in its own words why there is none.
        Ok(_) => Ok(None),
        Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Denied) => Ok(None),
        Err(error) => Err(error),
    }
}

fn named(error: Error, at: &Location) -> Error {
    error.with_operation("GET").with_object(at.url())
}

impl Through {
    fn of(query: &Arc<QueryCore>, at: &Location, meta: &ObjectMeta) -> Option<Self> {
        Some(Through {
            cached: CachedObject::of(query, at, &Version::of(meta))?,
            ready: Bytes::new(),
            joined: None,
            piece: Vec::new(),
            piece_start: 0,
            lease: None,
        })
    }

    /// The version as the caches have it.
    pub fn cached_object(&self) -> &CachedObject {
        &self.cached
    }

    /// Copies bytes of `rest` from its start on; `None` where they are neither cached nor on their
    /// way there.
    pub async fn read(
        &mut self,
        query: &Arc<QueryCore>,
        (at, version): (&Location, &Version),
        rest: ByteRange,
        buf: &mut [u8],
    ) -> Option<usize> {
        if self.ready.is_empty() {
            let first = ByteRange { start: rest.start, end: rest.start + 1 };
            let block = self.cached.find(first).first().map(|block| block.range());
            match block {
                Some(block) => {
                    let range = ByteRange { start: rest.start, end: block.end.min(rest.end) };
                    self.ready = self.cached.fetch(query, range).await?;
                }
                None => {
                    let piece = ByteRange { end: rest.end.min(rest.start + PIECE_BYTES), ..rest };
                    let flights = &query.engine.flights;
                    let joined = flights.join(query, at.id(), version, piece).await?;
                    self.ready = joined.bytes();
                    self.joined = Some(joined);
                }
            }
        }
        let count = buf.len().min(self.ready.len());
        self.ready.copy_to_slice(&mut buf[..count]);
        if self.ready.is_empty() {
            self.joined = None;
        }
        Some(count)
    }

    /// Bytes from `start` on without a copy, at most `most`; `None` unless a block in memory has
    /// them.
    pub fn share(&self, query: &QueryCore, start: u64, most: u64) -> Option<Bytes> {
        // What comes next is the rest of these.
        if !self.ready.is_empty() {
            return None;
        }
        self.cached.share(query, start, most)
    }

    /// What to ask the store for, where the start of `rest` is not cached: up to what is, or is on
    /// its way there.
    pub fn gap(
        &self,
        query: &QueryCore,
        (at, version): (&Location, &Version),
        rest: ByteRange,
    ) -> ByteRange {
        let look = ByteRange { start: rest.start, end: rest.end.min(rest.start + LOOK_BYTES) };
        let mut run: Option<ByteRange> = None;
        for block in self.cached.find(look).iter().map(|block| block.range()) {
            run = match run {
                Some(run) if run.end == block.start => {
                    Some(ByteRange { start: run.start, end: block.end })
                }
                Some(run) if run.len() >= RUN_BYTES_MIN => Some(run),
                // A block at the very start is one that was lost just now.
                _ => (block.start > rest.start).then_some(block),
            };
        }
        let is_long = |run: &ByteRange| run.len() >= RUN_BYTES_MIN || run.end >= rest.end;
        let end = run.filter(is_long).map_or(look.end, |run| run.start);
        let coming = query.engine.flights.next_start(query, &at.id(), version, rest.start);
        ByteRange { start: rest.start, end: coming.map_or(end, |start| end.min(start)) }
    }

    /// Takes note of bytes that came from the store, which is asked for more up to `end`.
    pub async fn keep(&mut self, query: &QueryCore, start: u64, mut bytes: &[u8], end: u64) {
        let is_last = start + bytes.len() as u64 == end;
        if self.piece_start + self.piece.len() as u64 != start {
            // The disk was read in between.
            self.offer(query).await;
            self.piece_start = start;
        }
        while !bytes.is_empty() {
            if self.lease.is_none() {
                self.lease = query.engine.budget.try_lease(PIECE_BYTES);
            }
            if self.lease.is_none() {
                // No memory is free: these are not kept.
                self.cached.skipped(query, bytes.len() as u64);
                self.piece = Vec::new();
                return;
            }
            let (held, next) = (self.piece.len() as u64, self.piece_start);
            let room = usize::try_from(PIECE_BYTES.min(end - next) - held).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            if held == 0 {
                self.piece.reserve_exact(room);
            }
            self.piece.extend_from_slice(now);
            bytes = later;
            if self.piece.len() as u64 == PIECE_BYTES {
                self.offer(query).await;
            }
        }
        if is_last {
            self.offer(query).await;
            self.lease = None;
        }
    }

    /// Gives the piece to the caches: its memory is theirs then, since nothing of it is left over.
    async fn offer(&mut self, query: &QueryCore) {
        let piece = Bytes::from(std::mem::take(&mut self.piece).into_boxed_slice());
        self.cached.keep(query, Piece::shared(self.piece_start, &piece)).await;
        self.piece_start += piece.len() as u64;
    }
}

impl QueryCore {
    /// What is known of an object: in memory, or of the version that the disk cache has of it. Of
    /// one that was seen to change that need not be the present one, under any policy.
    pub(crate) fn remembered(&self, at: &Location, of_the_door: Validation) -> Remembered {
        let (validity, since) = (self.validity(of_the_door), self.counts_since(of_the_door));
        match self.engine.metadata.get(at, validity, since) {
            Remembered::Nothing => match CachedObject::latest(self, at) {
                Some((meta, is_present))
                    if validity == Validity::Forever
                        && is_present
                        && !self.engine.metadata.has_changed(at) =>
                {
                    Remembered::Fresh(meta)
                }
                Some((meta, _)) => Remembered::Stale(meta),
                None => Remembered::Nothing,
            },
            known => known,
        }
    }
}

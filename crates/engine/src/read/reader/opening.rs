//! What comes with opening an object, and is kept for whoever opens it next.

use super::Reader;
use crate::Query;
use crate::limits::HELD_PARTS;
use crate::query::QueryCore;
use crate::read::held::{ENTRY_BYTES, Piece};
use crate::read::parquet::footer_start;
use crate::read::plan::{Source as SpanSource, is_rest_of_footer, plan};
use crate::read::room::Room;
use bytes::Bytes;
use penstock_base::{ByteRange, Result};
use penstock_store::ObjectMeta;
use std::sync::Arc;

impl Reader {
    /// The host asks which version this is, as it does before it keeps bytes in a cache of its own.
    /// `None` where it is to be told neither tag nor time, and so keeps nothing: others still read
    /// another version through that cache. `host_keeps`: its cache is on, so ours in memory does
    /// not keep what it reads of such files from now on.
    pub fn told_to_host(&self, query: &Query, host_keeps: bool) -> Option<&ObjectMeta> {
        if !host_keeps {
            return Some(&self.meta);
        }
        let query = &query.core;
        query.host_cache.note(&self.at.key);
        let ask = || query.engine.host_versions.asked(self.at.url(), &self.version);
        self.is_kept.get_or_init(ask).is_some().then_some(&self.meta)
    }

    /// Fetches and keeps the bytes that whoever opens the object reads first.
    pub(crate) async fn fetch_opening(
        &self,
        query: &Arc<QueryCore>,
        window: ByteRange,
    ) -> Result<()> {
        if window.is_empty() || self.whole.is_some() || self.held.covers(&window) {
            return Ok(());
        }
        self.fill(query, window, window).await
    }

    /// Keeps a footer that is longer than what opening brought of it: whoever opens the file next
    /// wants it too, and it tells where the columns lie.
    pub(super) fn keep_footer(&self, query: &QueryCore, range: ByteRange, bytes: &[u8]) {
        if !self.tail_first {
            return;
        }
        let pieces = self.held.pieces();
        let Some(tail) = pieces.iter().find(|piece| piece.range.end == self.size_bytes) else {
            return;
        };
        let Some(start) = footer_start(&tail.bytes, tail.range.start) else { return };
        if !is_rest_of_footer(range, start, tail.range) {
            return;
        }
        // Up to 64 MiB: worth no more than memory that is free, and as much as is kept at all.
        let (len, budget) = (tail.range.end - start, &query.engine.budget);
        let others = pieces.iter().filter(|piece| piece.range.start < start);
        let entry_bytes = len + ENTRY_BYTES + others.map(|piece| piece.range.len()).sum::<u64>();
        let is_fit = entry_bytes <= budget.limit_bytes() / HELD_PARTS;
        let Some(lease) = is_fit.then(|| budget.try_lease(len)).flatten() else { return };
        let place = |at: u64| usize::try_from(at - range.start).expect("a read lies in memory");
        let footer = [&bytes[place(start)..place(tail.range.start)], &tail.bytes[..]].concat();
        self.held.keep_piece(Piece::new(start, footer.into(), lease));
        query.engine.held.put(&self.at, &self.version, &self.held);
    }

    /// Fetches what is missing of a window and keeps it, once for all readers that want it.
    pub(super) async fn fill(
        &self,
        query: &Arc<QueryCore>,
        range: ByteRange,
        window: ByteRange,
    ) -> Result<()> {
        let _turn = self.held.filling.lock().await;
        // Of a small file of text all is wanted: what is missing of it, if anything is.
        let is_all_wanted = !self.tail_first && window.len() == self.size_bytes;
        if self.held.covers(if is_all_wanted { &window } else { &range }) {
            return Ok(());
        }
        let _opens = self.at.mount.pace.opens();
        let held: Vec<ByteRange> = self.held.pieces().iter().map(|piece| piece.range).collect();
        let missing = plan(window, &held, || u64::MAX);
        for span in missing.iter().filter(|span| span.source == SpanSource::Store) {
            let bytes = self.opening_bytes(query, span.range).await?;
            self.held.keep(span.range.start, bytes, &query.engine.budget);
        }
        query.engine.held.put(&self.at, &self.version, &self.held);
        Ok(())
    }

    /// Bytes to be held: from the disk, or fetched and kept there too. As they come they are other
    /// readers' too, who want more than these.
    async fn opening_bytes(&self, query: &Arc<QueryCore>, range: ByteRange) -> Result<Bytes> {
        if let Some(cached) = &self.cached
            && let Some(bytes) = cached.fetch(query, range).await
        {
            return Ok(bytes);
        }
        let mut room = Room::of(range.len());
        self.wanted(query).fetch(&mut room, range, None).await?;
        Ok(room.freeze())
    }
}

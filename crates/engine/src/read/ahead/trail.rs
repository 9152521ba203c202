//! Reading ahead of a client that asks for one range after the other, into the caches.
//!
//! The steps are the client's, of any size, and what is fetched goes to the caches, where the
//! request for the next range finds it: memory is held only until it has come. How much may be
//! ahead is told by [`Bounds`], and begun is all of it that follows what lies ready.

use super::allowance::{START_BYTES_MAX, Window, next_block};
use super::{Ahead, BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, State, contiguous_end};
use crate::cache::CachedObject;
use crate::read::block::{Block, Purpose, Source, fetch};
use crate::read::neighbours::came_ahead;
use crate::read::spare::Spare;
use crate::read::trails::Standing;
use penstock_base::ByteRange;
use std::sync::Arc;

/// Most requests ahead of one client, however long its ranges.
const REQUESTS_MAX: usize = 16;
/// The next one is sent when so large a part of what may be ahead was read: later, and the link
/// would be idle for a round trip; sooner, and ranges that are short would be requests that are.
const WINDOW_PARTS: u64 = 4;

/// What a range goes on with.
pub(crate) struct Next<'a> {
    pub source: Source<'a>,
    pub cached: &'a CachedObject,
    pub range: ByteRange,
}

/// How much may be ahead of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Beyond a tenth of what it has read.
    pub owed_bytes: u64,
    pub pending_bytes: u64,
}

impl Ahead {
    /// Takes note of the range that the client reads, and gives where it stands then; what nobody
    /// needs any more is to be dropped outside of all locks. What came and the caches did not keep
    /// was in vain: the client asks for it again.
    pub(in crate::read) fn read_on(
        &self,
        range: ByteRange,
        cached: &CachedObject,
        dropped: &mut Vec<Arc<Block>>,
    ) -> (Standing, bool) {
        let mut state = self.lock();
        let overlapping = state.blocks.iter().filter(|block| {
            let (start, end) = (block.range.start.max(range.start), block.range.end.min(range.end));
            start < end && (block.is_pending() || cached.covers(ByteRange { start, end }))
        });
        let overlapping: Vec<_> = overlapping.cloned().collect();
        overlapping.iter().for_each(|block| block.used(range));
        state.read(range, true);
        let from = dropped.len();
        while state.blocks.front().is_some_and(|block| block.range.end <= range.start) {
            dropped.extend(state.blocks.pop_front());
        }
        state.lost(&dropped[from..], []);
        (state.standing(), came_ahead(&overlapping))
    }

    /// Asks for what follows, as far as it may and memory is free.
    pub fn fetch_on(self: &Arc<Self>, next: &Next<'_>, bounds: Bounds) -> Standing {
        let (source, range) = (&next.source, next.range);
        let mount = &source.at.mount;
        let mut state = self.lock();
        let run_bytes = state.detector.run_bytes;
        let owed_bytes = bounds.owed_bytes.min(START_BYTES_MAX.max(range.len()));
        // Never more than was read in a row.
        let most_bytes = state.allowance.with_start(owed_bytes);
        let most_bytes = most_bytes.min(bounds.pending_bytes).min(run_bytes.max(BLOCK_BYTES_MIN));
        if most_bytes < (source.size_bytes - range.end).min(range.len() / 2) {
            // A request of which less than half is here asks for all of it.
            return state.standing();
        }
        let look = ByteRange { start: range.end, end: range.end.saturating_add(most_bytes) };
        let cached: Vec<ByteRange> =
            next.cached.find(look).iter().map(|block| block.range()).collect();
        while state.unread_count() < REQUESTS_MAX && !mount.pace.is_limited() {
            let blocks = state.blocks.iter().map(|block| block.range);
            let ready: Vec<ByteRange> = blocks.chain(cached.iter().copied()).collect();
            let ready_end = contiguous_end(range.end, ready.clone());
            let behind = ready.iter().map(|ready| ready.start).filter(|start| *start >= ready_end);
            let end = behind.min().unwrap_or(source.size_bytes);
            let pending_bytes = state.pending_bytes();
            let window = Window { run_bytes, most_bytes, pending_bytes, blocks: 0 };
            let Some(block) = next_block(window, range.end, ready_end, end) else { break };
            let least_bytes = BLOCK_BYTES_MAX.min(most_bytes / WINDOW_PARTS);
            if block.len() < least_bytes && block.end < end {
                break;
            }
            let Some(slot) = Spare::take(mount, &source.query.settings) else { break };
            let budget = &source.query.engine.budget;
            let Some(lease) = budget.try_lease_ahead(block.len()) else { break };
            self.register(&mut state, source);
            let at = state.blocks.partition_point(|known| known.range.start <= block.start);
            let fetched = fetch(source, block, lease, Purpose::Caches(slot));
            state.blocks.insert(at, fetched);
        }
        state.standing()
    }

    /// What it has wasted in all, when its client is gone: what is on its way is stopped, once what
    /// is pushed here is dropped.
    pub(in crate::read) fn leave(&self, dropped: &mut Vec<Arc<Block>>) -> u64 {
        let mut state = self.lock();
        let (blocks, _) = state.clear();
        dropped.extend(blocks);
        state.standing().wasted_bytes
    }
}

impl State {
    /// Requests of which something was not read yet.
    fn unread_count(&self) -> usize {
        self.blocks.iter().filter(|block| block.unused_bytes() > 0).count()
    }

    fn standing(&self) -> Standing {
        let (read_bytes, wasted_bytes) = self.allowance.totals();
        Standing { read_bytes, wasted_bytes, pending_bytes: self.pending_bytes() }
    }
}

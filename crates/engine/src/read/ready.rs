//! What is here of a read before anything is asked for: held pieces, cached blocks, blocks that are
//! fetched ahead, requests that were begun. Pure.

use crate::cache::CachedBlock;
use crate::read::begun::Begun;
use crate::read::block::Block;
use crate::read::held::Piece;
use crate::read::plan::{Source as SpanSource, Span, plan};
use crate::read::ranges::Ranges;
use crate::read::room::copy_into;
use penstock_base::ByteRange;
use std::sync::Arc;

/// What is here of a range, or on its way.
pub(super) struct Ready {
    pub held: Vec<Piece>,
    pub blocks: Vec<CachedBlock>,
    /// Ready or on their way.
    pub ahead: Vec<Arc<Block>>,
    /// Until a span takes it.
    pub begun: Vec<Option<Begun>>,
}

/// One of them.
pub(super) enum Here<'a> {
    Held(&'a Piece),
    /// The block of this index.
    Cached(usize),
    Ahead(Arc<Block>),
    Begun(Option<Begun>),
}

impl Ready {
    /// Where all of it lies.
    pub fn ranges(&self) -> Vec<ByteRange> {
        let held = self.held.iter().map(|piece| piece.range);
        let blocks = self.blocks.iter().map(CachedBlock::range);
        let ahead = self.ahead.iter().map(|block| block.range);
        let begun = self.begun.iter().flatten().map(|begun| begun.range);
        held.chain(blocks).chain(ahead).chain(begun).collect()
    }

    /// How much of a range was fetched ahead, or is on its way.
    pub fn ahead_bytes(&self, range: ByteRange) -> u64 {
        let mut ahead = Ranges::default();
        let begun = self.begun.iter().flatten().map(|begun| begun.range);
        for part in self.ahead.iter().map(|block| block.range).chain(begun) {
            ahead.add(part);
        }
        ahead.bytes_in(range)
    }

    /// Whether all of a range is here, and the cache has some of it that opening did not bring.
    pub fn is_cached(&self, range: ByteRange) -> bool {
        let held: Vec<_> = self.held.iter().map(|piece| piece.range).collect();
        is_here(&self.spans(range)) && !is_here(&plan(range, &held, || 0))
    }

    /// A range as spans of it and of what is missing.
    fn spans(&self, range: ByteRange) -> Vec<Span> {
        plan(range, &self.ranges(), || 0)
    }

    /// What stands at this place of [`Ready::ranges`].
    pub fn source(&mut self, index: usize) -> Here<'_> {
        if let Some(piece) = self.held.get(index) {
            return Here::Held(piece);
        }
        let index = index - self.held.len();
        if index < self.blocks.len() {
            return Here::Cached(index);
        }
        let index = index - self.blocks.len();
        match self.ahead.get(index) {
            Some(block) => Here::Ahead(Arc::clone(block)),
            None => Here::Begun(self.begun[index - self.ahead.len()].take()),
        }
    }
}

/// Whether no span has to be fetched.
pub(super) fn is_here(spans: &[Span]) -> bool {
    spans.iter().all(|span| span.source != SpanSource::Store)
}

/// Fills `buf` with a piece's bytes from `start` on; the piece covers it.
pub(super) fn copy_held(buf: &mut [u8], start: u64, piece: &Piece) {
    let from = usize::try_from(start - piece.range.start).expect("a held piece fits into memory");
    let length = buf.len();
    copy_into(buf, &piece.bytes[from..from + length]);
}

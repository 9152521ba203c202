//! What is here of a read before anything is asked for: held pieces, cached blocks, requests that
//! were begun. Pure.

use crate::cache::CachedBlock;
use crate::read::begun::Begun;
use crate::read::held::Piece;
use crate::read::plan::{Source as SpanSource, Span, plan};
use penstock_base::ByteRange;

/// What is here of a range, or on its way.
pub(super) struct Ready {
    pub held: Vec<Piece>,
    pub blocks: Vec<CachedBlock>,
    /// Until a span takes it.
    pub begun: Vec<Option<Begun>>,
}

/// One of them.
pub(super) enum Here<'a> {
    Held(&'a Piece),
    /// The block of this index.
    Cached(usize),
    Begun(Option<Begun>),
}

impl Ready {
    /// Where all of it lies.
    pub fn ranges(&self) -> Vec<ByteRange> {
        let held = self.held.iter().map(|piece| piece.range);
        let blocks = self.blocks.iter().map(CachedBlock::range);
        held.chain(blocks).chain(self.begun.iter().flatten().map(|begun| begun.range)).collect()
    }

    /// A range as spans of it and of what is missing.
    pub fn spans(&self, range: ByteRange) -> Vec<Span> {
        plan(range, &self.ranges(), || 0)
    }

    /// What stands at this place of [`Ready::ranges`].
    pub fn source(&mut self, index: usize) -> Here<'_> {
        let (held, blocks) = (self.held.len(), self.blocks.len());
        match self.held.get(index) {
            Some(piece) => Here::Held(piece),
            None if index < held + blocks => Here::Cached(index - held),
            None => Here::Begun(self.begun[index - held - blocks].take()),
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
    buf.copy_from_slice(&piece.bytes[from..from + buf.len()]);
}

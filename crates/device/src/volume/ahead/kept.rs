//! The memory of what was read ahead. It decides what is kept for the next pieces, and finds what
//! was fetched and not read yet, to take it back.

use super::{PIECE_BYTES, Piece, State, lock};
use crate::volume::account::{Held, at_once};
use std::sync::{Arc, Mutex, Weak};

/// Buffers that are kept for the next pieces.
const SPARES: usize = 32;
/// So many pieces are remembered before it is looked which of them are gone.
const REMEMBERED_LEAST: usize = 256;

/// The memory of all read-ahead of a volume.
#[derive(Default)]
pub(crate) struct Kept {
    spares: Mutex<Vec<Held>>,
    fetched: Mutex<Fetched>,
}

#[derive(Default)]
struct Fetched {
    pieces: Vec<Weak<Piece>>,
    /// So many were left when it was last looked which are gone.
    left: usize,
}

impl Kept {
    /// Buffers for so many pieces, or as many as there are.
    pub(super) fn buffers(&self, count: usize) -> Vec<Held> {
        let mut spares = lock(&self.spares);
        let kept = spares.len().saturating_sub(count);
        spares.split_off(kept)
    }

    /// Keeps buffers for the next pieces, a few of them.
    pub(super) fn keep(&self, buffers: impl Iterator<Item = Held>) {
        let mut surplus = Vec::new();
        let mut spares = lock(&self.spares);
        for buffer in buffers {
            let to = if spares.len() < SPARES { &mut *spares } else { &mut surplus };
            to.push(buffer);
        }
        drop(spares);
    }

    /// Remembers pieces that were fetched.
    pub(super) fn note(&self, pieces: &[Arc<Piece>]) {
        let mut fetched = lock(&self.fetched);
        if fetched.pieces.len() >= REMEMBERED_LEAST.max(2 * fetched.left) {
            fetched.pieces.retain(|piece| piece.strong_count() > 0);
            fetched.left = fetched.pieces.len();
        }
        fetched.pieces.extend(pieces.iter().map(Arc::downgrade));
    }

    /// Bytes that are kept, and fetched and not read; `None` while another thread is at them.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let spares = at_once(&self.spares)?.len();
        // Held until the lock is free: the last owner of a piece gives its memory back.
        let fetched: Vec<Arc<Piece>> =
            at_once(&self.fetched)?.pieces.iter().filter_map(Weak::upgrade).collect();
        let is_here = |piece: &Arc<Piece>| {
            at_once(&piece.state).is_some_and(|state| matches!(*state, State::Here(_)))
        };
        let here = fetched.iter().filter(|piece| is_here(piece)).count();
        Some((spares + here) as u64 * PIECE_BYTES)
    }

    /// Takes all of that, but what is being read at this moment; `None` while another thread is at
    /// it.
    pub(crate) fn take(&self) -> Option<Vec<Held>> {
        let mut taken = std::mem::take(&mut *at_once(&self.spares)?);
        let Some(mut fetched) = at_once(&self.fetched) else {
            return if taken.is_empty() { None } else { Some(taken) };
        };
        let pieces = std::mem::take(&mut *fetched).pieces;
        drop(fetched);
        let mut busy = Vec::new();
        for piece in pieces.iter().filter_map(Weak::upgrade) {
            match at_once(&piece.state) {
                Some(mut state) => taken.extend(state.take()),
                None => busy.push(Arc::downgrade(&piece)),
            }
        }
        if let Some(mut fetched) = at_once(&self.fetched) {
            fetched.pieces.extend(busy);
        }
        Some(taken)
    }
}

//! The bytes of one part while it fills: copied once, into pieces that grow with it.
//!
//! A part starts with 64 KiB and doubles what it holds, so that a hundred open partition files that
//! get little data cost little memory. Pieces of 1 MiB come from a pool, because fresh memory costs
//! a page fault for every 4 KiB.

use crate::budget::Lease;
use bytes::Bytes;
use penstock_store::Payload;
use std::sync::{Arc, Mutex, PoisonError};

const PIECE_BYTES_MIN: u64 = 64 << 10;
const PIECE_BYTES_MAX: u64 = 1 << 20;
/// Free pieces that are kept: enough for two parts of the default size.
const FREE_PIECES_MAX: usize = 16;

/// Free pieces of 1 MiB.
#[derive(Debug, Default)]
pub(crate) struct PiecePool(Mutex<Vec<Vec<u8>>>);

impl PiecePool {
    fn take(&self, bytes: u64) -> Vec<u8> {
        let capacity = usize::try_from(bytes).unwrap_or(usize::MAX);
        let pooled = (bytes == PIECE_BYTES_MAX)
            .then(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).pop())
            .flatten();
        pooled.unwrap_or_else(|| Vec::with_capacity(capacity))
    }

    fn give(&self, mut data: Vec<u8>) {
        if data.capacity() as u64 != PIECE_BYTES_MAX {
            return;
        }
        data.clear();
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < FREE_PIECES_MAX {
            free.push(data);
        }
    }
}

/// One piece; dropping it gives its memory back to the pool and to the account.
#[derive(Debug)]
struct Piece {
    data: Vec<u8>,
    capacity: usize,
    pool: Arc<PiecePool>,
    lease: Lease,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.pool.give(std::mem::take(&mut self.data));
    }
}

/// A part that fills.
#[derive(Debug, Default)]
pub(crate) struct PartBuffer {
    pieces: Vec<Piece>,
    len: u64,
    capacity: u64,
}

impl PartBuffer {
    /// Bytes in it.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Copies as much as there is room for, and tells how much that was.
    pub fn fill(&mut self, data: &[u8]) -> usize {
        let Some(piece) = self.pieces.last_mut() else { return 0 };
        let count = data.len().min(piece.capacity - piece.data.len());
        piece.data.extend_from_slice(&data[..count]);
        self.len += count as u64;
        count
    }

    /// Size of the piece to add next, for a part that shall have `target` bytes.
    pub fn next_piece_bytes(&self, target: u64) -> u64 {
        let room = target.saturating_sub(self.capacity).max(1);
        self.capacity.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX).min(room)
    }

    /// Adds a piece of the leased size. The one before it is full.
    pub fn add_piece(&mut self, pool: &Arc<PiecePool>, bytes: u64, lease: Lease) {
        self.capacity += bytes;
        self.pieces.push(Piece {
            data: pool.take(bytes),
            capacity: usize::try_from(bytes).unwrap_or(usize::MAX),
            pool: Arc::clone(pool),
            lease,
        });
    }

    /// The bytes to send, which come back to the account as soon as they are sent.
    pub fn seal(self) -> Payload {
        Payload(
            self.pieces
                .into_iter()
                .map(|piece| {
                    piece.lease.set_returning();
                    Bytes::from_owner(piece)
                })
                .collect(),
        )
    }
}

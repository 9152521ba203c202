//! What caches are given of a span that is being read.
//!
//! They get its bytes as they come: what follows arrives meanwhile, what came is still in the
//! processor's cache, and of a read that is given up nothing is lost.

use crate::cache::{CachedObject, Piece};
use crate::query::QueryCore;

/// So many at a time: whole blocks of the caches.
const STEP_BYTES: usize = 1 << 20;

/// How far a span was given to the caches.
pub(super) struct Kept<'a> {
    cached: Option<&'a CachedObject>,
    query: &'a QueryCore,
    start: u64,
    done: usize,
}

impl<'a> Kept<'a> {
    /// Nothing yet of a span that begins at `start`.
    pub fn new(cached: Option<&'a CachedObject>, query: &'a QueryCore, start: u64) -> Self {
        Kept { cached, query, start, done: 0 }
    }

    /// These bytes of the span are here.
    pub async fn come(&mut self, bytes: &[u8]) {
        let whole = (bytes.len() - self.done) / STEP_BYTES * STEP_BYTES;
        self.give(&bytes[..self.done + whole]).await;
    }

    /// And these are all.
    pub async fn all(&mut self, bytes: &[u8]) {
        self.give(bytes).await;
    }

    async fn give(&mut self, bytes: &[u8]) {
        let new = &bytes[self.done..];
        if let (Some(cached), false) = (self.cached, new.is_empty()) {
            let piece = Piece::lent(self.start + self.done as u64, new);
            cached.keep(self.query, piece).await;
            self.done = bytes.len();
        }
    }
}

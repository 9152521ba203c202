//! Blocks that were fetched ahead, for whoever wants the same bytes: what lies ready in one
//! statement's window is not asked for again by another one.
//!
//! A block that is on its way is a flight. Once it has arrived its bytes are copied, like those of
//! a flight, for as long as the block is there: who has it decides that. Only a strong tag says
//! that bytes which came a while ago are those of a version, but for readers of the same query.

use super::Flights;
use crate::location::ObjectId;
use crate::query::QueryCore;
use crate::read::block::Block;
use crate::read::debt::Debt;
use crate::read::held::Piece;
use crate::read::version::Version;
use penstock_base::ByteRange;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The blocks of an engine.
#[derive(Debug, Default)]
pub(in crate::read) struct Lying(Mutex<HashMap<ObjectId, Vec<Entry>>>);

#[derive(Debug)]
struct Entry {
    /// Whose statement it is fetched for.
    query: u64,
    version: Version,
    block: Weak<Block>,
}

/// A block's place among them; dropping it takes the block off.
#[derive(Debug)]
pub(in crate::read) struct Listed {
    lying: Arc<Lying>,
    id: ObjectId,
    block: Weak<Block>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut blocks = self.lying.lock();
        if let Some(known) = blocks.get_mut(&self.id) {
            known.retain(|entry| !entry.block.ptr_eq(&self.block));
            if known.is_empty() {
                blocks.remove(&self.id);
            }
        }
    }
}

/// Bytes that lie ready, and whose they are.
#[derive(Clone)]
pub(super) struct Found {
    pub piece: Piece,
    block: Arc<Block>,
}

impl Found {
    /// The debts of its bytes in a range.
    pub fn debts(&self, range: ByteRange) -> Vec<Arc<Debt>> {
        self.block.debts().of(range)
    }
}

impl Lying {
    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectId, Vec<Entry>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flights {
    /// Takes note of a block that is fetched ahead.
    pub(in crate::read) fn list(
        &self,
        query: &QueryCore,
        id: ObjectId,
        version: &Version,
        block: Weak<Block>,
    ) -> Listed {
        let entry =
            Entry { query: query.number, version: version.clone(), block: Weak::clone(&block) };
        self.lying.lock().entry(id.clone()).or_default().push(entry);
        Listed { lying: Arc::clone(&self.lying), id, block }
    }

    /// What lies ready of a range.
    pub(super) fn lying(
        &self,
        query: &QueryCore,
        id: &ObjectId,
        version: &Version,
        range: ByteRange,
    ) -> Vec<Found> {
        let is_of = |entry: &&Entry| {
            entry.query == query.number && entry.version.same(version)
                || version.if_match().is_some() && entry.version.has_tag_of(version)
        };
        // Not dropped under the lock: the last one who has a block takes it off the list.
        let blocks: Vec<Arc<Block>> = {
            let blocks = self.lying.lock();
            let Some(known) = blocks.get(id) else { return Vec::new() };
            known.iter().filter(is_of).filter_map(|entry| entry.block.upgrade()).collect()
        };
        let near = blocks.into_iter().filter(|block| block.range.overlaps(&range));
        near.filter_map(|block| Some(Found { piece: block.piece()?, block })).collect()
    }
}

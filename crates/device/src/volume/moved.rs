//! Blocks that are overwritten: they go to other pages, and the table on the device learns of them
//! with the file's next sync. So after a power cut a block is the old one or the new one, whole.
//!
//! DuckDB counts on that: in a block of metadata it writes what is new beside what still holds, and
//! a block that is half of each has a checksum that fits neither, so the database cannot be opened.

use crate::meter;
use crate::volume::node::{Left, Node};
use crate::volume::space::{Extent, pages_of};
use crate::volume::table::PAGE_BYTES;
use crate::volume::{Core, Volume};
use penstock_base::{DeviceMetric, Result};
use std::sync::atomic::Ordering;

/// Most extents of a file whose blocks move: they are written with every commit.
const EXTENTS_MAX: usize = 4096;
/// The part of a volume that is left to files that grow.
const ROOM_KEPT: u64 = 16;
/// Places that wait for a sync are at most this part of what nobody else has: other files grow.
const WAITING_MOST: u64 = 4;

/// Whether there is room for pages to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Now,
    /// When the places that wait for a sync are free.
    AfterSync,
    None,
}

/// For so many pages, in a volume of `all`, of which `free` are free and `waiting` wait for a sync
/// of the file. A write as long as it may be can move where nothing waits.
fn room(pages: u64, waiting: u64, free: u64, all: u64) -> Room {
    let unused = free + waiting;
    if unused < pages + all / ROOM_KEPT {
        return Room::None;
    }
    match waiting == 0 || (pages <= free && waiting + pages <= unused / WAITING_MOST) {
        true => Room::Now,
        false => Room::AfterSync,
    }
}

/// Pages that got other places: the first of each run, and where they lay.
#[derive(Default)]
pub(super) struct Moved(Vec<(u64, Vec<Extent>)>);

impl Volume {
    /// Bytes of blocks that were overwritten where they lay, for want of room.
    pub fn stayed_bytes(&self) -> u64 {
        self.stayed_pages.load(Ordering::Relaxed) * PAGE_BYTES
    }

    /// To be called before whole pages are written ([`Node::overwriting`] held): those of which the
    /// table says where they lie get other places. Where the volume has no room for both they stay,
    /// and what a power cut leaves of a write is then as on a plain file: sectors of both. Nothing
    /// is done, and `None` returned, if there is room once the file is synced.
    ///
    /// # Errors
    /// As [`crate::Port::run`], where other files have to give room back first.
    pub(super) fn move_away(&self, node: &Node, first: u64, end: u64) -> Result<Option<Moved>> {
        let mut moved = Moved::default();
        if node.is_temp() || !node.known().pages.meets(first, end) {
            return Ok(Some(moved));
        }
        let mut core = self.core();
        if node.is_removed() || end > node.map().pages() {
            return Ok(Some(moved));
        }
        self.make_room_to_move(&mut core, node, end - first)?;
        let mut known = node.known();
        let runs = known.pages.take(first, end);
        let pages = runs.iter().map(|(from, to)| to - from).sum();
        let (free, all) = (core.space.free_pages(), core.table.page_count);
        // Each run divides a piece in two at most, beside those that it comes to lie in.
        let runs_free = core.space.free_runs();
        let pieces = runs.iter().map(|(from, to)| 1 + runs_free.min(to - from)).sum();
        let may_move = node.extent_count() < EXTENTS_MAX && core.may_move(pieces);
        let room = match may_move {
            true => room(pages, known.left.pages(), free, all),
            false => Room::None,
        };
        if room != Room::Now {
            runs.iter().for_each(|(from, to)| known.pages.add(*from, *to));
            if room == Room::AfterSync {
                return Ok(None);
            }
            self.stayed_pages.fetch_add(pages, Ordering::Relaxed);
            meter::note(self.port().name(), DeviceMetric::BytesInPlace, pages * PAGE_BYTES);
            return Ok(Some(moved));
        }
        for (from, to) in runs {
            let places = find_place(&mut core, node, from, to - from);
            let left = node.move_pages(from, &places);
            known.left.add(&left);
            moved.0.push((from, left));
        }
        Ok(Some(moved))
    }

    /// Takes back what other files have beyond their need, where only that keeps blocks from
    /// moving.
    fn make_room_to_move(&self, core: &mut Core, node: &Node, pages: u64) -> Result<()> {
        let waiting = node.known().left.pages();
        let (free, all) = (core.space.free_pages(), core.table.page_count);
        if room(pages, waiting, free, all) != Room::None {
            return Ok(());
        }
        let helps = |spare| spare > 0 && room(pages, waiting, free + spare, all) != Room::None;
        self.take_back_if(core, "volume write", helps)
    }

    /// Undoes it: what was to be written there could not be, and what the table tells of is whole.
    pub(super) fn move_back(&self, node: &Node, moved: Moved) {
        if moved.0.is_empty() {
            return;
        }
        let mut core = self.core();
        let mut known = node.known();
        let mut places = Vec::new();
        for (from, left) in moved.0 {
            let to = from + pages_of(&left);
            // Cut off or removed meanwhile: then those places were given back.
            if node.is_removed() || to > node.map().pages() || !known.left.take(&left) {
                continue;
            }
            places.extend(node.move_pages(from, &left));
            known.pages.add(from, to);
        }
        drop(known);
        if !places.is_empty() {
            drop(node.map_mut());
            self.release(&mut core, &places, true);
        }
    }

    /// To be called when the table says where every page of a file lies: what it said before is
    /// free, once nobody reads there any more.
    pub(super) fn leave(&self, core: &mut Core, node: &Node, left: &Left) {
        if left.pages() > 0 {
            drop(node.map_mut());
            self.release(core, left.places(), true);
        }
    }
}

/// Right behind the page before, if that is free: so a block comes back to where it was before it
/// moved, and extents stay few. There are so many free pages.
fn find_place(core: &mut Core, node: &Node, first: u64, pages: u64) -> Vec<Extent> {
    let before = first.checked_sub(1).and_then(|page| node.map().pieces(page, 1).pop());
    let places = core.space.allocate(pages, pages, before.map(Extent::end));
    places.expect("there is room")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_sync_is_asked_for_where_it_helps_and_only_there(
            pages in 1u64..3000,
            waiting in 0u64..3000,
            free in 0u64..3000,
            all in 1u64..10_000,
        ) {
            let synced = room(pages, 0, free + waiting, all);
            match room(pages, waiting, free, all) {
                Room::Now => prop_assert!(pages <= free),
                Room::AfterSync => prop_assert!(waiting > 0 && synced == Room::Now),
                Room::None => prop_assert_eq!(synced, Room::None),
            }
        }

        /// Room does not run out while blocks move: after a sync a quarter of what is unused can.
        #[test]
        fn syncs_in_between_are_few(pages in 1u64..64, unused in 1024u64..100_000) {
            let mut waiting = 0;
            while room(pages, waiting, unused - waiting, 16 * (unused - pages)) == Room::Now {
                waiting += pages;
            }
            prop_assert!(waiting + pages > unused / WAITING_MOST);
        }
    }
}

//! Blocks that are overwritten: they go to other pages, and the table on the device learns of them
//! with the file's next sync. So after a power cut a block is the old one or the new one, whole.
//!
//! DuckDB counts on that: in a block of metadata it writes what is new beside what still holds, and
//! a block that is half of each has a checksum that fits neither, so the database cannot be opened.

use crate::meter;
use crate::volume::file::File;
use crate::volume::helped::BLOCK_LEAST_BYTES;
use crate::volume::node::Node;
use crate::volume::space::Extent;
use crate::volume::table::PAGE_BYTES;
use crate::volume::{Core, Volume};
use penstock_base::{DeviceMetric, Result};
use std::sync::atomic::Ordering;

/// Most extents of a file whose blocks move: they are written with every commit.
const EXTENTS_MAX: usize = 4096;
/// The part of a volume that is left to files that grow.
const ROOM_KEPT: u64 = 16;
/// Places that wait for a sync are at most this part of what is free: other files have to grow.
const WAITING_MOST: u64 = 4;

/// Whether so many pages can get other places in a volume of `all` pages, of which `free` are free,
/// while `waiting` wait for a sync.
fn has_room(pages: u64, waiting: u64, free: u64, all: u64) -> bool {
    free >= pages + all / ROOM_KEPT && waiting + pages <= free / WAITING_MOST
}

/// Pages that got other places: the first of each run, and where they lay.
#[derive(Default)]
pub(super) struct Moved(Vec<(u64, Vec<Extent>)>);

fn pages_of(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| extent.pages).sum()
}

impl File {
    /// To be called before a range is written, with no lock held: if blocks are to be overwritten
    /// for which there is no room beside the places that wait for a sync, that sync is made now.
    pub(super) fn let_move(&self, offset: u64, end: u64) -> Result<()> {
        let (first, end) = (offset.div_ceil(PAGE_BYTES), end / PAGE_BYTES);
        let is_block = end.saturating_sub(first) * PAGE_BYTES >= BLOCK_LEAST_BYTES as u64;
        if !is_block || !self.volume.wants_sync(&self.node, first, end) {
            return Ok(());
        }
        let growth = self.node.growth();
        // Another thread may have made it meanwhile.
        match self.volume.wants_sync(&self.node, first, end) {
            true => self.sync_growth(&growth),
            false => Ok(()),
        }
    }
}

impl Volume {
    /// Whether blocks find other places only once those that wait for a sync are free.
    fn wants_sync(&self, node: &Node, first: u64, end: u64) -> bool {
        if node.is_temp() {
            return false;
        }
        let waiting = {
            let known = node.known();
            if known.left.is_empty() || !known.pages.meets(first, end) {
                return false;
            }
            pages_of(&known.left)
        };
        let core = self.core();
        !has_room(end - first, waiting, core.space.free_pages(), core.table.page_count)
    }

    /// Bytes of blocks that were overwritten where they lay, for want of room.
    pub fn stayed_bytes(&self) -> u64 {
        self.stayed_pages.load(Ordering::Relaxed) * PAGE_BYTES
    }

    fn note_stayed(&self, pages: u64) {
        self.stayed_pages.fetch_add(pages, Ordering::Relaxed);
        meter::note(self.port().name(), DeviceMetric::BytesInPlace, pages * PAGE_BYTES);
    }

    /// To be called before whole pages are written ([`Node::overwriting`] held): those of which the
    /// table says where they lie get other places. Where the volume has no room for both they stay,
    /// and what a power cut leaves of a write is then as on a plain file: sectors of both.
    pub(super) fn move_away(&self, node: &Node, first: u64, end: u64) -> Moved {
        let mut moved = Moved::default();
        if node.is_temp() || !node.known().pages.meets(first, end) {
            return moved;
        }
        let mut core = self.core();
        if node.is_removed() || end > node.map().pages() {
            return moved;
        }
        let mut known = node.known();
        for (from, to) in known.pages.take(first, end) {
            let waiting = pages_of(&known.left);
            match self.find_place(&mut core, node, (from, to - from), waiting) {
                Some(places) => {
                    let left = node.move_pages(from, &places);
                    known.left.extend(&left);
                    moved.0.push((from, left));
                }
                None => {
                    known.pages.add(from, to);
                    self.note_stayed(to - from);
                }
            }
        }
        moved
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
            if node.is_removed() || to > node.map().pages() || !known.take_left(&left) {
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

    /// Right behind the page before, if that is free: so a block comes back to where it was before
    /// it moved, and extents stay few.
    fn find_place(
        &self,
        core: &mut Core,
        node: &Node,
        (first, pages): (u64, u64),
        waiting: u64,
    ) -> Option<Vec<Extent>> {
        let map = node.map();
        let free = core.space.free_pages();
        let has_room = has_room(pages, waiting, free, core.table.page_count);
        if map.extents().len() >= EXTENTS_MAX || !has_room {
            return None;
        }
        let before = first.checked_sub(1).and_then(|page| map.pieces(page, 1).pop());
        core.space.allocate(pages, pages, before.map(Extent::end))
    }

    /// To be called when the table says where every page of a file lies: what it said before is
    /// free, once nobody reads there any more.
    pub(super) fn leave(&self, core: &mut Core, node: &Node, left: &[Extent]) {
        if !left.is_empty() {
            drop(node.map_mut());
            self.release(core, left, true);
        }
    }
}

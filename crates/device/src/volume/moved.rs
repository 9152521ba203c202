//! Blocks that are overwritten: they go to other pages, and the table on the device learns of them
//! with the file's next sync. So after a power cut a block is the old one or the new one, whole.
//!
//! DuckDB counts on that: in a block of metadata it writes what is new beside what still holds, and
//! a block that is half of each has a checksum that fits neither, so the database cannot be opened.

use crate::volume::node::Node;
use crate::volume::space::Extent;
use crate::volume::table::PAGE_BYTES;
use crate::volume::{Core, Volume};
use std::sync::atomic::Ordering;

/// Most extents of a file whose blocks move: they are written with every commit.
const EXTENTS_MAX: usize = 4096;
/// The part of a volume that is left to files that grow.
const ROOM_KEPT: u64 = 16;

impl Volume {
    /// Bytes of blocks that were overwritten where they lay, for want of room.
    pub fn stayed_bytes(&self) -> u64 {
        self.stayed_pages.load(Ordering::Relaxed) * PAGE_BYTES
    }

    /// To be called before whole pages are written: those of which the table says where they lie
    /// get other places. Where the volume has no room for both they stay, and what a power cut
    /// leaves of a write is then as on a plain file: sectors of both.
    pub(super) fn move_away(&self, node: &Node, first: u64, end: u64) {
        if node.is_temp() || !node.known().pages.meets(first, end) {
            return;
        }
        let mut core = self.core();
        if node.is_removed() || end > node.map().pages() {
            return;
        }
        let mut known = node.known();
        for (from, to) in known.pages.take(first, end) {
            match self.find_place(&mut core, node, from, to - from) {
                Some(places) => known.left.extend(node.move_pages(from, &places)),
                None => {
                    known.pages.add(from, to);
                    self.stayed_pages.fetch_add(to - from, Ordering::Relaxed);
                }
            }
        }
    }

    /// Right behind the page before, if that is free: so a block comes back to where it was before
    /// it moved, and extents stay few.
    fn find_place(
        &self,
        core: &mut Core,
        node: &Node,
        first: u64,
        pages: u64,
    ) -> Option<Vec<Extent>> {
        let map = node.map();
        let room_kept = core.table.page_count / ROOM_KEPT;
        if map.extents().len() >= EXTENTS_MAX || core.space.free_pages() < pages + room_kept {
            return None;
        }
        let before = first.checked_sub(1).and_then(|page| map.pieces(page, 1).pop());
        core.space.allocate(pages, pages, before.map(Extent::end))
    }

    /// To be called when the table says where every page of a file lies: what it said before is
    /// free, once nobody reads there any more.
    pub(super) fn leave(&self, core: &mut Core, node: &Node, size_bytes: u64) {
        let left = node.become_known(size_bytes);
        if !left.is_empty() {
            drop(node.map_mut());
            self.release(core, &left, true);
        }
    }
}

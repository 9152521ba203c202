//! Pages for files: taken when they grow, given back when they shrink or go. It decides how much a
//! file gets; which pages, `space` decides.

use crate::volume::file::File;
use crate::volume::node::Node;
use crate::volume::space::Extent;
use crate::volume::table::{Entry, PAGE_BYTES};
use crate::volume::{Core, Volume};
use penstock_base::{Error, Kind, Result};
use std::ops::Range;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

impl File {
    /// Sees to it that the file has `pages` pages, if need be with those that wait for its sync.
    pub(super) fn reserve(&self, pages: u64, growth: &MutexGuard<'_, ()>) -> Result<()> {
        let reserved = self.volume.reserve(&self.node, pages);
        let is_full = |error: &Error| error.kind() == Kind::Exhausted;
        if reserved.as_ref().is_err_and(is_full) && !self.node.known().left.is_empty() {
            self.sync_growth(growth)?;
            return self.volume.reserve(&self.node, pages);
        }
        reserved
    }
}

impl Volume {
    /// Sees to it that a file has `pages` pages.
    fn reserve(&self, node: &Node, pages: u64) -> Result<()> {
        /// A quarter more than it has, so that extents stay few; at most 256 MiB.
        fn wanted(has: u64, least: u64, free: u64) -> u64 {
            least.max((has / 4).clamp(256, 65_536).min(free / 16))
        }
        let mut core = self.core();
        let (has, after) = {
            let map = node.map();
            (map.pages(), map.end())
        };
        if pages <= has {
            return Ok(());
        }
        let least = pages - has;
        let free = core.space.free_pages();
        let Some(extents) = core.space.allocate(wanted(has, least, free), least, after) else {
            let free = free * PAGE_BYTES;
            let message = format!("{} bytes more are needed, {free} are free", least * PAGE_BYTES);
            return Err(self
                .error(Kind::Exhausted, &message, "volume write", &node.name())
                .with_hint("Remove files, or enlarge the device and run `penstock nvme grow`"));
        };
        node.map_mut().append(&extents);
        Ok(())
    }

    /// Makes a file shorter, or keeps its size, and gives back the pages that it does not need.
    pub(super) fn shorten(&self, node: &Node, size_bytes: u64) -> Result<()> {
        const OPERATION: &str = "volume truncate";
        let mut core = self.core();
        let mut map = node.map_mut();
        let (kept, freed) = map.cut(size_bytes.div_ceil(PAGE_BYTES));
        if !node.is_temp() {
            let name = node.name();
            let mut next = core.table.clone();
            let Some(entry) = next.files.get_mut(&name) else {
                let message = "the file was removed";
                return Err(self.error(Kind::NotFound, message, OPERATION, &name));
            };
            *entry = Entry { size_bytes, extents: kept.extents().to_vec() };
            self.commit(&mut core, next, OPERATION)?;
        }
        *map = kept;
        node.set_size(size_bytes);
        drop(map);
        let left = node.become_known(size_bytes);
        self.release(&mut core, &left, true);
        self.release(&mut core, &freed, node.is_temp());
        Ok(())
    }

    /// Takes the pages of a file that is in no table any more.
    pub(super) fn discard(&self, core: &mut Core, node: &Node) {
        let freed = std::mem::take(&mut *node.map_mut());
        node.mark_removed();
        self.release(core, &node.become_known(0), true);
        self.release(core, freed.extents(), node.is_temp());
    }

    /// Gives pages back and tells the device, or lets that wait until the volume closes: where
    /// others follow soon, a file system under the device would have to find room for them anew.
    pub(super) fn release(&self, core: &mut Core, extents: &[Extent], trims_later: bool) {
        if trims_later {
            for extent in extents {
                let Range { start, end } = core.untrimmed;
                core.untrimmed = match start < end {
                    true => start.min(extent.first_page)..end.max(extent.end()),
                    false => extent.first_page..extent.end(),
                };
            }
        } else {
            // Before anybody can get these pages: a trim must not meet what is written next.
            self.trim(extents);
        }
        extents.iter().for_each(|extent| core.space.release(*extent));
    }

    /// Trims what was let wait.
    pub(super) fn trim_late(&self) {
        let core = self.core();
        self.trim(&core.space.free_within(core.untrimmed.start, core.untrimmed.end));
    }

    /// Trimming is advice: a device that refuses it keeps the old bytes, which nobody reads.
    pub(super) fn trim(&self, extents: &[Extent]) {
        let per_page = self.paging.blocks_per_page;
        for extent in extents.iter().filter(|_| self.trims.load(Ordering::Relaxed)) {
            let trimmed = self.port.trim(extent.first_page * per_page, extent.pages * per_page);
            self.trims.fetch_and(trimmed.is_ok(), Ordering::Relaxed);
        }
    }
}

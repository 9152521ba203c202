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

/// Pages that spilled files leave to those that last, of so many that only they have or nobody: a
/// commit that finds no room fails for good, a query that spills is run again. An eighth, and never
/// more than 1 GiB.
fn kept_from_spilling(unused: u64) -> u64 {
    const MOST: u64 = (1 << 30) / PAGE_BYTES;
    (unused / 8).min(MOST)
}

impl Core {
    /// Free pages that a file must not have.
    fn kept_from(&self, node: &Node) -> u64 {
        if !node.is_temp() {
            return 0;
        }
        let spilled = self.nodes.values().filter(|node| node.is_temp());
        let spilled: u64 = spilled.map(|node| node.map().pages()).sum();
        kept_from_spilling(self.space.free_pages() + spilled)
    }
}

impl File {
    /// Sees to it that the file has `pages` pages, if need be with those that wait for its sync.
    pub(super) fn reserve(&self, pages: u64, growth: &MutexGuard<'_, ()>) -> Result<()> {
        /// Blocks that move at the same time may take what a sync has made free.
        const SYNCS_MAX: u32 = 3;
        let is_full = |error: &Error| error.kind() == Kind::Exhausted;
        let mut syncs = 0;
        loop {
            let reserved = self.volume.reserve(&self.node, pages);
            let helps = || syncs < SYNCS_MAX && self.volume.finds_room(&self.node, pages);
            if !(reserved.as_ref().is_err_and(is_full) && helps()) {
                return reserved;
            }
            self.sync_growth(growth)?;
            syncs += 1;
        }
    }
}

impl Volume {
    /// Whether a file can have `pages` pages with those that wait for its sync.
    fn finds_room(&self, node: &Node, pages: u64) -> bool {
        let core = self.core();
        let least = pages.saturating_sub(node.map().pages());
        let waiting = node.known().left.pages();
        waiting > 0 && core.space.free_pages() + waiting >= least
    }

    /// Sees to it that a file has `pages` pages.
    fn reserve(&self, node: &Node, pages: u64) -> Result<()> {
        /// A quarter more than it has, so that extents stay few; at most 256 MiB.
        fn wanted(has: u64, least: u64, free: u64) -> u64 {
            least.max((has / 4).clamp(256, 65_536).min(free / 16))
        }
        const OPERATION: &str = "volume write";
        let mut core = self.core();
        if node.is_removed() {
            return Err(self.gone(OPERATION, node));
        }
        let (has, after) = {
            let map = node.map();
            (map.pages(), map.end())
        };
        node.promise(pages);
        if pages <= has {
            return Ok(());
        }
        let least = pages - has;
        let may_have = |core: &Core| core.space.free_pages().saturating_sub(core.kept_from(node));
        if may_have(&core) < least {
            let waiting = node.known().left.pages();
            let missing = least.saturating_sub(may_have(&core) + waiting);
            self.take_back_if(&mut core, OPERATION, |spare| spare > 0 && spare >= missing)
                .inspect_err(|_| node.promise(0))?;
        }
        let free = may_have(&core);
        let extents = match free >= least {
            true => core.space.allocate(wanted(has, least, free), least, after),
            false => None,
        };
        let Some(extents) = extents else {
            node.promise(0);
            return Err(self.full(&core, node, least, OPERATION));
        };
        if !node.is_temp() && !core.may_grow(extents.len() as u64) {
            extents.iter().for_each(|extent| core.space.release(*extent));
            node.promise(0);
            return Err(self.table_full(OPERATION, &node.name()));
        }
        node.map_mut().append(&extents);
        Ok(())
    }

    fn full(&self, core: &Core, node: &Node, least: u64, operation: &'static str) -> Error {
        let (free, kept) = (core.space.free_pages(), core.kept_from(node));
        let mut message =
            format!("{} bytes more are needed, {} are free", least * PAGE_BYTES, free * PAGE_BYTES);
        if kept > 0 {
            message += &format!(", of which {} are kept for databases", kept * PAGE_BYTES);
        }
        self.error(Kind::Exhausted, &message, operation, &node.name())
            .with_hint("Remove files, or enlarge the device and run `penstock nvme grow`")
    }

    /// Makes a file shorter, or keeps its size, and gives back the pages that it does not need.
    pub(super) fn shorten(&self, node: &Node, size_bytes: u64) -> Result<()> {
        const OPERATION: &str = "volume truncate";
        let mut core = self.core();
        if node.is_removed() {
            return Err(self.gone(OPERATION, node));
        }
        let mut map = node.map_mut();
        let (kept, freed) = map.cut(size_bytes.div_ceil(PAGE_BYTES));
        if !node.is_temp() {
            let name = node.name();
            let mut next = core.table.clone();
            let Some(entry) = next.files.get_mut(&name) else {
                return Err(self.gone(OPERATION, node));
            };
            *entry = Entry { size_bytes, extents: kept.extents().to_vec() };
            self.commit(&mut core, next, OPERATION)?;
        }
        *map = kept;
        node.promise(0);
        node.set_size(size_bytes);
        drop(map);
        let before = node.become_known(size_bytes);
        self.release(&mut core, before.left.places(), true);
        self.release(&mut core, &freed, node.is_temp());
        Ok(())
    }

    /// Takes the pages of a file that is in no table any more.
    pub(super) fn discard(&self, core: &mut Core, node: &Node) {
        let mut map = node.map_mut();
        // Before the map can be seen without its pages: who finds none learns why.
        node.mark_removed();
        let freed = std::mem::take(&mut *map);
        drop(map);
        self.release(core, node.become_known(0).left.places(), true);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Image, ModelDevice};
    use crate::volume::{FormatOptions, Lock, OpenFileOptions, format};
    use crate::{Discipline, Port};
    use proptest::prelude::*;
    use std::sync::Arc;

    proptest! {
        #[test]
        fn what_is_kept_from_spilling_is_an_eighth_at_most(unused in 0u64..1 << 40) {
            let kept = kept_from_spilling(unused);
            prop_assert!(kept <= unused / 8 && kept <= 262_144);
            prop_assert!(kept == unused / 8 || kept == 262_144);
        }
    }

    /// A thread that was on its way when its file went finds another one under its name.
    #[test]
    fn who_comes_too_late_for_a_file_changes_none_that_has_its_name() {
        let model = ModelDevice::new(4096, 1280, Image::default()).expect("the sizes are right");
        let model = Arc::new(model);
        let port = || Port::new(model.clone(), Discipline::Thread).expect("opens");
        format(&port(), FormatOptions::default()).expect("formats");
        let volume = Volume::open(port()).expect("opens");
        let file = |name: &str, bytes: &[u8]| {
            let options = OpenFileOptions { create: true, lock: Lock::None };
            let file = volume.open_file(name, options).expect("creates");
            file.write_at(bytes, 0).expect("writes");
            file.sync().expect("syncs");
            file
        };
        let (old, _new) = (file("a", &[1; 9000]), file("b", &[2; 5000]));
        volume.rename("b", "a").expect("renames");
        let free = volume.free_bytes();
        let is_gone = |outcome: Result<()>| {
            assert_eq!(outcome.expect_err("the file is gone").kind(), Kind::NotFound);
        };
        is_gone(volume.sync(&old.node, old.node.at_rest()));
        is_gone(volume.shorten(&old.node, 0));
        is_gone(volume.reserve(&old.node, 10));
        assert_eq!(volume.free_bytes(), free);
        drop((old, _new, volume));
        let volume = Volume::open(port()).expect("opens");
        let found: Vec<_> =
            volume.list().into_iter().map(|file| (file.name, file.size_bytes)).collect();
        assert_eq!(found, [("a".to_string(), 5000)]);
    }
}

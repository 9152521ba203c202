//! Writing a range of one file. It decides what is written as whole pages and what as a part of
//! one, and in which order growth, places and bytes become known to others.

use crate::device::Command;
use crate::volume::behind;
use crate::volume::copies::memory;
use crate::volume::file::{File, PAGE};
use crate::volume::helped::BLOCK_LEAST_BYTES;
use crate::volume::moved::Moved;
use crate::volume::node::{Edge, HolesGuard, NO_PAGE};
use crate::volume::table::PAGE_BYTES;
use penstock_base::Result;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, RwLockReadGuard};

/// Most bytes of zeros that are written at once.
const ZEROS_BYTES: u64 = 1 << 20;

/// A file's growth, held. Who holds it already hands it on to whoever may have to sync.
type Growth<'a> = MutexGuard<'a, ()>;

/// How a span is written.
#[derive(Clone, Copy)]
struct Way<'a> {
    /// Pages from there on, in bytes, hold nothing yet.
    valid_end: u64,
    /// Whether a thread of the volume may write it later.
    is_helped: bool,
    /// What the caller holds.
    growth: Option<&'a Growth<'a>>,
}

/// Whole pages that are about to be written: no table tells of them while this is held.
struct Begun<'a> {
    first: u64,
    moved: Moved,
    holes: Vec<(u64, u64)>,
    _overwriting: RwLockReadGuard<'a, ()>,
}

impl File {
    /// Writes `from` at `offset`; behind the end the file grows, and what lies between is zeros.
    ///
    /// # Errors
    /// `Exhausted` if the volume is full; `Denied` if it is read-only; `NotFound` if the file was
    /// removed; and as [`crate::Port::run`], where the bytes of the range are then not known. Where
    /// room is scarce, what was written before may have to be synced: as [`File::sync`] then.
    pub fn write_at(&self, from: &[u8], offset: u64) -> Result<()> {
        const OPERATION: &str = "volume write";
        self.check(OPERATION)?;
        self.volume.check_writable(OPERATION)?;
        let end = self.end(offset, from.len(), OPERATION)?;
        if from.is_empty() {
            return Ok(());
        }
        self.before_change(offset, end)?;
        let outcome = self.write_range(from, offset, end);
        self.after_change(offset, end);
        outcome
    }

    fn write_range(&self, from: &[u8], offset: u64, end: u64) -> Result<()> {
        let within = Way { valid_end: u64::MAX, is_helped: true, growth: None };
        if end <= self.node.size() {
            return self.write_span(from, offset, within);
        }
        let growth = self.node.growth();
        let size = self.node.size();
        if end <= size {
            drop(growth);
            return self.write_span(from, offset, within);
        }
        self.reserve(end.div_ceil(PAGE_BYTES), &growth)?;
        self.leave_gap(size, offset, &growth)?;
        if offset.is_multiple_of(PAGE_BYTES) && end.is_multiple_of(PAGE_BYTES) {
            // Whole pages meet no other write, so threads may add blocks side by side.
            let begun = self.begin(offset / PAGE_BYTES, end / PAGE_BYTES, Some(&growth));
            let begun = begun.inspect_err(|_| self.stay_at(size))?;
            self.node.set_size(end);
            drop(growth);
            // Others may have grown the file further, so it keeps its size; what was on these pages
            // before must not become its own.
            let added = (size.div_ceil(PAGE_BYTES).max(begun.first), end / PAGE_BYTES);
            return self.write_begun(begun, from, true, &[added]);
        }
        let way = Way { valid_end: size, is_helped: true, growth: Some(&growth) };
        self.write_span(from, offset, way).inspect_err(|_| self.stay_at(size))?;
        self.node.set_size(end);
        Ok(())
    }

    /// The file ends where it did, and nobody waits for what was taken of what could not be added.
    fn stay_at(&self, size: u64) {
        let end = size.div_ceil(PAGE_BYTES);
        self.node.forget_edge(end, NO_PAGE);
        self.node.holes().take(end, NO_PAGE);
        behind::forget(&self.node, end);
        self.node.promise(0);
    }

    /// Makes nothing but zeros of what lies from the end of the file to a write behind it. Whole
    /// pages are noted only: mostly another thread is about to write them.
    fn leave_gap(&self, from: u64, to: u64, growth: &Growth<'_>) -> Result<()> {
        let whole = from.next_multiple_of(PAGE_BYTES);
        self.fill_zeros(from, whole.min(to), growth)?;
        // The page in which `to` lies is new, and whoever writes it begins with zeros.
        if whole / PAGE_BYTES < to / PAGE_BYTES {
            self.node.add_hole(whole / PAGE_BYTES, to / PAGE_BYTES);
        }
        Ok(())
    }

    /// Writes the zeros of pages that were never written.
    pub(super) fn fill_holes(
        &self,
        holes: &mut HolesGuard<'_>,
        first: u64,
        end: u64,
    ) -> Result<()> {
        let taken = holes.take(first, end);
        for (index, (from, to)) in taken.iter().copied().enumerate() {
            let length = ((to - from) * PAGE_BYTES).min(ZEROS_BYTES);
            let zeros = memory(self.volume.port(), length as usize);
            let mut at = from;
            while at < to {
                let pages = (to - at).min(length / PAGE_BYTES);
                let written = self.write_pages(at, &zeros[..(pages * PAGE_BYTES) as usize]);
                written.inspect_err(|_| holes.put_back(&taken[index..]))?;
                at += pages;
            }
        }
        Ok(())
    }

    /// Writes zeros behind the end of the file, which has pages for them.
    pub(super) fn fill_zeros(&self, from: u64, to: u64, growth: &Growth<'_>) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let length = (to - from).min(ZEROS_BYTES) as usize;
        let zeros = memory(self.volume.port(), length.next_multiple_of(PAGE));
        let way = Way { valid_end: from, is_helped: false, growth: Some(growth) };
        let mut at = from;
        while at < to {
            // Up to the end of a page, so that all but the first and last write are whole pages.
            let next = (at + ZEROS_BYTES) / PAGE_BYTES * PAGE_BYTES;
            let end = next.min(to);
            self.write_span(&zeros[..(end - at) as usize], at, way)?;
            at = end;
        }
        Ok(())
    }

    /// Writes a range for which there are pages.
    fn write_span(&self, from: &[u8], offset: u64, way: Way<'_>) -> Result<()> {
        let (mut at, mut rest) = (offset, from);
        let within = at as usize % PAGE;
        if within > 0 || rest.len() < PAGE {
            let (now, later) = rest.split_at(rest.len().min(PAGE - within));
            self.patch(at, now, way.valid_end)?;
            at += now.len() as u64;
            rest = later;
        }
        let (body, tail) = rest.split_at(rest.len() / PAGE * PAGE);
        let first = at / PAGE_BYTES;
        if !body.is_empty() {
            let begun = self.begin(first, first + (body.len() / PAGE) as u64, way.growth)?;
            // What spills beside whole pages (behind a header, say) is read like that, too: a block
            // in memory would have to be written for its reader first.
            let is_helped = way.is_helped && (!self.node.is_temp() || body.len() == from.len());
            self.write_begun(begun, body, is_helped, &[])?;
        }
        if !tail.is_empty() {
            self.patch(at + body.len() as u64, tail, way.valid_end)?;
        }
        Ok(())
    }

    /// To be called before whole pages are written: blocks get other places, if need be once those
    /// are free that wait for a sync.
    fn begin(&self, first: u64, end: u64, growth: Option<&Growth<'_>>) -> Result<Begun<'_>> {
        self.node.forget_edge(first, end);
        let is_block = (end - first) * PAGE_BYTES >= BLOCK_LEAST_BYTES as u64;
        let mut own = None;
        loop {
            let overwriting = self.node.overwriting();
            let moved = match is_block {
                true => self.volume.move_away(&self.node, first, end)?,
                false => Some(Moved::default()),
            };
            if let Some(moved) = moved {
                let holes = self.node.leave_holes(first, end);
                return Ok(Begun { first, moved, holes, _overwriting: overwriting });
            }
            drop(overwriting);
            match growth.or(own.as_ref()) {
                Some(growth) => self.sync_growth(growth)?,
                // While this was waited for, another thread may have synced.
                None => own = Some(self.node.growth()),
            }
        }
    }

    /// `added` are pages that no file had before.
    fn write_begun(
        &self,
        begun: Begun<'_>,
        from: &[u8],
        is_helped: bool,
        added: &[(u64, u64)],
    ) -> Result<()> {
        let written = match is_helped {
            true => self.write_helped(begun.first, from),
            false => self.write_pages(begun.first, from),
        };
        written.inspect_err(|_| {
            self.volume.move_back(&self.node, begun.moved);
            self.node.put_back_holes(&begun.holes);
            self.node.put_back_holes(added);
        })
    }

    /// Writes a part of one page: what is beside it stays.
    fn patch(&self, offset: u64, from: &[u8], valid_end: u64) -> Result<()> {
        let (page, within) = (offset / PAGE_BYTES, offset as usize % PAGE);
        let _overwriting = self.node.overwriting();
        let mut edge = self.node.edge();
        let Edge { page: bytes } = &mut *edge;
        if bytes.is_empty() {
            *bytes = memory(self.volume.port(), PAGE);
        }
        let mut holes = Vec::new();
        if self.node.edge_page.swap(NO_PAGE, Ordering::AcqRel) != page {
            holes = self.node.leave_holes(page, page + 1);
            match page * PAGE_BYTES >= valid_end || !holes.is_empty() {
                true => bytes.fill(0),
                false => self.read_pages_of(bytes, page * PAGE_BYTES)?,
            }
        }
        bytes[within..within + from.len()].copy_from_slice(from);
        let written = self.write_pages(page, bytes);
        written.inspect_err(|_| self.node.put_back_holes(&holes))?;
        self.node.edge_page.store(page, Ordering::Release);
        Ok(())
    }

    pub(super) fn write_pages(&self, first: u64, from: &[u8]) -> Result<()> {
        let pages = (from.len() / PAGE) as u64;
        let map = self.node.map();
        self.check_map(&map, first + pages, "volume write")?;
        let mut rest = from;
        let mut batch = Vec::new();
        for piece in map.pieces(first, pages) {
            let (now, later) = rest.split_at(piece.pages as usize * PAGE);
            let block = piece.first_page * self.volume.paging.blocks_per_page;
            batch.push(Command::Write { block, from: now });
            rest = later;
        }
        self.volume.port().run(&mut batch)
    }
}

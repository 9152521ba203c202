//! Bytes of one file at any offset. It decides which pages a range touches and how parts of pages
//! are written; where the pages lie is told by the map.

use crate::device::Command;
use crate::volume::Volume;
use crate::volume::behind;
use crate::volume::copies::memory;
use crate::volume::helped::BLOCK_LEAST_BYTES;
use crate::volume::map::Map;
use crate::volume::moved::Moved;
use crate::volume::node::{Edge, HolesGuard, Lock, NO_PAGE, Node};
use crate::volume::table::PAGE_BYTES;
use penstock_base::{Error, Kind, Result};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

pub(super) const PAGE: usize = PAGE_BYTES as usize;
/// Most bytes of zeros that are written at once.
const ZEROS_BYTES: u64 = 1 << 20;

/// An open file; threads may use it together, also to write, as long as their ranges differ.
pub struct File {
    pub(super) volume: Arc<Volume>,
    pub(super) node: Arc<Node>,
    lock: Lock,
}

/// Adds the commands that read whole pages from the file's page `first` on.
fn plan_reads<'a>(
    batch: &mut Vec<Command<'a>>,
    map: &Map,
    blocks_per_page: u64,
    first: u64,
    into: &'a mut [u8],
) {
    let mut rest = into;
    for piece in map.pieces(first, (rest.len() / PAGE) as u64) {
        let (now, later) = rest.split_at_mut(piece.pages as usize * PAGE);
        batch.push(Command::Read { block: piece.first_page * blocks_per_page, into: now });
        rest = later;
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.node.unlock(self.lock);
    }
}

impl File {
    pub(crate) fn new(volume: Arc<Volume>, node: Arc<Node>, lock: Lock) -> Self {
        File { volume, node, lock }
    }

    /// Its name now; a rename changes it.
    pub fn name(&self) -> String {
        self.node.name()
    }

    /// Exact size in bytes, with what is not synced yet.
    pub fn size_bytes(&self) -> u64 {
        self.node.size()
    }

    /// Counts the writes and truncations of the file that have ended, by any handle, and its
    /// removal. Bytes that were read after a look at it are right while it stands where it stood.
    pub fn changes(&self) -> u64 {
        self.node.changes()
    }

    /// The volume that it is on.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    fn error(&self, kind: Kind, message: &str, operation: &'static str) -> Error {
        self.volume.error(kind, message, operation, &self.node.name())
    }

    fn check(&self, operation: &'static str) -> Result<()> {
        match self.node.is_removed() {
            true => Err(self.error(Kind::NotFound, "the file was removed", operation)),
            false => Ok(()),
        }
    }

    /// Whether the file still has the pages before `end`; with the map held, it keeps them.
    pub(super) fn check_map(&self, map: &Map, end: u64, operation: &'static str) -> Result<()> {
        self.check(operation)?;
        match end <= map.pages() {
            true => Ok(()),
            false => {
                Err(self.error(Kind::Conflict, "the file was made shorter meanwhile", operation))
            }
        }
    }

    fn end(&self, offset: u64, length: usize, operation: &'static str) -> Result<u64> {
        let end = offset.checked_add(length as u64).filter(|end| *end < 1 << 60);
        end.ok_or_else(|| self.error(Kind::Invalid, "the range is beyond any device", operation))
    }

    /// Fills `into` from `offset` on; less than its length only at the end of the file. Bytes that
    /// were never written are zeros.
    ///
    /// # Errors
    /// `NotFound` if the file was removed; and as [`crate::Port::run`].
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize> {
        self.check("volume read")?;
        let size = self.node.size();
        let count = size.saturating_sub(offset).min(into.len() as u64) as usize;
        self.read_helped(&mut into[..count], offset, size)?;
        Ok(count)
    }

    /// Reads a range inside the file: parts of pages through memory of our own, whole pages
    /// straight to the caller, all of it in one batch.
    pub(super) fn read_pages_of(&self, into: &mut [u8], offset: u64) -> Result<()> {
        if into.is_empty() {
            return Ok(());
        }
        let port = self.volume.port();
        let within = offset as usize % PAGE;
        let head_length = if within > 0 { into.len().min(PAGE - within) } else { 0 };
        let tail_length = (into.len() - head_length) % PAGE;
        let (head, rest) = into.split_at_mut(head_length);
        let (body, tail) = rest.split_at_mut(rest.len() - tail_length);
        let mut head_page = memory(port, if head.is_empty() { 0 } else { PAGE });
        let mut tail_page = memory(port, if tail.is_empty() { 0 } else { PAGE });
        let first = offset / PAGE_BYTES;
        let body_first = first + u64::from(head_length > 0);
        let tail_first = body_first + (body.len() / PAGE) as u64;
        if self.node.has_holes() {
            let mut holes = self.node.holes();
            self.fill_holes(&mut holes, first, tail_first + 1)?;
        }
        let map = self.node.map();
        self.check_map(&map, tail_first + u64::from(tail_length > 0), "volume read")?;
        let per_page = self.volume.paging.blocks_per_page;
        let mut batch = Vec::new();
        plan_reads(&mut batch, &map, per_page, first, &mut head_page);
        plan_reads(&mut batch, &map, per_page, body_first, body);
        plan_reads(&mut batch, &map, per_page, tail_first, &mut tail_page);
        port.run(&mut batch)?;
        drop(batch);
        head.copy_from_slice(&head_page[within..][..head_length]);
        tail.copy_from_slice(&tail_page[..tail_length]);
        Ok(())
    }

    /// Writes `from` at `offset`; behind the end the file grows, and what lies between is zeros.
    ///
    /// # Errors
    /// `Exhausted` if the volume is full; `Denied` if it is read-only; `NotFound` if the file was
    /// removed; and as [`crate::Port::run`], where the bytes of the range are then not known.
    pub fn write_at(&self, from: &[u8], offset: u64) -> Result<()> {
        const OPERATION: &str = "volume write";
        self.check(OPERATION)?;
        self.volume.check_writable(OPERATION)?;
        let end = self.end(offset, from.len(), OPERATION)?;
        if from.is_empty() {
            return Ok(());
        }
        self.let_move(offset, end)?;
        self.before_change(offset, end)?;
        let outcome = self.write_range(from, offset, end);
        self.after_change(offset, end);
        outcome
    }

    fn write_range(&self, from: &[u8], offset: u64, end: u64) -> Result<()> {
        if end <= self.node.size() {
            return self.write_span(from, offset, u64::MAX, true);
        }
        let growth = self.node.growth();
        let size = self.node.size();
        if end <= size {
            drop(growth);
            return self.write_span(from, offset, u64::MAX, true);
        }
        self.reserve(end.div_ceil(PAGE_BYTES), &growth)?;
        self.leave_gap(size, offset)?;
        if offset.is_multiple_of(PAGE_BYTES) && end.is_multiple_of(PAGE_BYTES) {
            // Whole pages meet no other write, so threads may add blocks side by side.
            self.node.set_size(end);
            drop(growth);
            return self.write_span(from, offset, u64::MAX, true);
        }
        match self.write_span(from, offset, size, true) {
            Ok(()) => self.node.set_size(end),
            Err(error) => {
                // The file ends where it did, and nobody waits for what was taken of this.
                let end = size.div_ceil(PAGE_BYTES);
                self.node.holes().take(end, NO_PAGE);
                behind::forget(&self.node, end);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Makes nothing but zeros of what lies from the end of the file to a write behind it. Whole
    /// pages are noted only: mostly another thread is about to write them.
    fn leave_gap(&self, from: u64, to: u64) -> Result<()> {
        let whole = from.next_multiple_of(PAGE_BYTES);
        self.fill_zeros(from, whole.min(to))?;
        // The page in which `to` lies is new, and whoever writes it begins with zeros.
        if whole / PAGE_BYTES < to / PAGE_BYTES {
            self.node.add_hole(whole / PAGE_BYTES, to / PAGE_BYTES);
        }
        Ok(())
    }

    /// Writes the zeros of pages that were never written.
    fn fill_holes(&self, holes: &mut HolesGuard<'_>, first: u64, end: u64) -> Result<()> {
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

    /// Writes zeros from `from` to `to`, if that is more; the file has pages for them.
    fn fill_zeros(&self, from: u64, to: u64) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let length = (to - from).min(ZEROS_BYTES) as usize;
        let zeros = memory(self.volume.port(), length.next_multiple_of(PAGE));
        let mut at = from;
        while at < to {
            // Up to the end of a page, so that all but the first and last write are whole pages.
            let next = (at + ZEROS_BYTES) / PAGE_BYTES * PAGE_BYTES;
            let end = next.min(to);
            self.write_span(&zeros[..(end - at) as usize], at, from, false)?;
            at = end;
        }
        Ok(())
    }

    /// Writes a range for which there are pages, its blocks later if `is_helped`. Pages from
    /// `valid_end` on hold nothing yet.
    fn write_span(&self, from: &[u8], offset: u64, valid_end: u64, is_helped: bool) -> Result<()> {
        let (mut at, mut rest) = (offset, from);
        let within = at as usize % PAGE;
        if within > 0 || rest.len() < PAGE {
            let (now, later) = rest.split_at(rest.len().min(PAGE - within));
            self.patch(at, now, valid_end)?;
            at += now.len() as u64;
            rest = later;
        }
        let (body, tail) = rest.split_at(rest.len() / PAGE * PAGE);
        let first = at / PAGE_BYTES;
        let pages = (body.len() / PAGE) as u64;
        if pages > 0 {
            self.node.forget_edge(first, first + pages);
            let is_block = body.len() >= BLOCK_LEAST_BYTES && !self.node.is_temp();
            let _overwriting = is_block.then(|| self.node.overwriting());
            self.node.leave_holes(first, first + pages);
            let moved = match is_block {
                true => self.volume.move_away(&self.node, first, first + pages),
                false => Moved::default(),
            };
            let written = match is_helped {
                true => self.write_helped(first, body),
                false => self.write_pages(first, body),
            };
            if let Err(error) = written {
                self.volume.move_back(&self.node, moved);
                return Err(error);
            }
        }
        if !tail.is_empty() {
            self.patch(at + body.len() as u64, tail, valid_end)?;
        }
        Ok(())
    }

    /// Writes a part of one page: what is beside it stays.
    fn patch(&self, offset: u64, from: &[u8], valid_end: u64) -> Result<()> {
        let (page, within) = (offset / PAGE_BYTES, offset as usize % PAGE);
        let mut edge = self.node.edge();
        let Edge { page: bytes } = &mut *edge;
        if bytes.is_empty() {
            *bytes = memory(self.volume.port(), PAGE);
        }
        if self.node.edge_page.swap(NO_PAGE, Ordering::AcqRel) != page {
            match page * PAGE_BYTES >= valid_end || self.node.leave_holes(page, page + 1) {
                true => bytes.fill(0),
                false => self.read_pages_of(bytes, page * PAGE_BYTES)?,
            }
        }
        bytes[within..within + from.len()].copy_from_slice(from);
        self.write_pages(page, bytes)?;
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

    /// Makes durable what was written to this file before, and its size.
    ///
    /// # Errors
    /// As [`crate::Port::run`]. The volume then takes no more changes until it is opened anew.
    pub fn sync(&self) -> Result<()> {
        self.check("volume sync")?;
        if self.node.is_temp() {
            return Ok(());
        }
        self.volume.check_writable("volume sync")?;
        self.sync_growth(&self.node.growth())
    }

    /// Syncs a lasting file whose growth is held to the end: the size that becomes durable must
    /// take in nothing that is on its way, and no holes.
    pub(super) fn sync_growth(&self, _growth: &MutexGuard<'_, ()>) -> Result<()> {
        self.volume.finish(&self.node, self.node.size())?;
        let rest = self.node.at_rest();
        // What came since, which is little.
        self.volume.finish(&self.node, self.node.size())?;
        let mut holes = self.node.holes();
        self.fill_holes(&mut holes, 0, NO_PAGE)?;
        self.volume.sync(&self.node, rest)
    }

    /// Sets the size. Shorter, it is durable when this returns, with all that was written before,
    /// and pages go back to the volume; longer, the rest is zeros.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn truncate(&self, size_bytes: u64) -> Result<()> {
        const OPERATION: &str = "volume truncate";
        self.check(OPERATION)?;
        self.volume.check_writable(OPERATION)?;
        self.end(size_bytes, 0, OPERATION)?;
        if self.node.is_temp() {
            self.before_change(size_bytes.min(self.node.size()), u64::MAX)?;
        }
        let outcome = self.set_size(size_bytes);
        self.after_change(0, u64::MAX);
        outcome
    }

    fn set_size(&self, size_bytes: u64) -> Result<()> {
        let growth = self.node.growth();
        let size = self.node.size();
        if size_bytes > size {
            self.reserve(size_bytes.div_ceil(PAGE_BYTES), &growth)?;
            self.fill_zeros(size, size_bytes)?;
            self.node.set_size(size_bytes);
            return Ok(());
        }
        // What is kept becomes durable; what is cut off is needed until it is.
        self.volume.finish(&self.node, size_bytes)?;
        let _rest = self.node.at_rest();
        self.volume.finish(&self.node, size_bytes)?;
        let end = size_bytes.div_ceil(PAGE_BYTES);
        self.node.forget_edge(0, NO_PAGE);
        let mut holes = self.node.holes();
        if !self.node.is_temp() {
            self.fill_holes(&mut holes, 0, end)?;
        }
        self.volume.shorten(&self.node, size_bytes)?;
        holes.take(end, NO_PAGE);
        behind::forget(&self.node, end);
        drop((holes, growth));
        Ok(())
    }

    /// Says that the bytes of a range are no longer needed: reads of it may give anything that was
    /// there, or zeros, until it is written again. Only whole pages inside the range are touched.
    ///
    /// # Errors
    /// `NotFound` if the file was removed, `Denied` if the volume is read-only.
    pub fn trim(&self, offset: u64, length: u64) -> Result<()> {
        const OPERATION: &str = "volume trim";
        self.check(OPERATION)?;
        self.volume.check_writable(OPERATION)?;
        let end = offset.saturating_add(length).min(self.node.size()) / PAGE_BYTES;
        let first = offset.div_ceil(PAGE_BYTES);
        if first < end {
            self.node.forget_edge(first, end);
            self.before_change(first * PAGE_BYTES, end * PAGE_BYTES)?;
            self.after_change(first * PAGE_BYTES, end * PAGE_BYTES);
            let map = self.node.map();
            self.volume.trim(&map.pieces(first, end - first));
        }
        Ok(())
    }
}

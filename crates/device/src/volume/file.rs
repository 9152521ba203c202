//! Bytes of one file at any offset. It decides which pages a range touches and how parts of pages
//! are written; where the pages lie is told by the map.

use crate::device::Command;
use crate::volume::Volume;
use crate::volume::behind;
use crate::volume::copies::memory;
use crate::volume::holders::Lock;
use crate::volume::map::Map;
use crate::volume::node::{NO_PAGE, Node};
use crate::volume::table::PAGE_BYTES;
use penstock_base::{Error, Kind, Result};
use std::sync::{Arc, MutexGuard};

pub(super) const PAGE: usize = PAGE_BYTES as usize;

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
        if self.volume.check_process("volume close file").is_err() {
            // Its memory may be locked by a thread that this process has not.
            std::mem::forget(self.node.clone());
            return;
        }
        if self.node.holders().leave(self.lock) {
            self.drop_ahead();
            self.volume.give_back(&self.node);
        }
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

    pub(super) fn check(&self, operation: &'static str) -> Result<()> {
        match self.node.is_removed() {
            true => Err(self.volume.gone(operation, &self.node)),
            false => Ok(()),
        }
    }

    /// Whether the file still has the pages before `end`; with the map held, it keeps them.
    pub(super) fn check_map(&self, map: &Map, end: u64, operation: &'static str) -> Result<()> {
        self.check(operation)?;
        match end <= map.pages() {
            true => Ok(()),
            false => Err(self
                .error(Kind::Conflict, "the file was made shorter meanwhile", operation)
                .with_hint("Ask for its size, and repeat it within that")),
        }
    }

    pub(super) fn end(&self, offset: u64, length: usize, operation: &'static str) -> Result<u64> {
        let end = offset.checked_add(length as u64).filter(|end| *end < 1 << 60);
        end.ok_or_else(|| {
            self.error(Kind::Invalid, "the range is beyond any device", operation)
                .with_hint("Stay below 2^60 bytes")
        })
    }

    /// Fills `into` from `offset` on; less than its length only at the end of the file. Bytes that
    /// were never written are zeros.
    ///
    /// # Errors
    /// `NotFound` if the file was removed; and as [`crate::Port::run`].
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize> {
        self.volume.check_process("volume read")?;
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
            // What lies before the new end may be another writer's, who has just made the file
            // longer: it stays.
            self.before_change(size_bytes, u64::MAX)?;
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
            self.fill_zeros(size, size_bytes, &growth)?;
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

//! Files beside whose callers the volume reads and writes. It decides which reads and writes go
//! that way: blocks of databases are read ahead, blocks of all files are written behind.

use crate::port::Port;
use crate::volume::Volume;
use crate::volume::account::{Memory, Source};
use crate::volume::ahead::{Ahead, Kept};
use crate::volume::behind::{self, Behind, Pool, Spilled};
use crate::volume::file::{File, PAGE};
use crate::volume::node::Node;
use penstock_base::Result;
use std::sync::Arc;

/// The smallest block of DuckDB's: shorter reads are not of a scan, shorter writes not of a load.
pub(super) const BLOCK_LEAST_BYTES: usize = 16 << 10;

/// What reads and writes beside the callers.
pub(crate) struct Helpers {
    pub ahead: Ahead,
    pub behind: Behind,
    pub memory: Arc<Memory>,
}

impl Helpers {
    pub(super) fn new(port: &Arc<Port>) -> Self {
        let source = Arc::<Source>::default();
        let (kept, pool) = (Arc::<Kept>::default(), Arc::new(Pool::new(source.clone())));
        let ahead = Ahead::new(port.clone(), source.clone(), kept.clone());
        let spilled = Arc::new(Spilled::new(source.clone()));
        let behind = Behind::new(port.clone(), pool.clone(), spilled.clone());
        Helpers { ahead, behind, memory: Arc::new(Memory::new(source, kept, pool, spilled)) }
    }
}

/// Whether a range is whole pages.
fn is_whole(offset: u64, length: usize) -> bool {
    (offset as usize | length).is_multiple_of(PAGE)
}

impl Volume {
    /// Sees to it that nothing of a lasting file's first bytes is on its way to the device.
    pub(super) fn finish(&self, node: &Node, size_bytes: u64) -> Result<()> {
        match node.is_temp() {
            true => Ok(()),
            false => behind::finish(&self.port, node, 0, size_bytes),
        }
    }
}

impl File {
    /// Reads a range inside the file, whose size is `size`: what is on its way to the device from
    /// memory, the rest from there.
    pub(super) fn read_helped(&self, into: &mut [u8], offset: u64, size: u64) -> Result<()> {
        let Some(helpers) = &self.volume.helpers else { return self.read_pages_of(into, offset) };
        if self.node.late().is_empty() {
            return self.read_scanned(helpers, into, offset, size);
        }
        if !is_whole(offset, into.len()) {
            let end = offset + into.len() as u64;
            behind::finish(self.volume.port(), &self.node, offset, end)?;
            return self.read_pages_of(into, offset);
        }
        for gap in behind::copy(&self.node, into, offset) {
            let place = (gap.start - offset) as usize..(gap.end - offset) as usize;
            self.read_scanned(helpers, &mut into[place], gap.start, size)?;
        }
        Ok(())
    }

    /// Reads of the device, blocks of a lasting file through what is fetched ahead.
    fn read_scanned(
        &self,
        helpers: &Helpers,
        into: &mut [u8],
        offset: u64,
        size: u64,
    ) -> Result<()> {
        let is_block = into.len() >= BLOCK_LEAST_BYTES && is_whole(offset, into.len());
        match is_block && !self.node.is_temp() && !self.node.has_holes() {
            true => self.read_ahead(&helpers.ahead, into, offset, size),
            false => self.read_pages_of(into, offset),
        }
    }

    /// Reads whole pages: what was fetched ahead from there, the rest from the device.
    fn read_ahead(&self, ahead: &Ahead, into: &mut [u8], offset: u64, size: u64) -> Result<()> {
        let end = offset + into.len() as u64;
        let found = self.node.window().read(offset, end, size);
        ahead.ask(&self.node, found.asked);
        let (mut at, mut rest) = (offset, into);
        for piece in &found.here {
            let (from, to) = (piece.range.start.max(at), piece.range.end.min(end));
            let (gap, later) = rest.split_at_mut((from - at) as usize);
            self.read_pages_of(gap, at)?;
            let (here, later) = later.split_at_mut((to - from) as usize);
            if !piece.give(from, here) {
                self.read_pages_of(here, from)?;
            }
            (at, rest) = (to, later);
        }
        self.read_pages_of(rest, at)?;
        ahead.recycle(found.dropped);
        Ok(())
    }

    /// Sees to it that nothing is on its way to a range that is about to change. What lasts is
    /// written: until the change is made, a sync has to find it.
    pub(super) fn before_change(&self, start: u64, end: u64) -> Result<()> {
        match self.node.is_temp() {
            true => behind::settle(self.volume.port(), &self.node, start, end),
            false => behind::finish(self.volume.port(), &self.node, start, end),
        }
    }

    /// Drops what was fetched ahead of a range that has changed, and tells of the change: in this
    /// order, or who was told could still be given the old bytes.
    pub(super) fn after_change(&self, start: u64, end: u64) {
        if let Some(helpers) = &self.volume.helpers {
            let gone = self.node.window().forget(start, end);
            helpers.ahead.recycle(gone);
        }
        self.node.note_change();
    }

    /// Drops what was fetched ahead for handles that are closed now; who opens the file next begins
    /// anew.
    pub(super) fn drop_ahead(&self) {
        if let Some(helpers) = &self.volume.helpers {
            let gone = self.node.window().close();
            helpers.ahead.recycle(gone);
        }
    }

    /// Writes whole pages: blocks later, so that the writer can go on.
    pub(super) fn write_helped(&self, first: u64, from: &[u8]) -> Result<()> {
        if let Some(helpers) = &self.volume.helpers
            && (self.node.is_temp() || from.len() >= BLOCK_LEAST_BYTES)
        {
            let end = first + (from.len() / PAGE) as u64;
            self.check_map(&self.node.map(), end, "volume write")?;
            if helpers.behind.take(&self.node, first, from) {
                return Ok(());
            }
        }
        self.write_pages(first, from)
    }
}

#[cfg(test)]
mod tests {
    use crate::model::{Image, ModelDevice};
    use crate::volume::{FormatOptions, Lock, OpenFileOptions, Volume, format};
    use crate::{Discipline, Port};
    use std::sync::Arc;

    #[test]
    fn where_there_are_no_threads_callers_read_and_write_themselves() {
        const BLOCK: usize = 64 << 10;
        let model = ModelDevice::new(4096, 4096, Image::default()).expect("the sizes are right");
        let model = Arc::new(model);
        let port = || Port::new(model.clone(), Discipline::Thread).expect("opens");
        format(&port(), FormatOptions::default()).expect("formats");
        let volume = Volume::open_with_helpers(port()).expect("opens");
        let helpers = volume.helpers.as_ref().expect("it has");
        helpers.ahead.worker.bar();
        helpers.behind.worker.bar();
        let file = volume
            .open_file("db", OpenFileOptions { create: true, lock: Lock::None })
            .expect("creates");
        for number in 0..64u8 {
            file.write_at(&[number; BLOCK], u64::from(number) * BLOCK as u64).expect("writes");
        }
        file.sync().expect("syncs");
        for number in 0..64u8 {
            let mut found = [0xff; BLOCK];
            file.read_at(&mut found, u64::from(number) * BLOCK as u64).expect("reads");
            assert_eq!(found, [number; BLOCK]);
        }
    }
}

//! Fetching ahead the columns that a scan reads, across the files of a glob.
//!
//! A scan reads the same columns of every file, and waits a round trip for those of each. Once it
//! has read some in one file, the same ones are fetched in the next files whose footers are here.
//! What is fetched in vain is bounded by [`BYTES_AHEAD_MAX`], and happens only when a scan ends
//! early, or leaves out files by their statistics.
//!
//! The copy that this costs is worth a round trip, not the short way to a store nearby: it is done
//! only from [`LATENCY_MIN`] on.

use crate::read::ahead::Block;
use crate::read::parquet::Layout;
use penstock_base::ByteRange;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// Stores that answer sooner are read on demand.
pub(crate) const LATENCY_MIN: Duration = Duration::from_millis(2);
/// Most bytes on their way or unused, for each glob.
const BYTES_AHEAD_MAX: u64 = 8 << 20;
/// Longer spans are worth their own wait: they go straight into the caller's buffer.
const SPAN_BYTES_MAX: u64 = 2 << 20;
/// Files ahead of the one that is read.
const FILES_AHEAD_MAX: usize = 32;
/// Sets of columns that are followed; a scan has one for each step of its filters.
const WANTED_MAX: usize = 16;

/// What a scan reads of the files of one glob, and what is fetched ahead of it.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    /// Neighbouring columns that were read together, in the order of their first read.
    wanted: Vec<RangeInclusive<usize>>,
    files: BTreeMap<usize, File>,
}

/// What is not needed any more. To be dropped outside of locks: giving memory back wakes writers.
#[derive(Debug)]
pub(crate) struct Dropped {
    _files: BTreeMap<usize, File>,
}

#[derive(Debug, Default)]
struct File {
    layout: Option<Arc<Layout>>,
    /// How many of the wanted sets were looked at.
    done: usize,
    /// Of a file that is read, only what comes later in it is fetched ahead.
    read_end: u64,
    begun: Vec<ByteRange>,
    blocks: Vec<Block>,
}

impl Columns {
    /// Takes note of a read; `parse` gives the layout of its file.
    pub fn note(&mut self, index: usize, range: ByteRange, parse: impl FnOnce() -> Option<Layout>) {
        let file = self.files.entry(index).or_default();
        if file.layout.is_none() {
            file.layout = parse().map(Arc::new);
        }
        let Some(columns) = file.layout.as_ref().and_then(|layout| layout.touched(range)) else {
            return;
        };
        file.read_end = file.read_end.max(range.end);
        let known = |wanted: &RangeInclusive<usize>| {
            wanted.start() <= columns.start() && columns.end() <= wanted.end()
        };
        if self.wanted.len() < WANTED_MAX && !self.wanted.iter().any(known) {
            self.wanted.push(columns);
        }
    }

    /// Begins what should be on its way when the scan is at file `index` of `count`. `parse` gives
    /// the layout of a file whose footer is here, and `begin` fetches a span of it.
    pub fn pull(
        &mut self,
        index: usize,
        count: usize,
        mut parse: impl FnMut(usize) -> Option<Layout>,
        mut begin: impl FnMut(usize, ByteRange) -> Option<Block>,
    ) {
        if self.wanted.is_empty() {
            return;
        }
        let mut left = BYTES_AHEAD_MAX.saturating_sub(self.ahead_bytes());
        for index in index..(index + 1 + FILES_AHEAD_MAX).min(count) {
            let file = self.files.entry(index).or_default();
            if file.done == self.wanted.len() {
                continue;
            }
            if file.layout.is_none() {
                file.layout = parse(index).map(Arc::new);
            }
            let Some(layout) = file.layout.clone() else { continue };
            for columns in &self.wanted[file.done..] {
                for span in layout.spans(columns).filter(|span| span.len() <= SPAN_BYTES_MAX) {
                    let is_begun = file.begun.iter().any(|begun| begun.contains(&span));
                    if is_begun || span.start < file.read_end {
                        continue;
                    }
                    if span.len() > left {
                        return;
                    }
                    let Some(block) = begin(index, span) else { return };
                    left -= span.len();
                    file.begun.push(span);
                    file.blocks.push(block);
                }
                file.done += 1;
            }
        }
    }

    /// The blocks that a read takes in whole, or as far as they go.
    pub fn take(&mut self, index: usize, range: ByteRange) -> Vec<Block> {
        let Some(file) = self.files.get_mut(&index) else { return Vec::new() };
        file.blocks.extract_if(.., |block| block.range.overlaps(&range)).collect()
    }

    /// Gives back a block that a read took only in part.
    pub fn put_back(&mut self, index: usize, block: Block) {
        if let Some(file) = self.files.get_mut(&index) {
            file.blocks.push(block);
        }
    }

    /// Forgets the files before `index`: the scan has passed them.
    pub fn pass(&mut self, index: usize) -> Dropped {
        let kept = self.files.split_off(&index);
        Dropped { _files: std::mem::replace(&mut self.files, kept) }
    }

    /// Stops what is on its way and gives back what lies ready.
    pub fn clear(&mut self) -> Dropped {
        Dropped { _files: std::mem::take(&mut self.files) }
    }

    /// Bytes on their way or unused.
    pub fn ahead_bytes(&self) -> u64 {
        let blocks = self.files.values().flat_map(|file| &file.blocks);
        blocks.map(|block| block.range.len()).sum()
    }
}

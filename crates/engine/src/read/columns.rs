//! Fetching ahead the columns that a scan reads: in the next row groups of a file, and in the next
//! files of a glob.
//!
//! What will be read is decided in `scan`, how much of it at once in `flow`; here are the requests
//! for it. The memory that they take is a quarter of the limit at most (what reads wait for not
//! counted), is taken only where it is free, and is given back when others wait for it.
//!
//! The copy that this costs is worth a round trip, not the short way to a store nearby: it is done
//! only from [`LATENCY_MIN`] on.

use crate::budget::AHEAD_PARTS;
use crate::read::block::Block;
use crate::read::delivered::Given;
use crate::read::filters::{Filters, Judged, Ranges};
use crate::read::flow::{Flow, Need, Running};
use crate::read::parquet::Layout;
use crate::read::scan::{JOINED_BYTES_MAX, Scan, Unit};
use crate::read::taken::Takings;
use penstock_base::ByteRange;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Stores that answer sooner are read on demand.
pub(crate) const LATENCY_MIN: Duration = Duration::from_millis(2);
/// Of a glob whose scan may end with its first file, so much is fetched, in spans of so much at
/// most: a longer one is worth its own wait.
const FIRST_BYTES_MAX: u64 = 8 << 20;
const FIRST_SPAN_BYTES_MAX: u64 = 2 << 20;
/// Longer spans become several requests.
const BLOCK_BYTES_MAX: u64 = JOINED_BYTES_MAX;
/// Most requests on their way, whatever the number of connections.
pub(super) const REQUESTS_MAX: usize = 48;
/// Most of them and of blocks that lie ready: small ones, or memory would end before.
const BLOCKS_MAX: usize = 512;

/// What a scan reads of a file or of the files of one glob, and what is fetched ahead of it.
#[derive(Debug)]
pub(crate) struct Columns {
    scan: Scan,
    /// What a plan told of the rows that it wants.
    filters: Option<Arc<Filters>>,
    pub flow: Arc<Flow>,
    /// By reader: its read that runs, and how much of it is not ahead. The flow learns from what of
    /// it is fetched on demand too.
    reading: HashMap<u64, (Running, u64)>,
    ahead: Vec<Fetched>,
    takings: Takings,
}

/// A block of what is fetched ahead.
#[derive(Debug)]
struct Fetched {
    file: usize,
    row_groups: RangeInclusive<usize>,
    /// The row group that was not over when it was looked at last.
    awaited: usize,
    block: Arc<Block>,
}

impl Fetched {
    /// Whether all of its row groups are over. One that is not is looked at first the next time: a
    /// block may have thousands, and there is a look with each read.
    fn is_over(&mut self, scan: &Scan) -> bool {
        let is_over = |row_group| scan.is_over(Unit { file: self.file, row_group });
        if !is_over(self.awaited) {
            return false;
        }
        // The last one is the last to be over, nearly always.
        let awaited = self.row_groups.clone().rev().find(|row_group| !is_over(*row_group));
        self.awaited = awaited.unwrap_or(self.awaited);
        awaited.is_none()
    }
}

/// What is not needed any more. To be dropped outside of locks: giving memory back wakes writers.
#[derive(Debug, Default)]
pub(crate) struct Dropped {
    ahead: Vec<Fetched>,
}

impl Drop for Dropped {
    fn drop(&mut self) {
        // A read that waits for one keeps it a little longer.
        self.ahead.iter().for_each(|ahead| ahead.block.let_go());
    }
}

/// What the footer of a file tells.
pub(crate) struct Told {
    pub layout: Arc<Layout>,
    /// About the filters of the plan, if there are any.
    pub judged: Option<Arc<Judged>>,
    /// What reads are given of it, where the host keeps that.
    pub given: Option<Given>,
}

/// What became of a span that should be on its way.
pub(crate) enum Ahead {
    Begun(Arc<Block>),
    /// Nothing, since the cache has all of it.
    IsCached,
}

/// What the link and the memory allow now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// The least that was seen, or else what is expected.
    pub latency: Duration,
    pub memory_limit_bytes: u64,
    /// Of what may be ahead, so much is free. A span begins whole or not at all: the rest of one
    /// would be a round trip of its own for the reader that comes to it.
    pub free_bytes: u64,
    /// The statement may end before its files do.
    pub ends_early: bool,
    /// Whoever takes its rows may stop at any.
    pub may_be_left: bool,
    /// Requests that the store's connections have room for.
    pub requests: usize,
}

impl Columns {
    /// Of a single file nothing is fetched ahead before its first row group is over; the next
    /// files of a glob are nearly always read.
    pub fn new(is_glob: bool, flow: Flow) -> Self {
        Columns {
            scan: Scan::new(if is_glob { FIRST_BYTES_MAX } else { 0 }),
            filters: None,
            flow: Arc::new(flow),
            reading: HashMap::new(),
            ahead: Vec::new(),
            takings: Takings::default(),
        }
    }

    /// A file that was taken for single is one of several.
    pub fn goes_on(&mut self) {
        self.scan.may_begin_with(FIRST_BYTES_MAX);
    }

    /// Takes note of columns that are read of all row groups.
    pub fn will_read(&mut self, columns: &[u32], is_cached_ahead: bool, grid_bytes: Option<u64>) {
        let columns = columns.iter().map(|column| *column as usize);
        match grid_bytes {
            Some(bytes) => self.scan.will_read_on_grid(columns, bytes),
            None => self.scan.will_read(columns, is_cached_ahead),
        }
    }

    /// Whether a plan told of its columns.
    pub fn is_told(&self) -> bool {
        self.scan.is_told()
    }

    /// Takes note of what the rows have to be that a scan wants; `judge` gives what the footer of a
    /// file says about it.
    pub fn will_filter(
        &mut self,
        filters: Arc<Filters>,
        mut judge: impl FnMut(usize) -> Option<Arc<Judged>>,
    ) -> Dropped {
        let again = self.scan.will_filter(filters.moving.is_some());
        self.filters = Some(filters);
        for file in self.scan.known_files() {
            if let Some(judged) = judge(file) {
                self.scan.judge(file, judged);
            }
        }
        if again { self.clear() } else { self.drop_unneeded() }
    }

    /// Takes note of the bound of the filter that moves while the scan reads.
    pub fn bound_moved(&mut self, bound: Ranges) -> Dropped {
        self.scan.bound_moved(bound);
        self.drop_unneeded()
    }

    fn learn(&mut self, file: usize, told: Told) {
        self.scan.learn(file, told.layout);
        if let Some(judged) = told.judged {
            self.scan.judge(file, judged);
        }
        if let Some(given) = told.given {
            self.scan.is_given(file, given);
        }
    }

    /// Takes note of a read; `parse` gives what is told of its file. Gives the blocks that the read
    /// overlaps, and what is not needed any more; `None` while the layout is not known, and for a
    /// read that is not of a row group.
    pub fn note(
        &mut self,
        reader: u64,
        file: usize,
        range: ByteRange,
        parse: impl FnOnce(Option<&Arc<Filters>>) -> Option<Told>,
    ) -> Option<(Vec<Arc<Block>>, Dropped)> {
        if !self.scan.knows(file) {
            self.learn(file, parse(self.filters.as_ref())?);
        }
        let mine = self.ahead.iter().filter(|ahead| ahead.file == file);
        let overlapping = mine.filter(|ahead| ahead.block.range.overlaps(&range));
        let found: Vec<_> = overlapping.map(|ahead| Arc::clone(&ahead.block)).collect();
        if found.is_empty() && !self.scan.follows(file, range) {
            return None;
        }
        let again = self.scan.read(reader, file, range);
        found.iter().for_each(|block| block.used(range));
        let ahead: u64 = found.iter().map(|block| block.shared_bytes(range)).sum();
        let on_demand_bytes = range.len().saturating_sub(ahead);
        self.reading.insert(reader, (self.flow.begin(), on_demand_bytes));
        let dropped = if again { self.clear() } else { self.drop_unneeded() };
        Some((found, dropped))
    }

    /// Takes note that a read has ended well, and how much of it was fetched on demand.
    pub fn done(
        &mut self,
        reader: u64,
        file: usize,
        range: ByteRange,
        on_demand_bytes: u64,
    ) -> Dropped {
        if let Some((running, _)) = self.reading.remove(&reader) {
            self.takings.read(Instant::now(), range.len(), running.time());
            if on_demand_bytes > 0 {
                self.flow.come(on_demand_bytes);
                self.flow.end(&running);
            }
        }
        self.scan.done(reader, file, range);
        self.drop_unneeded()
    }

    /// Takes note that a reader is closed.
    pub fn closed(&mut self, reader: u64) -> Dropped {
        self.reading.remove(&reader);
        self.scan.closed(reader);
        self.drop_unneeded()
    }

    /// Begins what should be on its way in the `count` files. `parse` gives what is told of a file
    /// whose footer is here, and `begin` fetches a span of it, if there is room.
    pub fn pull(
        &mut self,
        count: usize,
        room: Room,
        mut parse: impl FnMut(usize, Option<&Arc<Filters>>) -> Option<Told>,
        mut begin: impl FnMut(usize, ByteRange, &Arc<Flow>) -> Option<Ahead>,
    ) {
        if room.ends_early {
            self.scan.may_end_early();
        }
        if room.may_be_left {
            self.scan.may_be_left();
        }
        for file in self.scan.files_ahead(count) {
            if !self.scan.knows(file)
                && let Some(told) = parse(file, self.filters.as_ref())
            {
                self.learn(file, told);
            }
        }
        let window = self.window_bytes(room);
        let memory_bytes = room.memory_limit_bytes / AHEAD_PARTS;
        let allowed = self.scan.allowed_bytes(window.min(memory_bytes));
        let span_bytes_max = if self.scan.is_learned() { u64::MAX } else { FIRST_SPAN_BYTES_MAX };
        // What has come of requests that run is off the link; it takes memory, and may be in vain.
        let to_come = self.ahead.iter().map(|ahead| ahead.block.to_come_bytes()).sum();
        let held_bytes_max = self.scan.allowed_bytes(memory_bytes);
        let mut left = allowed
            .saturating_sub(to_come)
            .min(held_bytes_max.saturating_sub(self.unused_bytes()))
            .min(room.free_bytes);
        // What other scans hold may be theirs for long, so no span is awaited that needs it.
        let reach_bytes = self.unused_bytes().saturating_add(room.free_bytes);
        let whole_bytes = (allowed.min(reach_bytes) / 2).min(span_bytes_max);
        let running = self.ahead.iter().filter(|ahead| ahead.block.is_pending()).count();
        let mut requests = room.requests.min(REQUESTS_MAX.saturating_sub(running));
        while left > 0
            && requests > 0
            && self.ahead.len() < BLOCKS_MAX
            && let bytes_max = left.min(span_bytes_max).min(requests as u64 * BLOCK_BYTES_MAX)
            && let Some(wanted) = self.scan.next(bytes_max, whole_bytes)
        {
            left -= wanted.span.len();
            for range in blocks(self.scan.on_grid(&wanted), requests) {
                let block = match begin(wanted.unit.file, range, &self.flow) {
                    Some(Ahead::Begun(block)) => block,
                    Some(Ahead::IsCached) => continue,
                    None => {
                        self.scan.not_begun(&wanted, range.start);
                        return;
                    }
                };
                let (file, row_groups) = (wanted.unit.file, wanted.row_groups());
                let awaited = *row_groups.end();
                self.ahead.push(Fetched { file, row_groups, awaited, block });
                requests -= 1;
            }
        }
    }

    /// What fills the link, or as much of it as is of use.
    fn window_bytes(&mut self, room: Room) -> u64 {
        let need = Need {
            latency: room.latency,
            unit_bytes: self.scan.unit_bytes(),
            readers: self.scan.reader_count(),
            on_demand_bytes: self.reading.values().map(|(_, bytes)| bytes).sum(),
        };
        let window = self.flow.window_bytes(&need);
        if room.may_be_left {
            window.min(self.takings.of_use_bytes(Instant::now(), &need))
        } else {
            window
        }
    }

    /// Forgets the files before `file`: the scan has passed them.
    pub fn pass(&mut self, file: usize) -> Dropped {
        self.scan.pass(file);
        self.drop_unneeded()
    }

    /// Stops what is on its way and gives back what lies ready.
    pub fn clear(&mut self) -> Dropped {
        Dropped { ahead: std::mem::take(&mut self.ahead) }
    }

    /// What was used up, and what will not be read any more.
    fn drop_unneeded(&mut self) -> Dropped {
        let scan = &self.scan;
        let is_unneeded =
            |ahead: &mut Fetched| ahead.block.unused_bytes() == 0 || ahead.is_over(scan);
        Dropped { ahead: self.ahead.extract_if(.., is_unneeded).collect() }
    }

    /// Bytes on their way or ready that no read has wanted yet.
    pub fn unused_bytes(&self) -> u64 {
        self.ahead.iter().map(|ahead| ahead.block.unused_bytes()).sum()
    }
}

/// A span in equal parts of at most [`BLOCK_BYTES_MAX`], or in as many as there is room for.
fn blocks(span: ByteRange, count_max: usize) -> impl Iterator<Item = ByteRange> {
    let count = span.len().div_ceil(BLOCK_BYTES_MAX).min(count_max as u64);
    let each = span.len().div_ceil(count.max(1));
    (0..count).map(move |index| {
        let start = span.start + index * each;
        ByteRange { start, end: (start + each).min(span.end) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four readers of a row group each: what they read on demand tells the link's rate.
    #[tokio::test(start_paused = true)]
    async fn the_flow_learns_from_reads_on_demand() {
        const LATENCY: Duration = Duration::from_millis(100);
        const GROUP: u64 = 5 << 20;
        let group = |index: u64| ByteRange { start: index * GROUP, end: (index + 1) * GROUP };
        let told = |_: Option<&Arc<Filters>>| {
            let groups = (0..9).map(|index| vec![group(index)]).collect();
            let layout = Arc::new(Layout::new(groups, u64::MAX, u64::MAX));
            Some(Told { layout, judged: None, given: None })
        };
        let mut columns = Columns::new(false, Flow::new(1e6));
        for reader in 0..4 {
            let noted = columns.note(reader, 0, group(reader), told);
            assert!(noted.is_some_and(|(found, _)| found.is_empty()));
        }
        tokio::time::sleep(LATENCY).await;
        for reader in 0..4 {
            // The third one's bytes were held.
            drop(columns.done(reader, 0, group(reader), if reader == 2 { 0 } else { GROUP }));
        }
        // Nothing that a reader takes itself: twice what the link brought in a latency.
        let need = Need { latency: LATENCY, ..Need::default() };
        assert_eq!(columns.flow.window_bytes(&need), 2 * 3 * GROUP);
        assert!(columns.reading.is_empty());
    }
}

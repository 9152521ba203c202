//! What a scan of Parquet files will read next. Pure.
//!
//! A scan goes through row groups in order, each of its threads through one at a time, and reads
//! the same columns of each. So a row group tells what the next ones are read for, but only once
//! it is over: once its reader has gone on to another one. Until then the scan may end with it (a
//! `LIMIT`), and what its filters leave out is not known.
//!
//! - A column is expected where it was read in each of the last [`MEMORY`] row groups that are
//!   over. One that filters skipped by their statistics is over as soon as the scan has passed it,
//!   and nothing of it was read: so a scan that leaves out row groups is not followed into others,
//!   but in one that it reads, the columns are expected that it read in the others which it read.
//! - What was fetched in vain stays below a tenth of what was read ([`WASTE_PARTS`]): beyond, no
//!   more is expected until enough was read.
//! - A row group that was read whole by one read says everything at once; a glob may take a fixed
//!   number of bytes before any row group is over (`first_bytes`).

use crate::read::parquet::Layout;
use penstock_base::ByteRange;
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Row groups that are over and still count.
const MEMORY: u32 = 4;
/// Of so many bytes read, one may be fetched in vain.
const WASTE_PARTS: u64 = 10;
/// That many in any case: fewer than a round trip is worth on any link.
const WASTE_BYTES_MIN: u64 = 256 << 10;
/// Once a row group is over, this much may be ahead whatever little was read so far.
const AHEAD_BYTES_MIN: u64 = 1 << 20;
/// Files ahead of the one that is read.
const FILES_AHEAD_MAX: usize = 32;
/// A scan that begins anew this often is several at once: there is nothing to learn from it.
const RESTARTS_MAX: u32 = 3;
/// Columns so near to each other are fetched together, as DuckDB reads them.
const GAP_BYTES_MAX: u64 = 16 << 10;

const READ: u8 = 1;
const BEGUN: u8 = 2;

/// A row group of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Unit {
    pub file: usize,
    pub row_group: usize,
}

/// What is worth fetching.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub unit: Unit,
    pub columns: RangeInclusive<usize>,
    pub span: ByteRange,
}

/// Whether a column was read in the last row groups, the newest in the lowest bit.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    read: u32,
    count: u32,
}

impl Past {
    fn push(&mut self, is_read: bool) {
        self.read = self.read << 1 | u32::from(is_read);
        self.count = (self.count + 1).min(MEMORY);
    }

    fn is_all(self) -> bool {
        let wanted = (1 << self.count) - 1;
        self.read & wanted == wanted
    }
}

/// How one column was used, in row groups that are over.
#[derive(Clone, Copy, Debug, Default)]
struct History {
    /// Skipped ones among them.
    all: Past,
    /// Of those that were read.
    entered: Past,
    /// In any row group, over or not.
    is_touched: bool,
}

impl History {
    fn push(&mut self, is_read: bool, was_entered: bool) {
        self.all.push(is_read);
        if was_entered {
            self.entered.push(is_read);
        }
    }

    fn is_expected(self) -> bool {
        self.is_touched && self.all.is_all()
    }

    /// In a row group that is being read: so it is not skipped.
    fn is_expected_inside(self) -> bool {
        self.is_touched && self.entered.is_all()
    }
}

#[derive(Debug)]
struct File {
    layout: Arc<Layout>,
    groups: Vec<Group>,
    /// Row groups before this one were judged to be skipped, or not.
    swept: usize,
}

#[derive(Debug, Default)]
struct Group {
    /// By column.
    flags: Vec<u8>,
    is_touched: bool,
    is_over: bool,
    /// At this state of what is expected, nothing more of it is wanted.
    settled_at: Option<u64>,
}

/// The scan of a file, or of the files of a glob.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    files: BTreeMap<usize, File>,
    columns: Vec<History>,
    /// Counts up when other columns are expected than before.
    expected_at: u64,
    /// Where each reader is.
    readers: HashMap<u64, Unit>,
    frontier: Option<Unit>,
    /// A row group is over, or was read whole.
    is_learned: bool,
    restarts: u32,
    read_bytes: u64,
    wasted_bytes: u64,
    /// Begun, and neither read nor over.
    pending_bytes: u64,
    /// Row groups that were skipped, as far as is known.
    skipped: usize,
    /// May be ahead before anything is learned.
    first_bytes: u64,
}

impl Scan {
    /// A scan that may be `first_bytes` ahead before it is known to go on.
    pub fn new(first_bytes: u64) -> Self {
        Scan { first_bytes, ..Self::default() }
    }

    /// Whether the layout of a file is known.
    pub fn knows(&self, file: usize) -> bool {
        self.files.contains_key(&file)
    }

    /// Where the columns of a file lie.
    pub fn learn(&mut self, file: usize, layout: Arc<Layout>) {
        let groups = layout.row_group_count();
        let groups = (0..groups).map(|_| Group::default()).collect();
        self.files.entry(file).or_insert(File { layout, groups, swept: 0 });
    }

    /// Forgets the files before this one.
    pub fn pass(&mut self, file: usize) {
        let kept = self.files.split_off(&file);
        for passed in std::mem::replace(&mut self.files, kept).into_values() {
            let open = passed.groups.iter().enumerate().filter(|(_, group)| !group.is_over);
            for (row_group, group) in open {
                let chunks = passed.layout.row_group(row_group).iter().zip(&group.flags);
                let pending = chunks.filter(|(_, flags)| is_pending(flags));
                self.pending_bytes -= pending.map(|(chunk, _)| chunk.len()).sum::<u64>();
            }
        }
    }

    /// Whether a read is one of a row group's columns.
    pub fn follows(&self, file: usize, range: ByteRange) -> bool {
        self.touched(file, range).is_some()
    }

    /// Takes note of a read. `true` when all that is ahead has to be forgotten.
    pub fn read(&mut self, reader: u64, file: usize, range: ByteRange) -> bool {
        let Some((unit, columns)) = self.touched(file, range) else { return false };
        let again = self.group(unit).is_some_and(|group| {
            group.is_over
                && columns.clone().any(|column| group.flags.get(column).is_some_and(is_read))
        });
        if again {
            self.restart();
        }
        self.note_late(unit);
        if let Some(left) = self.readers.insert(reader, unit).filter(|left| *left != unit) {
            self.leave(left);
        }
        self.mark(unit, columns.clone(), READ);
        self.read_bytes += range.len();
        if self.columns.len() <= *columns.end() {
            let none_of = |counts: &dyn Fn(&History) -> u32| Past {
                read: 0,
                count: self.columns.iter().map(counts).max().unwrap_or(0),
            };
            let unknown = History {
                all: none_of(&|known| known.all.count),
                entered: none_of(&|known| known.entered.count),
                is_touched: false,
            };
            self.columns.resize(columns.end() + 1, unknown);
        }
        for history in &mut self.columns[columns] {
            if !std::mem::replace(&mut history.is_touched, true) {
                self.expected_at += 1;
            }
        }
        self.frontier = self.frontier.max(Some(unit));
        self.sweep();
        again
    }

    /// Takes note that a read has ended: one that took in a whole row group tells all of it.
    pub fn done(&mut self, file: usize, range: ByteRange) {
        let Some((unit, _)) = self.touched(file, range) else { return };
        if self.group(unit).is_some_and(|group| group.flags.iter().all(is_read)) {
            self.is_learned = true;
        }
    }

    /// Takes note that a reader is closed.
    pub fn closed(&mut self, reader: u64) {
        if let Some(left) = self.readers.remove(&reader) {
            self.leave(left);
        }
    }

    /// Whether nothing of a row group will be read any more.
    pub fn is_over(&self, unit: Unit) -> bool {
        self.group(unit).is_none_or(|group| group.is_over)
    }

    /// Bytes that may be ahead, given how many the link takes.
    pub fn allowed_bytes(&self, window_bytes: u64) -> u64 {
        if self.restarts > RESTARTS_MAX
            || self.wasted_bytes > WASTE_BYTES_MIN + self.read_bytes / WASTE_PARTS
        {
            0
        } else if self.is_learned {
            window_bytes.min(self.read_bytes.saturating_mul(2).max(AHEAD_BYTES_MIN))
        } else {
            self.first_bytes
        }
    }

    /// Whether more row groups lie behind the furthest reader than others can be late for.
    fn is_skipping(&self) -> bool {
        let Some(frontier) = self.frontier else { return false };
        let Some(file) = self.files.get(&frontier.file) else { return false };
        let behind = file.groups.get(file.swept..frontier.row_group).unwrap_or_default();
        behind.iter().filter(|group| !group.is_touched).count() >= self.readers.len()
    }

    /// Whether it is known that the scan goes on.
    pub fn is_learned(&self) -> bool {
        self.is_learned
    }

    /// Number of readers inside a row group.
    pub fn reader_count(&self) -> u64 {
        self.readers.len() as u64
    }

    /// What is read of the row group that is read now, as far as that is known.
    pub fn unit_bytes(&self) -> u64 {
        let Some(unit) = self.frontier else { return 0 };
        let Some(file) = self.files.get(&unit.file) else { return 0 };
        let chunks = file.layout.row_group(unit.row_group);
        let expected = chunks.iter().zip(&self.columns).filter(|(_, column)| column.is_expected());
        expected.map(|(chunk, _)| chunk.len()).sum()
    }

    /// The files whose layout is worth knowing, in order.
    pub fn files_ahead(&self, count: usize) -> std::ops::Range<usize> {
        let file = self.frontier.map_or(0, |unit| unit.file);
        file..(file + 1 + FILES_AHEAD_MAX).min(count)
    }

    /// The next span to fetch, of at most so many bytes; it counts as begun.
    pub fn next(&mut self, bytes_max: u64) -> Option<Wanted> {
        let frontier = self.frontier?;
        let mut inside: Vec<Unit> = self.readers.values().copied().collect();
        inside.sort_unstable();
        inside.dedup();
        for unit in inside {
            if let Some(wanted) = self.next_in(unit, bytes_max, History::is_expected_inside) {
                return self.begin(wanted, bytes_max);
            }
        }
        if self.is_skipping() {
            return None;
        }
        let bytes_max = self.bytes_max_outside(bytes_max);
        let files: Vec<usize> =
            self.files.range(frontier.file..).map(|(index, _)| *index).collect();
        for file in files.into_iter().take_while(|file| *file <= frontier.file + FILES_AHEAD_MAX) {
            let first = if file == frontier.file { frontier.row_group + 1 } else { 0 };
            for row_group in first..self.files[&file].groups.len() {
                let unit = Unit { file, row_group };
                if let Some(wanted) = self.next_in(unit, bytes_max, History::is_expected) {
                    return self.begin(wanted, bytes_max);
                }
            }
        }
        None
    }

    /// Once row groups were skipped the next ones may be too: then no more is fetched of them than
    /// may be in vain.
    fn bytes_max_outside(&self, bytes_max: u64) -> u64 {
        if self.skipped == 0 {
            return bytes_max;
        }
        let in_vain = WASTE_BYTES_MIN + self.read_bytes / WASTE_PARTS;
        bytes_max.min(in_vain.saturating_sub(self.wasted_bytes + self.pending_bytes))
    }

    /// A row group that was taken for skipped is read after all.
    fn note_late(&mut self, unit: Unit) {
        if self.group(unit).is_some_and(|group| group.is_over && !group.is_touched) {
            self.skipped = self.skipped.saturating_sub(1);
        }
    }

    /// `None` for a span that is too long: what lies behind it must not overtake it.
    fn begin(&mut self, wanted: Wanted, bytes_max: u64) -> Option<Wanted> {
        if wanted.span.len() > bytes_max {
            return None;
        }
        self.mark(wanted.unit, wanted.columns.clone(), BEGUN);
        Some(wanted)
    }

    /// The next neighbouring columns of a row group that are expected: as many as fit, but one at
    /// least.
    fn next_in(
        &mut self,
        unit: Unit,
        bytes_max: u64,
        is_expected: fn(History) -> bool,
    ) -> Option<Wanted> {
        let (columns, expected_at) = (&self.columns, self.expected_at);
        let file = self.files.get_mut(&unit.file)?;
        let group = file.groups.get_mut(unit.row_group)?;
        if group.is_over || group.settled_at == Some(expected_at) {
            return None;
        }
        let chunks = file.layout.row_group(unit.row_group);
        group.flags.resize(chunks.len(), 0);
        let is_wanted = |column: usize| {
            columns.get(column).is_some_and(|column| is_expected(*column))
                && group.flags[column] == 0
                && !chunks[column].is_empty()
        };
        let Some(first) = (0..chunks.len()).find(|column| is_wanted(*column)) else {
            group.settled_at = Some(expected_at);
            return None;
        };
        let (mut last, mut span) = (first, chunks[first]);
        for (column, chunk) in chunks.iter().copied().enumerate().skip(first + 1) {
            let longer = joined(span, chunk);
            if chunk.start < span.end || chunk.start - span.end > GAP_BYTES_MAX {
                break;
            }
            if is_wanted(column) && longer.len() <= bytes_max {
                (last, span) = (column, longer);
            }
        }
        Some(Wanted { unit, columns: first..=last, span })
    }

    fn touched(&self, file: usize, range: ByteRange) -> Option<(Unit, RangeInclusive<usize>)> {
        let (row_group, columns) = self.files.get(&file)?.layout.touched(range)?;
        Some((Unit { file, row_group }, columns))
    }

    fn group(&self, unit: Unit) -> Option<&Group> {
        self.files.get(&unit.file)?.groups.get(unit.row_group)
    }

    fn mark(&mut self, unit: Unit, columns: RangeInclusive<usize>, flag: u8) {
        let Some(file) = self.files.get_mut(&unit.file) else { return };
        let chunks = file.layout.row_group(unit.row_group).len();
        let group = &mut file.groups[unit.row_group];
        group.flags.resize(chunks, 0);
        if flag == READ && !std::mem::replace(&mut group.is_touched, true) {
            // More may be expected of it than of one that lies ahead.
            group.settled_at = None;
        }
        for (column, chunk) in columns.clone().zip(&file.layout.row_group(unit.row_group)[columns])
        {
            let flags = &mut group.flags[column];
            let was_pending = is_pending(flags) && !group.is_over;
            *flags |= flag;
            let is_pending = is_pending(flags) && !group.is_over;
            match (was_pending, is_pending) {
                (false, true) => self.pending_bytes += chunk.len(),
                (true, false) => self.pending_bytes -= chunk.len(),
                _ => {}
            }
        }
    }

    /// A reader has gone from a row group: it is over with the last one.
    fn leave(&mut self, unit: Unit) {
        if self.readers.values().all(|other| *other != unit) {
            self.is_learned = true;
            self.over(unit);
        }
    }

    /// Nothing more of a row group will be read: what was read of it is what is expected of others.
    fn over(&mut self, unit: Unit) {
        let Some(file) = self.files.get_mut(&unit.file) else { return };
        let group = &mut file.groups[unit.row_group];
        if std::mem::replace(&mut group.is_over, true) {
            return;
        }
        let chunks = file.layout.row_group(unit.row_group);
        for (chunk, flags) in chunks.iter().zip(&group.flags) {
            if is_pending(flags) {
                self.wasted_bytes += chunk.len();
                self.pending_bytes -= chunk.len();
            }
        }
        for (index, column) in self.columns.iter_mut().enumerate() {
            column.push(group.flags.get(index).is_some_and(is_read), group.is_touched);
        }
        self.expected_at += 1;
    }

    /// Row groups that lie behind all readers and were not read are over: they were skipped. Of
    /// several threads one may be a little late.
    fn sweep(&mut self) {
        let Some(behind) = self.readers.values().min().copied() else { return };
        let late = if self.readers.len() > 1 { self.readers.len() } else { 0 };
        let mut skipped = Vec::new();
        for (index, file) in self.files.range_mut(..=behind.file) {
            let end = match index.cmp(&behind.file) {
                std::cmp::Ordering::Less if index + late < behind.file => file.groups.len(),
                std::cmp::Ordering::Equal => behind.row_group.saturating_sub(late),
                _ => file.swept,
            };
            for row_group in file.swept..end {
                if !file.groups[row_group].is_touched {
                    skipped.push(Unit { file: *index, row_group });
                }
            }
            file.swept = file.swept.max(end);
        }
        self.skipped += skipped.len();
        skipped.into_iter().for_each(|unit| self.over(unit));
    }

    fn restart(&mut self) {
        self.restarts += 1;
        self.readers.clear();
        self.frontier = None;
        (self.pending_bytes, self.skipped) = (0, 0);
        for file in self.files.values_mut() {
            file.swept = 0;
            file.groups.iter_mut().for_each(|group| *group = Group::default());
        }
    }
}

/// Begun and not read.
fn is_pending(flags: &u8) -> bool {
    flags & (READ | BEGUN) == BEGUN
}

fn is_read(flags: &u8) -> bool {
    flags & READ != 0
}

fn joined(a: ByteRange, b: ByteRange) -> ByteRange {
    ByteRange { start: a.start.min(b.start), end: a.end.max(b.end) }
}

#[cfg(test)]
mod tests;

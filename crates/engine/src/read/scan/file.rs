//! What is known of one file of a scan. Pure.

use super::history::History;
use crate::read::delivered::Given;
use crate::read::filters::Judged;
use crate::read::parquet::Layout;
use crate::read::parquet::steps::step;
use penstock_base::ByteRange;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Columns so near to each other are fetched together, as DuckDB reads them.
pub(super) const GAP_BYTES_MAX: u64 = 16 << 10;

/// A column chunk was read.
pub(super) const READ: u8 = 1;
/// It is fetched ahead.
pub(super) const BEGUN: u8 = 2;
/// It is, though it may well be in vain.
pub(super) const DOUBTED: u8 = 4;
/// A read of another statement was given it: this one's host has it, and does not ask.
pub(super) const GIVEN: u8 = 8;

/// A file of a scan.
#[derive(Debug)]
pub(super) struct File {
    pub layout: Arc<Layout>,
    pub groups: Vec<Group>,
    /// Row groups before this one were judged to be skipped, or not.
    pub swept: usize,
    /// Of those behind them and before the furthest reader, how many seem to be passed by.
    pub passed: usize,
    /// Where the furthest reader is, or what was judged ends.
    pub seen: usize,
    /// What its footer says about the filters of the plan.
    pub judged: Option<Arc<Judged>>,
    /// What reads of all statements were given of it, where the host keeps that.
    pub given: Option<Given>,
}

impl File {
    /// Nobody has read it yet.
    pub fn new(layout: Arc<Layout>) -> Self {
        let groups = (0..layout.row_group_count()).map(|_| Group::default()).collect();
        File { layout, groups, swept: 0, passed: 0, seen: 0, judged: None, given: None }
    }

    /// As before the first read, but for what its footer says, and what others were given.
    pub fn begin_anew(&mut self) {
        let (judged, given) = (self.judged.take(), self.given.take());
        *self = File { judged, given, ..File::new(Arc::clone(&self.layout)) };
    }

    /// A reader is in a row group.
    pub fn enter(&mut self, row_group: usize) {
        let passed = self.groups.get(self.seen..row_group).unwrap_or_default();
        self.passed += passed.iter().inspect(|_| step()).filter(|group| group.is_passed()).count();
        self.seen = self.seen.max(row_group);
    }

    /// Row groups before this one were judged.
    pub fn sweep(&mut self, end: usize) {
        let judged = self.groups.get(self.swept..end.min(self.seen)).unwrap_or_default();
        self.passed -= judged.iter().inspect(|_| step()).filter(|group| group.is_passed()).count();
        self.swept = self.swept.max(end);
        self.seen = self.seen.max(self.swept);
    }

    /// Changes what is known of a row group.
    pub fn change<T>(&mut self, row_group: usize, change: impl FnOnce(&mut Group) -> T) -> T {
        let is_counted = (self.swept..self.seen).contains(&row_group);
        let group = &mut self.groups[row_group];
        let before = usize::from(is_counted && group.is_passed());
        let changed = change(group);
        self.passed = self.passed - before + usize::from(is_counted && group.is_passed());
        changed
    }

    /// Whether a column of a row group that lies ahead is neither begun nor read.
    pub fn is_left(&self, row_group: usize, column: usize) -> bool {
        let group = &self.groups[row_group];
        let chunk = self.layout.row_group(row_group).get(column);
        !group.is_over
            && !group.is_left_out
            && chunk.is_some_and(|chunk| !chunk.is_empty())
            && group.flags.get(column).is_none_or(|flags| *flags == 0)
    }

    /// The first of these columns that has neither been read of a row group nor is here.
    pub fn misses(&self, row_group: usize, is_of: impl Fn(usize) -> bool) -> Option<usize> {
        let flags = &self.groups[row_group].flags;
        let mut chunks = self.layout.row_group(row_group).iter().enumerate();
        let found = chunks.find(|(column, chunk)| {
            is_of(*column) && !chunk.is_empty() && !flags.get(*column).is_some_and(is_read)
        });
        found.map(|(column, _)| column)
    }

    /// So many row groups before one, of those that are not left out.
    pub fn before(&self, row_group: usize, count: usize) -> usize {
        let Some(others) = count.checked_sub(1) else { return row_group };
        let mut read = (self.swept..row_group).rev().filter(|at| !self.groups[*at].is_left_out);
        read.nth(others).unwrap_or(self.swept)
    }

    /// From where on a row group is read in any case: DuckDB's external file cache widens the last
    /// read of it, or of one before it, up to the end of the file, which it has.
    pub fn widened_from(
        &self,
        row_group: usize,
        is_expected: impl Fn(usize) -> bool,
    ) -> Option<u64> {
        let near_end = self.layout.near_end().iter().copied();
        let near_end = near_end.take_while(|near| *near <= row_group);
        let last_reads = near_end.filter_map(|near| {
            let mut last: Option<ByteRange> = None;
            let chunks = self.layout.row_group(near).iter().copied().enumerate().rev();
            let is_read =
                |(column, chunk): &(usize, ByteRange)| is_expected(*column) && !chunk.is_empty();
            for (_, chunk) in chunks.inspect(|_| step()).filter(is_read) {
                match last {
                    Some(last) if chunk.end + GAP_BYTES_MAX < last.start => break,
                    _ => last = Some(joined(last.unwrap_or(chunk), chunk)),
                }
            }
            last
        });
        let mut widened = last_reads.filter(|read| self.layout.is_widened(*read));
        widened.next().map(|read| read.end)
    }
}

/// A row group of it.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// By column.
    pub flags: Vec<u8>,
    pub is_touched: bool,
    /// A reader was inside: it is not read only because a read of another one was widened.
    pub is_entered: bool,
    pub is_over: bool,
    /// By the filters of the plan nobody will read it.
    pub is_left_out: bool,
    /// Columns before this one were read or are here.
    pub read_to: usize,
    /// Bytes of the plan's columns that are still to be read; `None` before the first read.
    pub left_bytes: Option<u64>,
    /// Of what is sure and of what is likely.
    pub settled: [Settled; 2],
    /// The row groups that were read like it so far, and in which state of what is expected.
    pub alike: Option<(u64, u32)>,
}

impl Group {
    /// Whether a reader that is further on seems to have passed it by.
    fn is_passed(&self) -> bool {
        !self.is_touched && !self.is_left_out
    }

    /// Takes note that something of it is read; whether that is the first.
    pub fn touch(&mut self) -> bool {
        !std::mem::replace(&mut self.is_touched, true)
    }

    /// The row groups that were read like it so far: those in which each column was read that was
    /// read of it.
    pub fn alike(&mut self, inside_at: u64, columns: &[History]) -> u32 {
        if let Some((at, alike)) = self.alike
            && at == inside_at
        {
            return alike;
        }
        let read = self.flags.iter().zip(columns).inspect(|_| step());
        let read = read.filter(|(flags, _)| is_read(flags));
        let alike = read.fold(u32::MAX, |alike, (_, history)| history.alike(alike));
        self.alike = Some((inside_at, alike));
        alike
    }

    /// Takes note that these columns are read of it.
    pub fn narrow(&mut self, inside_at: u64, read: RangeInclusive<usize>, columns: &[History]) {
        let Some((_, before)) = self.alike.filter(|(at, _)| *at == inside_at) else { return };
        let read = columns.get(read).unwrap_or_default();
        let alike = read.iter().fold(before, |alike, history| history.alike(alike));
        if alike != before {
            self.alike = Some((inside_at, alike));
            self.settled = Default::default();
        }
    }
}

/// A state of what is expected of row groups that are being read, or lie ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub is_inside: bool,
    pub at: u64,
}

/// What is known of what is wanted of a row group, so that not all of its columns are looked at
/// each time: in this state of what is expected, no column before `from` but some of `below`.
#[derive(Debug, Default)]
pub(super) struct Settled {
    state: Option<State>,
    touched: usize,
    from: usize,
    below: BinaryHeap<Reverse<usize>>,
}

impl Settled {
    /// Whether nothing of it is wanted, in a state of what is expected and with these columns
    /// `touched` since it came about.
    pub fn is_all(&mut self, state: State, touched: &[usize], count: usize) -> bool {
        if self.state != Some(state) {
            let touched = touched.len();
            *self = Settled { state: Some(state), touched, ..Settled::default() };
        }
        for column in &touched[self.touched..] {
            step();
            if *column < self.from {
                self.below.push(Reverse(*column));
            }
        }
        self.touched = touched.len();
        self.from >= count && self.below.is_empty()
    }

    /// The first column that is wanted.
    pub fn first(&mut self, count: usize, is_wanted: impl Fn(usize) -> bool) -> Option<usize> {
        while let Some(Reverse(column)) = self.below.peek().copied() {
            step();
            if is_wanted(column) {
                return Some(column);
            }
            self.below.pop();
        }
        let first = (self.from..count).inspect(|_| step()).find(|column| is_wanted(*column));
        self.from = first.unwrap_or(count);
        first
    }
}

impl File {
    /// Whether all of a row group was read.
    pub fn is_whole(&mut self, row_group: usize) -> bool {
        let group = &mut self.groups[row_group];
        let chunks = self.layout.row_group(row_group);
        let is_read = |at: usize| group.flags.get(at).is_some_and(is_read);
        while let Some(chunk) = chunks.get(group.read_to)
            && (chunk.is_empty() || is_read(group.read_to))
        {
            step();
            group.read_to += 1;
        }
        group.read_to == chunks.len()
    }
}

/// Begun and not read.
pub(super) fn is_pending(flags: &u8) -> bool {
    flags & (READ | GIVEN | BEGUN) == BEGUN
}

/// Of pending bytes, those that may well be in vain.
pub(super) fn doubted(flags: u8, bytes: u64) -> u64 {
    if flags & DOUBTED == 0 { 0 } else { bytes }
}

/// Read by a scan, or by another one that shares its host.
pub(super) fn is_read(flags: &u8) -> bool {
    flags & (READ | GIVEN) != 0
}

/// From the begin of one range to the end of the other.
pub(super) fn joined(a: ByteRange, b: ByteRange) -> ByteRange {
    ByteRange { start: a.start.min(b.start), end: a.end.max(b.end) }
}

//! Where the columns of a Parquet file lie: the one thing that fetching ahead wants from its footer
//! (Apache Parquet format, `parquet.thrift`; Thrift compact protocol). Pure.
//!
//! What it does not understand gives `None`: then nothing is fetched ahead, and whoever reads the
//! file tells what is wrong with it.

use crate::read::plan::footer_window;
use penstock_base::ByteRange;
use std::ops::RangeInclusive;
use steps::step;

mod statistics;

pub(crate) use statistics::judge;

/// A longer footer is not looked at: half a million column chunks. It is kept while memory is free.
pub(super) const FOOTER_BYTES_MAX: u64 = 64 << 20;
/// Its length and the magic word stand behind it.
const FOOTER_END_BYTES: u64 = 8;

/// Structures inside structures; the format needs five.
const DEPTH_MAX: u32 = 16;

/// Most that DuckDB's external file cache adds to a read, so that it reaches what it has already.
pub(super) const WIDENED_BYTES_MAX: u64 = 1 << 20;

/// The column chunks of a file, as far as they have to be fetched: what came with its end is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// By row group, then by column; an empty one is here.
    row_groups: Vec<Vec<ByteRange>>,
    /// From the first byte of each row group to its last.
    extents: Vec<ByteRange>,
    footer_start: u64,
    /// From here on all of it is here.
    here: u64,
    /// What DuckDB's external file cache has of every file whose footer was read begins here.
    cached_start: u64,
    /// The row groups whose reads may be widened up to there.
    near_end: Vec<usize>,
    /// Whether they follow each other, as nearly all writers place them.
    is_in_order: bool,
    /// Whether the columns of each do.
    has_columns_in_order: Vec<bool>,
}

impl Layout {
    /// Reads the footer at the end of `tail`, which is the end of a file from `start` on. Without
    /// row groups where the footer is here and not understood, so that it is looked at once.
    /// And where all of the file is here: nothing of it is left to fetch.
    pub fn parse_once(tail: &[u8], start: u64) -> Option<Layout> {
        if start == 0 {
            return Some(Layout::new(Vec::new(), 0, 0));
        }
        let footer_start = footer_start(tail, start)?;
        let row_groups = row_groups(footer(tail)?).unwrap_or_default();
        let opening = footer_window(start + tail.len() as u64, 1);
        let cached_start = opening.start.min(footer_start);
        Some(Layout::cached_from(cached_start, row_groups, start, footer_start))
    }

    /// A file with these column chunks, by row group; what lies from `here` on is here, and in that
    /// cache.
    pub fn new(row_groups: Vec<Vec<ByteRange>>, here: u64, footer_start: u64) -> Self {
        Layout::cached_from(here, row_groups, here, footer_start)
    }

    fn cached_from(
        cached_start: u64,
        mut row_groups: Vec<Vec<ByteRange>>,
        here: u64,
        footer_start: u64,
    ) -> Self {
        for chunk in row_groups.iter_mut().flatten() {
            *chunk = ByteRange { start: chunk.start.min(here), end: chunk.end.min(here) };
        }
        let extent = |chunks: &Vec<ByteRange>| ByteRange {
            start: chunks.iter().map(|chunk| chunk.start).min().unwrap_or(0),
            end: chunks.iter().map(|chunk| chunk.end).max().unwrap_or(0),
        };
        let extents: Vec<ByteRange> = row_groups.iter().map(extent).collect();
        let is_in_order = extents.windows(2).all(|pair| pair[0].end <= pair[1].start);
        let follow =
            |chunks: &Vec<ByteRange>| chunks.windows(2).all(|pair| pair[0].end <= pair[1].start);
        let has_columns_in_order = row_groups.iter().map(follow).collect();
        let mut layout = Layout {
            row_groups,
            extents,
            footer_start,
            here,
            cached_start,
            near_end: Vec::new(),
            is_in_order,
            has_columns_in_order,
        };
        if layout.is_in_order {
            // As long as what lies behind it: so few, however many lie there.
            let is_near = |extent: &ByteRange| !extent.is_empty() && layout.is_widened(*extent);
            let near = layout.extents.iter().enumerate().filter(|(_, extent)| is_near(extent));
            layout.near_end = near.map(|(row_group, _)| row_group).collect();
        }
        layout
    }

    /// The row groups, and the columns in each, that a read touches, in order. DuckDB reads one row
    /// group at a time, but its external file cache widens a read up to what it has already. None
    /// for a read of the footer, which takes in what happens to lie before it, and for one of the
    /// file's bytes, not of its columns.
    pub fn touched(&self, range: ByteRange) -> Vec<(usize, RangeInclusive<usize>)> {
        if range.end > self.footer_start {
            return Vec::new();
        }
        // A file may have a hundred thousand row groups, and as many reads.
        let passed = if self.is_in_order {
            self.extents.partition_point(|extent| extent.end <= range.start)
        } else {
            0
        };
        let near = self.extents.iter().enumerate().skip(passed);
        let near = near.take_while(|(_, extent)| !self.is_in_order || extent.start < range.end);
        let touched: Vec<_> = near
            .filter(|(_, extent)| extent.overlaps(&range))
            .filter_map(|(index, _)| Some((index, self.touched_in(index, range)?)))
            .collect();
        let is_of_columns = match &touched[..] {
            [(first, _), _, ..] => {
                let added_bytes = range.end.saturating_sub(self.extents[*first].end);
                self.is_in_order && added_bytes <= WIDENED_BYTES_MAX
            }
            _ => true,
        };
        if is_of_columns { touched } else { Vec::new() }
    }

    fn touched_in(&self, row_group: usize, range: ByteRange) -> Option<RangeInclusive<usize>> {
        let is_touched = |chunk: &ByteRange| !chunk.is_empty() && chunk.overlaps(&range);
        let chunks = &self.row_groups[row_group];
        let (from, to) = if self.has_columns_in_order[row_group] {
            let from = chunks.partition_point(|chunk| chunk.end <= range.start);
            // Behind them may lie many that are here.
            let end = range.end.min(self.extents[row_group].end);
            (from, chunks.partition_point(|chunk| chunk.start < end))
        } else {
            (0, chunks.len())
        };
        let near = chunks.get(from..to)?;
        let first = near.iter().inspect(|_| step()).position(is_touched)?;
        let last = near.iter().inspect(|_| step()).rposition(is_touched)?;
        Some(from + first..=from + last)
    }

    /// Whether a read ends where that begins which DuckDB's external file cache has of the file.
    pub fn ends_at_cached(&self, range: ByteRange) -> bool {
        range.end == self.cached_start
    }

    /// The row groups whose reads may be widened up to what that cache has of the file, in order.
    pub fn near_end(&self) -> &[usize] {
        &self.near_end
    }

    /// What that cache adds to a read which ends with the last row group: Bloom filters and indexes
    /// lie there. `None` where other columns do, or nothing.
    pub fn behind_columns(&self, end: u64) -> Option<ByteRange> {
        let is_last = self.is_in_order && self.extents.last().is_some_and(|last| last.end == end);
        let behind = ByteRange { start: end, end: self.cached_start.min(self.here) };
        (is_last && !behind.is_empty() && behind.len() <= WIDENED_BYTES_MAX).then_some(behind)
    }
    /// Whether that cache widens the read of a range up to what it has of the file, as long as it
    /// has nothing else.
    pub fn is_widened(&self, range: ByteRange) -> bool {
        let added_bytes = self.cached_start.saturating_sub(range.end);
        added_bytes <= range.len().min(WIDENED_BYTES_MAX)
    }

    /// A range that begins and ends at multiples of so many bytes, as far as it is not here.
    pub fn on_grid(&self, range: ByteRange, grid_bytes: u64) -> ByteRange {
        let end = range.end.next_multiple_of(grid_bytes).min(self.here.max(range.end));
        ByteRange { start: range.start - range.start % grid_bytes, end }
    }

    /// Number of row groups.
    pub fn row_group_count(&self) -> usize {
        self.row_groups.len()
    }

    /// The column chunks of a row group.
    pub fn row_group(&self, index: usize) -> &[ByteRange] {
        &self.row_groups[index]
    }
}

/// Columns that were looked at one by one, for the tests that count them.
#[cfg(test)]
pub(super) mod steps {
    std::thread_local! {
        pub static TAKEN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    pub fn step() {
        TAKEN.set(TAKEN.get() + 1);
    }
}

#[cfg(not(test))]
pub(super) mod steps {
    pub fn step() {}
}

/// Where the footer begins whose end `tail` has, which is the end of a file from `start` on. `None`
/// for one that is too long to be looked at.
pub(crate) fn footer_start(tail: &[u8], start: u64) -> Option<u64> {
    let end = start + tail.len() as u64;
    end.checked_sub(footer_bytes(tail)? + FOOTER_END_BYTES)
}

/// The length that stands behind a footer.
fn footer_bytes(tail: &[u8]) -> Option<u64> {
    let (rest, magic) = tail.split_at_checked(tail.len().checked_sub(4)?)?;
    let (_, length) = rest.split_at_checked(rest.len().checked_sub(4)?)?;
    let length = u64::from(u32::from_le_bytes(length.try_into().ok()?));
    (magic == b"PAR1" && length <= FOOTER_BYTES_MAX).then_some(length)
}

/// The footer at the end of a file, if all of it is here.
fn footer(tail: &[u8]) -> Option<&[u8]> {
    let length = usize::try_from(footer_bytes(tail)?).ok()?;
    let rest = &tail[..tail.len() - FOOTER_END_BYTES as usize];
    rest.get(rest.len().checked_sub(length)?..)
}

/// The column chunks that a footer names, by row group.
fn row_groups(footer: &[u8]) -> Option<Vec<Vec<ByteRange>>> {
    let mut footer = Thrift { rest: footer, depth: 0 };
    footer.structures_in(4, |row_group| row_group.structures_in(1, column_chunk))
}

/// A chunk begins with its dictionary, where it has one.
fn column_chunk(thrift: &mut Thrift<'_>) -> Option<ByteRange> {
    let (mut length, mut pages, mut dictionary) = (0, 0, 0);
    thrift.structure(|thrift, field, kind| match (field, kind) {
        (3, STRUCT) => thrift.structure(|thrift, field, kind| {
            match (field, kind) {
                (7, I64) => length = thrift.integer()?,
                (9, I64) => pages = thrift.integer()?,
                (11, I64) => dictionary = thrift.integer()?,
                _ => thrift.skip(kind)?,
            }
            Some(())
        }),
        _ => thrift.skip(kind),
    })?;
    let start = if dictionary > 0 { dictionary.min(pages) } else { pages };
    ByteRange::of_len(u64::try_from(start).ok()?, u64::try_from(length).ok()?)
}

const BOOL_TRUE: u8 = 1;
const BOOL_FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// What is left of a message in Thrift's compact protocol.
struct Thrift<'a> {
    rest: &'a [u8],
    depth: u32,
}

impl<'a> Thrift<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A zigzag-encoded number.
    fn integer(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn pass(&mut self, count: u64) -> Option<()> {
        self.rest = self.rest.get(usize::try_from(count).ok()?..)?;
        Some(())
    }

    /// Bytes behind their length.
    fn binary(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }

    /// Goes through the fields of a structure; `field` takes the value of each.
    fn structure(&mut self, mut field: impl FnMut(&mut Self, i64, u8) -> Option<()>) -> Option<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let mut id = 0i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                self.depth -= 1;
                return Some(());
            }
            id = match head >> 4 {
                0 => self.integer()?,
                delta => id.checked_add(i64::from(delta))?,
            };
            field(self, id, head & 0x0f)?;
        }
    }

    /// Goes through a structure of which only one field is wanted, a list of structures; `element`
    /// reads each of those.
    fn structures_in<T>(
        &mut self,
        wanted: i64,
        mut element: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let mut found = Vec::new();
        self.structure(|thrift, field, kind| match (field, kind) {
            (field, LIST) if field == wanted => thrift.list(STRUCT, |thrift| {
                found.push(element(thrift)?);
                Some(())
            }),
            _ => thrift.skip(kind),
        })?;
        Some(found)
    }

    /// Goes through a list whose elements are of this kind.
    fn list(&mut self, kind: u8, mut element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        // Each element takes a byte at least, so the count needs no limit of its own.
        if head & 0x0f != kind || count > self.rest.len() as u64 {
            return None;
        }
        (0..count).try_for_each(|_| element(self))
    }

    fn skip(&mut self, kind: u8) -> Option<()> {
        match kind {
            BOOL_TRUE | BOOL_FALSE => Some(()),
            BYTE => self.pass(1),
            I16 | I32 | I64 => self.varint().map(|_| ()),
            DOUBLE => self.pass(8),
            BINARY => self.binary().map(|_| ()),
            LIST | SET => {
                let kind = self.rest.first()? & 0x0f;
                self.list(kind, |thrift| thrift.skip_element(kind))
            }
            MAP => {
                let count = self.varint()?;
                if count == 0 {
                    return Some(());
                }
                let kinds = self.byte()?;
                if count > self.rest.len() as u64 {
                    return None;
                }
                (0..count).try_for_each(|_| {
                    self.skip_element(kinds >> 4)?;
                    self.skip_element(kinds & 0x0f)
                })
            }
            STRUCT => self.structure(|thrift, _, kind| thrift.skip(kind)),
            _ => None,
        }
    }

    /// As a field a boolean is its own kind; as an element it takes a byte.
    fn skip_element(&mut self, kind: u8) -> Option<()> {
        match kind {
            BOOL_TRUE | BOOL_FALSE => self.pass(1),
            kind => {
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return None;
                }
                let skipped = self.skip(kind);
                self.depth -= 1;
                skipped
            }
        }
    }
}

/// A fuzzer's bytes as a footer, at the end of a file of which a few bytes more are here.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(input: &[u8]) {
    const START: u64 = 1 << 20;
    let mut tail = vec![0; 16];
    tail.extend(input);
    tail.extend((input.len() as u32).to_le_bytes());
    tail.extend(b"PAR1");
    let layout = Layout::parse_once(&tail, START).expect("all of the footer is here");
    for row_group in 0..layout.row_group_count() {
        for chunk in layout.row_group(row_group) {
            assert!(chunk.start <= chunk.end && chunk.end <= START, "{chunk:?}");
            layout.touched(*chunk);
        }
    }
    let filters = statistics::fuzzed_filters();
    if let Some(judged) = judge(&tail, &filters) {
        assert_eq!(judged.left_out.len(), judged.moving.len());
        assert!(judged.left_out.len() <= input.len());
    }
    for start in [0, 1, START] {
        drop(Layout::parse_once(input, start));
    }
}

#[cfg(test)]
mod tests;

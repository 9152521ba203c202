//! What a plan tells of a scan before its first read. Pure.
//!
//! DuckDB 1.5 registers the columns of a row group in the plan's order, joins those that lie near
//! each other, and reads them from the last to the first (`ReadAheadBuffer` of its
//! `thrift_tools.hpp`). Its external file cache widens each read up to what was read before
//! (`caching_file_system.cpp`): so columns come along that the plan does not name.

use super::file::{GAP_BYTES_MAX, joined};
use super::history::push_unknown;
use super::{Scan, Unit, Wanted};
use crate::read::parquet::WIDENED_BYTES_MAX;
use crate::read::parquet::steps::step;
use penstock_base::ByteRange;

/// More are not taken from a plan.
const COLUMNS_MAX: usize = 1 << 20;

/// Of more columns it is not worked out what comes along: little lies between them.
const COMPARED_MAX: usize = 256;

/// The columns of a scan that reads all row groups.
#[derive(Debug)]
pub(super) struct Told {
    /// In the order of the plan.
    columns: Vec<usize>,
    /// Whether it was compared with a row group.
    is_seen: bool,
    /// The reads of a host that fetches ahead itself begin and end at multiples of so many bytes.
    grid_bytes: Option<u64>,
}

impl Scan {
    /// Takes note of columns that are read of all row groups, in the order of the plan.
    /// `is_widening` says that DuckDB's external file cache stands between.
    pub fn will_read(&mut self, columns: impl Iterator<Item = usize>, is_widening: bool) {
        let columns: Vec<usize> = columns.take_while(|column| *column < COLUMNS_MAX).collect();
        if columns.is_empty() {
            return;
        }
        self.is_learned = true;
        self.is_widening |= is_widening;
        self.expect_all(&columns);
        self.told = Some(Told { columns, is_seen: false, grid_bytes: None });
    }

    /// The same of a host (DuckDB 2.0) that reads ahead itself, one row group beside the other, and
    /// whose reads begin and end at multiples of `grid_bytes`. It widens them to nothing else.
    pub fn will_read_on_grid(&mut self, columns: impl Iterator<Item = usize>, grid_bytes: u64) {
        // A statement may scan a file twice.
        let before = self.told.take().map_or_else(Vec::new, |told| told.columns);
        self.will_read(before.into_iter().chain(columns), false);
        if let Some(told) = self.told.as_mut() {
            told.columns.sort_unstable();
            told.columns.dedup();
            told.grid_bytes = Some(grid_bytes.max(1));
        }
        let groups = self.files.values_mut().flat_map(|file| &mut file.groups);
        groups.for_each(|group| group.left_bytes = None);
    }

    /// Whether a reader goes from one row group to another while parts of the first are still to be
    /// read.
    pub(super) fn reads_beside(&self) -> bool {
        self.told.as_ref().is_some_and(|told| told.grid_bytes.is_some())
    }

    /// Takes note of the bytes of a read, where row groups are read beside each other: one is over
    /// once all of its columns have been read to their ends.
    pub(super) fn take(&mut self, file: usize, range: ByteRange) {
        let Some(Told { columns: told, grid_bytes: Some(_), .. }) = &self.told else { return };
        let Some(of) = self.files.get_mut(&file) else { return };
        let mut ended = Vec::new();
        for (row_group, columns) in of.layout.touched(range) {
            let chunks = of.layout.row_group(row_group);
            let chunk = |column: &usize| chunks.get(*column);
            let sum =
                || told.iter().inspect(|_| step()).filter_map(chunk).map(ByteRange::len).sum();
            let group = &mut of.groups[row_group];
            let left = group.left_bytes.unwrap_or_else(sum);
            let from = told.partition_point(|column| column < columns.start());
            let to = told.partition_point(|column| column <= columns.end());
            let read = told[from..to].iter().inspect(|_| step()).filter_map(chunk);
            let read: u64 = read.map(|chunk| chunk.shared_bytes(&range)).sum();
            group.left_bytes = Some(left.saturating_sub(read));
            if left <= read {
                ended.push(Unit { file, row_group });
            }
        }
        ended.into_iter().for_each(|unit| self.over(unit));
    }

    /// Whether a plan told of its columns.
    pub fn is_told(&self) -> bool {
        self.told.is_some()
    }

    /// What is fetched for a span: all that the reads of its columns take in.
    pub fn on_grid(&self, wanted: &Wanted) -> ByteRange {
        let file = self.files.get(&wanted.unit.file);
        match (file, &self.told) {
            (Some(file), Some(Told { grid_bytes: Some(bytes), .. })) => {
                file.layout.on_grid(wanted.span, *bytes)
            }
            _ => wanted.span,
        }
    }

    /// A read without the bytes that it may have taken in of the columns before and behind.
    pub(super) fn off_grid(&self, range: ByteRange) -> ByteRange {
        let margin = self.told.as_ref().and_then(|told| told.grid_bytes).map_or(0, |it| it - 1);
        if range.len() <= 2 * margin {
            return range;
        }
        ByteRange { start: range.start + margin, end: range.end - margin }
    }

    /// Once a row group is known: what comes along with the columns that were told.
    pub(super) fn see_what_was_told(&mut self, unit: Unit) {
        let Some(file) = self.files.get(&unit.file) else { return };
        let Some(told) = self.told.as_mut().filter(|told| !told.is_seen) else { return };
        told.is_seen = true;
        let chunks = file.layout.row_group(unit.row_group);
        if self.is_widening && told.columns.len() <= COMPARED_MAX {
            let come = come_along(&told.columns, chunks);
            self.expect_all(&come);
        }
    }

    fn expect_all(&mut self, columns: &[usize]) {
        // All at once, since each time takes a look at all of them.
        push_unknown(&mut self.columns, columns.iter().max().map_or(0, |column| column + 1));
        columns.iter().for_each(|column| self.columns[*column].is_touched = true);
        self.expect_anew();
    }
}

/// The columns of a row group that are read besides those that are wanted.
fn come_along(wanted: &[usize], chunks: &[ByteRange]) -> Vec<usize> {
    let mut read: Vec<ByteRange> = Vec::new();
    for range in reads(wanted, chunks).into_iter().rev() {
        let nearest = read.iter().map(|other| other.start).filter(|start| *start >= range.end);
        let end = nearest
            .min()
            .filter(|start| start - range.end <= range.len().min(WIDENED_BYTES_MAX))
            .unwrap_or(range.end);
        read.push(ByteRange { start: range.start, end });
    }
    let comes = |chunk: &ByteRange| !chunk.is_empty() && read.iter().any(|r| r.contains(chunk));
    let columns = chunks.iter().enumerate().filter(|(_, chunk)| comes(chunk));
    columns.map(|(column, _)| column).filter(|column| !wanted.contains(column)).collect()
}

/// What is read for columns, in the order in which it is registered.
fn reads(wanted: &[usize], chunks: &[ByteRange]) -> Vec<ByteRange> {
    let mut reads: Vec<ByteRange> = Vec::new();
    for chunk in wanted.iter().filter_map(|column| chunks.get(*column)) {
        if chunk.is_empty() {
            continue;
        }
        let is_near = |read: &&mut ByteRange| {
            read.start <= chunk.end + GAP_BYTES_MAX && chunk.start <= read.end + GAP_BYTES_MAX
        };
        match reads.iter_mut().find(is_near) {
            Some(read) => *read = joined(*read, *chunk),
            None => reads.push(*chunk),
        }
    }
    reads
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 100 << 10;

    fn chunks(sizes: &[u64]) -> Vec<ByteRange> {
        let mut end = 4;
        let chunk = |size: &u64| {
            let start = end;
            end += size;
            ByteRange { start, end }
        };
        sizes.iter().map(chunk).collect()
    }

    #[test]
    fn a_column_between_two_comes_along_with_the_one_before_it() {
        let alike = chunks(&[CHUNK; 8]);
        assert_eq!(come_along(&[0, 2, 5], &alike), [1]);
        assert_eq!(come_along(&[0, 2, 4, 6], &alike), [1, 3, 5]);
        assert_eq!(come_along(&[0, 3], &alike), [0_usize; 0]);
        // The last one is read first, and nothing is there to reach.
        assert_eq!(come_along(&[2, 0], &alike), [0_usize; 0]);
        // Neighbours are one read, which may be widened further.
        assert_eq!(come_along(&[0, 1, 4], &alike), [2, 3]);
        assert_eq!(come_along(&[], &alike), [0_usize; 0]);
        assert_eq!(come_along(&[9], &alike), [0_usize; 0]);
    }

    #[test]
    fn no_read_is_widened_by_more_than_a_mebibyte() {
        let long = chunks(&[4 << 20, 1 << 20, CHUNK, (1 << 20) + 1, CHUNK]);
        assert_eq!(come_along(&[0, 2], &long), [1]);
        assert_eq!(come_along(&[0, 1, 2, 4], &long), [0_usize; 0]);
    }
}

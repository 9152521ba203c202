//! What to fetch next of a scan. Pure.

use super::file::{BEGUN, GAP_BYTES_MAX, Group, Settled, is_pending, joined};
use super::history::History;
use super::{FILES_AHEAD_MAX, Scan, Unit};
use crate::read::parquet::steps::step;
use penstock_base::ByteRange;
use std::ops::RangeInclusive;

/// What is worth fetching.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub unit: Unit,
    pub columns: RangeInclusive<usize>,
    pub span: ByteRange,
}

impl Scan {
    /// The next span to fetch, of at most so many bytes; it counts as begun. One of at most
    /// `whole_bytes` is not cut because there is room for a part of it only: that costs a request.
    pub fn next(&mut self, bytes_max: u64, whole_bytes: u64) -> Option<Wanted> {
        let frontier = self.frontier?;
        let mut inside: Vec<Unit> = self.readers.values().copied().collect();
        inside.sort_unstable();
        inside.dedup();
        for unit in inside {
            let cut_bytes = bytes_max.max(whole_bytes);
            if let Some(wanted) = self.next_in(unit, cut_bytes, History::is_expected_inside) {
                return self.begin(wanted, bytes_max);
            }
        }
        if self.is_skipping() {
            return None;
        }
        let allowed_bytes = self.bytes_max_outside(bytes_max);
        // Where waste bounds them, waiting for more room may be for ever.
        let is_free = allowed_bytes == bytes_max;
        let cut_bytes = if is_free { bytes_max.max(whole_bytes) } else { allowed_bytes };
        let files: Vec<usize> =
            self.files.range(frontier.file..).map(|(index, _)| *index).collect();
        for file in files.into_iter().take_while(|file| *file <= frontier.file + FILES_AHEAD_MAX) {
            let first = if file == frontier.file { frontier.row_group + 1 } else { 0 };
            for row_group in first..self.files[&file].groups.len() {
                let unit = Unit { file, row_group };
                if let Some(wanted) = self.next_in(unit, cut_bytes, History::is_expected) {
                    return self.begin(wanted, allowed_bytes);
                }
            }
        }
        None
    }

    /// `None` for a span that is too long: what lies behind it must not overtake it.
    fn begin(&mut self, wanted: Wanted, bytes_max: u64) -> Option<Wanted> {
        if wanted.span.len() > bytes_max {
            return None;
        }
        self.mark(wanted.unit, wanted.columns.clone(), BEGUN);
        Some(wanted)
    }

    /// What was to begin did not, from a place on: its columns are to be asked for again.
    pub fn not_begun(&mut self, wanted: &Wanted, from: u64) {
        let Some(file) = self.files.get_mut(&wanted.unit.file) else { return };
        let group = &mut file.groups[wanted.unit.row_group];
        let chunks = file.layout.row_group(wanted.unit.row_group);
        for column in wanted.columns.clone() {
            // Half of a column is not asked for.
            if chunks[column].start < from {
                continue;
            }
            if is_pending(&group.flags[column]) && !group.is_over {
                self.pending_bytes -= chunks[column].len();
            }
            group.flags[column] &= !BEGUN;
        }
        // A column in the middle lies before what is settled.
        if from > wanted.span.start {
            group.settled = Settled::default();
        }
    }

    /// The next neighbouring columns of a row group that are expected: as many as fit, but one at
    /// least.
    fn next_in(
        &mut self,
        unit: Unit,
        bytes_max: u64,
        is_expected: fn(History) -> bool,
    ) -> Option<Wanted> {
        let (columns, expected_at, is_widening) =
            (&self.columns, self.expected_at, self.is_widening);
        let file = self.files.get_mut(&unit.file)?;
        let group = file.groups.get_mut(unit.row_group)?;
        let count = file.layout.row_group(unit.row_group).len();
        if group.is_over || group.is_settled(expected_at, &self.touched, count) {
            return None;
        }
        let is_expected = |column: usize| columns.get(column).copied().is_some_and(is_expected);
        let widened_from = if is_widening {
            file.widened_from(unit.row_group, is_expected).unwrap_or(u64::MAX)
        } else {
            u64::MAX
        };
        let Group { flags, settled, .. } = &mut file.groups[unit.row_group];
        let chunks = file.layout.row_group(unit.row_group);
        flags.resize(chunks.len(), 0);
        let is_wanted = |column: usize| {
            (is_expected(column) || chunks[column].start >= widened_from)
                && flags[column] == 0
                && !chunks[column].is_empty()
        };
        let first = settled.first(chunks.len(), is_wanted)?;
        let (mut last, mut span) = (first, chunks[first]);
        for (column, chunk) in chunks.iter().copied().enumerate().skip(first + 1) {
            step();
            let longer = joined(span, chunk);
            if chunk.start < span.end || chunk.start - span.end > GAP_BYTES_MAX {
                break;
            }
            if is_wanted(column) && longer.len() <= bytes_max {
                (last, span) = (column, longer);
            }
        }
        if span.end >= widened_from
            && let Some(behind) = file.layout.behind_columns(span.end)
            && joined(span, behind).len() <= bytes_max
        {
            span = joined(span, behind);
        }
        Some(Wanted { unit, columns: first..=last, span })
    }
}

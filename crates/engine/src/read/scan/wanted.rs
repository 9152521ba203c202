//! What to fetch next of a scan. Pure.

use super::file::{
    BEGUN, DOUBTED, GAP_BYTES_MAX, Group, Settled, State, doubted, is_pending, joined,
};
use super::history::Trust;
use super::{Scan, Unit};
use crate::query::WASTE_PARTS;
use crate::read::parquet::steps::step;
use penstock_base::ByteRange;
use std::ops::RangeInclusive;

/// Columns of several row groups are fetched by one request of at most so much.
pub(crate) const JOINED_BYTES_MAX: u64 = 8 << 20;
/// Shorter ones are joined even where little may be ahead: a shorter request costs as much.
const JOINED_BYTES_MIN: u64 = 512 << 10;

/// What is worth fetching.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub unit: Unit,
    pub columns: RangeInclusive<usize>,
    pub span: ByteRange,
    /// Columns of row groups behind it that lie in the span too.
    more: Vec<(Unit, RangeInclusive<usize>)>,
    /// Bytes between row groups, which nobody wants.
    gap_bytes: u64,
}

impl Wanted {
    /// The row groups that the span has columns of.
    pub fn row_groups(&self) -> RangeInclusive<usize> {
        let last = self.more.last().map_or(self.unit, |(unit, _)| *unit);
        self.unit.row_group..=last.row_group
    }

    /// Takes in the columns of a row group behind it, where they lie as near as columns of one row
    /// group do, all of it has at most `bytes_max`, and little of it lies between.
    fn join(&mut self, next: Wanted, bytes_max: u64) -> bool {
        let span = joined(self.span, next.span);
        let Some(gap_bytes) = next.span.start.checked_sub(self.span.end) else { return false };
        // DuckDB reads over a gap inside a row group, but never over one between two. Half of what
        // may be in vain: the other half is for what is not known.
        let all_gaps = self.gap_bytes + gap_bytes;
        if gap_bytes > GAP_BYTES_MAX
            || span.len() > bytes_max
            || all_gaps * 2 * WASTE_PARTS > span.len()
        {
            return false;
        }
        (self.span, self.gap_bytes) = (span, all_gaps);
        self.more.push((next.unit, next.columns));
        true
    }

    /// All columns, by row group.
    pub(super) fn parts(&self) -> impl Iterator<Item = (Unit, RangeInclusive<usize>)> {
        let first = std::iter::once((self.unit, self.columns.clone()));
        first.chain(self.more.iter().cloned())
    }
}

/// The longest span of several row groups, where one row group's is cut beyond `whole_bytes`, which
/// is half of what may be ahead. An eighth of that: so at least eight requests share the link, and
/// what is needed first, which is there when all of its request is, does not wait for much else.
fn joined_bytes_max(whole_bytes: u64) -> u64 {
    (whole_bytes / 4).max(JOINED_BYTES_MIN).min(whole_bytes).min(JOINED_BYTES_MAX)
}

impl Scan {
    /// The next span to fetch, of at most so many bytes; it counts as begun. One of at most
    /// `whole_bytes`, half of what may be ahead, is not cut because there is room for a part of it
    /// only: that costs a request.
    pub fn next(&mut self, bytes_max: u64, whole_bytes: u64) -> Option<Wanted> {
        let is_owing = self.owed_bytes() > 0;
        if std::mem::replace(&mut self.is_owing, is_owing) != is_owing {
            self.expect_anew();
        }
        let trust = if is_owing { Trust::Proven } else { Trust::Sure };
        let inside = self.inside();
        let cut_bytes = bytes_max.max(whole_bytes);
        for unit in &inside {
            if let Some(wanted) = self.next_in(*unit, cut_bytes, trust, true) {
                // What will never fit is read on demand: nothing waits for it.
                if wanted.span.len() > bytes_max.max(whole_bytes.saturating_mul(2)) {
                    continue;
                }
                return self.begin(wanted, bytes_max, BEGUN);
            }
        }
        // That a column is read of each file proves nothing where files are passed by.
        let proves_nothing = is_owing && self.has_passed_by;
        if !proves_nothing && !self.is_skipping() {
            // What readers find out that they need is not to wait for what is needed later.
            let reserved_bytes = self.unit_parts()[1].saturating_mul(self.reader_count());
            let bytes_max = bytes_max.saturating_sub(reserved_bytes.min(whole_bytes / 2));
            let allowed_bytes = self.bytes_max_outside(bytes_max);
            // Where waste bounds them, waiting for more room may be for ever.
            let is_free = allowed_bytes == bytes_max;
            let cut_bytes = if is_free { cut_bytes } else { allowed_bytes };
            if let Some(mut wanted) = self.first_outside(cut_bytes, trust) {
                let joined_bytes_max = joined_bytes_max(whole_bytes).min(cut_bytes);
                if self.outside.awaits(&wanted, allowed_bytes, joined_bytes_max) {
                    return None;
                }
                self.join(&mut wanted, joined_bytes_max, trust);
                if wanted.span.len() > allowed_bytes {
                    self.outside.await_room(&wanted);
                }
                return self.begin(wanted, allowed_bytes, BEGUN);
            }
        }
        if is_owing { None } else { self.next_doubted(&inside, bytes_max) }
    }

    /// The next span of what is likely to be read and may well not be: no more of it than may be in
    /// vain, and behind all that is surer.
    fn next_doubted(&mut self, inside: &[Unit], bytes_max: u64) -> Option<Wanted> {
        let (trust, bytes_max) = (Trust::Likely, bytes_max.min(self.bytes_max_doubted()));
        if bytes_max == 0 {
            return None;
        }
        let mut found = inside.iter().find_map(|unit| self.next_in(*unit, bytes_max, trust, true));
        let mut allowed_bytes = bytes_max;
        if found.is_none() && !self.is_skipping() && self.has_doubted() {
            allowed_bytes = self.bytes_max_outside(bytes_max);
            found = self.first_outside(allowed_bytes, trust);
        }
        self.begin(found?, allowed_bytes, BEGUN | DOUBTED)
    }

    /// The row groups that are being read, in order.
    fn inside(&self) -> Vec<Unit> {
        let mut inside: Vec<Unit> = self.readers.values().copied().collect();
        inside.sort_unstable();
        inside.dedup();
        inside
    }

    /// Whether a column of row groups that lie ahead is likely and not sure.
    fn has_doubted(&mut self) -> bool {
        if self.has_doubted.is_none_or(|(at, _)| at != self.expected_at) {
            let mut columns = self.columns.iter().inspect(|_| step());
            let found = columns.any(|column| column.is_expected_as(Trust::Likely));
            self.has_doubted = Some((self.expected_at, found));
        }
        self.has_doubted.is_some_and(|(_, found)| found)
    }

    /// Takes the columns of the row groups behind it in. Only of those that nobody has entered:
    /// what a reader waits for is a request of its own.
    fn join(&mut self, wanted: &mut Wanted, bytes_max: u64, trust: Trust) {
        let count = self.files[&wanted.unit.file].groups.len();
        for row_group in wanted.unit.row_group + 1..count {
            let left = bytes_max.saturating_sub(wanted.span.len());
            let unit = Unit { row_group, ..wanted.unit };
            let Some(next) = self.next_in(unit, left, trust, false) else { return };
            if !wanted.join(next, bytes_max) {
                return;
            }
        }
    }

    /// `None` for a span that is too long: what lies behind it must not overtake it.
    fn begin(&mut self, wanted: Wanted, bytes_max: u64, flags: u8) -> Option<Wanted> {
        if wanted.span.len() > bytes_max {
            return None;
        }
        self.wasted_bytes += wanted.gap_bytes;
        wanted.parts().for_each(|(unit, columns)| self.mark(unit, columns, flags));
        Some(wanted)
    }

    /// What was to begin did not, from a place on: its columns are to be asked for again.
    pub fn not_begun(&mut self, wanted: &Wanted, from: u64) {
        if from <= wanted.span.start {
            self.wasted_bytes = self.wasted_bytes.saturating_sub(wanted.gap_bytes);
        }
        for (unit, columns) in wanted.parts() {
            self.outside.back_to(unit, *columns.start()..columns.end() + 1);
            let Some(file) = self.files.get_mut(&unit.file) else { return };
            let group = &mut file.groups[unit.row_group];
            let chunks = file.layout.row_group(unit.row_group);
            for column in columns {
                // Half of a column is not asked for.
                if chunks[column].start < from {
                    continue;
                }
                let flags = group.flags[column];
                if is_pending(&flags) && !group.is_over {
                    self.pending_bytes -= chunks[column].len();
                    self.doubted_bytes -= doubted(flags, chunks[column].len());
                }
                group.flags[column] &= !(BEGUN | DOUBTED);
            }
            // They lie before what is settled: only the last that were asked for need not, and
            // there may be others behind them by now.
            group.settled = <[Settled; 2]>::default();
        }
    }

    /// The next neighbouring columns of a row group that are expected: as many as fit, but one at
    /// least.
    pub(super) fn next_in(
        &mut self,
        unit: Unit,
        bytes_max: u64,
        trust: Trust,
        is_inside: bool,
    ) -> Option<Wanted> {
        let (columns, is_widening) = (&self.columns, self.is_widening);
        let at = if is_inside { self.inside_at } else { self.expected_at };
        let file = self.files.get_mut(&unit.file)?;
        let group = file.groups.get_mut(unit.row_group)?;
        let count = file.layout.row_group(unit.row_group).len();
        let class = trust.class();
        let is_done = group.is_over || group.is_left_out;
        if is_done || group.settled[class].is_all(State { is_inside, at }, &self.touched, count) {
            return None;
        }
        let alike = if is_inside { group.alike(at, columns) } else { 0 };
        let is_expected = |column: usize| {
            columns.get(column).is_some_and(|history| {
                if is_inside {
                    history.is_expected_inside(alike, trust)
                } else {
                    history.is_expected_as(trust)
                }
            })
        };
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
        let first = settled[class].first(chunks.len(), is_wanted)?;
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
        Some(Wanted { unit, columns: first..=last, span, more: Vec::new(), gap_bytes: 0 })
    }
}

//! The next row group that nobody has entered and of which something is expected. Pure.
//!
//! A file may have ten thousand row groups, and nearly all of them may be ahead at once. So it is
//! known where each column has not been asked for yet, whatever is expected; and, as long as the
//! same is expected, where anything is left to ask for. Both only go forward, but for what could
//! not begin, and for row groups that turn out to be read after all.

use super::history::Trust;
use super::wanted::Wanted;
use super::{FILES_AHEAD_MAX, Scan, Unit};
use crate::read::parquet::steps::step;
use std::ops::Range;

/// Where to look.
#[derive(Debug, Default)]
pub(super) struct Outside {
    /// By column: the first row group in which it is neither begun nor read.
    columns: Vec<Unit>,
    /// Of what is sure and of what is likely.
    looked: [Option<Looked>; 2],
    /// A span that waits for room.
    awaited: Option<Awaited>,
}

/// In this state of what is expected nothing is left to begin before a row group.
#[derive(Clone, Copy, Debug)]
struct Looked {
    expected_at: u64,
    touched: usize,
    from: Unit,
}

/// Where a span begins that was too long for the room there was, and how long it was.
#[derive(Debug, PartialEq, Eq)]
struct Awaited {
    unit: Unit,
    column: usize,
    bytes: u64,
}

impl Outside {
    /// There may be something to begin of these columns from a row group on.
    pub fn back_to(&mut self, unit: Unit, columns: Range<usize>) {
        let end = columns.end.min(self.columns.len());
        for at in self.columns.get_mut(columns.start.min(end)..end).unwrap_or_default() {
            *at = unit.min(*at);
        }
        for looked in self.looked.iter_mut().flatten() {
            looked.from = unit.min(looked.from);
        }
    }

    /// Whether a span that begins like this one, and may have so many bytes, is known to be longer
    /// than the room for it. What is expected may have changed, so it may be shorter by now: it
    /// begins a little later then, and not all of it is put together again with each read.
    pub fn awaits(&self, wanted: &Wanted, room_bytes: u64, bytes_max: u64) -> bool {
        self.awaited.as_ref().is_some_and(|awaited| {
            let is_same = (awaited.unit, awaited.column) == (wanted.unit, *wanted.columns.start());
            is_same && awaited.bytes > room_bytes && awaited.bytes <= bytes_max
        })
    }

    /// A span does not fit into the room there is.
    pub fn await_room(&mut self, wanted: &Wanted) {
        let (unit, column) = (wanted.unit, *wanted.columns.start());
        self.awaited = Some(Awaited { unit, column, bytes: wanted.span.len() });
    }
}

impl Scan {
    /// Of the next row group that nobody has entered, what is expected.
    pub(super) fn first_outside(&mut self, bytes_max: u64, trust: Trust) -> Option<Wanted> {
        let frontier = self.frontier?;
        let mut at = self.look_from(behind(frontier), trust);
        let mut found = None;
        while let Some(unit) = self.known_from(at)
            && unit.file <= frontier.file + FILES_AHEAD_MAX
        {
            step();
            at = unit;
            found = self.next_in(unit, bytes_max, trust, false);
            if found.is_some() {
                break;
            }
            at = behind(unit);
        }
        let (expected_at, touched) = (self.expected_at, self.touched.len());
        self.outside.looked[trust.class()] = Some(Looked { expected_at, touched, from: at });
        found
    }

    /// Before which row group, from `next` on, nothing is left to begin.
    fn look_from(&mut self, next: Unit, trust: Trust) -> Unit {
        let looked = self.outside.looked[trust.class()];
        let looked = looked.filter(|looked| looked.expected_at == self.expected_at);
        let mut first: Option<Unit> = looked.map(|looked| looked.from);
        let count = match looked {
            Some(looked) => self.touched.len() - looked.touched,
            None => self.columns.len(),
        };
        for index in 0..count {
            step();
            let column = looked.map_or(index, |looked| self.touched[looked.touched + index]);
            if self.columns[column].is_expected_as(trust) {
                let at = self.not_begun_from(column, next);
                first = Some(first.map_or(at, |first| first.min(at)));
            }
        }
        // Columns are read there that are not expected elsewhere.
        let mut near_end = self.files.range(next.file..).filter_map(|(file, known)| {
            Some(Unit { file: *file, row_group: *known.layout.near_end().first()? })
        });
        if looked.is_none()
            && self.is_widening
            && let Some(near_end) = near_end.next()
        {
            first = Some(first.map_or(near_end, |first| first.min(near_end)));
        }
        first.unwrap_or(next).max(next)
    }

    /// The first row group from `next` on in which a column is neither begun nor read.
    fn not_begun_from(&mut self, column: usize, next: Unit) -> Unit {
        let mut at = next.max(self.outside.columns.get(column).copied().unwrap_or_default());
        while let Some(unit) = self.known_from(at) {
            step();
            at = unit;
            if self.files[&unit.file].is_left(unit.row_group, column) {
                break;
            }
            at = behind(unit);
        }
        if self.outside.columns.len() < self.columns.len() {
            self.outside.columns.resize(self.columns.len(), Unit::default());
        }
        self.outside.columns[column] = at;
        at
    }

    /// The first row group at a place or behind it, in files whose layout is known.
    fn known_from(&self, at: Unit) -> Option<Unit> {
        self.files.range(at.file..).find_map(|(index, known)| {
            let row_group = if *index == at.file { at.row_group } else { 0 };
            (row_group < known.groups.len()).then_some(Unit { file: *index, row_group })
        })
    }
}

fn behind(unit: Unit) -> Unit {
    Unit { row_group: unit.row_group + 1, ..unit }
}

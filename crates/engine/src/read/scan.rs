//! What a scan of Parquet files will read next. Pure.
//!
//! A scan goes through row groups in order, each of its threads through one at a time, and reads
//! the same columns of each. So a row group tells what the next ones are read for, but only once
//! it is over: once its reader has gone on to another one. Until then the scan may end with it (a
//! `LIMIT`), and what its filters leave out is not known.
//!
//! - A column is expected where it was read in each of the last four row groups that are over.
//!   One that filters skipped by their statistics is over as soon as the scan has passed it, and
//!   nothing of it was read: so a scan that leaves out row groups is not followed into others, but
//!   in one that it reads, the columns are expected that it read in the others which it read.
//! - In a row group that is being read those count that were read like it so far: where a filter
//!   leaves rows, the columns that it does not look at follow each other.
//! - A column that was missed in more than a tenth of the last 32 is fetched only as far as it may
//!   be in vain (`history`), and behind the others.
//! - What was fetched in vain stays below a tenth of what was read and a window: what is beyond the
//!   tenth comes off the window, and only what more than one row group proves is expected until
//!   enough was read (`allowance`).
//! - A row group that the plan's filters leave out by the footer's statistics is none of the scan's
//!   (`left_out`).
//! - A plan may tell the columns of a scan that leaves out nothing and reads to the end (`told`).
//! - A row group that was read whole by one read says everything at once, unless whoever takes the
//!   rows may stop at any (`may_be_left`): such a scan is followed once it has gone on; a glob may
//!   take a fixed number of bytes before any row group is over (`first_bytes`).

mod allowance;
mod file;
mod history;
mod left_out;
mod outside;
mod told;
mod wanted;

use crate::read::delivered::Given;
use crate::read::parquet::Layout;
use crate::read::parquet::steps::step;
use file::{File, GIVEN, Group, READ, Settled, doubted, is_pending, is_read};
use history::{History, push_unknown};
use left_out::Filtering;
use outside::Outside;
use penstock_base::ByteRange;
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;
use told::Told;
pub(crate) use wanted::JOINED_BYTES_MAX;
use wanted::Wanted;

/// Files ahead of the one that is read.
const FILES_AHEAD_MAX: usize = 32;

/// Threads that have begun with a row group and not read of it yet, where the plan says that none
/// is left out.
const LATE_MAX: usize = 64;

/// A row group of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Unit {
    pub file: usize,
    pub row_group: usize,
}

/// The scan of a file, or of the files of a glob.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    files: BTreeMap<usize, File>,
    columns: Vec<History>,
    /// Counts up when other columns are expected than before of row groups that lie ahead, but for
    /// those of `touched`.
    expected_at: u64,
    /// Counts up with it, and whenever a row group is over: what is expected of those that are
    /// being read goes by all that are.
    inside_at: u64,
    /// Columns that were read for the first time, since `expected_at` counted up.
    touched: Vec<usize>,
    /// What `unit_bytes` found, and for which row group in which state: what is expected of it, and
    /// what may be read of it besides.
    unit: Option<(Unit, u64, [u64; 2])>,
    /// Where each reader is.
    readers: HashMap<u64, Unit>,
    frontier: Option<Unit>,
    outside: Outside,
    /// A row group is over, or was read whole.
    is_learned: bool,
    /// What a plan told of it.
    told: Option<Told>,
    /// And of its filters.
    filtering: Option<Filtering>,
    restarts: u32,
    read_bytes: u64,
    wasted_bytes: u64,
    /// Begun, and neither read nor over.
    pending_bytes: u64,
    /// Of these, what may well be in vain.
    doubted_bytes: u64,
    /// Files were passed by of which something was fetched.
    has_passed_by: bool,
    /// More was in vain than should have been, when it was looked at last.
    is_owing: bool,
    /// Whether a column is likely and not sure, in a state of what is expected.
    has_doubted: Option<(u64, bool)>,
    /// Row groups that were skipped, as far as is known.
    skipped: usize,
    /// May be ahead before anything is learned.
    first_bytes: u64,
    /// DuckDB's external file cache was seen to widen a read.
    is_widening: bool,
    /// It may end at any moment.
    ends_early: bool,
    /// So it may, though it is likely to go on once it has gone from one row group to the next.
    may_be_left: bool,
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
        if !self.knows(file) {
            self.files.insert(file, File::new(layout));
            self.outside.back_to(Unit { file, row_group: 0 }, 0..usize::MAX);
        }
    }

    /// What reads are given of a file is known too.
    pub fn is_given(&mut self, file: usize, given: Given) {
        if let Some(file) = self.files.get_mut(&file) {
            file.given = Some(given);
        }
    }

    /// Forgets the files before this one: what is ahead of them comes in vain.
    pub fn pass(&mut self, file: usize) {
        let kept = self.files.split_off(&file);
        for passed in std::mem::replace(&mut self.files, kept).into_values() {
            let open = passed.groups.iter().enumerate().filter(|(_, group)| !group.is_over);
            for (row_group, group) in open {
                let chunks = passed.layout.row_group(row_group).iter().zip(&group.flags);
                for (chunk, flags) in chunks.filter(|(_, flags)| is_pending(flags)) {
                    self.pending_bytes -= chunk.len();
                    self.doubted_bytes -= doubted(*flags, chunk.len());
                    self.wasted_bytes += chunk.len();
                    self.has_passed_by = true;
                }
            }
        }
    }

    /// Whether a read is one of a row group's columns.
    pub fn follows(&self, file: usize, range: ByteRange) -> bool {
        !self.touched(file, range).is_empty()
    }

    /// Takes note of a read. `true` when all that is ahead has to be forgotten.
    pub fn read(&mut self, reader: u64, file: usize, range: ByteRange) -> bool {
        let touched = self.touched(file, range);
        // Of several row groups the first was wanted; the read was widened into the others.
        let Some((unit, columns)) = touched.first().cloned() else { return false };
        let again = self.group(unit).is_some_and(|group| {
            group.is_over
                && columns.clone().any(|at| group.flags.get(at).is_some_and(|had| had & READ != 0))
        });
        if again {
            self.restart();
        }
        self.enter(reader, unit);
        self.see_what_was_told(unit);
        if !self.is_widening && self.files[&file].layout.ends_at_cached(range) {
            self.is_widening = true;
            self.expect_anew();
        }
        // All at once, since each time takes a look at all of them.
        push_unknown(&mut self.columns, self.files[&file].layout.row_group(unit.row_group).len());
        self.touch(columns);
        for (unit, columns) in touched {
            push_unknown(&mut self.columns, columns.end() + 1);
            self.mark(unit, columns, READ);
        }
        self.take(file, range);
        self.read_bytes += range.len();
        self.sweep();
        again
    }

    /// Takes note of columns that are read.
    fn touch(&mut self, columns: RangeInclusive<usize>) {
        let before = self.touched.len();
        for column in columns {
            let history = &mut self.columns[column];
            if std::mem::replace(&mut history.is_touched, true) {
                continue;
            }
            self.touched.push(column);
            let is_expected = history.is_expected();
            if let Some((unit, _, bytes)) = self.unit.as_mut()
                && let Some(file) = self.files.get(&unit.file)
                && let Some(chunk) = file.layout.row_group(unit.row_group).get(column)
            {
                bytes[usize::from(!is_expected)] += chunk.len();
            }
        }
        if self.is_widening && self.touched.len() > before {
            // What the last read is widened to depends on all of them.
            self.expect_anew();
        }
    }

    fn expect_anew(&mut self) {
        self.expected_at += 1;
        self.inside_at += 1;
        self.touched.clear();
    }

    /// Takes note that a read has ended: one that took in a whole row group tells all of it, and
    /// its reader is done with it where the read went on.
    pub fn done(&mut self, reader: u64, file: usize, range: ByteRange) {
        if let Some(given) = self.files.get(&file).and_then(|file| file.given.as_ref()) {
            given.add(range);
        }
        let touched = self.touched(file, range).into_iter().map(|(unit, _)| unit);
        let touched: Vec<Unit> = touched.collect();
        let whole: Vec<Unit> =
            touched.into_iter().take_while(|unit| self.is_whole(*unit)).collect();
        let Some(first) = whole.first() else { return };
        self.is_learned |= !self.may_be_left;
        if self.readers.get(&reader) == Some(first) {
            whole.iter().skip(1).for_each(|unit| self.enter(reader, *unit));
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
        self.group(unit).is_none_or(|group| group.is_over || group.is_left_out)
    }

    /// Whether more row groups lie behind the furthest reader than others can be late for.
    fn is_skipping(&self) -> bool {
        if self.told.is_some() {
            return false;
        }
        let Some(frontier) = self.frontier else { return false };
        let Some(file) = self.files.get(&frontier.file) else { return false };
        file.passed >= self.readers.len()
    }

    /// Whether it is known that the scan goes on.
    pub fn is_learned(&self) -> bool {
        self.is_learned
    }

    /// Number of readers inside a row group.
    pub fn reader_count(&self) -> u64 {
        self.readers.len() as u64
    }

    /// What may be read of the row group that is read now, as far as that is known.
    pub fn unit_bytes(&mut self) -> u64 {
        self.unit_parts().iter().sum()
    }

    /// What is expected of the row group that is read now, and what was read of others besides.
    fn unit_parts(&mut self) -> [u64; 2] {
        let Some(unit) = self.frontier else { return [0; 2] };
        if let Some((of, at, bytes)) = self.unit
            && (of, at) == (unit, self.expected_at)
        {
            return bytes;
        }
        let Some(file) = self.files.get(&unit.file) else { return [0; 2] };
        let chunks = file.layout.row_group(unit.row_group);
        let columns = chunks.iter().zip(&self.columns).inspect(|_| step());
        let mut bytes = [0; 2];
        for (chunk, column) in columns.filter(|(_, column)| column.is_touched) {
            bytes[usize::from(!column.is_expected())] += chunk.len();
        }
        self.unit = Some((unit, self.expected_at, bytes));
        bytes
    }

    /// The files whose layout is worth knowing, in order.
    pub fn files_ahead(&self, count: usize) -> std::ops::Range<usize> {
        let file = self.frontier.map_or(0, |unit| unit.file);
        file..(file + 1 + FILES_AHEAD_MAX).min(count)
    }

    /// A reader begins with a row group, or goes on in it.
    fn enter(&mut self, reader: u64, unit: Unit) {
        if self.group(unit).is_some_and(|group| group.is_left_out) {
            self.was_not_left_out(unit);
        }
        if let Some(file) = self.files.get_mut(&unit.file) {
            file.enter(unit.row_group);
            let group = &mut file.groups[unit.row_group];
            let was_entered = std::mem::replace(&mut group.is_entered, true);
            if group.is_over && !was_entered {
                // It was taken for skipped.
                self.skipped = self.skipped.saturating_sub(1);
            }
        }
        self.frontier = self.frontier.max(Some(unit));
        if let Some(left) = self.readers.insert(reader, unit).filter(|left| *left != unit) {
            self.leave(left);
        }
    }

    fn touched(&self, file: usize, range: ByteRange) -> Vec<(Unit, RangeInclusive<usize>)> {
        let range = self.off_grid(range);
        let touched =
            self.files.get(&file).map_or_else(Vec::new, |file| file.layout.touched(range));
        let unit = |row_group| Unit { file, row_group };
        touched.into_iter().map(|(row_group, columns)| (unit(row_group), columns)).collect()
    }

    fn group(&self, unit: Unit) -> Option<&Group> {
        self.files.get(&unit.file)?.groups.get(unit.row_group)
    }

    fn group_mut(&mut self, unit: Unit) -> Option<&mut Group> {
        self.files.get_mut(&unit.file)?.groups.get_mut(unit.row_group)
    }

    /// Whether all of a row group was read.
    fn is_whole(&mut self, unit: Unit) -> bool {
        self.files.get_mut(&unit.file).is_some_and(|file| file.is_whole(unit.row_group))
    }

    fn mark(&mut self, unit: Unit, columns: RangeInclusive<usize>, flag: u8) {
        let Some(file) = self.files.get_mut(&unit.file) else { return };
        let chunks = file.layout.row_group(unit.row_group).len();
        if flag == READ && file.change(unit.row_group, Group::touch) {
            // More may be expected of it than of one that lies ahead.
            file.groups[unit.row_group].settled = <[Settled; 2]>::default();
        }
        let group = &mut file.groups[unit.row_group];
        group.flags.resize(chunks, 0);
        if flag == READ {
            group.narrow(self.inside_at, columns.clone(), &self.columns);
        }
        for (column, chunk) in columns.clone().zip(&file.layout.row_group(unit.row_group)[columns])
        {
            let flags = &mut group.flags[column];
            let was_pending = is_pending(flags) && !group.is_over;
            *flags |= flag;
            let is_pending = is_pending(flags) && !group.is_over;
            match (was_pending, is_pending) {
                (false, true) => {
                    self.pending_bytes += chunk.len();
                    self.doubted_bytes += doubted(*flags, chunk.len());
                }
                (true, false) => {
                    self.pending_bytes -= chunk.len();
                    self.doubted_bytes -= doubted(*flags, chunk.len());
                }
                _ => {}
            }
        }
    }

    /// A reader has gone from a row group: it is over with the last one.
    fn leave(&mut self, unit: Unit) {
        if !self.reads_beside() && self.readers.values().all(|other| *other != unit) {
            self.is_learned = true;
            self.see_what_others_read(unit);
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
                self.doubted_bytes -= doubted(*flags, chunk.len());
            }
        }
        let mut is_changed = false;
        for (index, column) in self.columns.iter_mut().enumerate() {
            step();
            let before = column.outlook();
            // What came with the footer is read from there: nothing is learned from it.
            if chunks.get(index).is_none_or(|chunk| !chunk.is_empty()) {
                column.push(group.flags.get(index).is_some_and(is_read), group.is_entered);
            } else {
                column.push_nothing(group.is_entered);
            }
            is_changed |= column.outlook() != before;
        }
        // Thousands of row groups may be ahead: they are looked at again only where it is of use.
        if is_changed {
            self.expect_anew();
        } else {
            self.inside_at += 1;
        }
    }

    /// Row groups that lie behind all readers and were not entered are over. They were skipped,
    /// unless what a reader wants of them was here, or came with a widened read. Of several threads
    /// one may be a little late.
    fn sweep(&mut self) {
        let Some(behind) = self.readers.values().min().copied() else { return };
        let late = match (&self.told, self.readers.len()) {
            (Some(_), readers) => readers.max(LATE_MAX),
            (None, 1) => 0,
            (None, readers) => readers,
        };
        let reads_beside = self.reads_beside();
        let mut passed = Vec::new();
        for (index, file) in self.files.range_mut(..=behind.file) {
            let end = match index.cmp(&behind.file) {
                std::cmp::Ordering::Less if index + late < behind.file => file.groups.len(),
                std::cmp::Ordering::Equal => file.before(behind.row_group, late),
                _ => file.swept,
            };
            for row_group in file.swept..end {
                let group = &file.groups[row_group];
                if (!group.is_entered || reads_beside) && !group.is_left_out {
                    passed.push(Unit { file: *index, row_group });
                }
            }
            file.sweep(end);
        }
        for unit in passed {
            self.see_what_others_read(unit);
            let is_skipped = self.is_skipped(unit);
            self.skipped += usize::from(is_skipped);
            if let Some(group) = self.group_mut(unit) {
                group.is_entered = !is_skipped;
            }
            self.over(unit);
        }
    }

    /// Before a row group is judged: what the scan did not read of it because its host had it from
    /// another statement is neither skipped nor in vain.
    fn see_what_others_read(&mut self, unit: Unit) {
        let Some(file) = self.files.get(&unit.file) else { return };
        let Some(given) = &file.given else { return };
        let flags = &file.groups[unit.row_group].flags;
        let chunks = file.layout.row_group(unit.row_group).iter().zip(&self.columns).enumerate();
        let given = chunks.inspect(|_| step()).filter(|(column, (chunk, history))| {
            let is_read = flags.get(*column).is_some_and(is_read);
            history.is_touched && !is_read && given.is_anothers(**chunk)
        });
        let given: Vec<usize> = given.map(|(column, _)| column).collect();
        given.into_iter().for_each(|column| self.mark(unit, column..=column, GIVEN));
    }

    /// Whether something that the scan would have read of a row group was not.
    fn is_skipped(&self, unit: Unit) -> bool {
        let Some(file) = self.files.get(&unit.file) else { return false };
        let is_touched = file.groups[unit.row_group].is_touched;
        let is_wanted = |column: usize| {
            self.columns.get(column).is_some_and(|history| {
                if is_touched { history.was_expected_inside() } else { history.is_touched }
            })
        };
        file.misses(unit.row_group, is_wanted).is_some()
    }

    fn restart(&mut self) {
        self.restarts += 1;
        self.begin_anew();
        self.look_at_all();
    }
}

#[cfg(test)]
mod cached;
#[cfg(test)]
mod filtered;
#[cfg(test)]
mod joined;
#[cfg(test)]
mod late;
#[cfg(test)]
mod many;
#[cfg(test)]
mod tests;

//! Row groups that the host leaves out, as far as the plan and the footers tell. Pure.
//!
//! They are not expected, and that they are passed by says nothing of the others. Where a reader
//! enters them all the same, the guess was wrong.

use super::file::{BEGUN, DOUBTED, Settled, doubted, is_pending};
use super::outside::Outside;
use super::{Scan, Unit};
use crate::read::filters::{Clusters, Judged, Ranges};
use std::sync::Arc;

/// After so many wrong guesses none is made. A bound that moves between the look at it and the read
/// makes one look wrong that was right.
const MISTAKES_MAX: usize = 16;

/// What is known of the filters of a scan.
#[derive(Debug, Default)]
pub(super) struct Filtering {
    /// One of them has a bound that is known only later.
    is_moving: bool,
    /// That bound.
    bound: Option<Ranges>,
    clusters: Clusters,
    mistakes: usize,
}

impl Scan {
    /// Takes note that its filters are known; the files are to be judged by them. A scan that has
    /// read is over: this is another one, of the same files, and all that is ahead has to be
    /// forgotten. `true` if so.
    pub fn will_filter(&mut self, is_moving: bool) -> bool {
        self.filtering = Some(Filtering { is_moving, ..Filtering::default() });
        self.files.values_mut().for_each(|file| file.judged = None);
        let again = self.frontier.is_some();
        if again {
            self.wasted_bytes += self.pending_bytes;
            self.columns.clear();
            self.is_learned = false;
            self.told = None;
            self.begin_anew();
            self.expect_anew();
        }
        self.look_at_all();
        again
    }

    /// The files whose layout is known.
    pub fn known_files(&self) -> Vec<usize> {
        self.files.keys().copied().collect()
    }

    /// Takes note of what the footer of a file says about the filters.
    pub fn judge(&mut self, index: usize, judged: Arc<Judged>) {
        let (Some(file), Some(filtering)) = (self.files.get_mut(&index), &mut self.filtering)
        else {
            return;
        };
        filtering.clusters.push(&judged.moving);
        file.judged = Some(judged);
        self.look_at(index);
    }

    /// Takes note of the bound of the filter that moves.
    pub fn bound_moved(&mut self, bound: Ranges) {
        if let Some(filtering) = self.filtering.as_mut().filter(|filtering| filtering.is_moving) {
            filtering.bound = Some(bound);
            self.look_at_all();
        }
    }

    /// Whether a bound that is not known yet may leave out all that follows.
    pub(super) fn awaits_bound(&self) -> bool {
        self.filtering.as_ref().is_some_and(|filtering| {
            filtering.is_moving && filtering.bound.is_none() && filtering.clusters.lie_apart()
        })
    }

    pub(super) fn look_at_all(&mut self) {
        for index in self.known_files() {
            self.look_at(index);
        }
    }

    fn look_at(&mut self, index: usize) {
        let Some(file) = self.files.get(&index) else { return };
        let judged = file.judged.clone();
        for row_group in 0..file.groups.len() {
            let is_left_out = judged.as_ref().is_some_and(|judged| {
                self.filtering.as_ref().is_some_and(|f| f.leaves_out(judged, row_group))
            });
            self.leave_out(Unit { file: index, row_group }, is_left_out);
        }
    }

    /// What is ahead of a row group that is left out is in vain.
    pub(super) fn leave_out(&mut self, unit: Unit, is_left_out: bool) {
        let Some(file) = self.files.get_mut(&unit.file) else { return };
        let group = &file.groups[unit.row_group];
        if group.is_left_out == is_left_out || group.is_entered || group.is_over {
            return;
        }
        file.change(unit.row_group, |group| group.is_left_out = is_left_out);
        let group = &mut file.groups[unit.row_group];
        group.settled = <[Settled; 2]>::default();
        let chunks = file.layout.row_group(unit.row_group);
        if !is_left_out {
            self.outside.back_to(unit, 0..chunks.len());
        }
        for (chunk, flags) in chunks.iter().zip(&mut group.flags) {
            if is_pending(flags) {
                self.wasted_bytes += chunk.len();
                self.pending_bytes -= chunk.len();
                self.doubted_bytes -= doubted(*flags, chunk.len());
                *flags &= !(BEGUN | DOUBTED);
            }
        }
    }

    /// A reader is in a row group that was taken for left out.
    pub(super) fn was_not_left_out(&mut self, unit: Unit) {
        self.leave_out(unit, false);
        let Some(filtering) = &mut self.filtering else { return };
        filtering.mistakes += 1;
        if filtering.mistakes > MISTAKES_MAX {
            self.filtering = None;
            self.look_at_all();
        }
    }

    /// As before the first read, but for what is known of the files.
    pub(super) fn begin_anew(&mut self) {
        self.readers.clear();
        self.frontier = None;
        self.outside = Outside::default();
        (self.pending_bytes, self.doubted_bytes, self.skipped) = (0, 0, 0);
        for file in self.files.values_mut() {
            file.begin_anew();
        }
    }
}

impl Filtering {
    fn leaves_out(&self, judged: &Judged, row_group: usize) -> bool {
        if judged.left_out.get(row_group).copied().unwrap_or(false) {
            return true;
        }
        let extent = judged.moving.get(row_group);
        self.bound.as_ref().zip(extent).is_some_and(|(bound, extent)| !bound.meets(extent))
    }
}

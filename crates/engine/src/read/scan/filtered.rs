//! Scans whose plan tells of their filters: what the footers rule out is not fetched.

use super::tests::{CHUNK, Model};
use super::*;
use crate::query::WASTE_PARTS;
use crate::read::filters::{Extent, Filter, Filters, Judged, Order, Range, Ranges, Value};
use crate::read::scan::allowance::WASTE_BYTES_MIN;
use proptest::prelude::*;

const COLUMNS: usize = 3;

fn ranges(min: Option<i64>, max: Option<i64>) -> Ranges {
    let range = Range { min: min.map(Value::Signed), max: max.map(Value::Signed) };
    Ranges::new(vec![range]).expect("a range")
}

fn extent(values: (i64, i64)) -> Extent {
    Extent::Within(Some(Value::Signed(values.0)), Some(Value::Signed(values.1)))
}

/// Row groups with these values, and what a filter of the first column leaves of them.
fn filtered(values: &[(i64, i64)], wanted: &Ranges) -> (Model, Vec<usize>) {
    let mut model = Model::new(values.len(), COLUMNS, 40);
    model.scan.will_filter(false);
    let filter = Filter { column: 0, order: Order::Signed, ranges: wanted.clone() };
    let filters = Filters::new(vec![filter], None);
    let passes = |at: &(i64, i64)| filters.fixed.iter().all(|f| f.ranges.meets(&extent(*at)));
    let left_out: Vec<bool> = values.iter().map(|at| !passes(at)).collect();
    let left = (0..values.len()).filter(|group| !left_out[*group]).collect();
    model.scan.judge(0, Arc::new(Judged { left_out, moving: Vec::new() }));
    (model, left)
}

/// Row groups with these values, and a Top-N by the first column.
fn top(values: impl Iterator<Item = (i64, i64)> + Clone) -> Model {
    let count = values.clone().count();
    let mut model = Model::new(count, COLUMNS, 40);
    model.scan.will_filter(true);
    let moving = values.map(extent).collect();
    model.scan.judge(0, Arc::new(Judged { left_out: vec![false; count], moving }));
    model
}

/// Reads row groups, each by the next thread in turn.
fn read(model: &mut Model, row_groups: impl IntoIterator<Item = usize>, threads: u64) {
    for (turn, row_group) in (0..threads).cycle().zip(row_groups) {
        for column in 0..COLUMNS {
            model.read(turn, row_group, column..=column);
        }
    }
}

fn sorted(count: i64) -> Vec<(i64, i64)> {
    (0..count).map(|group| (group * 100, group * 100 + 99)).collect()
}

#[test]
fn a_range_of_a_sorted_column_is_fetched_and_nothing_else() {
    for (min, max, count) in [(None, Some(1999), 20), (Some(4000), Some(5999), 20)] {
        for threads in [1, 4] {
            let (mut model, left) = filtered(&sorted(200), &ranges(min, max));
            assert_eq!(left.len(), count);
            read(&mut model, left, threads);
            assert_eq!(model.wasted_bytes(), 0);
            let on_demand = model.read.len() - model.begun.len();
            assert!(on_demand <= (2 * COLUMNS + 1) * threads as usize, "{on_demand} on demand");
        }
    }
}

/// Values here and there: what lies between is passed by, and raises no doubt.
#[test]
fn the_row_groups_of_a_list_of_values_are_fetched_wherever_they_lie() {
    let points = (0..40).map(|at| Some(Value::Signed(at * 500 + 7)));
    let points = points.map(|at| Range { min: at.clone(), max: at });
    let wanted = Ranges::new(points.collect()).expect("points");
    let (mut model, left) = filtered(&sorted(200), &wanted);
    assert_eq!(left.len(), 40);
    read(&mut model, left, 1);
    assert_eq!((model.wasted_bytes(), model.scan.skipped), (0, 0));
    assert!(model.begun.len() + 2 * COLUMNS >= model.read.len(), "{}", model.begun.len());
}

#[test]
fn before_the_bound_of_a_top_n_is_known_little_is_ahead_of_a_file_in_order() {
    let mut model = top(sorted(50).into_iter());
    for column in 0..COLUMNS {
        model.read(1, 0, column..=column);
    }
    // Another thread has begun, and its first columns tell of the first row group.
    model.read(1, 1, 0..=0);
    let outside = model.begun.iter().filter(|(group, _)| *group > 1).count() as u64 * CHUNK;
    assert!(outside <= WASTE_BYTES_MIN + model.read_bytes() / WASTE_PARTS, "{outside} ahead");
    model.scan.bound_moved(ranges(None, Some(9)));
    model.read(1, 1, 1..=1);
    assert!(model.scan.is_over(Unit { file: 0, row_group: 2 }));
    assert!(model.wasted_bytes() <= WASTE_BYTES_MIN + model.read_bytes() / WASTE_PARTS);
    // From the other end every row group is better than the ones before.
    let mut model = top(sorted(50).into_iter());
    for row_group in 0..50 {
        read(&mut model, [row_group], 1);
        model.scan.bound_moved(ranges(Some(row_group as i64 * 100 + 90), None));
    }
    assert_eq!(model.wasted_bytes(), 0);
    assert!(model.begun.len() * 10 > model.read.len() * 9, "{}", model.begun.len());
}

#[test]
fn a_top_n_of_a_file_without_order_is_read_as_any_scan() {
    let mut model = top((0..50).map(|group| (group % 7, 1000 - group % 5)));
    let mut other = Model::new(50, COLUMNS, 40);
    for row_group in 0..50 {
        read(&mut model, [row_group], 2);
        read(&mut other, [row_group], 2);
        assert_eq!(model.begun, other.begun);
    }
}

#[test]
fn what_is_read_though_it_was_left_out_is_read_as_ever() {
    let (mut model, left) = filtered(&sorted(80), &ranges(Some(7900), None));
    assert_eq!(left, [79]);
    read(&mut model, 0..80, 1);
    assert_eq!(model.wasted_bytes(), 0);
    assert!(model.scan.filtering.is_none(), "no more guesses");
    assert!(model.begun.len() > 100, "{}", model.begun.len());
}

/// Where the rows of a Top-N lie is read first, and then the rows: two scans of one file.
#[test]
fn a_scan_that_follows_another_one_of_the_same_file_begins_anew() {
    let mut model = Model::new(60, COLUMNS, 40);
    for row_group in 0..60 {
        model.read(1, row_group, 0..=0);
    }
    model.scan.will_filter(false);
    let left_out = (0..60).map(|group| group % 30 != 5).collect();
    model.scan.judge(0, Arc::new(Judged { left_out, moving: Vec::new() }));
    (model.begun, model.read) = Default::default();
    for row_group in [5, 35] {
        for column in 0..COLUMNS {
            model.read(2, row_group, column..=column);
        }
    }
    assert_eq!((model.wasted_bytes(), model.scan.restarts), (0, 0));
    assert!(model.begun.contains(&(35, 1)) && model.begun.contains(&(35, 2)));
}

fn values() -> impl Strategy<Value = Vec<(i64, i64)>> {
    let within = (0i64..1000, 0i64..200).prop_map(|(min, length)| (min, min + length));
    (prop::collection::vec(within, 1..90), any::<bool>()).prop_map(|(mut values, is_sorted)| {
        if is_sorted {
            values.sort_unstable();
        }
        values
    })
}

proptest! {
    /// Whatever lies in them: what the filter leaves is known, and so nothing is in vain.
    #[test]
    fn a_scan_that_reads_what_its_filter_leaves_wastes_nothing(
        values in values(), min in 0i64..1000, length in 0i64..500, threads in 1u64..5,
    ) {
        let (mut model, left) = filtered(&values, &ranges(Some(min), Some(min + length)));
        let count = left.len();
        read(&mut model, left, threads);
        prop_assert_eq!(model.wasted_bytes(), 0);
        prop_assert_eq!(model.read.len(), count * COLUMNS);
        let on_demand = model.read.len() - model.begun.len();
        prop_assert!(on_demand <= threads as usize * (2 * COLUMNS + 1), "{}", on_demand);
    }

    /// Whatever the footers say wrongly: a tenth, and what was ahead at the end.
    #[test]
    fn a_scan_that_goes_otherwise_wastes_no_more_than_any(
        values in values(), min in 0i64..1000, kept in prop::collection::vec(any::<bool>(), 90),
        bound in prop::option::of(0i64..1000), threads in 1u64..5,
    ) {
        let (mut model, _) = filtered(&values, &ranges(Some(min), None));
        let count = values.len();
        if let Some(bound) = bound {
            model.scan.will_filter(true);
            let moving = values.iter().copied().map(extent).collect();
            model.scan.judge(0, Arc::new(Judged { left_out: vec![false; count], moving }));
            model.scan.bound_moved(ranges(None, Some(bound)));
        }
        read(&mut model, (0..count).filter(|group| kept[*group]), threads);
        let bound = model.read_bytes() / WASTE_PARTS + WASTE_BYTES_MIN + 40 * CHUNK;
        prop_assert!(model.wasted_bytes() <= bound, "{}", model.wasted_bytes());
    }
}

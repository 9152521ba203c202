//! Scans with a filter: its columns are read of every row group, the others of those in which rows
//! are left.

use super::*;
use crate::query::WASTE_PARTS;
use crate::read::scan::allowance::WASTE_BYTES_MIN;
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};

/// Columns: the ones that the filter reads first, those that are read where rows are left, and one
/// that nobody reads between them.
#[derive(Clone, Debug)]
struct Shape {
    filters: Vec<u64>,
    others: Vec<u64>,
    /// By row group: whether rows are left.
    matches: Vec<bool>,
    threads: usize,
    window_bytes: u64,
}

/// How often each column was read, and how often it had to be asked for.
#[derive(Debug, Default)]
struct Outcome {
    on_demand: Vec<usize>,
    reads: Vec<usize>,
    read_bytes: u64,
    wasted_bytes: u64,
}

fn run(shape: &Shape) -> Outcome {
    let sizes: Vec<u64> =
        shape.filters.iter().chain([&(50 << 10)]).chain(&shape.others).copied().collect();
    let filters = 0..shape.filters.len();
    let others = filters.end + 1..sizes.len();
    let mut at = 4;
    let mut group = || {
        let chunk = |bytes: &u64| {
            at += bytes;
            ByteRange { start: at - bytes, end: at }
        };
        sizes.iter().map(chunk).collect::<Vec<_>>()
    };
    let groups = shape.matches.iter().map(|_| group()).collect();
    let layout = Arc::new(Layout::new(groups, u64::MAX, u64::MAX));
    let mut scan = Scan::new(0);
    scan.learn(0, Arc::clone(&layout));
    let none = || vec![0; sizes.len()];
    let mut outcome = Outcome { on_demand: none(), reads: none(), ..Outcome::default() };
    // Begun, and whether it was read.
    let mut begun: HashMap<(usize, usize), bool> = HashMap::new();
    let mut next = 0..shape.matches.len();
    let mut work: Vec<VecDeque<(usize, usize)>> = vec![VecDeque::new(); shape.threads];
    loop {
        let mut is_busy = false;
        for (reader, work) in work.iter_mut().enumerate() {
            if work.is_empty()
                && let Some(group) = next.next()
            {
                let left = if shape.matches[group] { others.clone() } else { 0..0 };
                work.extend(filters.clone().chain(left).map(|column| (group, column)));
            }
            let Some((group, column)) = work.pop_front() else { continue };
            is_busy = true;
            let chunk = layout.row_group(group)[column];
            assert!(!scan.read(reader as u64, 0, chunk));
            outcome.reads[column] += 1;
            outcome.read_bytes += chunk.len();
            match begun.get_mut(&(group, column)) {
                Some(is_read) => *is_read = true,
                None => outcome.on_demand[column] += 1,
            }
            let ahead = begun.iter().filter(|((row_group, _), is_read)| {
                !**is_read && !scan.is_over(Unit { file: 0, row_group: *row_group })
            });
            let ahead: u64 =
                ahead.map(|((group, column), _)| bytes(&layout, *group, *column)).sum();
            let allowed = scan.allowed_bytes(shape.window_bytes);
            let mut left = allowed.saturating_sub(ahead);
            while let Some(wanted) = scan.next(left, allowed / 2) {
                left -= wanted.span.len();
                for (unit, columns) in wanted.parts() {
                    for column in columns {
                        // One that nobody wants may lie between two.
                        begun.entry((unit.row_group, column)).or_insert(false);
                    }
                }
            }
        }
        if !is_busy {
            break;
        }
    }
    (0..shape.threads).for_each(|reader| scan.closed(reader as u64));
    let unread = begun.iter().filter(|(_, is_read)| !**is_read);
    let unread = unread.map(|((group, column), _)| bytes(&layout, *group, *column));
    outcome.wasted_bytes = unread.sum();
    assert_eq!((scan.pending_bytes, scan.doubted_bytes), (0, 0));
    outcome
}

fn bytes(layout: &Layout, row_group: usize, column: usize) -> u64 {
    layout.row_group(row_group)[column].len()
}

#[test]
fn the_filters_column_stays_ahead_and_the_others_follow_each_other() {
    for every in [2, 3, 7] {
        let shape = Shape {
            filters: vec![500 << 10],
            others: vec![900 << 10, 1800 << 10, 200 << 10],
            matches: (0..60).map(|group| group % every == 0).collect(),
            threads: 1,
            window_bytes: 12 << 20,
        };
        let outcome = run(&shape);
        // Where its first row groups told that it is read of all of them, though not the others.
        assert!(outcome.on_demand[0] <= 3, "{every}: {outcome:?}");
        // Whether rows are left is known by the first of the others only.
        assert_eq!(outcome.on_demand[2], outcome.reads[2], "{every}: {outcome:?}");
        assert!(outcome.on_demand[3] <= 2 && outcome.on_demand[4] <= 2, "{every}: {outcome:?}");
        assert!(outcome.wasted_bytes <= 3 << 20, "{every}: what the first row group told");
    }
}

/// A column that is longer than all that may be ahead holds up no other.
#[test]
fn a_column_that_never_fits_does_not_hold_up_the_next_row_groups() {
    let shape = Shape {
        filters: vec![300 << 10],
        others: vec![9 << 20],
        matches: vec![true; 20],
        threads: 1,
        window_bytes: 4 << 20,
    };
    let outcome = run(&shape);
    assert!(outcome.on_demand[0] <= 2, "{outcome:?}");
    assert_eq!((outcome.on_demand[2], outcome.wasted_bytes), (20, 0), "{outcome:?}");
}

fn shapes() -> impl Strategy<Value = Shape> {
    let sizes = |count| prop::collection::vec(20u64 << 10..900 << 10, count);
    let matches = (0.0..=1.0f64)
        .prop_flat_map(|rate| prop::collection::vec(prop::bool::weighted(rate), 1..100));
    (sizes(1..3), sizes(1..4), matches, 1usize..4, 8u64 << 20..20 << 20).prop_map(
        |(filters, others, matches, threads, window_bytes)| Shape {
            filters,
            others,
            matches,
            threads,
            window_bytes,
        },
    )
}

proptest! {
    /// Wherever rows are left: little is in vain, and what the filter reads is ahead.
    #[test]
    fn what_a_filter_reads_is_ahead_wherever_rows_are_left(shape in shapes()) {
        let outcome = run(&shape);
        let bound = outcome.read_bytes / WASTE_PARTS + WASTE_BYTES_MIN + shape.window_bytes;
        prop_assert!(outcome.wasted_bytes <= bound, "{outcome:?}");
        for column in 0..shape.filters.len() {
            let on_demand = outcome.on_demand[column];
            prop_assert!(on_demand <= 12 * shape.threads, "{column}: {outcome:?}");
        }
    }
}

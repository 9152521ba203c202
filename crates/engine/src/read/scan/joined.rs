//! Files of many small row groups: how many requests their columns take.

use super::file::GAP_BYTES_MAX;
use super::*;
use crate::query::WASTE_PARTS;
use proptest::prelude::*;
use std::collections::HashSet;

/// A file whose row groups are alike, and a scan of some of its columns.
#[derive(Clone, Debug)]
struct Shape {
    chunks: Vec<u64>,
    /// Between two row groups.
    gap_bytes: u64,
    row_groups: usize,
    columns: Vec<usize>,
    window_bytes: u64,
    is_told: bool,
}

impl Shape {
    fn layout(&self) -> Arc<Layout> {
        let mut at = 4;
        let mut groups = Vec::new();
        for _ in 0..self.row_groups {
            let chunks = self.chunks.iter().map(|bytes| {
                let start = at;
                at += bytes;
                ByteRange { start, end: at }
            });
            groups.push(chunks.collect());
            at += self.gap_bytes;
        }
        Arc::new(Layout::new(groups, u64::MAX, u64::MAX))
    }
}

/// What was asked for.
#[derive(Default)]
struct Asked {
    spans: Vec<ByteRange>,
    reads: usize,
    on_demand: usize,
    read_bytes: u64,
}

impl Asked {
    fn bytes(&self) -> u64 {
        self.spans.iter().map(ByteRange::len).sum()
    }
}

/// Reads the columns of each row group, one after the other, as `Columns` does it: half of what may
/// be ahead is not cut.
fn run(shape: &Shape) -> Asked {
    let (layout, mut scan) = (shape.layout(), Scan::new(0));
    scan.learn(0, Arc::clone(&layout));
    if shape.is_told {
        scan.will_read(shape.columns.iter().copied(), false);
    }
    let (mut asked, mut begun, mut read) = (Asked::default(), HashSet::new(), HashSet::new());
    for row_group in 0..shape.row_groups {
        for column in &shape.columns {
            let chunk = layout.row_group(row_group)[*column];
            assert!(!scan.read(1, 0, chunk));
            asked.reads += 1;
            asked.read_bytes += chunk.len();
            asked.on_demand += usize::from(!begun.contains(&(row_group, *column)));
            read.insert((row_group, *column));
            let ahead = begun
                .difference(&read)
                .map(|(group, column): &(usize, usize)| layout.row_group(*group)[*column].len());
            let allowed = scan.allowed_bytes(shape.window_bytes);
            let mut left = allowed.saturating_sub(ahead.sum());
            while let Some(wanted) = scan.next(left, allowed / 2) {
                assert!(wanted.span.len() <= left, "{} of {left}", wanted.span.len());
                left -= wanted.span.len();
                assert!(asked.spans.last().is_none_or(|last| last.end <= wanted.span.start));
                asked.spans.push(wanted.span);
                for (unit, columns) in wanted.parts() {
                    for column in columns.filter(|column| shape.columns.contains(column)) {
                        assert!(begun.insert((unit.row_group, column)), "begun twice");
                        let chunk = layout.row_group(unit.row_group)[column];
                        assert!(wanted.span.contains(&chunk));
                    }
                }
            }
        }
        scan.done(1, 0, layout.row_group(row_group)[shape.columns[0]]);
    }
    scan.closed(1);
    assert!(begun.is_subset(&read), "in vain");
    asked
}

#[test]
fn small_row_groups_that_follow_each_other_share_requests() {
    let small = Shape {
        chunks: vec![25 << 10; 4],
        gap_bytes: 0,
        row_groups: 200,
        columns: vec![0, 1, 2, 3],
        window_bytes: 12 << 20,
        is_told: true,
    };
    let asked = run(&small);
    assert!(asked.spans.len() <= 40, "{} requests for 200 row groups", asked.spans.len());
    assert!(asked.on_demand <= 1, "{} waits", asked.on_demand);
    // What a first window brings first is no longer than an eighth of it.
    assert!(asked.spans.iter().all(|span| span.len() <= small.window_bytes / 8));
    // Learned from reading it is the same but for the beginning.
    let learned = run(&Shape { is_told: false, ..small.clone() });
    assert!(learned.spans.len() <= 50, "{} requests", learned.spans.len());
    // Columns that lie apart are not joined over what nobody wants.
    let apart = run(&Shape { columns: vec![1, 3], ..small.clone() });
    assert_eq!((apart.bytes(), apart.spans.len()), (400 * (25 << 10) - (25 << 10), 399));
    // Nor are row groups of a good size.
    let large = run(&Shape { chunks: vec![1 << 20; 4], row_groups: 20, ..small });
    assert!(large.spans.len() >= 19, "{}", large.spans.len());
}

#[test]
fn what_lies_between_row_groups_is_fetched_where_it_is_little() {
    let shape = |gap_bytes| Shape {
        chunks: vec![100 << 10],
        gap_bytes,
        row_groups: 100,
        columns: vec![0],
        window_bytes: 20 << 20,
        is_told: true,
    };
    let near = run(&shape(4 << 10));
    assert!(near.spans.len() < 30, "{} requests", near.spans.len());
    for far in [11 << 10, GAP_BYTES_MAX + 1] {
        let far = run(&shape(far));
        assert_eq!((far.spans.len(), far.bytes()), (99, 99 * (100 << 10)));
    }
}

#[test]
fn a_span_of_several_row_groups_that_could_not_begin_is_asked_for_again() {
    let shape = Shape {
        chunks: vec![100 << 10],
        gap_bytes: 1 << 10,
        row_groups: 40,
        columns: vec![0],
        window_bytes: 0,
        is_told: true,
    };
    let (layout, mut scan) = (shape.layout(), Scan::new(0));
    scan.learn(0, Arc::clone(&layout));
    scan.will_read([0].into_iter(), false);
    scan.read(1, 0, layout.row_group(0)[0]);
    let wanted = scan.next(8 << 20, 4 << 20).expect("room");
    assert!(wanted.row_groups().count() > 5 && scan.wasted_bytes > 0 && scan.pending_bytes > 0);
    scan.not_begun(&wanted, wanted.span.start);
    assert_eq!((scan.wasted_bytes, scan.pending_bytes), (0, 0));
    assert_eq!(scan.next(8 << 20, 4 << 20), Some(wanted));
}

fn shapes() -> impl Strategy<Value = Shape> {
    (1usize..6).prop_flat_map(|columns| {
        (
            prop::collection::vec(1u64 << 10..200 << 10, columns),
            prop_oneof![Just(0), 0u64..40 << 10],
            1usize..120,
            prop::sample::subsequence((0..columns).collect::<Vec<_>>(), 1..=columns),
            1u64 << 20..40 << 20,
            any::<bool>(),
        )
            .prop_map(|(chunks, gap_bytes, row_groups, columns, window_bytes, is_told)| {
                Shape { chunks, gap_bytes, row_groups, columns, window_bytes, is_told }
            })
    })
}

proptest! {
    /// However small they are and wherever they lie: nothing twice, in order, of what nobody reads
    /// less than a tenth, and whoever reads waits no more than with a request for each.
    #[test]
    fn row_groups_are_joined_within_their_bounds(shape in shapes()) {
        let asked = run(&shape);
        // Between columns of a row group DuckDB reads what lies there too.
        let inside = shape.columns.windows(2).map(|pair| {
            shape.chunks[pair[0] + 1..pair[1]].iter().sum::<u64>()
        });
        let inside = inside.filter(|gap| *gap <= GAP_BYTES_MAX).sum::<u64>();
        let bound = asked.read_bytes + inside * shape.row_groups as u64;
        prop_assert!(asked.bytes() <= bound + bound / WASTE_PARTS);
        let unit: u64 = shape.columns.iter().map(|column| shape.chunks[*column]).sum();
        let whole: u64 = shape.chunks.iter().sum();
        for span in &asked.spans {
            let max = whole.max(shape.window_bytes / 8).max(512 << 10);
            prop_assert!(span.len() <= max, "{} of {max}", span.len());
        }
        // Those of the first row group, and of one more for each time that what is ahead doubles.
        let small = unit * 8 <= shape.window_bytes && unit <= 1 << 20;
        if small {
            let first = 3 * shape.columns.len();
            prop_assert!(asked.on_demand <= first, "{} on demand", asked.on_demand);
        }
        prop_assert!(asked.spans.len() + asked.on_demand <= asked.reads + 1);
    }
}

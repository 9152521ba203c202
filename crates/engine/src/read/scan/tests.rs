use super::file::joined;
use super::*;
use crate::query::WASTE_PARTS;
use crate::read::parquet::steps::TAKEN;
use crate::read::scan::allowance::{RESTARTS_MAX, WASTE_BYTES_MIN};
use proptest::prelude::*;
use std::collections::HashSet;

pub(super) const CHUNK: u64 = 100 << 10;

/// Row groups of columns of `CHUNK` bytes each.
fn layout(row_groups: usize, columns: usize) -> Arc<Layout> {
    let chunk = |index: usize| ByteRange {
        start: 4 + index as u64 * CHUNK,
        end: 4 + (index + 1) as u64 * CHUNK,
    };
    let groups = (0..row_groups).map(|group| (0..columns).map(move |c| chunk(group * columns + c)));
    Arc::new(Layout::new(groups.map(Iterator::collect).collect(), u64::MAX, u64::MAX))
}

/// A scan of one file as DuckDB's threads do it, and what is fetched ahead of it.
pub(super) struct Model {
    pub scan: Scan,
    layout: Arc<Layout>,
    window: u64,
    /// Row group and column of what was begun, and of what was read.
    pub begun: HashSet<(usize, usize)>,
    pub read: HashSet<(usize, usize)>,
}

impl Model {
    pub fn new(row_groups: usize, columns: usize, window_chunks: u64) -> Self {
        let layout = layout(row_groups, columns);
        let mut scan = Scan::new(0);
        scan.learn(0, Arc::clone(&layout));
        let (begun, read) = Default::default();
        Model { scan, layout, window: window_chunks * CHUNK, begun, read }
    }

    /// Each column of each row group is begun once at most, and not when it was read already.
    fn pull(&mut self) {
        loop {
            let ahead = self.ahead_bytes();
            let left = self.scan.allowed_bytes(self.window).saturating_sub(ahead);
            let Some(wanted) = self.scan.next(left, 0) else { return };
            assert!(wanted.span.len() <= left && wanted.unit.file == 0);
            for column in wanted.columns {
                let place = (wanted.unit.row_group, column);
                let is_read = self.read.contains(&place);
                assert!(self.begun.insert(place) && !is_read, "{place:?} again");
            }
        }
    }

    /// A read of neighbouring columns.
    pub fn read(&mut self, reader: u64, row_group: usize, columns: RangeInclusive<usize>) {
        let chunks = &self.layout.row_group(row_group)[columns.clone()];
        let range = joined(chunks[0], chunks[chunks.len() - 1]);
        assert!(!self.scan.read(reader, 0, range), "begun anew");
        self.read.extend(columns.map(|column| (row_group, column)));
        self.pull();
        self.scan.done(reader, 0, range);
        self.pull();
    }

    /// Ahead, and of use still.
    fn ahead_bytes(&self) -> u64 {
        let unread = self.begun.difference(&self.read);
        let is_over = |row_group| self.scan.is_over(Unit { file: 0, row_group });
        unread.filter(|(row_group, _)| !is_over(*row_group)).count() as u64 * CHUNK
    }

    pub fn wasted_bytes(&self) -> u64 {
        self.begun.difference(&self.read).count() as u64 * CHUNK
    }

    pub fn read_bytes(&self) -> u64 {
        self.read.len() as u64 * CHUNK
    }
}

#[test]
fn nothing_is_fetched_ahead_before_the_first_row_group_is_over() {
    let mut model = Model::new(5, 6, 100);
    for column in [4, 2, 1] {
        model.read(1, 0, column..=column);
        assert!(model.begun.is_empty(), "a LIMIT may end here");
    }
    model.read(1, 1, 4..=4);
    let rest = [(1, 1), (1, 2), (2, 1), (2, 2), (2, 4), (3, 1), (3, 2), (3, 4), (4, 1)];
    assert!(rest.iter().all(|place| model.begun.contains(place)), "{:?}", model.begun);
}

#[test]
fn columns_that_a_plan_tells_are_fetched_from_the_first_read_on() {
    let mut model = Model::new(50, 6, 30);
    model.scan.will_read([4, 1].into_iter(), false);
    model.pull();
    assert!(model.begun.is_empty(), "nobody may ever read it");
    model.read(1, 0, 4..=4);
    assert_eq!(model.begun.len(), 30, "what fills the link");
    assert!(model.begun.contains(&(0, 1)) && model.begun.iter().all(|(_, c)| [1, 4].contains(c)));
    // The other threads come late, and in no order.
    for row_group in [7, 3, 1, 5] {
        model.read(row_group as u64, row_group, 4..=4);
        assert!(
            model.begun.contains(&(row_group, 1))
                && !model.scan.is_over(Unit { file: 0, row_group: 2 })
        );
    }
    assert!(model.begun.contains(&(12, 4)) && model.begun.contains(&(2, 1)));
    // What was told in vain ends it as anything does.
    for row_group in 8..50 {
        model.read(1, row_group, 0..=0);
    }
    assert!(
        model.wasted_bytes() <= WASTE_BYTES_MIN + model.read_bytes() / WASTE_PARTS + 30 * CHUNK
    );
}

#[test]
fn neighbouring_columns_are_not_cut_for_want_of_room() {
    let mut scan = Scan::new(0);
    scan.learn(0, layout(9, 6));
    scan.will_read(0..6, false);
    assert!(!scan.read(1, 0, ByteRange { start: 4, end: 4 + 6 * CHUNK }));
    assert_eq!(scan.next(4 * CHUNK, 6 * CHUNK), None, "it waits");
    assert_eq!(scan.next(6 * CHUNK, 6 * CHUNK).unwrap().columns, 0..=5);
    // What never fits has to be cut.
    assert_eq!(scan.next(4 * CHUNK, 5 * CHUNK), None);
    assert_eq!(scan.next(4 * CHUNK, 3 * CHUNK).unwrap().columns, 0..=3);
}

#[test]
fn files_that_are_passed_by_are_in_vain() {
    let mut scan = Scan::new(0);
    (0..40).for_each(|index| scan.learn(index, layout(2, 3)));
    scan.will_read(std::iter::once(1), false);
    let mut begun = 0;
    for file in [0, 9, 18, 27, 36] {
        assert!(!scan.read(1, file, ByteRange { start: 4 + CHUNK, end: 4 + 2 * CHUNK }));
        scan.pass(file);
        let mut left = scan.allowed_bytes(40 * CHUNK);
        while let Some(wanted) = scan.next(left, 0) {
            left -= wanted.span.len();
            begun += wanted.span.len();
        }
    }
    assert_eq!(begun, 40 * CHUNK, "the first window and no other");
}

#[test]
fn a_row_group_that_is_read_whole_at_once_tells_all() {
    let mut model = Model::new(9, 12, 100);
    model.read(1, 0, 0..=11);
    assert_eq!(model.begun.len(), 12, "no more than what was read");
    assert!(model.begun.contains(&(1, 0)) && model.begun.contains(&(1, 11)));
    model.read(1, 1, 0..=11);
    assert_eq!(model.begun.len(), 36, "twice as much");
}

#[test]
fn in_a_row_group_behind_skipped_ones_the_columns_are_expected_that_others_were_read_for() {
    let mut model = Model::new(60, 6, 100);
    for column in [1, 2, 4] {
        model.read(1, 7, column..=column);
    }
    model.read(1, 30, 1..=1);
    assert_eq!(model.begun, HashSet::from([(30, 2), (30, 4)]), "and nothing of the next ones");
    model.read(1, 30, 2..=2);
    model.read(1, 30, 4..=4);
    // A column that a filter made unnecessary is read on demand in the next ones.
    model.read(1, 50, 1..=1);
    model.read(1, 50, 2..=2);
    model.read(1, 58, 1..=1);
    assert!(model.begun.contains(&(58, 2)) && !model.begun.contains(&(58, 4)));
}

/// A range of a sorted column: row groups before it and behind it are skipped.
#[test]
fn a_scan_that_has_skipped_is_ahead_by_no_more_than_it_may_waste() {
    let mut model = Model::new(200, 2, 100);
    for row_group in 5..105 {
        model.read(1, row_group, 0..=0);
        model.read(1, row_group, 1..=1);
        let bound = WASTE_BYTES_MIN + model.read_bytes() / WASTE_PARTS;
        assert!(model.ahead_bytes() <= bound, "{} ahead", model.ahead_bytes());
    }
    assert!(model.begun.len() > 150, "and goes on: {}", model.begun.len());
    assert!(model.wasted_bytes() <= WASTE_BYTES_MIN + model.read_bytes() / WASTE_PARTS);
}

#[test]
fn what_is_ahead_of_a_glob_at_first_is_the_number_of_bytes_that_it_is_given() {
    let mut scan = Scan::new(7 * CHUNK);
    for file in 0..9 {
        scan.learn(file, layout(2, 3));
    }
    assert!(!scan.read(1, 0, ByteRange { start: 4 + CHUNK, end: 4 + 2 * CHUNK }));
    let mut found = Vec::new();
    let mut left = scan.allowed_bytes(u64::MAX);
    while let Some(wanted) = scan.next(left, 0) {
        left -= wanted.span.len();
        found.push((wanted.unit.file, wanted.unit.row_group, wanted.columns));
    }
    let expected = [(0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)];
    assert_eq!(found, expected.map(|(file, row_group)| (file, row_group, 1..=1)));
}

#[test]
fn no_less_is_ahead_of_a_glob_once_it_is_known_to_go_on() {
    let mut scan = Scan::new(70 * CHUNK);
    let file = layout(2, 3);
    (0..9).for_each(|index| scan.learn(index, Arc::clone(&file)));
    assert_eq!(scan.allowed_bytes(u64::MAX), 70 * CHUNK);
    let whole = ByteRange { start: 4, end: 4 + 3 * CHUNK };
    assert!(!scan.read(1, 0, whole));
    scan.done(1, 0, whole);
    assert!(scan.is_learned());
    assert_eq!(scan.allowed_bytes(u64::MAX), 70 * CHUNK);
    assert_eq!(scan.allowed_bytes(50 * CHUNK), 70 * CHUNK, "on a slow link too");
}

#[test]
fn several_scans_of_one_file_at_once_are_not_followed() {
    let mut scan = Scan::new(0);
    let file = layout(60, 1);
    scan.learn(0, Arc::clone(&file));
    let mut restarts = 0;
    for row_group in 0..40 {
        for (reader, row_group) in [(1, row_group + 5), (2, row_group)] {
            restarts += u32::from(scan.read(reader, 0, file.row_group(row_group)[0]));
        }
    }
    assert!(restarts > RESTARTS_MAX);
    assert_eq!(scan.allowed_bytes(u64::MAX), 0);
}

/// A hundred thousand column chunks, whichever way they lie: each read is followed, and what is
/// looked at for each does not grow with the file (this test would not end).
#[test]
fn a_file_of_a_hundred_thousand_chunks_is_followed() {
    for (row_groups, columns, step) in [(100_000, 1, 1), (1_000, 100, 7), (100, 1_000, 10)] {
        let mut scan = Scan::new(0);
        let file = layout(row_groups, columns);
        scan.learn(0, Arc::clone(&file));
        let (mut ahead, mut found, mut reads) = (HashSet::new(), 0, 0);
        for row_group in 0..row_groups {
            for column in (0..columns).step_by(step) {
                assert!(!scan.read(1, 0, file.row_group(row_group)[column]));
                (reads, found) = (reads + 1, found + u32::from(ahead.remove(&(row_group, column))));
                let mut left =
                    scan.allowed_bytes(8 * CHUNK).saturating_sub(ahead.len() as u64 * CHUNK);
                while let Some(wanted) = scan.next(left, 0) {
                    left -= wanted.span.len();
                    ahead.extend(wanted.columns.map(|column| (wanted.unit.row_group, column)));
                }
            }
        }
        let first_two = 2 * columns.div_ceil(step) as u32 + 1;
        assert!(found + first_two >= reads, "{found} of {reads} in {row_groups} row groups");
        assert!(ahead.is_empty(), "nothing in vain");
    }
}

/// However many columns a row group has: each is looked at a few times, not in each read of another
/// one.
#[test]
fn a_row_group_of_a_hundred_thousand_columns_takes_a_few_steps_for_each() {
    const COLUMNS: usize = 100_000;
    let orders: [(&str, Vec<usize>); 3] = [
        ("from the first", (0..COLUMNS).collect()),
        ("from the last", (0..COLUMNS).rev().collect()),
        ("some", (0..COLUMNS).step_by(7).collect()),
    ];
    let file = layout(1, COLUMNS);
    for (name, order) in orders {
        let mut scan = Scan::new(8 << 20);
        (0..2).for_each(|index| scan.learn(index, Arc::clone(&file)));
        let mut ahead = 0;
        let before = TAKEN.get();
        for column in &order {
            let chunk = file.row_group(0)[*column];
            assert!(scan.follows(0, chunk) && !scan.read(1, 0, chunk));
            scan.done(1, 0, chunk);
            assert!(scan.unit_bytes() > 0);
            while let Some(wanted) = scan.next(scan.allowed_bytes(8 << 20).saturating_sub(ahead), 0)
            {
                ahead += wanted.span.len();
            }
        }
        let steps = TAKEN.get() - before;
        assert!(steps <= 25 * COLUMNS as u64, "{steps}, {name}");
        assert!(ahead > 7 << 20, "the next file is expected to be read in the same way");
        assert_eq!(scan.is_learned(), order.len() == COLUMNS);
    }
}

/// All lie so near to what DuckDB's cache has of the file that a long read would be widened.
#[test]
fn thousands_of_row_groups_in_a_mebibyte_take_a_few_steps_for_each_that_is_ahead() {
    const GROUPS: u64 = 5_000;
    const BYTES: u64 = 100;
    let chunk = |index: u64| ByteRange { start: 4 + index * BYTES, end: 4 + (index + 1) * BYTES };
    let groups = (0..GROUPS).map(|group| vec![chunk(2 * group), chunk(2 * group + 1)]).collect();
    let file = Arc::new(Layout::new(groups, 4 + 2 * GROUPS * BYTES, u64::MAX));
    let mut scan = Scan::new(0);
    scan.learn(0, Arc::clone(&file));
    scan.will_read(0..2, true);
    let (before, mut ahead) = (TAKEN.get(), 0);
    for row_group in 0..GROUPS as usize {
        for chunk in file.row_group(row_group).iter().rev().copied() {
            assert!(!scan.read(1, 0, chunk));
            scan.done(1, 0, chunk);
            while let Some(wanted) = scan.next(1 << 20, 1 << 19) {
                ahead += wanted.span.len();
            }
        }
    }
    assert!(ahead > 2 * (GROUPS - 2) * BYTES, "{ahead}");
    let steps = TAKEN.get() - before;
    assert!(steps <= 60 * GROUPS, "{steps}");
}

/// How a scan goes: its threads, the columns of every row group, one more that is read in some of
/// them only, and the row groups that its filters leave.
#[derive(Clone, Debug)]
struct Shape {
    threads: usize,
    row_groups: usize,
    columns: Vec<usize>,
    /// By row group: whether it is read, and whether column 9 is read too.
    kept: Vec<(bool, bool)>,
    turns: Vec<usize>,
}

fn shapes(kept: impl Strategy<Value = (bool, bool)> + Clone) -> impl Strategy<Value = Shape> {
    let row_groups = (1usize..5, prop::collection::vec(kept, 2..60));
    row_groups.prop_flat_map(|(threads, kept)| {
        let columns = prop::sample::subsequence((0..9).collect::<Vec<_>>(), 1..9);
        let turns = prop::collection::vec(0usize..threads, kept.len() * 12);
        (Just((threads, kept)), columns, turns).prop_map(|((threads, kept), columns, turns)| {
            Shape { threads, row_groups: kept.len(), columns, kept, turns }
        })
    })
}

/// Reads as the threads take turns: each takes the next row group when it has read its last one.
fn run(shape: &Shape, reads_max: usize) -> Model {
    run_in(Model::new(shape.row_groups, 10, 50), shape, reads_max)
}

fn run_in(mut model: Model, shape: &Shape, reads_max: usize) -> Model {
    let mut next = (0..shape.row_groups).filter(|row_group| shape.kept[*row_group].0);
    let mut work: Vec<Vec<(usize, usize)>> = vec![Vec::new(); shape.threads];
    let in_turn = (0..shape.row_groups * 12).flat_map(|_| 0..shape.threads);
    for turn in shape.turns.iter().copied().chain(in_turn).take(reads_max) {
        if work[turn].is_empty()
            && let Some(row_group) = next.next()
        {
            work[turn].extend(shape.columns.iter().map(|column| (row_group, *column)));
            work[turn].extend(shape.kept[row_group].1.then_some((row_group, 9)));
            work[turn].reverse();
        }
        if let Some((row_group, column)) = work[turn].pop() {
            model.read(turn as u64, row_group, column..=column);
        }
    }
    model
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_scan_of_all_row_groups_wastes_nothing_and_waits_little(
        shape in shapes(Just((true, false))),
    ) {
        let model = run(&shape, usize::MAX);
        prop_assert_eq!(model.wasted_bytes(), 0);
        prop_assert_eq!(model.read.len(), shape.row_groups * shape.columns.len());
        // Each thread waits for its first row group, and for the first column of one more.
        let on_demand = model.read.len() - model.begun.len();
        prop_assert!(on_demand <= shape.threads * (2 * shape.columns.len() + 1), "{}", on_demand);
    }

    /// Whatever filters leave out, and wherever the scan ends: a tenth of what was read, what is
    /// always allowed, and what was ahead at the end.
    #[test]
    fn waste_is_bounded_however_the_scan_goes(
        shape in shapes((any::<bool>(), any::<bool>())), reads_max in 0usize..800,
    ) {
        let model = run(&shape, reads_max);
        let ahead = 50 * CHUNK;
        let bound = model.read_bytes() / WASTE_PARTS + WASTE_BYTES_MIN + ahead;
        prop_assert!(model.wasted_bytes() <= bound, "{}", model.wasted_bytes());
    }

    /// Of row groups that nobody has entered, no more is ahead than may be in vain.
    #[test]
    fn a_scan_that_may_end_early_wastes_a_tenth(
        shape in shapes(Just((true, false))), reads_max in 0usize..800,
    ) {
        let mut model = Model::new(shape.row_groups, 10, 50);
        model.scan.may_end_early();
        let model = run_in(model, &shape, reads_max);
        let entered = shape.threads as u64 * shape.columns.len() as u64 * CHUNK;
        let bound = model.read_bytes() / WASTE_PARTS + WASTE_BYTES_MIN + entered;
        prop_assert!(model.wasted_bytes() <= bound, "{}", model.wasted_bytes());
        // And it goes on: the longer, the more of it was fetched ahead.
        if model.read.len() == shape.row_groups * shape.columns.len() && shape.row_groups > 100 {
            prop_assert!(model.begun.len() * 4 > model.read.len(), "{}", model.begun.len());
        }
    }

    /// Filters that leave a row group here and there, and a column that only some of them need:
    /// too little regularity to fetch much ahead.
    #[test]
    fn a_scan_that_skips_is_not_followed(
        shape in shapes((prop::bool::weighted(0.3), any::<bool>())),
    ) {
        let model = run(&shape, usize::MAX);
        let unit = (shape.columns.len() as u64 + 1) * CHUNK;
        let bound = model.read_bytes() / WASTE_PARTS + WASTE_BYTES_MIN + 11 * unit;
        let (wasted, read) = (model.wasted_bytes(), model.read_bytes());
        prop_assert!(wasted <= bound, "{} of {}", wasted, read);
    }
}

/// Bloom filters lie between the last row group and what DuckDB's cache has: its last read is
/// widened over them.
#[test]
fn what_lies_behind_the_last_row_group_comes_with_it_where_reads_are_widened() {
    let chunk = |index: u64| ByteRange { start: 4 + index * CHUNK, end: 4 + (index + 1) * CHUNK };
    let end = chunk(2).end;
    for (behind, comes) in [(CHUNK, true), (CHUNK + 1, false)] {
        for is_widening in [true, false] {
            let groups = (0..3).map(|index| vec![chunk(index)]).collect();
            let mut scan = Scan::new(0);
            scan.learn(0, Arc::new(Layout::new(groups, end + behind, u64::MAX)));
            scan.will_read([0].into_iter(), is_widening);
            assert!(!scan.read(1, 0, chunk(0)));
            let second = scan.next(4 * CHUNK, 0).map(|wanted| wanted.span);
            assert_eq!(second, Some(chunk(1)));
            let last = scan.next(4 * CHUNK, 0).map(|wanted| wanted.span);
            let added = if comes && is_widening { behind } else { 0 };
            assert_eq!(last, Some(ByteRange { end: end + added, ..chunk(2) }));
            assert!(scan.next(4 * CHUNK, 0).is_none());
        }
    }
}

#[test]
fn what_could_not_begin_is_asked_for_again() {
    let mut model = Model::new(4, 2, 8);
    model.scan.will_read([0, 1].into_iter(), false);
    model.read(1, 0, 0..=1);
    let begun = model.begun.len();
    model.read(1, 1, 0..=1);
    let mut scan = model.scan;
    assert!(begun > 0 && scan.next(8 * CHUNK, 0).is_none(), "all of it is begun");
    scan.restart();
    scan.read(1, 0, model.layout.row_group(0)[0]);
    let wanted = scan.next(8 * CHUNK, 0).unwrap();
    let pending = scan.pending_bytes;
    scan.not_begun(&wanted, wanted.span.start);
    assert_eq!(scan.pending_bytes, pending - wanted.span.len());
    let again = scan.next(8 * CHUNK, 0).unwrap();
    assert_eq!((again.unit, again.columns, again.span), (wanted.unit, wanted.columns, wanted.span));
}

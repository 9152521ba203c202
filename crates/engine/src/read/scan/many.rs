//! Files of thousands of row groups: what a scan looks at grows with their number, not with its
//! square.

use super::history::Trust;
use super::wanted::Wanted;
use super::*;
use crate::read::parquet::steps::TAKEN;
use proptest::prelude::*;
use std::collections::HashSet;

const BYTES: u64 = 1 << 10;
const COLUMNS: usize = 3;

/// How a scan goes through row groups of three columns.
struct Way {
    name: &'static str,
    window_bytes: u64,
    threads: usize,
    is_told: bool,
    /// The first thread does not go on from its first row group.
    is_held_up: bool,
    /// Row groups that its filters leave, of which all columns are read.
    reads: fn(usize) -> bool,
}

fn layout(row_groups: usize) -> Arc<Layout> {
    let chunk = |index: u64| ByteRange { start: 4 + index * BYTES, end: 4 + (index + 1) * BYTES };
    let columns = COLUMNS as u64;
    let of = |group: u64| (0..columns).map(|column| chunk(group * columns + column)).collect();
    let groups: Vec<Vec<ByteRange>> = (0..row_groups as u64).map(of).collect();
    // A long read of the last one is widened.
    let here = groups.last().and_then(|last| last.last()).map_or(0, |chunk| chunk.end);
    Arc::new(Layout::new(groups, here, u64::MAX))
}

/// Steps for each row group, and the bytes that were not ahead of their reads.
fn steps(row_groups: usize, way: &Way) -> (u64, u64) {
    let file = layout(row_groups);
    let mut scan = Scan::new(0);
    scan.learn(0, Arc::clone(&file));
    if way.is_told {
        scan.will_read(0..COLUMNS, false);
    }
    let before = TAKEN.get();
    let (mut begun, mut ahead_bytes, mut missed_bytes) = (HashSet::new(), 0, 0);
    for row_group in 0..row_groups {
        let reader = match row_group {
            0 => 0,
            _ if way.is_held_up => 1 + row_group % (way.threads - 1),
            _ => row_group % way.threads,
        };
        let columns = if (way.reads)(row_group) { COLUMNS } else { 1 };
        for chunk in file.row_group(row_group)[..columns].iter().copied() {
            assert!(!scan.read(reader as u64, 0, chunk));
            match begun.remove(&chunk.start) {
                true => ahead_bytes -= BYTES,
                false => missed_bytes += BYTES,
            }
            for _ in 0..2 {
                let allowed = scan.allowed_bytes(way.window_bytes);
                let mut left = allowed.saturating_sub(ahead_bytes);
                while let Some(wanted) = scan.next(left, allowed / 2) {
                    let span = wanted.span;
                    assert!(span.len() <= left && scan.unit_bytes() > 0);
                    left -= span.len();
                    ahead_bytes += span.len();
                    begun.extend((span.start..span.end).step_by(BYTES as usize));
                }
                scan.done(reader as u64, 0, chunk);
            }
        }
    }
    ((TAKEN.get() - before) / row_groups as u64, missed_bytes)
}

#[test]
fn ten_thousand_row_groups_take_as_many_steps_each_as_a_thousand() {
    let way = Way {
        name: "told",
        window_bytes: 20 << 20,
        threads: 1,
        is_told: true,
        is_held_up: false,
        reads: |_| true,
    };
    let learned = Way { is_told: false, name: "learned", ..way };
    let ways = [
        Way { name: "little may be ahead", window_bytes: 1 << 20, ..way },
        Way { name: "four threads", threads: 4, ..learned },
        Way { name: "one of them is held up", threads: 4, is_held_up: true, ..learned },
        Way { name: "rows are left here and there", reads: |group| group % 7 < 5, ..learned },
        Way { name: "seldom", reads: |group| group % 40 == 0, ..learned },
        way,
        learned,
    ];
    for way in ways {
        for row_groups in [1_000, 10_000] {
            let (steps, missed_bytes) = steps(row_groups, &way);
            assert!(steps <= 100, "{steps} for each of {row_groups}, {}", way.name);
            // That it was no idle talk.
            let read_bytes = row_groups as u64 * BYTES * COLUMNS as u64;
            assert!(missed_bytes <= read_bytes / 4, "{missed_bytes} on demand, {}", way.name);
        }
    }
}

/// What a scan is told or asked.
#[derive(Clone, Debug)]
enum Event {
    Read {
        reader: u64,
        row_group: usize,
        columns: RangeInclusive<usize>,
    },
    Close {
        reader: u64,
    },
    Next {
        bytes: u64,
    },
    /// What was to begin did not.
    NotBegun {
        number: usize,
    },
    LeaveOut {
        unit: Unit,
        is_left_out: bool,
    },
    Learn {
        file: usize,
    },
    Widen,
    Pass {
        file: usize,
    },
    WillRead {
        column: usize,
    },
    WillFilter,
    ReadAt {
        reader: u64,
        file: usize,
        row_group: usize,
        columns: RangeInclusive<usize>,
    },
}

const GROUPS: usize = 6;

fn events() -> impl Strategy<Value = Vec<Event>> {
    let columns = || (0..COLUMNS, 0..COLUMNS).prop_map(|(a, b)| a.min(b)..=a.max(b));
    let unit = (0usize..3, 0..GROUPS).prop_map(|(file, row_group)| Unit { file, row_group });
    let read = (0u64..3, 0..GROUPS, columns());
    let read_at = (0u64..3, 0usize..3, 0..GROUPS, columns());
    let event = prop_oneof![
        6 => read.prop_map(|(reader, row_group, columns)| {
            Event::Read { reader, row_group, columns }
        }),
        1 => (0u64..3).prop_map(|reader| Event::Close { reader }),
        4 => (0..20 * BYTES).prop_map(|bytes| Event::Next { bytes }),
        1 => (0usize..4).prop_map(|number| Event::NotBegun { number }),
        1 => (unit, any::<bool>())
            .prop_map(|(unit, is_left_out)| Event::LeaveOut { unit, is_left_out }),
        1 => (0usize..3).prop_map(|file| Event::Learn { file }),
        1 => Just(Event::Widen),
        1 => (0usize..3).prop_map(|file| Event::Pass { file }),
        1 => (0..COLUMNS).prop_map(|column| Event::WillRead { column }),
        1 => Just(Event::WillFilter),
        3 => read_at.prop_map(|(reader, file, row_group, columns)| {
            Event::ReadAt { reader, file, row_group, columns }
        }),
    ];
    prop::collection::vec(event, 1..80)
}

fn happen(scan: &mut Scan, file: &Arc<Layout>, begun: &mut Vec<Wanted>, event: Event) {
    match event {
        Event::Pass { file } => {
            scan.pass(file);
            begun.retain(|wanted| wanted.unit.file >= file);
        }
        Event::WillRead { column } => scan.will_read([column].into_iter(), true),
        Event::WillFilter => {
            if scan.will_filter(false) {
                begun.clear();
            }
        }
        Event::ReadAt { reader, file: index, row_group, columns } => {
            if !scan.knows(index) {
                return;
            }
            let chunks = &file.row_group(row_group)[columns];
            let range = ByteRange { start: chunks[0].start, end: chunks[chunks.len() - 1].end };
            if scan.read(reader, index, range) {
                begun.clear();
            }
            scan.done(reader, index, range);
        }
        Event::Read { reader, row_group, columns } => {
            if !scan.knows(0) {
                return;
            }
            // One after the other, and now and then far away.
            let at = scan.frontier.map_or(0, |unit| unit.row_group) + row_group / 4;
            let chunks = &file.row_group(at % GROUPS)[columns];
            let range = ByteRange { start: chunks[0].start, end: chunks[chunks.len() - 1].end };
            if scan.read(reader, 0, range) {
                begun.clear();
            }
            scan.done(reader, 0, range);
        }
        Event::Close { reader } => scan.closed(reader),
        Event::Next { bytes } => begun.extend(scan.next(bytes, bytes / 2)),
        Event::NotBegun { number } if number < begun.len() => {
            let wanted = begun.swap_remove(number);
            scan.not_begun(&wanted, wanted.span.start);
        }
        Event::NotBegun { .. } => {}
        Event::LeaveOut { unit, is_left_out } => scan.leave_out(unit, is_left_out),
        Event::Learn { file: index } => scan.learn(index, Arc::clone(file)),
        Event::Widen => {
            scan.is_widening = true;
            scan.expect_anew();
        }
    }
}

/// The same, of all row groups.
fn looked_for(scan: &mut Scan, trust: Trust) -> Option<Wanted> {
    let frontier = scan.frontier?;
    let files: Vec<usize> = scan.files.keys().copied().collect();
    let units = files
        .into_iter()
        .flat_map(|file| (0..GROUPS).map(move |row_group| Unit { file, row_group }));
    let behind: Vec<Unit> = units.filter(|unit| *unit > frontier).collect();
    behind.into_iter().find_map(|unit| scan.next_in(unit, u64::MAX, trust, false))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// What is known of where to look leaves nothing out.
    #[test]
    fn what_is_next_is_what_a_look_at_all_row_groups_finds(events in events()) {
        let file = layout(GROUPS);
        let (mut scan, mut begun) = (Scan::new(4 << 20), Vec::new());
        scan.learn(0, Arc::clone(&file));
        let count = events.len();
        for (number, event) in events.into_iter().enumerate() {
            happen(&mut scan, &file, &mut begun, event);
            for trust in [Trust::Sure, Trust::Likely] {
                let found = scan.first_outside(u64::MAX, trust);
                if number + 1 == count {
                    // Of what is settled nothing is taken on trust either.
                    let groups = scan.files.values_mut().flat_map(|file| &mut file.groups);
                    groups.for_each(|group| group.settled = <[Settled; 2]>::default());
                }
                let expected = looked_for(&mut scan, trust);
                prop_assert_eq!(found, expected, "{:?}", trust);
            }
            for file in scan.files.values() {
                let behind = file.groups.get(file.swept..file.seen).unwrap_or_default();
                let passed = behind.iter().filter(|group| !group.is_touched && !group.is_left_out);
                prop_assert_eq!(file.passed, passed.count());
            }
        }
    }
}

//! Which ranges belong to one client that reads an object from front to back. Pure: the caller
//! brings the time.
//!
//! A door that answers each range by itself sees no reader, only ranges. One that begins where an
//! earlier one of the same version ended, or a little beside it, goes on with that: both are of one
//! *trail*. The earlier one must have been read to its end before, so ranges that are asked for at
//! once (by a client that reads in parallel, which waits for nothing) are no trail.

use crate::location::ObjectId;
use crate::read::version::Version;
use penstock_base::ByteRange;
use std::time::Duration;
use tokio::time::Instant;

/// Most trails that are remembered, most of them a single range that nothing goes on with.
pub(super) const TRAILS_MAX: usize = 1024;
/// Without a further range for so long a client counts as gone.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(30);
/// A range goes on with another one if it begins so near to where that ended, and no further away
/// than an eighth of it.
const NEAR_BYTES_MAX: u64 = 64 << 10;
const NEAR_PARTS: u64 = 8;

/// The ranges of one client, as far as they follow each other.
#[derive(Debug)]
struct Trail {
    number: u64,
    object: ObjectId,
    version: Version,
    /// The last one that began.
    last: ByteRange,
    /// It has not been read to its end.
    is_busy: bool,
    goes_on: bool,
    used: Instant,
}

/// All trails.
#[derive(Debug, Default)]
pub(super) struct Table {
    trails: Vec<Trail>,
    numbers: u64,
}

/// Where a range belongs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// The trail's.
    pub number: u64,
    /// It is not the first range of it.
    pub goes_on: bool,
}

impl Table {
    /// A range begins. Pushes the numbers of trails that are over for that.
    pub fn begins(
        &mut self,
        object: &ObjectId,
        version: &Version,
        range: ByteRange,
        now: Instant,
        over: &mut Vec<u64>,
    ) -> Step {
        let is_over = |trail: &mut Trail| {
            let is_idle = !trail.is_busy && now.saturating_duration_since(trail.used) > IDLE_MAX;
            // Nobody goes on with what the object was before.
            is_idle || (trail.object == *object && !trail.version.same(version))
        };
        over.extend(self.trails.extract_if(.., is_over).map(|trail| trail.number));
        let before = self.trails.iter_mut().filter(|trail| trail.is_gone_on_with(object, range));
        // Of two that ended there the one that is sure to read on.
        let before = before.min_by_key(|trail| (trail.distance(range), !trail.goes_on));
        if let Some(trail) = before {
            (trail.last, trail.is_busy, trail.goes_on, trail.used) = (range, true, true, now);
            return Step { number: trail.number, goes_on: true };
        }
        if self.trails.len() >= TRAILS_MAX {
            over.extend(self.forget_one());
        }
        self.numbers += 1;
        self.trails.push(Trail {
            number: self.numbers,
            object: object.clone(),
            version: version.clone(),
            last: range,
            is_busy: true,
            goes_on: false,
            used: now,
        });
        Step { number: self.numbers, goes_on: false }
    }

    /// The last range of a trail was read to its end.
    pub fn ended(&mut self, number: u64, now: Instant) {
        if let Some(trail) = self.trails.iter_mut().find(|trail| trail.number == number) {
            (trail.is_busy, trail.used) = (false, now);
        }
    }

    /// Nothing more comes of a trail.
    pub fn forget(&mut self, number: u64) {
        self.trails.retain(|trail| trail.number != number);
    }

    /// Makes room: what nothing went on with gives way first, and then what was used longest ago.
    fn forget_one(&mut self) -> Option<u64> {
        let trails = self.trails.iter().enumerate();
        let (index, _) =
            trails.min_by_key(|(_, trail)| (trail.goes_on, trail.is_busy, trail.used))?;
        Some(self.trails.swap_remove(index).number)
    }
}

impl Trail {
    fn distance(&self, range: ByteRange) -> u64 {
        self.last.end.abs_diff(range.start)
    }

    fn is_gone_on_with(&self, object: &ObjectId, range: ByteRange) -> bool {
        let near = (self.last.len().min(range.len()) / NEAR_PARTS).min(NEAR_BYTES_MAX);
        !self.is_busy
            && self.object == *object
            && range.end > self.last.end
            && self.distance(range) <= near
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_store::{ETag, ObjectMeta};
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn object(key: &str) -> ObjectId {
        ObjectId { mount: 1, key: key.to_string() }
    }

    fn version(tag: &str) -> Version {
        let etag = Some(ETag(tag.to_string()));
        Version::of(&ObjectMeta { size_bytes: Some(1 << 40), etag, ..ObjectMeta::default() })
    }

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    /// A table, and what is over.
    struct Played {
        table: Table,
        over: Vec<u64>,
        now: Instant,
    }

    impl Played {
        fn new() -> Self {
            Played { table: Table::default(), over: Vec::new(), now: Instant::now() }
        }

        fn begins(&mut self, key: &str, tag: &str, range: ByteRange) -> Step {
            self.now += Duration::from_millis(1);
            self.table.begins(&object(key), &version(tag), range, self.now, &mut self.over)
        }

        /// Reads a range to its end.
        fn reads(&mut self, key: &str, tag: &str, range: ByteRange) -> Step {
            let step = self.begins(key, tag, range);
            self.table.ended(step.number, self.now);
            step
        }
    }

    #[test]
    fn the_second_range_in_a_row_goes_on_and_others_do_not() {
        let mut played = Played::new();
        let first = played.reads("a", "1", range(0, MIB));
        assert!(!first.goes_on);
        for other in [
            played.reads("b", "1", range(MIB, 2 * MIB)),
            played.reads("a", "1", range(5 * MIB, 6 * MIB)),
            // What was read just now, or before that.
            played.reads("a", "1", range(0, MIB)),
            played.reads("a", "1", range(MIB / 2, MIB)),
        ] {
            assert!(!other.goes_on, "{other:?}");
        }
        let second = played.reads("a", "1", range(MIB, 2 * MIB));
        assert!(second.goes_on, "{second:?}");
        assert_eq!(played.reads("a", "1", range(2 * MIB, 3 * MIB)).number, second.number);
        assert_eq!(played.over, Vec::<u64>::new());
    }

    #[test]
    fn a_little_beside_the_end_is_near_and_a_page_further_on_is_not() {
        for (start, goes_on) in [
            (MIB - (64 << 10), true),
            (MIB + (64 << 10), true),
            (MIB + (64 << 10) + 1, false),
            (MIB - (64 << 10) - 1, false),
        ] {
            let mut played = Played::new();
            played.reads("a", "1", range(0, MIB));
            assert_eq!(
                played.reads("a", "1", range(start, start + MIB)).goes_on,
                goes_on,
                "{start}"
            );
        }
        // Pages here and there of one neighbourhood.
        let mut played = Played::new();
        for page in [9u64, 3, 5, 12, 7, 1] {
            assert!(!played.reads("a", "1", range(page * 4096, (page + 1) * 4096)).goes_on);
        }
    }

    #[test]
    fn ranges_at_once_are_no_trail() {
        let mut played = Played::new();
        let steps: Vec<Step> = (0..8)
            .map(|index| played.begins("a", "1", range(index * MIB, (index + 1) * MIB)))
            .collect();
        assert!(steps.iter().all(|step| !step.goes_on), "{steps:?}");
    }

    #[test]
    fn clients_side_by_side_have_a_trail_each() {
        let mut played = Played::new();
        let mut numbers = Vec::new();
        for index in 0..10 {
            let at = range(index * MIB, (index + 1) * MIB);
            let behind = range((index + 50) * MIB, (index + 51) * MIB);
            // Two of them at the same place.
            let steps = [at, at, behind].map(|range| played.begins("a", "1", range));
            for step in &steps {
                assert_eq!(step.goes_on, index > 0, "{index}");
                played.table.ended(step.number, played.now);
            }
            let mut of_this_round: Vec<u64> = steps.iter().map(|step| step.number).collect();
            of_this_round.sort_unstable();
            numbers.push(of_this_round);
        }
        assert!(numbers.iter().all(|round| *round == numbers[0]), "{numbers:?}");
    }

    #[test]
    fn another_version_ends_the_trails_of_the_one_before() {
        let mut played = Played::new();
        let old = played.reads("a", "1", range(0, MIB)).number;
        let other = played.reads("b", "1", range(0, MIB)).number;
        assert!(!played.reads("a", "2", range(MIB, 2 * MIB)).goes_on);
        assert_eq!(played.over, [old]);
        assert_eq!(played.reads("b", "1", range(MIB, 2 * MIB)).number, other);
    }

    #[test]
    fn who_does_not_come_again_is_forgotten_and_who_still_reads_is_not() {
        let mut played = Played::new();
        let gone = played.reads("a", "1", range(0, MIB)).number;
        let slow = played.begins("b", "1", range(0, MIB)).number;
        played.now += IDLE_MAX + Duration::from_secs(1);
        assert!(!played.reads("a", "1", range(MIB, 2 * MIB)).goes_on);
        assert_eq!(played.over, [gone]);
        played.table.ended(slow, played.now);
        assert!(played.reads("b", "1", range(MIB, 2 * MIB)).goes_on);
        played.table.forget(slow);
        assert!(!played.reads("b", "1", range(2 * MIB, 3 * MIB)).goes_on);
    }

    #[test]
    fn reads_here_and_there_drive_out_no_client_that_goes_on() {
        let mut played = Played::new();
        played.reads("a", "1", range(0, MIB));
        let number = played.reads("a", "1", range(MIB, 2 * MIB)).number;
        for index in 0..3 * TRAILS_MAX as u64 {
            played.reads("b", "1", range(2 * index * MIB, (2 * index + 1) * MIB));
        }
        assert_eq!(played.table.trails.len(), TRAILS_MAX);
        assert_eq!(played.reads("a", "1", range(2 * MIB, 3 * MIB)).number, number);
        assert_eq!(played.over.len(), 2 * TRAILS_MAX + 1);
    }

    proptest! {
        /// Whatever clients do: there are never more trails than that, each is told as over at most
        /// once and not used afterwards, and one that goes on began near its last end.
        #[test]
        fn the_table_is_bounded_and_what_is_over_stays_over(
            reads in prop::collection::vec(
                (0u8..3, 0u8..2, 0u64..40, 1u64..8, 0u8..4, 0u64..20_000), 1..300),
        ) {
            let mut played = Played::new();
            let mut ends = std::collections::HashMap::new();
            let mut over = std::collections::HashSet::new();
            for (key, tag, start, len, how, pause_ms) in reads {
                played.now += Duration::from_millis(pause_ms);
                let (key, tag) = (format!("k{key}"), format!("t{tag}"));
                let range = range(start * MIB, (start + len) * MIB);
                let step = played.begins(&key, &tag, range);
                for number in played.over.drain(..) {
                    prop_assert!(over.insert(number), "{} is over twice", number);
                }
                prop_assert!(!over.contains(&step.number));
                if step.goes_on {
                    let (of, end) = ends.get(&step.number).cloned().unwrap();
                    prop_assert_eq!(of, (key.clone(), tag.clone()));
                    prop_assert!(range.start.abs_diff(end) <= NEAR_BYTES_MAX);
                }
                ends.insert(step.number, ((key, tag), range.end));
                match how {
                    0 => {}
                    1 => {
                        played.table.forget(step.number);
                        prop_assert!(over.insert(step.number));
                    }
                    _ => played.table.ended(step.number, played.now),
                }
                prop_assert!(played.table.trails.len() <= TRAILS_MAX);
            }
        }
    }
}

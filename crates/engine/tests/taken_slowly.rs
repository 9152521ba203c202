//! Results whose rows are taken one by one, and may be left: what is ahead of them.

use crate::support::{Bench, Scripted, pattern, read};
use penstock_base::{ByteRange, Metric};
use penstock_engine::{Known, Query, Reader};
use penstock_testkit::parquet::footer;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const LATENCY: Duration = Duration::from_millis(100);
const CHUNK: usize = 300 << 10;
const COLUMNS: usize = 3;
const GROUP: usize = COLUMNS * CHUNK;
const GROUPS: usize = 60;

/// A file of row groups, and its reader.
struct Scan {
    query: Query,
    reader: Reader,
    data: Vec<u8>,
}

impl Scan {
    async fn begin(bench: &Bench) -> Self {
        let chunk = |index: usize| ByteRange {
            start: (4 + index * CHUNK) as u64,
            end: (4 + (index + 1) * CHUNK) as u64,
        };
        let group = |group: usize| (0..COLUMNS).map(|c| chunk(group * COLUMNS + c)).collect();
        let mut data = pattern(4 + GROUPS * GROUP);
        data.extend(footer(&(0..GROUPS).map(group).collect::<Vec<_>>()));
        bench.store.place("one.parquet", data.clone()).await;
        let query = bench.query();
        let reader = query.open(&bench.at("one.parquet"), &Known::NOTHING).await.unwrap();
        read(&reader, &query, data.len() - 8, 8).await;
        Scan { query, reader, data }
    }

    /// Reads a row group, which arrives whole and right.
    async fn read(&self, row_group: usize) {
        let start = 4 + row_group * GROUP;
        let read = read(&self.reader, &self.query, start, GROUP).await;
        assert!(read == self.data[start..start + GROUP]);
    }

    fn wasted_bytes(&self) -> usize {
        self.query.metrics().get(Metric::ReadAheadWastedBytes) as usize
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_result_that_may_be_left_nothing_is_fetched_ahead_before_it_goes_on() {
    for may_be_left in [true, false] {
        let bench = Bench::new(Scripted::remote(LATENCY));
        let scan = Scan::begin(&bench).await;
        if may_be_left {
            scan.query.may_be_left();
        }
        // All columns by one read: else that tells what the next ones are read for.
        scan.read(0).await;
        sleep(10 * LATENCY).await;
        scan.query.cancel();
        let wasted = scan.wasted_bytes();
        assert_eq!(wasted == 0, may_be_left, "{wasted}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_may_be_left_and_is_taken_at_once_waits_once_more() {
    let mut round_trips = Vec::new();
    for may_be_left in [true, false] {
        let bench = Bench::new(Scripted::remote(LATENCY));
        let scan = Scan::begin(&bench).await;
        if may_be_left {
            scan.query.may_be_left();
        }
        let begun = Instant::now();
        for row_group in 0..GROUPS {
            scan.read(row_group).await;
        }
        round_trips.push(begun.elapsed().as_millis() / LATENCY.as_millis());
        assert_eq!(scan.wasted_bytes(), 0);
    }
    assert!(round_trips[0] <= round_trips[1] + 1, "{round_trips:?}");
}

/// As many row groups are taken in a round trip: so many and a half lie ready, and one that the
/// reader takes at once; and nobody waits for the others.
#[tokio::test(start_paused = true)]
async fn of_a_result_that_is_taken_slowly_is_ahead_what_is_taken_in_a_round_trip_and_a_half() {
    for each_round_trip in [1, 2, 5] {
        let each = LATENCY / each_round_trip;
        let bench = Bench::new(Scripted::remote(LATENCY));
        let scan = Scan::begin(&bench).await;
        scan.query.may_be_left();
        let begun = Instant::now();
        for row_group in 0..GROUPS - 20 {
            scan.read(row_group).await;
            sleep(each).await;
        }
        let waited = begun.elapsed() - each * (GROUPS - 20) as u32;
        assert!(waited <= 5 * LATENCY, "{each_round_trip}: {waited:?}");
        scan.query.cancel();
        let of_use = GROUP + GROUP * each_round_trip as usize * 3 / 2;
        // Reads a little apart from each other.
        let bound = of_use + of_use / 5;
        let wasted = scan.wasted_bytes();
        assert!(wasted <= bound && wasted > 0, "{each_round_trip}: {wasted} of {bound}");
    }
}

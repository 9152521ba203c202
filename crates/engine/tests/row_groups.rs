//! Scans of Parquet whose row groups are small, or read in part: how many requests and round trips
//! they take.

use crate::support::{Bench, Scripted, pattern, read};
use penstock_base::{ByteRange, Metric};
use penstock_engine::{Known, Query, Reader};
use penstock_testkit::parquet::footer;
use std::time::Duration;
use tokio::time::Instant;

const KIB: usize = 1 << 10;
const LATENCY: Duration = Duration::from_millis(100);

/// A file of row groups that are alike, 100 ms away, and one reader of it.
struct Scan {
    bench: Bench,
    query: Query,
    reader: Reader,
    data: Vec<u8>,
    chunks: Vec<usize>,
}

impl Scan {
    async fn of(row_groups: usize, chunks: &[usize]) -> Self {
        let bench = Bench::new(Scripted::remote(LATENCY));
        let mut end = 4u64;
        let mut groups = Vec::new();
        for _ in 0..row_groups {
            let chunks = chunks.iter().map(|bytes| {
                let range = ByteRange { start: end, end: end + *bytes as u64 };
                end = range.end;
                range
            });
            groups.push(chunks.collect::<Vec<ByteRange>>());
        }
        let mut data = pattern(usize::try_from(end).unwrap());
        // Opening brings the end of a file: none of the columns.
        data.extend(pattern(256 * KIB));
        data.extend(footer(&groups));
        bench.store.place("one.parquet", data.clone()).await;
        let query = bench.query();
        let reader = query.open(&bench.at("one.parquet"), &Known::NOTHING).await.unwrap();
        read(&reader, &query, data.len() - 8, 8).await;
        bench.store.take_calls();
        Scan { bench, query, reader, data, chunks: chunks.to_vec() }
    }

    /// All of the footer, as whoever parses it reads it.
    async fn footer(&self) {
        let end = self.data.len() - 8;
        let length = u32::from_le_bytes(self.data[end..end + 4].try_into().unwrap());
        let start = end - usize::try_from(length).unwrap();
        let found = read(&self.reader, &self.query, start, end - start).await;
        assert!(found == self.data[start..end]);
    }

    /// Neighbouring columns of a row group.
    async fn columns(&self, row_group: usize, columns: std::ops::Range<usize>) {
        let group_bytes: usize = self.chunks.iter().sum();
        let before: usize = self.chunks[..columns.start].iter().sum();
        let start = 4 + row_group * group_bytes + before;
        let bytes: usize = self.chunks[columns].iter().sum();
        let found = read(&self.reader, &self.query, start, bytes).await;
        assert!(found == self.data[start..start + bytes]);
    }

    /// Requests, and bytes that were fetched in vain, when all is over.
    fn end(self) -> (usize, u64) {
        let Scan { bench, query, reader, .. } = self;
        drop(reader);
        query.cancel();
        let wasted = query.metrics().get(Metric::ReadAheadWastedBytes);
        (bench.store.take_calls().len(), wasted)
    }
}

#[tokio::test(start_paused = true)]
async fn two_hundred_small_row_groups_take_a_few_dozen_requests() {
    const GROUPS: usize = 200;
    let scan = Scan::of(GROUPS, &[33 * KIB; 3]).await;
    let begun = Instant::now();
    for row_group in 0..GROUPS {
        scan.columns(row_group, 0..3).await;
    }
    let round_trips = begun.elapsed().as_millis() / LATENCY.as_millis();
    let (requests, wasted) = scan.end();
    assert!(requests <= 50, "{requests} requests");
    assert!(round_trips <= 9, "{round_trips} round trips");
    assert_eq!(wasted, 0);
}
/// A filter on a column that leaves rows in some row groups: the others are read of those only.
#[tokio::test(start_paused = true)]
async fn a_filters_column_is_ahead_while_others_are_read_here_and_there() {
    const GROUPS: usize = 60;
    let (x, y, text) = (1..2, 2..3, 3..4);
    let chunks = [300 * KIB, 900 * KIB, 500 * KIB, 1800 * KIB];
    for every in [2, 3, 7] {
        let scan = Scan::of(GROUPS, &chunks).await;
        let (mut waits, mut used) = ([0; 3], 0);
        for row_group in 0..GROUPS {
            let matches = row_group % every == 0;
            let reads = [Some(&y), matches.then_some(&text), matches.then_some(&x)];
            for (index, columns) in reads.into_iter().enumerate() {
                let Some(columns) = columns else { continue };
                let begun = Instant::now();
                used += chunks[columns.start] as u64;
                scan.columns(row_group, columns.clone()).await;
                waits[index] += begun.elapsed().as_millis() / LATENCY.as_millis();
                // It is worked on.
                tokio::time::sleep(LATENCY / 5).await;
            }
        }
        let (_, wasted) = scan.end();
        let matching = GROUPS.div_ceil(every) as u128;
        // Nothing but reading tells whether rows are left; then the others come together.
        assert!(waits[0] <= 4 && waits[1] <= matching && waits[2] <= 2, "{every}: {waits:?}");
        assert!(wasted <= used / 10, "{every}: {wasted} of {used}");
    }
}

/// With a footer that is longer than what opening brings.
#[tokio::test(start_paused = true)]
async fn ten_thousand_tiny_row_groups_take_a_few_dozen_requests() {
    const GROUPS: usize = 10_000;
    let scan = Scan::of(GROUPS, &[KIB; 4]).await;
    scan.footer().await;
    for row_group in 0..GROUPS {
        for column in (0..4).rev() {
            scan.columns(row_group, column..column + 1).await;
        }
    }
    let (requests, wasted) = scan.end();
    assert!(requests <= 60, "{requests} requests");
    assert_eq!(wasted, 0);
}

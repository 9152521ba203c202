//! Scans whose reads go through DuckDB's external file cache, as `caching_file_system.cpp` of
//! DuckDB 1.5 does it: what is there is not read, and a read is widened up to what is there.

use super::file::GAP_BYTES_MAX;
use super::*;
use crate::query::WASTE_PARTS;
use crate::read::scan::allowance::WASTE_BYTES_MIN;
use proptest::prelude::*;
use std::collections::BTreeMap;

const WIDENED_BYTES_MAX: u64 = 1 << 20;
const WINDOW_BYTES: u64 = 20 << 20;
const FIRST_BYTES: u64 = 8 << 20;
const CHUNK_BYTES_MAX: u64 = 300 << 10;

/// What DuckDB has of one file: ends of ranges by their start.
#[derive(Default)]
struct Cached(BTreeMap<u64, u64>);

impl Cached {
    /// The reads that a file system sees when this range is wanted.
    fn reads(&mut self, wanted: ByteRange) -> Vec<ByteRange> {
        let ranges = self.0.iter().map(|(start, end)| ByteRange { start: *start, end: *end });
        let known: Vec<_> = ranges.filter(|range| range.overlaps(&wanted)).collect();
        if known.iter().any(|range| range.contains(&wanted)) {
            return Vec::new();
        }
        let mut read = wanted;
        if let Some((next, _)) = self.0.range(wanted.end..).next()
            && next - wanted.end <= wanted.len().min(WIDENED_BYTES_MAX)
        {
            read.end = *next;
        }
        self.0.insert(read.start, read.end);
        let mut missing = Vec::new();
        let mut at = read.start;
        for range in known {
            if range.start > at {
                missing.push(ByteRange { start: at, end: range.start });
            }
            at = at.max(range.end);
        }
        if at < read.end {
            missing.push(ByteRange { start: at, end: read.end });
        }
        if missing.len() <= 1 { missing } else { vec![read] }
    }
}

/// Files of a glob that are alike, and what is read of each row group.
#[derive(Clone, Debug)]
struct Shape {
    files: usize,
    row_groups: Vec<Vec<ByteRange>>,
    /// What a file's reader, and the scan, know from the footer on.
    tail_start: u64,
    columns: Vec<usize>,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let sizes = (1usize..8, 1usize..12).prop_flat_map(|(columns, row_groups)| {
        let chunks = prop::collection::vec(1u64 << 10..CHUNK_BYTES_MAX, columns);
        let wanted = prop::sample::subsequence((0..columns).collect::<Vec<_>>(), 1..=columns);
        (Just(row_groups), chunks, wanted, 1u64..100, 0u64..64 << 10, 2usize..30)
    });
    sizes.prop_map(|(row_groups, chunks, columns, last_percent, tail_bytes, files)| {
        let mut at = 4;
        let mut group = |percent: u64| {
            let chunk = chunks.iter().map(|bytes| {
                let start = at;
                at += (bytes * percent / 100).max(1);
                ByteRange { start, end: at }
            });
            chunk.collect::<Vec<_>>()
        };
        let mut groups: Vec<_> = (1..row_groups).map(|_| group(100)).collect();
        // What is left of the rows.
        groups.push(group(last_percent));
        let tail_start = at.saturating_sub(tail_bytes).max(4);
        Shape { files, row_groups: groups, tail_start, columns }
    })
}

/// Neighbouring columns as one range, as DuckDB reads them.
fn merged(chunks: &[ByteRange], columns: &[usize]) -> Vec<ByteRange> {
    let mut ranges: Vec<ByteRange> = Vec::new();
    for column in columns {
        match ranges.last_mut() {
            Some(last) if chunks[*column].start <= last.end + GAP_BYTES_MAX => {
                last.end = chunks[*column].end;
            }
            _ => ranges.push(chunks[*column]),
        }
    }
    ranges
}

/// What became of a scan.
struct Outcome {
    reads: usize,
    /// Reads of which something had to be fetched on demand.
    waited: usize,
    read_bytes: u64,
    /// Fetched ahead in vain.
    wasted_bytes: u64,
}

fn run(shape: &Shape) -> Outcome {
    let layout = Arc::new(Layout::new(shape.row_groups.clone(), shape.tail_start, u64::MAX));
    let mut scan = Scan::new(FIRST_BYTES);
    (0..shape.files).for_each(|file| scan.learn(file, Arc::clone(&layout)));
    // By file and first byte: the end of what was fetched ahead, and whether it was read.
    let mut ahead: BTreeMap<(usize, u64), (u64, bool)> = BTreeMap::new();
    let (mut reads, mut waited) = (0, 0);
    for file in 0..shape.files {
        let mut cached = Cached(BTreeMap::from([(shape.tail_start, u64::MAX)]));
        for chunks in &shape.row_groups {
            // DuckDB takes the last ones first.
            let wanted = merged(chunks, &shape.columns).into_iter().rev();
            for read in wanted.flat_map(|range| cached.reads(range)).collect::<Vec<_>>() {
                assert!(!scan.read(file as u64, file, read), "begun anew");
                let mine = ahead.range_mut((file, 0)..(file + 1, 0));
                let found = mine.filter(|((_, start), (end, _))| {
                    ByteRange { start: *start, end: *end }.overlaps(&read)
                });
                let found: u64 = found
                    .map(|((_, start), (end, is_read))| {
                        *is_read = true;
                        read.end.min(*end) - read.start.max(*start)
                    })
                    .sum();
                (reads, waited) = (reads + 1, waited + usize::from(found < read.len()));
                pull(&mut scan, &mut ahead);
                scan.done(file as u64, file, read);
                pull(&mut scan, &mut ahead);
            }
        }
        scan.closed(file as u64);
    }
    let unread = ahead.iter().filter(|(_, (_, is_read))| !is_read);
    let wasted_bytes = unread.map(|((_, start), (end, _))| end - start).sum();
    Outcome { reads, waited, read_bytes: scan.read_bytes, wasted_bytes }
}

fn pull(scan: &mut Scan, ahead: &mut BTreeMap<(usize, u64), (u64, bool)>) {
    let pending = ahead.iter().filter(|(_, (_, is_read))| !is_read);
    let pending: u64 = pending.map(|((_, start), (end, _))| end - start).sum();
    let mut left = scan.allowed_bytes(WINDOW_BYTES).saturating_sub(pending);
    while let Some(wanted) = scan.next(left, 0) {
        left -= wanted.span.len();
        let place = (wanted.unit.file, wanted.span.start);
        assert!(ahead.insert(place, (wanted.span.end, false)).is_none(), "begun twice");
    }
}

proptest! {
    /// Row groups that lie in the end of the file, that a read is widened into or that it takes in
    /// whole: the scan waits in its first files, and seldom in
    /// others.
    #[test]
    fn a_glob_is_followed_through_the_external_file_cache(shape in shapes()) {
        let Outcome { reads, waited, read_bytes, wasted_bytes } = run(&shape);
        let first_files = 3 * shape.row_groups.len() * shape.columns.len();
        prop_assert!(waited <= first_files + reads / 4, "{waited} of {reads} reads waited");
        // And what was ahead when that much was known to be in vain.
        let bound = WASTE_BYTES_MIN + read_bytes / WASTE_PARTS + FIRST_BYTES;
        prop_assert!(wasted_bytes <= bound, "{wasted_bytes} of {read_bytes} bytes in vain");
    }
}

//! Reads of a wrapped system, from the query's settings to the bytes.

use super::*;
use crate::Engine;
use penstock_base::Settings;
use std::collections::BTreeSet;
use std::sync::Barrier;

fn query(settings: &[(&str, &str)]) -> Query {
    let mut chosen = Settings::default();
    for (name, value) in settings {
        chosen.set(name, value).unwrap();
    }
    Engine::new(Settings::default()).unwrap().query(chosen, None)
}

const FIXED: (&str, &str) = ("parallel_read_auto_fanout_enabled", "false");
const LEN: u64 = 64 << 20;
const OWN: OwnFile = OwnFile { is_shared: false, files_used: 1, is_connected: true, bytes_read: 0 };

fn range() -> ByteRange {
    ByteRange { start: 7, end: 7 + LEN }
}

/// The sub-reads of one read, by where they begin.
fn sub_reads(reads: &ParallelReads, query: &Query, own_is_shared: bool) -> Vec<SubRead> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let record = Arc::new(move |sub: SubRead| {
        told.lock().unwrap().push(sub);
        true
    });
    assert!(reads.read(query, range(), OwnFile { is_shared: own_is_shared, ..OWN }, record));
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_by_key(|sub| sub.range.start);
    seen
}

#[test]
fn the_parts_of_a_read_are_on_their_way_at_once() {
    let query = query(&[FIXED]);
    let reads = ParallelReads::new("S3FileSystem");
    let meeting = Arc::new(Barrier::new(4));
    let wait = Arc::new(move |_: SubRead| {
        meeting.wait();
        true
    });
    assert!(reads.read(&query, range(), OWN, wait));
    assert_eq!(query.metrics().get(Metric::WrappedReadsSplit), 1);
    assert_eq!(query.metrics().get(Metric::WrappedSubReads), 4);
}

#[test]
fn the_first_read_is_alone_where_servers_may_know_no_ranges() {
    for (system, alone) in [("HTTPFileSystem", 1), ("unknown", 1), ("S3FileSystem", 4)] {
        let query = query(&[FIXED]);
        let reads = ParallelReads::new(system);
        for (files_used, parts) in [(0, alone), (1, 4)] {
            let seen = Arc::new(Mutex::new(0));
            let count = Arc::clone(&seen);
            let record = Arc::new(move |_: SubRead| {
                *count.lock().unwrap() += 1;
                true
            });
            assert!(reads.read(&query, range(), OwnFile { files_used, ..OWN }, record));
            assert_eq!(*seen.lock().unwrap(), parts, "{system}");
        }
    }
}

#[test]
fn handles_are_shared_where_the_system_allows_it() {
    let handles = |system: &str, own_is_shared: bool, settings: &[(&str, &str)]| {
        let query = query(settings);
        let reads = ParallelReads::new(system);
        let subs = sub_reads(&reads, &query, own_is_shared);
        assert_eq!(subs.len(), 4);
        assert_eq!(subs[3].handle, 0, "the caller reads the last part");
        subs.iter().map(|sub| sub.handle).collect::<BTreeSet<_>>().len()
    };
    assert_eq!(handles("AzureBlobStorageFileSystem", false, &[FIXED]), 2);
    assert_eq!(handles("AzureBlobStorageFileSystem", true, &[FIXED]), 1);
    let dedicated = ("parallel_read_dedicated_handles", "true");
    assert_eq!(handles("AzureBlobStorageFileSystem", true, &[FIXED, dedicated]), 4);
    assert_eq!(handles("S3FileSystem", true, &[FIXED]), 4);
    assert_eq!(handles("somebody's file system", true, &[FIXED]), 4);
}

#[test]
fn a_read_is_one_call_on_this_thread_where_nothing_may_be_split() {
    let alone: [&[(&str, &str)]; 3] = [
        &[FIXED, ("parallel_read_enabled", "false")],
        &[FIXED, ("parallel_read_max_fanout", "1")],
        &[FIXED, ("parallel_read_min_bytes", "1GiB")],
    ];
    for settings in alone {
        let query = query(settings);
        let reads = ParallelReads::new("S3FileSystem");
        assert!(!reads.may_split(&query, LEN));
        let subs = sub_reads(&reads, &query, false);
        assert_eq!(subs, [SubRead { handle: 0, range: range() }]);
    }
}

#[test]
fn a_split_is_tried_where_the_files_for_it_are_open() {
    // 100 ms away, and 200 for a plain read: the setting's penalty, 50 ms, leaves no clear gain.
    for (system, files_used, parts) in [
        ("S3FileSystem", 1, 1),
        ("S3FileSystem", 2, 2),
        ("AzureBlobStorageFileSystem", 1, 1),
        ("AzureBlobStorageFileSystem", 2, 2),
    ] {
        let query = query(&[]);
        let reads = ParallelReads::new(system);
        let policy = Policy::of(query.settings());
        reads.observe_open(Duration::from_millis(100));
        let plain = Seen { len: LEN, fanout: 1, took_ms: 200.0, load: None, is_cold: false };
        reads.learner().observe(&policy, &plain);
        let seen = Arc::new(Mutex::new(0));
        let count = Arc::clone(&seen);
        let record = Arc::new(move |_: SubRead| {
            *count.lock().unwrap() += 1;
            true
        });
        assert!(reads.read(&query, range(), OwnFile { files_used, ..OWN }, record));
        assert_eq!(*seen.lock().unwrap(), parts, "{system}");
    }
}

#[test]
fn a_first_read_is_split_only_where_a_plain_one_would_connect_as_well() {
    for (is_connected, parts) in [(true, 1), (false, 3)] {
        let query = query(&[]);
        let reads = ParallelReads::new("S3FileSystem");
        assert!(reads.observe_open(Duration::from_millis(300)));
        let seen = Arc::new(Mutex::new(0));
        let count = Arc::clone(&seen);
        let record = Arc::new(move |_: SubRead| {
            *count.lock().unwrap() += 1;
            true
        });
        let range = ByteRange { start: 0, end: 46_000_000 };
        let own = OwnFile { files_used: 0, is_connected, ..OWN };
        assert!(reads.read(&query, range, own, record));
        assert_eq!(*seen.lock().unwrap(), parts);
    }
}

#[test]
fn a_failed_or_panicking_part_fails_the_read_when_all_have_ended() {
    let query = query(&[FIXED]);
    let reads = ParallelReads::new("S3FileSystem");
    for panics in [false, true] {
        let ended = Arc::new(Mutex::new(0));
        let count = Arc::clone(&ended);
        let fail_first = Arc::new(move |sub: SubRead| {
            *count.lock().unwrap() += 1;
            let is_first = sub.range.start == 7;
            assert!(!(is_first && panics), "meant to panic");
            !is_first
        });
        assert!(!reads.read(&query, range(), OWN, fail_first));
        assert_eq!(*ended.lock().unwrap(), 4);
    }
}

#[test]
fn a_busy_pool_leaves_the_read_whole() {
    let query = query(&[FIXED, ("parallel_read_io_threads", "2")]);
    let reads = ParallelReads::new("S3FileSystem");
    let taken = query.engine().pool.reserve(2, 2);
    assert_eq!(sub_reads(&reads, &query, false).len(), 1);
    drop(taken);
    assert_eq!(sub_reads(&reads, &query, false).len(), 3);
}

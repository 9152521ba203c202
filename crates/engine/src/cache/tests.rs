//! The disk cache on a real directory: what comes back is what was offered, or nothing.

mod moving;
mod noting;
pub(super) mod watched;

use super::disk::{Counts, DiskCache};
use super::home::Home;
use super::index::ObjectVersion;
use crate::budget::Budget;
use crate::engine::Engine;
use crate::query::Query;
use bytes::Bytes;
use penstock_base::{ByteRange, Kind, Metric, Metrics, Result, Settings};
use penstock_device::{Discipline, Io, OpenOptions, Port};
use penstock_testkit::scratch::Scratch;
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn version(name: &str) -> ObjectVersion {
    ObjectVersion {
        name: format!("https://h/b/{name}").into(),
        etag: "e1".into(),
        size_bytes: 1 << 40,
    }
}

/// Bytes of an object, other ones at every place.
fn bytes(start: u64, len: u64) -> Bytes {
    (start..start + len).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

fn open(path: &Path, capacity_bytes: u64) -> Result<Arc<DiskCache>> {
    open_for(path, capacity_bytes, &Arc::default())
}

fn open_for(path: &Path, capacity_bytes: u64, metrics: &Arc<Metrics>) -> Result<Arc<DiskCache>> {
    DiskCache::open(&Home::Directory(path.to_path_buf()), capacity_bytes, metrics)
}

fn offer(cache: &DiskCache, name: &str, start: u64, len: u64) {
    let budget = Budget::new(1 << 30, Arc::new(Metrics::default()));
    let lease = budget.try_lease(len).unwrap();
    cache.offer(&version(name), start, &bytes(start, len), lease, || false);
}

/// What the cache has of a range, each byte judged: how many there were.
fn check(cache: &DiskCache, name: &str, range: ByteRange) -> u64 {
    let mut count = 0;
    for found in cache.find(&version(name), range) {
        let start = found.block.start.max(range.start);
        let len = found.block.end.min(range.end) - start;
        let mut buf = vec![0; len as usize];
        if cache.read(&version(name), &found, start, &mut buf) {
            assert_eq!(buf, bytes(start, len), "{range:?} at {start}");
            count += len;
        }
    }
    count
}

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange { start, end }
}

fn copy_dir(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

#[test]
fn what_was_offered_is_there_at_once_and_after_a_restart() {
    let dir = Scratch::new("cache");
    let cache = open(dir.path(), 64 * MIB).unwrap();
    offer(&cache, "a", 100, 3 * MIB);
    assert_eq!(check(&cache, "a", range(0, 4 * MIB)), 3 * MIB);
    assert_eq!(check(&cache, "b", range(0, 4 * MIB)), 0);
    cache.flush();
    assert_eq!(check(&cache, "a", range(200, 300)), 100);
    // Offered again, only what is new is taken.
    offer(&cache, "a", 0, 4 * MIB);
    cache.flush();
    assert_eq!(cache.holdings().counts.written_bytes, 4 * MIB);
    drop(cache);
    let cache = open(dir.path(), 64 * MIB).unwrap();
    assert_eq!(check(&cache, "a", range(0, 5 * MIB)), 4 * MIB);
    let other = ObjectVersion { etag: "e2".into(), ..version("a") };
    assert!(cache.find(&other, range(0, 4 * MIB)).is_empty(), "another version");
}

#[test]
fn a_killed_process_loses_only_what_was_not_written() {
    let (dir, other) = (Scratch::new("cache"), Scratch::new("cache"));
    let cache = open(dir.path(), 64 * MIB).unwrap();
    offer(&cache, "a", 0, 2 * MIB);
    offer(&cache, "b", 7, 11);
    cache.flush();
    // The files as they are now have no directories.
    copy_dir(dir.path(), other.path());
    let recovered = open(other.path(), 64 * MIB).unwrap();
    assert_eq!(check(&recovered, "a", range(0, 2 * MIB)), 2 * MIB);
    assert_eq!(check(&recovered, "b", range(0, 100)), 11);
}

#[test]
fn one_directory_is_one_cache_in_a_process_and_refused_to_others() {
    let dir = Scratch::new("cache");
    let cache = open(dir.path(), 64 * MIB).unwrap();
    let same = open(&dir.path().join("."), 64 * MIB).unwrap();
    assert!(Arc::ptr_eq(&cache, &same));
    // As another copy of this code in the process would.
    let error = super::files::Directory::hold(dir.path()).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    let text = error.to_string();
    assert!(text.contains("another copy of Penstock in this process uses"), "{text}");
    // However often it tries, it opens the lock file once.
    let lock = dir.path().join("penstock-cache.lock");
    let is_lock = |entry: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_link(entry.unwrap().path()).is_ok_and(|path| path == lock)
    };
    (0..3).for_each(|_| drop(super::files::Directory::hold(dir.path()).unwrap_err()));
    let open = std::fs::read_dir("/proc/self/fd").unwrap().map(is_lock).filter(|it| *it).count();
    assert_eq!(open, 2);
    assert!(error.hint().unwrap().contains("its own penstock_cache_dir"));
}

#[test]
fn queries_go_without_a_directory_that_somebody_else_has() {
    let dir = Scratch::new("cache");
    let other = super::files::Directory::hold(dir.path()).unwrap();
    let (slot, metrics) = (super::DiskSlot::default(), Arc::new(Metrics::default()));
    let cache_dir = dir.path().display().to_string();
    let settings = Settings { cache_dir, ..Settings::default() };
    for number in 1..4 {
        assert!(slot.of(&settings, number, &metrics).unwrap().is_none());
    }
    drop(other);
    let settings = Settings { cache_dir: "/dev/null/x".into(), ..settings };
    assert_eq!(slot.of(&settings, 4, &metrics).unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn the_oldest_give_way_and_what_is_read_again_stays() {
    let dir = Scratch::new("cache");
    let cache = open(dir.path(), 16 * MIB).unwrap();
    for index in 0..40 {
        offer(&cache, "cold", index * MIB, MIB);
        if index == 0 {
            offer(&cache, "hot", 0, MIB);
        }
        cache.flush();
        assert_eq!(check(&cache, "hot", range(0, MIB)), MIB, "after {index}");
        assert!(cache.holdings().file_bytes <= 16 * MIB);
    }
    assert_eq!(check(&cache, "cold", range(0, MIB)), 0);
    assert_eq!(check(&cache, "cold", range(39 * MIB, 40 * MIB)), MIB);
    let on_disk: u64 = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(on_disk <= 16 * MIB + 4096, "{on_disk}");
    // A smaller capacity holds from the next block on.
    cache.set_capacity(8 * MIB);
    offer(&cache, "new", 0, 1);
    cache.flush();
    assert!(cache.holdings().file_bytes <= 8 * MIB);
}

#[test]
fn clearing_forgets_everything_and_goes_on() {
    let dir = Scratch::new("cache");
    let cache = open(dir.path(), 64 * MIB).unwrap();
    offer(&cache, "a", 0, MIB);
    cache.flush();
    offer(&cache, "a", MIB, MIB);
    cache.clear();
    cache.flush();
    assert_eq!(check(&cache, "a", range(0, 2 * MIB)), 0);
    assert_eq!((cache.holdings().blocks, cache.holdings().file_bytes), (0, 0));
    offer(&cache, "a", 0, MIB);
    cache.flush();
    assert_eq!(check(&cache, "a", range(0, MIB)), MIB);
    drop(cache);
    let cache = open(dir.path(), 64 * MIB).unwrap();
    assert_eq!(check(&cache, "a", range(0, 2 * MIB)), MIB);
}

#[test]
fn files_of_other_versions_are_removed_and_foreign_ones_left() {
    let dir = Scratch::new("cache");
    let other = dir.path().join("00000000000000aa.blocks");
    let mut head = super::record::head();
    head[8] ^= 3;
    std::fs::write(&other, head).unwrap();
    let foreign = dir.path().join("00000000000000bb.blocks");
    std::fs::write(&foreign, "somebody's own file").unwrap();
    let plain = dir.path().join("notes.txt");
    std::fs::write(&plain, "x").unwrap();
    let cache = open(dir.path(), 64 * MIB).unwrap();
    assert!(!other.exists());
    offer(&cache, "a", 0, MIB);
    cache.flush();
    cache.clear();
    assert!(foreign.exists() && plain.exists());
}

#[test]
fn a_directory_that_cannot_be_made_is_told() {
    let dir = Scratch::new("cache");
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let error = open(&file.join("cache"), 64 * MIB).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("cannot be made"), "{error}");
    assert!(error.hint().unwrap().contains("cache_dir"));
}

/// The kernel refuses new files in `/sys` to everybody, root too: as a directory does that is
/// mounted read-only, or belongs to somebody else.
#[test]
fn a_directory_that_cannot_be_written_is_told_before_anything_is_read() {
    let error = open(Path::new("/sys/kernel"), 64 * MIB).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    let text = error.to_string();
    assert!(text.contains("the directory cannot be written") && text.contains("/sys"), "{text}");
    assert!(error.hint().unwrap().contains("cache_dir"));
    // It is the statement's error, each time, and no other one's.
    let engine = Engine::new(Settings::default()).unwrap();
    let query = |dir: &str| {
        let settings = Settings { cache_dir: dir.to_string(), ..Settings::default() };
        engine.query(settings, None)
    };
    let refused = query("/sys/kernel");
    for _ in 0..2 {
        assert_eq!(refused.core.disk().unwrap_err().kind(), Kind::Invalid);
    }
    assert!(query("").core.disk().unwrap().is_none());
}

/// Two statements with a cache each: neither closes the other one's, and that of the statement that
/// began last stays.
#[test]
fn a_query_keeps_its_cache_and_the_engine_that_of_the_query_that_began_last() {
    let (one, other) = (Scratch::new("cache"), Scratch::new("cache"));
    let engine = Engine::new(Settings::default()).unwrap();
    let query = |dir: &Path| {
        let cache_dir = dir.to_str().unwrap().to_string();
        engine.query(Settings { cache_dir, ..Settings::default() }, None)
    };
    let cache_of = |query: &Query| Arc::downgrade(&query.core.disk().unwrap().unwrap());
    let (first, second) = (query(one.path()), query(other.path()));
    let late = query(one.path());
    // The one that began last may be the first to ask.
    let of_late = cache_of(&late);
    let of_second = cache_of(&second);
    let of_first = cache_of(&first);
    for _ in 0..3 {
        assert!(of_first.ptr_eq(&cache_of(&first)) && of_second.ptr_eq(&cache_of(&second)));
        assert!(of_first.ptr_eq(&of_late) && of_second.strong_count() == 1);
    }
    drop((first, second, late));
    assert_eq!((of_late.strong_count(), of_second.strong_count()), (1, 0));
    // A statement without a cache closes it.
    let none = engine.query(Settings::default(), None);
    assert!(none.core.disk().unwrap().is_none());
    assert_eq!(of_late.strong_count(), 0);
}

#[test]
fn a_device_is_opened_as_the_settings_say_and_stays_open_so() {
    let dir = Scratch::new("cache");
    let path = dir.path().join("c.img");
    let options = OpenOptions { create_bytes: Some(32 * MIB), ..OpenOptions::new(Io::File) };
    let device = penstock_device::open(&path, &options).unwrap();
    super::format_device(&Port::new(device, Discipline::Sync).unwrap(), false).unwrap();
    let engine = Engine::new(Settings::default()).unwrap();
    let query = |nvme_io: &str| {
        let (cache_dir, nvme_io) = (format!("nvme://{}", path.display()), nvme_io.to_string());
        engine.query(Settings { cache_dir, nvme_io, ..Settings::default() }, None)
    };
    let error = query("passthrough").core.disk().unwrap_err();
    assert!(error.to_string().contains("/dev/ng0n1"), "{error}");
    let cache = query("file").core.disk().unwrap().unwrap();
    for nvme_io in ["file", "direct"] {
        assert!(Arc::ptr_eq(&cache, &query(nvme_io).core.disk().unwrap().unwrap()));
    }
}

#[test]
fn a_cache_follows_no_change_of_the_working_directory_and_leaves_other_files() {
    let dir = Scratch::new("cache");
    let foreign = dir.path().join("0000000000000000.blocks");
    std::fs::write(&foreign, "somebody's own file").unwrap();
    let relative = Path::new("/proc/self/cwd");
    let there = std::env::current_dir().unwrap();
    assert_eq!(super::files::Directory::make(relative).unwrap(), there.canonicalize().unwrap());
    let cache = open(dir.path(), 64 * MIB).unwrap();
    offer(&cache, "a", 0, MIB);
    cache.flush();
    assert_eq!(cache.holdings().counts.written_bytes, MIB, "under another number");
    cache.clear();
    assert_eq!(std::fs::read_to_string(&foreign).unwrap(), "somebody's own file");
}

#[test]
fn opening_waits_for_the_one_that_is_closing() {
    let dir = Scratch::new("cache");
    // Others come and go meanwhile.
    let others = || {
        let dir = Scratch::new("cache");
        for _ in 0..100 {
            drop(open(dir.path(), 64 * MIB).unwrap());
        }
    };
    let rounds = || {
        for _ in 0..50 {
            let cache = open(dir.path(), 64 * MIB).unwrap();
            offer(&cache, "a", 0, 1000);
            assert_eq!(check(&cache, "a", range(0, 1000)), 1000);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(rounds);
            scope.spawn(others);
        }
    });
}

#[test]
fn a_directory_that_vanishes_costs_no_read() {
    let dir = Scratch::new("cache");
    let metrics: Arc<Metrics> = Arc::default();
    let cache = open_for(&dir.path().join("c"), 64 * MIB, &metrics).unwrap();
    offer(&cache, "a", 0, MIB);
    cache.flush();
    std::fs::remove_dir_all(dir.path().join("c")).unwrap();
    // Blocks on files that are still open can be read; new files cannot be made.
    assert_eq!(check(&cache, "a", range(0, MIB)), MIB);
    for index in 1..8 {
        offer(&cache, "a", index * MIB, MIB);
        cache.flush();
    }
    let Counts { written_bytes, failed_blocks, .. } = cache.holdings().counts;
    assert_eq!(written_bytes / MIB + failed_blocks, 8);
    assert!(failed_blocks > 0);
    assert_eq!(metrics.get(Metric::CacheDiskBlocksFailed), failed_blocks);
}

/// Somebody removes all that is in the directory of a running process: who opens it then has it.
#[test]
fn a_directory_that_was_emptied_is_opened_anew_and_left_alone_by_who_had_it() {
    let dir = Scratch::new("cache");
    let (path, metrics) = (dir.path().join("c"), Arc::<Metrics>::default());
    let before = open_for(&path, 64 * MIB, &metrics).unwrap();
    offer(&before, "a", 0, MIB);
    before.flush();
    std::fs::remove_dir_all(&path).unwrap();
    assert!(!before.is_held());
    let cache = open(&path, 64 * MIB).unwrap();
    assert!(cache.is_held() && !Arc::ptr_eq(&before, &cache));
    offer(&cache, "b", 0, MIB);
    cache.outdate(&version("b").name);
    offer(&cache, "c", 0, MIB);
    cache.flush();
    let names = || {
        let entries = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap());
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        names
    };
    let there = names();
    assert_eq!(there.len(), 3, "blocks, a lock and a note: {there:?}");
    // It may read on; what it makes, removes and notes would be in what is not its own.
    assert_eq!(check(&before, "a", range(0, MIB)), MIB);
    for index in 1..8 {
        offer(&before, "a", index * MIB, MIB);
    }
    before.flush();
    before.outdate(&version("a").name);
    offer(&before, "d", 0, MIB);
    before.flush();
    before.clear();
    offer(&before, "a", 0, MIB);
    before.flush();
    assert!(metrics.get(Metric::CacheDiskBlocksFailed) > 0);
    drop(before);
    assert_eq!(names(), there);
    drop(cache);
    let cache = open(&path, 64 * MIB).unwrap();
    assert_eq!(check(&cache, "b", range(0, MIB)), MIB);
    assert!(cache.is_outdated(&version("b")) && !cache.is_outdated(&version("a")));
}

/// Each byte of a small file changed in turn, and the file cut behind each of them.
#[test]
fn no_damaged_byte_is_ever_read() {
    const BLOCKS: u64 = 4;
    const LEN: u64 = 24;
    for is_closed in [false, true] {
        let dir = Scratch::new("cache");
        let cache = open(dir.path(), 64 * MIB).unwrap();
        for index in 0..BLOCKS {
            offer(&cache, "a", index * 100, LEN);
        }
        cache.flush();
        let name = "0000000000000000.blocks";
        let cache = Some(cache).filter(|_| !is_closed);
        let sound = std::fs::read(dir.path().join(name)).unwrap();
        drop(cache);
        let found = |content: &[u8]| {
            let dir = Scratch::new("cache");
            std::fs::write(dir.path().join(name), content).unwrap();
            let recovered = open(dir.path(), 64 * MIB).unwrap();
            check(&recovered, "a", range(0, 1000))
        };
        assert_eq!(found(&sound), BLOCKS * LEN);
        for at in 0..sound.len() {
            for change in [1, 0x80, 0xff] {
                let mut content = sound.clone();
                content[at] ^= change;
                let count = found(&content);
                if is_closed {
                    // Its directory has the others, unless it is not taken for ours at all.
                    assert!(count >= (BLOCKS - 1) * LEN || at < 16, "{count} at {at}");
                }
            }
            found(&sound[..at]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever byte of a file is changed, or wherever it is cut: a block comes back as it was
    /// offered, or not at all.
    #[test]
    fn damage_is_never_read(
        at: prop::sample::Index,
        change in 1u8..,
        cut: Option<prop::sample::Index>,
        is_closed: bool,
    ) {
        let (dir, other) = (Scratch::new("cache"), Scratch::new("cache"));
        let cache = open(dir.path(), 64 * MIB).unwrap();
        for index in 0..20 {
            offer(&cache, "a", index * 1000, 999);
        }
        cache.flush();
        if is_closed {
            drop(cache);
        }
        copy_dir(dir.path(), other.path());
        let file = other.path().join("0000000000000000.blocks");
        let mut content = std::fs::read(&file).unwrap();
        if let Some(cut) = cut {
            content.truncate(cut.index(content.len()).max(1));
        }
        let at = at.index(content.len());
        content[at] ^= change;
        std::fs::write(&file, content).unwrap();
        let recovered = open(other.path(), 64 * MIB).unwrap();
        let count = check(&recovered, "a", range(0, 20_000));
        if cut.is_none() && is_closed {
            prop_assert!(count >= 18 * 999 || at < 16, "{count} at {at}");
        }
        // And the cache goes on.
        offer(&recovered, "b", 0, 100);
        recovered.flush();
        prop_assert_eq!(check(&recovered, "b", range(0, 100)), 100);
    }
}

//! What is noted of objects that change, on disks that take it, or do not.

use super::watched::{Step, Watched};
use super::{MIB, check, offer, open, range, version};
use crate::cache::disk::DiskCache;
use crate::cache::outdated::{HASHES_MAX, Noted};
use penstock_testkit::scratch::Scratch;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;

/// What a disk does wrong, and did.
#[derive(Debug, Default)]
struct Faults {
    /// Of the next notes.
    notes: VecDeque<ErrorKind>,
    removals: Option<ErrorKind>,
    settling: Option<ErrorKind>,
    /// Notes that were written, and settled removals.
    noted: Vec<Noted>,
    settled: usize,
}

impl Faults {
    fn before(&mut self, step: Step<'_>) -> io::Result<()> {
        let fault = match &step {
            Step::Create => None,
            Step::Remove => self.removals,
            Step::Settle => self.settling,
            Step::Note(_) => self.notes.pop_front(),
        };
        if let Some(kind) = fault {
            return Err(kind.into());
        }
        match step {
            Step::Create | Step::Remove => {}
            Step::Settle => self.settled += 1,
            Step::Note(noted) => self.noted.push(noted.clone()),
        }
        Ok(())
    }
}

/// A cache in which these objects have half a file each.
fn cache(dir: &Path, names: &[&str]) -> (Arc<DiskCache>, Arc<Mutex<Faults>>) {
    cache_of_notes(dir, names, HASHES_MAX)
}

/// The same that notes so many versions one by one.
fn cache_of_notes(
    dir: &Path,
    names: &[&str],
    hashes_max: usize,
) -> (Arc<DiskCache>, Arc<Mutex<Faults>>) {
    let faults = Arc::<Mutex<Faults>>::default();
    let own = Arc::clone(&faults);
    let mut medium = Watched::new(dir, move |step| own.lock().unwrap().before(step));
    (medium.file_bytes, medium.hashes_max) = (Some(MIB), hashes_max);
    let cache = Arc::new(DiskCache::on(Box::new(medium), 64 * MIB).unwrap());
    names.iter().for_each(|name| offer(&cache, name, 0, MIB / 2 - 1000));
    cache.flush();
    (cache, faults)
}

/// Begins and ends a change as far as the cache is concerned; whether it had to wait.
async fn change(cache: &Arc<DiskCache>, name: &str) -> io::Result<bool> {
    let names = [version(name).name.to_string()];
    let is_news = cache.change_begins(&names);
    let noted = match is_news {
        true => Arc::clone(cache).noted(&Handle::current(), Duration::from_secs(60)).await,
        false => Ok(()),
    };
    cache.change_ends(&names);
    noted.map(|()| is_news)
}

fn is_present(cache: &DiskCache, name: &str) -> Option<bool> {
    cache.latest(&version(name).name).map(|found| found.1)
}

#[tokio::test]
async fn where_nothing_can_be_noted_nor_removed_no_change_goes_on() {
    let dir = Scratch::new("cache");
    let (cache, faults) = cache(dir.path(), &["a", "b"]);
    faults.lock().unwrap().removals = Some(ErrorKind::ReadOnlyFilesystem);
    faults.lock().unwrap().notes.extend([ErrorKind::ReadOnlyFilesystem; 3]);
    // Also of an object of which nothing is known any more: it may be in a file that stayed.
    for name in ["a", "a", "c"] {
        let error = change(&cache, name).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem, "{name}");
    }
    // The disk takes notes again: what stayed counts for nothing.
    assert!(change(&cache, "c").await.unwrap());
    assert!(!change(&cache, "b").await.unwrap(), "all are noted");
    drop(cache);
    let cache = open(dir.path(), 64 * MIB).unwrap();
    assert_eq!(["a", "b"].map(|name| is_present(&cache, name)), [Some(false); 2]);
}

/// Whoever takes the directory next finds its files, and no note.
#[tokio::test]
async fn where_only_the_lock_file_was_removed_no_change_goes_on() {
    let dir = Scratch::new("cache");
    let cache = open(dir.path(), 64 * MIB).unwrap();
    offer(&cache, "a", 0, MIB);
    cache.flush();
    std::fs::remove_file(dir.path().join("penstock-cache.lock")).unwrap();
    let error = change(&cache, "a").await.unwrap_err();
    assert!(error.to_string().contains("the lock file of the cache was removed"), "{error}");
    // Opened anew it is this process's again.
    let cache = open(dir.path(), 64 * MIB).unwrap();
    assert_eq!(is_present(&cache, "a"), Some(true));
    assert!(change(&cache, "a").await.unwrap());
    assert_eq!(is_present(&cache, "a"), Some(false));
}

/// A file that a power cut brings back would have no mark.
#[tokio::test]
async fn what_was_removed_stays_so_before_anything_changes() {
    let dir = Scratch::new("cache");
    let (cache, faults) = cache(dir.path(), &["a", "b", "c"]);
    let mut survivors = cache.shared.forget_oldest(&cache.shared.noting.lock().unwrap(), None);
    assert!(survivors.take().unwrap().survivors.is_empty());
    assert_eq!(["a", "b"].map(|name| is_present(&cache, name)), [None; 2]);
    faults.lock().unwrap().settling = Some(ErrorKind::Other);
    assert_eq!(change(&cache, "a").await.unwrap_err().kind(), ErrorKind::Other);
    faults.lock().unwrap().settling = None;
    assert!(change(&cache, "a").await.unwrap());
    assert!(!change(&cache, "a").await.unwrap());
    assert_eq!(faults.lock().unwrap().settled, 1);
}

#[tokio::test]
async fn a_full_disk_costs_the_oldest_file_and_not_the_cache() {
    let dir = Scratch::new("cache");
    let (cache, faults) = cache(dir.path(), &["a", "b", "c", "d", "e"]);
    faults.lock().unwrap().notes.push_back(ErrorKind::StorageFull);
    assert!(change(&cache, "c").await.unwrap());
    let expected = [None, None, Some(false), Some(true), Some(true)];
    assert_eq!(["a", "b", "c", "d", "e"].map(|name| is_present(&cache, name)), expected);
    assert_eq!(cache.holdings().counts.failed_blocks, 0);
    // Where that is not enough all goes, and the change goes on.
    faults.lock().unwrap().notes.extend([ErrorKind::StorageFull; 2]);
    assert!(change(&cache, "d").await.unwrap());
    assert_eq!(cache.holdings().blocks, 0);
}

#[tokio::test]
async fn a_change_waits_for_the_note_of_its_own_objects_only_and_for_none_that_is_there() {
    let dir = Scratch::new("cache");
    let (cache, faults) = cache_of_notes(dir.path(), &["a", "b", "c"], 1);
    let names = ["a", "new"].map(|name| [version(name).name.to_string()]);
    assert!(cache.change_begins(&names[0]));
    assert!(!cache.change_begins(&names[1]), "nothing is cached of it");
    assert!(cache.change_begins(&names[0]), "it is still not noted");
    for (name, is_news) in [("a", true), ("b", true), ("b", false), ("c", false)] {
        assert_eq!(change(&cache, name).await.unwrap(), is_news, "{name}");
    }
    let noted = faults.lock().unwrap().noted.clone();
    assert!(matches!(&noted[..], [Noted::These(_), Noted::All]), "{noted:?}");
}

/// That everything is noted does not stay so.
#[tokio::test]
async fn what_the_store_confirms_is_known_to_later_processes_again() {
    let dir = Scratch::new("cache");
    let (cache, _) = cache_of_notes(dir.path(), &["a", "b"], 1);
    for name in ["a", "b"] {
        change(&cache, name).await.unwrap();
    }
    drop(cache);
    let cache = open(dir.path(), 64 * MIB).unwrap();
    assert_eq!(["a", "b"].map(|name| is_present(&cache, name)), [Some(false); 2]);
    let (a, b) = (version("a"), version("b"));
    cache.confirm(&a, || false);
    assert_eq!(is_present(&cache, "a"), Some(false), "that was told before it changed");
    let names = [a.name.to_string()];
    cache.change_begins(&names);
    cache.confirm(&a, || true);
    cache.change_ends(&names);
    assert_eq!(is_present(&cache, "a"), Some(false), "it may have changed");
    cache.confirm(&b, || true);
    drop(cache);
    let cache = open(dir.path(), 64 * MIB).unwrap();
    assert_eq!(["a", "b"].map(|name| is_present(&cache, name)), [Some(false), Some(true)]);
    assert_eq!(check(&cache, "b", range(0, MIB)), MIB / 2 - 1000);
}

#[test]
fn a_disk_that_stands_still_ends_changes_and_takes_one_thread() {
    let dir = Scratch::new("cache");
    let (cache, faults) = cache(dir.path(), &["a"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let names = [version("a").name.to_string()];
    // Who notes waits for it.
    let stuck = faults.lock().unwrap();
    assert!(cache.change_begins(&names));
    let noted = || Arc::clone(&cache).noted(runtime.handle(), Duration::from_millis(50));
    let noted = runtime.block_on(futures_util::future::join_all((0..20).map(|_| noted())));
    for noted in noted {
        assert_eq!(noted.unwrap_err().kind(), ErrorKind::TimedOut);
    }
    assert_eq!(Arc::strong_count(&cache), 2, "one that waits on a thread, and this one");
    drop(stuck);
    assert!(runtime.block_on(change(&cache, "a")).is_ok());
    assert_eq!(faults.lock().unwrap().noted.len(), 1);
}

/// A block whose object outgrew it on the way is marked where it is taken, and no other.
#[test]
fn only_what_is_taken_is_marked_as_outgrown() {
    let dir = Scratch::new("cache");
    let (cache, _) = cache(dir.path(), &["a"]);
    for (len, expected) in [(MIB / 4, true), (MIB, false)] {
        let budget = crate::budget::Budget::new(1 << 30, Arc::default());
        let lease = budget.try_lease(len).unwrap();
        cache.offer(&version("a"), 0, &super::bytes(0, len), lease, || true);
        assert_eq!(is_present(&cache, "a"), Some(expected));
    }
}

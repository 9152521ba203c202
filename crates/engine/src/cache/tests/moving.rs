//! Blocks that move, from a file that gives way to another one, while something else happens.

use super::watched::{Step, Watched};
use super::{MIB, check, offer, open, range, version};
use crate::cache::disk::DiskCache;
use penstock_testkit::scratch::Scratch;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A cache in which removing a file takes as long as the test wants: when it has begun, and what
/// ends it.
fn slow(dir: &Path) -> (Arc<DiskCache>, Receiver<()>, Sender<()>) {
    let ((begun, told), (go_on, end)) = (channel(), channel());
    let (begun, end) = (Mutex::new(begun), Mutex::new(end));
    let mut medium = Watched::new(dir, move |step| {
        let is_writer = std::thread::current().name() == Some("penstock-cache");
        if matches!(step, Step::Remove) && is_writer {
            // Once the test has ended nobody listens and nothing is waited for.
            let _ = begun.lock().unwrap().send(());
            let _ = end.lock().unwrap().recv();
        }
        Ok(())
    });
    medium.file_bytes = Some(MIB);
    let cache = Arc::new(DiskCache::on(Box::new(medium), 4 * MIB).unwrap());
    (cache, told, go_on)
}

/// A block of the oldest file is about to move when its object changes: it is in no index then.
#[test]
fn what_moves_while_its_object_changes_is_not_taken_for_it() {
    let dir = Scratch::new("cache");
    let (cache, told, go_on) = slow(dir.path());
    for name in ["hot", "warm"] {
        offer(&cache, name, 0, MIB / 8);
        cache.flush();
        assert_eq!(check(&cache, name, range(0, MIB)), MIB / 8, "used, so worth moving");
    }
    for index in 0..10 {
        offer(&cache, "cold", index * MIB / 2, MIB / 2);
    }
    told.recv_timeout(Duration::from_secs(30)).unwrap();
    let names = [version("hot").name.to_string()];
    assert!(cache.latest(&names[0]).is_none(), "it is on its way");
    cache.change_begins(&names);
    cache.change_ends(&names);
    drop(go_on);
    cache.flush();
    let is_present = |name: &str| cache.latest(&version(name).name).map(|found| found.1);
    assert_eq!([is_present("hot"), is_present("warm")], [Some(false), Some(true)]);
    drop(cache);
    let cache = open(dir.path(), 4 * MIB).unwrap();
    assert_eq!(check(&cache, "hot", range(0, MIB)), MIB / 8);
    let is_present = |name: &str| cache.latest(&version(name).name).map(|found| found.1);
    assert_eq!([is_present("hot"), is_present("warm")], [Some(false), Some(true)]);
}

/// The oldest file is given up for new blocks, and is cleared before what is used of it has moved.
#[test]
fn what_was_about_to_move_when_all_was_cleared_does_not_come_back() {
    let dir = Scratch::new("cache");
    let (cache, told, go_on) = slow(dir.path());
    offer(&cache, "hot", 0, MIB / 4);
    cache.flush();
    assert_eq!(check(&cache, "hot", range(0, MIB)), MIB / 4, "used, so worth moving");
    for index in 0..10 {
        offer(&cache, "cold", index * MIB / 2, MIB / 2);
    }
    // More than there is room for.
    told.recv_timeout(Duration::from_secs(30)).unwrap();
    cache.clear();
    drop(go_on);
    cache.flush();
    let holdings = cache.holdings();
    assert_eq!((holdings.blocks, holdings.file_bytes), (0, 0), "{holdings:?}");
    offer(&cache, "hot", 0, MIB / 4);
    cache.flush();
    assert_eq!(cache.holdings().blocks, 1, "the cache goes on");
}

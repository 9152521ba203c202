//! Versions of what other programs put into the directory.

use super::*;
use crate::VersionsRequest;
use crate::local::versions::{Keeper, MOUNTED};
use crate::local::write::Current;
use crate::streaming::{NULL_VERSION, StreamingStore as _, versioned};
use rustix::fs::MemfdFlags;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::sync::Mutex;
use std::thread::JoinHandle;

/// A large file is synced for seconds.
#[tokio::test]
async fn what_is_kept_while_another_write_is_synced_is_not_lost() {
    let dir = Dir::new();
    let (store, root) = (dir.bucket(), Root::open(dir.0.path(), Scope::Bucket).unwrap());
    // More than any extended attribute holds, and few.
    for (round, len) in [70_000, 1].into_iter().enumerate() {
        let key = format!("{round}/k");
        let at = names::locate(Scope::Bucket, &key).unwrap();
        let _ = fs::remove_file(dir.0.path().join(names::VERSIONING));
        put(&store, &key, "first").await;
        let options = PutOptions { metadata: vec![("m".into(), "x".repeat(len))], ..none() };
        let mut temp = Temp::create(&root, &at).unwrap();
        temp.write(&Bytes::from_static(b"large").into(), &key).unwrap();
        let answered = Arc::new(Mutex::new(None));
        let (told, other, place) = (
            answered.clone(),
            Root::open(dir.0.path(), Scope::Bucket).unwrap(),
            names::locate(Scope::Bucket, &key).unwrap(),
        );
        let switch_and_write = move || {
            let mut told = told.lock().unwrap();
            if told.is_none() {
                versions::set_versioning(&other, true).unwrap();
                let mut small = Temp::create(&other, &place).unwrap();
                small.write(&Bytes::from_static(b"small").into(), "k").unwrap();
                let attributes = Attributes::default();
                let put = small.publish(&other, &place, &WriteCondition::None, &attributes);
                *told = put.unwrap().version;
            }
        };
        let put = durable::seen::meanwhile(switch_and_write, || {
            temp.publish(&root, &at, &WriteCondition::None, &Attributes::of(&options))
        });
        let large = put.unwrap().version.expect("versions are kept by then");
        let small = answered.lock().unwrap().take().expect("it was answered with an id");
        assert_eq!(read(&store, &versioned(&key, &small)).await.unwrap(), "small");
        assert_eq!(read(&store, &versioned(&key, NULL_VERSION)).await.unwrap(), "first");
        assert_eq!(read(&store, &versioned(&key, &large)).await.unwrap(), "large");
        let meta = store.stat(&key).await.unwrap();
        assert_eq!((meta.version, meta.metadata), (Some(large), options.metadata));
    }
    let hidden = |path: &String| path.contains(names::SIDECAR);
    assert_eq!(dir.paths().into_iter().filter(hidden).count(), 1, "{:?}", dir.paths());
}

/// A write that waits for its turn is the latest when it has got it, whatever was written until
/// then.
#[tokio::test]
async fn what_was_marked_while_a_write_waited_is_behind_it() {
    let dir = Dir::new();
    let store = dir.bucket();
    store.set_versioning(true).await.unwrap();
    put(&store, "k", "first").await;
    let at = || names::locate(Scope::Bucket, "k").unwrap();
    let path = dir.0.path().to_path_buf();
    let waiting: Arc<Mutex<Option<JoinHandle<Result<PutResult>>>>> = Arc::default();
    let started = waiting.clone();
    let begin = move || {
        let mut started = started.lock().unwrap();
        // It is in the tree, and the marker not yet.
        if started.is_some() || fs::metadata(path.join("k")).unwrap().nlink() != 2 {
            return;
        }
        let root = Root::open(&path, Scope::Bucket).unwrap();
        *started = Some(std::thread::spawn(move || {
            let mut temp = Temp::create(&root, &at()).unwrap();
            temp.write(&Bytes::from_static(b"waited").into(), "k").unwrap();
            temp.publish(&root, &at(), &WriteCondition::None, &Attributes::default())
        }));
        super::attributes::wait_for_a_waiter(&path.join(names::VERSIONS).join("k"));
    };
    let root = Root::open(dir.0.path(), Scope::Bucket).unwrap();
    let remove = || versions::remove(&root, &at(), None, &WriteCondition::None, None);
    assert!(durable::seen::meanwhile(begin, remove).unwrap().is_marker);
    let waited = waiting.lock().unwrap().take().expect("the version was kept");
    let waited = waited.join().unwrap().unwrap().version;
    let last = put(&store, "k", "to be undone").await.version.unwrap();
    store.remove("k", Some(&last), None).await.unwrap();
    assert_eq!(store.stat("k").await.unwrap().version, waited);
    assert_eq!(read(&store, "k").await.unwrap(), "waited");
}

/// What is told between the question whether versions are kept and the removal.
#[test]
fn a_removal_that_took_no_turn_leaves_what_is_kept_by_now() {
    let dir = Dir::new();
    let root = Root::open(dir.0.path(), Scope::Bucket).unwrap();
    fs::write(dir.0.path().join("k"), "v").unwrap();
    let at = names::locate(Scope::Bucket, "k").unwrap();
    versions::set_versioning(&root, true).unwrap();
    let gone = write::remove(&root, &at, &WriteCondition::None).unwrap();
    assert_eq!(gone, write::Gone::NowKept);
    assert!(dir.0.path().join("k").exists());
    fs::remove_file(dir.0.path().join(names::VERSIONING)).unwrap();
    let gone = write::remove(&root, &at, &WriteCondition::None).unwrap();
    assert_eq!(gone, write::Gone::Removed);
    assert!(!dir.0.path().join("k").exists());
}

/// What other programs rename over an object has no id, however often they do it.
#[tokio::test]
async fn what_other_programs_put_there_is_kept_each_time() {
    let dir = Dir::new();
    let store = dir.bucket();
    store.set_versioning(true).await.unwrap();
    let foreign = |text: &str| {
        fs::write(dir.0.path().join("aside"), text).unwrap();
        fs::rename(dir.0.path().join("aside"), dir.0.path().join("k")).unwrap();
    };
    foreign("of others 1");
    put(&store, "k", "ours 1").await;
    foreign("of others 2");
    put(&store, "k", "ours 2").await;
    foreign("of others 3");
    store.delete("k", None).await.unwrap();
    let request = VersionsRequest { max: 100, ..VersionsRequest::default() };
    let mut found = Vec::new();
    for entry in store.list_versions(&request).await.unwrap().versions {
        if !entry.is_marker {
            found.push((read(&store, &versioned("k", &entry.id)).await.unwrap(), entry.id));
        }
    }
    found.sort();
    let texts: Vec<&str> = found.iter().map(|(text, _)| text.as_str()).collect();
    // What they renamed over is theirs to lose.
    assert_eq!(texts, ["of others 1", "of others 2", "of others 3"]);
    assert_eq!(found[0].1, NULL_VERSION);
    // Their ids stay when one of them becomes current again.
    let marker = store.list_versions(&request).await.unwrap().versions;
    let marker = marker.iter().find(|entry| entry.is_marker).unwrap().id.clone();
    store.remove("k", Some(&marker), None).await.unwrap();
    assert_eq!(read(&store, "k").await.unwrap(), "of others 3");
    let ids = store.list_versions(&request).await.unwrap().versions;
    let latest = ids.iter().find(|entry| entry.is_latest).unwrap();
    assert_eq!(latest.id, found[2].1);
}

/// As where a directory of the bucket is a mount: no version of what lies there can be kept.
#[test]
fn what_lies_on_another_file_system_is_told_so() {
    let dir = Dir::new();
    let root = Root::open(dir.0.path(), Scope::Bucket).unwrap();
    versions::set_versioning(&root, true).unwrap();
    let at = names::locate(Scope::Bucket, "k").unwrap();
    let keeper = Keeper::open(&root, &at).unwrap().unwrap();
    // A file of memory is on a file system of its own, and a link is kept as what it leads to.
    symlink("elsewhere", dir.0.path().join("k")).unwrap();
    let held = rustix::fs::memfd_create("elsewhere", MemfdFlags::CLOEXEC).unwrap();
    let current = Current::File { stat: rustix::fs::fstat(&held).unwrap(), held: Some(held) };
    let place = root.open_dir(".").unwrap();
    assert_eq!(keeper.keep(&root, &current, (&place, &at)), Err(MOUNTED));
}

//! Attributes that are more than an extended attribute holds, and so lie in a file of their own,
//! while their object is replaced, moves, or is left in the middle by a crash.

use super::*;
use crate::local::described::describe;
use crate::streaming::{Revision, VersionsRequest, versioned};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const RETENTION: (&str, &str) = ("@lock-retention", "COMPLIANCE 2099-01-01");

/// More than any extended attribute holds.
fn many() -> PutOptions {
    let big = ("big".to_string(), "x".repeat(70_000));
    let metadata = vec![big, (RETENTION.0.into(), RETENTION.1.into())];
    PutOptions { content_type: Some("a/b".into()), metadata, ..none() }
}

async fn put_many(store: &LocalStore, key: &str) -> PutResult {
    store.put(key, Bytes::from_static(b"v").into(), &many()).await.unwrap()
}

fn sets(pair: (&str, &str)) -> (String, Revision) {
    let text = pair.1.to_string();
    (pair.0.to_string(), Box::new(move |_| Ok(Some(text.clone()))))
}

fn at(key: &str) -> Location {
    names::locate(Scope::Bucket, key).unwrap()
}

fn hidden(dir: &Dir) -> Vec<String> {
    let mut paths = dir.paths();
    paths.retain(|path| path.contains(names::SIDECAR));
    paths
}

/// Waits until somebody waits for the lock of this file.
pub(super) fn wait_for_a_waiter(path: &Path) {
    let inode = format!(":{} ", fs::metadata(path).unwrap().ino());
    let since = Instant::now();
    let waits = || {
        let locks = fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|line| line.contains("-> ") && line.contains(&inode))
    };
    while !waits() {
        assert!(since.elapsed() < Duration::from_secs(60), "nobody waits for {}", path.display());
        std::thread::yield_now();
    }
}

/// A change of the metadata opens the current file, and waits for it while a write keeps it as an
/// earlier version.
#[tokio::test]
async fn who_waits_while_a_version_is_kept_changes_the_new_one_and_nothing_of_the_old() {
    let dir = Dir::new();
    let store = dir.bucket();
    store.set_versioning(true).await.unwrap();
    let first = put_many(&store, "d/k").await.version.unwrap();
    let (path, inside) = (dir.0.path().to_path_buf(), dir.0.path().join("d/k"));
    let waiting: Arc<Mutex<Option<JoinHandle<Result<()>>>>> = Arc::default();
    let started = waiting.clone();
    let begin = move || {
        let mut started = started.lock().unwrap();
        // It has its name in the tree, and that of the object still.
        if started.is_some() || fs::metadata(&inside).unwrap().nlink() != 2 {
            return;
        }
        let root = Root::open(&path, Scope::Bucket).unwrap();
        *started = Some(std::thread::spawn(move || {
            let (name, revision) = sets(("@tagging", "a=b"));
            versions::revise(&root, &at("d/k"), None, (&name, &revision))
        }));
        wait_for_a_waiter(&inside);
    };
    let root = Root::open(dir.0.path(), Scope::Bucket).unwrap();
    let mut temp = Temp::create(&root, &at("d/k")).unwrap();
    temp.write(&Bytes::from_static(b"w").into(), "k").unwrap();
    durable::seen::meanwhile(begin, || {
        temp.publish(&root, &at("d/k"), &WriteCondition::None, &Attributes::of(&many()))
    })
    .unwrap();
    let revised = waiting.lock().unwrap().take().expect("the version was kept");
    revised.join().unwrap().unwrap();
    let old = store.stat(&versioned("d/k", &first)).await.unwrap();
    assert_eq!((old.content_type, old.metadata), (many().content_type, many().metadata));
    let new = store.stat("d/k").await.unwrap();
    assert_ne!(new.version, Some(first));
    let tagging = ("@tagging".to_string(), "a=b".to_string());
    assert_eq!(new.metadata, [many().metadata, vec![tagging]].concat());
}

#[tokio::test]
async fn a_file_whose_name_leads_elsewhere_is_not_told_without_its_attributes() {
    let dir = Dir::new();
    let store = dir.bucket();
    let root = Root::open(dir.0.path(), Scope::Bucket).unwrap();
    for is_kept in [false, true] {
        if is_kept {
            store.set_versioning(true).await.unwrap();
        }
        let first = put_many(&store, "d/k").await;
        let (file, found) = root.open_object(&at("d/k")).unwrap();
        let (_, told) = describe(&root, &found, &file).unwrap().expect("it has its name");
        assert_eq!(told.metadata, many().metadata);
        put(&store, "d/k", "new").await;
        assert_eq!(describe(&root, &found, &file).unwrap(), None, "kept: {is_kept}");
        let Some(id) = first.version else { continue };
        let place = versioned("d/k", &id);
        assert_eq!(store.stat(&place).await.unwrap().metadata, many().metadata);
        // And back: what has the plain name again has nothing left in the tree.
        let new = store.stat("d/k").await.unwrap().version.unwrap();
        store.remove("d/k", Some(&new), None).await.unwrap();
        let meta = store.stat("d/k").await.unwrap();
        assert_eq!((meta.version, meta.metadata), (Some(id), many().metadata));
        assert_eq!(hidden(&dir).len(), 1, "{:?}", dir.paths());
    }
}

#[tokio::test]
async fn lost_attributes_are_an_error_that_says_what_to_do_and_not_none() {
    let dir = Dir::new();
    let store = dir.bucket();
    store.set_versioning(true).await.unwrap();
    let put = put_many(&store, "k").await;
    let sidecar = hidden(&dir).remove(0);
    let aside = dir.0.path().join("saved");
    fs::rename(dir.0.path().join(&sidecar), &aside).unwrap();
    let (id, request) =
        (put.version.unwrap(), VersionsRequest { max: 9, ..VersionsRequest::default() });
    let (_, revision) = sets(("@tagging", "a=b"));
    for (what, error) in [
        ("stat", store.stat("k").await.unwrap_err()),
        ("stat by id", store.stat(&versioned("k", &id)).await.unwrap_err()),
        ("tags", store.revise("k", "@tagging", revision).await.unwrap_err()),
        ("remove", store.remove("k", Some(&id), None).await.unwrap_err()),
    ] {
        assert_eq!(error.kind(), Kind::Corrupt, "{what}: {error}");
        let text = error.to_string();
        assert!(text.contains(names::SIDECAR) && text.contains("/k`"), "{what}: {text}");
    }
    // Brought back, they are those of the object, also when it was kept meanwhile.
    super::put(&store, "k", "new").await;
    let kept = store.list_versions(&request).await.unwrap().versions;
    let kept = kept.iter().find(|entry| !entry.is_latest && entry.key == "k").unwrap();
    let place = versioned("k", &kept.id);
    assert_eq!(store.stat(&place).await.unwrap_err().kind(), Kind::Corrupt);
    fs::rename(&aside, dir.0.path().join(names::VERSIONS).join("k").join(&sidecar)).unwrap();
    assert_eq!(store.stat(&place).await.unwrap().metadata, many().metadata);
}

#[tokio::test]
async fn attributes_are_found_where_a_link_leads() {
    let dir = Dir::new();
    let store = dir.bucket();
    put_many(&store, "d/k").await;
    symlink("k", dir.0.path().join("d/near")).unwrap();
    symlink("d/near", dir.0.path().join("far")).unwrap();
    symlink("../d/e/../k", dir.0.path().join("d/round")).unwrap();
    fs::create_dir(dir.0.path().join("d/e")).unwrap();
    for key in ["d/near", "far", "d/round"] {
        assert_eq!(store.stat(key).await.unwrap().metadata, many().metadata, "{key}");
    }
    let (_, revision) = sets(("@tagging", "a=b"));
    store.revise("far", "@tagging", revision).await.unwrap();
    let metadata = store.stat("d/k").await.unwrap().metadata;
    assert_eq!(metadata.len(), 3, "the change is one of the object");
    // A link that is replaced or removed takes nothing of what it led to away.
    put(&store, "d/near", "w").await;
    store.delete("d/round", None).await.unwrap();
    assert_eq!(store.stat("d/k").await.unwrap().metadata, metadata);
    assert_eq!(hidden(&dir).len(), 1);
}

/// The attributes that an object has each time that a change waits for the disk, and at its end.
fn seen_while(root: &Arc<Root>, change: impl FnOnce()) -> Vec<Attributes> {
    let told = || {
        let root = root.clone();
        move || {
            let (file, found) = root.open_object(&at("k")).unwrap();
            describe(&root, &found, &file).unwrap().expect("it has its name").1
        }
    };
    let (seen, look) = (Arc::new(Mutex::new(Vec::new())), told());
    let note = seen.clone();
    durable::seen::meanwhile(move || note.lock().unwrap().push(look()), change);
    let mut seen = std::mem::take(&mut *seen.lock().unwrap());
    seen.push(told()());
    seen
}

/// A process that is killed leaves what others see meanwhile.
#[tokio::test]
async fn a_change_is_whole_or_not_there_wherever_it_ends() {
    let dir = Dir::new();
    let root = Arc::new(Root::open(dir.0.path(), Scope::Bucket).unwrap());
    put(&dir.bucket(), "k", "v").await;
    let (file, found) = root.open_object(&at("k")).unwrap();
    let (file, parent) = (fs::File::from(file), root.open_dir(&found.dir).unwrap());
    let few = PutOptions { metadata: vec![("m".into(), "1".into())], ..none() };
    let more = PutOptions { content_type: Some("c/d".into()), ..many() };
    let mut before = Attributes::default();
    // To the hidden file and back, from one to another, and to none.
    for options in [&few, &many(), &more, &few, &many(), &none()] {
        let after = Attributes::of(options);
        let seen = seen_while(&root, || after.replace(&file, &parent).unwrap());
        let news = seen.iter().position(|it| *it == after).unwrap();
        assert!(seen[..news].iter().all(|it| *it == before), "before it: {seen:?}");
        assert!(seen[news..].iter().all(|it| *it == after), "behind it: {seen:?}");
        assert_eq!(hidden(&dir).len(), usize::from(after.metadata.len() == 2));
        before = after;
    }
}

#[tokio::test]
async fn a_change_that_fails_takes_nothing_away() {
    let dir = Dir::new();
    let store = dir.bucket();
    for options in [PutOptions { content_type: Some("a/b".into()), ..none() }, many()] {
        store.put("k", Bytes::from_static(b"v").into(), &options).await.unwrap();
        let root = Root::open(dir.0.path(), Scope::Bucket).unwrap();
        let (file, found) = root.open_object(&at("k")).unwrap();
        // Nothing can be made in a directory that is removed, as on a full disk.
        let gone = dir.0.path().join("gone");
        fs::create_dir(&gone).unwrap();
        let nowhere = root.open_dir("gone").unwrap();
        fs::remove_dir(&gone).unwrap();
        let file = fs::File::from(file);
        let metadata = vec![("huge".into(), "y".repeat(80_000))];
        let attributes = Attributes::of(&PutOptions { metadata, ..none() });
        attributes.replace(&file, &nowhere).unwrap_err();
        let (_, kept) = describe(&root, &found, &file.into()).unwrap().unwrap();
        assert_eq!(kept, Attributes::of(&options));
    }
}

/// A change was killed when the hidden file was there, and the mark not yet.
#[tokio::test]
async fn a_hidden_file_that_no_mark_asks_for_counts_for_nothing() {
    let dir = Dir::new();
    let store = dir.bucket();
    put_many(&store, "k").await;
    let sidecar = dir.0.path().join(hidden(&dir).remove(0));
    let stale = fs::read(&sidecar).unwrap();
    let few = Attributes { content_type: Some("c/d".into()), ..Attributes::default() };
    let root = Root::open(dir.0.path(), Scope::Bucket).unwrap();
    let (file, found) = root.open_object(&at("k")).unwrap();
    let (file, parent) = (fs::File::from(file), root.open_dir(&found.dir).unwrap());
    few.replace(&file, &parent).unwrap();
    assert!(!sidecar.exists(), "it goes with the mark");
    fs::write(&sidecar, &stale).unwrap();
    assert_eq!(store.stat("k").await.unwrap().content_type.as_deref(), Some("c/d"));
    let (_, revision) = sets(("m", "1"));
    store.revise("k", "@m", revision).await.unwrap();
    let meta = store.stat("k").await.unwrap();
    assert_eq!(meta.content_type.as_deref(), Some("c/d"));
    assert_eq!(meta.metadata, [("@m".into(), "1".into())]);
}

/// A write was killed when the version had its attributes in the tree, which were changed then.
#[tokio::test]
async fn what_a_crash_left_in_the_tree_does_not_describe_the_version() {
    let dir = Dir::new();
    let store = dir.bucket();
    store.set_versioning(true).await.unwrap();
    let first = put_many(&store, "k").await.version.unwrap();
    let sidecar = hidden(&dir).remove(0);
    let tree = dir.0.path().join(names::VERSIONS).join("k");
    fs::create_dir_all(&tree).unwrap();
    fs::hard_link(dir.0.path().join(&sidecar), tree.join(&sidecar)).unwrap();
    let (_, revision) = sets(("@lock-hold", "on"));
    store.revise("k", "@lock-hold", revision).await.unwrap();
    put(&store, "k", "new").await;
    let metadata = store.stat(&versioned("k", &first)).await.unwrap().metadata;
    assert!(metadata.contains(&("@lock-hold".into(), "on".into())), "{metadata:?}");
}

/// What a name leads to has names of its own, and needs what is beside it.
#[tokio::test]
async fn a_version_of_a_link_takes_nothing_of_what_it_led_to() {
    for (round, target) in [None, Some("k"), Some("e/../../far")].into_iter().enumerate() {
        for change in ["put", "delete", "remove", "suspended"] {
            let dir = Dir::new();
            let store = dir.bucket();
            store.set_versioning(true).await.unwrap();
            let key = if round == 2 { "far" } else { "d/k" };
            let id = put_many(&store, key).await.version.unwrap();
            fs::create_dir_all(dir.0.path().join("d/e")).unwrap();
            let (link, file) = (dir.0.path().join("d/l"), dir.0.path().join(key));
            match target {
                Some(target) => symlink(target, &link).unwrap(),
                None => fs::hard_link(&file, &link).unwrap(),
            }
            let what = format!("{change} of {target:?}");
            match change {
                "put" => drop(put(&store, "d/l", "new").await),
                "delete" => store.delete("d/l", None).await.unwrap(),
                "remove" => drop(store.remove("d/l", Some(&id), None).await.unwrap()),
                _ => {
                    store.set_versioning(false).await.unwrap();
                    put(&store, "d/l", "new").await;
                }
            }
            let meta = store.stat(key).await.unwrap();
            assert_eq!((meta.version.as_ref(), meta.metadata), (Some(&id), many().metadata));
            let request = VersionsRequest { max: 9, ..VersionsRequest::default() };
            let listed = store.list_versions(&request).await.unwrap().versions;
            let is_kept = listed.iter().any(|entry| entry.key == "d/l" && entry.id == id);
            assert_eq!(is_kept, change != "remove", "{what}: {listed:?}");
            if is_kept {
                // It is the version that it was, and what it led to may change.
                put(&store, key, "w").await;
                let place = versioned("d/l", &id);
                assert_eq!(read(&store, &place).await.unwrap(), "v", "{what}");
                assert_eq!(store.stat(&place).await.unwrap().metadata, many().metadata);
                store.remove("d/l", Some(&id), None).await.unwrap();
            }
            let place = versioned(key, &id);
            assert_eq!(store.stat(&place).await.unwrap().metadata, many().metadata, "{what}");
        }
    }
}

async fn listed(store: &LocalStore) -> Vec<(String, String, bool)> {
    let request = VersionsRequest { max: 1, ..VersionsRequest::default() };
    let (mut found, mut request) = (Vec::new(), request);
    loop {
        let page = store.list_versions(&request).await.unwrap();
        found.extend(page.versions.into_iter().map(|it| (it.key, it.id, it.is_latest)));
        let Some((key, id)) = page.next else { return found };
        (request.key_marker, request.version_marker) = (Some(key), id);
    }
}

fn lose_attributes(dir: &Dir) {
    fs::remove_file(dir.0.path().join(hidden(dir).remove(0))).unwrap();
}

#[tokio::test]
async fn a_version_whose_attributes_are_lost_holds_up_no_other() {
    let dir = Dir::new();
    let store = dir.bucket();
    store.set_versioning(true).await.unwrap();
    let first = put(&store, "k", "first").await.version.unwrap();
    let second = put(&store, "k", "second").await.version.unwrap();
    put_many(&store, "k").await;
    let other = put(&store, "l", "other").await.version.unwrap();
    lose_attributes(&dir);
    let told = listed(&store).await;
    let id = told[0].1.clone();
    let entry = |id: &String, is_latest| ("k".to_string(), id.clone(), is_latest);
    let last = ("l".to_string(), other, true);
    let before = [entry(&id, true), entry(&second, false), entry(&first, false), last.clone()];
    assert_eq!(told, before);
    for error in [
        store.stat(&versioned("k", &id)).await.unwrap_err(),
        store.remove("k", Some(&id), None).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    }
    store.remove("k", Some(&first), None).await.unwrap();
    assert_eq!(listed(&store).await, [entry(&id, true), entry(&second, false), last.clone()]);
    assert_eq!(store.stat("k").await.unwrap_err().kind(), Kind::Corrupt);
    // It keeps the id that was told.
    let new = put(&store, "k", "new").await.version.unwrap();
    let after = [entry(&new, true), entry(&id, false), entry(&second, false), last];
    assert_eq!(listed(&store).await, after);
    assert_eq!(store.stat(&versioned("k", &id)).await.unwrap_err().kind(), Kind::Corrupt);
}

/// Removes a version in a thread of its own: a lock that waits for itself does so for ever.
fn remove_in_time(dir: &Dir, id: &'static str) {
    let root = Root::open(dir.0.path(), Scope::Bucket).unwrap();
    let (told, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let permit: crate::streaming::Permit = Box::new(|_| Ok(()));
        let condition = WriteCondition::None;
        told.send(versions::remove(&root, &at("k"), Some(id), &condition, Some(&permit)))
    });
    done.recv_timeout(Duration::from_secs(60)).expect("it waits for itself").unwrap();
}

const SECOND: &str = "018ebaa2a961a562c272161c0";
const NULL: &str = crate::streaming::NULL_VERSION;

/// A writer was killed when the current version had a name in the tree, under another id.
#[tokio::test]
async fn a_version_under_two_ids_is_one_and_does_not_wait_for_itself() {
    for removed in [&[SECOND, NULL][..], &[NULL]] {
        let dir = Dir::new();
        let store = dir.bucket();
        put(&store, "k", "v").await;
        store.set_versioning(true).await.unwrap();
        let tree = dir.0.path().join(names::VERSIONS).join("k");
        fs::create_dir_all(&tree).unwrap();
        let second = tree.join(format!("{}{SECOND}", names::VERSION));
        fs::hard_link(dir.0.path().join("k"), &second).unwrap();
        for id in removed {
            assert_eq!(listed(&store).await, [("k".to_string(), NULL.to_string(), true)]);
            assert_eq!(read(&store, "k").await.unwrap(), "v");
            remove_in_time(&dir, id);
        }
        assert_eq!(listed(&store).await, []);
        assert_eq!(store.stat("k").await.unwrap_err().kind(), Kind::NotFound);
        assert!(!second.exists());
    }
}

#[tokio::test]
async fn an_earlier_version_under_two_ids_does_not_wait_for_itself() {
    let dir = Dir::new();
    let store = dir.bucket();
    put_many(&store, "k").await;
    store.set_versioning(true).await.unwrap();
    let marker = store.remove("k", None, None).await.unwrap().version.unwrap();
    let tree = dir.0.path().join(names::VERSIONS).join("k");
    let name = |id: &str| tree.join(format!("{}{id}", names::VERSION));
    fs::hard_link(name(NULL), name(SECOND)).unwrap();
    // As the removal of the marker leaves it that is killed before the version is current.
    fs::remove_file(name(&marker)).unwrap();
    remove_in_time(&dir, NULL);
    // The other name is there yet, with all that it had.
    assert_eq!(store.stat("k").await.unwrap().metadata, many().metadata);
    remove_in_time(&dir, NULL);
    assert_eq!(listed(&store).await, []);
    assert_eq!(hidden(&dir), Vec::<String>::new());
}

#[tokio::test]
async fn a_version_whose_id_is_lost_gets_one_name_in_the_tree() {
    let dir = Dir::new();
    let store = dir.bucket();
    store.set_versioning(true).await.unwrap();
    put_many(&store, "k").await;
    lose_attributes(&dir);
    let tree = dir.0.path().join(names::VERSIONS).join("k");
    fs::create_dir_all(&tree).unwrap();
    let second = tree.join(format!("{}{SECOND}", names::VERSION));
    fs::hard_link(dir.0.path().join("k"), &second).unwrap();
    let entry = |id: &str, is_latest| ("k".to_string(), id.to_string(), is_latest);
    assert_eq!(listed(&store).await, [entry(SECOND, true)]);
    let new = put(&store, "k", "new").await.version.unwrap();
    assert_eq!(listed(&store).await, [entry(&new, true), entry(SECOND, false)]);
}

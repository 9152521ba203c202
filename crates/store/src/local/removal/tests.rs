//! Objects that come while their bucket goes.

use super::*;
use crate::local::attributes::Attributes;
use crate::local::write::Temp;
use crate::local::{LocalStore, Scope, names};
use crate::streaming::Versioning;
use crate::{
    GetRequest, Part, PutOptions, Store as _, StreamingStore as _, UploadId, WriteCondition,
};
use penstock_testkit::scratch::Scratch;
use std::fs;

/// A bucket in an account of its own.
struct Account {
    dir: Scratch,
    store: LocalStore,
    root: Root,
}

impl Account {
    fn new() -> Self {
        let dir = Scratch::new("removal");
        let path = dir.path().join("bucket");
        let store = LocalStore::create(&path).unwrap();
        Account { store, root: Root::open(&path, Scope::Bucket).unwrap(), dir }
    }

    /// A bucket with all that is no object: the note of versions, and an upload with a part.
    async fn with_upload() -> (Self, UploadId, Part) {
        let account = Account::new();
        account.store.set_versioning(true).await.unwrap();
        let id = account.store.create_upload("d/e/u", &PutOptions::default()).await.unwrap();
        let body = bytes::Bytes::from_static(b"part").into();
        let part = account.store.upload_part("d/e/u", &id, 1, body).await.unwrap();
        (account, id, part)
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.dir.path()).unwrap().flatten();
        names.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }
}

/// Attributes that lie in a hidden file, since no extended attribute holds so much.
fn options() -> PutOptions {
    PutOptions { metadata: vec![("big".into(), "x".repeat(70_000))], ..PutOptions::default() }
}

/// An object that is about to get its name.
fn begin(root: &Root, key: &str) -> (Temp, names::Location) {
    let at = names::locate(Scope::Bucket, key).unwrap();
    let mut temp = Temp::create(root, &at).unwrap();
    temp.write(&bytes::Bytes::from_static(b"new").into(), key).unwrap();
    (temp, at)
}

fn place(root: &Root, (temp, at): (Temp, names::Location)) -> Result<crate::PutResult> {
    temp.publish(root, &at, &WriteCondition::None, &Attributes::of(&options()))
}

async fn read(store: &LocalStore, key: &str) -> (Vec<u8>, Vec<(String, String)>) {
    let request = GetRequest::default();
    let mut found = store.get(key, request).await.unwrap();
    let bytes = found.body.read_to_bytes(1 << 20).await.unwrap();
    (bytes.to_vec(), found.meta.metadata)
}

#[tokio::test]
async fn a_bucket_that_stays_because_of_a_newcomer_has_lost_nothing() {
    for step in [Step::Looked, Step::Moved] {
        for key in ["k", "d", "d/k", "d/e/k", "d/e"] {
            let (account, id, part) = Account::with_upload().await;
            let removed = remove_telling(&account.root, |at| {
                if at == step {
                    place(&account.root, begin(&account.root, key)).unwrap();
                }
            });
            let what = format!("{key} at {step:?}");
            assert_eq!(removed.unwrap_err().kind(), Kind::Conflict, "{what}");
            let store = &account.store;
            assert_eq!(store.versioning().await.unwrap(), Versioning::Enabled, "{what}");
            assert_eq!(read(store, key).await, (b"new".to_vec(), options().metadata), "{what}");
            let done = store.complete_upload("d/e/u", &id, &[part], &PutOptions::default()).await;
            done.unwrap();
            assert_eq!(read(store, "d/e/u").await.0, b"part", "{what}");
            assert_eq!(account.names(), ["bucket"], "{what}");
        }
    }
}

#[tokio::test]
async fn an_object_placed_behind_the_back_of_a_removal_brings_the_bucket_back() {
    let (account, ..) = Account::with_upload().await;
    let path = account.dir.path().to_path_buf();
    let removed = remove_telling(&account.root, |at| {
        if at == Step::Removed {
            // By a writer that had the directory open.
            let hidden = fs::read_dir(&path).unwrap().flatten().next().unwrap();
            fs::write(hidden.path().join("d/k"), "late").unwrap();
        }
    });
    assert_eq!(removed.unwrap_err().kind(), Kind::Conflict);
    assert_eq!(account.names(), ["bucket"]);
    let store = LocalStore::open(&account.dir.path().join("bucket")).unwrap();
    assert_eq!(read(&store, "d/k").await.0, b"late");
    assert_eq!(store.versioning().await.unwrap(), Versioning::Enabled);
}

#[tokio::test]
async fn a_writer_of_a_bucket_that_is_gone_is_told() {
    let (account, ..) = Account::with_upload().await;
    let mut begun = Some(begin(&account.root, "d/k"));
    let mut placed = None;
    remove_telling(&account.root, |at| {
        if at == Step::Removed {
            placed = begun.take().map(|begun| place(&account.root, begun));
        }
    })
    .unwrap();
    assert_eq!(placed.unwrap().unwrap_err().kind(), Kind::NotFound);
    assert_eq!(account.names(), Vec::<String>::new());
}

#[tokio::test]
async fn a_directory_that_took_the_place_of_the_bucket_stays() {
    let (account, ..) = Account::with_upload().await;
    let bucket = account.dir.path().join("bucket");
    fs::rename(&bucket, account.dir.path().join("moved")).unwrap();
    fs::create_dir(&bucket).unwrap();
    assert_eq!(remove(&account.root).unwrap_err().kind(), Kind::NotFound);
    assert!(bucket.is_dir());
    assert_eq!(account.store.versioning().await.unwrap(), Versioning::Enabled);
}

#[tokio::test]
async fn what_a_killed_removal_left_goes_with_the_next_but_for_objects() {
    let (account, ..) = Account::with_upload().await;
    let left = |name: &str| account.dir.path().join(format!("{REMOVED}{name}"));
    fs::create_dir_all(left("empty").join(format!("{UPLOAD}x"))).unwrap();
    fs::create_dir_all(left("full/d")).unwrap();
    fs::write(left("full/d/k"), "object").unwrap();
    remove(&account.root).unwrap();
    assert_eq!(account.names(), [format!("{REMOVED}full")]);
    assert_eq!(fs::read_to_string(left("full/d/k")).unwrap(), "object");
}

/// A removal that dies here: its locks go, and nothing else happens.
fn die_at(account: &Account, step: Step) {
    let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        remove_telling(&account.root, |at| assert!(at != step, "killed here as the test wants"))
    }));
    assert!(died.is_err());
}

#[tokio::test]
async fn a_removal_that_is_killed_leaves_the_bucket_whole_or_gone() {
    let (account, id, part) = Account::with_upload().await;
    die_at(&account, Step::Moved);
    assert_eq!(account.store.versioning().await.unwrap(), Versioning::Never, "it was in between");
    assert!(LocalStore::end_removals(account.dir.path(), Some("bucket")).unwrap());
    assert_eq!(account.names(), ["bucket"]);
    assert_eq!(account.store.versioning().await.unwrap(), Versioning::Enabled);
    let done = account.store.complete_upload("d/e/u", &id, &[part], &PutOptions::default()).await;
    done.unwrap();
    assert_eq!(read(&account.store, "d/e/u").await.0, b"part");

    let (account, ..) = Account::with_upload().await;
    die_at(&account, Step::Removed);
    assert!(LocalStore::end_removals(account.dir.path(), Some("bucket")).unwrap());
    assert_eq!(account.names(), Vec::<String>::new());
}

#[tokio::test]
async fn a_killed_removal_of_one_bucket_is_not_the_end_of_it_when_another_goes() {
    let (account, id, part) = Account::with_upload().await;
    die_at(&account, Step::Moved);
    let other = account.dir.path().join("other");
    LocalStore::create(&other).unwrap().remove_bucket().await.unwrap();
    assert_eq!(account.names(), ["bucket"]);
    account.store.complete_upload("d/e/u", &id, &[part], &PutOptions::default()).await.unwrap();
}

#[tokio::test]
async fn what_came_behind_the_back_of_a_killed_removal_is_kept() {
    let (account, ..) = Account::with_upload().await;
    die_at(&account, Step::Removed);
    let hidden = fs::read_dir(account.dir.path()).unwrap().flatten().next().unwrap();
    fs::write(hidden.path().join("d/k"), "late").unwrap();
    assert!(LocalStore::end_removals(account.dir.path(), Some("bucket")).unwrap());
    assert_eq!(account.names(), ["bucket"]);
    let store = LocalStore::open(&account.dir.path().join("bucket")).unwrap();
    assert_eq!(read(&store, "d/k").await.0, b"late");
    assert_eq!(store.versioning().await.unwrap(), Versioning::Enabled);
}

#[tokio::test]
async fn of_two_removals_at_once_one_succeeds_and_nothing_is_left() {
    for step in [Step::Looked, Step::Moved] {
        let (account, ..) = Account::with_upload().await;
        let other = Root::open(&account.dir.path().join("bucket"), Scope::Bucket).unwrap();
        let removed = remove_telling(&account.root, |at| {
            if at == step {
                remove(&other).unwrap();
            }
        });
        assert_eq!(removed.unwrap_err().kind(), Kind::NotFound, "{step:?}");
        assert_eq!(account.names(), Vec::<String>::new(), "{step:?}");
    }
}

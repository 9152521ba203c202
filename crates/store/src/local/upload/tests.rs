//! Parts that survive a power cut, and completions that are asked for again.

use super::*;
use crate::local::durable::seen;
use crate::local::{LocalStore, Scope, names};
use crate::streaming::UploadsRequest;
use crate::{GetRequest, Store as _, StreamingStore as _, WriteCondition};
use penstock_testkit::scratch::Scratch;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Barrier;

/// A bucket in a directory of its own.
struct Bucket {
    path: PathBuf,
    root: Root,
    store: LocalStore,
    _dir: Scratch,
}

impl Bucket {
    fn new() -> Self {
        let dir = Scratch::new("upload");
        let path = dir.path().join("bucket");
        let store = LocalStore::create(&path).unwrap();
        Bucket { root: Root::open(&path, Scope::Bucket).unwrap(), store, path, _dir: dir }
    }

    fn begin(&self, key: &str) -> (Location, UploadId) {
        let location = names::locate(Scope::Bucket, key).unwrap();
        let id = create(&self.root, &location, &PutOptions::default()).unwrap();
        (location, id)
    }

    fn dir_of(&self, location: &Location, id: &UploadId) -> PathBuf {
        self.path.join(&location.dir).join(format!("{UPLOAD}{}", id.0))
    }

    fn part(&self, (location, id): &(Location, UploadId), number: u32, text: &str) -> Part {
        write_part(&self.root, location, id, number, (&payload(text), None)).unwrap()
    }

    fn complete(
        &self,
        (location, id): &(Location, UploadId),
        parts: &[Part],
        condition: WriteCondition,
    ) -> Result<PutResult> {
        let options = PutOptions { condition, ..PutOptions::default() };
        complete(&self.root, location, id, parts, &options)
    }

    async fn read(&self, key: &str) -> String {
        let request = GetRequest::default();
        let mut body = self.store.get(key, request).await.unwrap().body;
        String::from_utf8(body.read_to_bytes(1 << 20).await.unwrap().to_vec()).unwrap()
    }
}

fn payload(text: &str) -> Payload {
    bytes::Bytes::from(text.to_string()).into()
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn a_part_is_on_the_disk_before_its_name_and_both_before_the_answer() {
    let bucket = Bucket::new();
    let upload = bucket.begin("d/k");
    let (part, synced) = seen::during(|| bucket.part(&upload, 3, "three"));
    let [bytes, name] = &synced[..] else { panic!("{synced:?}") };
    let dir = fs::canonicalize(bucket.dir_of(&upload.0, &upload.1)).unwrap();
    let temp = bytes.path.file_name().unwrap().to_str().unwrap();
    assert!(temp.starts_with(TEMP), "synced when it had its name already: {temp}");
    assert_eq!((bytes.path.parent(), bytes.len), (Some(&*dir), 5));
    assert_eq!(name.path, dir);
    assert!(name.names.contains(&part_name(&part)), "{:?}", name.names);
}

#[tokio::test]
async fn space_is_reserved_without_making_the_file_longer() {
    let bucket = Bucket::new();
    let (location, id) = bucket.begin("k");
    let staged = bucket.store.stage_part("k", &id, 1, Some(4 << 20)).await.unwrap();
    let sizes = fs::read_dir(bucket.dir_of(&location, &id)).unwrap().flatten();
    let sizes = sizes.filter(|entry| entry.file_name().to_str().unwrap().starts_with(TEMP));
    let sizes: Vec<_> = sizes.map(|entry| entry.metadata().unwrap().len()).collect();
    assert_eq!(sizes, [0]);
    drop(staged);
}

#[tokio::test]
async fn a_part_that_lost_its_bytes_is_never_published() {
    for lost in [0, 1] {
        let bucket = Bucket::new();
        let upload = bucket.begin("k");
        let parts = [bucket.part(&upload, 1, "first"), bucket.part(&upload, 2, "second")];
        let dir = bucket.dir_of(&upload.0, &upload.1);
        let file = fs::File::options().write(true).open(dir.join(part_name(&parts[lost])));
        file.unwrap().set_len(2).unwrap();
        let error = bucket.complete(&upload, &parts, WriteCondition::None).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        let number = parts[lost].number;
        assert!(error.to_string().contains(&format!("part {number} ")), "{error}");
        assert!(error.to_string().contains("again"), "{error}");
        let listed = bucket.store.list_parts("k", &upload.1).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|part| part.number).collect();
        assert_eq!(listed, [3 - number], "a part that lost its bytes is listed");
        let read = bucket.store.read_parts("k", &upload.1, &parts, Box::new(|_| ())).await;
        assert_eq!(read.unwrap_err().kind(), Kind::Invalid);
        // What the error asks for helps.
        let again = bucket.part(&upload, number, "again");
        let mut parts = parts;
        parts[lost] = again;
        bucket.complete(&upload, &parts, WriteCondition::None).unwrap();
        assert_eq!(bucket.read("k").await, ["againsecond", "firstagain"][lost]);
    }
}

/// A completion that broke off has appended to the file of its first part, which the next one may
/// name as a later part.
#[tokio::test]
async fn a_part_that_a_completion_had_appended_to_counts_with_its_own_bytes() {
    let bucket = Bucket::new();
    let upload = bucket.begin("k");
    let parts = [bucket.part(&upload, 1, "first"), bucket.part(&upload, 2, "second")];
    let dir = bucket.dir_of(&upload.0, &upload.1);
    for part in &parts {
        let file = fs::File::options().append(true).open(dir.join(part_name(part)));
        std::io::Write::write_all(&mut file.unwrap(), b"appended").unwrap();
    }
    bucket.complete(&upload, &parts, WriteCondition::None).unwrap();
    assert_eq!(bucket.read("k").await, "firstsecond");
}

#[test]
fn of_two_writers_of_one_part_one_part_remains() {
    const ROUNDS: usize = 200;
    let bucket = Bucket::new();
    let upload = bucket.begin("k");
    for round in 0..ROUNDS {
        let barrier = Barrier::new(2);
        let write = |text: &str| {
            let (location, id) = &upload;
            let mut temp = begin_part(&bucket.root, location, id, 1).unwrap();
            temp.write(&payload(text), "k").unwrap();
            barrier.wait();
            keep_part(temp, 1, None, "k").unwrap()
        };
        let made = std::thread::scope(|scope| {
            let writers = ["one", "two"].map(|text| scope.spawn(move || write(text)));
            writers.map(|writer| part_name(&writer.join().unwrap()))
        });
        let files = fs::read_dir(bucket.dir_of(&upload.0, &upload.1)).unwrap().flatten();
        let files = files.map(|entry| entry.file_name().into_string().unwrap());
        let kept: Vec<_> = files.filter(|name| name.starts_with("part-")).collect();
        assert_eq!(kept.len(), 1, "round {round}: {kept:?}");
        assert!(made.contains(&kept[0]));
    }
}

#[tokio::test]
async fn a_completion_that_was_killed_before_it_had_tidied_up_succeeds_again() {
    let bucket = Bucket::new();
    let upload = bucket.begin("d/k");
    let parts = [bucket.part(&upload, 1, "first"), bucket.part(&upload, 2, "second")];
    let (dir, kept) = (bucket.dir_of(&upload.0, &upload.1), bucket.path.join("kept"));
    copy_files(&dir, &kept);
    let done = bucket.complete(&upload, &parts, WriteCondition::IfAbsent).unwrap();
    // All is as it was when the object had just got its name.
    copy_files(&kept, &dir);
    fs::remove_file(dir.join(part_name(&parts[0]))).unwrap();
    let told = bucket.store.completed("d/k", &upload.1).await.unwrap();
    assert_eq!(told.as_ref(), Some(&done));
    assert_eq!(bucket.complete(&upload, &parts, WriteCondition::IfAbsent).unwrap(), done);
    assert_eq!(bucket.read("d/k").await, "firstsecond");
    assert!(!dir.exists(), "what was left of the upload stays");
    // Another object of the name is not what the upload made.
    copy_files(&kept, &dir);
    fs::remove_file(dir.join(part_name(&parts[0]))).unwrap();
    bucket.store.put("d/k", payload("other"), &PutOptions::default()).await.unwrap();
    assert_eq!(bucket.store.completed("d/k", &upload.1).await.unwrap(), None);
    let error = bucket.complete(&upload, &parts, WriteCondition::None).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert_eq!(bucket.read("d/k").await, "other");
}

#[tokio::test]
async fn a_completion_beside_a_directory_of_the_name_succeeds_again() {
    let bucket = Bucket::new();
    bucket.store.put("a/b", payload("below"), &PutOptions::default()).await.unwrap();
    let upload = bucket.begin("a");
    let parts = [bucket.part(&upload, 1, "first")];
    let done = bucket.complete(&upload, &parts, WriteCondition::None).unwrap();
    assert_eq!(bucket.complete(&upload, &parts, WriteCondition::None).unwrap(), done);
    let told = bucket.store.completed("a", &upload.1).await.unwrap();
    assert_eq!(told, Some(done));
    let other = UploadId("0".repeat(crate::local::NONCE_CHARS));
    assert_eq!(bucket.store.completed("a", &other).await.unwrap(), None);
}

/// The test holds the lock as a completion does that is joining the parts.
#[test]
fn an_abort_stops_a_completion_and_waits_for_its_end() {
    let bucket = Bucket::new();
    let upload = bucket.begin("k");
    let parts = [bucket.part(&upload, 1, "first"), bucket.part(&upload, 2, "second")];
    let path = bucket.dir_of(&upload.0, &upload.1);
    let dir = open_upload(&bucket.root, &upload.0, &upload.1).unwrap();
    let joins = || join::join(&dir, (&parts[0], &parts[1..]), "k");
    drop(joins().unwrap());
    crate::local::root::lock(&dir).unwrap();
    std::thread::scope(|scope| {
        let aborting = scope.spawn(|| abort(&bucket.root, &upload.0, &upload.1).unwrap());
        while path.join(OPTIONS).exists() {
            std::thread::yield_now();
        }
        for _ in 0..1000 {
            std::thread::yield_now();
        }
        assert!(!aborting.is_finished(), "it does not wait");
        assert!(parts.iter().all(|part| path.join(part_name(part)).exists()), "a part is gone");
        let error = joins().unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound, "{error}");
        rustix::fs::flock(&dir, FlockOperation::Unlock).unwrap();
        aborting.join().unwrap();
    });
    assert!(!path.exists());
    let error = bucket.complete(&upload, &parts, WriteCondition::None).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
}

#[tokio::test]
async fn of_an_abort_beside_a_completion_either_the_whole_object_or_nothing_remains() {
    const ROUNDS: usize = 200;
    let bucket = Bucket::new();
    for round in 0..ROUNDS {
        let key = format!("k{round}");
        let upload = bucket.begin(&key);
        let parts = [1, 2, 3].map(|number| bucket.part(&upload, number, "part;"));
        let barrier = Barrier::new(2);
        let done = std::thread::scope(|scope| {
            let aborting = scope.spawn(|| {
                barrier.wait();
                abort(&bucket.root, &upload.0, &upload.1).unwrap();
            });
            barrier.wait();
            let done = bucket.complete(&upload, &parts, WriteCondition::None);
            aborting.join().unwrap();
            done
        });
        match done {
            Ok(_) => {
                assert_eq!(bucket.read(&key).await, "part;part;part;", "round {round}");
            }
            Err(error) => {
                assert_eq!(error.kind(), Kind::NotFound, "round {round}: {error}");
                assert!(!bucket.path.join(&key).exists(), "round {round}: told as failed");
            }
        }
        assert!(!bucket.dir_of(&upload.0, &upload.1).exists(), "round {round}");
    }
}

/// How often this thread has asked the kernel for bytes of files.
fn reads() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("syscr: ")).unwrap();
    line.parse().unwrap()
}

#[tokio::test]
async fn what_an_upload_began_with_is_read_as_a_whole_and_bounded() {
    let bucket = Bucket::new();
    let location = names::locate(Scope::Bucket, "k").unwrap();
    let begin = |len: usize| {
        let options =
            PutOptions { metadata: vec![("m".into(), "x".repeat(len))], ..PutOptions::default() };
        create(&bucket.root, &location, &options)
    };
    let id = begin(6000).unwrap();
    let dir = open_upload(&bucket.root, &location, &id).unwrap();
    let before = reads();
    assert_eq!(read_begun(&dir).unwrap().attributes.metadata[0].1.len(), 6000);
    let count = reads() - before;
    assert!(count < 20, "{count} reads");
    let error = begin(OPTIONS_MAX_BYTES).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("1048576 at most"), "{error}");
    // Both what is no text of ours, and what is far too much of it.
    let whole = fs::read(bucket.dir_of(&location, &id).join(OPTIONS)).unwrap();
    let long = [&whole[..], &vec![b' '; OPTIONS_MAX_BYTES]].concat();
    for damaged in [&whole[..9], &long] {
        fs::write(bucket.dir_of(&location, &id).join(OPTIONS), damaged).unwrap();
        let error = begun_with(&bucket.root, &location, &id).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        assert!(error.to_string().contains("begin it anew"), "{error}");
    }
    // Which the store lets be done.
    bucket.store.discard_upload("k", &id).await.unwrap();
    let error = bucket.store.discard_upload("k", &id).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
}

#[tokio::test]
async fn uploads_come_a_page_at_a_time() {
    let bucket = Bucket::new();
    let mut all = Vec::new();
    for key in ["d/b", "d/a", "c", "e/x/y", "d/a", "f"] {
        let options =
            PutOptions { metadata: vec![("of".into(), key.into())], ..PutOptions::default() };
        let location = names::locate(Scope::Bucket, key).unwrap();
        all.push((key.to_string(), create(&bucket.root, &location, &options).unwrap().0));
    }
    all.sort();
    for least in [1, 2, 4, 6, 9] {
        let mut request = UploadsRequest::default();
        let mut found = Vec::new();
        loop {
            let page = listing::list_some(&bucket.root, &request, least).unwrap();
            assert!(page.uploads.len() <= least);
            for upload in page.uploads {
                assert_eq!(upload.metadata, [("of".to_string(), upload.key.clone())]);
                found.push((upload.key, upload.id.0));
            }
            match page.next {
                Some(token) => request.token = Some(token),
                None => break,
            }
        }
        assert_eq!(found, all, "{least} at a time");
    }
    let one = UploadsRequest { max: 1, ..UploadsRequest::default() };
    assert_eq!(bucket.store.list_uploads(&one).await.unwrap().uploads.len(), 6);
}

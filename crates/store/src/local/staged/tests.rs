//! Staged bodies and uploads in a real directory.

use super::share::WRITE_BYTES_MAX as WRITE_BYTES;
use super::*;
use crate::{GetRequest, Store as _, StreamingStore as _};
use penstock_testkit::scratch::Scratch;
use rustix::fs::FlockOperation;
use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, mpsc};
use std::task::{Context, Poll};
use std::time::Duration;

/// A bucket in a directory of its own.
struct Bucket {
    path: PathBuf,
    store: LocalStore,
    _dir: Scratch,
}

impl Bucket {
    fn new() -> Self {
        let dir = Scratch::new("staged");
        let path = dir.path().join("bucket");
        Bucket { store: LocalStore::create(&path).unwrap(), path, _dir: dir }
    }

    async fn read(&self, key: &str) -> Vec<u8> {
        let request = GetRequest::default();
        let mut found = self.store.get(key, request).await.unwrap();
        let mut bytes = vec![0; found.range.len() as usize];
        let mut at = 0;
        while at < bytes.len() {
            at += found.body.read(&mut bytes[at..]).await.unwrap();
        }
        bytes
    }

    fn files(&self) -> usize {
        fn count(path: &Path) -> usize {
            let entries = std::fs::read_dir(path).unwrap().flatten();
            entries.map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
        }
        count(&self.path)
    }
}

fn piece(byte: u8, len: usize) -> Bytes {
    vec![byte; len].into()
}

/// A body whose pieces are there at once, or come one by one.
#[derive(Debug)]
struct Pieces {
    rest: VecDeque<Bytes>,
    is_slow: bool,
    is_here: bool,
}

impl Pieces {
    fn new(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        Pieces { rest: pieces.into_iter().collect(), is_slow: false, is_here: false }
    }
}

impl Inflow for Pieces {
    fn size_bytes(&self) -> u64 {
        self.rest.iter().map(|piece| piece.len() as u64).sum()
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        self.is_here = !self.is_here;
        if self.is_slow && self.is_here {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.rest.pop_front().map(Ok))
    }
}

/// On one thread every write goes to a blocking thread.
#[tokio::test]
async fn pieces_of_any_size_make_the_whole() {
    pieces_make_the_whole(false).await;
    pieces_make_the_whole(true).await;
}

/// With more threads than writers, those that receive the pieces write them too, in turn with
/// blocking threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn pieces_make_the_whole_whoever_writes_them() {
    let bodies: Vec<_> = (0..24).map(|n| tokio::spawn(pieces_make_the_whole(n % 2 == 0))).collect();
    for body in bodies {
        body.await.unwrap();
    }
}

async fn pieces_make_the_whole(is_slow: bool) {
    let bucket = Bucket::new();
    let mut staged = bucket.store.stage("a/b", None, &WriteCondition::None).await.unwrap();
    let sizes = [0, 1, 700_000, 400_000, WRITE_BYTES, 3 * WRITE_BYTES + 1, 5, 20_000];
    let pieces = sizes.iter().zip(0..).map(|(len, byte)| piece(byte, *len));
    let mut body = Pieces::new(pieces.chain((8..200).map(|byte| piece(byte, (32 << 10) - 1))));
    body.is_slow = is_slow;
    let whole = body.rest.iter().flatten().copied().collect::<Vec<_>>();
    staged.fill(&mut body).await.unwrap();
    assert!(bucket.store.stat("a/b").await.is_err(), "visible before it was placed");
    staged.place(&PutOptions::default()).await.unwrap();
    assert_eq!(bucket.read("a/b").await, whole);
}

/// A piece that tells when it is let go of.
struct Watched(Vec<u8>, mpsc::Sender<()>);

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.1.send(()).ok();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_waits_to_be_published_holds_no_piece() {
    let bucket = Bucket::new();
    bucket.store.put("k", piece(1, 3).into(), &PutOptions::default()).await.unwrap();
    let mut staged = bucket.store.stage("k", None, &WriteCondition::None).await.unwrap();
    let (told, let_go) = mpsc::channel();
    let watched = Bytes::from_owner(Watched(vec![2; 10], told));
    staged.fill(&mut Pieces::new([watched])).await.unwrap();
    // As another writer of the name does, for whose end this one waits.
    let current = File::open(bucket.path.join("k")).unwrap();
    rustix::fs::flock(&current, FlockOperation::LockExclusive).unwrap();
    let placed = tokio::spawn(async move { staged.place(&PutOptions::default()).await });
    let_go.recv_timeout(Duration::from_secs(60)).unwrap();
    drop(current);
    placed.await.unwrap().unwrap();
    assert_eq!(bucket.read("k").await, [2; 10]);
}

#[tokio::test]
async fn a_dropped_body_leaves_nothing() {
    let bucket = Bucket::new();
    let mut staged = bucket.store.stage("k", Some(4 << 20), &WriteCondition::None).await.unwrap();
    staged.fill(&mut Pieces::new([piece(1, 10)])).await.unwrap();
    drop(staged);
    assert_eq!(bucket.files(), 0);
}

#[tokio::test]
async fn a_condition_is_told_before_and_after_the_body() {
    let bucket = Bucket::new();
    let absent = WriteCondition::IfAbsent;
    let staged = bucket.store.stage("k", None, &absent).await.unwrap();
    bucket.store.put("k", piece(1, 3).into(), &PutOptions::default()).await.unwrap();
    let options = PutOptions { condition: absent.clone(), ..Default::default() };
    assert_eq!(staged.place(&options).await.unwrap_err().kind(), Kind::Conflict);
    let early = bucket.store.stage("k", None, &absent).await.unwrap_err();
    assert_eq!(early.kind(), Kind::Conflict);
    assert_eq!(bucket.files(), 1);
}

#[tokio::test]
async fn uploads_tell_of_themselves() {
    let bucket = Bucket::new();
    let store = &bucket.store;
    let keys = ["dir/x", "x", "a//b", "marker/"];
    let mut ids = Vec::new();
    for key in keys {
        ids.push(store.create_upload(key, &PutOptions::default()).await.unwrap());
    }
    let mut found =
        store.list_uploads(&crate::streaming::UploadsRequest::default()).await.unwrap().uploads;
    found.sort_by(|a, b| a.key.cmp(&b.key));
    let found: Vec<_> = found.into_iter().map(|upload| (upload.key, upload.id)).collect();
    let mut wanted: Vec<_> = keys.iter().map(|key| key.to_string()).zip(ids.clone()).collect();
    wanted.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(found, wanted);

    for (number, len) in [(7, 20), (2, WRITE_BYTES + 1), (7, 30)] {
        let mut staged = store.stage_part("x", &ids[1], number, None).await.unwrap();
        staged.fill(&mut Pieces::new([piece(number as u8, len)])).await.unwrap();
        staged.place_part(None).await.unwrap();
    }
    let parts = store.list_parts("x", &ids[1]).await.unwrap();
    let sizes: Vec<_> = parts.iter().map(|part| (part.number, part.size_bytes)).collect();
    assert_eq!(sizes, [(2, WRITE_BYTES as u64 + 1), (7, 30)]);
    assert_eq!(store.list_parts("y", &ids[1]).await.unwrap_err().kind(), Kind::NotFound);

    let named: Vec<Part> = parts
        .into_iter()
        .map(|part| Part { number: part.number, etag: part.etag, size_bytes: part.size_bytes })
        .collect();
    let read = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let read = read.clone();
        move |bytes: &[u8]| read.lock().unwrap().extend_from_slice(bytes)
    };
    assert!(store.read_parts("x", &ids[1], &named, Box::new(sink)).await.unwrap());
    store.complete_upload("x", &ids[1], &named, &PutOptions::default()).await.unwrap();
    assert_eq!(bucket.read("x").await, *read.lock().unwrap());
    assert_eq!(store.list_parts("x", &ids[1]).await.unwrap_err().kind(), Kind::NotFound);
}

#[tokio::test]
async fn a_bucket_with_objects_stays_and_an_empty_one_goes() {
    let bucket = Bucket::new();
    let store = &bucket.store;
    store.put("a/b", piece(1, 3).into(), &PutOptions::default()).await.unwrap();
    store.create_upload("a/c", &PutOptions::default()).await.unwrap();
    assert_eq!(store.remove_bucket().await.unwrap_err().kind(), Kind::Conflict);
    assert_eq!(bucket.read("a/b").await, [1; 3]);
    store.delete("a/b", None).await.unwrap();
    store.remove_bucket().await.unwrap();
    assert!(!bucket.path.exists());
}

/// A body that looks into the bucket each time that it is asked for more.
#[derive(Debug)]
struct Watching {
    pieces: Vec<Bytes>,
    path: PathBuf,
    seen: Arc<Mutex<Vec<usize>>>,
}

impl crate::Inflow for Watching {
    fn size_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }

    fn poll_piece(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Bytes>>> {
        self.seen.lock().unwrap().push(std::fs::read_dir(&self.path).unwrap().count());
        std::task::Poll::Ready(self.pieces.pop().map(Ok))
    }

    fn late_metadata(&self) -> Vec<(String, String)> {
        vec![("late".to_string(), "told".to_string())]
    }
}

/// Files that a bucket had whenever a body of these pieces was asked for more.
async fn files_meanwhile(pieces: Vec<Bytes>, condition: WriteCondition) -> Vec<usize> {
    let bucket = Bucket::new();
    let whole: Vec<u8> = pieces.iter().rev().flatten().copied().collect();
    let seen = Arc::<Mutex<Vec<usize>>>::default();
    let body = Watching { pieces, path: bucket.path.clone(), seen: seen.clone() };
    let options = PutOptions { condition, ..PutOptions::default() };
    bucket.store.put_flow("k", Box::new(body), &options).await.unwrap();
    assert_eq!(bucket.read("k").await, whole);
    let metadata = bucket.store.stat("k").await.unwrap().metadata;
    assert_eq!(metadata, [("late".to_string(), "told".to_string())]);
    assert_eq!(bucket.files(), 1);
    seen.lock().unwrap().clone()
}

#[tokio::test]
async fn a_small_body_is_begun_when_it_has_come_and_a_large_one_at_once() {
    let none = || WriteCondition::None;
    assert_eq!(files_meanwhile(vec![piece(1, 64 << 10)], none()).await, [0, 0]);
    assert_eq!(files_meanwhile(Vec::new(), none()).await, [0]);
    assert_eq!(files_meanwhile(vec![piece(1, (64 << 10) + 1)], none()).await, [1, 1]);
    // A condition that does not hold is to be told before the body comes.
    assert_eq!(files_meanwhile(vec![piece(1, 9)], WriteCondition::IfAbsent).await, [1, 1]);
}

#[tokio::test]
async fn a_small_body_that_trickles_does_not_wait_in_memory() {
    let pieces: Vec<_> = (0..20).map(|byte| piece(byte, 100)).collect();
    let seen = files_meanwhile(pieces, WriteCondition::None).await;
    assert_eq!((&seen[..16], &seen[16..]), (&[0; 16][..], &[1; 5][..]));
}

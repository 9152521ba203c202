//! What every store answers to a body that flows, and to what it does not offer.

#![allow(clippy::unwrap_used)] // helpers of tests fail as tests do

mod common;

use bytes::Bytes;
use common::client;
use penstock_base::{Kind, Result};
use penstock_store::{
    AzureStore, CopySource, Inflow, LocalStore, MemoryStore, PutOptions, S3Store, Store as _,
    StoreOptions, StreamingStore,
};
use penstock_testkit::fake::{FakeAzure, FakeOptions, FakeS3};
use std::path::PathBuf;
use std::task::{Context, Poll};
use std::time::Duration;

/// A body in pieces of one byte.
#[derive(Debug)]
struct Pieces(Bytes);

impl Inflow for Pieces {
    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let piece = (!self.0.is_empty()).then(|| Ok(self.0.split_to(1)));
        Poll::Ready(piece)
    }
}

/// The time and tag of a write are those that the next reader is told.
async fn a_write_tells_its_time(store: &dyn StreamingStore) {
    let body = Box::new(Pieces(Bytes::from_static(b"flowing")));
    let written = store.put_flow("k", body, &PutOptions::default()).await.unwrap();
    let found = store.stat("k").await.unwrap();
    assert_eq!((found.size_bytes, &found.etag), (Some(7), &written.etag), "{}", store.root());
    let (told, seen) = (written.modified.expect("a time"), found.modified.unwrap());
    let apart = told.duration_since(seen).unwrap_or_else(|error| error.duration());
    assert!(apart < Duration::from_secs(5), "{}: {apart:?}", store.root());
}

#[tokio::test]
async fn s3_tells_when_a_flowing_body_was_written() {
    let fake = FakeS3::start(FakeOptions { key: "k".to_string(), ..FakeOptions::s3() }).unwrap();
    let endpoint = fake.endpoint();
    let pairs = [("endpoint", endpoint.as_str()), ("key_id", "test"), ("secret", "k")];
    let options = StoreOptions::new(pairs).unwrap();
    let store = S3Store::open("s3", "bucket", &options, &client().0).unwrap();
    a_write_tells_its_time(&store).await;
}

#[tokio::test]
async fn azure_tells_when_a_flowing_body_was_written() {
    let fake = FakeAzure::start(FakeOptions::azure()).unwrap();
    let string = fake.connection_string();
    let options = StoreOptions::new([("connection_string", string.as_str())]).unwrap();
    let (store, _) = AzureStore::open(&client().0, "az://exam", &options).unwrap();
    a_write_tells_its_time(&store).await;
}

#[tokio::test]
async fn memory_tells_when_a_flowing_body_was_written() {
    a_write_tells_its_time(&MemoryStore::new("flowing")).await;
}

/// Removed with its content when dropped.
struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn a_directory_tells_the_time_and_what_it_does_not_offer() {
    let name = format!("penstock-flowing-{}", std::process::id());
    let dir = Dir(std::env::temp_dir().join(name));
    let store = LocalStore::create(&dir.0).unwrap();
    a_write_tells_its_time(&store).await;
    let source = CopySource { key: "k".to_string(), if_match: None, range: None };
    let options = PutOptions::default();
    assert_eq!(store.copy_version(&source, "to", &options).await.unwrap(), None);
    assert!(store.has_tags() && store.has_versions());
    let tags = [("a&b".to_string(), "=".to_string())];
    store.set_tags("k", &tags).await.unwrap();
    assert_eq!(store.tags("k").await.unwrap(), tags);
    store.set_tags("k", &[]).await.unwrap();
    assert_eq!(store.tags("k").await.unwrap(), []);
    assert_eq!(store.tags("missing").await.unwrap_err().kind(), Kind::NotFound);
}

/// A service keeps the checksums of what it copies. A header of one would be taken for that of the
/// request's own body, which is empty.
#[tokio::test]
async fn a_copy_inside_s3_sends_no_checksum() {
    let refusing = FakeOptions { without_checksums: true, ..FakeOptions::s3() };
    let fake = FakeS3::start(FakeOptions { key: "k".to_string(), ..refusing }).unwrap();
    let endpoint = fake.endpoint();
    let pairs = [("endpoint", endpoint.as_str()), ("key_id", "test"), ("secret", "k")];
    let options = StoreOptions::new(pairs).unwrap();
    let store = S3Store::open("s3", "bucket", &options, &client().0).unwrap();
    let body = Box::new(Pieces(Bytes::from_static(b"hello world")));
    store.put_flow("from", body, &PutOptions::default()).await.unwrap();
    let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
    let metadata = vec![pair("@checksum-crc32", "DUoRhQ=="), pair("owner", "me")];
    let options = PutOptions { metadata, ..PutOptions::default() };
    let source = CopySource { key: "from".to_string(), if_match: None, range: None };
    store.copy_version(&source, "to", &options).await.unwrap().unwrap();
    assert_eq!(store.stat("to").await.unwrap().metadata, [pair("owner", "me")]);
}

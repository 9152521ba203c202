//! The S3 store against the in-project S3 server: the whole exam, and one fault after another.

mod common;

use bytes::Bytes;
use common::client;
use penstock_base::{ByteRange, Kind, Result, Retry};
use penstock_store::{
    GetRange, GetRequest, Payload, PutOptions, Store, StoreOptions, UploadId, open,
};
use penstock_testkit::conform::store::Subject;
use penstock_testkit::fake::{FakeHandle, FakeOptions, FakeS3};
use std::sync::Arc;

const SECRET: &str = "a-secret-for-tests";

fn options() -> FakeOptions {
    FakeOptions { key: SECRET.to_string(), digests: true, ..FakeOptions::s3() }
}

fn start(options: FakeOptions) -> FakeHandle {
    FakeS3::start(options).unwrap()
}

fn store_with(server: &FakeHandle, more: &[(&str, &str)]) -> Arc<dyn Store> {
    let endpoint = server.endpoint();
    let mut pairs = vec![("endpoint", endpoint.as_str()), ("key_id", "test"), ("secret", SECRET)];
    pairs.splice(0..0, more.iter().copied());
    let options = StoreOptions::new(pairs).unwrap();
    open("s3://bucket/", &options, &client().0).unwrap().0
}

async fn subject() -> Subject {
    let server = start(options());
    Subject::new(store_with(&server, &[])).with_secret(SECRET).keeping(server)
}

penstock_testkit::store_conformance!(conformance, subject);

async fn put(store: &dyn Store, key: &str, bytes: Vec<u8>) -> Result<()> {
    let payload = Payload::from(Bytes::from(bytes));
    store.put(key, payload, &PutOptions::default()).await.map(drop)
}

async fn get(store: &dyn Store, key: &str) -> Result<Bytes> {
    let request = GetRequest { range: GetRange::All, if_match: None };
    store.get(key, request).await?.body.read_to_bytes(1 << 24).await
}

/// An object of a kilobyte, then a server that misbehaves from now on.
async fn broken(faults: &[&str]) -> (Arc<dyn Store>, FakeHandle) {
    let server = start(options());
    let store = store_with(&server, &[]);
    put(&*store, "k", vec![7; 100_000]).await.unwrap();
    for fault in faults {
        server.fault(fault);
    }
    (store, server)
}

#[tokio::test]
async fn wrong_key_and_wrong_secret_are_denied() {
    let server = start(options());
    for wrong in [("key_id", "nobody"), ("secret", "hunter2")] {
        let store = store_with(&server, &[wrong]);
        let error = get(&*store, "k").await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (Kind::Denied, Retry::Never), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
        assert_eq!(error.object(), Some("s3://bucket/k"));
    }
}

#[tokio::test]
async fn session_token_goes_along() {
    let server = start(FakeOptions { session_token: Some("t0ken".into()), ..options() });
    let store = store_with(&server, &[("session_token", "t0ken")]);
    put(&*store, "k", vec![1]).await.unwrap();
    let without = store_with(&server, &[]);
    assert_eq!(get(&*without, "k").await.unwrap_err().kind(), Kind::Denied);
}

#[tokio::test]
async fn anonymous_reads_where_the_server_allows_it() {
    let server = start(FakeOptions { anonymous: true, ..options() });
    put(&*store_with(&server, &[]), "k", vec![1, 2]).await.unwrap();
    let options = StoreOptions::new([("endpoint", server.endpoint())]).unwrap();
    let (store, key) = open("s3://bucket/k", &options, &client().0).unwrap();
    assert_eq!(get(&*store, &key).await.unwrap(), [1, 2].as_slice());
}

#[tokio::test]
async fn clock_that_is_off_is_named() {
    let server = start(FakeOptions { clock_offset_s: 3600, ..options() });
    let error = get(&*store_with(&server, &[]), "k").await.unwrap_err();
    assert_eq!(error.kind(), Kind::Denied, "{error}");
    assert!(error.hint().unwrap().contains("clock"), "{error}");
}

#[tokio::test]
async fn missing_bucket_and_object_are_told_apart() {
    let server = start(options());
    let store = store_with(&server, &[]);
    assert_eq!(get(&*store, "no").await.unwrap_err().kind(), Kind::NotFound);
    let endpoint = server.endpoint();
    let pairs = [("endpoint", endpoint.as_str()), ("key_id", "test"), ("secret", SECRET)];
    let options = StoreOptions::new(pairs).unwrap();
    let (store, _) = open("s3://missing-bucket/k", &options, &client().0).unwrap();
    let error = get(&*store, "k").await.unwrap_err();
    assert!(error.to_string().contains("the bucket does not exist"), "{error}");
}

#[tokio::test]
async fn every_checksum_is_taken() {
    let server = start(options());
    for choice in ["auto", "crc32", "md5", "none"] {
        let store = store_with(&server, &[("checksum", choice)]);
        put(&*store, choice, vec![9; 1000]).await.unwrap();
        assert_eq!(get(&*store, choice).await.unwrap().len(), 1000);
        let upload = store.create_upload(choice, &PutOptions::default()).await.unwrap();
        let payload = Payload::from(Bytes::from_static(b"part"));
        let part = store.upload_part(choice, &upload, 1, payload).await.unwrap();
        let done = store.complete_upload(choice, &upload, &[part], &PutOptions::default());
        done.await.unwrap();
    }
}

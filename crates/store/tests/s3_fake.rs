//! The S3 store against the in-project S3 server: the whole exam, and one fault after another.

#![allow(clippy::unwrap_used)] // helpers of tests fail as tests do

mod common;

use bytes::Bytes;
use common::{client, client_with};
use penstock_base::{ByteRange, Kind, Result, Retry};
use penstock_store::{
    ETag, GetRange, GetRequest, HttpClient, HttpOptions, Payload, PutOptions, Store, StoreOptions,
    UploadId, WriteCondition, open,
};
use penstock_testkit::conform::store::Subject;
use penstock_testkit::fake::{FakeHandle, FakeOptions, FakeS3};
use std::sync::Arc;
use std::time::Duration;

const SECRET: &str = "a-secret-for-tests";

fn options() -> FakeOptions {
    FakeOptions { key: SECRET.to_string(), digests: true, ..FakeOptions::s3() }
}

fn start(options: FakeOptions) -> FakeHandle {
    FakeS3::start(options).unwrap()
}

fn store_with(server: &FakeHandle, more: &[(&str, &str)]) -> Arc<dyn Store> {
    store_by(&client().0, server, more)
}

fn store_by(http: &HttpClient, server: &FakeHandle, more: &[(&str, &str)]) -> Arc<dyn Store> {
    store_at("s3://bucket/", http, server, more)
}

fn store_at(
    url: &str,
    http: &HttpClient,
    server: &FakeHandle,
    more: &[(&str, &str)],
) -> Arc<dyn Store> {
    let endpoint = server.endpoint();
    let mut pairs = vec![("endpoint", endpoint.as_str()), ("key_id", "test"), ("secret", SECRET)];
    pairs.splice(0..0, more.iter().copied());
    let options = StoreOptions::new(pairs).unwrap();
    open(url, &options, http).unwrap().0
}

async fn subject() -> Subject {
    subject_at("s3://bucket/", &[])
}

/// Google's dialect, with an HMAC key.
async fn google() -> Subject {
    subject_of(FakeOptions { google: true, ..options() }, "gs://bucket/", &[])
}

/// Google's own dialect, which goes with a token.
async fn google_by_token() -> Subject {
    let bearer_token = Some(SECRET.to_string());
    let options = FakeOptions { google: true, bearer_token, ..options() };
    subject_of(options, "gs://bucket/", &[("bearer_token", SECRET)])
}

async fn r2() -> Subject {
    subject_at("r2://bucket/", &[("account_id", "account")])
}

fn subject_at(url: &str, more: &[(&str, &str)]) -> Subject {
    subject_of(options(), url, more)
}

fn subject_of(options: FakeOptions, url: &str, more: &[(&str, &str)]) -> Subject {
    let server = start(options);
    Subject::new(store_at(url, &client().0, &server, more)).with_secret(SECRET).keeping(server)
}

penstock_testkit::store_conformance!(conformance, subject);
penstock_testkit::store_conformance!(google_conformance, google);
penstock_testkit::store_conformance!(google_token_conformance, google_by_token);
penstock_testkit::store_conformance!(r2_conformance, r2);

async fn put(store: &dyn Store, key: &str, bytes: Vec<u8>) -> Result<()> {
    let payload = Payload::from(Bytes::from(bytes));
    store.put(key, payload, &PutOptions::default()).await.map(drop)
}

async fn get(store: &dyn Store, key: &str) -> Result<Bytes> {
    let request = GetRequest::default();
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
        let store = store_with(&server, &[wrong, ("secret_name", "mine")]);
        let error = get(&*store, "k").await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (Kind::Denied, Retry::Never), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
        assert!(error.hint().unwrap().contains("secret 'mine'"), "{error}");
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
    for error in [get(&*store, "no").await.unwrap_err(), store.stat("no").await.unwrap_err()] {
        assert_eq!(error.kind(), Kind::NotFound);
        assert!(error.hint().unwrap().contains("`s3://bucket/no/*.parquet`"), "{error}");
    }
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
        let plain = PutOptions::default();
        let upload = store.create_upload(choice, &plain).await.unwrap();
        let payload = Payload::from(Bytes::from_static(b"part"));
        let parts = [store.upload_part(choice, &upload, 1, payload).await.unwrap()];
        store.complete_upload(choice, &upload, &parts, &plain).await.unwrap();
    }
}

#[tokio::test]
async fn faults_of_a_get_are_told_truly_and_never_as_bytes() {
    for (fault, kind) in [
        ("status=503,retry-after=1", Kind::Throttled),
        ("status=500", Kind::Unavailable),
        ("reset", Kind::Unavailable),
        ("html", Kind::Corrupt),
        ("error-200", Kind::Corrupt),
        ("cut=1000", Kind::Unavailable),
    ] {
        let (store, _server) = broken(&[fault]).await;
        let error = get(&*store, "k").await.unwrap_err();
        // A cut shows as a reset or as an early end, as the system sees it.
        let either = fault.starts_with("cut") && error.kind() == Kind::Corrupt;
        assert!(error.kind() == kind || either, "{fault}: {error}");
        assert_ne!(error.retry(), Retry::Never, "{fault}: {error}");
        assert_eq!(error.object(), Some("s3://bucket/k"), "{fault}: {error}");
    }
}

#[tokio::test]
async fn faults_of_a_range_are_told_truly_and_never_as_bytes() {
    let range = GetRange::Bounded(ByteRange { start: 100, end: 5000 });
    for fault in ["wrong-range=+1", "wrong-range=-1", "truncate=10"] {
        let (store, _server) = broken(&[fault]).await;
        let found = match store.get("k", GetRequest::from(range)).await {
            Ok(mut answer) => answer.body.read_to_bytes(1 << 20).await,
            Err(error) => Err(error),
        };
        let error = found.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (Kind::Corrupt, Retry::Briefly), "{fault}");
    }
}

#[tokio::test]
async fn replaced_object_is_a_conflict() {
    let (store, _server) = broken(&["replace,op=GetObject"]).await;
    let etag = store.stat("k").await.unwrap().etag;
    let request = GetRequest { range: GetRange::All, if_match: etag, ..Default::default() };
    assert_eq!(store.get("k", request).await.unwrap_err().kind(), Kind::Conflict);
}

#[tokio::test]
async fn connection_cut_in_each_kind_of_request_is_worth_another_try() {
    let (store, server) = broken(&["reset"]).await;
    let (upload, options) = (UploadId("u".into()), PutOptions::default());
    let payload = || Payload::from(Bytes::from_static(b"x"));
    let errors = [
        put(&*store, "n", vec![1; 10]).await.unwrap_err(),
        store.stat("k").await.unwrap_err(),
        store.list(Default::default()).await.unwrap_err(),
        store.create_upload("n", &options).await.unwrap_err(),
        store.upload_part("n", &upload, 1, payload()).await.unwrap_err(),
        store.complete_upload("n", &upload, &[], &options).await.unwrap_err(),
        store.abort_upload("n", &upload).await.unwrap_err(),
        store.copy("k", "n", &options).await.unwrap_err(),
        store.delete("k", None).await.unwrap_err(),
        store.delete_batch(&["k".to_string()]).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.kind(), error.retry()), (Kind::Unavailable, Retry::BackOff), "{error}");
        assert!(error.object().is_some(), "{error}");
    }
    server.faults().clear();
    assert_eq!(get(&*store, "k").await.unwrap().len(), 100_000);
}

#[tokio::test]
async fn late_error_of_a_completion_is_no_success() {
    let (store, server) = broken(&["error-200,op=CompleteMultipartUpload"]).await;
    let options = PutOptions::default();
    let upload = store.create_upload("n", &options).await.unwrap();
    let payload = Payload::from(Bytes::from_static(b"x"));
    let parts = [store.upload_part("n", &upload, 1, payload).await.unwrap()];
    let error = store.complete_upload("n", &upload, &parts, &options).await.unwrap_err();
    assert_ne!(error.retry(), Retry::Never, "{error}");
    server.faults().clear();
    store.complete_upload("n", &upload, &parts, &options).await.unwrap();
    assert_eq!(get(&*store, "n").await.unwrap(), "x");
}

#[tokio::test]
async fn web_page_in_place_of_a_completion_is_no_success() {
    let (store, server) = broken(&["html,op=CompleteMultipartUpload,times=1"]).await;
    let options = PutOptions::default();
    let upload = store.create_upload("n", &options).await.unwrap();
    let payload = Payload::from(Bytes::from_static(b"x"));
    let parts = [store.upload_part("n", &upload, 1, payload).await.unwrap()];
    let error = store.complete_upload("n", &upload, &parts, &options).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (Kind::Corrupt, Retry::Briefly), "{error}");
    assert!(error.hint().unwrap().contains("proxy"), "{error}");
    assert_eq!(get(&*store, "n").await.unwrap_err().kind(), Kind::NotFound);
    store.complete_upload("n", &upload, &parts, &options).await.unwrap();
    assert_eq!(get(&*store, "n").await.unwrap(), "x");
    server.fault("html");
    let part = || Payload::from(Bytes::from_static(b"x"));
    let errors = [
        put(&*store, "m", vec![1]).await.unwrap_err(),
        store.create_upload("m", &options).await.unwrap_err(),
        store.upload_part("m", &upload, 1, part()).await.unwrap_err(),
        store.copy("n", "m", &options).await.unwrap_err(),
        store.list(Default::default()).await.unwrap_err(),
        store.delete_batch(&["n".to_string()]).await.unwrap_err(),
        store.delete("n", None).await.unwrap_err(),
        store.abort_upload("m", &upload).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.kind(), error.retry()), (Kind::Corrupt, Retry::Briefly), "{error}");
        assert!(error.hint().unwrap().contains("proxy answering"), "{error}");
    }
}

#[tokio::test]
async fn what_was_not_done_is_told_whatever_the_status_says() {
    for (fault, kind) in [("error-200", Kind::Unavailable), ("html=404", Kind::NotFound)] {
        let (store, server) = broken(&[]).await;
        let upload = store.create_upload("n", &PutOptions::default()).await.unwrap();
        server.fault(fault);
        for error in [
            store.delete("k", None).await.unwrap_err(),
            store.abort_upload("n", &upload).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), kind, "{fault}: {error}");
        }
        server.faults().clear();
        assert_eq!(get(&*store, "k").await.unwrap().len(), 100_000, "{fault}");
    }
}

#[tokio::test]
async fn completion_and_put_with_lost_answers_succeed_when_asked_again() {
    let (store, _server) = broken(&["lost-answer,op=CompleteMultipartUpload,times=1"]).await;
    let options = PutOptions::default();
    let upload = store.create_upload("n", &options).await.unwrap();
    let payload = Payload::from(Bytes::from_static(b"x"));
    let parts = [store.upload_part("n", &upload, 1, payload).await.unwrap()];
    let error = store.complete_upload("n", &upload, &parts, &options).await.unwrap_err();
    assert_eq!(error.retry(), Retry::BackOff, "{error}");
    store.complete_upload("n", &upload, &parts, &options).await.unwrap();
    assert_eq!(get(&*store, "n").await.unwrap(), "x");
}

/// The tag of what stands there does not tell whose it is.
#[tokio::test]
async fn of_equal_uploads_with_a_condition_one_wins() {
    let stale = WriteCondition::IfMatch(ETag("0123456789abcdef0123456789abcdef".to_string()));
    for condition in [WriteCondition::IfAbsent, stale] {
        let (store, server) = broken(&[]).await;
        let plain = PutOptions::default();
        let options = PutOptions { condition, ..PutOptions::default() };
        let begin = async || {
            let upload = store.create_upload("n", &plain).await.unwrap();
            let payload = Payload::from(Bytes::from_static(b"same"));
            let parts = [store.upload_part("n", &upload, 1, payload).await.unwrap()];
            (upload, parts)
        };
        let (first, second) = (begin().await, begin().await);
        store.complete_upload("n", &first.0, &first.1, &plain).await.unwrap();
        for _ in 0..2 {
            let error = store.complete_upload("n", &second.0, &second.1, &options).await;
            assert_eq!(error.unwrap_err().kind(), Kind::Conflict);
        }
        store.abort_upload("n", &second.0).await.unwrap();
        // What took effect unheard is known all the same.
        if options.condition == WriteCondition::IfAbsent {
            store.delete("n", None).await.unwrap();
            let (upload, parts) = begin().await;
            server.fault("lost-answer,op=CompleteMultipartUpload,times=1");
            store.complete_upload("n", &upload, &parts, &options).await.unwrap_err();
            store.complete_upload("n", &upload, &parts, &options).await.unwrap();
        }
    }
}

#[tokio::test]
async fn silent_server_does_not_hang_the_reader() {
    for fault in ["lie-length=+5", "stall=60000"] {
        let (store, server) = broken(&[]).await;
        drop(store);
        server.fault(fault);
        let stall_timeout = Duration::from_millis(200);
        let (http, _) = client_with(HttpOptions { stall_timeout, ..HttpOptions::default() });
        let error = get(&*store_by(&http, &server, &[]), "k").await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (Kind::Unavailable, Retry::BackOff), "{fault}");
    }
}

#[tokio::test]
async fn slow_body_arrives_whole() {
    let (store, _server) = broken(&["slow=2000000"]).await;
    assert_eq!(get(&*store, "k").await.unwrap().len(), 100_000);
}

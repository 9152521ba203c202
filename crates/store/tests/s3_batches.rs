//! Services that refuse to remove many objects with one request.

#![allow(clippy::unwrap_used)] // helpers of tests fail as tests do

mod common;

use bytes::Bytes;
use common::client;
use penstock_base::{Kind, Result};
use penstock_store::{ListRequest, Payload, PutOptions, Store, StoreOptions, open};
use penstock_testkit::fake::{FakeHandle, FakeOptions, FakeS3};
use std::sync::Arc;

const COUNT: usize = 40;

/// A store with objects, and the names of these.
async fn filled() -> (FakeHandle, Arc<dyn Store>, Vec<String>) {
    let server = FakeS3::start(FakeOptions::s3()).unwrap();
    let endpoint = server.endpoint();
    let pairs = [("endpoint", endpoint.as_str()), ("key_id", "test"), ("secret", "test")];
    let options = StoreOptions::new(pairs).unwrap();
    let store = open("s3://bucket/", &options, &client().0).unwrap().0;
    let keys = (0..COUNT).map(|number| format!("k{number}")).collect();
    fill(&*store, &keys).await;
    (server, store, keys)
}

async fn fill(store: &dyn Store, keys: &Vec<String>) {
    for key in keys {
        let payload = Payload::from(Bytes::from_static(b"x"));
        store.put(key, payload, &PutOptions::default()).await.unwrap();
    }
}

async fn is_empty(store: &dyn Store) -> bool {
    store.list(ListRequest::default()).await.unwrap().objects.is_empty()
}

#[tokio::test]
async fn a_service_without_batches_gets_single_removals_and_is_remembered() {
    for refusal in [
        "status=501,code=NotImplemented",
        "status=405,code=MethodNotAllowed",
        "status=405,code=InternalError",
        "status=400,code=InvalidRequest",
        "status=400,code=MalformedXML",
        "status=400,code=InvalidArgument",
    ] {
        let (server, store, keys) = filled().await;
        server.fault(&format!("{refusal},op=DeleteObjects"));
        let results = store.delete_batch(&keys).await.unwrap();
        assert!(results.len() == COUNT && results.iter().all(Result::is_ok), "{refusal}");
        assert!(is_empty(&*store).await, "{refusal}");
        fill(&*store, &keys).await;
        store.delete_batch(&keys).await.unwrap();
        assert!(is_empty(&*store).await, "{refusal}");
        assert_eq!(server.stats().operation("DeleteObjects"), 1, "{refusal} is remembered");
        assert_eq!(server.stats().operation("DeleteObject"), 2 * COUNT as u64, "{refusal}");
    }
}

#[tokio::test]
async fn a_refusal_of_the_caller_is_one_error() {
    let (server, store, keys) = filled().await;
    server.fault("status=403,code=AccessDenied");
    let error = store.delete_batch(&keys).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Denied, "{error}");
    assert_eq!(server.stats().operation("DeleteObject"), 0, "no object is asked for alone");
}

#[tokio::test]
async fn where_single_removals_fail_too_there_is_one_error() {
    let (server, store, keys) = filled().await;
    server.fault("status=400,code=InvalidRequest,op=DeleteObjects");
    server.fault("status=403,code=AccessDenied,op=DeleteObject");
    let error = store.delete_batch(&keys).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Denied, "{error}");
    assert_eq!(server.stats().operation("DeleteObject"), 1, "the first one tells");
    server.faults().clear();
    store.delete_batch(&keys).await.unwrap();
    assert_eq!(server.stats().operation("DeleteObjects"), 2, "nothing was learnt of batches");
    assert!(is_empty(&*store).await);
}

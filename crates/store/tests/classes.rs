//! Storage classes: how objects are written in one, and what is told of it, on S3, on Azure and on
//! Google.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use bytes::Bytes;
use penstock_store::streaming::{StreamingStore, UploadsRequest};
use penstock_store::{
    AzureStore, HttpClient, HttpOptions, ListRequest, ObjectMeta, Observer, Payload, PutOptions,
    RequestEvent, S3Store, Store, StoreOptions, VersionsRequest, notes,
};
use penstock_testkit::fake::{FakeAzure, FakeHandle, FakeOptions, FakeS3};
use std::sync::Arc;

#[derive(Debug)]
struct Deaf;

impl Observer for Deaf {
    fn request_finished(&self, _event: RequestEvent) {}
}

fn client() -> HttpClient {
    HttpClient::new(HttpOptions::default(), Arc::new(Deaf)).unwrap()
}

async fn azure() -> (FakeHandle, Box<dyn StreamingStore>) {
    let fake = FakeAzure::start(FakeOptions::azure()).unwrap();
    let string = fake.connection_string();
    let options = StoreOptions::new([("connection_string", string.as_str())]).unwrap();
    let store = AzureStore::open(&client(), "az://exam", &options).unwrap().0;
    store.create_container().await.unwrap();
    (fake, Box::new(store))
}

fn s3() -> (FakeHandle, Box<dyn StreamingStore>) {
    opened("s3", FakeS3::start(FakeOptions::s3()).unwrap(), None)
}

/// Google's XML API, with an HMAC key or a token.
fn google(token: Option<&str>) -> (FakeHandle, Box<dyn StreamingStore>) {
    let bearer_token = token.map(str::to_string);
    let fake = FakeS3::start(FakeOptions { bearer_token, ..FakeOptions::google() }).unwrap();
    opened("gs", fake, token)
}

fn opened(
    scheme: &str,
    fake: FakeHandle,
    token: Option<&str>,
) -> (FakeHandle, Box<dyn StreamingStore>) {
    let endpoint = fake.endpoint();
    let mut pairs = vec![
        ("endpoint", endpoint.as_str()),
        ("url_style", "path"),
        ("key_id", "test"),
        ("secret", "test"),
        ("region", "us-east-1"),
    ];
    pairs.extend(token.map(|token| ("bearer_token", token)));
    let options = StoreOptions::new(pairs).unwrap();
    let store = S3Store::open(scheme, "bucket", &options, &client()).unwrap();
    (fake, Box::new(store))
}

fn body() -> Payload {
    Bytes::from_static(b"x").into()
}

fn of_class(class: &str) -> PutOptions {
    let metadata = vec![(notes::STORAGE_CLASS.to_string(), class.to_string())];
    PutOptions { metadata, ..PutOptions::default() }
}

/// The class that both a look at the object and a list tell, and nothing of it in the metadata.
async fn told(store: &dyn Store, key: &str) -> Option<String> {
    let meta = store.stat(key).await.unwrap();
    assert!(meta.metadata.iter().all(|pair| !pair.0.contains("class")), "{meta:?}");
    let request = ListRequest { prefix: key.to_string(), ..ListRequest::default() };
    let listed: ObjectMeta = store.list(request).await.unwrap().objects.remove(0).meta;
    assert_eq!(meta.storage_class, listed.storage_class, "{key}");
    meta.storage_class.map(String::from)
}

async fn classes_are_kept(store: &dyn StreamingStore, classes: &[(&str, Option<&str>)]) {
    for (asked, expected) in classes {
        let expected = expected.map(String::from);
        let options = of_class(asked);
        store.put("put", body(), &options).await.unwrap();
        assert_eq!(told(store, "put").await, expected, "put in {asked}");
        let upload = store.create_upload("up", &options).await.unwrap();
        let part = store.upload_part("up", &upload, 1, body()).await;
        store
            .complete_upload("up", &upload, &[part.unwrap()], &PutOptions::default())
            .await
            .unwrap();
        assert_eq!(told(store, "up").await, expected, "upload in {asked}");
        store.copy("put", "same", &PutOptions::default()).await.unwrap();
        assert_eq!(told(store, "same").await, None, "a copy that says nothing");
        store.copy("same", "copy", &options).await.unwrap();
        assert_eq!(told(store, "copy").await, expected, "copy in {asked}");
        let typed = PutOptions { content_type: Some("a/b".into()), ..options.clone() };
        store.copy("same", "typed", &typed).await.unwrap();
        assert_eq!(told(store, "typed").await, expected, "copy of another type in {asked}");
    }
}

const TIERS: &[(&str, Option<&str>)] = &[
    ("STANDARD", None),
    ("STANDARD_IA", Some("STANDARD_IA")),
    ("ONEZONE_IA", Some("STANDARD_IA")),
    ("GLACIER_IR", Some("GLACIER_IR")),
];

#[tokio::test]
async fn on_azure_they_are_tiers() {
    let (fake, store) = azure().await;
    classes_are_kept(&*store, TIERS).await;
    // Where the emulator's way of copying is all there is.
    fake.fault("status=501,code=NotImplemented,op=PutBlobFromURL");
    classes_are_kept(&*store, TIERS).await;
    for (class, is_taken) in [("GLACIER", true), ("DEEP_ARCHIVE", true), ("STANDARD", false)] {
        assert_eq!(store.takes_class(class), is_taken, "{class}");
    }
    assert!(!store.takes_class("INTELLIGENT_TIERING"));
}

#[tokio::test]
async fn on_s3_they_pass_through() {
    let (_fake, store) = s3();
    let classes = [
        ("STANDARD", None),
        ("STANDARD_IA", Some("STANDARD_IA")),
        ("GLACIER", Some("GLACIER")),
        ("INTELLIGENT_TIERING", Some("INTELLIGENT_TIERING")),
    ];
    classes_are_kept(&*store, &classes).await;
    let upload = store.create_upload("up", &of_class("GLACIER")).await.unwrap();
    let class = store.upload_class("up", &upload).await.unwrap();
    assert_eq!(class.as_deref(), Some("GLACIER"));
    let error = store.put("k", body(), &of_class("NONE_SUCH")).await.unwrap_err();
    assert_eq!(error.service_code(), Some("InvalidStorageClass"));
    assert!(store.takes_class("A_NEW_ONE"));
}

#[tokio::test]
async fn on_google_they_have_other_names() {
    for token in [None, Some("t0ken")] {
        let (_fake, store) = google(token);
        let classes = [
            ("STANDARD", None),
            ("STANDARD_IA", Some("STANDARD_IA")),
            ("GLACIER_IR", Some("GLACIER_IR")),
            ("ARCHIVE", Some("ARCHIVE")),
        ];
        classes_are_kept(&*store, &classes).await;
        let upload = store.create_upload("up", &of_class("STANDARD_IA")).await.unwrap();
        let class = store.upload_class("up", &upload).await.unwrap();
        assert_eq!(class.as_deref(), Some("STANDARD_IA"));
        let request = UploadsRequest { max: 10, ..UploadsRequest::default() };
        let uploads = store.list_uploads(&request).await.unwrap().uploads;
        let pair = (notes::STORAGE_CLASS.to_string(), "STANDARD_IA".to_string());
        assert_eq!(uploads[0].metadata, [pair]);
        let versions = VersionsRequest { max: 10, ..VersionsRequest::default() };
        let found = store.list_versions(&versions).await.unwrap().versions;
        let now = store.stat(&found[0].key).await.unwrap();
        assert_eq!(found[0].meta.storage_class, now.storage_class);
        // By its own name a class would be told as another.
        for class in ["NEARLINE", "COLDLINE", "GLACIER", "DEEP_ARCHIVE", "A_NEW_ONE", ""] {
            assert!(!store.takes_class(class), "{class}");
        }
        let error = store.put("k", body(), &of_class("NEARLINE")).await.unwrap_err();
        assert_eq!(error.service_code(), Some("InvalidStorageClass"));
    }
}

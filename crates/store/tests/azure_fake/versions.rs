//! Versions, as an account keeps them that is set so.

use crate::support::{TOKEN, body, get, none, open, open_heard};
use crate::version_pages;
use penstock_base::Kind;
use penstock_store::streaming::versioned;
use penstock_store::{
    Account as _, AzureAccount, AzureStore, CopySource, ETag, GetRange, GetRequest, HttpClient,
    HttpOptions, PutOptions, Store, StoreOptions, StreamingStore, Versioning, VersionsRequest,
    WriteCondition,
};
use penstock_testkit::fake::options::AZURE_ACCOUNT_KEY;
use penstock_testkit::fake::{FakeAzure, FakeHandle, FakeOptions};
use std::sync::Arc;

fn kept() -> FakeHandle {
    let token = Some(TOKEN.to_string());
    let options = FakeOptions { bearer_token: token, ..FakeOptions::azure_versioned() };
    FakeAzure::start(options).unwrap()
}

fn by_key(fake: &FakeHandle) -> AzureStore {
    open(fake, &[("account_key", AZURE_ACCOUNT_KEY)])
}

fn by_token(fake: &FakeHandle) -> AzureStore {
    open(fake, &[("provider", "access_token"), ("access_token", TOKEN)])
}

async fn put(store: &AzureStore, key: &str, text: &'static str) -> String {
    store.put(key, body(text), &none()).await.unwrap().version.unwrap()
}

async fn text(store: &AzureStore, name: &str) -> String {
    let bytes = get(store, name, GetRange::All).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn all() -> VersionsRequest {
    VersionsRequest { max: 1000, ..VersionsRequest::default() }
}

/// Keys with the texts of their versions, and which is the latest.
async fn listed(store: &AzureStore) -> Vec<(String, bool)> {
    let page = store.list_versions(&all()).await.unwrap();
    assert_eq!(page.next, None);
    let mut found = Vec::new();
    for entry in page.versions {
        assert!(!entry.is_marker && entry.meta.size_bytes.is_some());
        let text = text(store, &versioned(&entry.key, &entry.id)).await;
        found.push((format!("{}={text}", entry.key), entry.is_latest));
    }
    found
}

fn told(text: &str, is_latest: bool) -> (String, bool) {
    (text.to_string(), is_latest)
}

/// An account that does not know the question has blobs as they are.
#[tokio::test]
async fn where_versions_are_not_known_each_blob_is_its_only_one() {
    let fake = FakeAzure::start(FakeOptions::azure()).unwrap();
    let store = by_key(&fake);
    for key in ["a", "b", "c"] {
        store.put(key, body("x"), &none()).await.unwrap();
    }
    let refused = "status=400,code=InvalidQueryParameterValue,op=ListBlobs,times=1";
    fake.fault(refused);
    let page = store.list_versions(&all()).await.unwrap();
    assert!(page.versions.iter().all(|entry| entry.id == "null" && entry.is_latest));
    assert_eq!(page.versions.len(), 3);
    fake.fault(refused);
    assert_eq!(store.versioning().await.unwrap(), Versioning::Never);
    fake.fault("status=400,code=InvalidInput,op=ListBlobs,times=1");
    let error = store.list_versions(&all()).await.unwrap_err();
    assert_eq!(error.service_code(), Some("InvalidInput"), "any other refusal is one");
    // Asked with the place to start at, and without it.
    fake.fault("status=400,code=InvalidQueryParameterValue,op=ListBlobs,times=2");
    let from = VersionsRequest { key_marker: Some("a".to_string()), ..all() };
    let listed = store.list_versions(&from).await.unwrap().versions;
    assert_eq!(listed.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(), ["b", "c"]);
}

#[tokio::test]
async fn every_write_makes_a_version() {
    let fake = kept();
    let store = &by_key(&fake);
    assert!(store.has_versions() && !store.has_markers());
    assert_eq!(store.versioning().await.unwrap(), Versioning::Never, "nothing tells yet");
    let first = put(store, "k", "one").await;
    assert_eq!(store.versioning().await.unwrap(), Versioning::Enabled);
    let second = put(store, "k", "two").await;
    assert_ne!(first, second);
    let old = versioned("k", &first);
    assert_eq!((text(store, "k").await.as_str(), text(store, &old).await.as_str()), ("two", "one"));
    let meta = store.stat(&old).await.unwrap();
    assert_eq!((meta.version.as_deref(), meta.size_bytes), (Some(first.as_str()), Some(3)));
    assert_eq!(store.stat("k").await.unwrap().version, Some(second.clone()));
    let range = GetRequest::from(GetRange::From(1));
    assert_eq!(store.get(&old, range).await.unwrap().meta.version, meta.version);
    // An upload in parts, too.
    let upload = store.create_upload("k", &none()).await.unwrap();
    let part = store.upload_part("k", &upload, 1, body("three")).await.unwrap();
    let made = store.complete_upload("k", &upload, &[part], &none()).await.unwrap();
    assert_eq!(made.version, store.stat("k").await.unwrap().version);
    let wanted = [told("k=three", true), told("k=two", false), told("k=one", false)];
    assert_eq!(listed(store).await, wanted, "latest first");
    // Tags are of one version each, and make none.
    let tags = vec![("a".to_string(), "1".to_string())];
    store.set_tags(&old, &tags).await.unwrap();
    assert_eq!(store.tags(&old).await.unwrap(), tags);
    assert_eq!(store.tags("k").await.unwrap(), []);
    assert_eq!(listed(store).await, wanted);
}

#[tokio::test]
async fn a_removal_makes_no_marker_and_leaves_no_latest() {
    let fake = kept();
    let store = &by_key(&fake);
    let first = put(store, "k", "one").await;
    let second = put(store, "k", "two").await;
    let removed = store.remove("k", None, None).await.unwrap();
    assert_eq!((removed.version, removed.is_marker), (None, false));
    assert_eq!(store.stat("k").await.unwrap_err().kind(), Kind::NotFound);
    assert_eq!(listed(store).await, [told("k=two", false), told("k=one", false)]);
    // What is not there is removed, too.
    store.remove("k", None, None).await.unwrap();
    let removed = store.remove("k", Some(&second), None).await.unwrap();
    assert_eq!((removed.version, removed.is_marker), (Some(second.clone()), false));
    assert_eq!(listed(store).await, [told("k=one", false)]);
    store.remove("k", Some(&second), None).await.unwrap();
    let stale = ETag("other".into());
    let error = store.remove("k", Some(&first), Some(&stale)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    assert_eq!(listed(store).await, [told("k=one", false)]);
}

/// Azure refuses to remove it by its id.
#[tokio::test]
async fn the_current_version_is_removed_by_its_id() {
    let fake = kept();
    let store = &by_key(&fake);
    put(store, "k", "one").await;
    let second = put(store, "k", "two").await;
    let stale = ETag("other".into());
    let error = store.remove("k", Some(&second), Some(&stale)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    assert_eq!(text(store, "k").await, "two");
    let tag = store.stat("k").await.unwrap().etag;
    let removed = store.remove("k", Some(&second), tag.as_ref()).await.unwrap();
    assert_eq!(removed.version, Some(second.clone()));
    assert_eq!(listed(store).await, [told("k=one", false)], "none takes its place");
    let third = put(store, "k", "three").await;
    store.remove("k", Some(&third), None).await.unwrap();
    assert_eq!(listed(store).await, [told("k=one", false)]);
}

#[tokio::test]
async fn versions_that_are_not_there_are_told_as_that() {
    let fake = kept();
    let store = &by_key(&fake);
    put(store, "k", "one").await;
    for id in ["2020-01-01T00:00:00.0000000Z", "null", "17", "2020-01-01"] {
        let name = versioned("k", id);
        let error = store.get(&name, GetRequest::default()).await.unwrap_err();
        let found = (error.kind(), error.service_code());
        assert_eq!(found, (Kind::NotFound, Some("NoSuchVersion")), "{id}");
        let error = store.stat(&name).await.unwrap_err();
        assert_eq!(error.service_code(), Some("NoSuchVersion"), "{id}");
        let error = store.tags(&name).await.unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound, "{id}");
        let tags = [("a".to_string(), "1".to_string())];
        assert_eq!(store.set_tags(&name, &tags).await.unwrap_err().kind(), Kind::NotFound, "{id}");
    }
    // It is another version that is there.
    store.remove("k", Some("null"), None).await.unwrap();
    let error = store.remove("k", Some("17"), None).await.unwrap_err();
    assert_eq!(error.service_code(), Some("NoSuchVersion"));
    assert_eq!(text(store, "k").await, "one");
    let marker = VersionsRequest {
        key_marker: Some("k".to_string()),
        version_marker: Some("17".to_string()),
        ..all()
    };
    assert_eq!(store.list_versions(&marker).await.unwrap_err().kind(), Kind::Invalid);
}

/// A blob without an id is the version `null`.
#[tokio::test]
async fn an_account_that_keeps_none_has_one_version_of_each() {
    let fake = FakeAzure::start(FakeOptions::azure()).unwrap();
    let store = &by_key(&fake);
    for text in ["one", "two"] {
        assert_eq!(store.put("k", body(text), &none()).await.unwrap().version, None);
    }
    assert_eq!(store.versioning().await.unwrap(), Versioning::Never);
    let error = store.set_versioning(true).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.hint().unwrap().contains("--enable-versioning"), "{error}");
    assert_eq!(listed(store).await, [told("k=two", true)]);
    assert_eq!(store.list_versions(&all()).await.unwrap().versions[0].id, "null");
    let stale = ETag("other".into());
    let error = store.remove("k", Some("null"), Some(&stale)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    let removed = store.remove("k", Some("null"), None).await.unwrap();
    assert_eq!((removed.version.as_deref(), removed.is_marker), (Some("null"), false));
    assert_eq!(listed(store).await, []);
}

/// Pages in S3's order, whatever the length and wherever they begin, though the service lists
/// oldest first; also of a service that cannot be told where to start.
#[tokio::test]
async fn pages_go_on_latest_first() {
    for refuses in [false, true] {
        let fake = kept();
        let store = &by_key(&fake);
        let wanted = version_pages::put_some(store).await;
        if refuses {
            fake.fault("status=400,code=InvalidHeaderValue,op=ListBlobs,times=1");
            let request = VersionsRequest { key_marker: Some("d/".to_string()), ..all() };
            let found = store.list_versions(&request).await.unwrap();
            assert_eq!(found.versions.len(), 11);
        }
        version_pages::assert_pages(store, &wanted).await;
        // A key of those that are folded: the prefix is told as long as something is behind it.
        for (key, folds) in [("d/x", true), ("d/z+ü", false), ("d/~", false)] {
            let request = VersionsRequest {
                delimiter: Some("/".to_string()),
                key_marker: Some(key.to_string()),
                ..all()
            };
            let found = store.list_versions(&request).await.unwrap();
            assert_eq!(found.prefixes.contains(&"d/".to_string()), folds, "{key}");
            assert_eq!(found.versions.len(), 5, "{key}");
        }
    }
}

/// Whichever operation the copy takes, and whatever the right to read its source is.
#[tokio::test]
async fn a_version_is_copied_by_the_service() {
    let fake = kept();
    for store in [&by_key(&fake), &by_token(&fake)] {
        let first = put(store, "k", "one").await;
        let second = put(store, "k", "two").await;
        let source = |id: &str| CopySource { key: versioned("k", id), if_match: None, range: None };
        let typed = PutOptions { content_type: Some("text/csv".into()), ..none() };
        for options in [none(), typed] {
            let copied = store.copy_version(&source(&first), "copy", &options).await.unwrap();
            assert_eq!(text(store, "copy").await, "one");
            assert_eq!(copied.unwrap().version, store.stat("copy").await.unwrap().version);
            // Back to what it was, the current version included.
            store.copy_version(&source(&first), "k", &options).await.unwrap();
            assert_eq!(text(store, "k").await, "one");
            let stale = CopySource { if_match: Some(ETag("other".into())), ..source(&second) };
            let error = store.copy_version(&stale, "copy", &options).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Conflict);
            let gone = source("2020-01-01T00:00:00.0000000Z");
            let error = store.copy_version(&gone, "copy", &options).await.unwrap_err();
            assert_eq!(error.kind(), Kind::NotFound);
        }
        let upload = store.create_upload("parts", &none()).await.unwrap();
        let range = Some(penstock_base::ByteRange { start: 1, end: 3 });
        let source = CopySource { range, ..source(&first) };
        let part = store.copy_part(&source, "parts", &upload, 1).await.unwrap().unwrap().part;
        store.complete_upload("parts", &upload, &[part], &none()).await.unwrap();
        assert_eq!(text(store, "parts").await, "ne");
    }
}

#[tokio::test]
async fn a_container_with_old_versions_only_is_not_empty() {
    let fake = kept();
    let client = HttpClient::new(HttpOptions::default(), Arc::new(Silent)).unwrap();
    let string = fake.connection_string();
    let options = StoreOptions::new([("connection_string", string.as_str())]).unwrap();
    let account = AzureAccount::new(&client, "az://", &options).unwrap();
    account.create("lake").await.unwrap();
    let store = account.open("lake").await.unwrap();
    let absent = PutOptions { condition: WriteCondition::IfAbsent, ..none() };
    let version = store.put("k", body("one"), &absent).await.unwrap().version.unwrap();
    store.remove("k", None, None).await.unwrap();
    let error = account.delete("lake").await.unwrap_err();
    assert_eq!(error.service_code(), Some("BucketNotEmpty"));
    store.remove("k", Some(&version), None).await.unwrap();
    account.delete("lake").await.unwrap();
}

/// How many requests each takes.
#[tokio::test]
async fn requests_are_as_few_as_can_be() {
    let fake = kept();
    let heard = Arc::default();
    let string = fake.connection_string();
    let store =
        &open_heard("az://exam", &[("connection_string", &string)], Arc::clone(&heard)).unwrap();
    let first = put(store, "k", "one").await;
    let second = put(store, "k", "two").await;
    heard.take();
    store.remove("k", Some(&first), None).await.unwrap();
    assert_eq!(heard.take().len(), 1);
    store.remove("k", Some(&second), None).await.unwrap();
    assert_eq!(heard.take().len(), 4, "refused, looked at, removed twice");
    store.list_versions(&all()).await.unwrap();
    store.versioning().await.unwrap();
    assert_eq!(heard.take().len(), 2);
}

#[derive(Debug)]
struct Silent;

impl penstock_store::Observer for Silent {
    fn request_finished(&self, _event: penstock_store::RequestEvent) {}
}

//! Google Cloud Storage by its XML API, against the fake that speaks it: generations as versions,
//! with an HMAC key and with a token, which have different dialects.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

mod common;
#[path = "common/versions.rs"]
mod versions;

use bytes::Bytes;
use common::{Script, client};
use penstock_base::{ByteRange, Kind};
use penstock_store::streaming::versioned;
use penstock_store::{
    Account as _, CopySource, ETag, GetRange, GetRequest, HttpClient, Payload, PutOptions,
    RequestEvent, S3Account, StoreOptions, StreamingStore, Versioning, VersionsRequest,
    WriteCondition, open,
};
use penstock_testkit::fake::{FakeHandle, FakeOptions, FakeS3};
use penstock_testkit::scratch::Scratch;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const TOKEN: &str = "t0ken";

type Side = (FakeHandle, Arc<dyn StreamingStore>);

async fn side(credentials: &[(&str, &str)]) -> Side {
    let options = FakeOptions { bearer_token: Some(TOKEN.to_string()), ..FakeOptions::google() };
    let fake = FakeS3::start(FakeOptions { digests: true, ..options }).unwrap();
    let endpoint = fake.endpoint();
    let mut pairs = vec![("endpoint", endpoint.as_str())];
    pairs.extend(credentials);
    let options = StoreOptions::new(pairs).unwrap();
    let account = S3Account::new(&client().0, "gs", &options).unwrap();
    let store = account.open("bucket").await.unwrap();
    (fake, store)
}

async fn with_key() -> Side {
    side(&[("key_id", "test"), ("secret", "test")]).await
}

async fn with_token() -> Side {
    side(&[("bearer_token", TOKEN)]).await
}

async fn put(store: &dyn StreamingStore, key: &str, text: &'static str) -> String {
    let payload = Payload::from(Bytes::from_static(text.as_bytes()));
    store.put(key, payload, &PutOptions::default()).await.unwrap().version.unwrap()
}

async fn text(store: &dyn StreamingStore, name: &str) -> String {
    let mut found = store.get(name, GetRequest::default()).await.unwrap();
    String::from_utf8(found.body.read_to_bytes(100).await.unwrap().to_vec()).unwrap()
}

/// Keys with the texts of their versions, and which is the latest.
async fn listed(store: &dyn StreamingStore, request: VersionsRequest) -> Vec<(String, bool)> {
    let page = store.list_versions(&request).await.unwrap();
    assert_eq!(page.next, None);
    let mut found = Vec::new();
    for entry in page.versions {
        assert!(!entry.is_marker && entry.meta.size_bytes.is_some());
        let text = text(store, &versioned(&entry.key, &entry.id)).await;
        found.push((format!("{}={text}", entry.key), entry.is_latest));
    }
    found
}

fn all() -> VersionsRequest {
    VersionsRequest { max: 1000, ..VersionsRequest::default() }
}

#[tokio::test]
async fn generations_are_versions() {
    for (_fake, store) in [with_key().await, with_token().await] {
        let store = &*store;
        assert!(store.has_versions() && !store.has_tags());
        assert_eq!(store.versioning().await.unwrap(), Versioning::Never);
        store.set_versioning(true).await.unwrap();
        assert_eq!(store.versioning().await.unwrap(), Versioning::Enabled);
        let first = put(store, "k", "one").await;
        let second = put(store, "k", "two").await;
        assert_ne!(first, second);
        assert_eq!(text(store, "k").await, "two");
        let old = versioned("k", &first);
        assert_eq!(text(store, &old).await, "one");
        let meta = store.stat(&old).await.unwrap();
        assert_eq!((meta.version.as_deref(), meta.size_bytes), (Some(first.as_str()), Some(3)));
        let range = GetRequest { range: GetRange::From(1), ..GetRequest::default() };
        assert_eq!(store.get(&old, range).await.unwrap().meta.version, meta.version);
        let told = |text: &str, is_latest| (text.to_string(), is_latest);
        assert_eq!(listed(store, all()).await, [told("k=two", true), told("k=one", false)]);
        // No delete marker: what was live is one of the others, and none is the latest.
        let removed = store.remove("k", None, None).await.unwrap();
        assert_eq!((removed.version, removed.is_marker), (None, false));
        assert_eq!(store.stat("k").await.unwrap_err().kind(), Kind::NotFound);
        assert_eq!(listed(store, all()).await, [told("k=two", false), told("k=one", false)]);
        let removed = store.remove("k", Some(&second), None).await.unwrap();
        assert_eq!((removed.version, removed.is_marker), (Some(second.clone()), false));
        assert_eq!(listed(store, all()).await, [told("k=one", false)]);
        // What is not there is removed, too.
        store.remove("k", Some(&second), None).await.unwrap();
        store.set_versioning(false).await.unwrap();
        assert_eq!(store.versioning().await.unwrap(), Versioning::Suspended);
        // From here on a write takes the live one away, but not those before it.
        put(store, "k", "three").await;
        put(store, "k", "four").await;
        assert_eq!(listed(store, all()).await, [told("k=four", true), told("k=one", false)]);
    }
}

#[tokio::test]
async fn versions_that_are_not_there_are_told_as_that() {
    let (_fake, store) = with_key().await;
    put(&*store, "k", "one").await;
    for id in ["17", "null", "017", "1.5"] {
        let name = versioned("k", id);
        let error = store.get(&name, GetRequest::default()).await.unwrap_err();
        let found = (error.kind(), error.service_code());
        assert_eq!(found, (Kind::NotFound, Some("NoSuchVersion")), "{id}");
        assert_eq!(store.stat(&name).await.unwrap_err().kind(), Kind::NotFound, "{id}");
    }
    let error = store.remove("k", Some("null"), None).await.unwrap_err();
    assert_eq!(error.service_code(), Some("NoSuchVersion"));
    assert_eq!(text(&*store, "k").await, "one");
    let marker = VersionsRequest {
        key_marker: Some("k".to_string()),
        version_marker: Some("null".to_string()),
        ..all()
    };
    assert_eq!(store.list_versions(&marker).await.unwrap_err().kind(), Kind::Invalid);
}

/// Pages in S3's order, whatever the length, though the service lists oldest first.
#[tokio::test]
async fn pages_go_on_latest_first() {
    let (_fake, store) = with_key().await;
    let store = &*store;
    store.set_versioning(true).await.unwrap();
    let all = versions::put_some(store).await;
    versions::assert_pages(store, &all).await;
}

#[tokio::test]
async fn a_version_is_copied_by_a_token_and_by_nobody_else() {
    let source = |id: &str| CopySource { key: versioned("k", id), if_match: None, range: None };
    let options = PutOptions::default();
    let (fake, store) = with_token().await;
    store.set_versioning(true).await.unwrap();
    let first = put(&*store, "k", "one").await;
    put(&*store, "k", "two").await;
    let copied = store.copy_version(&source(&first), "copy", &options).await.unwrap().unwrap();
    assert_eq!(text(&*store, "copy").await, "one");
    assert_eq!(copied.version, store.stat("copy").await.unwrap().version);
    let stale = CopySource { if_match: Some(ETag("other".into())), ..source(&first) };
    let error = store.copy_version(&stale, "copy", &options).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    for id in ["17", "null"] {
        let error = store.copy_version(&source(id), "copy", &options).await.unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound, "{id}");
    }
    drop(fake);
    let (fake, store) = with_key().await;
    fake.reset_stats();
    assert_eq!(store.copy_version(&source(&first), "copy", &options).await.unwrap(), None);
    let error = store.copy(&versioned("k", &first), "copy", &options).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(fake.requests().is_empty(), "nothing was sent");
}

/// Google copies whole objects only, so the bytes of a part have to come from elsewhere.
#[tokio::test]
async fn no_part_is_copied() {
    for (fake, store) in [with_key().await, with_token().await] {
        put(&*store, "k", "one").await;
        let upload = store.create_upload("parts", &PutOptions::default()).await.unwrap();
        let range = Some(ByteRange { start: 0, end: 3 });
        let source = CopySource { key: "k".to_string(), if_match: None, range };
        fake.reset_stats();
        assert!(store.copy_part(&source, "parts", &upload, 1).await.unwrap().is_none());
        assert!(fake.requests().is_empty(), "nothing was sent");
    }
}

/// Its tag is looked up, and the removal tied to the generation that had it.
#[tokio::test]
async fn with_a_token_a_removal_is_of_the_version_that_is_named() {
    let (fake, store) = with_token().await;
    let tag = async || store.stat("k").await.unwrap().etag.unwrap();
    put(&*store, "k", "one").await;
    let first = tag().await;
    put(&*store, "k", "two").await;
    let stale = store.delete("k", Some(&first)).await.unwrap_err();
    assert_eq!(stale.kind(), Kind::Conflict, "{stale}");
    // Another write comes between the look and the removal.
    let second = tag().await;
    fake.fault("latency=60000,op=HeadObject,times=1");
    let (overtaken, ()) = tokio::join!(store.delete("k", Some(&second)), async {
        while fake.faults().fired() != [1] {
            tokio::task::yield_now().await;
        }
        put(&*store, "k", "three").await;
        fake.faults().clear();
    });
    assert_eq!(overtaken.unwrap_err().kind(), Kind::Conflict);
    assert_eq!(text(&*store, "k").await, "three");
    store.delete("k", Some(&tag().await)).await.unwrap();
    assert_eq!(store.stat("k").await.unwrap_err().kind(), Kind::NotFound);
    store.delete("k", Some(&second)).await.unwrap();
    // Amazon's dialect has no word for it.
    let (_fake, store) = with_key().await;
    put(&*store, "k", "one").await;
    let error = store.delete("k", Some(&first)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported, "{error}");
    assert_eq!(text(&*store, "k").await, "one");
}

/// Google passes over the condition of a completion, and overwrites.
#[tokio::test]
async fn an_upload_with_a_condition_is_not_completed() {
    for (_fake, store) in [with_key().await, with_token().await] {
        put(&*store, "k", "one").await;
        let upload = store.create_upload("k", &PutOptions::default()).await.unwrap();
        let payload = Payload::from(Bytes::from_static(b"two"));
        let part = store.upload_part("k", &upload, 1, payload).await.unwrap();
        let parts = [part];
        let options = PutOptions { condition: WriteCondition::IfAbsent, ..PutOptions::default() };
        let error = store.complete_upload("k", &upload, &parts, &options).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported, "{error}");
        assert!(error.hint().is_some());
        assert_eq!(text(&*store, "k").await, "one");
        // The upload is there still, and ends without one.
        store.complete_upload("k", &upload, &parts, &PutOptions::default()).await.unwrap();
        assert_eq!(text(&*store, "k").await, "two");
    }
}

/// A service that passed over the marker would be asked for ever.
#[tokio::test]
async fn a_list_that_does_not_go_on_is_refused() {
    let script = common::Script::start(|_, mut stream| async move {
        use tokio::io::AsyncWriteExt as _;
        let version = "<Version><Key>k</Key><Generation>12</Generation><IsLatest>true</IsLatest>\
            <Size>1</Size></Version>";
        let body = format!(
            "<ListBucketResult>{version}<IsTruncated>true</IsTruncated><NextMarker>k</NextMarker>\
             <NextGenerationMarker>12</NextGenerationMarker></ListBucketResult>"
        );
        while common::read_request(&mut stream).await.is_some() {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        }
    })
    .await;
    let endpoint = script.url("");
    let pairs = [("endpoint", endpoint.as_str()), ("bearer_token", TOKEN)];
    let options = StoreOptions::new(pairs).unwrap();
    let account = S3Account::new(&client().0, "gs", &options).unwrap();
    let store = account.open("bucket").await.unwrap();
    let error = store.list_versions(&all()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
}

/// The directory of the process that has old credentials in its environment.
const OLD: &str = "PENSTOCK_TEST_OLD_CREDENTIALS";
const VARIABLE: &str = "GOOGLE_APPLICATION_CREDENTIALS";

/// The library that looks for credentials reads the variable by itself, so the test goes on in a
/// process of its own.
#[tokio::test]
async fn public_data_are_read_where_the_environments_google_credentials_are_refused() {
    if let Some(directory) = std::env::var_os(OLD) {
        let directory = PathBuf::from(directory);
        // The token has no rights, or there is none any more.
        let token = "{\"access_token\": \"hunter2\", \"token_type\": \"Bearer\"}";
        let none = "{\"error\": \"invalid_grant\"}";
        for (status, answer, refused) in [("200 OK", token, 1), ("400 No", none, 0)] {
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n\
                 {answer}",
                answer.len()
            );
            let tokens = Script::answering(answer).await;
            reads_public_data(&directory, &tokens.url("/token"), refused).await;
            assert!(tokens.connections() > 0, "the old credentials were tried");
        }
        return;
    }
    let own = Scratch::new("google-old");
    let name = "public_data_are_read_where_the_environments_google_credentials_are_refused";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(OLD, own.path());
    command.env(VARIABLE, own.path().join("old.json"));
    let ended = command.output().unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&said));
}

/// `refused`: how many reads the store itself refuses before it gives what is public.
async fn reads_public_data(directory: &Path, token_url: &str, refused: usize) {
    let subject = directory.join("subject");
    std::fs::write(&subject, "subject").unwrap();
    let old = format!(
        r#"{{"type": "external_account", "audience": "a", "token_url": "{token_url}",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "credential_source": {{"file": "{}", "format": {{"type": "text"}}}}}}"#,
        subject.display()
    );
    std::fs::write(directory.join("old.json"), old).unwrap();
    for anonymous in [true, false] {
        let bearer_token = Some(TOKEN.to_string());
        let options = FakeOptions { bearer_token, anonymous, ..FakeOptions::google() };
        let fake = FakeS3::start(options).unwrap();
        let endpoint = fake.endpoint();
        let store = |more: (&str, &str), client: &HttpClient| {
            let options = StoreOptions::new([("endpoint", endpoint.as_str()), more]).unwrap();
            open("gs://bucket/", &options, client).unwrap().0
        };
        let owner = store(("bearer_token", TOKEN), &client().0);
        let payload = || Payload::from(Bytes::from_static(b"public"));
        owner.put("k", payload(), &PutOptions::default()).await.unwrap();
        let (client, heard) = client();
        let store = store(("provider", "environment"), &client);
        let found = store.get("k", GetRequest::default()).await;
        if !anonymous {
            let error = found.unwrap_err();
            assert_eq!(error.kind(), Kind::Denied, "{error}");
            assert!(error.to_string().contains(VARIABLE), "{error}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
            continue;
        }
        let bytes = found.unwrap().body.read_to_bytes(100).await.unwrap();
        assert_eq!(bytes, "public");
        store.get("k", GetRequest::default()).await.unwrap();
        let of_bucket = |event: &RequestEvent| event.url.contains("/bucket/");
        let statuses = heard.events().into_iter().filter(of_bucket).map(|it| it.status);
        let statuses: Vec<_> = statuses.collect();
        // The bucket remembers which way went through.
        assert_eq!(statuses.len(), 2 + refused, "{statuses:?}");
        assert_eq!(statuses[refused..], [200, 200], "{statuses:?}");
        // A write is never sent without a signature.
        let error = store.put("w", payload(), &PutOptions::default()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Denied, "{error}");
    }
}

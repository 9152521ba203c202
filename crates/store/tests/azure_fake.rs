//! The Azure store against the fake: the exam with every kind of credential, and each trouble that
//! a service or the way to it can make.

#![allow(clippy::unwrap_used)] // also in what the tests share

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use penstock_base::{ByteRange, Error, Kind, Result, Retry};
use penstock_store::{
    AzureStore, ETag, GetRange, GetRequest, HttpClient, HttpOptions, ListRequest, Observer, Part,
    Payload, PutOptions, RequestEvent, Store, StoreOptions, WriteCondition,
};
use penstock_testkit::conform::store::Subject;
use penstock_testkit::fake::options::{AZURE_ACCOUNT, AZURE_ACCOUNT_KEY};
use penstock_testkit::fake::{FakeAzure, FakeHandle, FakeOptions};
use penstock_testkit::store_conformance;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TOKEN: &str = "token-that-nobody-may-print";

/// Keeps the URLs of all requests: what the client saw end, it has counted.
#[derive(Debug, Default)]
struct Heard(Mutex<Vec<String>>);

impl Observer for Heard {
    fn request_finished(&self, event: RequestEvent) {
        self.0.lock().unwrap().push(format!("{} {}", event.method, event.url));
    }
}

impl Heard {
    /// The requests since the last call.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn open_heard(url: &str, options: &[(&str, &str)], heard: Arc<Heard>) -> Result<AzureStore> {
    let client = HttpClient::new(HttpOptions::default(), heard)?;
    let options = StoreOptions::new(options.iter().copied())?;
    AzureStore::open(&client, url, &options).map(|(store, _)| store)
}

fn open_url(url: &str, options: &[(&str, &str)]) -> Result<AzureStore> {
    open_heard(url, options, Arc::default())
}

/// A fake, a store on it, and what the store sends.
fn heard() -> (FakeHandle, AzureStore, Arc<Heard>) {
    let fake = FakeAzure::start(FakeOptions::azure()).unwrap();
    let heard: Arc<Heard> = Arc::default();
    let string = fake.connection_string();
    let store = open_heard("az://exam", &[("connection_string", &string)], heard.clone()).unwrap();
    (fake, store, heard)
}

fn open(fake: &FakeHandle, options: &[(&str, &str)]) -> AzureStore {
    let endpoint = fake.endpoint();
    let place = [("account_name", AZURE_ACCOUNT), ("endpoint", endpoint.as_str())];
    let options: Vec<_> = place.iter().chain(options).copied().collect();
    open_url("az://exam", &options).unwrap()
}

/// An account signature with all rights, made here so that the store's own code proves nothing.
fn sas() -> String {
    let (rights, end, version) = ("racwdl", "2099-01-01T00:00:00Z", "2022-11-02");
    let text = format!("{AZURE_ACCOUNT}\n{rights}\nb\nsco\n\n{end}\n\n\n{version}\n\n");
    let key = STANDARD.decode(AZURE_ACCOUNT_KEY).unwrap();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key);
    let signature = STANDARD.encode(ring::hmac::sign(&key, text.as_bytes()));
    let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    format!("?sv={version}&ss=b&srt=sco&sp={rights}&se={end}&sig={signature}")
}

fn is_no_blob_name(key: &str) -> bool {
    key.contains('\\') || key.split('/').any(|part| part == "." || part == "..")
}

fn subject(fake: FakeHandle, options: &[(&str, &str)]) -> Subject {
    let store: Arc<dyn Store> = Arc::new(open(&fake, options));
    Subject::new(store)
        .with_secret(AZURE_ACCOUNT_KEY)
        .with_secret(TOKEN)
        .refusing(is_no_blob_name)
        .keeping(fake)
}

async fn shared_key() -> Subject {
    let fake = FakeAzure::start(FakeOptions::azure()).unwrap();
    let string = fake.connection_string();
    subject(fake, &[("connection_string", &string)])
}

async fn signature() -> Subject {
    let sas = sas();
    let signed = sas.split("sig=").nth(1).unwrap().to_string();
    subject(FakeAzure::start(FakeOptions::azure()).unwrap(), &[("sas_token", &sas)])
        .with_secret(signed)
}

async fn bearer() -> Subject {
    let options = FakeOptions { bearer_token: Some(TOKEN.into()), ..FakeOptions::azure() };
    let fake = FakeAzure::start(options).unwrap();
    subject(fake, &[("provider", "access_token"), ("access_token", TOKEN)])
}

async fn anonymous() -> Subject {
    let options = FakeOptions { anonymous: true, ..FakeOptions::azure() };
    subject(FakeAzure::start(options).unwrap(), &[])
}

store_conformance!(shared_key_conformance, shared_key);
store_conformance!(signature_conformance, signature);
store_conformance!(bearer_conformance, bearer);
store_conformance!(anonymous_conformance, anonymous);

fn fake() -> (FakeHandle, AzureStore) {
    let fake = FakeAzure::start(FakeOptions::azure()).unwrap();
    let store = open(&fake, &[("account_key", AZURE_ACCOUNT_KEY)]);
    (fake, store)
}

fn none() -> PutOptions {
    PutOptions::default()
}

fn body(text: &'static str) -> Payload {
    Bytes::from_static(text.as_bytes()).into()
}

async fn get(store: &AzureStore, key: &str, range: GetRange) -> Result<Bytes> {
    let mut answer = store.get(key, GetRequest::from(range)).await?;
    answer.body.read_to_bytes(1 << 20).await
}

fn bounded(start: u64, end: u64) -> GetRange {
    GetRange::Bounded(ByteRange { start, end })
}

/// Asserts what an error says, and that it shows no credential.
fn told(error: &Error, kind: Kind, texts: &[&str]) {
    let shown = error.to_string();
    assert_eq!(error.kind(), kind, "{shown}");
    for text in texts {
        assert!(shown.contains(text), "`{text}` is missing in: {shown}");
    }
    assert!(error.object().is_some(), "no object is named: {shown}");
    for secret in [AZURE_ACCOUNT_KEY, TOKEN] {
        assert!(!format!("{shown} {error:?}").contains(secret), "{shown}");
    }
}

#[tokio::test]
async fn each_verb_is_as_few_requests_as_can_be() {
    let (_fake, store, heard) = heard();
    store.put("small", body("x"), &none()).await.unwrap();
    assert_eq!(heard.take().len(), 1);
    let id = store.create_upload("large", &none()).await.unwrap();
    assert_eq!(heard.take().len(), 0, "an upload begins without a request");
    let mut parts = Vec::new();
    for number in 1..=3 {
        parts.push(store.upload_part("large", &id, number, body("part")).await.unwrap());
    }
    store.complete_upload("large", &id, &parts, &none()).await.unwrap();
    assert_eq!(heard.take().len(), 4);
    get(&store, "large", bounded(0, 100)).await.unwrap();
    store.list(ListRequest::default()).await.unwrap();
    let keys: Vec<String> = ["small", "large", "absent"].map(String::from).into();
    let results = store.delete_batch(&keys).await.unwrap();
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(heard.take().len(), 3);
}

#[tokio::test]
async fn lost_answer_of_a_commit_is_made_good() {
    for condition in [WriteCondition::None, WriteCondition::IfAbsent] {
        let (fake, store) = fake();
        let options = PutOptions { condition, ..none() };
        let id = store.create_upload("k", &options).await.unwrap();
        let part = store.upload_part("k", &id, 1, body("whole")).await.unwrap();
        fake.fault("lost-answer,op=PutBlockList,times=1");
        let parts = [part];
        let result = match store.complete_upload("k", &id, &parts, &options).await {
            Ok(result) => result,
            Err(error) => {
                assert_eq!(error.retry(), Retry::BackOff, "{error}");
                store.complete_upload("k", &id, &parts, &options).await.unwrap()
            }
        };
        assert_eq!(store.stat("k").await.unwrap().etag, result.etag);
        assert_eq!(get(&store, "k", GetRange::All).await.unwrap(), "whole");
    }
}

#[tokio::test]
async fn commit_after_anothers_commit_is_a_conflict_and_no_mix() {
    let (_fake, store) = fake();
    let ours = store.create_upload("k", &none()).await.unwrap();
    let part = store.upload_part("k", &ours, 1, body("ours")).await.unwrap();
    store.put("k", body("theirs"), &none()).await.unwrap();
    let error = store.complete_upload("k", &ours, &[part], &none()).await.unwrap_err();
    told(&error, Kind::Conflict, &["another writer", "names of its own"]);
    assert_eq!(get(&store, "k", GetRange::All).await.unwrap(), "theirs");
}

/// The other's commit drops what was staged before it, not what is staged after it.
#[tokio::test]
async fn commit_of_anothers_amid_the_parts_is_a_conflict() {
    let (_fake, store) = fake();
    let ours = store.create_upload("k", &none()).await.unwrap();
    let one = store.upload_part("k", &ours, 1, body("ours")).await.unwrap();
    store.put("k", body("theirs"), &none()).await.unwrap();
    let two = store.upload_part("k", &ours, 2, body("too")).await.unwrap();
    let error = store.complete_upload("k", &ours, &[one, two], &none()).await.unwrap_err();
    told(&error, Kind::Conflict, &["another writer", "names of its own"]);
    assert_eq!(get(&store, "k", GetRange::All).await.unwrap(), "theirs");
}

#[tokio::test]
async fn a_part_that_never_came_is_named() {
    let (_fake, store) = fake();
    store.put("k", body("older"), &none()).await.unwrap();
    let id = store.create_upload("k", &none()).await.unwrap();
    let one = store.upload_part("k", &id, 1, body("x")).await.unwrap();
    let two = Part { number: 2, ..one.clone() };
    let error = store.complete_upload("k", &id, &[one.clone(), two], &none()).await.unwrap_err();
    told(&error, Kind::Invalid, &["part 2 was never uploaded"]);
    store.complete_upload("k", &id, &[one], &none()).await.unwrap();
    assert_eq!(get(&store, "k", GetRange::All).await.unwrap(), "x");
}

#[tokio::test]
async fn abort_sends_nothing() {
    let (_fake, store, heard) = heard();
    let id = store.create_upload("k", &none()).await.unwrap();
    store.upload_part("k", &id, 1, body("x")).await.unwrap();
    heard.take();
    store.abort_upload("k", &id).await.unwrap();
    assert_eq!(heard.take(), Vec::<String>::new());
    assert_eq!(store.stat("k").await.unwrap_err().kind(), Kind::NotFound);
}

#[tokio::test]
async fn upload_keeps_the_options_it_began_with() {
    let (_fake, store) = fake();
    let options = PutOptions {
        content_type: Some("text/csv".into()),
        metadata: vec![("my-key".into(), "grün".into())],
        ..none()
    };
    let id = store.create_upload("k", &options).await.unwrap();
    let part = store.upload_part("k", &id, 1, body("x")).await.unwrap();
    store.complete_upload("k", &id, &[part], &none()).await.unwrap();
    let meta = store.stat("k").await.unwrap();
    assert_eq!((meta.content_type, meta.metadata), (options.content_type, options.metadata));
}

#[tokio::test]
async fn answers_that_cannot_be_right_are_corrupt() {
    for fault in
        ["truncate=3", "wrong-range=+1", "ignore-range", "html", "lie-length=-2", "error-200"]
    {
        let (fake, store) = fake();
        store.put("k", body("0123456789"), &none()).await.unwrap();
        fake.fault(&format!("{fault},op=GetBlob"));
        let error = get(&store, "k", bounded(2, 8)).await.unwrap_err();
        told(&error, Kind::Corrupt, &["GET az://exam/k"]);
    }
    // A whole object has no range to compare, but no service answers without its own headers.
    let (fake, store) = fake();
    fake.fault("html");
    told(&get(&store, "k", GetRange::All).await.unwrap_err(), Kind::Corrupt, &["proxy"]);
    told(&store.stat("k").await.unwrap_err(), Kind::Corrupt, &["proxy"]);
    told(&store.put("k", body("x"), &none()).await.unwrap_err(), Kind::Corrupt, &["proxy"]);
    told(&store.list(ListRequest::default()).await.unwrap_err(), Kind::Corrupt, &["proxy"]);
    told(&store.delete("k", None).await.unwrap_err(), Kind::Corrupt, &["proxy"]);
    told(&store.copy("k", "l", &none()).await.unwrap_err(), Kind::Corrupt, &["proxy"]);
}

#[tokio::test]
async fn cut_connections_are_worth_another_try() {
    for (fault, op) in [
        ("reset", "PutBlob"),
        ("reset-upload=2", "PutBlob"),
        ("reset", "PutBlock"),
        ("reset", "PutBlockList"),
        ("reset", "ListBlobs"),
        ("reset", "GetBlob"),
        ("cut=3", "GetBlob"),
        ("reset", "GetBlobProperties"),
        ("reset", "DeleteBlob"),
        ("reset", "SubmitBatch"),
        ("reset", "CopyBlob"),
    ] {
        let (fake, store) = fake();
        store.put("there", body("0123456789"), &none()).await.unwrap();
        fake.fault(&format!("{fault},op={op}"));
        let failed = match op {
            "PutBlob" => store.put("k", body("0123456789"), &none()).await.map(drop),
            "PutBlock" | "PutBlockList" => {
                let id = store.create_upload("k", &none()).await.unwrap();
                match store.upload_part("k", &id, 1, body("x")).await {
                    Ok(part) => store.complete_upload("k", &id, &[part], &none()).await.map(drop),
                    Err(error) => Err(error),
                }
            }
            "ListBlobs" => store.list(ListRequest::default()).await.map(drop),
            "GetBlob" => get(&store, "there", GetRange::All).await.map(drop),
            "GetBlobProperties" => store.stat("there").await.map(drop),
            "DeleteBlob" => store.delete("there", None).await,
            "SubmitBatch" => store.delete_batch(&["a".into(), "b".into()]).await.map(drop),
            _ => store.copy("there", "k", &none()).await.map(drop),
        };
        let error = failed.expect_err(op);
        told(&error, Kind::Unavailable, &[]);
        assert_eq!(error.retry(), Retry::BackOff, "{op}: {error}");
        fake.faults().clear();
        assert_eq!(store.stat("k").await.unwrap_err().kind(), Kind::NotFound, "{op}");
    }
}

#[tokio::test]
async fn throttling_tells_how_long_to_wait() {
    let (fake, store) = fake();
    fake.fault("status=503,op=GetBlob,retry-after=7");
    let error = get(&store, "k", GetRange::All).await.unwrap_err();
    told(&error, Kind::Throttled, &["503"]);
    assert_eq!(error.retry(), Retry::After(Duration::from_secs(7)));
}

#[tokio::test]
async fn wrong_key_shows_the_secret_to_try() {
    let (fake, _) = fake();
    let wrong = STANDARD.encode("another key");
    let store = open(&fake, &[("account_key", &wrong), ("secret_name", "lake")]);
    let error = store.stat("k").await.unwrap_err();
    told(&error, Kind::Denied, &["secret 'lake'", "CREATE SECRET (TYPE azure", "az://exam/"]);
    assert_eq!(error.retry(), Retry::Never);
    let unnamed = open(&fake, &[("account_key", &wrong)]);
    told(&unnamed.stat("k").await.unwrap_err(), Kind::Denied, &["AccountKey of the settings"]);
    let store = open(&fake, &[]);
    let error = store.put("k", body("x"), &none()).await.unwrap_err();
    told(&error, Kind::Denied, &["carried no credentials", "credential_chain"]);
}

#[tokio::test]
async fn a_clock_off_by_an_hour_is_told_by_how_much() {
    let options = FakeOptions { clock_offset_s: 3600, ..FakeOptions::azure() };
    let fake = FakeAzure::start(options).unwrap();
    let store = open(&fake, &[("account_key", AZURE_ACCOUNT_KEY)]);
    let error = get(&store, "k", GetRange::All).await.unwrap_err();
    let minutes = ["59 min", "60 min"].iter().any(|text| error.to_string().contains(text));
    assert!(minutes, "{error}");
    told(&error, Kind::Denied, &["clock", "behind"]);
}

#[tokio::test]
async fn missing_container_is_told_apart_from_a_missing_blob() {
    let fake = FakeAzure::start(FakeOptions::azure()).unwrap();
    let string = fake.connection_string();
    let store = open_url("az://missing-here", &[("connection_string", &string)]).unwrap();
    told(&get(&store, "k", GetRange::All).await.unwrap_err(), Kind::NotFound, &["container"]);
    let error = store.list(ListRequest::default()).await.unwrap_err();
    told(&error, Kind::NotFound, &["container"]);
    told(&store.delete("k", None).await.unwrap_err(), Kind::NotFound, &["container"]);
    let (_fake, store) = crate::fake();
    told(&store.stat("k").await.unwrap_err(), Kind::NotFound, &["object does not exist"]);
}

#[tokio::test]
async fn a_blob_replaced_between_two_reads_is_a_conflict() {
    let (fake, store) = fake();
    let etag = store.put("k", body("0123456789"), &none()).await.unwrap().etag;
    fake.fault("replace,op=GetBlob");
    let request = GetRequest { range: bounded(0, 4), if_match: etag, ..Default::default() };
    told(&store.get("k", request).await.unwrap_err(), Kind::Conflict, &[]);
}

#[tokio::test]
async fn an_empty_page_is_not_the_last() {
    let (fake, store) = fake();
    store.put("k", body("x"), &none()).await.unwrap();
    fake.fault("empty-page,op=ListBlobs,times=1");
    let page = store.list(ListRequest::default()).await.unwrap();
    assert!(page.objects.is_empty());
    let next = ListRequest { token: page.next, ..ListRequest::default() };
    assert!(next.token.is_some());
    assert_eq!(store.list(next).await.unwrap().objects.len(), 1);
}

#[tokio::test]
async fn start_after_asks_the_service_to_start_there_and_copes_when_it_cannot() {
    for refuses in [false, true] {
        let (fake, store, heard) = heard();
        for key in ["a", "b", "c", "d"] {
            store.put(key, body("x"), &none()).await.unwrap();
        }
        if refuses {
            fake.fault("status=400,code=InvalidHeaderValue,op=ListBlobs,times=1");
        }
        heard.take();
        let mut found = Vec::new();
        let mut request = ListRequest {
            start_after: Some("b".into()),
            max_keys: Some(1),
            ..ListRequest::default()
        };
        loop {
            let page = store.list(request.clone()).await.unwrap();
            found.extend(page.objects.into_iter().map(|entry| entry.key));
            // As S3 clients do: the token alone names the place.
            request.start_after = None;
            request.token = page.next;
            if request.token.is_none() {
                break;
            }
        }
        assert_eq!(found, ["c", "d"]);
        let sent = heard.take();
        assert!(sent[0].contains("startFrom=b"), "{sent:?}");
        assert_eq!(sent.iter().filter(|url| url.contains("startFrom")).count(), 1);
    }
}

#[tokio::test]
async fn only_a_prefix_that_start_after_lies_in_costs_a_request() {
    let (_fake, store, heard) = heard();
    for key in ["01/a", "03/a", "03/b", "04/a"] {
        store.put(key, body("x"), &none()).await.unwrap();
    }
    for (after, prefixes, requests) in [
        ("02", vec!["03/", "04/"], 1),
        ("03/a", vec!["03/", "04/"], 2),
        ("03/b", vec!["04/"], 2),
        ("03/c", vec!["04/"], 1),
        ("05", vec![], 1),
    ] {
        heard.take();
        let page = store
            .list(ListRequest {
                start_after: Some(after.into()),
                delimiter: Some("/".into()),
                ..ListRequest::default()
            })
            .await
            .unwrap();
        assert_eq!(page.prefixes, prefixes, "after {after}");
        let sent = heard.take();
        assert_eq!(sent.len(), requests, "after {after}: {sent:?}");
        assert!(requests == 1 || sent[1].contains("maxresults=2"), "{sent:?}");
    }
}

#[tokio::test]
async fn accounts_without_batches_get_single_deletes() {
    let (fake, store, heard) = heard();
    let keys: Vec<String> = (0..40).map(|n| format!("k{n}")).collect();
    for key in &keys {
        store.put(key, body("x"), &none()).await.unwrap();
    }
    fake.fault("status=501,code=NotImplemented,op=SubmitBatch");
    let results = store.delete_batch(&keys).await.unwrap();
    assert!(results.len() == 40 && results.iter().all(Result::is_ok));
    assert!(store.list(ListRequest::default()).await.unwrap().objects.is_empty());
    store.delete_batch(&keys).await.unwrap();
    let batches = heard.take().iter().filter(|url| url.contains("comp=batch")).count();
    assert_eq!(batches, 1, "a refusal is remembered");
}

#[tokio::test]
async fn a_batch_that_is_refused_is_not_the_last_one() {
    let (fake, store, heard) = heard();
    let keys = ["a".to_string(), "b".to_string()];
    let batches = async |count: usize| {
        for _ in 0..count {
            store.delete_batch(&keys).await.unwrap();
        }
        heard.take().iter().filter(|url| url.contains("comp=batch")).count()
    };
    for refused in [1, 15] {
        fake.fault(&format!("status=409,code=Odd,op=SubmitBatch,times={refused}"));
        assert_eq!(batches(refused + 1).await, refused + 1);
    }
    fake.fault("status=409,code=Odd,op=SubmitBatch");
    assert_eq!(batches(20).await, 16, "an account that refuses all is asked no more");
}

#[tokio::test]
async fn copy_with_another_type_is_one_request_or_falls_back() {
    let typed = PutOptions {
        content_type: Some("text/plain".into()),
        metadata: vec![("a".into(), "b".into())],
        ..none()
    };
    for refuses in [false, true] {
        let (fake, store, heard) = heard();
        let first = PutOptions { content_type: Some("x/y".into()), ..none() };
        store.put("from", body("content"), &first).await.unwrap();
        if refuses {
            fake.fault("status=501,code=NotImplemented,op=PutBlobFromURL");
        }
        heard.take();
        let result = store.copy("from", "to", &typed).await.unwrap();
        assert_eq!(heard.take().len(), if refuses { 3 } else { 1 });
        let meta = store.stat("to").await.unwrap();
        assert_eq!((&meta.content_type, &meta.metadata), (&typed.content_type, &typed.metadata));
        assert_eq!(meta.etag, result.etag);
        store.copy("from", "kept", &none()).await.unwrap();
        let kept = store.stat("kept").await.unwrap();
        assert_eq!(kept.content_type.as_deref(), Some("x/y"));
        assert_eq!(get(&store, "kept", GetRange::All).await.unwrap(), "content");
        let error = store.copy("absent", "to", &none()).await.unwrap_err();
        told(&error, Kind::NotFound, &["az://exam/absent"]);
    }
}

#[tokio::test]
async fn directories_of_a_hierarchical_account_are_hidden() {
    let (fake, store) = fake();
    let string = fake.connection_string();
    let mark = ("extra_http_headers.x-ms-meta-hdi_isfolder", "true");
    let marking = open_url("az://exam", &[("connection_string", &string), mark]).unwrap();
    marking.put("dir", Payload::default(), &none()).await.unwrap();
    // What a user calls so is an entry like any other.
    let metadata = vec![("hdi_isfolder".to_string(), "true".to_string())];
    let own = PutOptions { metadata: metadata.clone(), ..none() };
    store.put("dir/file", body("x"), &own).await.unwrap();
    assert_eq!(store.stat("dir/file").await.unwrap().metadata, metadata);
    let page = store.list(ListRequest::default()).await.unwrap();
    assert_eq!(page.objects.iter().map(|e| e.key.as_str()).collect::<Vec<_>>(), ["dir/file"]);
    told(&store.stat("dir").await.unwrap_err(), Kind::NotFound, &["directory"]);
    let error = get(&store, "dir", GetRange::All).await.unwrap_err();
    told(&error, Kind::NotFound, &["directory"]);
}

#[tokio::test]
async fn conditions_map_to_conflict() {
    let (_fake, store) = fake();
    let options = |condition| PutOptions { condition, ..none() };
    store.put("k", body("1"), &options(WriteCondition::IfAbsent)).await.unwrap();
    let again = store.put("k", body("2"), &options(WriteCondition::IfAbsent)).await;
    told(&again.unwrap_err(), Kind::Conflict, &["409 BlobAlreadyExists"]);
    let stale = options(WriteCondition::IfMatch(ETag("0x1".into())));
    told(&store.put("k", body("2"), &stale).await.unwrap_err(), Kind::Conflict, &["412"]);
    let error = store.delete("k", Some(&ETag("0x1".into()))).await.unwrap_err();
    told(&error, Kind::Conflict, &["412"]);
    assert_eq!(get(&store, "k", GetRange::All).await.unwrap(), "1");
}

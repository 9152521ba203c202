//! Accounts with a hierarchical namespace, which list directory by directory: whatever is asked,
//! the store lists in byte order, and no name is lost.

use crate::support::{Heard, body, none, open_heard};
use penstock_store::streaming::{StreamingStore as _, UploadsRequest, VersionsRequest};
use penstock_store::{AzureStore, ListPage, ListRequest, Store};
use penstock_testkit::fake::{FakeAzure, FakeHandle, FakeOptions};
use std::sync::Arc;

const KEYS: [&str; 7] = ["a-b/x", "a-c", "a.txt", "a/00", "a/01", "a/02", "ab"];

/// A store that knows nothing of the account yet, and what it sends.
fn fresh(fake: &FakeHandle) -> (AzureStore, Arc<Heard>) {
    let heard: Arc<Heard> = Arc::default();
    let string = fake.connection_string();
    let options = [("connection_string", string.as_str())];
    (open_heard("az://exam", &options, heard.clone()).unwrap(), heard)
}

async fn with(keys: &[&str]) -> FakeHandle {
    let fake = FakeAzure::start(FakeOptions::azure_hierarchical()).unwrap();
    let (store, _) = fresh(&fake);
    for key in keys {
        store.put(key, body("x"), &none()).await.unwrap();
    }
    fake
}

fn names(page: &ListPage) -> Vec<String> {
    let mut names = page.prefixes.clone();
    names.extend(page.objects.iter().map(|entry| entry.key.clone()));
    names.sort();
    names
}

/// All pages by their tokens.
async fn by_tokens(store: &AzureStore, mut request: ListRequest) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..200 {
        let page = store.list(request.clone()).await.unwrap();
        all.extend(names(&page));
        request.start_after = None;
        request.token = page.next;
        if request.token.is_none() {
            return all;
        }
    }
    panic!("it comes to no end: {all:?}");
}

/// As version 1 of S3's list goes on: behind the last name of a page, and without a token.
async fn by_names(fake: &FakeHandle, mut request: ListRequest) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let (store, _) = fresh(fake);
        let mut page = store.list(request.clone()).await.unwrap();
        while names(&page).is_empty() && page.next.is_some() {
            let next = ListRequest { token: page.next, start_after: None, ..request.clone() };
            page = store.list(next).await.unwrap();
        }
        let Some(last) = names(&page).pop() else { return all };
        all.extend(names(&page));
        let is_folded = page.prefixes.contains(&last);
        request.start_after = Some(if is_folded { format!("{last}{}", char::MAX) } else { last });
        if page.next.is_none() {
            return all;
        }
    }
}

#[tokio::test]
async fn lists_are_in_byte_order_and_lose_no_name() {
    let fake = with(&KEYS).await;
    for most in [1, 2, 3, 5, 100] {
        let all = ListRequest { max_keys: Some(most), ..ListRequest::default() };
        assert_eq!(by_tokens(&fresh(&fake).0, all.clone()).await, KEYS, "{most} a page");
        assert_eq!(by_names(&fake, all.clone()).await, KEYS, "{most} a page, behind names");
        let folded = ListRequest { delimiter: Some("/".into()), ..all };
        let expected = ["a-b/", "a-c", "a.txt", "a/", "ab"];
        assert_eq!(by_tokens(&fresh(&fake).0, folded.clone()).await, expected, "{most}");
        assert_eq!(by_names(&fake, folded).await, expected, "{most} a page, behind names");
    }
}

#[tokio::test]
async fn what_is_behind_a_name_is_by_bytes() {
    let fake = with(&KEYS).await;
    let strange = ["", "0", "a", "a/", "a!", "a-b", "a-b/x/y", "a.txt/z", "a/005", "a0", "b"];
    for after in KEYS.iter().chain(&strange) {
        let expected: Vec<_> = KEYS.iter().copied().filter(|key| key > after).collect();
        let request = ListRequest {
            start_after: Some(after.to_string()),
            max_keys: Some(2),
            ..ListRequest::default()
        };
        // One that knows nothing of the account, and one that does.
        let (store, _) = fresh(&fake);
        for _ in 0..2 {
            assert_eq!(by_tokens(&store, request.clone()).await, expected, "after {after}");
        }
        let folded = ListRequest { delimiter: Some("/".into()), ..request.clone() };
        let mut prefixes: Vec<_> = expected
            .iter()
            .map(|key| match key.split_once('/') {
                Some((dir, _)) => format!("{dir}/"),
                None => key.to_string(),
            })
            .collect();
        prefixes.dedup();
        for store in [store, fresh(&fake).0] {
            assert_eq!(by_tokens(&store, folded.clone()).await, prefixes, "after {after}");
        }
        let below = ListRequest { prefix: "a-".into(), ..request };
        let expected: Vec<_> = expected.into_iter().filter(|key| key.starts_with("a-")).collect();
        assert_eq!(by_tokens(&fresh(&fake).0, below).await, expected, "after {after}");
    }
}

/// The account folds at directories only.
#[tokio::test]
async fn names_fold_at_any_delimiter() {
    let fake = with(&KEYS).await;
    for most in [1, 2, 100] {
        let folded = ListRequest {
            delimiter: Some("-".into()),
            max_keys: Some(most),
            ..ListRequest::default()
        };
        let expected = ["a-", "a.txt", "a/00", "a/01", "a/02", "ab"];
        assert_eq!(by_tokens(&fresh(&fake).0, folded.clone()).await, expected, "{most} a page");
        assert_eq!(by_names(&fake, folded).await, expected, "{most} a page, behind names");
    }
}

/// An older service starts at no name: it lists from the start.
#[tokio::test]
async fn a_service_that_starts_at_no_name_loses_none() {
    let fake = with(&KEYS).await;
    for after in KEYS {
        let (store, heard) = fresh(&fake);
        fake.fault("status=400,code=InvalidHeaderValue,op=ListBlobs,times=1");
        let request = ListRequest {
            start_after: Some(after.into()),
            max_keys: Some(2),
            ..ListRequest::default()
        };
        let expected: Vec<_> = KEYS.into_iter().filter(|key| *key > after).collect();
        assert_eq!(by_tokens(&store, request).await, expected, "after {after}");
        let sent = heard.take();
        assert_eq!(sent.iter().filter(|url| url.contains("startFrom")).count(), 1, "{sent:?}");
    }
}

/// A page that ends in directories costs a small request for each of them, once.
#[tokio::test]
async fn a_page_costs_one_request_and_a_look_at_each_directory_that_it_ends_in() {
    let keys: Vec<String> = (0..30).map(|at| format!("y=1/m={}/part-{at:02}", at / 20)).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let fake = with(&keys).await;
    let (store, heard) = fresh(&fake);
    let mut request = ListRequest { max_keys: Some(8), ..ListRequest::default() };
    let (mut found, mut sent) = (Vec::new(), Vec::new());
    loop {
        let page = store.list(request.clone()).await.unwrap();
        found.extend(names(&page));
        sent.push(heard.take().len());
        request.token = page.next;
        if request.token.is_none() {
            break;
        }
    }
    assert_eq!(found, keys);
    // `y=1` and `y=1/m=0` are looked at on the first page, `y=1/m=1` on the last but one.
    assert_eq!(sent, [3, 1, 2, 1, 1]);
    // All in one page: nothing is open.
    store.list(ListRequest::default()).await.unwrap();
    assert_eq!(heard.take().len(), 1);
}

/// Where nothing tells the kind of the account, its first name does, and an empty page is none.
#[tokio::test]
async fn a_page_without_names_does_not_hide_what_comes_before_it() {
    let fake = with(&["a-b", "a/x"]).await;
    let (store, _) = fresh(&fake);
    let behind = ListRequest { start_after: Some("a-b".into()), ..ListRequest::default() };
    assert_eq!(by_tokens(&store, behind).await, ["a/x"]);
    let flat = FakeAzure::start(FakeOptions::azure()).unwrap();
    let (store, heard) = fresh(&flat);
    store.put("a-b", body("x"), &none()).await.unwrap();
    heard.take();
    let behind =
        |after: &str| ListRequest { start_after: Some(after.into()), ..ListRequest::default() };
    for (after, requests) in [("a", 1), ("b", 1), ("c", 1)] {
        by_tokens(&store, behind(after)).await;
        assert_eq!(heard.take().len(), requests, "a flat account, after {after}");
    }
    // Of an account that nothing is known of yet, a page without names costs one request more.
    let (store, heard) = fresh(&flat);
    for requests in [2, 1] {
        by_tokens(&store, behind("c")).await;
        assert_eq!(heard.take().len(), requests);
    }
}

#[tokio::test]
async fn versions_and_uploads_are_listed_in_order_too() {
    let fake = with(&KEYS).await;
    let (mut seen, mut marker) = (Vec::new(), None);
    loop {
        let (store, _) = fresh(&fake);
        let request = VersionsRequest { key_marker: marker, max: 2, ..VersionsRequest::default() };
        let page = store.list_versions(&request).await.unwrap();
        seen.extend(page.versions.into_iter().map(|entry| entry.key));
        let Some((key, _)) = page.next else { break };
        marker = Some(key);
    }
    assert_eq!(seen, KEYS);

    let fake = with(&[]).await;
    let (store, _) = fresh(&fake);
    for key in KEYS {
        let id = store.create_upload(key, &none()).await.unwrap();
        store.upload_part(key, &id, 1, body("x")).await.unwrap();
    }
    for max in [1, 2, 10] {
        let (mut seen, mut markers) = (Vec::new(), (String::new(), String::new()));
        loop {
            let (store, _) = fresh(&fake);
            let mut request = UploadsRequest {
                key_marker: markers.0.clone(),
                upload_marker: markers.1.clone(),
                max,
                ..UploadsRequest::default()
            };
            let mut uploads = Vec::new();
            loop {
                let page = store.list_uploads(&request).await.unwrap();
                uploads.extend(page.uploads);
                request.token = page.next;
                if request.token.is_none() || uploads.len() > max {
                    break;
                }
            }
            let is_more = uploads.len() > max;
            uploads.truncate(max);
            seen.extend(uploads.iter().map(|upload| upload.key.clone()));
            let Some(last) = uploads.pop().filter(|_| is_more) else { break };
            markers = (last.key, last.id.0);
        }
        assert_eq!(seen, KEYS, "{max} a page");
    }
}

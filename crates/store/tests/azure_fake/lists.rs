//! Listings: empty pages, where they start, directories.

use crate::support::{body, fake, get, heard, none, open_url, told};
use penstock_base::Kind;
use penstock_store::{GetRange, ListRequest, Payload, PutOptions, Store};

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
    // From here on it is known that the account is a flat one.
    store.list(ListRequest::default()).await.unwrap();
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

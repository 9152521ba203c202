//! Plain HTTP servers of all manners: redirects, no HEAD, no ranges, no length.

#![allow(clippy::unwrap_used)] // helpers of tests fail as tests do

mod common;

use bytes::Bytes;
use common::{Script, client, read_request};
use penstock_base::{ByteRange, Kind};
use penstock_store::{
    ETag, GetRange, GetRequest, ListRequest, Payload, PutOptions, Store, StoreOptions, UploadId,
    open,
};
use std::sync::{Arc, Mutex};
use tokio::io::AsyncWriteExt;

/// Answers each request by a function of its head, and keeps the heads.
async fn server(
    answer: impl Fn(&str) -> String + Send + Sync + 'static,
) -> (Script, Arc<Mutex<Vec<String>>>) {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let (answer, kept) = (Arc::new(answer), heads.clone());
    let script = Script::start(move |_, mut stream| {
        let (answer, kept) = (answer.clone(), kept.clone());
        async move {
            while let Some((head, _)) = read_request(&mut stream).await {
                let text = answer(&head);
                kept.lock().unwrap().push(head);
                if stream.write_all(text.as_bytes()).await.is_err() || text.contains("close") {
                    return;
                }
            }
        }
    });
    (script.await, heads)
}

fn store_at(url: &str, options: &[(&str, &str)]) -> (Arc<dyn Store>, String) {
    let options = StoreOptions::new(options.iter().copied()).unwrap();
    open(url, &options, &client().0).unwrap()
}

fn ask(range: GetRange) -> GetRequest {
    GetRequest::from(range)
}

async fn read(store: &dyn Store, key: &str, range: GetRange) -> (Vec<u8>, Option<u64>) {
    let answer = store.get(key, ask(range)).await.unwrap();
    let mut answer = answer.cut(range).await.unwrap();
    let bytes = answer.body.read_to_bytes(1 << 20).await.unwrap();
    (bytes.to_vec(), answer.meta.size_bytes)
}

const WHOLE: &str = "HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: 10\r\n\r\n";

#[tokio::test]
async fn server_without_ranges_still_answers_the_right_bytes() {
    let (script, _) = server(|head| match head.starts_with("HEAD") {
        true => WHOLE.to_string(),
        false => format!("{WHOLE}0123456789"),
    })
    .await;
    let (store, key) = store_at(&script.url("/k"), &[]);
    let bounded = GetRange::Bounded(ByteRange { start: 3, end: 6 });
    for (range, expected) in [
        (bounded, "345"),
        (GetRange::From(7), "789"),
        (GetRange::Suffix(2), "89"),
        (GetRange::Bounded(ByteRange { start: 8, end: 20 }), "89"),
        (GetRange::Bounded(ByteRange { start: 12, end: 20 }), ""),
        (GetRange::All, "0123456789"),
    ] {
        let found = read(&*store, &key, range).await;
        assert_eq!(found, (expected.as_bytes().to_vec(), Some(10)), "{range:?}");
    }
}

#[tokio::test]
async fn server_without_length_tells_no_size_and_all_bytes() {
    let (script, _) = server(|head| match head.starts_with("HEAD") {
        true => "HTTP/1.1 200 OK\r\n\r\n".to_string(),
        false => "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n0123456789".to_string(),
    })
    .await;
    let (store, key) = store_at(&script.url("/k"), &[]);
    assert_eq!(store.stat(&key).await.unwrap().size_bytes, None);
    assert_eq!(read(&*store, &key, GetRange::All).await, (b"0123456789".to_vec(), None));
    assert_eq!(read(&*store, &key, GetRange::From(8)).await, (b"89".to_vec(), None));
    let suffix = GetRange::Suffix(3);
    let answer = store.get(&key, ask(suffix)).await.unwrap();
    assert_eq!(answer.cut(suffix).await.unwrap_err().kind(), Kind::Unsupported);
}

#[tokio::test]
async fn server_without_head_is_asked_by_get_and_remembered() {
    let (script, heads) = server(|head| match head.starts_with("HEAD") {
        true => "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_string(),
        false => "HTTP/1.1 206 Partial Content\r\nETag: \"v1\"\r\nContent-Length: 1\r\n\
                  Content-Range: bytes 0-0/77\r\n\r\nx"
            .to_string(),
    })
    .await;
    let (store, key) = store_at(&script.url("/signed?sig=hunter2"), &[]);
    for _ in 0..2 {
        let meta = store.stat(&key).await.unwrap();
        assert_eq!((meta.size_bytes, meta.etag), (Some(77), Some(ETag("v1".into()))));
    }
    let methods: Vec<String> =
        heads.lock().unwrap().iter().map(|head| head[..4].to_string()).collect();
    assert_eq!(methods, ["HEAD", "GET ", "GET "]);
}

#[tokio::test]
async fn redirect_is_followed_remembered_and_gets_no_credentials_of_another_host() {
    let (target, seen) = server(|_| format!("{WHOLE}0123456789")).await;
    let to = target.url("/there?x=1");
    let (script, heads) = server(move |_| {
        format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
    })
    .await;
    let options = [("bearer_token", "hunter2"), ("extra_http_headers.X-Api", "hunter3")];
    let (store, key) = store_at(&script.url("/k"), &options);
    assert_eq!(read(&*store, &key, GetRange::All).await.0, b"0123456789");
    assert_eq!(read(&*store, &key, GetRange::From(3)).await.0, b"3456789");
    let first = heads.lock().unwrap().clone();
    assert_eq!(first.len(), 1, "the second read goes straight to the target");
    assert!(first[0].contains("authorization: Bearer hunter2"), "{first:?}");
    assert!(first[0].contains("x-api: hunter3"), "{first:?}");
    let second = seen.lock().unwrap().clone();
    assert!(second.iter().all(|head| head.starts_with("GET /there?x=1 ")), "{second:?}");
    assert!(second.iter().all(|head| !head.contains("hunter")), "{second:?}");
}

/// A scope may be a part of the server: headers of a secret do not follow a redirect out of it.
#[tokio::test]
async fn a_redirect_out_of_the_scope_gets_no_credentials() {
    for (scope, is_covered) in [("/team a", true), ("/team a/", false), ("", true)] {
        let (script, heads) = server(|head| match head.starts_with("GET /team%20a/k ") {
            true => "HTTP/1.1 302 Found\r\nLocation: /team%20a2/k\r\nContent-Length: 0\r\n\r\n"
                .to_string(),
            false => "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_string(),
        })
        .await;
        let scope = script.url(scope);
        let options = [("bearer_token", "hunter2"), ("secret_name", "web"), ("scope", &scope)];
        let (store, key) = store_at(&script.url("/team a/k"), &options);
        let error = store.get(&key, ask(GetRange::All)).await.unwrap_err();
        let heads = heads.lock().unwrap().clone();
        assert!(heads[0].contains("Bearer hunter2"), "{heads:?}");
        assert_eq!(heads[1].contains("hunter2"), is_covered, "{scope} {heads:?}");
        let told = error.to_string();
        assert_eq!(told.contains("read that URL itself"), !is_covered, "{told}");
        assert_eq!(told.contains("Check secret 'web'"), is_covered, "{told}");
    }
}

/// Where a redirect leads may change, and what asks for the present version sees that at once.
#[tokio::test]
async fn requests_that_open_or_validate_ask_for_the_way_again() {
    let (old, _) = server(|_| format!("{WHOLE}0123456789")).await;
    let newer = "HTTP/1.1 200 OK\r\nETag: \"v2\"\r\nContent-Length: 3\r\n\r\n";
    let (new, _) = server(move |head| match head.starts_with("HEAD") {
        true => newer.to_string(),
        false => format!("{newer}new"),
    })
    .await;
    let target = Arc::new(Mutex::new(old.url("/there")));
    let to = Arc::clone(&target);
    let (script, _) = server(move |_| {
        let to = to.lock().unwrap().clone();
        format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
    })
    .await;
    let first = GetRange::Bounded(ByteRange { start: 0, end: 3 });
    for range in [None, Some(GetRange::All), Some(GetRange::Suffix(3)), Some(first)] {
        let (store, key) = store_at(&script.url("/k"), &[]);
        *target.lock().unwrap() = old.url("/there");
        assert_eq!(read(&*store, &key, GetRange::All).await.0, b"0123456789");
        *target.lock().unwrap() = new.url("/there");
        let pinned =
            GetRequest { range: first, if_match: Some(ETag("v1".into())), ..Default::default() };
        assert!(store.get(&key, pinned.clone()).await.is_ok(), "what is open is read on");
        match range {
            None => assert_eq!(store.stat(&key).await.unwrap().size_bytes, Some(3)),
            Some(range) => assert_eq!(read(&*store, &key, range).await.0, b"new", "{range:?}"),
        }
        assert_eq!(store.get(&key, pinned).await.unwrap_err().kind(), Kind::Conflict);
    }
}

#[tokio::test]
async fn circle_of_redirects_ends() {
    let (script, _) =
        server(|_| "HTTP/1.1 301 Moved\r\nLocation: /k\r\nContent-Length: 0\r\n\r\n".to_string())
            .await;
    let (store, key) = store_at(&script.url("/k"), &[]);
    let error = store.stat(&key).await.unwrap_err();
    assert!(error.to_string().contains("redirects"), "{error}");
}

#[tokio::test]
async fn changed_object_is_a_conflict_even_if_the_server_ignores_conditions() {
    let (script, _) = server(|_| format!("{WHOLE}0123456789")).await;
    let (store, key) = store_at(&script.url("/k"), &[]);
    let request = |tag: &str| GetRequest {
        range: GetRange::All,
        if_match: Some(ETag(tag.into())),
        ..Default::default()
    };
    assert!(store.get(&key, request("v1")).await.is_ok());
    let error = store.get(&key, request("v0")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    let unless =
        |tag: &str| GetRequest { if_none_match: Some(ETag::parse(tag)), ..ask(GetRange::All) };
    let error = store.get(&key, unless("W/\"v1\"")).await.unwrap_err();
    assert!(error.is_not_modified(), "{error}");
    assert!(store.get(&key, unless("\"v0\"")).await.is_ok());
}

#[tokio::test]
async fn what_the_reader_has_is_told_by_the_server() {
    let (script, seen) = server(|head| match head.contains("\r\nif-none-match: W/\"v1\"\r\n") {
        // As servers may, it tells the length of what it does not send.
        true => "HTTP/1.1 304 Not Modified\r\nETag: W/\"v1\"\r\nContent-Length: 10\r\n\r\n".into(),
        false => format!("{WHOLE}0123456789"),
    })
    .await;
    let (store, key) = store_at(&script.url("/k"), &[]);
    let unless = GetRequest { if_none_match: Some(ETag::parse("W/\"v1\"")), ..ask(GetRange::All) };
    for _ in 0..2 {
        let error = store.get(&key, unless.clone()).await.unwrap_err();
        assert!(error.is_not_modified(), "{error}");
        assert_eq!(error.etag(), Some("W/\"v1\""));
        assert_eq!(read(&*store, &key, GetRange::All).await.0, b"0123456789");
    }
    let heads = seen.lock().unwrap();
    assert_eq!(heads.len(), 4, "one request each");
}

#[tokio::test]
async fn refusals_name_the_cure_and_no_secret() {
    let (script, _) = server(|head| match head.contains("/missing") {
        true => "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n\
                 <html></html>"
            .to_string(),
        false => "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n".to_string(),
    })
    .await;
    let (store, key) = store_at(&script.url("/missing?token=hunter2"), &[]);
    let error = store.get(&key, ask(GetRange::All)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert_eq!(error.object().unwrap(), script.url("/missing?token=***"));
    assert!(!error.to_string().contains("hunter2"), "{error}");
    assert!(
        !error.to_string().contains("proxy"),
        "a page is what web servers answer with: {error}"
    );
    let error = store.get("private", ask(GetRange::All)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Denied);
    assert!(error.hint().unwrap().contains("CREATE SECRET (TYPE http"), "{error}");
}

#[tokio::test]
async fn what_plain_http_cannot_do_is_unsupported() {
    let (store, key) = store_at("http://127.0.0.1:1/k", &[]);
    let (options, upload) = (PutOptions::default(), UploadId(String::new()));
    let payload = || Payload::from(Bytes::from_static(b"x"));
    for result in [
        store.put(&key, payload(), &options).await.map(drop),
        store.create_upload(&key, &options).await.map(drop),
        store.upload_part(&key, &upload, 1, payload()).await.map(drop),
        store.complete_upload(&key, &upload, &[], &options).await.map(drop),
        store.abort_upload(&key, &upload).await,
        store.delete(&key, None).await,
        store.delete_batch(std::slice::from_ref(&key)).await.map(drop),
        store.copy(&key, "l", &options).await.map(drop),
        store.list(ListRequest::default()).await.map(drop),
    ] {
        assert_eq!(result.unwrap_err().kind(), Kind::Unsupported);
    }
}

#[tokio::test]
async fn refusals_tell_whether_there_were_credentials_and_whose() {
    let (script, _) = server(|_| {
        let body = "<Error><Code>ExpiredToken</Code></Error>";
        let head = "HTTP/1.1 403 Forbidden\r\nContent-Type: application/xml\r\nContent-Length";
        format!("{head}: {}\r\n\r\n{body}", body.len())
    })
    .await;
    let refusal = async |options: &[(&str, &str)]| {
        let (store, key) = store_at(&script.url("/k"), options);
        store.get(&key, ask(GetRange::All)).await.unwrap_err()
    };
    assert!(refusal(&[]).await.was_unsigned());
    let error = refusal(&[("bearer_token", "hunter2"), ("secret_name", "web")]).await;
    assert!(!error.was_unsigned());
    assert!(error.hint().unwrap().contains("renew secret 'web'"), "{error}");
}

#[tokio::test]
async fn wrong_port_is_named_and_never_replaced() {
    for place in ["127.0.0.1:99999", "host.example:abc"] {
        let none = StoreOptions::new([("", ""); 0]).unwrap();
        let error = open(&format!("http://{place}/k"), &none, &client().0).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert!(error.message().contains(place), "{error}");
        // A redirect to such a place leads nowhere either.
        let answer = format!(
            "HTTP/1.1 302 Found\r\nLocation: http://{place}/k\r\nContent-Length: 0\r\n\r\n"
        );
        let (script, _) = server(move |_| answer.clone()).await;
        let (store, key) = store_at(&script.url("/k"), &[]);
        assert!(store.get(&key, ask(GetRange::All)).await.is_err(), "{place}");
    }
}

#[tokio::test]
async fn a_suffix_that_fails_each_time_is_asked_for_by_offsets() {
    let (script, heads) = server(|head| {
        if head.contains("\r\nrange: bytes=-4\r\n") {
            return "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n".to_string();
        }
        let part = WHOLE.replace("200 OK", "206 Part").replace("Length: 10", "Length: 4");
        match head.starts_with("HEAD") {
            true => WHOLE.to_string(),
            false => part.replace("\r\n\r\n", "\r\nContent-Range: bytes 6-9/10\r\n\r\n6789"),
        }
    })
    .await;
    let (store, key) = store_at(&script.url("/k"), &[]);
    let error = store.get(&key, ask(GetRange::Suffix(4))).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "the first may be one of the moment");
    for _ in 0..4 {
        assert_eq!(read(&*store, &key, GetRange::Suffix(4)).await.0, b"6789");
    }
    assert!(!store.capabilities().suffix_range);
    let suffixes = heads.lock().unwrap().iter().filter(|head| head.contains("=-4")).count();
    assert_eq!(suffixes, 3);
}

#[tokio::test]
async fn a_server_that_asks_for_patience_is_asked_for_nothing_else() {
    let (script, heads) =
        server(|_| "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_string())
            .await;
    let (store, key) = store_at(&script.url("/k"), &[]);
    for _ in 0..4 {
        let error = store.get(&key, ask(GetRange::Suffix(4))).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Throttled);
    }
    assert_eq!(heads.lock().unwrap().len(), 4);
}

#[tokio::test]
async fn odd_refusals_of_web_servers_say_what_to_look_at() {
    for (status, word) in [(300, "variants"), (411, "length")] {
        let (script, _) =
            server(move |_| format!("HTTP/1.1 {status} Odd\r\nContent-Length: 0\r\n\r\n")).await;
        let (store, key) = store_at(&script.url("/k"), &[]);
        for range in [GetRange::All, GetRange::Suffix(4), GetRange::From(0)] {
            let error = store.get(&key, ask(range)).await.unwrap_err();
            assert_eq!(error.http_status(), Some(status), "{error}");
            assert!(error.hint().unwrap().contains(word), "{error}");
        }
    }
}

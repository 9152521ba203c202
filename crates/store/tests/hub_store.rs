//! The Hugging Face Hub: its names, redirects, listings and refusals.

#![allow(clippy::unwrap_used)] // helpers of tests fail as tests do

mod common;

use common::{Script, client, read_request};
use penstock_base::{ByteRange, Error, Kind, Retry};
use penstock_store::{
    ETag, GetRange, GetRequest, ListRequest, Payload, PutOptions, Store, StoreOptions, open,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

type Heads = Arc<Mutex<Vec<String>>>;

/// Answers each request by a function of its head, and keeps the heads.
async fn server(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> (Script, Heads) {
    let heads = Heads::default();
    let (answer, kept) = (Arc::new(answer), heads.clone());
    let script = Script::start(move |_, mut stream| {
        let (answer, kept) = (answer.clone(), kept.clone());
        async move {
            while let Some((head, _)) = read_request(&mut stream).await {
                let text = answer(&head);
                kept.lock().unwrap().push(head);
                if stream.write_all(text.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    });
    (script.await, heads)
}

/// What was asked since the last call: method and target of each request.
fn asked(heads: &Heads) -> Vec<String> {
    let heads = std::mem::take(&mut *heads.lock().unwrap());
    let target = |head: &String| head.split(' ').take(2).collect::<Vec<_>>().join(" ");
    heads.iter().map(target).collect()
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}

fn hub_at(hub: &Script, url: &str, options: &[(&str, &str)]) -> (Arc<dyn Store>, String) {
    let endpoint = hub.url("");
    let options = [("endpoint", endpoint.as_str())].into_iter().chain(options.iter().copied());
    open(url, &StoreOptions::new(options).unwrap(), &client().0).unwrap()
}

async fn read(store: &dyn Store, key: &str, request: GetRequest) -> Result<String, Error> {
    let range = request.range;
    let mut answer = store.get(key, request).await?.cut(range).await?;
    let bytes = answer.body.read_to_bytes(1 << 20).await?;
    Ok(String::from_utf8(bytes.to_vec()).unwrap())
}

fn bytes(start: u64, end: u64, tag: Option<&str>) -> GetRequest {
    let range = GetRange::Bounded(ByteRange { start, end });
    GetRequest { range, if_match: tag.map(|tag| ETag(tag.into())), ..GetRequest::default() }
}

/// The whole of a large file's bytes, under the tag of whoever sends them.
const FROM_CDN: &str = "ETag: \"of the CDN\"\r\n";

/// A redirect, with what the Hub tells of the file.
fn moved(to: &str, tag: &str) -> String {
    let told = format!("X-Linked-Size: 10\r\nX-Linked-ETag: \"{tag}\"\r\nX-Repo-Commit: c\r\n");
    answer("302 Found", &format!("Location: {to}\r\n{told}"), "")
}

#[tokio::test]
async fn a_large_file_has_the_tag_of_the_hub_and_its_host_gets_no_token() {
    let (cdn, seen) = server(|_| answer("200 OK", FROM_CDN, "0123456789")).await;
    let to = cdn.url("/blob?Signature=x");
    let (hub, heads) = server(move |_| moved(&to, "sha")).await;
    let options = [("token", "hf_hunter2"), ("extra_http_headers.X-Api", "hunter3")];
    let (store, key) = hub_at(&hub, "hf://datasets/me/lake@v1/a b/x?.csv", &options);
    let meta = store.stat(&key).await.unwrap();
    assert_eq!((meta.size_bytes, meta.etag), (Some(10), Some(ETag("sha".into()))));
    let target = "/datasets/me/lake/resolve/v1/a%20b/x%3F.csv";
    let first = heads.lock().unwrap()[0].clone();
    assert!(first.contains("authorization: Bearer hf_hunter2\r\n"), "{first}");
    assert!(first.contains("x-api: hunter3\r\n"), "{first}");
    assert_eq!(asked(&heads), [format!("HEAD {target}")]);
    assert!(seen.lock().unwrap().is_empty(), "the redirect told all");
    assert_eq!(read(&*store, &key, bytes(3, 6, Some("sha"))).await.unwrap(), "345");
    assert_eq!(read(&*store, &key, bytes(6, 9, Some("sha"))).await.unwrap(), "678");
    let heads = heads.lock().unwrap().clone();
    assert!(heads.is_empty(), "both reads go where the redirect led: {heads:?}");
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|head| !head.contains("hunter")), "{seen:?}");
    assert!(seen.iter().all(|head| !head.to_lowercase().contains("if-match")), "{seen:?}");
}

#[tokio::test]
async fn a_signature_that_has_ended_is_asked_for_anew() {
    let signatures = Arc::new(Mutex::new((1, "sha".to_string())));
    let valid = signatures.clone();
    let (cdn, seen) = server(move |head| {
        match head.contains(&format!("Signature={} ", valid.lock().unwrap().0)) {
            true => answer("200 OK", FROM_CDN, "0123456789"),
            false => answer("403 Forbidden", "", "<Error><Code>AccessDenied</Code></Error>"),
        }
    })
    .await;
    let (to, given) = (cdn.url("/blob?Signature="), signatures.clone());
    let (hub, heads) = server(move |_| {
        let (number, tag) = given.lock().unwrap().clone();
        moved(&format!("{to}{number}"), &tag)
    })
    .await;
    let (store, key) = hub_at(&hub, "hf://datasets/me/lake/x", &[]);
    assert_eq!(read(&*store, &key, bytes(3, 6, Some("sha"))).await.unwrap(), "345");
    signatures.lock().unwrap().0 = 2;
    assert_eq!(read(&*store, &key, bytes(6, 9, Some("sha"))).await.unwrap(), "678");
    assert_eq!(asked(&heads).len(), 2, "the way was asked for again");
    assert_eq!(asked(&seen).len(), 3);
    // What comes then may be another version.
    *signatures.lock().unwrap() = (3, "other".to_string());
    let error = read(&*store, &key, bytes(6, 9, Some("sha"))).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error}");
    // What a listing told is newer than where a redirect has lately led.
    *signatures.lock().unwrap() = (4, "newer".to_string());
    assert_eq!(read(&*store, &key, bytes(6, 9, Some("newer"))).await.unwrap(), "678");
    // A host that refuses what the Hub has just signed is no matter of tokens.
    let (cdn, _) = server(|_| answer("403 Forbidden", "", "")).await;
    let to = cdn.url("/blob");
    let (hub, _) = server(move |_| moved(&to, "sha")).await;
    let (store, key) = hub_at(&hub, "hf://datasets/me/lake/x", &[]);
    let error = read(&*store, &key, bytes(0, 9, None)).await.unwrap_err();
    assert!(error.to_string().contains("The Hub sent the request on to http://"), "{error}");
}

#[tokio::test]
async fn a_small_file_comes_from_the_hub_itself_also_under_a_new_name() {
    let (hub, heads) = server(|head| match head.contains("/datasets/old/lake/") {
        true => {
            let to = "/datasets/new/lake/resolve/main/x";
            answer("307 Temporary Redirect", &format!("Location: {to}\r\n"), "")
        }
        // Made weak on its way.
        false => answer("200 OK", "ETag: W/\"oid\"\r\n", "0123456789"),
    })
    .await;
    let (store, key) = hub_at(&hub, "hf://datasets/old/lake/x", &[("bearer_token", "hf_hunter2")]);
    assert_eq!(store.stat(&key).await.unwrap().etag, Some(ETag("oid".into())));
    assert_eq!(read(&*store, &key, bytes(3, 6, Some("oid"))).await.unwrap(), "345");
    let all = heads.lock().unwrap().clone();
    assert!(all.iter().all(|head| head.contains("Bearer hf_hunter2")), "it is the same Hub");
    let error = read(&*store, &key, bytes(3, 6, Some("older"))).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
}

#[tokio::test]
async fn a_listing_has_sizes_and_tags_and_stays_at_the_hub() {
    let (evil, stolen) = server(|_| answer("200 OK", "", "[]")).await;
    let next = evil.url("/api/steal?recursive=true&cursor=b%3D");
    let (hub, heads) = server(move |head| match () {
        () if head.contains("cursor=b%3D ") => answer(
            "200 OK",
            "",
            r#"[{"type":"file","oid":"p","size":9,"path":"d/b%20.csv","lfs":{"oid":"s","size":7}}]"#,
        ),
        () if head.contains("recursive=false") => {
            answer("200 OK", "", r#"[{"type":"directory","oid":"t","size":0,"path":"d/e"}]"#)
        }
        () if head.contains("/tree/main/none?") => {
            answer("404 Not Found", "X-Error-Code: EntryNotFound\r\n", "{\"error\":\"x\"}")
        }
        () => answer(
            "200 OK",
            &format!("Link: <{next}>; rel=\"next\"\r\n"),
            r#"[{"type":"file","oid":"1","size":5,"path":"d/a.csv"},
                {"type":"file","oid":"2","size":6,"path":"d/other"},
                {"type":"directory","oid":"t","size":0,"path":"d/e"}]"#,
        ),
    })
    .await;
    let url = "hf://datasets/me/lake/d/";
    let (store, _) = hub_at(&hub, url, &[("token", "hf_hunter2"), ("hf_max_per_page", "2")]);
    let mut request = ListRequest { prefix: "d/a".into(), ..ListRequest::default() };
    let first = store.list(request.clone()).await.unwrap();
    assert_eq!(first.objects.len(), 1);
    assert_eq!(first.objects[0].meta.etag, Some(ETag("1".into())));
    request = ListRequest { prefix: "d/".into(), token: first.next, ..request };
    let second = store.list(request).await.unwrap();
    let found = &second.objects[0];
    assert_eq!((found.key.as_str(), found.meta.size_bytes), ("d/b%2520.csv", Some(7)));
    assert_eq!((&found.meta.etag, &second.next), (&Some(ETag("s".into())), &None));
    let tree = "GET /api/datasets/me/lake/tree/main/d?recursive=true";
    assert_eq!(asked(&heads), [format!("{tree}&limit=2"), format!("{tree}&cursor=b%3D")]);
    assert!(asked(&stolen).is_empty(), "nothing is asked of another host");
    let level =
        ListRequest { prefix: "d/".into(), delimiter: Some("/".into()), ..ListRequest::default() };
    assert_eq!(store.list(level).await.unwrap().prefixes, ["d/e/"]);
    let none = ListRequest { prefix: "none/".into(), ..ListRequest::default() };
    assert!(store.list(none).await.unwrap().objects.is_empty());
}

#[tokio::test]
async fn refusals_name_the_repository_and_the_cure() {
    let (hub, _) = server(|head| match () {
        () if head.contains("/me/gated/") => {
            answer("403 Forbidden", "X-Error-Code: GatedRepo\r\nX-Error-Message: Ask.\r\n", "{}")
        }
        () if head.contains("/me/busy/") => {
            answer("429 Too Many Requests", "RateLimit: \"resolvers\";r=0;t=55\r\n", "")
        }
        () if head.contains("/v9/") => {
            answer("404 Not Found", "X-Error-Code: RevisionNotFound\r\n", "")
        }
        () if head.contains("/none.csv") => {
            answer("404 Not Found", "X-Error-Code: EntryNotFound\r\n", "")
        }
        () => answer("401 Unauthorized", "X-Error-Code: RepoNotFound\r\n", ""),
    })
    .await;
    let page = hub.url("/datasets/me/gated");
    let token = "CREATE SECRET (TYPE huggingface, TOKEN '...')";
    let secret: &[(&str, &str)] = &[("token", "hf_hunter2"), ("secret_name", "mine")];
    for (url, options, kind, told) in [
        ("hf://datasets/me/gated/x", &[][..], Kind::Denied, &[&*page, token, "Ask"][..]),
        ("hf://datasets/me/gated/x", secret, Kind::Denied, &[&*page, "account of secret 'mine'"]),
        ("hf://datasets/me/lake/x", &[], Kind::Denied, &["401 RepoNotFound", "me/lake", token]),
        ("hf://datasets/me/lake/x", secret, Kind::Denied, &["me/lake", "secret 'mine'"]),
        ("hf://datasets/me/busy/x", &[], Kind::Throttled, &["in 55 s", token]),
        ("hf://datasets/me/busy/x", secret, Kind::Throttled, &["in 55 s", "fewer files"]),
        ("hf://models/me/bert@v9/x", &[], Kind::NotFound, &["no such revision", "/me/bert"]),
        ("hf://spaces/me/app/none.csv", &[], Kind::NotFound, &["does not exist"]),
    ] {
        let (store, key) = hub_at(&hub, url, options);
        let listed = ListRequest { prefix: "x/".into(), ..ListRequest::default() };
        for error in [
            store.get(&key, GetRange::All.into()).await.unwrap_err(),
            store.stat(&key).await.unwrap_err(),
        ] {
            let text = error.to_string();
            assert_eq!(error.kind(), kind, "{text}");
            assert_eq!(error.object(), Some(url));
            assert!(told.iter().all(|part| text.contains(part)), "{text}");
            assert!(!text.contains("hunter"), "{text}");
            let wait = matches!(error.retry(), Retry::After(it) if it == Duration::from_secs(55));
            assert_eq!(wait, kind == Kind::Throttled, "{text}");
        }
        if !url.contains("none.csv") {
            let error = store.list(listed).await.unwrap_err();
            assert_eq!(error.object(), Some(format!("{}x/", store.root()).as_str()));
        }
    }
}

#[tokio::test]
async fn it_is_read_only_and_says_so_without_a_request() {
    let (hub, heads) = server(|_| answer("500 Internal Server Error", "", "")).await;
    let (store, key) = hub_at(&hub, "hf://datasets/me/lake/x", &[]);
    let able = store.capabilities();
    assert!(able.list && able.list_etag && !able.write);
    let error = store.put(&key, Payload::default(), &PutOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.to_string().contains("repositories of the Hub are read only"), "{error}");
    for key in ["", "a/../../b"] {
        let error = store.get(key, GetRange::All.into()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{key}");
    }
    assert!(asked(&heads).is_empty());
}

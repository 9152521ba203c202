//! Where credentials do not go, whatever an answer says: cells of the table in
//! docs/design/credentials.md that need a server.

#![allow(clippy::unwrap_used)] // helpers of tests fail as tests do

mod common;

use bytes::Bytes;
use common::{KEY, Script, client, client_with, read_request, xml};
use penstock_base::{Error, Kind, Result};
use penstock_store::http::{Proxy, ProxyChoice};
use penstock_store::{
    GetRange, GetRequest, HttpOptions, ListRequest, Payload, PutOptions, Store, StoreOptions, open,
};
use std::sync::{Arc, Mutex};
use tokio::io::AsyncWriteExt;

type Heads = Arc<Mutex<Vec<String>>>;

const ACCOUNT_KEY: &str = "aHVudGVyMg==";
const AZURE: [(&str, &str); 2] = [("account_name", "lake"), ("account_key", ACCOUNT_KEY)];

/// A server that answers by a function of the request's head, and the heads.
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

/// A server that nothing should be sent to.
async fn evil() -> (Script, Heads) {
    server(|_| xml("200 OK", "evil")).await
}

fn store(url: &str, script: &Script, more: &[(&str, &str)]) -> Arc<dyn Store> {
    let endpoint = script.url("");
    let options = [&[("endpoint", endpoint.as_str())][..], more].concat();
    open(url, &StoreOptions::new(options).unwrap(), &client().0).unwrap().0
}

async fn read(store: &Arc<dyn Store>, key: &str) -> Result<Bytes> {
    store.get(key, GetRequest::from(GetRange::All)).await?.body.read_to_bytes(1 << 20).await
}

/// A store of every family that signs, at one server.
fn signing_stores(script: &Script) -> [Arc<dyn Store>; 3] {
    [
        store("s3://bucket/", script, KEY),
        store("gs://bucket/", script, &[("bearer_token", "hunter2")]),
        store("az://bucket/", script, &AZURE),
    ]
}

#[tokio::test]
async fn no_store_that_signs_follows_a_redirect() {
    let (elsewhere, seen) = evil().await;
    let to = elsewhere.url("/bucket/k");
    for status in ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let to = to.clone();
        let (script, heads) = server(move |_| {
            format!("HTTP/1.1 {status}\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
        })
        .await;
        for store in signing_stores(&script) {
            let error = read(&store, "k").await.unwrap_err();
            assert_eq!(error.http_status().map(|code| code / 100), Some(3), "{error}");
            store
                .put("k", Bytes::from_static(b"x").into(), &PutOptions::default())
                .await
                .unwrap_err();
        }
        assert!(heads.lock().unwrap().len() >= 6);
    }
    assert!(seen.lock().unwrap().is_empty(), "{seen:?}");
}

#[tokio::test]
async fn a_region_that_an_answer_names_leads_to_no_other_host() {
    for (region, requests) in [("eu-west-9", 2), ("evil.example", 1), ("x/", 1), ("@evil", 1)] {
        let (script, heads) = server(move |_| {
            format!(
                "HTTP/1.1 301 Moved\r\nx-amz-bucket-region: {region}\r\nContent-Length: 0\r\n\r\n"
            )
        })
        .await;
        let store = store("s3://bucket/", &script, &[KEY, &[("url_style", "path")]].concat());
        read(&store, "k").await.unwrap_err();
        let heads = heads.lock().unwrap().clone();
        let host = format!("host: {}\r\n", script.address);
        assert_eq!(heads.len(), requests, "{region}");
        assert!(heads.iter().all(|head| head.contains(&host)), "{heads:?}");
    }
}

#[tokio::test]
async fn a_continuation_that_is_a_url_is_only_a_parameter() {
    let (elsewhere, seen) = evil().await;
    let next = elsewhere.url("/next");
    let encoded = next.replace(':', "%3A").replace('/', "%2F");
    let (script, heads) = server(move |head| {
        let more = !head.contains("%2Fnext");
        let truncated = format!("<IsTruncated>{more}</IsTruncated>");
        let marker = if more { next.clone() } else { String::new() };
        let body = match head.contains("restype=container") {
            true => format!(
                "<EnumerationResults><Blobs></Blobs><NextMarker>{marker}</NextMarker>\
                 </EnumerationResults>"
            ),
            false => format!(
                "<ListBucketResult>{truncated}<NextContinuationToken>{marker}\
                 </NextContinuationToken><NextMarker>{marker}</NextMarker></ListBucketResult>"
            ),
        };
        xml("200 OK", &body)
    })
    .await;
    for store in signing_stores(&script) {
        heads.lock().unwrap().clear();
        let mut request = ListRequest::default();
        let page = store.list(request.clone()).await.unwrap();
        request.token = page.next;
        assert!(request.token.is_some(), "{heads:?}");
        store.list(request).await.unwrap();
        let heads = heads.lock().unwrap().clone();
        assert!(heads.last().unwrap().contains(&encoded), "{heads:?}");
    }
    assert!(seen.lock().unwrap().is_empty(), "{seen:?}");
}

#[tokio::test]
async fn the_source_of_a_copy_is_in_the_same_account() {
    let (script, heads) = server(|_| "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n".into()).await;
    let source = "http://evil.example/x?sig=1";
    for store in signing_stores(&script) {
        heads.lock().unwrap().clear();
        store.copy(source, "to", &PutOptions::default()).await.unwrap_err();
        let heads = heads.lock().unwrap().clone();
        let named: Vec<&str> = heads
            .iter()
            .flat_map(|head| head.lines())
            .filter_map(|line| line.split_once("-copy-source: ").map(|(_, source)| source))
            .collect();
        assert!(!named.is_empty(), "{heads:?}");
        let own = [script.url("/lake/bucket/http%3A//evil"), "/bucket/http%3A//evil".to_string()];
        let is_own = |text: &&str| own.iter().any(|own| text.starts_with(own.as_str()));
        assert!(named.iter().all(is_own), "{named:?}");
    }
}

/// A proxy sees of https no more than the host, and a store nothing of the proxy's password.
#[tokio::test]
async fn a_proxy_and_a_store_learn_nothing_of_each_others_credentials() {
    let (elsewhere, seen) = evil().await;
    let to = elsewhere.url("/");
    let (proxy, heads) = server(move |_| {
        format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
    })
    .await;
    let fixed = Proxy::parse(&format!("http://user:hunter3@{}", proxy.address)).unwrap();
    let options = HttpOptions { proxy: ProxyChoice::Fixed(fixed), ..HttpOptions::default() };
    let http = client_with(options).0;
    for (url, pairs) in [
        ("https://h.example/k", &[("bearer_token", "hunter2")][..]),
        ("s3://bucket/k", KEY),
        ("gs://bucket/k", &[("bearer_token", "hunter2")]),
        ("az://lake.blob.core.windows.net/c/k", &[("sas_token", "sig=hunter2")]),
    ] {
        let options = StoreOptions::new(pairs.iter().copied()).unwrap();
        let (store, key) = open(url, &options, &http).unwrap();
        read(&store, &key).await.unwrap_err();
    }
    let heads = heads.lock().unwrap().clone();
    assert!(heads.len() >= 4, "{heads:?}");
    for head in heads.iter().map(|head| head.to_ascii_lowercase()) {
        assert!(head.starts_with("connect ") && head.contains("\r\nproxy-authorization"), "{head}");
        assert!(!head.contains("hunter2") && !head.contains("\r\nauthorization"), "{head}");
    }
    assert!(seen.lock().unwrap().is_empty(), "{seen:?}");
    // By plain http the request itself goes to the proxy, which keeps its password.
    let (script, direct) = evil().await;
    let options = StoreOptions::new([("bearer_token", "hunter2")]).unwrap();
    let (store, key) = open(&script.url("/k"), &options, &client().0).unwrap();
    read(&store, &key).await.unwrap();
    assert!(!direct.lock().unwrap()[0].to_lowercase().contains("proxy-authorization"));
}

/// A service that refuses what is signed, and lets public keys be read without a signature.
async fn public() -> (Script, Heads) {
    server(|head| {
        let lower = head.to_ascii_lowercase();
        let is_signed = lower.contains("\r\nauthorization:") || lower.contains("sig=");
        match (is_signed, head.starts_with("GET") && head.contains("public")) {
            (false, true) => xml("200 OK\r\nx-ms-request-id: 1\r\nETag: \"1\"", "bytes"),
            (false, false) => xml("403 Forbidden", "<Error><Code>AccessDenied</Code></Error>"),
            (true, _) if head.starts_with("HEAD") => xml("400 Bad Request", ""),
            (true, _) => xml("403 Forbidden", "<Error><Code>AuthenticationFailed</Code></Error>"),
        }
    })
    .await
}

fn signed(heads: &Heads) -> Vec<bool> {
    let mut heads = heads.lock().unwrap();
    let is_signed = |head: String| {
        let lower = head.to_ascii_lowercase();
        lower.contains("\r\nauthorization:") || lower.contains("sig=")
    };
    heads.drain(..).map(is_signed).collect()
}

async fn refused_write(store: &Arc<dyn Store>) -> Error {
    let payload: Payload = Bytes::from_static(b"x").into();
    store.put("public", payload, &PutOptions::default()).await.unwrap_err()
}

#[tokio::test]
async fn public_data_are_read_where_the_environments_azure_credentials_are_refused() {
    let (script, heads) = public().await;
    let sas = [("account_name", "lake"), ("sas_token", "sv=1&sig=hunter2")];
    let environment =
        store("az://data/", &script, &[&sas[..], &[("provider", "environment")]].concat());
    assert_eq!(read(&environment, "public").await.unwrap(), "bytes");
    assert_eq!(signed(&heads), [true, false]);
    assert_eq!(read(&environment, "public").await.unwrap(), "bytes");
    assert_eq!(signed(&heads), [false], "remembered");
    assert_eq!(refused_write(&environment).await.kind(), Kind::Denied);
    assert_eq!(signed(&heads), [true], "no write goes without a signature");
    let error = read(&environment, "secret").await.unwrap_err();
    assert_eq!((error.kind(), signed(&heads)), (Kind::Denied, vec![false, true]));
    assert!(error.to_string().contains("AZURE_STORAGE_SAS_TOKEN"), "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"));
    // Credentials that somebody gave are never left out.
    let given = store("az://data/", &script, &sas);
    assert_eq!(read(&given, "public").await.unwrap_err().kind(), Kind::Denied);
    assert_eq!(signed(&heads), [true]);
}

/// Nobody named the environment's credentials for the host of a URL: they do not go there, and no
/// write goes without them.
#[tokio::test]
async fn what_may_not_go_to_the_host_of_a_url_is_left_out_of_reads_alone() {
    let (script, heads) = public().await;
    let endpoint = format!("s3_endpoint={}&s3_use_ssl=false", script.address);
    let profile = [("provider", "environment"), ("profile", "none"), ("chain", "env")];
    let options = StoreOptions::new(profile).unwrap();
    for (key, is_public) in [("public", true), ("secret", false)] {
        let url = format!("s3://bucket/{key}?{endpoint}");
        let (store, key) = open(&url, &options, &client().0).unwrap();
        assert_eq!(read(&store, &key).await.is_ok(), is_public);
        assert_eq!(signed(&heads), [false]);
        if let Err(error) = read(&store, &key).await {
            assert!(error.to_string().contains("which only the URL names"), "{error}");
        }
        heads.lock().unwrap().clear();
        let error = refused_write(&store).await;
        assert_eq!((error.kind(), heads.lock().unwrap().len()), (Kind::Denied, 0), "{error}");
        assert!(error.to_string().contains(&script.address.to_string()), "{error}");
    }
    let sas = [("provider", "environment"), ("sas_token", "sv=1&sig=hunter2")];
    let options = StoreOptions::new(sas).unwrap();
    let (store, _) = open("az://lake.nowhere.example/c/x", &options, &client().0).unwrap();
    let error = refused_write(&store).await;
    assert_eq!(error.kind(), Kind::Denied, "{error}");
    assert!(error.to_string().contains("`lake.nowhere.example` is no host"), "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

/// A file that a flag names is meant, also where it is not there.
#[tokio::test]
async fn credentials_that_were_given_are_never_left_out() {
    let (script, heads) = public().await;
    let file = [("service_account_path", "/nowhere/key.json")];
    for store in [store("gs://bucket/", &script, &file), store("s3://bucket/", &script, KEY)] {
        let error = read(&store, "public").await.unwrap_err();
        assert_eq!(error.kind(), Kind::Denied, "{error}");
        assert!(signed(&heads).iter().all(|is_signed| *is_signed));
    }
}

#[tokio::test]
async fn no_debug_shows_a_credential() {
    // It is base64, as the key of an account is.
    const MARK: &str = "U0VDUkVU";
    let sas = "sv=1&sp=r&sig=U0VDUkVU";
    let string = "AccountName=a;AccountKey=U0VDUkVU;EndpointSuffix=core.windows.net";
    let sas_string =
        "BlobEndpoint=https://a.blob.core.windows.net;SharedAccessSignature=sv=1&sig=U0VDUkVU";
    let account = ("account_name", "a");
    let principal = [account, ("tenant_id", "t"), ("client_id", "c"), ("client_secret", MARK)];
    let key = [("key_id", MARK), ("secret", MARK), ("session_token", MARK)];
    let own_key =
        "s3://bucket/k?s3_access_key_id=U0VDUkVU&s3_secret_access_key=U0VDUkVU&s3_region=x";
    let cases: &[(&str, &[(&str, &str)])] = &[
        ("s3://bucket/k", &key),
        (own_key, &[]),
        ("gs://bucket/k", &key[..2]),
        ("gs://bucket/k", &[("bearer_token", MARK)]),
        ("gs://bucket/k", &[("service_account_key", "{\"private_key\": \"U0VDUkVU\"}")]),
        ("az://data/k", &[account, ("account_key", MARK)]),
        ("az://data/k", &[account, ("sas_token", sas)]),
        ("az://data/k?sv=1&sp=r&sig=U0VDUkVU", &[account]),
        ("az://data/k", &[account, ("access_token", MARK)]),
        ("az://data/k", &principal),
        ("az://data/k", &[("connection_string", string)]),
        ("az://data/k", &[("connection_string", sas_string)]),
        ("https://host/k", &[("bearer_token", MARK)]),
        ("https://host/k?sig=U0VDUkVU", &[]),
    ];
    let everywhere = [
        ("extra_http_headers.X-Api-Key", MARK),
        ("http_proxy", "http://user:U0VDUkVU@proxy:1"),
        ("http_proxy_password", MARK),
    ];
    for (url, pairs) in cases {
        let pairs: Vec<_> = pairs.iter().chain(&everywhere).copied().collect();
        let options = StoreOptions::new(pairs).unwrap();
        let opened = open(url, &options, &client().0).map(|(store, _)| store);
        let shown = format!("{options:?} {opened:?}");
        assert!(!shown.contains(MARK), "{url}: {shown}");
        assert!(opened.is_ok(), "{url}: {shown}");
    }
}

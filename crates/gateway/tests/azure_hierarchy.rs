//! A container of an account with a hierarchical namespace, which lists directory by directory:
//! clients of S3 meet byte order, and every name once.

use crate::common::{Dir, Request, Server, azure, options_over};
use penstock_testkit::fake::{FakeAzure, FakeOptions};

const KEYS: [&str; 7] = ["a-b/x", "a-c", "a.txt", "a/00", "a/01", "a/02", "ab"];
const FOLDED: [&str; 5] = ["a-b/", "a-c", "a.txt", "a/", "ab"];

async fn server() -> Server {
    let fake = FakeAzure::start(FakeOptions::azure_hierarchical()).unwrap();
    let mut server = Server::start_with(Dir::new(), options_over(azure(&fake))).await;
    server.fake = Some(fake);
    let made = server.send(Request { method: "PUT", path: "/lake", ..Default::default() }).await;
    assert_eq!(made.status, 200, "{}", made.text());
    for key in KEYS {
        assert_eq!(server.put(&format!("/lake/{key}"), b"x").await.status, 200, "{key}");
    }
    server
}

fn fields(text: &str, name: &str) -> Vec<String> {
    let tag = format!("<{name}>");
    let parts = text.split(&tag).skip(1);
    parts.map(|part| part.split_once('<').unwrap().0.to_string()).collect()
}

/// Keys and folded prefixes of a page, as they sort, and a field that tells where the next begins.
async fn page(server: &Server, query: &str, next: &str) -> (Vec<String>, Option<String>) {
    let answer = server.get(&format!("/lake?{query}")).await;
    let text = answer.text();
    assert_eq!(answer.status, 200, "{query}: {text}");
    let mut names = fields(&text, "Key");
    let prefixes = text.split("<CommonPrefixes>").skip(1);
    names.extend(prefixes.flat_map(|part| fields(part, "Prefix").into_iter().take(1)));
    names.sort();
    let is_truncated = fields(&text, "IsTruncated") == ["true"];
    let next = fields(&text, next).pop().or_else(|| names.last().cloned());
    (names, next.filter(|_| is_truncated))
}

fn escaped(name: &str) -> String {
    name.replace('/', "%2F")
}

/// All pages, each from where the last one told, by the parameter `go_on`.
async fn all(server: &Server, query: &str, next: &str, go_on: &str) -> Vec<String> {
    let (mut found, mut at) = (Vec::new(), String::new());
    for _ in 0..100 {
        let (names, next) = page(server, &format!("{query}{at}"), next).await;
        assert!(!names.is_empty() || next.is_none(), "an empty page that is not the last: {at}");
        found.extend(names);
        match next {
            Some(next) => at = format!("&{go_on}={}", escaped(&next)),
            None => return found,
        }
    }
    panic!("it comes to no end: {found:?}");
}

#[tokio::test]
async fn each_list_is_in_byte_order_and_loses_no_name() {
    let server = server().await;
    for most in [1, 2, 3, 10] {
        for (fold, expected) in [("", &KEYS[..]), ("&delimiter=%2F", &FOLDED[..])] {
            let what = format!("{most} a page, {fold}");
            let one = format!("max-keys={most}{fold}");
            assert_eq!(all(&server, &one, "NextMarker", "marker").await, expected, "{what}");
            let two = format!("list-type=2&max-keys={most}{fold}");
            let tokens = ("NextContinuationToken", "continuation-token");
            assert_eq!(all(&server, &two, tokens.0, tokens.1).await, expected, "{what}");
            let versions = format!("versions&max-keys={most}{fold}");
            let markers = ("NextKeyMarker", "key-marker");
            assert_eq!(all(&server, &versions, markers.0, markers.1).await, expected, "{what}");
        }
    }
}

#[tokio::test]
async fn start_after_is_by_bytes() {
    for after in KEYS {
        // None of these knows the account before the first list.
        let server = server().await;
        let query = format!("list-type=2&max-keys=2&start-after={}", escaped(after));
        let tokens = ("NextContinuationToken", "continuation-token");
        let expected: Vec<_> = KEYS.into_iter().filter(|key| *key > after).collect();
        assert_eq!(all(&server, &query, tokens.0, tokens.1).await, expected, "after {after}");
    }
}

//! Answers that are no object, parts that nobody asked for, and services without suffix ranges.

use super::common::KEY;
use super::{EMPTY, bucket, error_xml, get};
use penstock_base::{ByteRange, Kind, Retry};
use penstock_store::{GetRange, GetRequest, Payload, PutOptions};
use std::time::Duration;

/// What two looks at an object each ask, and the size that they find.
async fn looks(
    head: &str,
    get: &'static str,
    whole: &'static str,
) -> [(String, penstock_base::Result<Option<u64>>); 2] {
    let head = head.to_string();
    let (store, requests) = bucket(KEY, move |_, request| {
        match (request.starts_with("HEAD"), request.contains("\r\nrange: ")) {
            (true, _) => head.clone(),
            (_, true) => get.to_string(),
            _ => whole.to_string(),
        }
    })
    .await;
    let look = async || {
        let meta = store.stat("k").await;
        let sent: Vec<String> = requests
            .lock()
            .unwrap()
            .drain(..)
            .map(|(head, _)| head.split(' ').next().unwrap().to_string())
            .collect();
        (sent.join(" "), meta.map(|meta| meta.size_bytes))
    };
    [look().await, look().await]
}

const PART: &str = "HTTP/1.1 206 Part\r\nETag: \"e\"\r\nContent-Range: bytes 0-0/10\r\n\
                    Content-Length: 1\r\n\r\nx";
const BEHIND: &str = "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n";

#[tokio::test]
async fn what_is_no_object_is_refused_by_get_and_head() {
    for status in [201, 202, 204, 205, 207, 226, 300, 304] {
        let answer = move |_, _: &str| EMPTY.replace("200 OK", &format!("{status} Odd"));
        let (store, _) = bucket(KEY, answer).await;
        for range in [GetRange::All, GetRange::Suffix(4), GetRange::From(0)] {
            let error = get(&*store, range).await.unwrap_err();
            assert_eq!(error.http_status(), Some(status), "{error}");
        }
        let error = store.stat("k").await.unwrap_err();
        assert_eq!(error.http_status(), Some(status), "{error}");
    }
    let later = EMPTY.replace("200 OK", "202 Accepted").replace("ETag", "Retry-After: 3\r\nETag");
    let (store, _) = bucket(KEY, move |_, _| later.clone()).await;
    let after = Retry::After(Duration::from_secs(3));
    let error = get(&*store, GetRange::All).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (Kind::Unavailable, after));
    let put = store.put("k", Payload::default(), &PutOptions::default()).await.unwrap_err();
    assert_eq!((put.kind(), put.retry()), (Kind::Unavailable, after), "accepted is not written");
}

#[tokio::test]
async fn where_head_is_refused_a_get_tells_of_the_object() {
    let refusal = |status: u16, mark: &str| {
        format!("HTTP/1.1 {status} Odd\r\n{mark}Content-Length: 0\r\n\r\n")
    };
    const MARK: &str = "x-amz-request-id: 1\r\n";
    // What is refused, what a GET brings, and what each of two looks asks.
    for (head, get, size, asked) in [
        (refusal(405, MARK), PART, Some(10), ["HEAD GET", "GET"]),
        (refusal(404, ""), PART, Some(10), ["HEAD GET", "GET"]),
        (refusal(204, ""), PART, Some(10), ["HEAD GET", "GET"]),
        // It may do better next time.
        (refusal(502, ""), PART, Some(10), ["HEAD GET", "HEAD GET"]),
        (refusal(403, ""), BEHIND, Some(0), ["HEAD GET GET", "GET GET"]),
        // The service's own word.
        (refusal(404, MARK), PART, None, ["HEAD", "HEAD"]),
        (refusal(403, MARK), PART, None, ["HEAD", "HEAD"]),
        (refusal(503, ""), PART, None, ["HEAD", "HEAD"]),
    ] {
        let seen = looks(&head, get, EMPTY).await;
        assert_eq!(seen.each_ref().map(|(asked, _)| asked.as_str()), asked, "{head}");
        for (_, found) in seen {
            assert_eq!(found.ok().flatten(), size, "{head}");
        }
    }
    let absent = |_, _: &str| "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n".to_string();
    let (store, _) = bucket(KEY, absent).await;
    assert_eq!(store.stat("k").await.unwrap_err().kind(), Kind::NotFound);
}

#[tokio::test]
async fn a_head_of_no_bytes_is_confirmed_by_a_get() {
    const OTHER: &str = "HTTP/1.1 206 Part\r\nETag: \"f\"\r\nContent-Range: bytes 0-0/10\r\n\
                         Content-Length: 1\r\n\r\nx";
    const PAGE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 9\r\n\r\n";
    let marked = PAGE.replace("Content-Type", "x-amz-request-id: 1\r\nContent-Type");
    // What HEAD says, what a GET brings, and what each of two looks asks.
    for (head, get, size, asked) in [
        // A box on the way says of every object that it has no bytes.
        (EMPTY, PART, Some(10), ["HEAD GET", "GET"]),
        // It has none.
        (EMPTY, BEHIND, Some(0), ["HEAD GET", "HEAD GET"]),
        (EMPTY, EMPTY, Some(0), ["HEAD GET", "HEAD GET"]),
        // It was written between the two.
        (EMPTY, OTHER, Some(10), ["HEAD GET", "HEAD GET"]),
        // What is no object's answer decides nothing, unless the service gave it.
        (PAGE, PART, Some(10), ["HEAD GET", "GET"]),
        (marked.as_str(), PART, None, ["HEAD", "HEAD"]),
    ] {
        let seen = looks(head, get, EMPTY).await;
        assert_eq!(seen.each_ref().map(|(asked, _)| asked.as_str()), asked, "{head} {get}");
        for (_, found) in seen {
            assert_eq!(found.ok().flatten(), size, "{head} {get}");
        }
    }
}

#[tokio::test]
async fn a_service_without_ranges_from_the_end_is_asked_by_offsets() {
    for refusal in ["400 Bad Request", "416 Range Not Satisfiable", "501 Not Implemented"] {
        let (store, requests) = bucket(KEY, move |_, head| {
            if head.contains("\r\nrange: bytes=-4\r\n") {
                return format!("HTTP/1.1 {refusal}\r\nContent-Length: 0\r\n\r\n");
            }
            if head.starts_with("HEAD") {
                return EMPTY.replace("Length: 0", "Length: 10");
            }
            assert!(head.contains("\r\nrange: bytes=6-9\r\n"), "{head}");
            let part = "Length: 4\r\nContent-Range: bytes 6-9/10";
            format!("{}6789", EMPTY.replace("200 OK", "206 Part").replace("Length: 0", part))
        })
        .await;
        assert!(store.capabilities().suffix_range);
        for _ in 0..2 {
            assert_eq!(get(&*store, GetRange::Suffix(4)).await.unwrap(), "6789", "{refusal}");
            assert!(!store.capabilities().suffix_range, "{refusal}");
        }
        let suffixes = requests.lock().unwrap().iter().filter(|(it, _)| it.contains("=-4")).count();
        assert_eq!(suffixes, 1, "{refusal}");
    }
}

#[tokio::test]
async fn a_suffix_that_fails_each_time_is_asked_for_by_offsets() {
    let (store, requests) = bucket(KEY, |_, head| {
        if head.contains("\r\nrange: bytes=-4\r\n") {
            return "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n".to_string();
        }
        if head.starts_with("HEAD") {
            return EMPTY.replace("Length: 0", "Length: 10");
        }
        let part = "Length: 4\r\nContent-Range: bytes 6-9/10";
        format!("{}6789", EMPTY.replace("200 OK", "206 Part").replace("Length: 0", part))
    })
    .await;
    let error = get(&*store, GetRange::Suffix(4)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "the first may be one of the moment");
    for _ in 0..4 {
        assert_eq!(get(&*store, GetRange::Suffix(4)).await.unwrap(), "6789");
    }
    assert!(!store.capabilities().suffix_range);
    let suffixes = requests.lock().unwrap().iter().filter(|(it, _)| it.contains("=-4")).count();
    assert_eq!(suffixes, 3);
}

#[tokio::test]
async fn the_end_comes_though_head_has_another_tag_than_get() {
    let (store, _) = bucket(KEY, |_, head| {
        if head.contains("\r\nrange: bytes=-4\r\n") {
            return "HTTP/1.1 501 Not Implemented\r\nContent-Length: 0\r\n\r\n".to_string();
        }
        if head.starts_with("HEAD") {
            return EMPTY.replace("Length: 0", "Length: 10").replace("\"e\"", "\"other\"");
        }
        if head.contains("\r\nif-match: \"other\"\r\n") {
            return error_xml("412 Precondition Failed", "PreconditionFailed", "");
        }
        let (range, bytes) = match head.contains("\r\nrange: bytes=0-0\r\n") {
            true => ("Length: 1\r\nContent-Range: bytes 0-0/10", "0"),
            false => ("Length: 4\r\nContent-Range: bytes 6-9/10", "6789"),
        };
        format!("{}{bytes}", EMPTY.replace("200 OK", "206 Part").replace("Length: 0", range))
    })
    .await;
    for _ in 0..2 {
        assert_eq!(get(&*store, GetRange::Suffix(4)).await.unwrap(), "6789");
    }
}

#[tokio::test]
async fn what_a_proxy_packs_is_refused_and_a_label_is_not() {
    let label = EMPTY.replace("Length: 0", "Length: 4\r\nContent-Encoding: gzip") + "gzip";
    let (store, _) = bucket(KEY, move |_, _| label.clone()).await;
    assert_eq!(get(&*store, GetRange::All).await.unwrap(), "gzip", "as it is stored");
    let packed = "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Encoding: gzip\r\n\
                  Transfer-Encoding: chunked\r\n\r\n4\r\ngzip\r\n0\r\n\r\n";
    let (store, _) = bucket(KEY, move |_, _| packed.to_string()).await;
    let error = get(&*store, GetRange::All).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.message().contains("Content-Encoding"), "{error}");
    let request = GetRequest::from(GetRange::Bounded(ByteRange { start: 0, end: 2 }));
    assert!(store.get("k", request).await.is_err());
}

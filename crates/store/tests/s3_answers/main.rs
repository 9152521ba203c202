//! S3 answers that need care: wrong regions, late errors, lost completions.

#![allow(clippy::unwrap_used)] // helpers of tests fail as tests do

#[path = "../common/mod.rs"]
mod common;
mod odd;
mod removals;
mod sums;
mod writes;

use bytes::Bytes;
use common::{KEY, Script, client, read_request, xml};
use penstock_base::{ByteRange, Kind, Retry};
use penstock_store::{
    ETag, GetRange, GetRequest, ListRequest, Part, Payload, PutOptions, Store, StoreOptions,
    UploadId, WriteCondition, open,
};
use std::sync::{Arc, Mutex};
use tokio::io::AsyncWriteExt;

type Requests = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A server that answers by a function of head and turn, and a store that asks it.
async fn bucket(
    options: &[(&str, &str)],
    answer: impl Fn(usize, &str) -> String + Send + Sync + 'static,
) -> (Arc<dyn Store>, Requests) {
    bucket_at("s3://bucket/", options, answer).await
}

async fn bucket_at(
    url: &str,
    options: &[(&str, &str)],
    answer: impl Fn(usize, &str) -> String + Send + Sync + 'static,
) -> (Arc<dyn Store>, Requests) {
    let requests = Requests::default();
    let (answer, kept) = (Arc::new(answer), requests.clone());
    let script = Script::start(move |_, mut stream| {
        let (answer, kept) = (answer.clone(), kept.clone());
        async move {
            while let Some((head, body)) = read_request(&mut stream).await {
                let turn = kept.lock().unwrap().len();
                let text = answer(turn, &head);
                kept.lock().unwrap().push((head, body));
                if stream.write_all(text.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    })
    .await;
    let endpoint = script.address.to_string();
    let mut pairs = vec![("endpoint", endpoint.as_str()), ("use_ssl", "false")];
    pairs.extend(options);
    let options = StoreOptions::new(pairs).unwrap();
    (open(url, &options, &client().0).unwrap().0, requests)
}

fn error_xml(status: &str, code: &str, rest: &str) -> String {
    xml(status, &format!("<Error><Code>{code}</Code><Message>m</Message>{rest}</Error>"))
}

const EMPTY: &str = "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 0\r\n\r\n";

async fn get(store: &dyn Store, range: GetRange) -> penstock_base::Result<Bytes> {
    let request = GetRequest::from(range);
    store.get("k", request).await?.cut(range).await?.body.read_to_bytes(1 << 20).await
}

#[tokio::test]
async fn named_region_is_taken_and_remembered() {
    let (store, requests) = bucket(KEY, |_, head| match head.contains("/eu-west-1/s3/") {
        true => format!("{}hello", EMPTY.replace("Length: 0", "Length: 5")),
        false => error_xml(
            "400 Bad Request",
            "AuthorizationHeaderMalformed",
            "<Region>eu-west-1</Region>",
        ),
    })
    .await;
    for _ in 0..2 {
        assert_eq!(get(&*store, GetRange::All).await.unwrap(), "hello");
    }
    assert_eq!(requests.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn anonymous_refusal_tells_the_statement_that_cures() {
    let (store, requests) =
        bucket(&[], |_, _| error_xml("403 Forbidden", "AccessDenied", "")).await;
    let error = get(&*store, GetRange::All).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (Kind::Denied, Retry::Never));
    let cure = "CREATE SECRET (TYPE s3, KEY_ID '...', SECRET '...', SCOPE 's3://bucket')";
    assert!(error.hint().unwrap().contains(cure), "{error}");
    assert!(!requests.lock().unwrap()[0].0.to_lowercase().contains("authorization"));
}

#[tokio::test]
async fn clock_that_is_off_is_told() {
    let (store, _) = bucket(KEY, |_, _| {
        "HTTP/1.1 403 Forbidden\r\nDate: Fri, 01 Jan 2010 00:00:00 GMT\r\nContent-Length: 50\r\n\r\n\
         <Error><Code>RequestTimeTooSkewed</Code></Error>  "
            .to_string()
    })
    .await;
    let error = get(&*store, GetRange::All).await.unwrap_err();
    assert!(error.hint().unwrap().contains("clock"), "{error}");
    assert!(!error.to_string().contains("hunter2"));
}

#[tokio::test]
async fn wrong_range_is_corrupt() {
    let (store, _) = bucket(KEY, |_, _| {
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-2/10\r\nContent-Length: 3\r\n\r\nabc"
            .to_string()
    })
    .await;
    let range = GetRange::Bounded(ByteRange { start: 5, end: 8 });
    let error = get(&*store, range).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (Kind::Corrupt, Retry::Briefly));
    assert_eq!(error.object(), Some("s3://bucket/k"));
}

#[tokio::test]
async fn ignored_range_still_gives_the_right_bytes() {
    let whole = format!("{}0123456789", EMPTY.replace("Length: 0", "Length: 10"));
    let (store, _) = bucket(KEY, move |_, _| whole.clone()).await;
    let range = GetRange::Bounded(ByteRange { start: 5, end: 8 });
    assert_eq!(get(&*store, range).await.unwrap(), "567");
    assert_eq!(get(&*store, GetRange::Suffix(2)).await.unwrap(), "89");
}

#[tokio::test]
async fn error_inside_a_success_is_an_error() {
    for (code, kind, retryable) in [
        ("InternalError", Kind::Unavailable, true),
        ("SlowDown", Kind::Throttled, true),
        ("AccessDenied", Kind::Denied, false),
        ("PreconditionFailed", Kind::Conflict, false),
    ] {
        let (store, _) = bucket(KEY, move |_, _| error_xml("200 OK", code, "")).await;
        let error = store.copy("a", "b", &PutOptions::default()).await.unwrap_err();
        assert_eq!((error.kind(), error.retry() != Retry::Never), (kind, retryable), "{code}");
        let upload = UploadId("u".into());
        let options = PutOptions::default();
        let error = store.complete_upload("k", &upload, &[], &options).await.unwrap_err();
        assert_eq!((error.kind(), error.retry() != Retry::Never), (kind, retryable), "{code}");
    }
}

#[tokio::test]
async fn completion_whose_answer_was_lost_succeeds_if_the_object_is_its_own() {
    // The tag that parts with the MD5s of "a" and "b" make.
    const OWN: &str = "96e024ba2074fe77e8e965ba43a704be-2";
    let parts = [("0cc175b9c0f1b6a831c399e269772661", 1), ("92eb5ffee6ae2fec3ad71c777531578f", 2)]
        .map(|(etag, number)| Part { number, etag: etag.into(), size_bytes: 1 });
    for (found, succeeds) in [(OWN, true), ("other-2", false)] {
        let (store, _) = bucket(KEY, move |_, head| match head.starts_with("HEAD") {
            true => format!("HTTP/1.1 200 OK\r\nETag: \"{found}\"\r\nContent-Length: 2\r\n\r\n"),
            false => error_xml("404 Not Found", "NoSuchUpload", ""),
        })
        .await;
        let (upload, options) = (UploadId("u".into()), PutOptions::default());
        let done = store.complete_upload("k", &upload, &parts, &options).await;
        assert_eq!(done.is_ok(), succeeds, "{done:?}");
    }
}

#[tokio::test]
async fn batch_delete_carries_a_digest_and_tells_each_failure() {
    let answer = "<DeleteResult><Error><Key>b&amp;</Key><Code>AccessDenied</Code>\
                  <Message>no</Message></Error></DeleteResult>";
    let (store, requests) = bucket(KEY, move |_, _| xml("200 OK", answer)).await;
    let keys = ["a", "b&", "c"].map(str::to_string);
    let results = store.delete_batch(&keys).await.unwrap();
    let kinds: Vec<_> =
        results.iter().map(|result| result.as_ref().err().map(|e| e.kind())).collect();
    assert_eq!(kinds, [None, Some(Kind::Denied), None]);
    let (head, body) = requests.lock().unwrap()[0].clone();
    assert!(head.contains("content-md5: "), "{head}");
    assert!(String::from_utf8(body).unwrap().contains("<Key>b&amp;</Key>"));
}

#[tokio::test]
async fn hostile_listings_are_errors_not_wrong_names() {
    for listing in [
        "",
        "<html>login</html>",
        "<Error><Code>x</Code></Error>",
        "<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>k</Key></Contents></ListBucketResult>",
        "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%ff</Key><Size>1</Size>\
         </Contents></ListBucketResult>",
    ] {
        let (store, _) = bucket(KEY, move |_, _| xml("200 OK", listing)).await;
        let error = store.list(ListRequest::default()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{listing}");
    }
}

#[tokio::test]
async fn listing_is_decoded_only_where_it_says_that_it_is_encoded() {
    for (encoding, key) in [("<EncodingType>url</EncodingType>", "a b+%2F"), ("", "a+b%2B%252F")] {
        let body = format!(
            "<ListBucketResult>{encoding}<Contents><Key>a+b%2B%252F</Key><Size>3</Size>\
             <ETag>&quot;e&quot;</ETag><LastModified>2026-11-20T07:28:14.000Z</LastModified>\
             </Contents></ListBucketResult>"
        );
        let (store, _) = bucket(KEY, move |_, _| xml("200 OK", &body)).await;
        let page = store.list(ListRequest::default()).await.unwrap();
        assert_eq!(page.objects[0].key, key);
        assert_eq!(page.objects[0].meta.etag.as_ref().unwrap().0, "e");
        assert!(page.objects[0].meta.modified.is_some());
    }
}

#[tokio::test]
async fn google_gets_its_own_header_names_with_a_token() {
    let script = Arc::new(Mutex::new(String::new()));
    let seen = script.clone();
    let server = Script::start(move |_, mut stream| {
        let seen = seen.clone();
        async move {
            while let Some((head, _)) = read_request(&mut stream).await {
                seen.lock().unwrap().push_str(&head);
                stream.write_all(EMPTY.as_bytes()).await.unwrap();
            }
        }
    })
    .await;
    let endpoint = server.url("");
    let pairs = [("bearer_token", "t0ken"), ("endpoint", endpoint.as_str())];
    let options = StoreOptions::new(pairs).unwrap();
    let (store, _) = open("gs://bucket/", &options, &client().0).unwrap();
    let options = PutOptions {
        metadata: vec![("a".into(), "b".into())],
        condition: penstock_store::WriteCondition::IfAbsent,
        ..PutOptions::default()
    };
    store.put("k", Payload::default(), &options).await.unwrap();
    let head = script.lock().unwrap().clone();
    for line in ["authorization: Bearer t0ken", "x-goog-meta-a: b", "x-goog-if-generation-match: 0"]
    {
        assert!(head.contains(line), "{head}");
    }
    assert!(!head.contains("x-amz"), "{head}");
}

#[tokio::test]
async fn options_and_conditions_become_headers() {
    let options = [
        ("key_id", "AKIA"),
        ("secret", "hunter2"),
        ("session_token", "t0ken"),
        ("kms_key_id", "arn:key"),
        ("requester_pays", "true"),
        ("extra_http_headers.X-Team", "lake"),
    ];
    let (store, requests) = bucket(&options, |_, _| EMPTY.to_string()).await;
    let options = PutOptions {
        condition: penstock_store::WriteCondition::IfMatch(penstock_store::ETag("v1".into())),
        content_type: Some("text/csv".into()),
        metadata: vec![("owner".into(), "me".into())],
    };
    store.put("k", Payload::from(Bytes::from("x")), &options).await.unwrap();
    let head = requests.lock().unwrap()[0].0.clone();
    for line in [
        "if-match: \"v1\"",
        "content-type: text/csv",
        "x-amz-meta-owner: me",
        "x-amz-server-side-encryption: aws:kms",
        "x-amz-server-side-encryption-aws-kms-key-id: arn:key",
        "x-amz-request-payer: requester",
        "x-amz-security-token: t0ken",
        "x-amz-content-sha256: UNSIGNED-PAYLOAD",
        "x-team: lake",
    ] {
        assert!(head.contains(&format!("{line}\r\n")), "{line} in {head}");
    }
    assert!(!head.contains("hunter2"));
}

#[tokio::test]
async fn expired_token_says_what_to_renew() {
    let (store, _) = bucket(KEY, |_, _| error_xml("400 Bad Request", "ExpiredToken", "")).await;
    let error = get(&*store, GetRange::All).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (Kind::Denied, Retry::Never));
    assert!(error.hint().unwrap().contains("have expired"), "{error}");
}

#[tokio::test]
async fn object_too_large_for_one_copy_is_copied_in_parts() {
    const SIZE: u64 = (5 << 30) + 7;
    let (store, requests) = bucket(KEY, |_, head| {
        if head.starts_with("HEAD") {
            format!(
                "HTTP/1.1 200 OK\r\nETag: \"src\"\r\nContent-Type: text/csv\r\n\
                 x-amz-meta-a: b\r\nContent-Length: {SIZE}\r\n\r\n"
            )
        } else if head.contains("?uploads") {
            let root = "InitiateMultipartUploadResult";
            xml("200 OK", &format!("<{root}><UploadId>u1</UploadId></{root}>"))
        } else if head.contains("partNumber=") {
            xml("200 OK", "<CopyPartResult><ETag>\"p\"</ETag></CopyPartResult>")
        } else if head.starts_with("POST") {
            let root = "CompleteMultipartUploadResult";
            xml("200 OK", &format!("<{root}><ETag>\"done\"</ETag></{root}>"))
        } else {
            error_xml("400 Bad Request", "InvalidRequest", "")
        }
    })
    .await;
    let done = store.copy("from me", "to", &PutOptions::default()).await.unwrap();
    assert_eq!(done.etag.unwrap().0, "done");
    let requests = requests.lock().unwrap().clone();
    let heads: Vec<&str> = requests.iter().map(|(head, _)| head.as_str()).collect();
    let parts: Vec<&&str> = heads.iter().filter(|head| head.contains("partNumber=")).collect();
    assert_eq!(parts.len(), 6);
    let last = parts.iter().find(|head| head.contains("partNumber=6&")).unwrap();
    for line in [
        "x-amz-copy-source: /bucket/from%20me",
        "x-amz-copy-source-range: bytes=5368709120-5368709126",
        "x-amz-copy-source-if-match: \"src\"",
    ] {
        assert!(last.contains(line), "{last}");
    }
    // What a copy in one request would keep is kept.
    let create = heads.iter().find(|head| head.contains("?uploads")).unwrap();
    assert!(create.contains("x-amz-meta-a: b") && create.contains("content-type: text/csv"));
    let body = String::from_utf8(requests.last().unwrap().1.clone()).unwrap();
    assert_eq!(body.matches("<Part>").count(), 6);
}

/// What a service says that copies an object over its limit in parts; the source has these tags.
fn large_copy(head: &str, tags: &str) -> String {
    const SIZE: u64 = (5 << 30) + 7;
    let count = tags.matches("<Tag>").count();
    let write = |root: &str| xml("200 OK", &format!("<{root}><ETag>\"p\"</ETag></{root}>"));
    if head.starts_with("HEAD") {
        format!(
            "HTTP/1.1 200 OK\r\nETag: \"src\"\r\nx-amz-tagging-count: {count}\r\n\
             Content-Length: {SIZE}\r\n\r\n"
        )
    } else if head.starts_with("GET /bucket/from?tagging") {
        xml("200 OK", &format!("<Tagging><TagSet>{tags}</TagSet></Tagging>"))
    } else if head.contains("?uploads") {
        let root = "InitiateMultipartUploadResult";
        xml("200 OK", &format!("<{root}><UploadId>u1</UploadId></{root}>"))
    } else if head.contains("partNumber=") {
        write("CopyPartResult")
    } else if head.starts_with("POST") {
        write("CompleteMultipartUploadResult")
    } else {
        error_xml("400 Bad Request", "InvalidRequest", "")
    }
}

#[tokio::test]
async fn copy_in_parts_has_the_tags_of_its_source_unless_it_is_given_others() {
    const TAGS: &str = "<Tag><Key>team</Key><Value>b r</Value></Tag>";
    let other = vec![("@tagging".to_string(), "x=y".to_string())];
    let other = PutOptions { metadata: other, ..PutOptions::default() };
    for (tags, options, header, asked) in [
        (TAGS, PutOptions::default(), Some("x-amz-tagging: team=b%20r"), 1),
        (TAGS, other, Some("x-amz-tagging: x=y"), 0),
        ("", PutOptions::default(), None, 0),
    ] {
        let (store, requests) = bucket(KEY, move |_, head| large_copy(head, tags)).await;
        store.copy("from", "to", &options).await.unwrap();
        let requests = requests.lock().unwrap();
        let heads = || requests.iter().map(|(head, _)| head.as_str());
        let create = heads().find(|head| head.contains("?uploads")).unwrap();
        let told = create.lines().find(|line| line.starts_with("x-amz-tagging:"));
        assert_eq!(told, header);
        assert_eq!(heads().filter(|head| head.starts_with("GET")).count(), asked);
    }
}

#[tokio::test]
async fn metadata_that_is_no_ascii_goes_as_a_word_and_comes_back() {
    const WORD: &str = "x-amz-meta-name: =?UTF-8?B?YsOkcg==?=";
    for url in ["s3://bucket/", "gs://bucket/"] {
        let told = EMPTY.replace("ETag", &format!("{WORD}\r\nETag"));
        let (store, requests) = bucket_at(url, KEY, move |_, _| told.clone()).await;
        let metadata = vec![("name".to_string(), "b\u{e4}r".to_string())];
        let options = PutOptions { metadata: metadata.clone(), ..PutOptions::default() };
        store.put("k", Payload::from(Bytes::from("x")), &options).await.unwrap();
        let sent = requests.lock().unwrap()[0].0.clone();
        assert!(sent.contains(WORD), "{sent}");
        assert_eq!(store.stat("k").await.unwrap().metadata, metadata);
    }
}

#[tokio::test]
async fn names_that_xml_cannot_carry_are_removed_one_by_one() {
    let (store, requests) = bucket(KEY, |_, _| "HTTP/1.1 204 No Content\r\n\r\n".to_string()).await;
    let keys = ["plain", "bell\u{7}"].map(str::to_string);
    let results = store.delete_batch(&keys).await.unwrap();
    assert!(results.iter().all(Result::is_ok));
    let requests = requests.lock().unwrap();
    // They are removed at the same time, so in either order.
    for line in ["DELETE /bucket/plain ", "DELETE /bucket/bell%07 "] {
        assert!(requests.iter().any(|(head, _)| head.starts_with(line)), "{requests:?}");
    }
}

#[tokio::test]
async fn what_the_reader_has_is_judged_by_the_service_or_by_its_answer() {
    let known =
        |tag: &str| GetRequest { if_none_match: Some(ETag(tag.into())), ..GetRequest::default() };
    // One that tells no tag, as Azure's answers lack it at times; one that passes over conditions.
    for (judges, url) in [(true, "s3://bucket/"), (false, "s3://bucket/"), (true, "gs://bucket/")] {
        let (store, requests) = bucket_at(url, KEY, move |_, head| {
            match judges && head.contains("\r\nif-none-match: \"e\"\r\n") {
                true => "HTTP/1.1 304 Not Modified\r\n\r\n".to_string(),
                false => EMPTY.to_string(),
            }
        })
        .await;
        let error = store.get("k", known("e")).await.unwrap_err();
        assert!(error.is_not_modified(), "{error}");
        assert_eq!(error.etag(), (!judges).then_some("e"));
        assert_eq!(error.hint(), None, "{error}");
        assert!(store.get("k", known("other")).await.is_ok());
        assert_eq!(requests.lock().unwrap().len(), 2);
    }
}

#[tokio::test]
async fn bucket_without_a_key_is_refused_before_any_request() {
    for url in ["s3://bucket/", "s3://bucket", "gs://bucket/", "r2://bucket/"] {
        let (store, requests) = bucket_at(url, KEY, |_, _| EMPTY.to_string()).await;
        let (options, upload) = (PutOptions::default(), UploadId("u".into()));
        let absent = PutOptions { condition: WriteCondition::IfAbsent, ..PutOptions::default() };
        let payload = || Payload::from(Bytes::from_static(b"x"));
        let nothing = GetRange::Bounded(ByteRange { start: 0, end: 0 });
        let read = |range| store.get("", GetRequest::from(range));
        let errors = [
            read(GetRange::All).await.map(drop).unwrap_err(),
            read(nothing).await.map(drop).unwrap_err(),
            store.stat("").await.unwrap_err(),
            store.put("", payload(), &options).await.unwrap_err(),
            store.create_upload("", &options).await.unwrap_err(),
            store.upload_part("", &upload, 1, payload()).await.unwrap_err(),
            store.complete_upload("", &upload, &[], &options).await.unwrap_err(),
            store.abort_upload("", &upload).await.unwrap_err(),
            store.delete("", None).await.unwrap_err(),
            store.delete_batch(&[String::new()]).await.unwrap().remove(0).unwrap_err(),
            store.copy("", "b", &options).await.unwrap_err(),
            store.copy("a", "", &absent).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!((error.kind(), error.retry()), (Kind::Invalid, Retry::Never), "{error}");
            assert!(error.message().contains("names a bucket, not an object in it"), "{error}");
            assert!(error.hint().unwrap().contains("://bucket/*.parquet"), "{error}");
        }
        assert_eq!(requests.lock().unwrap().len(), 0, "{url}");
    }
}

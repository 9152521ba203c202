//! Checksums of an upload's parts: what a completion names is what the parts came with, whichever
//! replica took them.

use crate::common::{Answer, Lane, Request, Server, sign};
use penstock_base::Secret;

/// CRC-32 of 5 MiB of the byte 1, and of `end`; of both, and of their CRC-32s: from Python's zlib.
const ONE: &str = "67XDxA==";
const END: &str = "APwzsQ==";
const BOTH: &str = "zYbOSA==";
const COMPOSITE: &str = "tu/Ixg==-2";
/// Of 307,200 times `a`, and of that.
const LARGE: &str = "IGoStg==";
const OF_LARGE: &str = "nsBYvg==-1";

const CRC32: [(&str, &str); 1] = [("x-amz-checksum-algorithm", "CRC32")];

on_every_lane!(
    where_nobody_knows_of_a_checksum_none_need_be_named;
    // It keeps nothing of what an upload began with.
    but_google:
    a_part_that_is_named_otherwise_is_refused,
    parts_of_another_kind_are_refused,
    a_checksum_behind_a_large_part_is_told_again,
    the_whole_follows_from_the_parts,
    a_copied_part_has_a_checksum,
);

/// A client that resumes an upload has the tags of the list alone, and may complete it.
async fn where_nobody_knows_of_a_checksum_none_need_be_named(lane: Lane) {
    // An S3 back end that is not said to keep checksums.
    let server = Server::on(lane).await;
    for is_listed in [false, true] {
        let id = create(&server, "k", &CRC32).await;
        let sent = part(&server, ("k", &id, 1), b"end", Some(END)).await;
        let tag = match is_listed {
            false => sent.header("etag").replace('"', ""),
            true => {
                let listed = server.get(&format!("/lake/k?uploadId={id}")).await;
                field(&listed, "ETag").unwrap()
            }
        };
        let body = format!(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>\
             </CompleteMultipartUpload>"
        );
        let (path, body) = (format!("/lake/k?uploadId={id}"), body.as_bytes());
        let done = Request { method: "POST", path: &path, body, ..Default::default() };
        let done = server.send(done).await;
        let is_known = match lane {
            Lane::Local | Lane::Memory => true,
            Lane::Azure => !is_listed,
            Lane::S3 | Lane::Google => false,
        };
        let what = format!("{lane:?}, listed: {is_listed}: {}", done.text());
        if is_known {
            assert_eq!((done.status, done.code().as_str()), (400, "InvalidRequest"), "{what}");
            assert_eq!(server.get("/lake/k").await.status, 404, "{what}");
            continue;
        }
        assert_eq!((done.status, field(&done, "ChecksumCRC32")), (200, None), "{what}");
        let told = head(&server, "k").await;
        assert_eq!((told.status, told.header("x-amz-checksum-crc32")), (200, ""), "{what}");
    }
}

/// With an S3 back end that is said to keep checksums.
async fn on(lane: Lane) -> Server {
    Server::on_with(lane, |options| {
        let keeps = ("checksum".to_string(), Secret::new("crc32".to_string()));
        options.backends[0].options.extend((lane == Lane::S3).then_some(keeps));
    })
    .await
}

fn field(answer: &Answer, name: &str) -> Option<String> {
    let text = answer.text();
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once("</").map(|(value, _)| value.replace("&quot;", "").replace('"', ""))
}

async fn create(server: &Server, key: &str, headers: &[(&str, &str)]) -> String {
    let path = format!("/lake/{key}?uploads");
    let begun = Request { method: "POST", path: &path, headers, ..Default::default() };
    field(&server.send(begun).await, "UploadId").unwrap()
}

async fn part(server: &Server, at: (&str, &str, u32), body: &[u8], sum: Option<&str>) -> Answer {
    let (key, id, number) = at;
    let path = format!("/lake/{key}?partNumber={number}&uploadId={id}");
    let headers: Vec<_> = sum.map(|sum| ("x-amz-checksum-crc32", sum)).into_iter().collect();
    let headers = &headers[..];
    server.send(Request { method: "PUT", path: &path, headers, body, ..Default::default() }).await
}

/// A completion with parts 1, 2 and so on: tag and what is named of each.
async fn complete(
    server: &Server,
    at: (&str, &str),
    parts: &[(&Answer, &str)],
    headers: &[(&str, &str)],
) -> Answer {
    let element = |(number, (sent, named)): (usize, &(&Answer, &str))| {
        let named = match *named {
            "" => String::new(),
            sum => format!("<ChecksumCRC32>{sum}</ChecksumCRC32>"),
        };
        let tag = sent.header("etag");
        format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag>{named}</Part>")
    };
    let list: String = (1..).zip(parts).map(element).collect();
    let body = format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>");
    let path = format!("/lake/{}?uploadId={}", at.0, at.1);
    let body = body.as_bytes();
    server.send(Request { method: "POST", path: &path, headers, body, ..Default::default() }).await
}

async fn head(server: &Server, key: &str) -> Answer {
    let path = format!("/lake/{key}");
    let headers = [("x-amz-checksum-mode", "ENABLED")];
    let method = "HEAD";
    server.send(Request { method, path: &path, headers: &headers, ..Default::default() }).await
}

async fn a_part_that_is_named_otherwise_is_refused(lane: Lane) {
    let server = on(lane).await;
    refuses_other_sums(&server, lane == Lane::Azure).await;
}

/// `is_silent`: the back end's list of parts tells no checksums.
async fn refuses_other_sums(server: &Server, is_silent: bool) {
    let id = create(server, "k", &CRC32).await;
    let one = part(server, ("k", &id, 1), &vec![1; 5 << 20], Some(ONE)).await;
    let end = part(server, ("k", &id, 2), b"end", Some(END)).await;
    assert_eq!((one.status, end.status), (200, 200), "{} {}", one.text(), end.text());
    let listed = server.get(&format!("/lake/k?uploadId={id}")).await;
    let told = (!is_silent).then(|| ONE.to_string());
    assert_eq!(field(&listed, "ChecksumCRC32"), told, "{}", listed.text());
    for (first, second, code) in [
        (ONE, ONE, "InvalidPart"),
        (END, END, "InvalidPart"),
        ("", "", "InvalidRequest"),
        (ONE, "", "InvalidRequest"),
    ] {
        let refused = complete(server, ("k", &id), &[(&one, first), (&end, second)], &[]).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, code), "{}", refused.text());
        assert_eq!(server.get("/lake/k").await.status, 404, "nothing is stored");
    }
    let right = [(&one, ONE), (&end, END)];
    let done = complete(server, ("k", &id), &right, &[]).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(field(&done, "ChecksumCRC32").as_deref(), Some(COMPOSITE), "{}", done.text());
}

async fn parts_of_another_kind_are_refused(lane: Lane) {
    let server = on(lane).await;
    let id = create(&server, "k", &CRC32).await;
    let path = format!("/lake/k?partNumber=1&uploadId={id}");
    let sha1 = [("x-amz-checksum-sha1", "Kq5sNclPz7QV2+lfQIuc6R7oRu0=")];
    for headers in [&sha1[..], &[]] {
        let (method, body) = ("PUT", &b"hello world"[..]);
        let sent = Request { method, path: &path, headers, body, ..Default::default() };
        let refused = server.send(sent).await;
        let told = (refused.status, refused.code());
        assert_eq!(told, (400, "InvalidRequest".into()), "{}", refused.text());
    }
    let right = part(&server, ("k", &id, 1), b"end", Some(END)).await;
    assert_eq!(right.header("x-amz-checksum-crc32"), END);
    let whole = [("x-amz-checksum-crc32", OF_LARGE)];
    let wrong = complete(&server, ("k", &id), &[(&right, END)], &whole).await;
    assert_eq!((wrong.status, wrong.code().as_str()), (400, "BadDigest"), "{}", wrong.text());
    assert_eq!(server.get("/lake/k").await.status, 404);
}

/// Sends 300 KiB in chunks, their checksum behind them.
async fn with_trailer(server: &Server, key: &str, id: &str) -> Answer {
    let body = sign::unsigned_chunks(&[&vec![b'a'; 300 << 10]], ("x-amz-checksum-crc32", LARGE));
    let length = body.len().to_string();
    let headers = [
        ("content-encoding", "aws-chunked"),
        ("content-length", length.as_str()),
        ("x-amz-decoded-content-length", "307200"),
        ("x-amz-trailer", "x-amz-checksum-crc32"),
    ];
    let path = format!("/lake/{key}?partNumber=1&uploadId={id}");
    let request = Request {
        method: "PUT",
        path: &path,
        headers: &headers,
        body: &body,
        content_sha256: Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
        ..Default::default()
    };
    server.send(request).await
}

async fn a_checksum_behind_a_large_part_is_told_again(lane: Lane) {
    let server = on(lane).await;
    let id = create(&server, "large", &CRC32).await;
    let sent = with_trailer(&server, "large", &id).await;
    assert_eq!((sent.status, sent.header("x-amz-checksum-crc32")), (200, LARGE), "{}", sent.text());
    let wrong = complete(&server, ("large", &id), &[(&sent, END)], &[]).await;
    assert_eq!((wrong.status, wrong.code().as_str()), (400, "InvalidPart"), "{}", wrong.text());
    let done = complete(&server, ("large", &id), &[(&sent, LARGE)], &[]).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert!(server.get("/lake/large").await.body == vec![b'a'; 300 << 10], "the bytes differ");
    let told = head(&server, "large").await;
    assert_eq!(told.header("x-amz-checksum-crc32"), OF_LARGE);
}

async fn the_whole_follows_from_the_parts(lane: Lane) {
    let server = on(lane).await;
    let full = [CRC32[0], ("x-amz-checksum-type", "FULL_OBJECT")];
    let id = create(&server, "full", &full).await;
    let one = part(&server, ("full", &id, 1), &vec![1; 5 << 20], Some(ONE)).await;
    let end = part(&server, ("full", &id, 2), b"end", Some(END)).await;
    // No part is named: what they came with is known.
    let parts = [(&one, ""), (&end, "")];
    let whole = |sum| [("x-amz-checksum-crc32", sum), ("x-amz-checksum-type", "FULL_OBJECT")];
    let wrong = complete(&server, ("full", &id), &parts, &whole(END)).await;
    assert_eq!((wrong.status, wrong.code().as_str()), (400, "BadDigest"), "{}", wrong.text());
    assert_eq!(server.get("/lake/full").await.status, 404);
    if lane != Lane::S3 {
        let other = [("x-amz-checksum-type", "COMPOSITE")];
        let other = complete(&server, ("full", &id), &parts, &other).await;
        assert_eq!(other.code(), "InvalidRequest", "{}", other.text());
    }
    let done = complete(&server, ("full", &id), &parts, &whole(BOTH)).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(head(&server, "full").await.header("x-amz-checksum-crc32"), BOTH);
}

/// UploadPartCopy from `source`, and what its answer tells: the tag in place of that of a part.
async fn copy(server: &Server, at: (&str, &str, u32), source: &str, range: &str) -> Answer {
    let (key, id, number) = at;
    let path = format!("/lake/{key}?partNumber={number}&uploadId={id}");
    let mut headers = vec![("x-amz-copy-source", source)];
    headers.extend((!range.is_empty()).then_some(("x-amz-copy-source-range", range)));
    let headers = &headers[..];
    let request = Request { method: "PUT", path: &path, headers, ..Default::default() };
    let mut answer = server.send(request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let tag = format!("\"{}\"", field(&answer, "ETag").unwrap());
    answer.headers.insert("etag".to_string(), tag);
    answer
}

async fn a_copied_part_has_a_checksum(lane: Lane) {
    let server = on(lane).await;
    assert_eq!(
        server.put("/lake/source", &[vec![1; 5 << 20], b"end".into()].concat()).await.status,
        200
    );
    let end = [("x-amz-checksum-crc32", END)];
    let put = Request { method: "PUT", path: "/lake/end", headers: &end, ..Default::default() };
    assert_eq!(server.send(Request { body: b"end", ..put }).await.status, 200);
    let id = create(&server, "k", &CRC32).await;
    let one = copy(&server, ("k", &id, 1), "/lake/source", "bytes=0-5242879").await;
    // All of an object that tells its own.
    let two = copy(&server, ("k", &id, 2), "/lake/end", "").await;
    assert_eq!(field(&two, "ChecksumCRC32").as_deref(), Some(END), "{}", two.text());
    // Azure copies a range by itself, and makes no CRC-32 of it.
    let made = field(&one, "ChecksumCRC32");
    assert_eq!(made.as_deref(), (lane != Lane::Azure).then_some(ONE), "{}", one.text());
    let wrong = complete(&server, ("k", &id), &[(&one, ""), (&two, ONE)], &[]).await;
    assert_eq!(wrong.status, 400, "{}", wrong.text());
    assert_eq!(server.get("/lake/k").await.status, 404, "nothing is stored");
    let done =
        complete(&server, ("k", &id), &[(&one, made.as_deref().unwrap_or("")), (&two, END)], &[])
            .await;
    assert_eq!(done.status, 200, "{}", done.text());
    let composite = (lane != Lane::Azure).then(|| COMPOSITE.to_string());
    assert_eq!(field(&done, "ChecksumCRC32"), composite, "{}", done.text());
    assert_eq!(server.get("/lake/k").await.body.len(), (5 << 20) + 3);
}

/// The CRC that Azure makes of each block is the one that S3 has for whole objects.
#[tokio::test]
async fn a_part_that_azure_copies_has_the_checksum_that_azure_makes() {
    let server = Server::on(Lane::Azure).await;
    assert_eq!(server.put("/lake/source", b"123456789").await.status, 200);
    let kind = [("x-amz-checksum-algorithm", "CRC64NVME")];
    let id = create(&server, "k", &kind).await;
    let one = copy(&server, ("k", &id, 1), "/lake/source", "").await;
    // The check value of the catalogue of CRCs.
    assert_eq!(field(&one, "ChecksumCRC64NVME").as_deref(), Some("rosUhgp5mIg="));
    assert!(one.header("etag").ends_with("-crc64nvme-ae8b14860a799888\""), "{}", one.text());
    let whole = |sum| [("x-amz-checksum-crc64nvme", sum), ("x-amz-checksum-type", "FULL_OBJECT")];
    let wrong = complete(&server, ("k", &id), &[(&one, "")], &whole("AAAAAAAAAAA=")).await;
    assert_eq!((wrong.status, wrong.code().as_str()), (400, "BadDigest"), "{}", wrong.text());
    let done = complete(&server, ("k", &id), &[(&one, "")], &whole("rosUhgp5mIg=")).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(field(&done, "ChecksumCRC64NVME").as_deref(), Some("rosUhgp5mIg="));
    assert_eq!(head(&server, "k").await.header("x-amz-checksum-crc64nvme"), "rosUhgp5mIg=");
}

/// Bytes that pass through the gateway are hashed on their way, even none.
#[tokio::test]
async fn a_part_that_is_copied_from_elsewhere_has_a_checksum() {
    let server = Server::on(Lane::Memory).await;
    assert_eq!(server.put("/lake/empty", b"").await.status, 200);
    let id = create(&server, "k", &[("x-amz-checksum-algorithm", "SHA256")]).await;
    let empty = copy(&server, ("k", &id, 1), "/lake/empty", "").await;
    let of_nothing = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
    assert_eq!(field(&empty, "ChecksumSHA256").as_deref(), Some(of_nothing), "{}", empty.text());
    let plain = create(&server, "plain", &[]).await;
    let bare = copy(&server, ("plain", &plain, 1), "/lake/empty", "").await;
    assert!(!bare.text().contains("Checksum"), "{}", bare.text());
}

/// What the back end does not keep, the parts' tags tell.
#[tokio::test]
async fn an_s3_back_end_that_is_not_said_to_keep_checksums_is_not_trusted() {
    for choice in ["none", "auto"] {
        let server = Server::on_with(Lane::S3, |options| {
            let choice = ("checksum".to_string(), Secret::new(choice.to_string()));
            options.backends[0].options.push(choice);
        })
        .await;
        tags_tell(&server).await;
    }
}

async fn tags_tell(server: &Server) {
    let id = create(server, "k", &CRC32).await;
    let sent = with_trailer(server, "k", &id).await;
    assert_eq!(sent.status, 200, "{}", sent.text());
    assert!(sent.header("etag").ends_with("-crc32-206a12b6\""), "{}", sent.header("etag"));
    let wrong = complete(server, ("k", &id), &[(&sent, END)], &[]).await;
    assert_eq!((wrong.status, wrong.code().as_str()), (400, "InvalidPart"), "{}", wrong.text());
    assert_eq!(server.get("/lake/k").await.status, 404);
    let done = complete(server, ("k", &id), &[(&sent, LARGE)], &[]).await;
    assert_eq!(done.status, 200, "{}", done.text());
}

/// One that keeps them has its own tags, and judges.
#[tokio::test]
async fn an_s3_back_end_that_keeps_checksums_has_tags_of_its_own() {
    let server = on(Lane::S3).await;
    let id = create(&server, "k", &CRC32).await;
    let sent = with_trailer(&server, "k", &id).await;
    assert_eq!(sent.header("etag").len(), 34, "an MD5: {}", sent.header("etag"));
}

/// What is named of a part that came without a checksum is compared with its bytes.
#[tokio::test]
async fn what_is_named_of_a_bare_part_is_read_again_on_a_directory() {
    let server = Server::on(Lane::Local).await;
    let id = create(&server, "k", &[]).await;
    let sent = part(&server, ("k", &id, 1), b"end", None).await;
    let wrong = complete(&server, ("k", &id), &[(&sent, ONE)], &[]).await;
    assert_eq!((wrong.status, wrong.code().as_str()), (400, "InvalidPart"), "{}", wrong.text());
    let done = complete(&server, ("k", &id), &[(&sent, END)], &[]).await;
    assert_eq!(done.status, 200, "{}", done.text());
}

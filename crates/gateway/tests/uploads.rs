//! Multipart uploads on every back end, each request through another replica.

use crate::common::{Answer, Dir, Lane, Request, Server, azure, options_over, s3};

const MIB: usize = 1 << 20;

on_every_lane!(
    parts_of_any_replica_make_one_object,
    an_upload_is_listed_and_given_up,
    parts_that_are_wrong_are_refused,
    what_is_no_id_names_no_upload,
    a_completion_asked_again_succeeds,
    a_size_that_is_told_is_compared,
    parts_are_copied,
    checksums_of_the_whole_are_compared,
);

/// A part of a size that tells bytes apart.
fn bytes(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ seed).collect()
}

/// A second gateway over the same back end. In memory there is no second view of it.
async fn replica(server: &Server, lane: Lane) -> Option<Server> {
    let options = match (lane, &server.fake) {
        (Lane::Local, _) => crate::common::options(&server.dir),
        (Lane::Azure, Some(fake)) => options_over(azure(fake)),
        (Lane::S3, Some(fake)) => options_over(s3(fake)),
        _ => return None,
    };
    Some(Server::start_with(Dir::new(), options).await)
}

async fn create(server: &Server, key: &str, headers: &[(&str, &str)]) -> String {
    let path = format!("/lake/{key}?uploads");
    let begun =
        server.send(Request { method: "POST", path: &path, headers, ..Default::default() }).await;
    assert_eq!(begun.status, 200, "{}", begun.text());
    field(&begun, "UploadId").unwrap()
}

fn field(answer: &Answer, name: &str) -> Option<String> {
    let text = answer.text();
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once("</").map(|(value, _)| value.replace("&quot;", "").replace('"', ""))
}

async fn part(server: &Server, key: &str, id: &str, number: u32, body: &[u8]) -> Answer {
    let path = format!("/lake/{key}?partNumber={number}&uploadId={id}");
    server.send(Request { method: "PUT", path: &path, body, ..Default::default() }).await
}

async fn tag_of(sent: Answer) -> String {
    assert_eq!(sent.status, 200, "{}", sent.text());
    sent.header("etag").trim_matches('"').to_string()
}

async fn complete_with(
    server: &Server,
    key: &str,
    id: &str,
    parts: &[(u32, &str)],
    headers: &[(&str, &str)],
) -> Answer {
    let part = |(number, tag): &(u32, &str)| {
        format!("<Part><PartNumber>{number}</PartNumber><ETag>\"{tag}\"</ETag></Part>")
    };
    let list: String = parts.iter().map(part).collect();
    let body = format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>");
    let path = format!("/lake/{key}?uploadId={id}");
    let body = body.as_bytes();
    server.send(Request { method: "POST", path: &path, body, headers, ..Default::default() }).await
}

async fn complete(server: &Server, key: &str, id: &str, parts: &[(u32, &str)]) -> Answer {
    complete_with(server, key, id, parts, &[]).await
}

async fn parts_of_any_replica_make_one_object(lane: Lane) {
    let first = Server::on(lane).await;
    let second = replica(&first, lane).await;
    let second = second.as_ref().unwrap_or(&first);
    let headers = [("content-type", "text/csv"), ("x-amz-meta-my-key", "value")];
    let id = create(&first, "dir/whole", &headers).await;
    let (one, two) = (bytes(1, 5 * MIB), bytes(2, 70_000));
    // Out of order, and the first one twice.
    let tag_two = tag_of(part(&first, "dir/whole", &id, 7, &two).await).await;
    tag_of(part(second, "dir/whole", &id, 2, &bytes(9, 100)).await).await;
    let tag_one = tag_of(part(second, "dir/whole", &id, 2, &one).await).await;
    assert_eq!(second.get("/lake/dir/whole").await.status, 404, "visible before it is complete");
    let parts = [(2, tag_one.as_str()), (7, tag_two.as_str())];
    let done = complete(second, "dir/whole", &id, &parts).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let got = first.get("/lake/dir/whole").await;
    assert_eq!(got.status, 200);
    assert!(got.body == [one.clone(), two.clone()].concat(), "the bytes differ");
    assert_eq!(
        (got.header("content-type"), got.header("x-amz-meta-my-key")),
        ("text/csv", "value")
    );
    assert_eq!(field(&done, "ETag").unwrap(), got.header("etag").trim_matches('"'));
    let listed = second.get("/lake?list-type=2").await;
    assert_eq!(field(&listed, "ETag").unwrap(), got.header("etag").trim_matches('"'));
    if matches!(lane, Lane::S3 | Lane::Google) {
        // The fake does not know the parameter, and the first part must not be all of them.
        for number in [1, 2] {
            let part = first.get(&format!("/lake/dir/whole?partNumber={number}")).await;
            assert_eq!((part.status, part.code().as_str()), (400, "NotImplemented"), "{number}");
        }
        return;
    }
    for (number, body) in [(1, &one), (2, &two)] {
        let part = first.get(&format!("/lake/dir/whole?partNumber={number}")).await;
        assert_eq!((part.status, part.header("x-amz-mp-parts-count")), (206, "2"), "{number}");
        assert!(part.body == *body, "part {number}");
    }
    let past = first.get("/lake/dir/whole?partNumber=3").await;
    assert_eq!((past.status, past.code().as_str()), (416, "InvalidPartNumber"));
}

async fn an_upload_is_listed_and_given_up(lane: Lane) {
    let server = Server::on(lane).await;
    let other = replica(&server, lane).await;
    let other = other.as_ref().unwrap_or(&server);
    let id = create(&server, "given-up", &[]).await;
    let list = format!("/lake/given-up?uploadId={id}");
    let empty = other.get(&list).await;
    assert_eq!((empty.status, field(&empty, "PartNumber")), (200, None), "{}", empty.text());
    let tag = tag_of(part(&server, "given-up", &id, 3, b"part").await).await;
    let listed = other.get(&list).await;
    assert_eq!(field(&listed, "PartNumber").as_deref(), Some("3"), "{}", listed.text());
    assert_eq!(field(&listed, "Size").as_deref(), Some("4"));
    assert_eq!(field(&listed, "ETag"), Some(tag.clone()), "the tag of the upload");
    let uploads = other.get("/lake?uploads").await;
    assert_eq!(field(&uploads, "Key").as_deref(), Some("given-up"), "{}", uploads.text());
    let found = field(&uploads, "UploadId").unwrap();
    if lane == Lane::Azure {
        // Known by its blocks, which do not tell what it began with.
        let found = complete(&server, "given-up", &found, &[(3, &tag)]).await;
        assert_eq!((found.status, found.code().as_str()), (400, "NotImplemented"));
    } else {
        assert_eq!(found, id, "{}", uploads.text());
    }
    let list = format!("/lake/given-up?uploadId={found}");
    // A condition that is not looked at would be no condition.
    let when = [("x-amz-if-match-initiated-time", "Mon, 23 Nov 2026 12:00:00 GMT")];
    let refused = Request { method: "DELETE", path: &list, headers: &when, ..Default::default() };
    let refused = other.send(refused).await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "NotImplemented"));
    assert!(refused.text().contains(when[0].0), "{}", refused.text());
    let abort = Request { method: "DELETE", path: &list, ..Default::default() };
    assert_eq!(other.send(abort).await.status, 204);
    let gone = server.get(&list).await;
    assert_eq!((gone.status, gone.code().as_str()), (404, "NoSuchUpload"));
    let late = complete(&server, "given-up", &id, &[(3, &tag)]).await;
    assert_eq!((late.status, late.code().as_str()), (404, "NoSuchUpload"));
    assert_eq!(server.get("/lake/given-up").await.status, 404);
    assert_eq!(field(&other.get("/lake?uploads").await, "UploadId"), None);
}

async fn parts_that_are_wrong_are_refused(lane: Lane) {
    let server = Server::on(lane).await;
    let id = create(&server, "k", &[]).await;
    let small = tag_of(part(&server, "k", &id, 1, b"small").await).await;
    let last = tag_of(part(&server, "k", &id, 2, b"last").await).await;
    let refused = async |parts: &[(u32, &str)]| complete(&server, "k", &id, parts).await.code();
    assert_eq!(refused(&[(2, &last), (1, &small)]).await, "InvalidPartOrder");
    assert_eq!(refused(&[(1, &small), (2, &last)]).await, "EntityTooSmall");
    assert_eq!(refused(&[(1, "ffffffffffffffffffffffffffffffff")]).await, "InvalidPart");
    assert_eq!(refused(&[(9, &last)]).await, "InvalidPart");
    let elsewhere = part(&server, "other-key", &id, 1, b"x").await;
    assert_eq!(elsewhere.code(), "NoSuchUpload");
    assert_eq!(server.get("/lake/k").await.status, 404);
    let kept = [("if-none-match", "*")];
    server.put("/lake/k", b"there").await;
    let conflict = complete_with(&server, "k", &id, &[(2, &last)], &kept).await;
    // On Azure a blob that is put drops the parts of every upload to its key.
    let status = match lane {
        Lane::Azure => 400,
        // It would complete the upload whatever is there.
        Lane::Google => 400,
        _ => 412,
    };
    assert_eq!(conflict.status, status, "{}", conflict.text());
    assert_eq!(server.get("/lake/k").await.body, b"there");
}

/// Nor asks any back end about it.
async fn what_is_no_id_names_no_upload(lane: Lane) {
    let server = Server::on(lane).await;
    let id = create(&server, "k", &[]).await;
    let tag = tag_of(part(&server, "k", &id, 1, b"part").await).await;
    let asked = server.fake.as_ref().map(|fake| fake.stats().requests);
    for wrong in ["", "%00", "a%0A"] {
        let path = format!("/lake/k?uploadId={wrong}");
        let numbered = format!("/lake/k?partNumber=1&uploadId={wrong}");
        assert_eq!(server.put(&numbered, b"x").await.code(), "NoSuchUpload", "{wrong:?}");
        assert_eq!(server.get(&path).await.code(), "NoSuchUpload", "{wrong:?}");
        let gone =
            server.send(Request { method: "DELETE", path: &path, ..Default::default() }).await;
        assert_eq!(gone.code(), "NoSuchUpload", "{wrong:?}");
        let done = complete(&server, "k", wrong, &[(1, &tag)]).await;
        assert_eq!(done.code(), "NoSuchUpload", "{wrong:?}");
    }
    assert_eq!(server.fake.as_ref().map(|fake| fake.stats().requests), asked);
    let done = complete(&server, "k", &id, &[(1, &tag)]).await;
    assert_eq!(done.status, 200, "{}", done.text());
}

async fn a_size_that_is_told_is_compared(lane: Lane) {
    let server = Server::on(lane).await;
    let id = create(&server, "sized", &[]).await;
    let tag = tag_of(part(&server, "sized", &id, 1, b"eleven byte").await).await;
    let finish = async |size: &str| {
        let headers = [("x-amz-mp-object-size", size)];
        complete_with(&server, "sized", &id, &[(1, &tag)], &headers).await
    };
    let wrong = finish("12").await;
    assert_eq!((wrong.status, wrong.code().as_str()), (400, "InvalidRequest"));
    assert_eq!(server.get("/lake/sized").await.status, 404);
    assert_eq!(finish("11").await.status, 200);
    assert_eq!(finish("11").await.status, 200, "asked again");
}

async fn a_completion_asked_again_succeeds(lane: Lane) {
    let server = Server::on(lane).await;
    let id = create(&server, "twice", &[]).await;
    let tag = tag_of(part(&server, "twice", &id, 1, b"once").await).await;
    let first = complete(&server, "twice", &id, &[(1, &tag)]).await;
    let again = complete(&server, "twice", &id, &[(1, &tag)]).await;
    assert_eq!((first.status, again.status), (200, 200), "{}", again.text());
    assert_eq!(field(&first, "ETag"), field(&again, "ETag"));
    assert_eq!(server.get("/lake/twice").await.body, b"once");
}

async fn parts_are_copied(lane: Lane) {
    let server = Server::on(lane).await;
    let source = bytes(5, 6 * MIB);
    let put = server.put("/lake/source", &source).await;
    let id = create(&server, "copied", &[]).await;
    let path = format!("/lake/copied?partNumber=1&uploadId={id}");
    let copy = async |headers: &[(&str, &str)]| {
        server.send(Request { method: "PUT", path: &path, headers, ..Default::default() }).await
    };
    let from = ("x-amz-copy-source", "/lake/source");
    let stale = copy(&[from, ("x-amz-copy-source-if-match", "\"other\"")]).await;
    assert_eq!(stale.status, 412, "{}", stale.text());
    let ranged = async |range: &str| copy(&[from, ("x-amz-copy-source-range", range)]).await;
    for past in ["bytes=0-99999999", "bytes=0-6291456", "bytes=6291456-6291456"] {
        let past = ranged(past).await;
        assert_eq!((past.status, past.code().as_str()), (416, "InvalidRange"));
        assert!(past.text().contains("source object of size: 6291456<"), "{}", past.text());
    }
    let none = ["5-9", "bytes=5-", "bytes=-5", "bytes=9-5", "bytes=0-1,3-4", "bytes=+1-5", ""];
    for none in none.into_iter().chain(["bytes=0-18446744073709551615", "bytes = 0-1"]) {
        let refused = ranged(none).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "InvalidArgument"), "{none}");
        assert!(refused.text().contains("bytes=first-last where first"), "{}", refused.text());
    }
    let range = ("x-amz-copy-source-range", "bytes=1048576-6291455");
    let copied = copy(&[from, range, ("x-amz-copy-source-if-match", put.header("etag"))]).await;
    assert_eq!(copied.status, 200, "{}", copied.text());
    let tag = field(&copied, "ETag").unwrap();
    let last = tag_of(part(&server, "copied", &id, 2, b"end").await).await;
    let done = complete(&server, "copied", &id, &[(1, &tag), (2, &last)]).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let got = server.get("/lake/copied").await;
    assert!(got.body == [&source[MIB..], b"end"].concat(), "the bytes differ");
}

async fn checksums_of_the_whole_are_compared(lane: Lane) {
    let server = Server::on(lane).await;
    let id = create(&server, "summed", &[]).await;
    let path = format!("/lake/summed?partNumber=1&uploadId={id}");
    // CRC-32 of "hello world", from Python's zlib.
    let headers = [("x-amz-checksum-crc32", "DUoRhQ==")];
    let body = b"hello world";
    let sent =
        Request { method: "PUT", path: &path, headers: &headers, body, ..Default::default() };
    let sent = server.send(sent).await;
    assert_eq!(sent.header("x-amz-checksum-crc32"), "DUoRhQ==");
    let tag = tag_of(sent).await;
    let finish = async |whole: &str| {
        let body = format!(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag>\
             <ChecksumCRC32>DUoRhQ==</ChecksumCRC32></Part></CompleteMultipartUpload>"
        );
        let path = format!("/lake/summed?uploadId={id}");
        let headers = [("x-amz-checksum-crc32", whole), ("x-amz-checksum-type", "FULL_OBJECT")];
        let (headers, body) = (&headers[..], body.as_bytes());
        server
            .send(Request { method: "POST", path: &path, headers, body, ..Default::default() })
            .await
    };
    let wrong = finish("AAAAAA==").await;
    assert_eq!(wrong.code(), "BadDigest", "{}", wrong.text());
    assert_eq!(server.get("/lake/summed").await.status, 404);
    let right = finish("DUoRhQ==").await;
    assert_eq!(right.status, 200, "{}", right.text());
    if matches!(lane, Lane::S3 | Lane::Google) {
        return;
    }
    let headers = [("x-amz-checksum-mode", "ENABLED")];
    let got = Request { path: "/lake/summed", headers: &headers, ..Default::default() };
    let got = server.send(got).await;
    assert_eq!(got.header("x-amz-checksum-crc32"), "DUoRhQ==");
    assert_eq!(got.header("x-amz-checksum-type"), "FULL_OBJECT");
}

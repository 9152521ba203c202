//! What only shows on Azure: how many requests each operation costs, and names that Azure refuses.

use crate::common::costs::{costs, costs_status};
use crate::common::{Lane, Request, Server};

const MIB: usize = 1 << 20;

#[tokio::test]
async fn each_operation_costs_what_the_table_says() {
    let server = Server::on(Lane::Azure).await;
    let large = vec![7; 20 * MIB];
    let put = |path, body| Request { method: "PUT", path, body, ..Default::default() };
    let get = |path, headers| Request { path, headers, ..Default::default() };
    let mark = ("x-amz-meta-my-key", "v");
    costs(&server, "PutObject, small", put("/lake/k", b"0123456789"), &["PutBlob"]).await;
    costs(&server, "PutObject, 20 MiB", put("/lake/large", &large), &["PutBlob"]).await;
    let absent = Request { headers: &[("if-none-match", "*"), mark], ..put("/lake/new", b"x") };
    let etag = costs(&server, "PutObject, If-None-Match", absent, &["PutBlob"]).await;
    let matching = [("if-match", etag.as_str())];
    let over = Request { headers: &matching, ..put("/lake/new", b"y") };
    let etag = costs(&server, "PutObject, If-Match", over, &["PutBlob"]).await;
    costs(&server, "GetObject, 20 MiB", get("/lake/large", &[]), &["GetBlob"]).await;
    let range = [("range", "bytes=65536-131071")];
    costs(&server, "GetObject, range", get("/lake/large", &range), &["GetBlob"]).await;
    let suffix = [("range", "bytes=-100")];
    let two = &["GetBlob", "GetBlobProperties"];
    costs(&server, "GetObject, suffix", get("/lake/large", &suffix), two).await;
    let two = &["GetBlob", "GetBlobProperties"];
    let other = [("if-match", "\"other-1\"")];
    costs_status(&server, ("GetObject, If-Match that fails", 412), get("/lake/large", &other), two)
        .await;
    let tag = server.get("/lake/large").await.header("etag").to_string();
    conditional_reads_cost(&server, &tag).await;
    let right = [("if-match", tag.as_str())];
    costs(&server, "GetObject, If-Match", get("/lake/large", &right), &["GetBlob"]).await;
    costs(&server, "GetObject, partNumber=1", get("/lake/k?partNumber=1", &[]), &["GetBlob"]).await;
    let head = Request { method: "HEAD", path: "/lake/k", ..Default::default() };
    costs(&server, "HeadObject", head, &["GetBlobProperties"]).await;
    let list = get("/lake?list-type=2&delimiter=%2F", &[]);
    costs(&server, "ListObjectsV2", list, &["ListBlobs"]).await;
    let after = get("/lake?list-type=2&start-after=k", &[]);
    costs(&server, "ListObjectsV2, start-after", after, &["ListBlobs"]).await;
    let from = ("x-amz-copy-source", "/lake/large");
    let copy =
        |headers| Request { method: "PUT", path: "/lake/copy", headers, ..Default::default() };
    let plain = [from];
    costs(&server, "CopyObject", copy(&plain), &["CopyBlob", "GetBlobProperties"]).await;
    let replace = [from, ("x-amz-metadata-directive", "REPLACE"), mark];
    costs(&server, "CopyObject, REPLACE", copy(&replace), &["GetBlobProperties", "PutBlobFromURL"])
        .await;
    let delete = |path, headers| Request { method: "DELETE", path, headers, ..Default::default() };
    let matching = [("if-match", etag.as_str())];
    costs(&server, "DeleteObject, If-Match", delete("/lake/new", &matching), &["DeleteBlob"]).await;
    costs(&server, "DeleteObject", delete("/lake/k", &[]), &["DeleteBlob"]).await;
    let keys: String = (0..1000).map(|key| format!("<Object><Key>{key}</Key></Object>")).collect();
    let body = format!("<Delete><Quiet>true</Quiet>{keys}</Delete>");
    let batch = Request {
        method: "POST",
        path: "/lake?delete",
        body: body.as_bytes(),
        ..Default::default()
    };
    costs(&server, "DeleteObjects, 1000 keys", batch, &["SubmitBatch"; 4]).await;
    uploads_cost(&server).await;
}

/// Reads of what changed only: one request, whether it did or not.
async fn conditional_reads_cost(server: &Server, tag: &str) {
    let get = |path, headers| Request { path, headers, ..Default::default() };
    let (one, head) = (&["GetBlob"], &["GetBlobProperties"]);
    let same = [("if-none-match", tag)];
    costs_status(server, ("GetObject, not modified", 304), get("/lake/large", &same), one).await;
    let weak = format!("W/{tag}");
    let weak = [("if-none-match", weak.as_str()), ("range", "bytes=0-9")];
    costs_status(server, ("range, not modified", 304), get("/lake/large", &weak), one).await;
    let later = [("if-modified-since", "Fri, 31 Dec 2100 00:00:00 GMT")];
    costs_status(server, ("GetObject, not since", 304), get("/lake/large", &later), one).await;
    let both = [same[0], ("if-match", tag)];
    costs_status(server, ("both tags, not modified", 304), get("/lake/large", &both), one).await;
    // Of any version nothing is sent: its head tells whether there is one.
    let any = [("if-none-match", "*")];
    costs_status(server, ("GetObject, any known", 304), get("/lake/large", &any), head).await;
    let part = "/lake/large?partNumber=1";
    costs_status(server, ("partNumber=1, not modified", 304), get(part, &same), one).await;
    let suffix = [same[0], ("range", "bytes=-100")];
    costs_status(server, ("suffix, not modified", 304), get("/lake/large", &suffix), head).await;
    let bare = tag.replace("-1\"", "\"");
    for (name, value) in [
        ("if-none-match", "\"other-1\""),
        // The service's own tag is none that clients are told.
        ("if-none-match", bare.as_str()),
        ("if-modified-since", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ("if-modified-since", "Wed, 31 Dec 1969 23:59:59 GMT"),
        ("if-unmodified-since", "Fri, 31 Dec 2100 00:00:00 GMT"),
    ] {
        let asked = [(name, value)];
        let request = Request { path: "/lake/large", headers: &asked, ..Default::default() };
        costs(server, &format!("GetObject, {name}: {value}"), request, one).await;
    }
    let void = [("if-none-match", "\"other-1\""), later[0]];
    costs(server, "GetObject, a time beside a tag", get("/lake/large", &void), one).await;
}

async fn uploads_cost(server: &Server) {
    let post = |path, body| Request { method: "POST", path, body, ..Default::default() };
    let put = |path, body| Request { method: "PUT", path, body, ..Default::default() };
    let begun = costs(server, "CreateMultipartUpload", post("/lake/up?uploads", b""), &[]).await;
    let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap().to_string();
    let path = format!("/lake/up?partNumber=1&uploadId={id}");
    let large = vec![3; 16 * MIB];
    let tag = costs(server, "UploadPart, 16 MiB", put(&path, &large), &["PutBlock"]).await;
    let path = format!("/lake/up?partNumber=2&uploadId={id}");
    let headers =
        [("x-amz-copy-source", "/lake/large"), ("x-amz-copy-source-range", "bytes=0-1048575")];
    let copy = Request { headers: &headers, ..put(&path, b"") };
    let two = &["GetBlobProperties", "PutBlockFromURL"];
    let copied = costs(server, "UploadPartCopy", copy, two).await;
    let copied = copied.split("<ETag>").nth(1).unwrap().split('<').next().unwrap();
    let path = format!("/lake/up?uploadId={id}");
    let list = Request { path: &path, ..Default::default() };
    costs(server, "ListParts", list, &["GetBlockList"]).await;
    let body = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>\
         <Part><PartNumber>2</PartNumber><ETag>{copied}</ETag></Part></CompleteMultipartUpload>"
    );
    let two = &["GetBlockList", "PutBlockList"];
    costs(server, "CompleteMultipartUpload", post(&path, body.as_bytes()), two).await;
    let again = &["GetBlobProperties", "GetBlockList"];
    costs(server, "CompleteMultipartUpload again", post(&path, body.as_bytes()), again).await;
    let begun = server.send(post("/lake/gone?uploads", b"")).await.text();
    let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap();
    let path = format!("/lake/gone?uploadId={id}");
    let abort = Request { method: "DELETE", path: &path, ..Default::default() };
    costs(server, "AbortMultipartUpload", abort, &["PutBlock"]).await;
    assert_eq!(server.get("/lake/gone").await.status, 404, "an abort makes nothing visible");
}

#[tokio::test]
async fn metadata_that_azure_refuses_comes_back() {
    let server = Server::on(Lane::Azure).await;
    let headers = [
        ("x-amz-meta-my-key", "a"),
        ("x-amz-meta-1st.name", "b"),
        ("x-amz-meta-mtime", "1.5"),
        ("cache-control", "no-store"),
        ("expires", "Wed, 21 Oct 2026 07:28:00 GMT"),
    ];
    let request = Request {
        method: "PUT",
        path: "/lake/k",
        headers: &headers,
        body: b"x",
        ..Default::default()
    };
    let put = server.send(request).await;
    assert_eq!(put.status, 200, "{}", put.text());
    let got = server.get("/lake/k").await;
    for (name, value) in headers {
        assert_eq!(got.header(name), value, "{name}");
    }
    assert!(got.header("etag").trim_matches('"').ends_with("-1"), "{}", got.header("etag"));
}

/// What Azure refuses though no condition was sent is never told as one that does not hold.
#[tokio::test]
async fn refusals_that_no_condition_made_have_codes_of_their_own() {
    let server = Server::on(Lane::Azure).await;
    assert_eq!(server.put("/lake/k", b"x").await.status, 200);
    let fake = server.fake.as_ref().unwrap();
    let put = Request { method: "PUT", path: "/lake/k", body: b"y", ..Default::default() };
    let get = Request { path: "/lake/k", ..Default::default() };
    let delete = Request { method: "DELETE", ..get.clone() };
    for (fault, request, status, code) in [
        ("status=409,code=BlobArchived", get, 403, "InvalidObjectState"),
        ("status=412,code=LeaseIdMissing", put.clone(), 409, "OperationAborted"),
        ("status=409,code=BlobImmutableDueToPolicy", put.clone(), 403, "AccessDenied"),
        ("status=409,code=InvalidBlobType", put, 400, "InvalidRequest"),
        ("status=409,code=SnapshotsPresent", delete, 400, "InvalidRequest"),
    ] {
        fake.faults().clear();
        fake.fault(fault);
        let refused = server.send(request).await;
        assert_eq!((refused.status, refused.code().as_str()), (status, code), "{fault}");
    }
}

/// What the gateway ties a copy to is no condition of the client's: 412 would tell it that one of
/// its own did not hold.
#[tokio::test]
async fn a_copy_that_another_write_came_between_conflicts() {
    let server = Server::on(Lane::Azure).await;
    let fake = server.fake.as_ref().unwrap();
    let tags = [("x-amz-tagging", "a=b")];
    let from = |path: &'static str| [("x-amz-copy-source", path), REPLACE];
    const REPLACE: (&str, &str) = ("x-amz-metadata-directive", "REPLACE");
    let put = |path, headers| Request { method: "PUT", path, headers, ..Default::default() };
    // As Azurite: Copy Blob, then its properties, tied to what it made.
    server.put("/lake/k", b"0123").await;
    let (itself, lacks) = (from("lake/k"), "status=501,code=NotImplemented,op=PutBlobFromURL");
    fake.fault(lacks);
    fake.fault("replace,op=SetBlobProperties,times=1");
    let conflict = server.send(put("/lake/k", &itself)).await;
    assert_eq!((conflict.status, conflict.code().as_str()), (409, "OperationAborted"));
    assert_eq!(server.send(put("/lake/k", &itself)).await.status, 200, "again");
    fake.faults().clear();
    // Tags are taken along from the version that had them.
    server.send(Request { body: b"0123", ..put("/lake/tagged", &tags) }).await;
    let itself = from("lake/tagged");
    fake.fault("replace,op=PutBlobFromURL,times=1");
    let conflict = server.send(put("/lake/tagged", &itself)).await;
    assert_eq!((conflict.status, conflict.code().as_str()), (409, "OperationAborted"));
    assert_eq!(server.send(put("/lake/tagged", &itself)).await.status, 200, "again");
    // Its own conditions are told as such.
    let other = ("x-amz-copy-source-if-match", "\"other\"");
    let headers = [from("lake/k")[0], REPLACE, other];
    let refused = server.send(put("/lake/k", &headers)).await;
    assert_eq!((refused.status, refused.code().as_str()), (412, "PreconditionFailed"));
    let absent = ("if-none-match", "*");
    let headers = [from("lake/tagged")[0], REPLACE, absent];
    let refused = server.send(put("/lake/k", &headers)).await;
    assert_eq!((refused.status, refused.code().as_str()), (412, "PreconditionFailed"));
}

/// Accounts with a hierarchical namespace have no tags, and say that of the request's query.
#[tokio::test]
async fn an_account_without_tags_is_told_of_by_name() {
    let server = Server::on(Lane::Azure).await;
    server.put("/lake/k", b"x").await;
    let fake = server.fake.as_ref().unwrap();
    for code in ["InvalidQueryParameterValue", "BlobTagsNotSupportedForAccountType"] {
        fake.faults().clear();
        for op in ["GetBlobTags", "SetBlobTags"] {
            fake.fault(&format!("status=400,code={code},op={op}"));
        }
        for (method, body) in [("GET", ""), ("PUT", "<Tagging><TagSet/></Tagging>")] {
            let (path, body) = ("/lake/k?tagging", body.as_bytes());
            let answer = server.send(Request { method, path, body, ..Default::default() }).await;
            let told = (answer.status, answer.code());
            assert_eq!(told, (501, "NotImplemented".into()), "{method} {code}");
        }
    }
}

/// Of one size, so that Azure tells the two apart by nothing but what the gateway made of them.
#[tokio::test]
async fn a_part_that_was_sent_again_is_completed_as_its_tag_says() {
    let server = Server::on(Lane::Azure).await;
    let old = (b"A".repeat(100), "lZe8jQ==");
    let new = (b"B".repeat(100), "H+akMg==");
    for (key, takes_old) in [("old", true), ("new", false)] {
        let path = format!("/lake/{key}?uploads");
        let crc = ("x-amz-checksum-algorithm", "CRC32");
        let full = ("x-amz-checksum-type", "FULL_OBJECT");
        let headers = [crc, full];
        let begin =
            Request { method: "POST", path: &path, headers: &headers, ..Default::default() };
        let begun = server.send(begin).await.text();
        let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap();
        let path = format!("/lake/{key}?partNumber=1&uploadId={id}");
        let mut tags = Vec::new();
        for (body, sum) in [&old, &new] {
            let headers = [("x-amz-checksum-crc32", *sum)];
            let part = Request {
                method: "PUT",
                path: &path,
                headers: &headers,
                body,
                ..Default::default()
            };
            let sent = server.send(part).await;
            assert_eq!(sent.status, 200, "{}", sent.text());
            tags.push(sent.header("etag").to_string());
        }
        assert_ne!(tags[0], tags[1]);
        let path = format!("/lake/{key}?uploadId={id}");
        let listed = server.get(&path).await.text();
        assert_eq!(listed.matches("<PartNumber>").count(), 1, "{listed}");
        let (tag, (body, sum)) = if takes_old { (&tags[0], &old) } else { (&tags[1], &new) };
        let list = format!(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>\
             </CompleteMultipartUpload>"
        );
        let complete =
            Request { method: "POST", path: &path, body: list.as_bytes(), ..Default::default() };
        let done = server.send(complete).await;
        assert_eq!(done.status, 200, "{}", done.text());
        let asked = [("x-amz-checksum-mode", "ENABLED")];
        let path = format!("/lake/{key}");
        let got = server.send(Request { path: &path, headers: &asked, ..Default::default() }).await;
        assert_eq!(&got.body, body, "the bytes are those that the tag names");
        assert_eq!(got.header("x-amz-checksum-crc32"), *sum, "and so is the checksum");
    }
}

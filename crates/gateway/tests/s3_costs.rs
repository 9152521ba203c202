//! How many requests each operation costs on an S3 back end: one, or what the table says.

use crate::common::costs::{costs, costs_status};
use crate::common::{Lane, Request, Server};

const MIB: usize = 1 << 20;
const GET: &[&str] = &["GetObject"];
const HEAD: &[&str] = &["HeadObject"];
const PUT: &[&str] = &["PutObject"];
const DELETE: &[&str] = &["DeleteObject"];
const LIST: &[&str] = &["ListObjectsV2"];

/// What is done, how, and the requests that it may cost.
type Row<'a> = (&'a str, Request<'a>, &'a [&'a str]);

fn get(path: &str) -> Request<'_> {
    Request { path, ..Default::default() }
}

fn request<'a>(method: &'a str, path: &'a str, body: &'a [u8]) -> Request<'a> {
    Request { method, path, body, ..Default::default() }
}

fn with<'a>(request: Request<'a>, headers: &'a [(&'a str, &'a str)]) -> Request<'a> {
    Request { headers, ..request }
}

/// With `k` of ten bytes and `large` of 20 MiB.
async fn server() -> Server {
    let server = Server::on(Lane::S3).await;
    assert_eq!(server.put("/lake/k", b"0123456789").await.status, 200);
    assert_eq!(server.put("/lake/large", &vec![7; 20 * MIB]).await.status, 200);
    server
}

#[tokio::test]
async fn writes_and_removals_cost_what_the_table_says() {
    let server = server().await;
    let large = vec![7; 20 * MIB];
    let tag = server.get("/lake/k").await.header("etag").to_string();
    let keys: String = (0..1000).map(|key| format!("<Object><Key>{key}</Key></Object>")).collect();
    let batch = format!("<Delete><Quiet>true</Quiet>{keys}</Delete>");
    let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
    let (absent, same) = ([("if-none-match", "*")], [("if-match", tag.as_str())]);
    let dated = [("if-unmodified-since", "Fri, 31 Dec 2100 00:00:00 GMT")];
    let from = ("x-amz-copy-source", "/lake/large");
    let kept = [from];
    let replaced = [from, ("x-amz-metadata-directive", "REPLACE"), ("x-amz-meta-a", "b")];
    let new = [from, absent[0]];
    let of_this = [from, ("x-amz-copy-source-if-none-match", "\"other\"")];
    let copy = || request("PUT", "/lake/copy", b"");
    let tagging = |method| request(method, "/lake/k?tagging", b"");
    let rows: &[Row<'_>] = &[
        ("PutObject, small", request("PUT", "/lake/small", b"x"), PUT),
        ("PutObject, 20 MiB", request("PUT", "/lake/large", &large), PUT),
        ("PutObject, If-None-Match", with(request("PUT", "/lake/new", b"x"), &absent), PUT),
        ("PutObject, If-Match", with(request("PUT", "/lake/k", b"0123456789"), &same), PUT),
        // S3 knows no such condition: the object's head is judged, and its version asked for.
        (
            "PutObject, If-Unmodified-Since",
            with(request("PUT", "/lake/small", b"y"), &dated),
            &["HeadObject", "PutObject"],
        ),
        ("CopyObject", with(copy(), &kept), &["CopyObject"]),
        ("CopyObject, REPLACE", with(copy(), &replaced), &["CopyObject"]),
        // Most services that are not Amazon's pass over a condition on the target.
        (
            "CopyObject, If-None-Match",
            with(request("PUT", "/lake/copy2", b""), &new),
            &["CopyObject", "HeadObject"],
        ),
        ("CopyObject of a version", with(copy(), &of_this), &["CopyObject", "HeadObject"]),
        (
            "PutObjectTagging",
            Request { body: tags.as_bytes(), ..tagging("PUT") },
            &["PutObjectTagging"],
        ),
        ("GetObjectTagging", tagging("GET"), &["GetObjectTagging"]),
        ("DeleteObjectTagging", tagging("DELETE"), &["DeleteObjectTagging"]),
        // Nor on a removal.
        (
            "DeleteObject, If-Match",
            with(request("DELETE", "/lake/k", b""), &same),
            &["DeleteObject", "HeadObject"],
        ),
        ("DeleteObject", request("DELETE", "/lake/new", b""), DELETE),
        ("DeleteObject, absent", request("DELETE", "/lake/none", b""), DELETE),
        ("DeleteObjects", request("POST", "/lake?delete", batch.as_bytes()), &["DeleteObjects"]),
    ];
    for (what, request, expected) in rows {
        costs(&server, what, request.clone(), expected).await;
    }
}

#[tokio::test]
async fn reads_and_lists_cost_what_the_table_says() {
    let server = server().await;
    let tag = server.get("/lake/large").await.header("etag").to_string();
    let (range, suffix) = ([("range", "bytes=65536-131071")], [("range", "bytes=-100")]);
    let (same, other) = ([("if-match", tag.as_str())], [("if-none-match", "\"other\"")]);
    let if_range = [range[0], ("if-range", tag.as_str())];
    let asked = [("x-amz-object-attributes", "ETag,ObjectSize")];
    let head = |path| request("HEAD", path, b"");
    let rows: &[Row<'_>] = &[
        ("GetObject", get("/lake/k"), GET),
        ("GetObject, 20 MiB", get("/lake/large"), GET),
        ("GetObject, range", with(get("/lake/large"), &range), GET),
        ("GetObject, suffix", with(get("/lake/large"), &suffix), GET),
        ("GetObject, If-Match", with(get("/lake/large"), &same), GET),
        ("GetObject, If-None-Match", with(get("/lake/large"), &other), GET),
        ("GetObject, If-Range", with(get("/lake/large"), &if_range), GET),
        // Where a part is, the service tells with the head of it.
        ("GetObject, partNumber", get("/lake/large?partNumber=1"), &["GetObject", "HeadObject"]),
        ("HeadObject", head("/lake/k"), HEAD),
        ("HeadObject, partNumber", head("/lake/k?partNumber=1"), HEAD),
        ("GetObjectAttributes", with(get("/lake/k?attributes"), &asked), HEAD),
        // Where it was asked to be is in its notes.
        ("HeadBucket", head("/lake"), &["GetObject", "HeadBucket"]),
        ("ListObjectsV2", get("/lake?list-type=2&delimiter=%2F"), LIST),
        ("ListObjectsV2, start-after", get("/lake?list-type=2&start-after=k"), LIST),
        ("ListObjects", get("/lake?marker=k"), LIST),
        ("ListObjectVersions", get("/lake?versions"), &["ListObjectVersions"]),
        ("ListMultipartUploads", get("/lake?uploads"), &["ListMultipartUploads"]),
        ("ListBuckets", get("/"), &["ListBuckets"]),
    ];
    for (what, request, expected) in rows {
        costs(&server, what, request.clone(), expected).await;
    }
    let known = [("if-none-match", tag.as_str())];
    let later = [("if-modified-since", "Fri, 31 Dec 2100 00:00:00 GMT")];
    let (wrong, any) = ([("if-match", "\"other\"")], [("if-none-match", "*")]);
    let two: &[&str] = &["GetObject", "HeadObject"];
    for (what, headers, status, expected) in [
        ("not modified", &known, 304, GET),
        ("not modified since", &later, 304, GET),
        // Of any version nothing is sent: its head tells whether there is one.
        ("any known", &any, 304, HEAD),
        // The refusal does not tell which version there is.
        ("If-Match that fails", &wrong, 412, two),
    ] {
        let request = with(get("/lake/large"), headers);
        costs_status(&server, (what, status), request, expected).await;
    }
}

fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let after = text.split(&format!("<{name}>")).nth(1).unwrap();
    after.split('<').next().unwrap()
}

#[tokio::test]
async fn uploads_cost_what_the_table_says() {
    let server = server().await;
    let large = vec![3; 16 * MIB];
    let create = request("POST", "/lake/up?uploads", b"");
    let begun = costs(&server, "CreateMultipartUpload", create, &["CreateMultipartUpload"]).await;
    let id = field(&begun, "UploadId").to_string();
    let part = |number: u32| format!("/lake/up?partNumber={number}&uploadId={id}");
    let (first, second, third) = (part(1), part(2), part(3));
    let sent = request("PUT", &first, &large);
    let tag = costs(&server, "UploadPart, 16 MiB", sent, &["UploadPart"]).await;
    let range =
        [("x-amz-copy-source", "/lake/large"), ("x-amz-copy-source-range", "bytes=0-5242879")];
    // The head tells whether the range is there, and which version is copied.
    let copy = with(request("PUT", &second, b""), &range);
    let copied = costs(&server, "UploadPartCopy", copy, &["HeadObject", "UploadPartCopy"]).await;
    let copied = field(&copied, "ETag").to_string();
    let small = request("PUT", &third, b"x");
    let last = costs(&server, "UploadPart, small", small, &["UploadPart"]).await;
    let path = format!("/lake/up?uploadId={id}");
    // The second asks for the storage class.
    costs(&server, "ListParts", get(&path), &["ListParts"; 2]).await;
    let parts: String = [(1, &tag), (2, &copied), (3, &last)]
        .map(|(number, tag)| {
            format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>")
        })
        .concat();
    let body = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    let complete = || request("POST", &path, body.as_bytes());
    let size = (21 * MIB + 1).to_string();
    let sized = [("x-amz-mp-object-size", size.as_str())];
    let with_size = &["CompleteMultipartUpload", "ListParts"];
    costs(&server, "with its size", with(complete(), &sized), with_size).await;
    let again = &["CompleteMultipartUpload", "HeadObject"];
    costs(&server, "again", complete(), again).await;
    let begun = server.send(request("POST", "/lake/up?uploads", b"")).await.text();
    let path = format!("/lake/up?uploadId={}", field(&begun, "UploadId"));
    let tag = server.put(&path.replace('?', "?partNumber=1&"), b"x").await;
    let part =
        format!("<Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part>", tag.header("etag"));
    let body = format!("<CompleteMultipartUpload>{part}</CompleteMultipartUpload>");
    let complete = request("POST", &path, body.as_bytes());
    costs(&server, "CompleteMultipartUpload", complete, &["CompleteMultipartUpload"]).await;
    let begun = server.send(request("POST", "/lake/gone?uploads", b"")).await.text();
    let path = format!("/lake/gone?uploadId={}", field(&begun, "UploadId"));
    let abort = request("DELETE", &path, b"");
    costs(&server, "AbortMultipartUpload", abort, &["AbortMultipartUpload"]).await;
}

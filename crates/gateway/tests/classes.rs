//! Storage classes: passed to S3, as tiers of Azure, and refused where a back end has none.

use crate::common::{Answer, Dir, Lane, Request, Server, google, options_over};
use penstock_testkit::fake::{FakeOptions, FakeS3};

on_every_lane!(
    standard_is_taken_and_not_told,
    what_a_back_end_does_not_have_is_refused_by_name,
    a_class_is_kept_and_told_everywhere,
    an_upload_ends_in_the_class_that_it_began_with,
    a_copy_is_of_the_class_that_it_is_given,;
    // Nothing is kept there of a bucket: lists are refused.
    but_google:
    another_list_leaves_the_class,
);

const HEADER: &str = "x-amz-storage-class";

/// What is asked for, and what it is told as, where a back end has other classes than STANDARD.
fn classes(lane: Lane) -> &'static [(&'static str, &'static str)] {
    match lane {
        Lane::Local | Lane::Memory => &[],
        Lane::S3 => &[
            ("STANDARD_IA", "STANDARD_IA"),
            ("GLACIER", "GLACIER"),
            ("INTELLIGENT_TIERING", "INTELLIGENT_TIERING"),
        ],
        Lane::Azure => &[
            ("STANDARD_IA", "STANDARD_IA"),
            ("ONEZONE_IA", "STANDARD_IA"),
            ("GLACIER_IR", "GLACIER_IR"),
            ("GLACIER", "DEEP_ARCHIVE"),
            ("DEEP_ARCHIVE", "DEEP_ARCHIVE"),
        ],
        Lane::Google => {
            &[("STANDARD_IA", "STANDARD_IA"), ("GLACIER_IR", "GLACIER_IR"), ("ARCHIVE", "ARCHIVE")]
        }
    }
}

async fn write(server: &Server, method: &str, path: &str, class: &str) -> Answer {
    let headers = [(HEADER, class)];
    server.send(Request { method, path, headers: &headers, body: b"x", ..Default::default() }).await
}

async fn copy(server: &Server, from: &str, to: &str, class: Option<&str>) -> Answer {
    let mut headers = vec![("x-amz-copy-source", from)];
    headers.extend(class.map(|class| (HEADER, class)));
    server.send(Request { method: "PUT", path: to, headers: &headers, ..Default::default() }).await
}

async fn head(server: &Server, path: &str) -> Answer {
    server.send(Request { method: "HEAD", path, ..Default::default() }).await
}

fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let after = text.split_once(&format!("<{name}>")).map_or("", |(_, rest)| rest);
    after.split_once("</").map_or("", |(value, _)| value)
}

/// Every answer that tells an object's class tells this one.
async fn assert_told(server: &Server, key: &str, class: &str) {
    let path = format!("/lake/{key}");
    let header = if class == "STANDARD" { "" } else { class };
    let answer = head(server, &path).await;
    assert_eq!((answer.status, answer.header(HEADER)), (200, header), "HEAD {key}");
    assert_eq!(server.get(&path).await.header(HEADER), header, "GET {key}");
    for list in ["list-type=2", "max-keys=5", "versions"] {
        let text = server.get(&format!("/lake?{list}&prefix={key}")).await.text();
        assert_eq!(field(&text, "StorageClass"), class, "{list}: {text}");
    }
    let headers = [("x-amz-object-attributes", "StorageClass")];
    let path = format!("{path}?attributes");
    let told = server.send(Request { path: &path, headers: &headers, ..Default::default() }).await;
    assert_eq!(field(&told.text(), "StorageClass"), class, "attributes of {key}");
}

async fn standard_is_taken_and_not_told(lane: Lane) {
    let server = Server::on(lane).await;
    assert_eq!(write(&server, "PUT", "/lake/k", "STANDARD").await.status, 200);
    assert_told(&server, "k", "STANDARD").await;
    assert_eq!(copy(&server, "lake/k", "/lake/c", Some("STANDARD")).await.status, 200);
    assert_told(&server, "c", "STANDARD").await;
    assert_eq!(write(&server, "POST", "/lake/m?uploads", "STANDARD").await.status, 200);
}

async fn what_a_back_end_does_not_have_is_refused_by_name(lane: Lane) {
    let server = Server::on(lane).await;
    server.put("/lake/k", b"x").await;
    let mut unknown = vec!["COLDER_THAN_ICE", "standard"];
    unknown.extend(if classes(lane).is_empty() { Some("GLACIER") } else { None });
    for class in unknown {
        for answer in [
            write(&server, "PUT", "/lake/n", class).await,
            write(&server, "POST", "/lake/n?uploads", class).await,
            copy(&server, "lake/k", "/lake/n", Some(class)).await,
        ] {
            let told = (answer.status, answer.code());
            assert_eq!(told, (400, "InvalidStorageClass".to_string()), "{class}");
        }
    }
    assert_eq!(head(&server, "/lake/n").await.status, 404);
}

async fn a_class_is_kept_and_told_everywhere(lane: Lane) {
    let server = Server::on(lane).await;
    for (asked, told) in classes(lane) {
        let put = write(&server, "PUT", "/lake/k", asked).await;
        assert_eq!(put.status, 200, "{asked}: {}", put.text());
        assert_told(&server, "k", told).await;
    }
    server.put("/lake/k", b"x").await;
    assert_told(&server, "k", "STANDARD").await;
}

async fn an_upload_ends_in_the_class_that_it_began_with(lane: Lane) {
    let server = Server::on(lane).await;
    for (asked, told) in classes(lane) {
        // Azure's list tells of uploads to new keys only.
        let key = format!("up-{asked}");
        let begun = write(&server, "POST", &format!("/lake/{key}?uploads"), asked).await.text();
        let id = field(&begun, "UploadId");
        let path = format!("/lake/{key}?partNumber=1&uploadId={id}");
        let part = server.put(&path, b"part").await;
        let uploads = server.get("/lake?uploads").await.text();
        assert_eq!(field(&uploads, "StorageClass"), *asked, "{uploads}");
        // Azure's list tells another name of the same upload.
        for id in [&id, &field(&uploads, "UploadId")] {
            let parts = server.get(&format!("/lake/{key}?uploadId={id}")).await.text();
            assert_eq!(field(&parts, "StorageClass"), *asked, "ListParts: {parts}");
        }
        let body = format!(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part>\
             </CompleteMultipartUpload>",
            part.header("etag")
        );
        let path = format!("/lake/{key}?uploadId={id}");
        let end =
            Request { method: "POST", path: &path, body: body.as_bytes(), ..Default::default() };
        let done = server.send(end).await;
        assert_eq!(done.status, 200, "{}", done.text());
        assert_told(&server, &key, told).await;
    }
}

async fn a_copy_is_of_the_class_that_it_is_given(lane: Lane) {
    let server = Server::on(lane).await;
    let mut told_before = "STANDARD";
    server.put("/lake/k", b"x").await;
    for (asked, told) in classes(lane) {
        // Another class is a change, so an object may be copied to itself for it.
        let itself = copy(&server, "lake/k", "/lake/k", Some(asked)).await;
        assert_eq!(itself.status, 200, "{asked} over {told_before}: {}", itself.text());
        assert_told(&server, "k", told).await;
        let plain = copy(&server, "lake/k", "/lake/plain", None).await;
        assert_eq!(plain.status, 200, "{}", plain.text());
        assert_told(&server, "plain", "STANDARD").await;
        told_before = told;
    }
    let itself = copy(&server, "lake/k", "/lake/k", None).await;
    assert_eq!((itself.status, itself.code()), (400, "InvalidRequest".to_string()));
}

async fn another_list_leaves_the_class(lane: Lane) {
    let server = Server::on_with(lane, |options| options.serve.acl = "public".to_string()).await;
    for (asked, told) in classes(lane) {
        write(&server, "PUT", "/lake/k", asked).await;
        for list in ["public-read", "private"] {
            let headers = [("x-amz-acl", list)];
            let path = "/lake/k?acl";
            let set = Request { method: "PUT", path, headers: &headers, ..Default::default() };
            let set = server.send(set).await;
            assert_eq!(set.status, 200, "{list}: {}", set.text());
            assert_told(&server, "k", told).await;
        }
    }
}

/// Each of Google's has one name: what was written is what is told.
#[tokio::test]
async fn googles_have_names_of_s3_where_they_are_alike() {
    let fake = FakeS3::start(FakeOptions::google()).unwrap();
    let server = Server::start_with(Dir::new(), options_over(google(&fake))).await;
    for class in ["STANDARD", "STANDARD_IA", "GLACIER_IR", "ARCHIVE"] {
        assert_eq!(write(&server, "PUT", "/lake/k", class).await.status, 200, "{class}");
        assert_told(&server, "k", class).await;
        let begun = write(&server, "POST", "/lake/up?uploads", class).await.text();
        let id = field(&begun, "UploadId");
        let parts = server.get(&format!("/lake/up?uploadId={id}")).await.text();
        assert_eq!(field(&parts, "StorageClass"), class, "{parts}");
        let copied = copy(&server, "lake/k", "/lake/copy", Some(class)).await;
        assert_eq!(copied.status, 200, "{}", copied.text());
        assert_told(&server, "copy", class).await;
    }
    for class in ["NEARLINE", "COLDLINE", "GLACIER", "DEEP_ARCHIVE", "ONEZONE_IA"] {
        let refused = write(&server, "PUT", "/lake/k", class).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "InvalidStorageClass"));
    }
    assert_told(&server, "k", "ARCHIVE").await;
}

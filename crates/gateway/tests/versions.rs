//! Versions of objects: kept by a directory, passed through to and from S3, refused by name
//! elsewhere.

use crate::common::{Answer, Dir, Lane, Request, Server, options, options_over, s3};

const ENABLED: &[u8] =
    b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
const SUSPENDED: &[u8] =
    b"<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>";

async fn set_versioning(server: &Server, body: &[u8]) -> Answer {
    let path = "/lake?versioning";
    server.send(Request { method: "PUT", path, body, ..Default::default() }).await
}

async fn delete(server: &Server, path: &str) -> Answer {
    server.send(Request { method: "DELETE", path, ..Default::default() }).await
}

fn id(answer: &Answer) -> String {
    answer.header("x-amz-version-id").to_string()
}

/// The tests of those that keep versions.
macro_rules! on_lanes_with_versions {
    ($($name:ident),* $(,)?) => {
        on_lane!(local, Local: $($name),*);
        on_lane!(s3, S3: $($name),*);
    };
}

on_lanes_with_versions!(
    versions_are_kept,
    a_delete_marker_hides_what_is_kept,
    suspended_versions_replace_the_one_called_null,
    versions_are_tagged_copied_and_folded,
    every_write_tells_its_version,
    copies_name_and_tell_the_version_of_their_source,
    a_batch_removes_versions_and_makes_markers,
    pages_of_versions_join_to_the_whole,
    a_bucket_is_emptied_page_by_page,
);

async fn post(server: &Server, path: &str, body: &str) -> Answer {
    let body = body.as_bytes();
    server.send(Request { method: "POST", path, body, ..Default::default() }).await
}

async fn copy(server: &Server, source: &str, path: &str) -> Answer {
    let headers = [("x-amz-copy-source", source)];
    server.send(Request { method: "PUT", path, headers: &headers, ..Default::default() }).await
}

/// The text of an element.
fn field(part: &str, name: &str) -> String {
    let after = part.split(&format!("<{name}>")).nth(1).unwrap_or_default();
    after.split("</").next().unwrap_or_default().to_string()
}

/// Another replica over the same back end.
async fn another(server: &Server) -> Server {
    let options = match &server.fake {
        Some(fake) => options_over(s3(fake)),
        None => options(&server.dir),
    };
    Server::start_with(Dir::new(), options).await
}

/// Key, id, and whether it is the latest: those of versions, then those of delete markers.
async fn listed(server: &Server, query: &str) -> Vec<(String, String, bool)> {
    let text = server.get(&format!("/lake?versions{query}")).await.text();
    let parts = text.split("<Version>").skip(1).chain(text.split("<DeleteMarker>").skip(1));
    let entry = |part: &str| {
        (field(part, "Key"), field(part, "VersionId"), field(part, "IsLatest") == "true")
    };
    parts.map(entry).collect()
}

async fn versions_are_kept(lane: Lane) {
    let server = Server::on(lane).await;
    assert!(!server.get("/lake?versioning").await.text().contains("<Status>"));
    let plain = server.put("/lake/k", b"plain").await;
    assert_eq!(id(&plain), "", "no versions were asked for");
    assert_eq!(set_versioning(&server, ENABLED).await.status, 200);
    assert!(server.get("/lake?versioning").await.text().contains("<Status>Enabled</Status>"));
    let first = id(&server.put("/lake/k", b"first").await);
    let second = id(&server.put("/lake/k", b"second").await);
    assert!(!first.is_empty() && first != second);
    let got = server.get("/lake/k").await;
    assert_eq!((got.body.as_slice(), id(&got)), (&b"second"[..], second.clone()));
    for (version, body) in [("null", &b"plain"[..]), (&first, b"first"), (&second, b"second")] {
        let got = server.get(&format!("/lake/k?versionId={version}")).await;
        assert_eq!((got.body.as_slice(), id(&got).as_str()), (body, version));
    }
    let entry = |id: &str, is_latest| ("k".to_string(), id.to_string(), is_latest);
    let all = [entry(&second, true), entry(&first, false), entry("null", false)];
    assert_eq!(listed(&server, "").await, all);
    assert_eq!(listed(&server, "&max-keys=1").await, all[..1]);
    let next = format!("&key-marker=k&version-id-marker={second}");
    assert_eq!(listed(&server, &next).await, all[1..]);
    let other = another(&server).await;
    assert_eq!(listed(&other, "").await, all);
    let gone = delete(&other, &format!("/lake/k?versionId={second}")).await;
    assert_eq!((gone.status, id(&gone)), (204, second));
    assert_eq!(server.get("/lake/k").await.body, b"first", "the one before is current again");
    assert_eq!(delete(&server, "/lake").await.code(), "BucketNotEmpty");
}

async fn a_delete_marker_hides_what_is_kept(lane: Lane) {
    let server = Server::on(lane).await;
    set_versioning(&server, ENABLED).await;
    let first = id(&server.put("/lake/dir/k", b"first").await);
    let marked = delete(&server, "/lake/dir/k").await;
    assert_eq!((marked.status, marked.header("x-amz-delete-marker")), (204, "true"));
    let hidden = server.get("/lake/dir/k").await;
    assert_eq!((hidden.status, hidden.code().as_str()), (404, "NoSuchKey"));
    assert_eq!(hidden.header("x-amz-delete-marker"), "true");
    assert_eq!(id(&hidden), id(&marked));
    let head = |path| Request { method: "HEAD", path, ..Default::default() };
    let headed = server.send(head("/lake/dir/k")).await;
    assert_eq!((headed.status, headed.header("x-amz-delete-marker")), (404, "true"));
    assert_eq!(id(&headed), id(&marked));
    let marker = format!("/lake/dir/k?versionId={}", id(&marked));
    let of_marker = server.get(&marker).await;
    assert_eq!((of_marker.status, of_marker.code().as_str()), (405, "MethodNotAllowed"));
    for of_marker in [of_marker, server.send(head(&marker)).await] {
        assert_eq!((of_marker.status, of_marker.header("x-amz-delete-marker")), (405, "true"));
        assert_eq!(id(&of_marker), id(&marked));
    }
    // A condition on size or time holds for no marker.
    let sized = [("x-amz-if-match-size", "5")];
    let sized = Request { method: "DELETE", headers: &sized, ..head("/lake/dir/k") };
    assert_eq!(server.send(sized).await.status, 412);
    assert!(!server.get("/lake?list-type=2").await.text().contains("<Key>"));
    assert_eq!(server.get(&format!("/lake/dir/k?versionId={first}")).await.body, b"first");
    assert_eq!(delete(&server, "/lake").await.code(), "BucketNotEmpty");
    let unmarked = delete(&server, &format!("/lake/dir/k?versionId={}", id(&marked))).await;
    assert_eq!((unmarked.status, unmarked.header("x-amz-delete-marker")), (204, "true"));
    assert_eq!(server.get("/lake/dir/k").await.body, b"first");
    let path = format!("/lake/dir/k?versionId={first}");
    assert_eq!(delete(&server, &path).await.status, 204);
    assert_eq!(delete(&server, &path).await.status, 204, "what is not there is no error");
    assert_eq!(listed(&server, "").await, []);
    let missing = server.get(&path).await;
    assert_eq!((missing.status, missing.code().as_str()), (404, "NoSuchVersion"));
    assert_eq!(delete(&server, "/lake").await.status, 204);
}

async fn suspended_versions_replace_the_one_called_null(lane: Lane) {
    let server = Server::on(lane).await;
    set_versioning(&server, ENABLED).await;
    let first = id(&server.put("/lake/k", b"first").await);
    set_versioning(&server, SUSPENDED).await;
    for body in [&b"one"[..], b"two"] {
        // S3 tells the version `null`, a directory none.
        for told in [server.put("/lake/k", body).await, server.get("/lake/k").await] {
            let told = id(&told);
            assert_eq!(told, if lane == Lane::S3 { "null" } else { "" });
        }
    }
    let entry = |id: &str, is_latest| ("k".to_string(), id.to_string(), is_latest);
    assert_eq!(listed(&server, "").await, [entry("null", true), entry(&first, false)]);
    assert_eq!(id(&delete(&server, "/lake/k").await), "null");
    assert_eq!(server.get("/lake/k").await.status, 404);
    assert_eq!(listed(&server, "").await, [entry(&first, false), entry("null", true)]);
    delete(&server, "/lake/k?versionId=null").await;
    assert_eq!(server.get("/lake/k").await.body, b"first");
}

async fn versions_are_tagged_copied_and_folded(lane: Lane) {
    let server = Server::on(lane).await;
    set_versioning(&server, ENABLED).await;
    let first = id(&server.put("/lake/d/k", b"first").await);
    server.put("/lake/d/k", b"second").await;
    server.put("/lake/z", b"z").await;
    let path = format!("/lake/d/k?tagging&versionId={first}");
    let body = b"<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>";
    let tagged = Request { method: "PUT", path: &path, body, ..Default::default() };
    assert_eq!(server.send(tagged).await.status, 200);
    assert!(server.get(&path).await.text().contains("<Key>a</Key>"));
    assert!(!server.get("/lake/d/k?tagging").await.text().contains("<Key>a</Key>"));
    let source = format!("/lake/d/k?versionId={first}");
    let headers = [("x-amz-copy-source", source.as_str())];
    let copy = Request { method: "PUT", path: "/lake/c", headers: &headers, ..Default::default() };
    let copied = server.send(copy).await;
    assert_eq!(copied.header("x-amz-copy-source-version-id"), first);
    assert_eq!(server.get("/lake/c").await.body, b"first");
    let folded = server.get("/lake?versions&delimiter=%2F&max-keys=2").await.text();
    assert!(folded.contains("<CommonPrefixes><Prefix>d/</Prefix>"), "{folded}");
    let keys: Vec<_> = listed(&server, "&delimiter=%2F").await.into_iter().map(|it| it.0).collect();
    assert_eq!(keys, ["c", "z"]);
    let untagged = delete(&server, &path).await;
    assert_eq!((untagged.status, id(&untagged)), (204, first));
    assert!(!server.get(&path).await.text().contains("<Key>a</Key>"));
}

async fn upload(server: &Server, path: &str) -> String {
    field(&post(server, &format!("{path}?uploads"), "").await.text(), "UploadId")
}

/// Completes an upload of one part, which has this tag.
async fn complete(server: &Server, path: &str, upload: &str, tag: &str) -> Answer {
    let list = format!("<Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>");
    let list = format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>");
    post(server, &format!("{path}?uploadId={upload}"), &list).await
}

async fn every_write_tells_its_version(lane: Lane) {
    let server = Server::on(lane).await;
    set_versioning(&server, ENABLED).await;
    // One that the gateway takes whole, and one that flows.
    let small = id(&server.put("/lake/k", b"small").await);
    let large = id(&server.put("/lake/k", &[7; 200 << 10]).await);
    server.put("/lake/other", b"other").await;
    let copied = id(&copy(&server, "lake/other", "/lake/k").await);
    let begun = upload(&server, "/lake/k").await;
    let sent = server.put(&format!("/lake/k?partNumber=1&uploadId={begun}"), b"part").await;
    let done = complete(&server, "/lake/k", &begun, sent.header("etag")).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let uploaded = id(&done);
    let ids = [&uploaded, &copied, &large, &small];
    let entry = |(at, id): (usize, &&String)| ("k".to_string(), id.to_string(), at == 0);
    let wanted: Vec<_> = ids.iter().enumerate().map(entry).collect();
    assert_eq!(listed(&server, "&prefix=k").await, wanted);
    let bodies = [&b"part"[..], b"other", &[7; 200 << 10], b"small"];
    for (version, body) in ids.into_iter().zip(bodies) {
        let path = format!("/lake/k?versionId={version}");
        let got = server.get(&path).await;
        assert!(got.body == body, "{version}: other bytes");
        let headed = Request { method: "HEAD", path: &path, ..Default::default() };
        assert_eq!((id(&got), id(&server.send(headed).await)), (version.clone(), version.clone()));
        let ranged =
            Request { path: &path, headers: &[("range", "bytes=1-2")], ..Default::default() };
        let ranged = server.send(ranged).await;
        assert_eq!((ranged.status, ranged.body.as_slice()), (206, &body[1..3]));
        let part = server.get(&format!("{path}&partNumber=1")).await;
        assert_eq!((part.status, part.body.len()), (206, body.len()));
        let asked = [("x-amz-object-attributes", "ObjectSize")];
        let path = format!("/lake/k?attributes&versionId={version}");
        let told =
            server.send(Request { path: &path, headers: &asked, ..Default::default() }).await;
        assert_eq!(
            (field(&told.text(), "ObjectSize"), id(&told)),
            (body.len().to_string(), version.clone())
        );
    }
}

async fn copies_name_and_tell_the_version_of_their_source(lane: Lane) {
    const SOURCE: &str = "x-amz-copy-source-version-id";
    let server = Server::on(lane).await;
    set_versioning(&server, ENABLED).await;
    let first = id(&server.put("/lake/k", b"0123456789").await);
    let second = id(&server.put("/lake/k", b"second").await);
    let latest = copy(&server, "lake/k", "/lake/c").await;
    assert_eq!((latest.status, latest.header(SOURCE)), (200, second.as_str()));
    // A version that is not the latest any more is brought back by a copy to its own name.
    let back = copy(&server, &format!("lake/k?versionId={first}"), "/lake/k").await;
    assert_eq!((back.status, back.header(SOURCE)), (200, first.as_str()), "{}", back.text());
    assert!(![&first, &second].contains(&&id(&back)), "another version");
    assert_eq!(server.get("/lake/k").await.body, b"0123456789");
    let begun = upload(&server, "/lake/up").await;
    let source = format!("lake/k?versionId={first}");
    let headers = [("x-amz-copy-source", &*source), ("x-amz-copy-source-range", "bytes=2-5")];
    let path = format!("/lake/up?partNumber=1&uploadId={begun}");
    let part = Request { method: "PUT", path: &path, headers: &headers, ..Default::default() };
    let part = server.send(part).await;
    assert_eq!((part.status, part.header(SOURCE)), (200, first.as_str()), "{}", part.text());
    let tag = field(&part.text(), "ETag").replace("&quot;", "\"");
    let done = complete(&server, "/lake/up", &begun, &tag).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(server.get("/lake/up").await.body, b"2345");
    let marker = id(&delete(&server, "/lake/k").await);
    let hidden = copy(&server, "lake/k", "/lake/c").await;
    assert_eq!((hidden.status, hidden.code().as_str()), (404, "NoSuchKey"));
    let named = copy(&server, &format!("lake/k?versionId={marker}"), "/lake/c").await;
    assert_eq!((named.status, named.code().as_str()), (400, "InvalidRequest"));
    assert_eq!(server.get("/lake/c").await.body, b"second");
}

async fn a_batch_removes_versions_and_makes_markers(lane: Lane) {
    let server = Server::on(lane).await;
    server.put("/lake/plain", b"plain").await;
    let body = "<Delete><Object><Key>plain</Key></Object><Object><Key>none</Key></Object></Delete>";
    let told = post(&server, "/lake?delete", body).await.text();
    assert_eq!(told.matches("<Deleted>").count(), 2, "{told}");
    assert!(!told.contains("DeleteMarker"), "nobody asked for versions: {told}");
    set_versioning(&server, ENABLED).await;
    let first = id(&server.put("/lake/a", b"first").await);
    server.put("/lake/a", b"second").await;
    server.put("/lake/b", b"b").await;
    let marker = id(&delete(&server, "/lake/c").await);
    let body = format!(
        "<Delete><Object><Key>a</Key><VersionId>{first}</VersionId></Object>\
         <Object><Key>b</Key></Object><Object><Key>d</Key></Object>\
         <Object><Key>c</Key><VersionId>{marker}</VersionId></Object></Delete>"
    );
    let before = server.fake.as_ref().map(|fake| fake.stats().requests);
    let told = post(&server, "/lake?delete", &body).await.text();
    let after = server.fake.as_ref().map(|fake| fake.stats().requests);
    assert_eq!(after, before.map(|before| before + 1), "one request to S3 for the whole batch");
    let told = |key: &str| {
        let parts = told.split("<Deleted>").skip(1);
        let of_key: Vec<_> = parts.filter(|part| field(part, "Key") == key).collect();
        assert_eq!(of_key.len(), 1, "{told}");
        ["VersionId", "DeleteMarker", "DeleteMarkerVersionId"].map(|name| field(of_key[0], name))
    };
    assert_eq!(told("a"), [first.as_str(), "", ""]);
    assert_eq!(told("c"), [marker.as_str(), "true", marker.as_str()]);
    let made = ["b", "d"].map(|key| {
        let [version, is_marker, made] = told(key);
        assert_eq!((version.as_str(), is_marker.as_str()), ("", "true"), "{key}");
        made
    });
    let left: Vec<_> = listed(&server, "").await.into_iter().filter(|it| it.2).collect();
    let entry = |key: &str, id: &str| (key.to_string(), id.to_string(), true);
    assert_eq!(left[1..], [entry("b", &made[0]), entry("d", &made[1])]);
    assert_eq!(server.get("/lake/a").await.body, b"second");
}

/// The entries of all pages, with the ids of markers and the folded names among them.
async fn walked(server: &Server, query: &str, most: usize) -> Vec<(String, String)> {
    let (mut found, mut next) = (Vec::new(), String::new());
    for _ in 0..100 {
        let path = format!("/lake?versions&max-keys={most}{query}{next}");
        let text = server.get(&path).await.text();
        let mut page = Vec::new();
        for kind in ["Version", "DeleteMarker", "CommonPrefixes"] {
            let (begin, end) = (format!("<{kind}>"), format!("</{kind}>"));
            let parts = text.split(&begin).skip(1);
            let parts = parts.filter_map(|part| part.split(&end).next());
            page.extend(parts.map(|part| {
                let name = if kind == "CommonPrefixes" { "Prefix" } else { "Key" };
                (field(part, name), field(part, "VersionId"))
            }));
        }
        assert!(page.len() <= most, "{text}");
        found.extend(page);
        if field(&text, "IsTruncated") != "true" {
            found.sort();
            return found;
        }
        let key = field(&text, "NextKeyMarker").replace("&amp;", "&");
        next = format!("&key-marker={}", percent(&key));
        let version = field(&text, "NextVersionIdMarker");
        if !version.is_empty() {
            next += &format!("&version-id-marker={version}");
        }
    }
    panic!("a list without an end: {next}");
}

/// As a client writes a value of a query.
fn percent(text: &str) -> String {
    let kept = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let written = |byte: u8| match kept(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(written).collect()
}

async fn pages_of_versions_join_to_the_whole(lane: Lane) {
    let server = Server::on(lane).await;
    for key in ["a", "d/1"] {
        server.put(&format!("/lake/{key}"), b"before").await;
    }
    set_versioning(&server, ENABLED).await;
    for key in ["a", "a%20b%2B%26", "d/1", "d/2", "d/2", "e/1", "%C3%BC", "a", "z"] {
        assert_eq!(server.put(&format!("/lake/{key}"), b"x").await.status, 200);
    }
    for key in ["a", "d/1", "z", "z", "only-a-marker"] {
        delete(&server, &format!("/lake/{key}")).await;
    }
    let all = walked(&server, "", 1000).await;
    assert_eq!(all.len(), 16);
    assert!(all.iter().any(|(key, _)| key == "a b+&amp;") && all.iter().any(|it| it.0 == "ü"));
    let folded = walked(&server, "&delimiter=%2F", 1000).await;
    assert_eq!(folded.iter().filter(|it| it.1.is_empty()).count(), 2, "{folded:?}");
    let below = walked(&server, "&prefix=d%2F", 1000).await;
    assert_eq!(below.len(), 5);
    for most in [1, 2, 3, 7] {
        assert_eq!(walked(&server, "", most).await, all, "{most}");
        assert_eq!(walked(&server, "&delimiter=%2F", most).await, folded, "{most}");
        assert_eq!(walked(&server, "&prefix=d%2F", most).await, below, "{most}");
    }
    let unmarked = server.get("/lake?versions&version-id-marker=null").await;
    assert_eq!((unmarked.status, unmarked.code().as_str()), (400, "InvalidArgument"));
}

/// As boto3's `object_versions.delete()` does: what a page's marker names is gone by the next.
async fn a_bucket_is_emptied_page_by_page(lane: Lane) {
    let server = Server::on(lane).await;
    server.put("/lake/k", b"before").await;
    set_versioning(&server, ENABLED).await;
    for _ in 0..5 {
        server.put("/lake/k", b"x").await;
        server.put("/lake/l", b"x").await;
        delete(&server, "/lake/l").await;
    }
    let (mut next, mut pages) = (String::new(), 0);
    loop {
        let text = server.get(&format!("/lake?versions&max-keys=3{next}")).await.text();
        let parts = text.split("<Version>").skip(1).chain(text.split("<DeleteMarker>").skip(1));
        let objects: String = parts
            .map(|part| {
                let (key, version) = (field(part, "Key"), field(part, "VersionId"));
                format!("<Object><Key>{key}</Key><VersionId>{version}</VersionId></Object>")
            })
            .collect();
        let body = format!("<Delete><Quiet>true</Quiet>{objects}</Delete>");
        let done = post(&server, "/lake?delete", &body).await;
        assert!(done.status == 200 && !done.text().contains("<Error>"), "{}", done.text());
        pages += 1;
        if field(&text, "IsTruncated") != "true" {
            break;
        }
        let [key, version] =
            ["NextKeyMarker", "NextVersionIdMarker"].map(|name| field(&text, name));
        next = format!("&key-marker={key}&version-id-marker={version}");
    }
    assert_eq!(pages, 6, "six versions of k, ten of l");
    assert_eq!(listed(&server, "").await, []);
    assert_eq!(delete(&server, "/lake").await.status, 204);
}

on_lane!(memory, Memory: versions_are_refused_by_name);
on_lane!(azure, Azure: versions_are_refused_by_name);

async fn versions_are_refused_by_name(lane: Lane) {
    let server = Server::on(lane).await;
    let refused = set_versioning(&server, ENABLED).await;
    assert_eq!((refused.status, refused.code().as_str()), (501, "NotImplemented"));
    assert!(refused.text().contains("PutBucketVersioning"), "{}", refused.text());
    server.put("/lake/k", b"x").await;
    assert_eq!(server.get("/lake/k?versionId=abc").await.code(), "NoSuchVersion");
    assert_eq!(server.get("/lake/k?versionId=null").await.body, b"x");
}

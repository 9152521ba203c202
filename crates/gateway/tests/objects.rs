//! What is kept and judged of objects beyond their bytes: tags, conditions of writes and removals,
//! attributes of parts.

use crate::common::{Answer, Lane, Request, Server};

on_every_lane!(
    copies_are_judged_by_tag_and_time_of_their_source,
    empty_words_of_a_listing_are_none,
    a_prefix_whose_names_all_came_before_is_not_told,
    metadata_that_is_no_ascii_comes_back,
    an_expires_that_is_no_date_comes_back,
    a_carriage_return_in_a_key_survives_xml,;
    // It has no tags, and ties no write or removal to a version.
    but_google:
    tags_are_kept,
    tags_that_a_back_end_cannot_keep_are_refused_at_once,
    copies_take_along_what_they_are_told,
    writes_are_judged_by_any_tag,
    a_condition_that_names_nothing_changes_nothing,
    removals_are_judged_by_size_and_time,
    writes_and_removals_are_judged_by_the_time_of_the_last_change,
);

async fn an_expires_that_is_no_date_comes_back(lane: Lane) {
    let server = Server::on(lane).await;
    let path = "/lake/k";
    for expires in ["0", "Thu, 01 Dec 1994 16:00:00 GMT", "never", "-1"] {
        let headers = [("expires", expires)];
        let put = Request { method: "PUT", path, headers: &headers, ..Default::default() };
        assert_eq!(server.send(put).await.status, 200, "{expires}");
        for method in ["GET", "HEAD"] {
            let told = server.send(Request { method, path, ..Default::default() }).await;
            assert_eq!(told.header("expires"), expires, "{method}");
        }
    }
    let headers = [("x-amz-copy-source", path)];
    let copy =
        Request { method: "PUT", path: "/lake/copy", headers: &headers, ..Default::default() };
    assert_eq!(server.send(copy).await.status, 200);
    assert_eq!(server.get("/lake/copy").await.header("expires"), "-1");
}

async fn a_carriage_return_in_a_key_survives_xml(lane: Lane) {
    let server = Server::on(lane).await;
    let body = b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\r\n<a/>";
    server.put("/lake/a%0Db", body).await;
    assert_eq!(server.get("/lake/a%0Db").await.body, body, "an object is no answer");
    let list = server.get("/lake?list-type=2").await.text();
    assert!(list.contains("<Key>a&#xD;b</Key>"), "{list}");
    let delete = Request {
        method: "POST",
        path: "/lake?delete",
        body: b"<Delete><Object><Key>a&#xD;b</Key></Object></Delete>",
        ..Default::default()
    };
    let deleted = server.send(delete).await.text();
    assert!(deleted.contains("<Deleted><Key>a&#xD;b</Key>"), "{deleted}");
    assert_eq!(server.get("/lake/a%0Db").await.status, 404);
}

async fn tags_are_kept(lane: Lane) {
    let server = Server::on(lane).await;
    let headers = [("x-amz-tagging", "team=a%2Fb&empty")];
    let put = Request {
        method: "PUT",
        path: "/lake/k",
        headers: &headers,
        body: b"x",
        ..Default::default()
    };
    let put = server.send(put).await;
    assert_eq!(put.status, 200, "{}", put.text());
    let tags = server.get("/lake/k?tagging").await.text();
    assert!(tags.contains("<Key>team</Key><Value>a/b</Value>"), "{tags}");
    assert_eq!(server.get("/lake/k").await.header("x-amz-tagging-count"), "2");
    let head = Request { method: "HEAD", path: "/lake/k", ..Default::default() };
    assert_eq!(server.send(head.clone()).await.header("x-amz-tagging-count"), "2");
    let set = |body| Request { method: "PUT", path: "/lake/k?tagging", body, ..Default::default() };
    let body = b"<Tagging><TagSet><Tag><Key>new</Key><Value>1</Value></Tag></TagSet></Tagging>";
    assert_eq!(server.send(set(body)).await.status, 200);
    let tags = server.get("/lake/k?tagging").await;
    assert!(tags.text().contains("<Key>new</Key><Value>1</Value>"), "{}", tags.text());
    assert!(!tags.text().contains("team"), "{}", tags.text());
    assert_eq!(
        server.get("/lake/k").await.header("etag"),
        put.header("etag"),
        "tags change no tag"
    );
    let twice = b"<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag><Tag><Key>a</Key>\
        <Value>2</Value></Tag></TagSet></Tagging>";
    assert_eq!(server.send(set(twice)).await.code(), "InvalidTag");
    let delete = Request { method: "DELETE", path: "/lake/k?tagging", ..Default::default() };
    assert_eq!(server.send(delete).await.status, 204);
    assert!(!server.get("/lake/k?tagging").await.text().contains("<Tag>"));
    assert_eq!(server.send(head).await.header("x-amz-tagging-count"), "");
    let many: Vec<String> = (0..11).map(|number| format!("t{number}=1")).collect();
    let many = many.join("&");
    let headers = [("x-amz-tagging", many.as_str())];
    let put = Request { method: "PUT", path: "/lake/n", headers: &headers, ..Default::default() };
    assert_eq!(server.send(put).await.code(), "InvalidTag");
    assert_eq!(server.get("/lake/missing?tagging").await.code(), "NoSuchKey");
}

/// Azure keeps fewer characters than S3; the others keep what S3 does.
async fn tags_that_a_back_end_cannot_keep_are_refused_at_once(lane: Lane) {
    let server = Server::on(lane).await;
    assert_eq!(server.put("/lake/k", b"x").await.status, 200);
    let set = "<Tagging><TagSet><Tag><Key>who</Key><Value>gr\u{f6}\u{df}e</Value></Tag></TagSet>\
               </Tagging>";
    let asked = server.fake.as_ref().map(|fake| fake.requests().len());
    for (method, path, tags, char, body) in [
        ("PUT", "/lake/put", "who=me%40home", '@', "x"),
        ("PUT", "/lake/put", "a%40=1", '@', "x"),
        ("POST", "/lake/upload?uploads", "who=me%40home", '@', ""),
        ("PUT", "/lake/k?tagging", "", '\u{f6}', set),
    ] {
        let headers = [("x-amz-tagging", tags)];
        let headers = if tags.is_empty() { &[][..] } else { &headers[..] };
        let body = body.as_bytes();
        let answer =
            server.send(Request { method, path, headers, body, ..Default::default() }).await;
        if lane != Lane::Azure {
            assert_eq!(answer.status, 200, "{path} {tags}: {}", answer.text());
            continue;
        }
        assert_eq!((answer.status, answer.code().as_str()), (400, "InvalidTag"), "{path} {tags}");
        assert!(answer.text().contains(&format!("has &apos;{char}&apos;")), "{}", answer.text());
        let now = server.fake.as_ref().map(|fake| fake.requests().len());
        assert_eq!(now, asked, "the back end is not asked: {path} {tags}");
    }
}

async fn put_with(server: &Server, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    server.send(Request { method: "PUT", path, headers, body, ..Default::default() }).await
}

async fn delete_with(server: &Server, path: &str, headers: &[(&str, &str)]) -> Answer {
    server.send(Request { method: "DELETE", path, headers, ..Default::default() }).await
}

/// Tags and metadata are kept or replaced each by its own directive.
async fn copies_take_along_what_they_are_told(lane: Lane) {
    let server = Server::on(lane).await;
    let described = [
        ("x-amz-tagging", "team=blue"),
        ("content-type", "text/plain"),
        ("cache-control", "no-store"),
        ("x-amz-meta-colour", "green"),
        ("x-amz-meta-spaced", "a  b   c"),
    ];
    let put = put_with(&server, "/lake/a", &described, b"x").await;
    assert_eq!(put.status, 200, "{}", put.text());
    let from = ("x-amz-copy-source", "/lake/a");
    let tagged = [("x-amz-tagging-directive", "REPLACE"), ("x-amz-tagging", "team=red")];
    let described = [("x-amz-metadata-directive", "REPLACE"), ("cache-control", "max-age=9")];
    for (headers, team, cache, colour) in [
        (vec![from], "blue", "no-store", Some("green")),
        (vec![from, tagged[0], tagged[1]], "red", "no-store", Some("green")),
        (vec![from, tagged[0]], "", "no-store", Some("green")),
        (vec![from, described[0], described[1]], "blue", "max-age=9", None),
        (vec![from, described[0], described[1], tagged[0], tagged[1]], "red", "max-age=9", None),
    ] {
        let copied = put_with(&server, "/lake/b", &headers, b"").await;
        assert_eq!(copied.status, 200, "{headers:?}: {}", copied.text());
        let tags = server.get("/lake/b?tagging").await.text();
        let told = tags.contains(&format!("<Value>{team}</Value>"));
        assert!(told || (team.is_empty() && !tags.contains("<Tag>")), "{headers:?}: {tags}");
        let got = server.get("/lake/b").await;
        assert_eq!(got.header("cache-control"), cache, "{headers:?}");
        assert_eq!(got.headers.get("x-amz-meta-colour").map(String::as_str), colour, "{headers:?}");
        let spaced = if colour.is_some() { "a  b   c" } else { "" };
        assert_eq!(got.header("x-amz-meta-spaced"), spaced, "{headers:?}");
        let media_type = if colour.is_some() { "text/plain" } else { "binary/octet-stream" };
        assert_eq!(got.header("content-type"), media_type, "{headers:?}");
    }
}

async fn copies_are_judged_by_tag_and_time_of_their_source(lane: Lane) {
    let server = Server::on(lane).await;
    server.put("/lake/source", b"source").await;
    let source = server.get("/lake/source").await;
    let (tag, time) = (source.header("etag"), source.header("last-modified"));
    let (other, past) = ("\"other\"", "Thu, 01 Jan 2015 00:00:00 GMT");
    let conditions: [(&[(&str, &str)], bool); 10] = [
        (&[("if-match", tag)], true),
        (&[("if-match", other)], false),
        (&[("if-none-match", other)], true),
        (&[("if-none-match", tag)], false),
        (&[("if-modified-since", past)], true),
        (&[("if-modified-since", time)], false),
        (&[("if-unmodified-since", time)], true),
        (&[("if-unmodified-since", past)], false),
        // S3 looks at no time beside a tag.
        (&[("if-match", tag), ("if-unmodified-since", past)], true),
        (&[("if-none-match", tag), ("if-modified-since", past)], false),
    ];
    for (conditions, holds) in conditions {
        let name = |name: &str| format!("x-amz-copy-source-{name}");
        let named: Vec<_> = conditions.iter().map(|(it, value)| (name(it), *value)).collect();
        let mut headers = vec![("x-amz-copy-source", "/lake/source")];
        headers.extend(named.iter().map(|(name, value)| (name.as_str(), *value)));
        for (copied, left) in
            [copied_over(&server, &headers).await, part_copied_over(&server, &headers).await]
        {
            let expected = match holds {
                true => (200, "", "source"),
                false => (412, "PreconditionFailed", "before"),
            };
            let found = (copied.status, copied.code());
            let found = (found.0, found.1.as_str(), left.as_str());
            assert_eq!(found, expected, "{conditions:?}: {}", copied.text());
        }
    }
}

/// A copy over an object, and what is there then.
async fn copied_over(server: &Server, headers: &[(&str, &str)]) -> (Answer, String) {
    server.put("/lake/copy", b"before").await;
    let copied = put_with(server, "/lake/copy", headers, b"").await;
    (copied, server.get("/lake/copy").await.text())
}

/// A copy over a part, and what its upload makes then.
async fn part_copied_over(server: &Server, headers: &[(&str, &str)]) -> (Answer, String) {
    fn between(text: String, name: &str) -> String {
        let (_, rest) = text.split_once(&format!("<{name}>")).unwrap();
        rest.split_once("</").unwrap().0.to_string()
    }
    let post = |path, body| Request { method: "POST", path, body, ..Default::default() };
    let begun = server.send(post("/lake/whole?uploads", b"")).await;
    let id = between(begun.text(), "UploadId");
    let path = format!("/lake/whole?partNumber=1&uploadId={id}");
    let before = server.put(&path, b"before").await;
    let copied = put_with(server, &path, headers, b"").await;
    let tag = match copied.status {
        200 => between(copied.text(), "ETag"),
        _ => before.header("etag").to_string(),
    };
    let part = format!("<Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>");
    let body = format!("<CompleteMultipartUpload>{part}</CompleteMultipartUpload>");
    let path = format!("/lake/whole?uploadId={id}");
    let done = server.send(post(&path, body.as_bytes())).await;
    assert_eq!(done.status, 200, "{}", done.text());
    (copied, server.get("/lake/whole").await.text())
}

async fn writes_are_judged_by_any_tag(lane: Lane) {
    let server = Server::on(lane).await;
    let missing = put_with(&server, "/lake/k", &[("if-match", "*")], b"1").await;
    assert_eq!((missing.status, missing.code().as_str()), (404, "NoSuchKey"));
    let missing = put_with(&server, "/lake/k", &[("if-match", "\"other\"")], b"1").await;
    assert_eq!((missing.status, missing.code().as_str()), (404, "NoSuchKey"));
    let first = put_with(&server, "/lake/k", &[("if-none-match", "\"other\"")], b"1").await;
    assert_eq!(first.status, 200, "{}", first.text());
    let same = put_with(&server, "/lake/k", &[("if-none-match", first.header("etag"))], b"2").await;
    assert_eq!((same.status, same.code().as_str()), (412, "PreconditionFailed"));
    let any = put_with(&server, "/lake/k", &[("if-match", "*")], b"3").await;
    assert_eq!(any.status, 200, "{}", any.text());
    assert_eq!(server.get("/lake/k").await.body, b"3");
    let two = [("if-match", "*"), ("if-none-match", "\"other\"")];
    assert_eq!(put_with(&server, "/lake/k", &two, b"4").await.code(), "NotImplemented");
    for list in ["other, *", "\"other\", \"more\""] {
        for name in ["if-match", "if-none-match"] {
            let refused = put_with(&server, "/lake/k", &[(name, list)], b"4").await;
            assert_eq!(refused.code(), "NotImplemented", "{name}: {list}");
        }
    }
    assert_eq!(server.get("/lake/k").await.body, b"3");
}

async fn a_condition_that_names_nothing_changes_nothing(lane: Lane) {
    let server = Server::on(lane).await;
    server.put("/lake/k", b"kept").await;
    for name in ["if-match", "if-none-match"] {
        for void in ["", " "] {
            let refused = put_with(&server, "/lake/k", &[(name, void)], b"new").await;
            assert_eq!(refused.code(), "InvalidArgument", "{name}");
            let copy = [("x-amz-copy-source", "/lake/k"), (name, void)];
            let refused = put_with(&server, "/lake/copy", &copy, b"").await;
            assert_eq!(refused.code(), "InvalidArgument", "{name}");
        }
    }
    for name in ["x-amz-copy-source-if-match", "x-amz-copy-source-if-none-match"] {
        let copy = [("x-amz-copy-source", "/lake/k"), (name, "")];
        let refused = put_with(&server, "/lake/copy", &copy, b"").await;
        assert_eq!(refused.code(), "InvalidArgument", "{name}");
    }
    for name in ["if-match", "x-amz-if-match-size", "x-amz-if-match-last-modified-time"] {
        let refused = delete_with(&server, "/lake/k", &[(name, "")]).await;
        assert_eq!(refused.code(), "InvalidArgument", "{name}");
    }
    assert_eq!(server.get("/lake/k").await.body, b"kept");
    assert_eq!(server.get("/lake/copy").await.status, 404);
}

async fn writes_and_removals_are_judged_by_the_time_of_the_last_change(lane: Lane) {
    let server = Server::on(lane).await;
    let since = |time: &'static str| [("if-unmodified-since", time)];
    let (past, future) = ("Thu, 01 Jan 2015 00:00:00 GMT", "Fri, 01 Jan 2100 00:00:00 GMT");
    let made = put_with(&server, "/lake/k", &since(past), b"1").await;
    assert_eq!(made.status, 200, "nothing is there that could have changed");
    assert_eq!(put_with(&server, "/lake/k", &since(past), b"2").await.code(), "PreconditionFailed");
    assert_eq!(put_with(&server, "/lake/k", &since(future), b"3").await.status, 200);
    assert_eq!(put_with(&server, "/lake/k", &since("no date"), b"4").await.status, 200);
    assert_eq!(delete_with(&server, "/lake/k", &since(past)).await.code(), "PreconditionFailed");
    let other = [("if-none-match", "*")];
    assert_eq!(delete_with(&server, "/lake/k", &other).await.code(), "NotImplemented");
    assert_eq!(server.get("/lake/k").await.body, b"4");
    assert_eq!(delete_with(&server, "/lake/k", &since(future)).await.status, 204);
    assert_eq!(server.get("/lake/k").await.status, 404);
}

async fn removals_are_judged_by_size_and_time(lane: Lane) {
    let server = Server::on(lane).await;
    server.put("/lake/k", b"12345").await;
    let time = server.get("/lake/k").await.header("last-modified").to_string();
    let old = ("x-amz-if-match-last-modified-time", "Thu, 01 Jan 2015 00:00:00 GMT");
    for wrong in [("x-amz-if-match-size", "4"), old] {
        let kept = delete_with(&server, "/lake/k", &[wrong]).await;
        assert_eq!((kept.status, kept.code().as_str()), (412, "PreconditionFailed"), "{wrong:?}");
    }
    let right =
        [("x-amz-if-match-size", "5"), ("x-amz-if-match-last-modified-time", time.as_str())];
    assert_eq!(delete_with(&server, "/lake/k", &right).await.status, 204);
    assert_eq!(server.get("/lake/k").await.status, 404);
    for gone in [("x-amz-if-match-size", "4"), ("if-match", "*"), ("if-match", "\"other\"")] {
        assert_eq!(delete_with(&server, "/lake/k", &[gone]).await.status, 204, "{gone:?}");
    }
    server.put("/lake/k", b"12345").await;
    let batch = async |size: u32| {
        let body = format!("<Delete><Object><Key>k</Key><Size>{size}</Size></Object></Delete>");
        let body = body.as_bytes();
        let path = "/lake?delete";
        let digest = base64_md5(body);
        let headers = [("content-md5", digest.as_str())];
        let headers = &headers;
        server.send(Request { method: "POST", path, headers, body, ..Default::default() }).await
    };
    assert_eq!(batch(4).await.code(), "PreconditionFailed");
    assert!(batch(5).await.text().contains("<Deleted><Key>k</Key></Deleted>"));
}

fn base64_md5(body: &[u8]) -> String {
    use base64::Engine as _;
    use s3s::crypto::{Checksum as _, Md5};
    let mut md5 = Md5::new();
    md5.update(body);
    base64::engine::general_purpose::STANDARD.encode(md5.finalize())
}

async fn a_prefix_whose_names_all_came_before_is_not_told(lane: Lane) {
    let server = Server::on(lane).await;
    for key in ["01/a", "03/a", "03/b", "04/a"] {
        server.put(&format!("/lake/sa/{key}"), b"x").await;
    }
    for (after, prefixes) in [("03%2Fa", vec!["03/", "04/"]), ("03%2Fb", vec!["04/"])] {
        for list in ["list-type=2&start-after", "marker", "versions&key-marker"] {
            // How Google folds versions behind a marker that lies in the prefix is not known.
            if lane == Lane::Google && list.starts_with("versions") {
                continue;
            }
            let path = format!("/lake?prefix=sa%2F&delimiter=%2F&{list}=sa%2F{after}");
            let text = server.get(&path).await.text();
            let told = |prefix: &&str| {
                text.contains(&format!("<CommonPrefixes><Prefix>sa/{prefix}</Prefix>"))
            };
            let told: Vec<_> = ["01/", "03/", "04/"].into_iter().filter(told).collect();
            assert_eq!(told, prefixes, "{list} after {after}: {text}");
        }
    }
}

async fn empty_words_of_a_listing_are_none(lane: Lane) {
    let server = Server::on(lane).await;
    server.put("/lake/a", b"x").await;
    for query in ["delimiter=", "list-type=2&delimiter=", "list-type=2&continuation-token="] {
        let listed = server.get(&format!("/lake?{query}")).await;
        assert_eq!(listed.status, 200, "{query}: {}", listed.text());
        assert!(listed.text().contains("<Key>a</Key>"), "{query}");
        assert!(!listed.text().contains("Delimiter"), "{query}: {}", listed.text());
    }
    let unordered = server.get("/lake?allow-unordered=true&delimiter=%2F").await;
    assert_eq!((unordered.status, unordered.code().as_str()), (400, "InvalidArgument"));
}

/// As SDKs send it, and as S3 tells it.
async fn metadata_that_is_no_ascii_comes_back(lane: Lane) {
    let server = Server::on(lane).await;
    // "b\u{e4}r" as an RFC 2047 word.
    let headers = [("x-amz-meta-name", "=?UTF-8?B?YsOkcg==?=")];
    let put = Request { method: "PUT", path: "/lake/k", headers: &headers, ..Default::default() };
    let put = server.send(put).await;
    assert_eq!(put.status, 200, "{}", put.text());
    let told = server.get("/lake/k").await.header("x-amz-meta-name").to_string();
    assert_eq!(told, "=?UTF-8?B?YsOkcg==?=");
}

//! What a request does besides its operation (lists, tags, locks, copied tags) under a policy.

use crate::common::{ACCESS_KEY, Answer, Lane, Request, SECRET_KEY, Server};
use penstock_base::Secret;
use penstock_gateway::{KeyPair, Options};

on_every_lane!(
    ;
    // Nothing is kept there of a bucket: policies and lists are refused.
    but_google:
    what_is_denied_comes_in_with_no_header,
    what_is_not_allowed_comes_in_with_no_header,
    tags_are_copied_by_whom_they_may_be_read_and_set,
    lists_and_owners_let_in_what_they_always_did,
    tags_that_a_body_brings_are_judged_as_those_of_a_header,
);
on_lane!(versions_local, Local: locks_have_actions_of_their_own,
    tags_of_a_version_are_read_by_an_action_of_its_own);

const BOB: &str = "BOB";
type Headers<'a> = &'a [(&'a str, &'a str)];

fn owners(options: &mut Options) {
    options.serve.acl = "owners".to_string();
    options.keys.push(KeyPair::new(BOB, Secret::new(SECRET_KEY)));
}

impl Server {
    async fn ask_under_policy(
        &self,
        who: &str,
        (method, path): (&str, &str),
        headers: Headers<'_>,
    ) -> Answer {
        let is_copy = headers.iter().any(|it| it.0 == "x-amz-copy-source");
        let is_object = method == "PUT" && path.matches('/').count() > 1;
        let body: &[u8] = if is_object && !is_copy { b"bytes" } else { b"" };
        let request = Request { method, path, headers, body, ..Default::default() };
        match who {
            "" => self.unsigned(request).await,
            who => self.send_as(who, request).await,
        }
    }

    async fn status(&self, who: &str, call: (&str, &str), headers: Headers<'_>) -> u16 {
        self.ask_under_policy(who, call, headers).await.status
    }

    /// Sets the policy of `mine`: statements of `Allow` or `Deny`, actions, and resource, for Bob.
    async fn policy(&self, statements: &[(&str, &[&str], &str)]) {
        let statement = |(effect, actions, resource): &(&str, &[&str], &str)| {
            let actions: Vec<String> = actions.iter().map(|it| format!("\"s3:{it}\"")).collect();
            format!(
                r#"{{"Effect": "{effect}", "Principal": {{"AWS": "{BOB}"}}, "Action": [{}],
                "Resource": "arn:aws:s3:::{resource}"}}"#,
                actions.join(", ")
            )
        };
        let statements: Vec<String> = statements.iter().map(statement).collect();
        let body = format!(r#"{{"Statement": [{}]}}"#, statements.join(", "));
        let path = "/mine?policy";
        let body = body.as_bytes();
        let put = Request { method: "PUT", path, body, ..Default::default() };
        assert_eq!(self.send(put).await.status, 204);
    }
}

/// A server with a bucket of the main key's.
async fn server_on(lane: Lane) -> Server {
    let server = Server::on_with(lane, owners).await;
    assert_eq!(server.status(ACCESS_KEY, ("PUT", "/mine"), &[("x-amz-acl", "private")]).await, 200);
    server
}

/// Ways to bring a list or tags, and that they take more than to write.
const BROUGHT: [(&str, &str); 4] = [
    ("x-amz-acl", "public-read"),
    ("x-amz-acl", "bucket-owner-full-control"),
    ("x-amz-grant-read", "uri=http://acs.amazonaws.com/groups/global/AllUsers"),
    ("x-amz-tagging", "a=b"),
];

/// Tries each of them with each operation that makes an object, and a form.
async fn nothing_is_brought(server: &Server) {
    assert_eq!(server.status(ACCESS_KEY, ("PUT", "/mine/plain"), &[]).await, 200);
    let copy = ("x-amz-copy-source", "mine/plain");
    let replace = ("x-amz-tagging-directive", "REPLACE");
    for brought in BROUGHT {
        for (call, headers) in [
            (("PUT", "/mine/k"), &[brought][..]),
            (("PUT", "/mine/k"), &[copy, replace, brought]),
            (("POST", "/mine/k?uploads"), &[brought]),
        ] {
            let answer = server.ask_under_policy(BOB, call, headers).await;
            let found = (answer.status, answer.code());
            assert_eq!(found, (403, "AccessDenied".to_string()), "{call:?} {headers:?}");
        }
    }
    assert_eq!(server.status(ACCESS_KEY, ("GET", "/mine/k"), &[]).await, 404);
    // Without any of it the same are let in.
    assert_eq!(server.status(BOB, ("PUT", "/mine/k"), &[]).await, 200);
    assert_eq!(server.status(BOB, ("PUT", "/mine/k"), &[copy, replace]).await, 200);
    assert_eq!(server.status(BOB, ("POST", "/mine/k?uploads"), &[]).await, 200);
    assert_eq!(server.status("", ("GET", "/mine/k"), &[]).await, 403);
}

async fn what_is_denied_comes_in_with_no_header(lane: Lane) {
    let server = server_on(lane).await;
    server
        .policy(&[
            ("Allow", &["*"], "mine/*"),
            ("Deny", &["PutObjectAcl", "PutObjectTagging"], "mine/*"),
        ])
        .await;
    nothing_is_brought(&server).await;
}

async fn what_is_not_allowed_comes_in_with_no_header(lane: Lane) {
    let server = server_on(lane).await;
    server.policy(&[("Allow", &["PutObject", "GetObject"], "mine/*")]).await;
    nothing_is_brought(&server).await;
    let needed = ["PutObject", "PutObjectAcl", "PutObjectTagging"];
    server.policy(&[("Allow", &needed, "mine/*")]).await;
    for brought in BROUGHT {
        assert_eq!(server.status(BOB, ("PUT", "/mine/k"), &[brought]).await, 200, "{brought:?}");
    }
}

async fn tags_are_copied_by_whom_they_may_be_read_and_set(lane: Lane) {
    let server = server_on(lane).await;
    let tags = [("x-amz-tagging", "secret=yes")];
    assert_eq!(server.status(ACCESS_KEY, ("PUT", "/mine/tagged"), &tags).await, 200);
    assert_eq!(server.status(ACCESS_KEY, ("PUT", "/mine/plain"), &[]).await, 200);
    assert_eq!(server.status(BOB, ("PUT", "/theirs"), &[]).await, 200);
    let copied = async |from: &str, to: &str, more: Headers<'_>| {
        let headers = [&[("x-amz-copy-source", from)], more].concat();
        server.status(BOB, ("PUT", to), &headers).await
    };
    let (here, there) = ("/mine/copy", "/theirs/copy");
    let replace = [("x-amz-tagging-directive", "REPLACE")];
    // To read an object is not to read its tags; where there are none, none are read.
    for statements in [
        &[("Allow", &["GetObject"][..], "mine/*")][..],
        &[("Allow", &["*"], "mine/*"), ("Deny", &["GetObjectTagging"], "mine/*")],
    ] {
        server.policy(statements).await;
        assert_eq!(copied("mine/tagged", there, &[]).await, 403, "{statements:?}");
        let told = [("x-amz-tagging-directive", "COPY")];
        assert_eq!(copied("mine/tagged", there, &told).await, 403, "{statements:?}");
        assert_eq!(copied("mine/plain", there, &[]).await, 200, "{statements:?}");
        assert_eq!(copied("mine/tagged", there, &replace).await, 200, "{statements:?}");
        let copy = server.ask_under_policy(BOB, ("GET", there), &[]).await;
        assert_eq!((copy.header("x-amz-tagging-count"), &copy.body[..]), ("", &b"bytes"[..]));
    }
    // Nor is to write an object to give it tags.
    server.policy(&[("Allow", &["GetObject", "GetObjectTagging", "PutObject"], "mine/*")]).await;
    assert_eq!(copied("mine/tagged", here, &[]).await, 403);
    assert_eq!(copied("mine/plain", here, &[]).await, 200);
    assert_eq!(copied("mine/tagged", there, &[]).await, 200);
    let copy = server.ask_under_policy(BOB, ("GET", "/theirs/copy?tagging"), &[]).await;
    assert!(copy.text().contains("<Key>secret</Key>"), "{}", copy.text());
    let all = ["GetObject", "GetObjectTagging", "PutObject", "PutObjectTagging"];
    server.policy(&[("Allow", &all, "mine/*")]).await;
    assert_eq!(copied("mine/tagged", here, &[]).await, 200);
    let copy = server.ask_under_policy(ACCESS_KEY, ("GET", "/mine/copy?tagging"), &[]).await;
    assert!(copy.text().contains("<Key>secret</Key>"), "{}", copy.text());
}

async fn lists_and_owners_let_in_what_they_always_did(lane: Lane) {
    let server = server_on(lane).await;
    let open = [("x-amz-acl", "public-read-write")];
    assert_eq!(server.status(ACCESS_KEY, ("PUT", "/mine?acl"), &open).await, 200);
    assert_eq!(server.status(BOB, ("PUT", "/theirs"), &open).await, 200);
    // A policy about something else changes nothing.
    server.policy(&[("Allow", &["ListBucket"], "mine")]).await;
    for who in [ACCESS_KEY, BOB] {
        for brought in BROUGHT {
            assert_eq!(server.status(who, ("PUT", "/mine/k"), &[brought]).await, 200, "{who}");
        }
        // No list lets anybody but the owner read tags, so a copy does not tell them either.
        let copy = [("x-amz-copy-source", "mine/k"), ("x-amz-tagging-directive", "REPLACE")];
        let with_tags = if who == BOB { 403 } else { 200 };
        assert_eq!(server.status(who, ("GET", "/mine/k?tagging"), &[]).await, with_tags, "{who}");
        for to in ["/mine/copy", "/theirs/copy"] {
            assert_eq!(server.status(who, ("PUT", to), &copy[..1]).await, with_tags, "{who} {to}");
            assert_eq!(server.status(who, ("PUT", to), &copy).await, 200, "{who} {to}");
        }
        assert_eq!(server.status(who, ("PUT", "/mine/plain"), &[]).await, 200, "{who}");
        let copy = [("x-amz-copy-source", "mine/plain")];
        assert_eq!(server.status(who, ("PUT", "/mine/copy"), &copy).await, 200, "{who}");
    }
    // What lets the owner in besides does not take from them what is theirs.
    server.policy(&[("Allow", &["PutObject", "GetObject"], "mine/*")]).await;
    for brought in BROUGHT {
        assert_eq!(server.status(ACCESS_KEY, ("PUT", "/mine/k"), &[brought]).await, 200);
    }
}

async fn tags_that_a_body_brings_are_judged_as_those_of_a_header(lane: Lane) {
    let server = server_on(lane).await;
    assert_eq!(server.status(ACCESS_KEY, ("PUT", "/mine/k"), &[]).await, 200);
    let tagged = async |team: &str, headers: Headers<'_>| {
        let body = format!(
            "<Tagging><TagSet><Tag><Key>team</Key><Value>{team}</Value></Tag></TagSet></Tagging>"
        );
        let (path, body) = ("/mine/k?tagging", body.as_bytes());
        let put = Request { method: "PUT", path, headers, body, ..Default::default() };
        server.send_as(BOB, put).await.status
    };
    let blue = [("x-amz-tagging", "team=blue")];
    let allow = r#"{"Effect": "Allow", "Principal": {"AWS": "BOB"}, "Action": "s3:*",
        "Resource": "arn:aws:s3:::mine/*"}"#;
    let only = |effect: &str, operator: &str| {
        format!(
            r#"{{"Effect": "{effect}", "Principal": {{"AWS": "BOB"}},
            "Action": "s3:PutObjectTagging", "Resource": "arn:aws:s3:::mine/*",
            "Condition": {{"{operator}": {{"s3:RequestObjectTag/team": "blue"}}}}}}"#
        )
    };
    for statements in
        [only("Allow", "StringEquals"), format!("{allow}, {}", only("Deny", "StringNotEquals"))]
    {
        let policy = format!(r#"{{"Statement": [{statements}]}}"#);
        let (path, body) = ("/mine?policy", policy.as_bytes());
        let put = Request { method: "PUT", path, body, ..Default::default() };
        assert_eq!(server.send(put).await.status, 204);
        for headers in [&[][..], &blue] {
            assert_eq!(tagged("red", headers).await, 403, "{statements} {headers:?}");
            assert_eq!(tagged("blue", headers).await, 200, "{statements} {headers:?}");
        }
    }
    assert!(server.get("/mine/k?tagging").await.text().contains("<Value>blue</Value>"));
}

/// On Azure an upload's id tells with what it began, and anybody could write such an id.
#[tokio::test]
async fn an_upload_that_began_with_more_is_completed_by_whom_that_is_allowed() {
    let server = server_on(Lane::Azure).await;
    server.policy(&[("Allow", &["PutObject"], "mine/*")]).await;
    for brought in [("x-amz-acl", "public-read"), ("x-amz-tagging", "a=b")] {
        let begun = server
            .ask_under_policy(ACCESS_KEY, ("POST", "/mine/k?uploads"), &[brought])
            .await
            .text();
        let id = begun.split_once("<UploadId>").unwrap().1.split_once('<').unwrap().0;
        let part = server.put(&format!("/mine/k?partNumber=1&uploadId={id}"), b"part").await;
        let body = format!(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part>\
             </CompleteMultipartUpload>",
            part.header("etag")
        );
        let (path, body) = (format!("/mine/k?uploadId={id}"), body.as_bytes());
        let complete = Request { method: "POST", path: &path, body, ..Default::default() };
        assert_eq!(server.send_as(BOB, complete.clone()).await.code(), "AccessDenied");
        assert_eq!(server.send(complete).await.status, 200, "{brought:?}");
        assert_eq!(server.status(ACCESS_KEY, ("DELETE", "/mine/k"), &[]).await, 204);
    }
}

#[tokio::test]
async fn the_fields_of_a_form_are_judged_as_headers_are() {
    let server = server_on(Lane::Local).await;
    let policy = br#"{"Statement": {"Effect": "Allow", "Principal": "*", "Action": "s3:PutObject",
        "Resource": "arn:aws:s3:::mine/*"}}"#;
    let put = Request { method: "PUT", path: "/mine?policy", body: policy, ..Default::default() };
    assert_eq!(server.send(put).await.status, 204);
    let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
    for (field, value, status) in
        [("acl", "public-read", 403), ("tagging", tags, 403), ("x-amz-meta-a", "b", 204)]
    {
        let mut body = String::new();
        for (name, value) in [("key", "k"), (field, value)] {
            let head = format!("Content-Disposition: form-data; name=\"{name}\"");
            body += &format!("--X1\r\n{head}\r\n\r\n{value}\r\n");
        }
        body += "--X1\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nbytes\r\n--X1--\r\n";
        let headers = [("content-type", "multipart/form-data; boundary=X1")];
        let body = body.as_bytes();
        let form = Request {
            method: "POST",
            path: "/mine",
            headers: &headers,
            body,
            ..Default::default()
        };
        let answer = server.unsigned(form).await;
        assert_eq!(answer.status, status, "{field}: {}", answer.text());
    }
}

#[tokio::test]
async fn attributes_of_an_object_tell_what_it_takes_a_read_to_know() {
    let server = server_on(Lane::Local).await;
    assert_eq!(server.status(ACCESS_KEY, ("PUT", "/mine/k"), &[]).await, 200);
    let attributes = [("x-amz-object-attributes", "ETag")];
    let call = ("GET", "/mine/k?attributes");
    for (actions, status) in
        [(&["GetObjectAttributes"][..], 403), (&["GetObjectAttributes", "GetObject"], 200)]
    {
        server.policy(&[("Allow", actions, "mine/*")]).await;
        assert_eq!(server.status(BOB, call, &attributes).await, status, "{actions:?}");
    }
}

async fn locks_have_actions_of_their_own(lane: Lane) {
    let server = Server::on_with(lane, owners).await;
    let locked = [("x-amz-acl", "private"), ("x-amz-bucket-object-lock-enabled", "true")];
    assert_eq!(server.status(ACCESS_KEY, ("PUT", "/mine"), &locked).await, 200);
    let retention = [
        ("x-amz-object-lock-mode", "GOVERNANCE"),
        ("x-amz-object-lock-retain-until-date", "2120-01-01T00:00:00Z"),
    ];
    let hold = [("x-amz-object-lock-legal-hold", "ON")];
    for (headers, action) in [(&retention[..], "PutObjectRetention"), (&hold, "PutObjectLegalHold")]
    {
        for (actions, status) in [(&["PutObject"][..], 403), (&["PutObject", action], 200)] {
            server.policy(&[("Allow", actions, "mine/*")]).await;
            for call in [("PUT", "/mine/k"), ("POST", "/mine/k?uploads")] {
                assert_eq!(server.status(BOB, call, headers).await, status, "{call:?} {actions:?}");
            }
        }
    }
}

async fn tags_of_a_version_are_read_by_an_action_of_its_own(lane: Lane) {
    let server = server_on(lane).await;
    let body = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    let path = "/mine?versioning";
    let set = Request { method: "PUT", path, body, ..Default::default() };
    assert_eq!(server.send(set).await.status, 200);
    let tags = [("x-amz-tagging", "secret=yes")];
    let put = server.ask_under_policy(ACCESS_KEY, ("PUT", "/mine/k"), &tags).await;
    let source = format!("mine/k?versionId={}", put.header("x-amz-version-id"));
    assert_eq!(server.status(BOB, ("PUT", "/theirs"), &[]).await, 200);
    for (action, status) in [("GetObjectTagging", 403), ("GetObjectVersionTagging", 200)] {
        server.policy(&[("Allow", &["GetObjectVersion", action], "mine/*")]).await;
        let copy = [("x-amz-copy-source", source.as_str())];
        assert_eq!(server.status(BOB, ("PUT", "/theirs/k"), &copy).await, status, "{action}");
    }
}

//! What comes between two steps of a request: another version of the object, another maker of the
//! bucket.

use crate::common::raw::until;
use crate::common::{ACCESS_KEY, Answer, Lane, Request, SECRET_KEY, Server};
use penstock_base::Secret;
use penstock_gateway::{KeyPair, Options};
use penstock_testkit::fake::FaultPlan;

const OTHER: &str = "OTHER";

fn owners(options: &mut Options) {
    options.serve.acl = "owners".to_string();
    options.keys.push(KeyPair::new(OTHER, Secret::new(SECRET_KEY)));
}

/// A gateway on Azure, with a bucket `mine` of the main key's.
async fn server() -> Server {
    let server = Server::on_with(Lane::Azure, owners).await;
    let made = Request { method: "PUT", path: "/mine", ..Default::default() };
    assert_eq!(server.send(made).await.status, 200);
    server
}

async fn put(server: &Server, path: &str, body: &[u8], acl: &str) {
    let headers = [("x-amz-acl", acl)];
    let put = Request { method: "PUT", path, headers: &headers, body, ..Default::default() };
    assert_eq!(server.send(put).await.status, 200);
}

impl Server {
    /// Holds the answer to the next request of this operation back until what comes between is
    /// over; it takes effect at once.
    fn hold_back(&self, operation: &str) {
        let fake = self.fake.as_ref().unwrap();
        fake.fault(&format!("latency=60000,op={operation},times=1"));
    }

    /// Waits for that request; once this is dropped it is answered.
    async fn held_back(&self) -> Held<'_> {
        let faults = self.fake.as_ref().unwrap().faults();
        until("the request", async || faults.fired() == [1]).await;
        Held(faults)
    }
}

/// A request that is held back.
struct Held<'a>(&'a FaultPlan);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.clear();
    }
}

/// The version that was judged is held back, and by then the one that answers is private.
#[tokio::test]
async fn a_version_that_is_private_is_not_told_to_whom_the_one_before_was_open() {
    let server = server().await;
    let host = [("host", "h")];
    for (method, path, headers) in [
        ("GET", "/mine/k", &host[..0]),
        ("GET", "/mine/k", &[("range", "bytes=0-2")]),
        ("HEAD", "/mine/k", &[]),
        ("GET", "/mine/k?attributes", &[("x-amz-object-attributes", "ObjectSize")]),
    ] {
        put(&server, "/mine/k", b"public", "public-read").await;
        let ask = || async {
            let answer = server.unsigned(Request { method, path, headers, ..Default::default() });
            answer.await
        };
        assert!([200, 206].contains(&ask().await.status), "{method} {path}");
        server.hold_back("GetBlobProperties");
        let (answer, ()) = tokio::join!(ask(), async {
            let _held = server.held_back().await;
            put(&server, "/mine/k", b"secret version", "private").await;
        });
        assert_eq!(answer.status, 403, "{method} {path}: {}", answer.text());
        assert!(!answer.text().contains("sec"), "{}", answer.text());
    }
}

/// Not even whether it is what the client names, how long it is, or of how many parts.
#[tokio::test]
async fn nor_do_conditions_and_ranges_tell_of_it() {
    let server = server().await;
    let (method, plain) = ("GET", "/mine/k");
    let later = [("if-modified-since", "Fri, 01 Jan 2100 00:00:00 GMT")];
    let large = vec![b'x'; 100];
    for (path, headers) in [
        (plain, &[][..]),
        (plain, &[("if-match", "public")]),
        (plain, &[("if-none-match", "other")]),
        (plain, &[("if-none-match", "*")]),
        (plain, &later),
        (plain, &[("range", "bytes=-3"), ("if-match", "public")]),
        (plain, &[("range", "bytes=50-60")]),
        ("/mine/k?partNumber=2", &[]),
        ("/mine/k?partNumber=2", &[("if-match", "public")]),
    ] {
        put(&server, "/mine/k", &large, "public-read").await;
        let head = Request { method: "HEAD", path: plain, ..Default::default() };
        let public = server.send(head).await.header("etag").to_string();
        let headers: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (*name, if *value == "public" { public.as_str() } else { value }))
            .collect();
        server.hold_back("GetBlobProperties");
        let ask = Request { method, path, headers: &headers, ..Default::default() };
        let (answer, ()) = tokio::join!(server.unsigned(ask), async {
            let _held = server.held_back().await;
            put(&server, "/mine/k", b"secret version", "private").await;
        });
        assert_eq!(answer.status, 403, "{path} {headers:?}: {}", answer.text());
        assert_eq!(answer.header("etag"), "", "{path} {headers:?}");
    }
}

/// Where nothing comes between they are answered, without the back end being asked more often.
#[tokio::test]
async fn conditions_on_what_is_open_cost_no_more() {
    let server = server().await;
    put(&server, "/mine/k", b"public", "public-read").await;
    let head = Request { method: "HEAD", path: "/mine/k", ..Default::default() };
    let tag = server.send(head).await.header("etag").to_string();
    for (name, value, status, requests) in [
        ("if-none-match", tag.as_str(), 304, 3),
        ("if-modified-since", "Fri, 01 Jan 2100 00:00:00 GMT", 304, 3),
        ("if-match", tag.as_str(), 200, 3),
        ("if-match", "\"other-1\"", 412, 4),
    ] {
        let before = server.backend_requests();
        let headers = [(name, value)];
        let ask = Request { path: "/mine/k", headers: &headers, ..Default::default() };
        assert_eq!(server.unsigned(ask).await.status, status, "{name} {value}");
        assert_eq!(server.backend_requests() - before, requests, "{name} {value}");
    }
}

const OPEN: &str = r#"{"Statement": {"Effect": "Allow", "Principal": {"AWS": "OTHER"},
    "Action": ["s3:GetObject", "s3:GetObjectTagging"], "Resource": "arn:aws:s3:::mine/*",
    "Condition": {"StringEquals": {"s3:ExistingObjectTag/open": "yes"}}}}"#;
const UNLESS_SECRET: &str = r#"{"Statement": [{"Effect": "Allow", "Principal": {"AWS": "OTHER"},
    "Action": "s3:*", "Resource": "arn:aws:s3:::mine/*"},
    {"Effect": "Deny", "Principal": {"AWS": "OTHER"}, "Action": "s3:GetObject*",
    "Resource": "arn:aws:s3:::mine/*",
    "Condition": {"StringEquals": {"s3:ExistingObjectTag/secret": "yes"}}}]}"#;

/// Where no version of the object answers, none is asked for beside its tags.
#[tokio::test]
async fn a_write_that_hangs_on_tags_costs_their_request_only() {
    let server = server().await;
    let path = "/mine?policy";
    let policy = OPEN.replace(r#"["s3:GetObject", "s3:GetObjectTagging"]"#, r#""s3:*""#);
    let set = Request { method: "PUT", path, body: policy.as_bytes(), ..Default::default() };
    assert_eq!(server.send(set).await.status, 204);
    let headers = [("x-amz-tagging", "open=yes")];
    let put = || Request { method: "PUT", path: "/mine/k", body: b"1", ..Default::default() };
    assert_eq!(server.send(Request { headers: &headers, ..put() }).await.status, 200);
    let before = server.backend_requests();
    assert_eq!(server.send_as(OTHER, put()).await.status, 200);
    assert_eq!(server.backend_requests() - before, 4, "notes, tags, notes, and the object");
}

/// Tags are judged, and by the time of the answer it would be another version's.
#[tokio::test]
async fn tags_of_one_version_let_nobody_see_another() {
    let server = server().await;
    let made = Request { method: "PUT", path: "/theirs", ..Default::default() };
    assert_eq!(server.send_as(OTHER, made).await.status, 200);
    let put = async |body: &[u8], tags: &str| {
        let (path, headers) = ("/mine/k", [("x-amz-tagging", tags)]);
        let put = Request { method: "PUT", path, headers: &headers, body, ..Default::default() };
        assert_eq!(server.send(put).await.status, 200);
    };
    for policy in [OPEN, UNLESS_SECRET] {
        let path = "/mine?policy";
        let set = Request { method: "PUT", path, body: policy.as_bytes(), ..Default::default() };
        assert_eq!(server.send(set).await.status, 204);
        for (method, path, headers) in [
            ("GET", "/mine/k", &[][..]),
            ("HEAD", "/mine/k", &[]),
            ("GET", "/mine/k", &[("range", "bytes=0-2")]),
            ("GET", "/mine/k?acl", &[]),
            ("PUT", "/theirs/k", &[("x-amz-copy-source", "mine/k")]),
        ] {
            if path.ends_with("?acl") && policy == OPEN {
                continue;
            }
            put(b"open to all", "open=yes").await;
            let ask =
                || server.send_as(OTHER, Request { method, path, headers, ..Default::default() });
            let before = ask().await;
            assert!([200, 206].contains(&before.status), "{method} {path}: {}", before.text());
            server.hold_back("GetBlobTags");
            let (answer, ()) = tokio::join!(ask(), async {
                let _held = server.held_back().await;
                put(b"secret version", "secret=yes").await;
            });
            let refused = [403, 409].contains(&answer.status);
            assert!(refused, "{method} {path}: {} {}", answer.status, answer.text());
            assert_eq!(ask().await.status, 403, "{method} {path}");
            let copy = Request { path: "/theirs/k", ..Default::default() };
            assert!(!server.send_as(OTHER, copy).await.text().contains("secret"));
        }
    }
}

/// Tags that are asked for are those that were judged, whatever takes their place meanwhile: on S3
/// the same bytes have the same ETag.
#[tokio::test]
async fn tags_that_are_told_are_those_that_were_judged() {
    for (lane, operation) in [(Lane::Azure, "GetBlobTags"), (Lane::S3, "GetObjectTagging")] {
        let server = Server::on_with(lane, owners).await;
        let made = Request { method: "PUT", path: "/mine", ..Default::default() };
        assert_eq!(server.send(made).await.status, 200);
        let path = "/mine?policy";
        let set = Request { method: "PUT", path, body: OPEN.as_bytes(), ..Default::default() };
        assert_eq!(server.send(set).await.status, 204);
        let write = async |tags: &str| {
            let (path, headers) = ("/mine/k", [("x-amz-tagging", tags)]);
            let request = Request { method: "PUT", path, headers: &headers, ..Default::default() };
            assert_eq!(server.send(request).await.status, 200);
        };
        let ask =
            || server.send_as(OTHER, Request { path: "/mine/k?tagging", ..Default::default() });
        let closed =
            b"<Tagging><TagSet><Tag><Key>a</Key><Value>secret</Value></Tag></TagSet></Tagging>";
        for is_written_anew in [false, true] {
            write("open=yes").await;
            let before = server.backend_requests();
            assert!(ask().await.text().contains("open"), "{lane:?}");
            assert_eq!(server.backend_requests() - before, 2, "notes and tags");
            server.hold_back(operation);
            let (answer, ()) = tokio::join!(ask(), async {
                let _held = server.held_back().await;
                if is_written_anew {
                    return write("a=secret").await;
                }
                let (method, path) = ("PUT", "/mine/k?tagging");
                let set = Request { method, path, body: closed, ..Default::default() };
                assert!(server.send(set).await.status < 300);
            });
            let text = answer.text();
            assert!(text.contains("open") && !text.contains("secret"), "{lane:?}: {text}");
            assert_eq!(ask().await.status, 403, "{lane:?}");
        }
    }
}

/// What is not there has no tags to be judged or told.
#[tokio::test]
async fn whoever_is_let_in_by_no_tags_is_told_that_nothing_is_there() {
    let server = server().await;
    let path = "/mine?policy";
    let set = Request { method: "PUT", path, body: UNLESS_SECRET.as_bytes(), ..Default::default() };
    assert_eq!(server.send(set).await.status, 204);
    let ask = || server.send_as(OTHER, Request { path: "/mine/k?tagging", ..Default::default() });
    assert_eq!(ask().await.code(), "NoSuchKey");
    server.hold_back("GetBlobTags");
    let (answer, ()) = tokio::join!(ask(), async {
        let _held = server.held_back().await;
        put(&server, "/mine/k", b"1", "private").await;
    });
    assert_eq!((answer.status, answer.code().as_str()), (409, "OperationAborted"));
}

/// Nor is a copy made of it.
#[tokio::test]
async fn nor_is_it_copied() {
    let server = server().await;
    let made = Request { method: "PUT", path: "/theirs", ..Default::default() };
    assert_eq!(server.send_as(OTHER, made).await.status, 200);
    let begin = Request { method: "POST", path: "/theirs/up?uploads", ..Default::default() };
    let begun = server.send_as(OTHER, begin).await.text();
    let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap().to_string();
    let part = format!("/theirs/up?partNumber=1&uploadId={id}");
    let replace = ("x-amz-metadata-directive", "REPLACE");
    let tags = ("x-amz-tagging-directive", "REPLACE");
    let sum = ("x-amz-checksum-algorithm", "SHA256");
    let source = ("x-amz-copy-source", "mine/k");
    for (path, headers) in [
        ("/theirs/k", &[source, tags][..]),
        ("/theirs/k", &[source, replace, tags]),
        ("/theirs/k", &[source, replace, tags, sum]),
        (part.as_str(), &[source]),
    ] {
        put(&server, "/mine/k", b"public", "public-read").await;
        let copy = || {
            server.send_as(OTHER, Request { method: "PUT", path, headers, ..Default::default() })
        };
        let before = copy().await;
        assert_eq!(before.status, 200, "{headers:?}: {}", before.text());
        server.hold_back("GetBlobProperties");
        let (answer, ()) = tokio::join!(copy(), async {
            let _held = server.held_back().await;
            put(&server, "/mine/k", b"secret version", "private").await;
        });
        assert!([403, 409].contains(&answer.status), "{headers:?}: {}", answer.text());
        let made = Request { path: "/theirs/k", ..Default::default() };
        assert_eq!(server.send_as(OTHER, made).await.body, b"public", "{headers:?}");
    }
}

/// Its container is made, and before that is noted somebody else makes the bucket too.
#[tokio::test]
async fn a_bucket_that_two_make_at_once_is_one_owners() {
    let server = server().await;
    let path = "/contested";
    let make = |who| server.send_as(who, Request { method: "PUT", path, ..Default::default() });
    server.hold_back("CreateContainer");
    let (first, second): (Answer, Answer) = tokio::join!(make(ACCESS_KEY), async {
        let _held = server.held_back().await;
        make(OTHER).await
    });
    assert_eq!(second.status, 200, "{}", second.text());
    assert_eq!((first.status, first.code().as_str()), (409, "BucketAlreadyExists"));
    for (who, status) in [(ACCESS_KEY, 403), (OTHER, 200)] {
        let put = Request { method: "PUT", path: "/contested/k", ..Default::default() };
        assert_eq!(server.send_as(who, put).await.status, status, "{who}");
    }
    assert_eq!(make(OTHER).await.status, 200, "made again by its owner");
}

/// Nor has one with object lock two: it is nobody's way to what another made.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_bucket_with_object_lock_that_two_make_at_once_is_one_owners() {
    let server = Server::on_with(Lane::Local, owners).await;
    let headers = [("x-amz-bucket-object-lock-enabled", "true")];
    for round in 0..40 {
        let path = format!("/locked-{round}");
        let make = |who| {
            let request =
                Request { method: "PUT", path: &path, headers: &headers, ..Default::default() };
            server.send_as(who, request)
        };
        let (first, second): (Answer, Answer) = tokio::join!(make(ACCESS_KEY), make(OTHER));
        let mut statuses = [first.status, second.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409], "{} {}", first.text(), second.text());
    }
}

/// Its container is made, and before that is noted it is everybody's.
#[tokio::test]
async fn what_others_set_up_on_a_bucket_that_is_being_made_does_not_stay() {
    let server = server().await;
    // With such a name the fake has only what somebody made.
    let path = "/missing-yet";
    let make = || server.send(Request { method: "PUT", path, ..Default::default() });
    let policy = br#"{"Statement": {"Effect": "Allow", "Principal": {"AWS": "OTHER"},
        "Action": "s3:*",
        "Resource": ["arn:aws:s3:::missing-yet", "arn:aws:s3:::missing-yet/*"]}}"#;
    server.hold_back("CreateContainer");
    let (made, set): (Answer, Answer) = tokio::join!(make(), async {
        let _held = server.held_back().await;
        let path = "/missing-yet?policy";
        let set = Request { method: "PUT", path, body: policy, ..Default::default() };
        server.send_as(OTHER, set).await
    });
    assert_eq!((made.status, set.status), (200, 204), "{} {}", made.text(), set.text());
    put(&server, "/missing-yet/k", b"secret", "private").await;
    let read = Request { path: "/missing-yet/k", ..Default::default() };
    assert_eq!(server.send_as(OTHER, read).await.status, 403);
    assert_eq!(server.get("/missing-yet?policy").await.code(), "NoSuchBucketPolicy");
}

/// Its container goes, and before its notes do somebody else makes a bucket of that name.
#[tokio::test]
async fn a_bucket_that_is_made_while_another_goes_keeps_its_owner() {
    let server = server().await;
    // With such a name the fake has only what somebody made.
    let path = "/missing-once-more";
    let made = Request { method: "PUT", path, ..Default::default() };
    assert_eq!(server.send(made).await.status, 200);
    server.hold_back("DeleteContainer");
    let remove = Request { method: "DELETE", path, ..Default::default() };
    let (removed, ()) = tokio::join!(server.send(remove), async {
        let _held = server.held_back().await;
        // Until the container is gone it is the other's.
        let make = || server.send_as(OTHER, Request { method: "PUT", path, ..Default::default() });
        while make().await.status != 200 {}
    });
    assert_eq!(removed.status, 204, "{}", removed.text());
    for (who, status) in [(ACCESS_KEY, 403), (OTHER, 200)] {
        let path = "/missing-once-more/k";
        let put = Request { method: "PUT", path, ..Default::default() };
        assert_eq!(server.send_as(who, put).await.status, status, "{who}");
    }
}

/// It was judged as its owner's, and is made anew by somebody else before it goes.
#[tokio::test]
async fn a_bucket_that_is_anothers_by_now_is_not_removed() {
    let server = server().await;
    // With such a name the fake has only what somebody made.
    let path = "/missing-by-then";
    let made = Request { method: "PUT", path, ..Default::default() };
    assert_eq!(server.send(made.clone()).await.status, 200);
    let remove = Request { method: "DELETE", path, ..Default::default() };
    // What the owner is judged by.
    server.hold_back("GetBlob");
    let (removed, ()) = tokio::join!(server.send(remove.clone()), async {
        let _held = server.held_back().await;
        assert_eq!(server.send(remove.clone()).await.status, 204);
        assert_eq!(server.send_as(OTHER, made.clone()).await.status, 200);
    });
    assert_eq!((removed.status, removed.code().as_str()), (409, "OperationAborted"));
    let head = Request { method: "HEAD", path, ..Default::default() };
    assert_eq!(server.send_as(OTHER, head.clone()).await.status, 200);
    assert_eq!(server.send(head).await.status, 403);
}

/// A container that nobody has noted is everybody's, and what they set up on it while it becomes
/// somebody's does not stay.
#[tokio::test]
async fn what_others_set_up_on_a_bucket_that_is_being_claimed_does_not_stay() {
    let server = server().await;
    let path = "/unclaimed";
    let policy = br#"{"Statement": {"Effect": "Allow", "Principal": {"AWS": "OTHER"},
        "Action": "s3:*", "Resource": ["arn:aws:s3:::unclaimed", "arn:aws:s3:::unclaimed/*"]}}"#;
    // The fake has every container that it is asked for.
    assert_eq!(server.get("/unclaimed?list-type=2").await.status, 200);
    server.hold_back("CreateContainer");
    let make = server.send(Request { method: "PUT", path, ..Default::default() });
    let (made, set): (Answer, Answer) = tokio::join!(make, async {
        let _held = server.held_back().await;
        let path = "/unclaimed?policy";
        let set = Request { method: "PUT", path, body: policy, ..Default::default() };
        server.send_as(OTHER, set).await
    });
    assert_eq!((made.status, set.status), (200, 204), "{} {}", made.text(), set.text());
    put(&server, "/unclaimed/k", b"secret", "private").await;
    let read = Request { path: "/unclaimed/k", ..Default::default() };
    assert_eq!(server.send_as(OTHER, read).await.status, 403);
}

//! Bodies that are held back until the bucket is another's: what was judged at the head counts for
//! the bucket that there was.

use crate::common::raw::begun_with;
use crate::common::{ACCESS_KEY, Answer, Lane, Request, SECRET_KEY, Server, read_answer, sign};
use penstock_base::Secret;
use penstock_gateway::{KeyPair, Options};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

on_lane!(local, Local: nobody_sets_up_a_bucket_that_is_anothers_by_now,
    a_batch_removes_nothing_of_it, nor_are_its_versions_suspended, nothing_is_written_there,
    nor_is_anything_there_retained);
on_lane!(azure, Azure: nobody_sets_up_a_bucket_that_is_anothers_by_now,
    a_batch_removes_nothing_of_it, nothing_is_written_there,
    where_a_body_ends_no_connection_is_waited_for);
on_lane!(s3, S3: where_a_body_ends_no_connection_is_waited_for);

const OTHER: &str = "OTHER";
const POLICY: &str = r#"{"Statement": {"Effect": "Allow", "Principal": {"AWS": "TESTACCESS"},
    "Action": "s3:*", "Resource": ["arn:aws:s3:::mine", "arn:aws:s3:::mine/*"]}}"#;
const LIST: &str = "<AccessControlPolicy><Owner><ID>TESTACCESS</ID></Owner><AccessControlList>\
    <Grant><Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" \
    xsi:type=\"CanonicalUser\"><ID>TESTACCESS</ID></Grantee><Permission>FULL_CONTROL</Permission>\
    </Grant></AccessControlList></AccessControlPolicy>";
const TAGS: &str = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
const SUSPENDED: &str =
    "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>";
const RETENTION: &str = "<Retention><Mode>GOVERNANCE</Mode>\
    <RetainUntilDate>2120-01-01T00:00:00Z</RetainUntilDate></Retention>";
const HOLD: &str = "<LegalHold><Status>ON</Status></LegalHold>";
/// Of a bucket with object lock.
const LOCKED: &[(&str, &str)] = &[("x-amz-bucket-object-lock-enabled", "true")];
const BATCH: &str = "<Delete><Object><Key>secret</Key></Object></Delete>";

fn owners(options: &mut Options) {
    options.serve.acl = "owners".to_string();
    options.keys.push(KeyPair::new(OTHER, Secret::new(SECRET_KEY)));
}

impl Server {
    async fn done(&self, who: &str, method: &str, path: &str, body: &[u8]) -> Answer {
        let request = Request { method, path, body, ..Default::default() };
        let answer = self.send_as(who, request).await;
        assert!(answer.status < 300, "{who} {method} {path}: {}", answer.text());
        answer
    }

    async fn makes(&self, who: &str, headers: &[(&str, &str)]) {
        let made = Request { method: "PUT", path: "/mine", headers, ..Default::default() };
        assert_eq!(self.send_as(who, made).await.status, 200);
    }

    /// As [`Server::held_until`], of a bucket without object lock.
    async fn held_without_lock(&self, method: &str, path: &str, body: &str) -> Answer {
        self.held_until(&[], method, path, body).await
    }

    /// Sends a request whose body comes once the bucket `mine` is the other's, with an object in
    /// it. That it is asked for tells that the head was judged.
    async fn held_until(
        &self,
        made: &[(&str, &str)],
        method: &str,
        path: &str,
        body: &str,
    ) -> Answer {
        let headers = [("expect", "100-continue")];
        let body = body.as_bytes();
        let request = Request { method, path, headers: &headers, body, ..Default::default() };
        let bytes = sign::signed(&request, &self.address.to_string(), SECRET_KEY, ACCESS_KEY);
        let (head, body) = bytes.split_at(bytes.len() - body.len());
        let mut stream = begun_with(self, head).await;
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            assert!(stream.read_buf(&mut asked).await.unwrap() > 0, "not asked for");
        }
        assert!(asked.starts_with(b"HTTP/1.1 100 "), "{}", String::from_utf8_lossy(&asked));
        self.done(ACCESS_KEY, "DELETE", "/mine", b"").await;
        self.makes(OTHER, made).await;
        self.done(OTHER, "PUT", "/mine/secret", b"secret").await;
        stream.write_all(body).await.unwrap();
        read_answer(&mut stream, false).await
    }

    async fn read_statuses(&self, path: &str) -> [u16; 2] {
        let ask = |who| self.send_as(who, Request { path, ..Default::default() });
        [ask(ACCESS_KEY).await.status, ask(OTHER).await.status]
    }
}

async fn nobody_sets_up_a_bucket_that_is_anothers_by_now(lane: Lane) {
    let server = Server::on_with(lane, owners).await;
    for (path, body) in [("/mine?policy", POLICY), ("/mine?acl", LIST), ("/mine?tagging", TAGS)] {
        server.done(ACCESS_KEY, "PUT", "/mine", b"").await;
        let answer = server.held_without_lock("PUT", path, body).await;
        assert_eq!((answer.status, answer.code().as_str()), (409, "OperationAborted"), "{path}");
        assert_eq!(server.read_statuses("/mine/secret").await, [403, 200], "{path}");
        assert_eq!(server.read_statuses("/mine?tagging").await, [403, 404], "{path}");
        server.done(OTHER, "DELETE", "/mine/secret", b"").await;
        server.done(OTHER, "DELETE", "/mine", b"").await;
    }
}

async fn a_batch_removes_nothing_of_it(lane: Lane) {
    let server = Server::on_with(lane, owners).await;
    for policy in [None, Some(POLICY)] {
        server.done(ACCESS_KEY, "PUT", "/mine", b"").await;
        if let Some(policy) = policy {
            server.done(ACCESS_KEY, "PUT", "/mine?policy", policy.as_bytes()).await;
        }
        let answer = server.held_without_lock("POST", "/mine?delete", BATCH).await;
        assert_eq!((answer.status, answer.code().as_str()), (409, "OperationAborted"));
        assert_eq!(server.read_statuses("/mine/secret").await, [403, 200]);
        server.done(OTHER, "DELETE", "/mine/secret", b"").await;
        server.done(OTHER, "DELETE", "/mine", b"").await;
    }
}

async fn nor_are_its_versions_suspended(lane: Lane) {
    let server = Server::on_with(lane, owners).await;
    server.done(ACCESS_KEY, "PUT", "/mine", b"").await;
    let answer = server.held_without_lock("PUT", "/mine?versioning", SUSPENDED).await;
    assert_eq!((answer.status, answer.code().as_str()), (409, "OperationAborted"));
}

/// What is done to the object in it. Whoever has been let in by a policy is not held against the
/// object's own list.
async fn nothing_is_written_there(lane: Lane) {
    let server = Server::on_with(lane, owners).await;
    let large = "x".repeat(300 << 10);
    let part = "/mine/secret?partNumber=1&uploadId=";
    for (path, body) in [
        ("/mine/secret", "stolen"),
        ("/mine/secret", large.as_str()),
        (part, "part"),
        (part, large.as_str()),
        ("/mine/secret?tagging", TAGS),
        ("/mine/secret?acl", LIST),
    ] {
        server.makes(ACCESS_KEY, &[]).await;
        server.done(ACCESS_KEY, "PUT", "/mine?policy", POLICY.as_bytes()).await;
        let begun = server.done(ACCESS_KEY, "POST", "/mine/secret?uploads", b"").await.text();
        let id = begun.split_once("<UploadId>").unwrap().1.split_once('<').unwrap().0;
        let full = if path == part { format!("{path}{id}") } else { path.to_string() };
        let answer = server.held_without_lock("PUT", &full, body).await;
        let found = (answer.status, answer.code());
        assert_eq!(found, (409, "OperationAborted".to_string()), "{path} {}", body.len());
        let ask = |path| server.send_as(OTHER, Request { path, ..Default::default() });
        assert_eq!(ask("/mine/secret").await.body, b"secret", "{path} {}", body.len());
        assert!(!ask("/mine/secret?tagging").await.text().contains("<Tag>"), "{path}");
        assert!(!ask("/mine/secret?acl").await.text().contains(ACCESS_KEY), "{path}");
        assert!(!ask("/mine?uploads").await.text().contains("<Upload>"), "{path}");
        server.done(OTHER, "DELETE", "/mine/secret", b"").await;
        server.done(OTHER, "DELETE", "/mine", b"").await;
    }
}

async fn nor_is_anything_there_retained(lane: Lane) {
    for (path, body) in [("/mine/secret?retention", RETENTION), ("/mine/secret?legal-hold", HOLD)] {
        let server = Server::on_with(lane, owners).await;
        server.makes(ACCESS_KEY, LOCKED).await;
        let answer = server.held_until(LOCKED, "PUT", path, body).await;
        assert_eq!((answer.status, answer.code().as_str()), (409, "OperationAborted"), "{path}");
        let told = server.send_as(OTHER, Request { path, ..Default::default() }).await;
        assert_eq!(told.code(), "NoSuchObjectLockConfiguration", "{path}: {}", told.text());
    }
}

/// Whose the bucket is, is asked while the back end still waits for the last of the body.
async fn where_a_body_ends_no_connection_is_waited_for(lane: Lane) {
    let server = Server::on_with(lane, |options| {
        owners(options);
        options.settings.connections_per_host = 1;
        options.serve.backend_deadline_ms = 4000;
    })
    .await;
    server.done(ACCESS_KEY, "PUT", "/mine", b"").await;
    let large = "x".repeat(1 << 20);
    server.done(ACCESS_KEY, "PUT", "/mine/large", large.as_bytes()).await;
    let begun = server.done(ACCESS_KEY, "POST", "/mine/parts?uploads", b"").await.text();
    let id = begun.split_once("<UploadId>").unwrap().1.split_once('<').unwrap().0;
    let part = format!("/mine/parts?partNumber=1&uploadId={id}");
    server.done(ACCESS_KEY, "PUT", &part, large.as_bytes()).await;
}

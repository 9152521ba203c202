//! Bodies that are held back until the bucket is another's: what was judged at the head counts for
//! the bucket that there was.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

mod common;

use common::raw::begun_with;
use common::{ACCESS_KEY, Answer, Lane, Request, SECRET_KEY, Server, read_answer, sign};
use penstock_base::Secret;
use penstock_gateway::{KeyPair, Options};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

on_lane!(local, Local: nobody_sets_up_a_bucket_that_is_anothers_by_now,
    a_batch_removes_nothing_of_it, nor_are_its_versions_suspended);
on_lane!(azure, Azure: nobody_sets_up_a_bucket_that_is_anothers_by_now,
    a_batch_removes_nothing_of_it);

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
const BATCH: &str = "<Delete><Object><Key>secret</Key></Object></Delete>";

fn owners(options: &mut Options) {
    options.serve.acl = "owners".to_string();
    options.keys.push(KeyPair::new(OTHER, Secret::new(SECRET_KEY)));
}

impl Server {
    async fn done(&self, who: &str, method: &str, path: &str, body: &[u8]) {
        let request = Request { method, path, body, ..Default::default() };
        let answer = self.send_as(who, request).await;
        assert!(answer.status < 300, "{who} {method} {path}: {}", answer.text());
    }

    /// Sends a request whose body comes once the bucket `mine` is the other's, with an object in
    /// it. That it is asked for tells that the head was judged.
    async fn held(&self, method: &str, path: &str, body: &str) -> Answer {
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
        self.done(OTHER, "PUT", "/mine", b"").await;
        self.done(OTHER, "PUT", "/mine/secret", b"secret").await;
        stream.write_all(body).await.unwrap();
        read_answer(&mut stream, false).await
    }

    async fn statuses(&self, path: &str) -> [u16; 2] {
        let ask = |who| self.send_as(who, Request { path, ..Default::default() });
        [ask(ACCESS_KEY).await.status, ask(OTHER).await.status]
    }
}

async fn nobody_sets_up_a_bucket_that_is_anothers_by_now(lane: Lane) {
    let server = Server::on_with(lane, owners).await;
    for (path, body) in [("/mine?policy", POLICY), ("/mine?acl", LIST), ("/mine?tagging", TAGS)] {
        server.done(ACCESS_KEY, "PUT", "/mine", b"").await;
        let answer = server.held("PUT", path, body).await;
        assert_eq!((answer.status, answer.code().as_str()), (409, "OperationAborted"), "{path}");
        assert_eq!(server.statuses("/mine/secret").await, [403, 200], "{path}");
        assert_eq!(server.statuses("/mine?tagging").await, [403, 404], "{path}");
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
        let answer = server.held("POST", "/mine?delete", BATCH).await;
        assert_eq!((answer.status, answer.code().as_str()), (409, "OperationAborted"));
        assert_eq!(server.statuses("/mine/secret").await, [403, 200]);
        server.done(OTHER, "DELETE", "/mine/secret", b"").await;
        server.done(OTHER, "DELETE", "/mine", b"").await;
    }
}

async fn nor_are_its_versions_suspended(lane: Lane) {
    let server = Server::on_with(lane, owners).await;
    server.done(ACCESS_KEY, "PUT", "/mine", b"").await;
    let answer = server.held("PUT", "/mine?versioning", SUSPENDED).await;
    assert_eq!((answer.status, answer.code().as_str()), (409, "OperationAborted"));
}

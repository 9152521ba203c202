//! Copies whose bytes come when their bucket is another's: what was judged at the head counts for
//! the bucket that there was.

use crate::common::raw::until;
use crate::common::{ACCESS_KEY, Answer, Lane, Request, SECRET_KEY, Server, s3};
use penstock_base::Secret;
use penstock_gateway::{BackendOptions, BucketOptions, KeyPair, Options};
use penstock_testkit::fake::{FakeHandle, FakeOptions, FakeS3};

on_lane!(local, Local: no_copy_is_put_there, a_copy_costs_one_look_at_the_bucket_more);
on_lane!(azure, Azure: no_copy_is_put_there, nor_is_a_copied_part,
    a_copy_costs_one_look_at_the_bucket_more);
on_lane!(s3, S3: nor_is_a_copied_part);

const OTHER: &str = "OTHER";

/// A gateway where keys are owners, with a bucket `from` on a service of its own.
struct World {
    server: Server,
    from: FakeHandle,
}

impl World {
    async fn on(lane: Lane) -> Self {
        let from = FakeS3::start(FakeOptions::s3()).unwrap();
        let there = BackendOptions { name: "there".to_string(), is_dynamic: false, ..s3(&from) };
        let server = Server::on_with(lane, |options: &mut Options| {
            options.serve.acl = "owners".to_string();
            options.keys.push(KeyPair::new(OTHER, Secret::new(SECRET_KEY)));
            options.backends.push(there);
            let (name, backend) = ("from".to_string(), "there".to_string());
            options.buckets.push(BucketOptions { name, backend, ..Default::default() });
        })
        .await;
        World { server, from }
    }

    async fn done(&self, who: &str, method: &str, path: &str, body: &[u8]) -> Answer {
        let request = Request { method, path, body, ..Default::default() };
        let answer = self.server.send_as(who, request).await;
        assert!(answer.status < 300, "{who} {method} {path}: {}", answer.text());
        answer
    }

    /// Copies `from/k` there; the first of its bytes come once the bucket `mine` is the other's.
    async fn held(&self, path: &str) -> Answer {
        self.from.fault("latency=60000,op=GetObject,key=*k,times=1");
        let headers = [("x-amz-copy-source", "from/k")];
        let copy = Request { method: "PUT", path, headers: &headers, ..Default::default() };
        let (answer, ()) = tokio::join!(self.server.send(copy), async {
            let faults = self.from.faults();
            until("the request", async || faults.fired() == [1]).await;
            self.done(ACCESS_KEY, "DELETE", "/mine", b"").await;
            self.done(OTHER, "PUT", "/mine", b"").await;
            faults.clear();
        });
        answer
    }
}

async fn no_copy_is_put_there(lane: Lane) {
    let world = World::on(lane).await;
    for size in [0, 1, 300 << 10] {
        world.done(ACCESS_KEY, "PUT", "/from/k", &vec![b'x'; size]).await;
        world.done(ACCESS_KEY, "PUT", "/mine", b"").await;
        let answer = world.held("/mine/copy").await;
        let found = (answer.status, answer.code());
        assert_eq!(found, (409, "OperationAborted".to_string()), "{size}");
        let list = world.done(OTHER, "GET", "/mine?list-type=2", b"").await.text();
        assert!(!list.contains("<Key>"), "{size}: {list}");
        world.done(OTHER, "DELETE", "/mine", b"").await;
    }
}

async fn nor_is_a_copied_part(lane: Lane) {
    let world = World::on(lane).await;
    for size in [1, 300 << 10] {
        world.done(ACCESS_KEY, "PUT", "/from/k", &vec![b'x'; size]).await;
        world.done(ACCESS_KEY, "PUT", "/mine", b"").await;
        let begun = world.done(ACCESS_KEY, "POST", "/mine/copy?uploads", b"").await.text();
        let id = begun.split_once("<UploadId>").unwrap().1.split_once('<').unwrap().0;
        let answer = world.held(&format!("/mine/copy?partNumber=1&uploadId={id}")).await;
        let found = (answer.status, answer.code());
        assert_eq!(found, (409, "OperationAborted".to_string()), "{size}");
        let list = world.done(OTHER, "GET", "/mine?uploads", b"").await.text();
        assert!(!list.contains("<Upload>"), "{size}: {list}");
        world.done(OTHER, "DELETE", "/mine", b"").await;
    }
}

/// Where nothing comes between it is made, of however many bytes.
async fn a_copy_costs_one_look_at_the_bucket_more(lane: Lane) {
    let world = World::on(lane).await;
    world.done(ACCESS_KEY, "PUT", "/mine", b"").await;
    for size in [0, 1, 300 << 10] {
        let body = vec![b'x'; size];
        world.done(ACCESS_KEY, "PUT", "/from/k", &body).await;
        let headers = [("x-amz-copy-source", "from/k")];
        let path = "/mine/copy";
        let before = world.server.fake.as_ref().map(|_| world.server.backend_requests());
        let copy = Request { method: "PUT", path, headers: &headers, ..Default::default() };
        let copied = world.server.send(copy).await;
        assert_eq!(copied.status, 200, "{size}: {}", copied.text());
        if let Some(before) = before {
            let requests = world.server.backend_requests() - before;
            assert_eq!(requests, 3, "{size}: notes, notes, and the object");
        }
        assert!(world.done(ACCESS_KEY, "GET", path, b"").await.body == body, "{size}");
    }
}

//! Many back ends behind one endpoint, as a config file has them.

use crate::common::{ACCESS_KEY, Answer, Dir, Request, SECRET_KEY, Server, serve_settings, sign};
use penstock_base::Settings;
use penstock_gateway::{Config, Options, Surroundings};
use penstock_testkit::fake::{FakeAzure, FakeHandle, FakeOptions, FakeS3};

struct World {
    server: Server,
    azure: FakeHandle,
    s3: FakeHandle,
}

/// A directory, an Azure account and an S3 service; the directory takes the buckets that nobody
/// named.
async fn world() -> World {
    world_with("").await
}

/// The same, with more settings.
async fn world_with(settings: &str) -> World {
    let azure = FakeAzure::start(FakeOptions::azure()).unwrap();
    let s3 = FakeS3::start(FakeOptions::s3()).unwrap();
    let dir = Dir::new();
    let text = format!(
        r#"
listen = "127.0.0.1:0"
request_deadline_ms = 20000
{settings}

[[backend]]
name = "disk"
url = "file://{}"
dynamic = true

[[backend]]
name = "blob"
url = "az://"
connection_string = "{}"

[[backend]]
name = "amazon"
url = "s3://"
endpoint = "{}"
key_id = "test"
secret = "test"
region = "us-east-1"
url_style = "path"

[[bucket]]
name = "raw"
backend = "blob"
container = "lake"
aliases = ["old-raw"]

[[bucket]]
name = "team"
backend = "blob"
container = "lake"
prefix = "team/a/"

[[bucket]]
name = "archive"
backend = "amazon"
container = "cold"

[[bucket]]
name = "public"
backend = "amazon"
container = "cold"
read_only = true

[[bucket]]
name = "below"
backend = "amazon"
container = "cold"
prefix = "below/"

[[key]]
access_key = "{ACCESS_KEY}"
secret_key = "{SECRET_KEY}"

[[key]]
access_key = "SECOND"
secret_key = "other-secret"
"#,
        dir.served().display(),
        azure.connection_string(),
        s3.endpoint(),
    );
    let config = Config::parse(&text, &Surroundings).unwrap();
    let (mut settings, mut serve) = (Settings::default(), serve_settings());
    for (name, value) in &config.settings {
        settings.set(name, value).or_else(|_| serve.set(name, value)).unwrap();
    }
    let options = Options {
        backends: config.backends,
        buckets: config.buckets,
        settings,
        serve,
        keys: config.keys,
        public: config.public,
        cors: config.cors,
    };
    World { server: Server::start_with(dir, options).await, azure, s3 }
}

fn keys_of(listing: &Answer) -> Vec<String> {
    let text = listing.text();
    let cut = |part: &str| part.split("</Key>").next().unwrap_or_default().to_string();
    text.split("<Key>").skip(1).map(cut).collect()
}

#[tokio::test]
async fn buckets_lead_to_their_places() {
    let world = world().await;
    let server = &world.server;
    for path in ["/lake/on-disk", "/raw/k", "/team/x/1", "/team/x/2", "/team/y", "/archive/k"] {
        assert_eq!(server.put(path, path.as_bytes()).await.status, 200, "{path}");
    }
    let everything = server.get("/raw?list-type=2").await;
    assert_eq!(keys_of(&everything), ["k", "team/a/x/1", "team/a/x/2", "team/a/y"]);
    assert_eq!(server.get("/old-raw/team/a/y").await.text(), "/team/y");
    assert_eq!(keys_of(&server.get("/team?list-type=2").await), ["x/1", "x/2", "y"]);
    let folded = server.get("/team?list-type=2&delimiter=%2F&max-keys=1").await;
    assert!(folded.text().contains("<CommonPrefixes><Prefix>x/</Prefix>"), "{}", folded.text());
    let text = folded.text();
    let (_, rest) = text.split_once("<NextContinuationToken>").unwrap();
    let token = rest.split('<').next().unwrap();
    let next =
        server.get(&format!("/team?continuation-token={token}&delimiter=%2F&list-type=2")).await;
    assert_eq!(keys_of(&next), ["y"], "{}", next.text());
    let after = server.get("/team?list-type=2&start-after=x%2F1").await;
    assert_eq!(keys_of(&after), ["x/2", "y"]);
    assert_eq!(server.get("/public/k").await.text(), "/archive/k");
    let refused = server.put("/public/k", b"no").await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "AccessDenied"));
    let buckets = server.get("/").await.text();
    for name in ["archive", "lake", "old-raw", "public", "raw", "team"] {
        assert!(buckets.contains(&format!("<Name>{name}</Name>")), "{name}: {buckets}");
    }
}

/// Clients such as the AWS CLI take the date of every bucket for granted.
#[tokio::test]
async fn every_bucket_of_a_list_has_a_date() {
    let world = world_with("").await;
    let lake = world.server.dir.served().join("lake");
    let text = world.server.get("/").await.text();
    let dated = |name: &str| {
        let (_, rest) = text.split_once(&format!("<Name>{name}</Name>")).unwrap();
        let bucket = text.split("<Bucket>").find(|it| it.contains(&format!(">{name}<")));
        let date = bucket.and_then(|it| it.split_once("<CreationDate>")).map(|it| it.1);
        let date = date.and_then(|it| it.split_once('<')).map(|it| it.0.to_string());
        date.unwrap_or_else(|| panic!("{name} has no date: {rest}"))
    };
    let about = std::fs::metadata(&lake).unwrap();
    let made = about.created().or_else(|_| about.modified()).unwrap();
    let made = made.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let second = |date: String| date.parse::<jiff::Timestamp>().unwrap().as_second();
    assert_eq!(second(dated("lake")), made as i64, "the directory's own");
    for name in ["archive", "below", "old-raw", "public", "raw", "team"] {
        assert!(second(dated(name)) >= made as i64, "{name}: the gateway's start");
    }
    let dates = text.matches("<CreationDate>").count();
    assert_eq!(dates, text.matches("<Bucket>").count());
}

#[tokio::test]
async fn copies_cross_back_ends() {
    let world = world().await;
    let server = &world.server;
    let body = vec![b'c'; 2 << 20];
    let headers = [("content-type", "text/csv"), ("x-amz-meta-my-key", "kept")];
    let put = Request {
        method: "PUT",
        path: "/lake/source",
        headers: &headers,
        body: &body,
        ..Default::default()
    };
    assert_eq!(server.send(put).await.status, 200);
    for (from, to) in [
        ("/lake/source", "/raw/one"),
        ("/raw/one", "/archive/two"),
        ("/archive/two", "/team/three"),
    ] {
        let headers = [("x-amz-copy-source", from)];
        let copy = Request { method: "PUT", path: to, headers: &headers, ..Default::default() };
        let copied = server.send(copy).await;
        assert_eq!(copied.status, 200, "{to}: {}", copied.text());
        let got = server.get(to).await;
        assert!(got.body == body, "{to}: the bytes differ");
        assert_eq!(got.header("content-type"), "text/csv", "{to}");
        assert_eq!(got.header("x-amz-meta-my-key"), "kept", "{to}");
    }
}

/// A copy that streams from one back end to another, slower than its client waits for a first word.
#[tokio::test]
async fn a_copy_between_back_ends_is_answered_before_it_ends() {
    let world = world_with("completion_quiet_ms = 100").await;
    let server = &world.server;
    assert_eq!(server.put("/archive/from", b"bytes").await.status, 200);
    let begun = Request { method: "POST", path: "/raw/whole?uploads", ..Default::default() };
    let text = server.send(begun).await.text();
    let id = text.split_once("<UploadId>").unwrap().1.split_once('<').unwrap().0;
    let part = format!("/raw/whole?partNumber=1&uploadId={id}");
    // Longer than it takes until a client is told for the first time to go on waiting.
    world.azure.fault("latency=1500,method=PUT");
    for (path, root) in [("/raw/to", "CopyObjectResult"), (&part, "CopyPartResult")] {
        let headers = [("x-amz-copy-source", "/archive/from")];
        let copy = Request { method: "PUT", path, headers: &headers, ..Default::default() };
        let copied = server.send(copy).await;
        assert_eq!((copied.status, copied.code().as_str()), (200, ""), "{}", copied.text());
        let text = copied.text();
        assert!(text.starts_with("<?xml") && text.contains(&format!(" <{root}>")), "{text}");
    }
    assert_eq!(server.get("/raw/to").await.body, b"bytes");
    world.azure.fault("status=403,method=PUT");
    let headers = [("x-amz-copy-source", "/archive/from")];
    let (method, path) = ("PUT", "/raw/refused");
    let refused = server.send(Request { method, path, headers: &headers, ..Default::default() });
    let refused = refused.await;
    assert_eq!((refused.status, refused.code().as_str()), (200, "AccessDenied"));
    assert_eq!(server.get("/raw/refused").await.status, 404);
}

#[tokio::test]
async fn retries_are_those_of_the_back_end_that_failed() {
    let world = world().await;
    let server = &world.server;
    assert_eq!(server.put("/raw/k", b"azure").await.status, 200);
    assert_eq!(server.put("/archive/k", b"amazon").await.status, 200);
    world.s3.fault("status=500,times=2");
    world.azure.fault("status=500,times=1");
    assert_eq!(server.get("/archive/k").await.text(), "amazon");
    assert_eq!(server.get("/raw/k").await.text(), "azure");
    let page = server.admin_page("/metrics").await.text();
    for (name, count) in [("disk", 0), ("blob", 1), ("amazon", 2)] {
        let line = format!("penstock_backend_retries_total{{backend=\"{name}\"}} {count}");
        assert!(page.lines().any(|found| found == line), "{line} is missing in\n{page}");
    }
}

#[tokio::test]
async fn buckets_are_made_and_removed_where_nobody_named_them() {
    let world = world().await;
    let server = &world.server;
    let ask = async |method: &str, path: &str| {
        server.send(Request { method, path, ..Default::default() }).await
    };
    assert_eq!(ask("PUT", "/fresh").await.status, 200);
    assert!(server.dir.served().join("fresh").is_dir());
    assert_eq!(ask("HEAD", "/fresh").await.status, 200);
    assert_eq!(ask("DELETE", "/fresh").await.status, 204);
    assert_eq!(ask("HEAD", "/fresh").await.status, 404);
    let fixed = ask("DELETE", "/raw").await;
    assert_eq!((fixed.status, fixed.code().as_str()), (403, "AccessDenied"));
}

#[tokio::test]
async fn names_that_the_gateway_keeps_are_told() {
    let server = Server::start().await;
    for name in ["healthz", "readyz", "metrics"] {
        let refused = server.put(&format!("/{name}"), b"").await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "InvalidBucketName"));
        assert!(refused.text().contains("healthz, readyz, metrics"), "{}", refused.text());
    }
    let refused = server.put("/OTHER", b"").await;
    assert!(!refused.text().contains("healthz"), "{}", refused.text());
}

#[tokio::test]
async fn every_key_of_the_file_signs() {
    let world = world().await;
    let server = &world.server;
    let request = Request { path: "/lake?list-type=2", ..Default::default() };
    let host = server.address.to_string();
    let second = sign::signed(&request, &host, "other-secret", "SECOND");
    assert_eq!(server.send_raw(&second).await.status, 200);
    let mixed = sign::signed(&request, &host, SECRET_KEY, "SECOND");
    assert_eq!(server.send_raw(&mixed).await.code(), "SignatureDoesNotMatch");
}

/// Services of S3's interface that keep files, and proxies, take `below/../k` for `k`.
#[tokio::test]
async fn no_key_leads_out_of_a_prefix() {
    let world = world().await;
    let server = &world.server;
    assert_eq!(server.put("/below/k", b"1").await.status, 200);
    let refused = |answer: Answer| {
        let told = (answer.status, answer.code());
        assert_eq!(told, (400, "InvalidArgument".to_string()), "{}", answer.text());
    };
    world.s3.reset_stats();
    for key in ["../k", "a/../../k", "./k", "a/..", "a/."] {
        let path = format!("/below/{key}");
        refused(server.put(&path, b"2").await);
        refused(server.get(&path).await);
        refused(server.send(Request { method: "DELETE", path: &path, ..Default::default() }).await);
        let uploads = format!("{path}?uploads");
        let begun = Request { method: "POST", path: &uploads, ..Default::default() };
        refused(server.send(begun).await);
        let from = path.clone();
        let headers = [("x-amz-copy-source", from.as_str())];
        let copy =
            Request { method: "PUT", path: "/below/c", headers: &headers, ..Default::default() };
        refused(server.send(copy).await);
    }
    let batch = "<Delete><Object><Key>../k</Key></Object></Delete>";
    let path = "/below?delete";
    let batch = Request { method: "POST", path, body: batch.as_bytes(), ..Default::default() };
    let answer = server.send(batch).await;
    assert!(answer.text().contains("<Code>InvalidArgument</Code>"), "{}", answer.text());
    assert_eq!(world.s3.requests(), [], "the service was asked");
    assert_eq!(server.put("/below/...", b"3").await.status, 200);
    // Where a bucket is all of a container there is nothing to leave.
    assert_eq!(server.put("/archive/a/../k", b"4").await.status, 200);
}

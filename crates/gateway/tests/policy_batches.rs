//! Batches of removals under a bucket's policy, and policies that ask for tags.

use crate::common::{ACCESS_KEY, Lane, Request, SECRET_KEY, Server};
use penstock_base::Secret;
use penstock_gateway::{KeyPair, Options};

on_every_lane!(
    ;
    // Nothing is kept there of a bucket: policies and lists are refused.
    but_google:
    a_batch_is_judged_object_by_object,
    without_a_policy_a_batch_is_judged_whole,
    tags_are_asked_for_each_object,
);
on_lane!(trouble_azure, Azure: tags_that_cannot_be_read_deny);
on_lane!(trouble_s3, S3: tags_that_cannot_be_read_deny);
on_lane!(versions_local, Local: a_version_in_a_batch_takes_the_right_to_versions,
    going_past_governance_is_judged_object_by_object);

const OTHER: &str = "OTHER";

fn owners(options: &mut Options) {
    options.serve.acl = "owners".to_string();
    options.serve.backend_deadline_ms = 300;
    options.keys.push(KeyPair::new(OTHER, Secret::new(SECRET_KEY)));
}

/// With a bucket of the main key's, these objects in it, and a policy.
async fn with_policy(lane: Lane, keys: &[&str], policy: &str) -> Server {
    let server = Server::on_with(lane, owners).await;
    let made = [("x-amz-acl", "private")];
    send(&server, ACCESS_KEY, ("PUT", "/mine"), &made, "").await;
    for key in keys {
        send(&server, ACCESS_KEY, ("PUT", &format!("/mine/{key}")), &[], "bytes").await;
    }
    if !policy.is_empty() {
        send(&server, ACCESS_KEY, ("PUT", "/mine?policy"), &[], policy).await;
    }
    server
}

async fn send(
    server: &Server,
    who: &str,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: &str,
) -> String {
    let body = body.as_bytes();
    let answer = server.send_as(who, Request { method, path, headers, body, ..Default::default() });
    let answer = answer.await;
    assert!(answer.status < 300, "{method} {path}: {}", answer.text());
    answer.text()
}

/// What a batch says of each object: its key, and the code or nothing.
async fn remove(server: &Server, who: &str, objects: &[&str]) -> Vec<(String, String)> {
    remove_with(server, who, objects, &[]).await
}

async fn remove_with(
    server: &Server,
    who: &str,
    objects: &[&str],
    headers: &[(&str, &str)],
) -> Vec<(String, String)> {
    let object = |key: &&str| match key.split_once('?') {
        None => format!("<Object><Key>{key}</Key></Object>"),
        Some((key, version)) => {
            format!("<Object><Key>{key}</Key><VersionId>{version}</VersionId></Object>")
        }
    };
    let body: String = objects.iter().map(object).collect();
    let body = format!("<Delete>{body}</Delete>");
    let text = send(server, who, ("POST", "/mine?delete"), headers, &body).await;
    let part = |text: &str, name: &str| {
        let behind = text.split_once(&format!("<{name}>")).map(|parts| parts.1);
        behind.and_then(|it| it.split_once("</")).map_or(String::new(), |it| it.0.to_string())
    };
    let mut told: Vec<_> = ["<Deleted>", "<Error>"]
        .iter()
        .flat_map(|tag| text.split(tag).skip(1).collect::<Vec<_>>())
        .map(|entry| (part(entry, "Key"), part(entry.split("</Deleted>").next().unwrap(), "Code")))
        .collect();
    told.sort();
    told
}

async fn statuses(server: &Server, keys: &[&str]) -> Vec<u16> {
    let mut found = Vec::new();
    for key in keys {
        found.push(server.get(&format!("/mine/{key}")).await.status);
    }
    found
}

fn told(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    rows.iter().map(|(key, code)| (key.to_string(), code.to_string())).collect()
}

const DENIED: &str = "AccessDenied";

async fn a_batch_is_judged_object_by_object(lane: Lane) {
    let policy = r#"{"Statement": [
        {"Effect": "Allow", "Principal": {"AWS": "OTHER"}, "Action": "s3:DeleteObject",
         "Resource": "arn:aws:s3:::mine/open/*"},
        {"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteObject",
         "Resource": "arn:aws:s3:::mine/open/keep/*"}]}"#;
    let keys = ["a", "open/a", "open/b", "open/keep/c"];
    let server = with_policy(lane, &keys, policy).await;
    let told_other = remove(&server, OTHER, &keys[..3]).await;
    assert_eq!(told_other, told(&[("a", DENIED), ("open/a", ""), ("open/b", "")]));
    // The owner is held back by what is denied to everybody, and by nothing else.
    let told_owner = remove(&server, ACCESS_KEY, &["a", "open/keep/c"]).await;
    assert_eq!(told_owner, told(&[("a", ""), ("open/keep/c", DENIED)]));
    assert_eq!(statuses(&server, &keys).await, [404, 404, 404, 200]);
}

async fn without_a_policy_a_batch_is_judged_whole(lane: Lane) {
    let server = with_policy(lane, &["a"], "").await;
    let body = b"<Delete><Object><Key>a</Key></Object></Delete>";
    let batch = Request { method: "POST", path: "/mine?delete", body, ..Default::default() };
    let answer = server.send_as(OTHER, batch).await;
    assert_eq!((answer.status, answer.code().as_str()), (403, DENIED));
    assert_eq!(remove(&server, ACCESS_KEY, &["a"]).await, told(&[("a", "")]));
}

const TAGGED: &str = r#"{"Statement": {"Effect": "Deny", "Principal": "*", "Action": "s3:*Object",
    "Resource": "arn:aws:s3:::mine/*",
    "Condition": {"StringEquals": {"s3:ExistingObjectTag/keep": "yes"}}}}"#;

async fn tags_are_asked_for_each_object(lane: Lane) {
    let server = with_policy(lane, &["a"], TAGGED).await;
    let tags = [("x-amz-tagging", "keep=yes")];
    send(&server, ACCESS_KEY, ("PUT", "/mine/b"), &tags, "bytes").await;
    let found = remove(&server, ACCESS_KEY, &["a", "b", "absent"]).await;
    assert_eq!(found, told(&[("a", ""), ("absent", ""), ("b", DENIED)]));
}

async fn tags_that_cannot_be_read_deny(lane: Lane) {
    let server = with_policy(lane, &["a"], TAGGED).await;
    assert_eq!(statuses(&server, &["a"]).await, [200]);
    let operation = if lane == Lane::Azure { "GetBlobTags" } else { "GetObjectTagging" };
    server.fake.as_ref().unwrap().fault(&format!("status=503,op={operation}"));
    assert_eq!(statuses(&server, &["a"]).await, [503]);
    let found = remove(&server, ACCESS_KEY, &["a"]).await;
    assert!(found.len() == 1 && !found[0].1.is_empty(), "{found:?}");
    server.fake.as_ref().unwrap().faults().clear();
    assert_eq!(statuses(&server, &["a"]).await, [200]);
}

async fn a_version_in_a_batch_takes_the_right_to_versions(lane: Lane) {
    let policy = r#"{"Statement": {"Effect": "Deny", "Principal": "*",
        "Action": "s3:DeleteObjectVersion", "Resource": "arn:aws:s3:::mine/*"}}"#;
    let server = with_policy(lane, &[], policy).await;
    let versioning = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    send(&server, ACCESS_KEY, ("PUT", "/mine?versioning"), &[], versioning).await;
    let put = server.put("/mine/k", b"bytes").await;
    let object = format!("k?{}", put.header("x-amz-version-id"));
    assert_eq!(remove(&server, ACCESS_KEY, &[&object]).await, told(&[("k", DENIED)]));
    assert_eq!(remove(&server, ACCESS_KEY, &["k"]).await, told(&[("k", "")]));
}

async fn going_past_governance_is_judged_object_by_object(lane: Lane) {
    let server = Server::on_with(lane, owners).await;
    let locked = [("x-amz-acl", "private"), ("x-amz-bucket-object-lock-enabled", "true")];
    send(&server, ACCESS_KEY, ("PUT", "/mine"), &locked, "").await;
    let policy = r#"{"Statement": {"Effect": "Deny", "Principal": "*",
        "Action": "s3:BypassGovernanceRetention", "Resource": "arn:aws:s3:::mine/keep/*"}}"#;
    send(&server, ACCESS_KEY, ("PUT", "/mine?policy"), &[], policy).await;
    let headers = [
        ("x-amz-object-lock-mode", "GOVERNANCE"),
        ("x-amz-object-lock-retain-until-date", "2120-01-01T00:00:00Z"),
    ];
    let mut objects = Vec::new();
    for key in ["free", "keep/a"] {
        let path = format!("/mine/{key}");
        let put = Request { method: "PUT", path: &path, headers: &headers, ..Default::default() };
        let put = server.send(Request { body: b"bytes", ..put }).await;
        assert_eq!(put.status, 200, "{}", put.text());
        objects.push(format!("{key}?{}", put.header("x-amz-version-id")));
    }
    let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
    let held = told(&[("free", DENIED), ("keep/a", DENIED)]);
    assert_eq!(remove(&server, ACCESS_KEY, &objects).await, held);
    let bypass = [("x-amz-bypass-governance-retention", "true")];
    let found = remove_with(&server, ACCESS_KEY, &objects, &bypass).await;
    assert_eq!(found, told(&[("free", ""), ("keep/a", DENIED)]));
}

//! Object lock: what a directory keeps, and what is refused by name elsewhere.

use crate::common::{Answer, Dir, Lane, Request, SECRET_KEY, Server, options};
use penstock_base::Secret;
use penstock_gateway::{BucketOptions, Grant, KeyPair, Options, Pattern, Rights};

/// Long after these tests.
const UNTIL: &str = "2120-01-01T00:00:00Z";
const LATER: &str = "2121-01-01T00:00:00Z";
const LOCK: (&str, &str) = ("x-amz-bucket-object-lock-enabled", "true");
const BYPASS: (&str, &str) = ("x-amz-bypass-governance-retention", "true");

impl Server {
    async fn send_text(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        self.send(Request { method, path, headers, body: body.as_bytes(), ..Default::default() })
            .await
    }

    /// Sets the retention of a version, and gives the code of the answer.
    async fn retain(&self, path: &str, mode: &str, until: &str, bypasses: bool) -> String {
        let body = format!(
            "<Retention><Mode>{mode}</Mode><RetainUntilDate>{until}</RetainUntilDate></Retention>"
        );
        let headers: &[_] = if bypasses { &[BYPASS] } else { &[] };
        code(&self.send_text("PUT", &with(path, "retention"), headers, &body).await)
    }

    async fn set_legal_hold(&self, path: &str, status: &str) -> String {
        let body = format!("<LegalHold><Status>{status}</Status></LegalHold>");
        code(&self.send_text("PUT", &with(path, "legal-hold"), &[], &body).await)
    }

    async fn remove(&self, path: &str, headers: &[(&str, &str)]) -> String {
        code(&self.send_text("DELETE", path, headers, "").await)
    }
}

fn with(path: &str, subresource: &str) -> String {
    format!("{path}{}{subresource}", if path.contains('?') { "&" } else { "?" })
}

/// The code of a refusal, the status of anything else.
fn code(answer: &Answer) -> String {
    match answer.status < 300 {
        true => answer.status.to_string(),
        false => answer.code(),
    }
}

fn version(key: &str, answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text());
    format!("{key}?versionId={}", answer.header("x-amz-version-id"))
}

async fn locked() -> Server {
    let server = Server::start().await;
    assert_eq!(code(&server.send_text("PUT", "/safe", &[LOCK], "").await), "200");
    server
}

#[tokio::test]
async fn a_retained_version_stays() {
    let server = locked().await;
    assert!(server.get("/safe?versioning").await.text().contains("<Status>Enabled</Status>"));
    let path = version("/safe/k", &server.put("/safe/k", b"kept").await);
    assert_eq!(server.get(&with(&path, "retention")).await.code(), "NoSuchObjectLockConfiguration");
    assert_eq!(server.retain(&path, "GOVERNANCE", UNTIL, false).await, "200");
    let told = server.get("/safe/k?retention").await.text();
    assert!(told.contains("<Mode>GOVERNANCE</Mode>") && told.contains("2120-01-01"), "{told}");
    let head = server.get("/safe/k").await;
    assert_eq!(head.header("x-amz-object-lock-mode"), "GOVERNANCE");
    assert!(head.header("x-amz-object-lock-retain-until-date").starts_with("2120-01-01T00:00:00"));
    assert_eq!(server.remove(&path, &[]).await, "AccessDenied");
    // Nor may it be shortened, or given another mode; it may grow.
    assert_eq!(
        server.retain(&path, "GOVERNANCE", "2119-01-01T00:00:00Z", false).await,
        "AccessDenied"
    );
    assert_eq!(server.retain(&path, "COMPLIANCE", UNTIL, false).await, "AccessDenied");
    assert_eq!(server.retain(&path, "GOVERNANCE", LATER, false).await, "200");
    // A delete marker hides it, and can go.
    let marker = server.send_text("DELETE", "/safe/k", &[], "").await;
    let marker = format!("/safe/k?versionId={}", marker.header("x-amz-version-id"));
    assert_eq!(server.get(&path).await.body, b"kept");
    assert_eq!(server.remove(&path, &[]).await, "AccessDenied", "an earlier version too");
    assert_eq!(server.set_legal_hold(&marker, "ON").await, "MethodNotAllowed");
    assert_eq!(server.remove(&marker, &[]).await, "204");
    assert_eq!(server.remove(&path, &[BYPASS]).await, "204");
    assert_eq!(server.get("/safe/k").await.status, 404);
}

#[tokio::test]
async fn compliance_and_holds_know_no_bypass() {
    let server = locked().await;
    let headers =
        [("x-amz-object-lock-mode", "COMPLIANCE"), ("x-amz-object-lock-retain-until-date", UNTIL)];
    let firm = version("/safe/firm", &server.send_text("PUT", "/safe/firm", &headers, "x").await);
    assert_eq!(server.remove(&firm, &[BYPASS]).await, "AccessDenied");
    assert_eq!(server.retain(&firm, "GOVERNANCE", LATER, true).await, "AccessDenied");
    assert_eq!(server.retain(&firm, "COMPLIANCE", LATER, false).await, "200");
    let hold = [("x-amz-object-lock-legal-hold", "ON")];
    let held = version("/safe/held", &server.send_text("PUT", "/safe/held", &hold, "x").await);
    assert_eq!(server.get("/safe/held").await.header("x-amz-object-lock-legal-hold"), "ON");
    assert_eq!(server.remove(&held, &[BYPASS]).await, "AccessDenied");
    assert_eq!(server.set_legal_hold(&held, "OFF").await, "200");
    assert!(server.get(&with(&held, "legal-hold")).await.text().contains("<Status>OFF</Status>"));
    assert_eq!(server.remove(&held, &[]).await, "204");
    // A batch tells each by itself.
    let batch = |id: &str| {
        let id = id.split_once('=').unwrap().1;
        format!("<Object><Key>firm</Key><VersionId>{id}</VersionId></Object>")
    };
    let body = format!("<Delete>{}<Object><Key>other</Key></Object></Delete>", batch(&firm));
    let told = server.send_text("POST", "/safe?delete", &[BYPASS], &body).await.text();
    assert!(
        told.contains("<Code>AccessDenied</Code>") && told.contains("<Key>other</Key>"),
        "{told}"
    );
    assert_eq!(server.get(&firm).await.status, 200);
    assert_eq!(server.remove("/safe", &[]).await, "BucketNotEmpty");
}

#[tokio::test]
async fn a_rule_locks_what_asks_for_nothing_else() {
    let server = locked().await;
    let rule = |period: &str| {
        format!(
            "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule>\
             <DefaultRetention><Mode>GOVERNANCE</Mode>{period}</DefaultRetention></Rule>\
             </ObjectLockConfiguration>"
        )
    };
    for (period, refusal) in [
        ("<Days>0</Days>", "InvalidRetentionPeriod"),
        ("<Days>1</Days><Years>1</Years>", "MalformedXML"),
        ("", "MalformedXML"),
    ] {
        let answer = server.send_text("PUT", "/safe?object-lock", &[], &rule(period)).await;
        assert_eq!(answer.code(), refusal, "{period}");
    }
    let set = server.send_text("PUT", "/safe?object-lock", &[], &rule("<Days>7</Days>")).await;
    assert_eq!(set.status, 200, "{}", set.text());
    assert!(server.get("/safe?object-lock").await.text().contains("<Days>7</Days>"));
    let put = version("/safe/put", &server.put("/safe/put", b"x").await);
    let from = [("x-amz-copy-source", "safe/put")];
    let copy = version("/safe/copy", &server.send_text("PUT", "/safe/copy", &from, "").await);
    // An upload gets its retention when it is completed.
    let begun = server.send_text("POST", "/safe/upload?uploads", &[], "").await.text();
    let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap().to_string();
    let part = server.put(&format!("/safe/upload?partNumber=1&uploadId={id}"), b"x").await;
    let body = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part>\
         </CompleteMultipartUpload>",
        part.header("etag").trim_matches('"')
    );
    let done = server.send_text("POST", &format!("/safe/upload?uploadId={id}"), &[], &body).await;
    let upload = version("/safe/upload", &done);
    for path in [&put, &copy, &upload] {
        assert_eq!(server.get(path).await.header("x-amz-object-lock-mode"), "GOVERNANCE", "{path}");
        assert_eq!(server.remove(path, &[]).await, "AccessDenied", "{path}");
        assert_eq!(server.remove(path, &[BYPASS]).await, "204", "{path}");
    }
}

#[tokio::test]
async fn a_lock_takes_versions_and_keeps_them() {
    let server = Server::start().await;
    let lock = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>\
                </ObjectLockConfiguration>";
    let versions = |status: &str| {
        format!("<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>")
    };
    let refused = server.send_text("PUT", "/lake?object-lock", &[], lock).await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "InvalidBucketState"));
    server.put("/lake/k", b"x").await;
    assert_eq!(server.retain("/lake/k", "GOVERNANCE", UNTIL, false).await, "InvalidRequest");
    let headers = [("x-amz-object-lock-legal-hold", "ON")];
    assert_eq!(server.send_text("PUT", "/lake/k", &headers, "x").await.code(), "InvalidRequest");
    server.send_text("PUT", "/lake?versioning", &[], &versions("Enabled")).await;
    assert_eq!(server.send_text("PUT", "/lake?object-lock", &[], lock).await.status, 200);
    let suspended = server.send_text("PUT", "/lake?versioning", &[], &versions("Suspended")).await;
    assert_eq!((suspended.status, suspended.code().as_str()), (409, "InvalidBucketState"));
    // What was there before can be locked, and stays when another takes its place.
    assert_eq!(server.set_legal_hold("/lake/k?versionId=null", "ON").await, "200");
    server.put("/lake/k", b"y").await;
    assert_eq!(server.remove("/lake/k?versionId=null", &[BYPASS]).await, "AccessDenied");
    assert_eq!(server.get("/lake/k?versionId=null").await.body, b"x");
    // A bucket that is there does not get a lock by being made again.
    assert_eq!(code(&server.send_text("PUT", "/plain", &[], "").await), "200");
    assert_eq!(
        server.send_text("PUT", "/plain", &[LOCK], "").await.code(),
        "BucketAlreadyOwnedByYou"
    );
}

/// Buckets that are prefixes of one container keep versions together. Whoever may set up one of
/// them takes none away that another one holds.
#[tokio::test]
async fn no_bucket_beside_it_suspends_what_a_lock_takes() {
    let dir = Dir::new();
    let mut told = options(&dir);
    let below = |name: &str, prefix: &str| BucketOptions {
        name: name.into(),
        backend: told.backends[0].name.clone(),
        container: Some("safe".into()),
        prefix: prefix.into(),
        ..Default::default()
    };
    told.buckets = vec![below("team", "team/"), below("other", "other/")];
    let suspend = "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>";
    let server = Server::start_with(dir, told).await;
    // What was there before versions were kept would be replaced for good.
    assert_eq!(code(&server.send_text("PUT", "/safe", &[], "").await), "200");
    server.put("/team/k", b"kept").await;
    let keep = suspend.replace("Suspended", "Enabled");
    assert_eq!(server.send_text("PUT", "/other?versioning", &[], &keep).await.status, 200);
    assert_eq!(server.send_text("PUT", "/other?versioning", &[], suspend).await.status, 200);
    assert_eq!(server.send_text("PUT", "/other?versioning", &[], &keep).await.status, 200);
    let lock = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>\
                </ObjectLockConfiguration>";
    assert_eq!(server.send_text("PUT", "/safe?object-lock", &[], lock).await.status, 200);
    assert_eq!(
        server.retain("/safe/team/k?versionId=null", "COMPLIANCE", UNTIL, false).await,
        "200"
    );
    for bucket in ["safe", "team", "other"] {
        let path = format!("/{bucket}?versioning");
        let suspended = server.send_text("PUT", &path, &[], suspend).await;
        assert_eq!(suspended.code(), "InvalidBucketState", "{bucket}");
        assert!(server.get(&path).await.text().contains("Enabled"), "{bucket}");
    }
    server.put("/team/k", b"other").await;
    assert_eq!(server.get("/safe/team/k?versionId=null").await.body, b"kept");
}

const WRITER: &str = "WRITER";

fn writer(options: &mut Options) {
    let rights = Rights::parse(["read", "write", "delete"]).unwrap();
    let grant = Grant { buckets: vec![Pattern::new("*")], rights };
    let pair = KeyPair::new(WRITER, Secret::new(SECRET_KEY));
    options.keys.push(KeyPair { grants: vec![grant], ..pair });
}

#[tokio::test]
async fn a_bypass_takes_the_right_to_set_up_the_bucket() {
    let server = Server::on_with(Lane::Local, writer).await;
    server.send_text("PUT", "/safe", &[LOCK], "").await;
    let headers =
        [("x-amz-object-lock-mode", "GOVERNANCE"), ("x-amz-object-lock-retain-until-date", UNTIL)];
    let put = Request { method: "PUT", path: "/safe/k", headers: &headers, ..Default::default() };
    let path = version("/safe/k", &server.send_as(WRITER, put).await);
    let remove =
        || Request { method: "DELETE", path: &path, headers: &[BYPASS], ..Default::default() };
    assert_eq!(server.send_as(WRITER, remove()).await.code(), "AccessDenied");
    assert_eq!(server.send(remove()).await.status, 204);
}

on_lane!(memory, Memory: a_lock_is_refused_by_name);
on_lane!(azure, Azure: a_lock_is_refused_by_name);
on_lane!(s3, S3: a_lock_is_refused_by_name);

async fn a_lock_is_refused_by_name(lane: Lane) {
    let server = Server::on(lane).await;
    let hold = [("x-amz-object-lock-legal-hold", "ON")];
    let half = [("x-amz-object-lock-mode", "GOVERNANCE")];
    let past = "2020-01-01T00:00:00Z";
    // Whatever is wrong with the values of a request besides.
    for (method, path, headers, body) in [
        ("PUT", "/safe", &[LOCK][..], String::new()),
        ("PUT", "/lake/k", &hold, "x".into()),
        ("PUT", "/lake/k", &half, "x".into()),
        ("POST", "/lake/k?uploads", &half, String::new()),
        ("GET", "/lake/k?retention", &[], String::new()),
        ("PUT", "/lake/k?retention", &[], retained("GOVERNANCE", UNTIL)),
        ("PUT", "/lake/k?retention", &[], retained("GOVERNANCE", past)),
        ("GET", "/lake/k?legal-hold", &[], String::new()),
        ("PUT", "/lake/k?legal-hold", &[], "<LegalHold><Status>ON</Status></LegalHold>".into()),
        ("PUT", "/lake?object-lock", &[], configured("<Days>1</Days>")),
        ("PUT", "/lake?object-lock", &[], configured("<Days>0</Days>")),
    ] {
        let answer = server.send_text(method, path, headers, &body).await;
        let found = (answer.status, answer.code());
        let is_subresource = path.contains('?') && !path.ends_with("?uploads");
        let status = if is_subresource { 501 } else { 400 };
        assert_eq!(found, (status, "NotImplemented".into()), "{method} {path} {headers:?} {body}");
        assert!(answer.text().contains("object lock"), "{}", answer.text());
    }
    // What is no such document is none here either, and a bucket without a lock has none.
    for (path, body) in [
        ("/lake/k?retention", retained("SOMETIMES", UNTIL)),
        ("/lake/k?legal-hold", "<LegalHold><Status>PERHAPS</Status></LegalHold>".into()),
        ("/lake?object-lock", configured("<Days>1</Days><Years>1</Years>")),
    ] {
        let answer = server.send_text("PUT", path, &[], &body).await;
        assert_eq!((answer.status, answer.code()), (400, "MalformedXML".into()), "{path} {body}");
    }
    let none = server.send_text("GET", "/lake?object-lock", &[], "").await;
    assert_eq!((none.status, none.code()), (404, "ObjectLockConfigurationNotFoundError".into()));
}

fn retained(mode: &str, until: &str) -> String {
    let until = format!("<RetainUntilDate>{until}</RetainUntilDate>");
    format!("<Retention><Mode>{mode}</Mode>{until}</Retention>")
}

fn configured(period: &str) -> String {
    let rule = format!("<DefaultRetention><Mode>GOVERNANCE</Mode>{period}</DefaultRetention>");
    format!(
        "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>\
         <Rule>{rule}</Rule></ObjectLockConfiguration>"
    )
}

#[tokio::test]
async fn half_a_lock_is_told_before_a_bucket_without_locks() {
    let server = Server::on(Lane::Local).await;
    let mode = ("x-amz-object-lock-mode", "GOVERNANCE");
    let past = ("x-amz-object-lock-retain-until-date", "2020-01-01T00:00:00Z");
    let until = ("x-amz-object-lock-retain-until-date", UNTIL);
    for (headers, told) in [
        (&[mode][..], "InvalidArgument"),
        (&[until], "InvalidArgument"),
        (&[mode, past], "InvalidArgument"),
        (&[mode, until], "InvalidRequest"),
    ] {
        let answer = server.send_text("PUT", "/lake/k", headers, "").await;
        assert_eq!(code(&answer), told, "{headers:?}");
        let answer = server.send_text("POST", "/lake/k?uploads", headers, "").await;
        assert_eq!(code(&answer), told, "{headers:?}");
    }
}

/// Tags let somebody read the lock of the version that has them, and by the time of the answer it
/// would be another version's.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tags_of_one_version_tell_nobody_how_another_is_locked() {
    let server = Server::on_with(Lane::Local, |options| {
        options.serve.acl = "owners".to_string();
        options.keys.push(KeyPair::new("OTHER", Secret::new(SECRET_KEY)));
    })
    .await;
    assert_eq!(code(&server.send_text("PUT", "/safe", &[LOCK], "").await), "200");
    let policy = r#"{"Statement": {"Effect": "Allow", "Principal": {"AWS": "OTHER"},
        "Action": ["s3:GetObjectRetention", "s3:GetObjectLegalHold"],
        "Resource": "arn:aws:s3:::safe/*",
        "Condition": {"StringEquals": {"s3:ExistingObjectTag/open": "yes"}}}}"#;
    assert_eq!(code(&server.send_text("PUT", "/safe?policy", &[], policy).await), "204");
    let open = [("x-amz-tagging", "open=yes")];
    let secret = [
        ("x-amz-tagging", "open=no"),
        ("x-amz-object-lock-mode", "GOVERNANCE"),
        ("x-amz-object-lock-retain-until-date", UNTIL),
        ("x-amz-object-lock-legal-hold", "ON"),
    ];
    let writes = async {
        for _ in 0..150 {
            for headers in [&open[..], &secret] {
                assert_eq!(
                    code(&server.send_text("PUT", "/safe/k", headers, "bytes").await),
                    "200"
                );
            }
        }
    };
    let reads = async {
        loop {
            for path in ["/safe/k?retention", "/safe/k?legal-hold"] {
                let told = server.send_as("OTHER", Request { path, ..Default::default() }).await;
                assert!(told.status >= 400, "{path}: {}", told.text());
            }
        }
    };
    tokio::select! {
        () = writes => {}
        () = reads => {}
    }
}

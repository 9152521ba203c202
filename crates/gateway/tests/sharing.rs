//! Access control lists and bucket policies: whom they let in, under each value of `acl`.

use crate::common::{ACCESS_KEY, Answer, Lane, Request, SECRET_KEY, Server, key_without_admin};
use futures_util::future::join_all;
use penstock_base::Secret;
use penstock_gateway::{BackendOptions, BucketOptions, KeyPair, Options};

on_every_lane!(
    ;
    // Nothing is kept there of a bucket: policies and lists are refused.
    but_google:
    a_list_lets_others_in,
    an_owner_is_asked_for_by_name,
    a_policy_lets_in_and_keeps_out,
    lists_of_objects_are_replaced_in_place,
    a_policy_on_lists_tells_what_is_not_there,
    settings_at_the_same_time_are_all_kept,
);
on_lane!(uploads_local, Local: uploads_tell_who_began_them);
on_lane!(uploads_memory, Memory: uploads_tell_who_began_them);
on_lane!(uploads_azure, Azure: uploads_tell_who_began_them);

const OTHER: &str = "OTHER";

fn owners(options: &mut Options) {
    options.serve.acl = "owners".to_string();
    options.keys.push(KeyPair::new(OTHER, Secret::new(SECRET_KEY)));
}

fn public(options: &mut Options) {
    options.serve.acl = "public".to_string();
    options.keys.push(key_without_admin(OTHER));
}

impl Server {
    async fn ask_shared(
        &self,
        who: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Answer {
        let request = Request { method, path, headers, ..Default::default() };
        match who {
            "" => self.unsigned(request).await,
            who => self.send_as(who, request).await,
        }
    }

    async fn three_statuses(&self, method: &str, path: &str) -> [u16; 3] {
        let mut statuses = [0; 3];
        for (status, who) in statuses.iter_mut().zip([ACCESS_KEY, OTHER, ""]) {
            *status = self.ask_shared(who, method, path, &[]).await.status;
        }
        statuses
    }

    async fn set_acl(&self, path: &str, acl: &str) {
        let answer = self.ask_shared(ACCESS_KEY, "PUT", path, &[("x-amz-acl", acl)]).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

async fn a_list_lets_others_in(lane: Lane) {
    let server = Server::on_with(lane, owners).await;
    server.set_acl("/mine", "private").await;
    assert_eq!(server.put("/mine/k", b"bytes").await.status, 200);
    assert_eq!(server.three_statuses("GET", "/mine/k").await, [200, 403, 403]);
    assert_eq!(server.three_statuses("GET", "/mine?list-type=2").await, [200, 403, 403]);
    assert_eq!(server.three_statuses("GET", "/mine/absent").await, [404, 403, 403]);
    assert_eq!(server.three_statuses("PUT", "/mine/new").await, [200, 403, 403]);
    assert_eq!(server.three_statuses("DELETE", "/mine").await, [409, 403, 403]);
    server.set_acl("/mine?acl", "public-read").await;
    assert_eq!(server.three_statuses("GET", "/mine?list-type=2").await, [200, 200, 200]);
    assert_eq!(server.three_statuses("GET", "/mine/absent").await, [404, 404, 404]);
    assert_eq!(server.three_statuses("GET", "/mine/k").await, [200, 403, 403]);
    server.set_acl("/mine?acl", "public-read-write").await;
    assert_eq!(server.three_statuses("PUT", "/mine/theirs").await, [200, 200, 200]);
    server.set_acl("/mine/open", "public-read").await;
    assert_eq!(server.three_statuses("GET", "/mine/open").await, [200, 200, 200]);
    server.set_acl("/mine/signed", "authenticated-read").await;
    assert_eq!(server.three_statuses("GET", "/mine/signed").await, [200, 200, 403]);
    // A copy has the list that it asks for, not its source's.
    let from = [("x-amz-copy-source", "mine/open")];
    assert_eq!(server.ask_shared(ACCESS_KEY, "PUT", "/mine/copy", &from).await.status, 200);
    assert_eq!(server.three_statuses("GET", "/mine/copy").await, [200, 403, 403]);
    // Nor does a copy read what its sender may not.
    let from = [("x-amz-copy-source", "mine/k")];
    assert_eq!(server.ask_shared(OTHER, "PUT", "/mine/stolen", &from).await.status, 403);
    let listed = server.ask_shared(OTHER, "GET", "/", &[]).await;
    assert!(!listed.text().contains("<Name>mine</Name>"), "{}", listed.text());
    let listed = server.ask_shared(ACCESS_KEY, "GET", "/", &[]).await.text();
    assert!(listed.contains("<Name>mine</Name>") && !listed.contains("penstock-notes"));
    assert_eq!(server.get("/penstock-notes?list-type=2").await.code(), "AccessDenied");
}

async fn an_owner_is_asked_for_by_name(lane: Lane) {
    let server = Server::on_with(lane, owners).await;
    let grant = format!("id={OTHER}");
    let headers = [("x-amz-grant-read", grant.as_str())];
    assert_eq!(server.ask_shared(ACCESS_KEY, "PUT", "/mine", &headers).await.status, 200);
    assert_eq!(server.three_statuses("GET", "/mine?list-type=2").await, [200, 200, 403]);
    let acl = server.ask_shared(ACCESS_KEY, "GET", "/mine?acl", &[]).await;
    assert_eq!(acl.status, 200, "{}", acl.text());
    assert!(acl.text().contains(&format!("<Owner><DisplayName>{ACCESS_KEY}</DisplayName>")));
    assert!(acl.text().contains("<Permission>READ</Permission>"), "{}", acl.text());
    // Somebody else's bucket cannot be made anew, and one's own not with another list.
    let again = server.ask_shared(OTHER, "PUT", "/mine", &[]).await;
    assert_eq!((again.status, again.code().as_str()), (409, "BucketAlreadyExists"));
    let again = server.ask_shared(ACCESS_KEY, "PUT", "/mine", &headers).await;
    assert_eq!(again.status, 200);
    for (name, value, code) in [
        ("x-amz-grant-read", "id=nobody", "InvalidArgument"),
        ("x-amz-acl", "pubic-read", "InvalidArgument"),
        ("x-amz-expected-bucket-owner", "nobody", "AccessDenied"),
    ] {
        let answer = server.ask_shared(ACCESS_KEY, "PUT", "/mine/k", &[(name, value)]).await;
        assert_eq!(answer.code(), code, "{name}: {}", answer.text());
    }
    // Which of both is meant nobody knows, whoever they name.
    for grantee in [grant.as_str(), "id=nobody"] {
        let both = [("x-amz-acl", "private"), ("x-amz-grant-read", grantee)];
        for path in ["/mine/k", "/mine?acl", "/new"] {
            let answer = server.ask_shared(ACCESS_KEY, "PUT", path, &both).await;
            let found = (answer.status, answer.code());
            assert_eq!(
                found,
                (400, "InvalidRequest".into()),
                "{path} {grantee}: {}",
                answer.text()
            );
        }
    }
    server.put("/mine/k", b"bytes").await;
    for (owner, status) in [(ACCESS_KEY, 200), ("nobody", 403)] {
        let headers =
            [("x-amz-copy-source", "mine/k"), ("x-amz-source-expected-bucket-owner", owner)];
        let copied = server.ask_shared(ACCESS_KEY, "PUT", "/mine/copy", &headers).await;
        assert_eq!(copied.status, status, "{owner}: {}", copied.text());
    }
}

async fn a_policy_lets_in_and_keeps_out(lane: Lane) {
    let server = Server::on_with(lane, owners).await;
    server.set_acl("/mine", "private").await;
    assert_eq!(server.put("/mine/open/k", b"bytes").await.status, 200);
    assert_eq!(server.put("/mine/k", b"bytes").await.status, 200);
    assert_eq!(server.get("/mine?policy").await.code(), "NoSuchBucketPolicy");
    let policy = r#"{"Statement": [
        {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
         "Resource": "arn:aws:s3:::mine/open/*"},
        {"Effect": "Deny", "Principal": {"AWS": "OTHER"}, "Action": "s3:*",
         "Resource": ["arn:aws:s3:::mine", "arn:aws:s3:::mine/*"]}]}"#;
    let put = |body| Request { method: "PUT", path: "/mine?policy", body, ..Default::default() };
    assert_eq!(server.send(put(policy.as_bytes())).await.status, 204);
    assert_eq!(server.get("/mine?policy").await.text(), policy);
    assert!(server.get("/mine?policyStatus").await.text().contains("<IsPublic>true</IsPublic>"));
    assert_eq!(server.three_statuses("GET", "/mine/open/k").await, [200, 403, 200]);
    assert_eq!(server.three_statuses("GET", "/mine/k").await, [200, 403, 403]);
    assert_eq!(server.send(put(b"{}")).await.code(), "MalformedPolicy");
    // Blocked, it has no effect on strangers.
    let block = b"<PublicAccessBlockConfiguration>\
        <RestrictPublicBuckets>true</RestrictPublicBuckets></PublicAccessBlockConfiguration>";
    let path = "/mine?publicAccessBlock";
    let blocked = Request { method: "PUT", path, body: block, ..Default::default() };
    assert_eq!(server.send(blocked).await.status, 200);
    assert_eq!(server.three_statuses("GET", "/mine/open/k").await, [200, 403, 403]);
    assert_eq!(server.three_statuses("DELETE", path).await, [204, 403, 403]);
    assert_eq!(server.three_statuses("DELETE", "/mine?policy").await, [204, 403, 403]);
    assert_eq!(server.three_statuses("GET", "/mine/open/k").await, [200, 403, 403]);
}

async fn lists_of_objects_are_replaced_in_place(lane: Lane) {
    let server = Server::on_with(lane, public).await;
    let headers = [("x-amz-meta-colour", "blue"), ("content-type", "text/plain")];
    let put = Request {
        method: "PUT",
        path: "/lake/k",
        headers: &headers,
        body: b"bytes",
        ..Default::default()
    };
    assert_eq!(server.send(put).await.status, 200);
    assert_eq!(server.three_statuses("GET", "/lake/k").await, [200, 200, 403]);
    server.set_acl("/lake/k?acl", "public-read").await;
    let open = server.ask_shared("", "GET", "/lake/k", &[]).await;
    assert_eq!((open.status, open.body.as_slice()), (200, &b"bytes"[..]));
    assert_eq!(
        (open.header("x-amz-meta-colour"), open.header("content-type")),
        ("blue", "text/plain")
    );
    let told = server.get("/lake/k?acl").await;
    assert!(told.text().contains("groups/global/AllUsers"), "{}", told.text());
    // Who may only write may not let others in.
    let acl = [("x-amz-acl", "public-read")];
    assert_eq!(server.ask_shared(OTHER, "PUT", "/lake/theirs", &acl).await.code(), "AccessDenied");
    // A key is judged by the configuration alone: no list is asked for it.
    if lane == Lane::Azure {
        let before = server.backend_requests();
        assert_eq!(server.get("/lake/k").await.status, 200);
        assert_eq!(server.backend_requests(), before + 1);
    }
}

async fn a_policy_on_lists_tells_what_is_not_there(lane: Lane) {
    let server = Server::on_with(lane, owners).await;
    server.set_acl("/mine", "private").await;
    let body = br#"{"Statement": {"Effect": "Allow", "Principal": {"AWS": "OTHER"},
        "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::mine",
        "Condition": {"StringLike": {"s3:prefix": "open/*"}}}}"#;
    let put = Request { method: "PUT", path: "/mine?policy", body, ..Default::default() };
    assert_eq!(server.send(put).await.status, 204);
    assert_eq!(server.three_statuses("GET", "/mine/open/absent").await, [404, 404, 403]);
    assert_eq!(server.three_statuses("GET", "/mine/absent").await, [404, 403, 403]);
    assert_eq!(
        server.three_statuses("GET", "/mine?list-type=2&prefix=open%2Fx").await,
        [200, 200, 403]
    );
}

async fn settings_at_the_same_time_are_all_kept(lane: Lane) {
    let server = Server::on_with(lane, owners).await;
    server.set_acl("/mine", "private").await;
    let body = b"<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>";
    let tags = Request { method: "PUT", path: "/mine?tagging", body, ..Default::default() };
    let lists = join_all((0..20).map(|number| {
        let acl = if number % 2 == 0 { "public-read" } else { "authenticated-read" };
        server.set_acl("/mine?acl", acl)
    }));
    let (_, tagged) = tokio::join!(lists, server.send(tags));
    assert_eq!(tagged.status, 204, "{}", tagged.text());
    assert!(server.get("/mine?tagging").await.text().contains("<Key>a</Key>"));
    assert!(server.get("/mine?acl").await.text().contains("<Permission>READ</Permission>"));
}

async fn uploads_tell_who_began_them(lane: Lane) {
    let server = Server::on_with(lane, owners).await;
    server.set_acl("/mine", "public-read-write").await;
    let told = async |key: &str, acl: &[(&str, &str)]| {
        let path = format!("/mine/{key}?uploads");
        let begun = server.ask_shared(OTHER, "POST", &path, acl).await.text();
        let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap().to_string();
        let text = server.get(&format!("/mine/{key}?uploadId={id}")).await.text();
        let id_of = |element: &str| {
            let part = text.split(&format!("<{element}>")).nth(1).unwrap();
            part.split("<ID>").nth(1).unwrap().split('<').next().unwrap().to_string()
        };
        (id_of("Owner"), id_of("Initiator"))
    };
    let (own, others) = (ACCESS_KEY.to_string(), OTHER.to_string());
    assert_eq!(told("a", &[]).await, (others.clone(), others.clone()));
    let body = b"<OwnershipControls><Rule><ObjectOwnership>BucketOwnerPreferred</ObjectOwnership>\
        </Rule></OwnershipControls>";
    let path = "/mine?ownershipControls";
    let set = Request { method: "PUT", path, body, ..Default::default() };
    assert_eq!(server.send(set).await.status, 200);
    let full = [("x-amz-acl", "bucket-owner-full-control")];
    assert_eq!(told("b", &full).await, (own, others));
}

#[tokio::test]
async fn ownership_at_creation_is_one_that_there_is() {
    let server = Server::on_with(Lane::Local, owners).await;
    let make = async |path: &str, headers: &[(&str, &str)]| {
        let answer = server.ask_shared(ACCESS_KEY, "PUT", path, headers).await;
        if answer.status == 200 { String::new() } else { answer.code() }
    };
    let ownership = |name| ("x-amz-object-ownership", name);
    let read = ("x-amz-acl", "public-read");
    assert_eq!(make("/odd", &[ownership("Nobody")]).await, "InvalidArgument");
    let both = [ownership("BucketOwnerEnforced"), read];
    assert_eq!(make("/closed", &both).await, "InvalidBucketAclWithObjectOwnership");
    for path in ["/odd", "/closed"] {
        assert_eq!(server.ask_shared(ACCESS_KEY, "HEAD", path, &[]).await.status, 404, "{path}");
    }
    assert_eq!(make("/closed", &both[..1]).await, "");
    assert_eq!(make("/open", &[ownership("BucketOwnerPreferred"), read]).await, "");
}

#[tokio::test]
async fn each_version_has_its_own_list() {
    let server = Server::on_with(Lane::Local, owners).await;
    server.set_acl("/mine", "private").await;
    let body = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    let path = "/mine?versioning";
    let set = Request { method: "PUT", path, body, ..Default::default() };
    assert_eq!(server.send(set).await.status, 200);
    let put = async |body: &[u8]| {
        let answer = server.put("/mine/k", body).await;
        format!("versionId={}", answer.header("x-amz-version-id"))
    };
    let (first, second) = (put(b"first").await, put(b"second").await);
    let before = server.get(&format!("/mine/k?{first}")).await;
    server.set_acl(&format!("/mine/k?acl&{first}"), "public-read").await;
    let after = server.get(&format!("/mine/k?{first}")).await;
    for header in ["etag", "last-modified", "x-amz-version-id"] {
        assert_eq!(before.header(header), after.header(header), "{header}");
    }
    assert_eq!(server.three_statuses("GET", &format!("/mine/k?{first}")).await, [200, 200, 200]);
    // However the name of the version is escaped, and whatever stands beside it.
    for (version, status) in [(&first, 200), (&second, 403)] {
        let escaped = format!("/mine/k?{}", version.replace("versionId", "version%49d"));
        assert_eq!(server.ask_shared("", "GET", &escaped, &[]).await.status, status, "{escaped}");
    }
    assert_eq!(server.three_statuses("GET", &format!("/mine/k?{first}&{second}")).await[2], 400);
    assert_eq!(server.three_statuses("GET", &format!("/mine/k?{second}")).await, [200, 403, 403]);
    assert_eq!(server.three_statuses("GET", "/mine/k").await, [200, 403, 403]);
    assert_eq!(server.three_statuses("GET", "/mine/k?versionId=absent").await, [404, 403, 403]);
    // A copy reads the version that it names, and no other.
    assert_eq!(server.ask_shared(OTHER, "PUT", "/theirs", &[]).await.status, 200);
    for (version, status) in [(&first, 200), (&second, 403)] {
        let source = format!("mine/k?{version}");
        let from = [("x-amz-copy-source", source.as_str())];
        let copied = server.ask_shared(OTHER, "PUT", "/theirs/k", &from).await;
        assert_eq!(copied.status, status, "{}", copied.text());
    }
    // A policy may speak of versions alone.
    let body = br#"{"Statement": {"Effect": "Allow", "Principal": "*",
        "Action": "s3:GetObjectVersion", "Resource": "arn:aws:s3:::mine/*"}}"#;
    let put = Request { method: "PUT", path: "/mine?policy", body, ..Default::default() };
    assert_eq!(server.send(put).await.status, 204);
    assert_eq!(server.three_statuses("GET", &format!("/mine/k?{second}")).await, [200, 200, 200]);
    assert_eq!(server.three_statuses("GET", "/mine/k").await, [200, 403, 403]);
}

#[tokio::test]
async fn without_the_setting_nothing_is_opened() {
    let server = Server::start().await;
    server.put("/lake/k", b"bytes").await;
    for path in ["/lake/n", "/lake?acl", "/lake/k?acl", "/fresh"] {
        let answer =
            server.ask_shared(ACCESS_KEY, "PUT", path, &[("x-amz-acl", "public-read")]).await;
        let told = (answer.status, answer.code());
        assert_eq!(told, (400, "AccessControlListNotSupported".to_string()), "{path}");
        assert!(answer.text().contains("`acl`"), "{}", answer.text());
    }
    for path in ["/lake?acl", "/lake/k?acl"] {
        server.set_acl(path, "private").await;
        let told = server.get(path).await;
        assert!(told.text().contains("FULL_CONTROL"), "{}", told.text());
        assert!(!told.text().contains("AllUsers"));
    }
    let policy = r#"{"Statement": {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
        "Resource": "arn:aws:s3:::lake/*"}}"#;
    let path = "/lake?policy";
    let put = Request { method: "PUT", path, body: policy.as_bytes(), ..Default::default() };
    assert_eq!(server.send(put).await.code(), "NotImplemented");
    assert_eq!(server.ask_shared("", "GET", "/lake/k", &[]).await.status, 403);
    assert_eq!(server.get("/fresh").await.status, 404);
}

/// On Azure an upload's id tells with which list it began, and anybody could write such an id.
#[tokio::test]
async fn who_may_not_open_an_object_completes_no_upload_that_would() {
    let server = Server::on_with(Lane::Azure, public).await;
    let acl = [("x-amz-acl", "public-read")];
    let begun = server.ask_shared(ACCESS_KEY, "POST", "/lake/k?uploads", &acl).await.text();
    let (_, id) = begun.split_once("<UploadId>").unwrap();
    let id = id.split_once("</UploadId>").unwrap().0;
    let part = server.put(&format!("/lake/k?partNumber=1&uploadId={id}"), b"part").await;
    let etag = part.header("etag");
    let body = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>\
         </CompleteMultipartUpload>"
    );
    let path = format!("/lake/k?uploadId={id}");
    let complete =
        Request { method: "POST", path: &path, body: body.as_bytes(), ..Default::default() };
    assert_eq!(server.send_as(OTHER, complete.clone()).await.code(), "AccessDenied");
    assert_eq!(server.get("/lake/k").await.status, 404);
    assert_eq!(server.send(complete).await.status, 200);
    assert_eq!(server.ask_shared("", "GET", "/lake/k", &[]).await.body, b"part");
}

fn named(options: &mut Options, name: &str, aliases: &[&str]) {
    owners(options);
    options.buckets = vec![BucketOptions {
        name: name.to_string(),
        aliases: aliases.iter().map(|alias| alias.to_string()).collect(),
        backend: options.backends[0].name.clone(),
        container: Some("lake".to_string()),
        ..Default::default()
    }];
}

#[tokio::test]
async fn a_policy_is_of_the_bucket_under_each_of_its_names() {
    let server = Server::on_with(Lane::Local, |it| named(it, "alpha", &["alpha-old"])).await;
    server.set_acl("/alpha", "private").await;
    for path in ["/alpha/open/k", "/alpha/k"] {
        assert_eq!(server.put(path, b"bytes").await.status, 200);
    }
    // By its name, by an alias, and by the container's own name.
    let names = ["alpha", "alpha-old", "lake"];
    for named in names {
        let policy = format!(
            r#"{{"Statement": [
            {{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
              "Resource": "arn:aws:s3:::{named}/open/*"}},
            {{"Effect": "Deny", "Principal": {{"AWS": "OTHER"}}, "Action": "s3:*",
              "Resource": ["arn:aws:s3:::alpha", "arn:aws:s3:::alpha-old/*"]}}]}}"#
        );
        let body = policy.as_bytes();
        let put = Request { method: "PUT", path: "/alpha-old?policy", body, ..Default::default() };
        assert_eq!(server.send(put).await.status, 204);
        for name in names {
            let status =
                async |path: &str| server.three_statuses("GET", &format!("/{name}{path}")).await;
            assert_eq!(status("/open/k").await, [200, 403, 200], "{named} {name}");
            assert_eq!(status("/k").await, [200, 403, 403], "{named} {name}");
            assert_eq!(status("?list-type=2").await, [200, 403, 403], "{named} {name}");
        }
    }
    // So is the source of a copy in a condition.
    let from = [("x-amz-copy-source", "alpha-old/open/k")];
    for named in names {
        for (operator, status) in [("StringLike", 403), ("StringNotLike", 200)] {
            let policy = format!(
                r#"{{"Statement": {{"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject",
                "Resource": "arn:aws:s3:::alpha/*", "Condition":
                {{"{operator}": {{"s3:x-amz-copy-source": "{named}/open/*"}}}}}}}}"#
            );
            let (path, body) = ("/alpha?policy", policy.as_bytes());
            let put = Request { method: "PUT", path, body, ..Default::default() };
            assert_eq!(server.send(put).await.status, 204);
            let copied = server.ask_shared(ACCESS_KEY, "PUT", "/alpha/copy", &from).await;
            assert_eq!(copied.status, status, "{named} {operator}: {}", copied.text());
        }
    }
    let strange = br#"{"Statement": {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
        "Resource": ["arn:aws:s3:::alpha/*", "arn:aws:s3:::beta/*"]}}"#;
    let put = Request { method: "PUT", path: "/alpha?policy", body: strange, ..Default::default() };
    assert_eq!(server.send(put).await.code(), "MalformedPolicy");
    // Under other names it would deny nothing any more: nobody is let in until its owner, who is
    // never kept from it, has taken it away.
    let renamed = Server::on_with(Lane::Local, |options| {
        options.backends = vec![BackendOptions {
            is_dynamic: false,
            ..BackendOptions::directory(&server.dir.served())
        }];
        named(options, "beta", &[]);
    })
    .await;
    assert_eq!(renamed.get("/beta/k").await.code(), "MalformedPolicy");
    assert_eq!(renamed.three_statuses("DELETE", "/beta?policy").await, [204, 403, 403]);
    assert_eq!(renamed.three_statuses("GET", "/beta/k").await, [200, 403, 403]);
}

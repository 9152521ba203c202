//! Ids of uploads that a client made up. On Azure an id tells with what its upload began, and no
//! secret is in it: it must say nothing that its sender may not.

use crate::common::{ACCESS_KEY, Lane, Request, SECRET_KEY, Server, key_without_admin};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use penstock_base::Secret;
use penstock_gateway::{KeyPair, Options};
use ring::digest::{SHA256, digest};

const OTHER: &str = "OTHER";

/// Written from the layout of such ids, so that it does not share what refuses them.
fn made_up(place: &str, metadata: &str) -> String {
    let mut told = vec![4];
    told.extend([7; 10]);
    told.extend([0; 6]);
    told.extend(format!("{{\"m\":[{metadata}]}}").bytes());
    let text = [place.as_bytes(), &[0], &told].concat();
    told.extend(&digest(&SHA256, &text).as_ref()[..8]);
    URL_SAFE_NO_PAD.encode(told)
}

/// What becomes of an upload of `OTHER`'s with such an id.
async fn outcome(server: &Server, place: &str, metadata: &str) -> (u16, String) {
    outcome_with(server, place, metadata, &[]).await
}

/// The same of one whose completion has such headers.
async fn outcome_with(
    server: &Server,
    place: &str,
    metadata: &str,
    headers: &[(&str, &str)],
) -> (u16, String) {
    let id = made_up(place, metadata);
    let path = format!("/{place}?partNumber=1&uploadId={id}");
    let part = Request { method: "PUT", path: &path, body: b"part", ..Default::default() };
    let part = server.send_as(OTHER, part).await;
    if part.status != 200 {
        return (part.status, part.code());
    }
    let body = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part>\
         </CompleteMultipartUpload>",
        part.header("etag")
    );
    let (path, body) = (format!("/{place}?uploadId={id}"), body.as_bytes());
    let complete = Request { method: "POST", path: &path, headers, body, ..Default::default() };
    let done = server.send_as(OTHER, complete).await;
    (done.status, done.code())
}

/// With another key that may read and write, and set nothing up.
fn other(options: &mut Options) {
    options.keys.push(key_without_admin(OTHER));
}

#[tokio::test]
async fn an_id_that_was_made_up_opens_nothing() {
    let server = Server::on_with(Lane::Azure, |options| {
        options.serve.acl = "public".to_string();
        other(options);
    })
    .await;
    let gone = || (404, "NoSuchUpload".to_string());
    let denied = || (403, "AccessDenied".to_string());
    for (key, metadata, wanted) in [
        ("a", r#"["@acl","penstock;r*"]"#, denied()),
        ("b", r#"["@acl","third;f=third"]"#, denied()),
        ("c", r#"["_X40_acl","penstock;r*"]"#, gone()),
        ("d", r#"["@acl","penstock;f=penstock"],["@acl","penstock;r*"]"#, gone()),
        ("e", r#"["@checksum-sha256","AAAA"]"#, gone()),
        ("f", r#"["@parts","1x4"]"#, gone()),
        ("g", r#"["@lock-retention","COMPLIANCE 2099-01-01T00:00:00Z"]"#, gone()),
        ("h", r#"["@tag-count","3"]"#, gone()),
        // Under the name that the service would keep, it is the writer's own metadata.
        ("i", r#"["_x40_acl","penstock;r*"]"#, (200, String::new())),
        ("j", r#"["colour","blue"],["@acl","penstock;f=penstock"]"#, (200, String::new())),
    ] {
        let place = format!("lake/{key}");
        assert_eq!(outcome(&server, &place, metadata).await, wanted, "{metadata}");
        let path = format!("/{place}");
        let stranger = Request { path: &path, ..Default::default() };
        assert_eq!(server.unsigned(stranger).await.status, 403, "{metadata}");
        let there = if wanted.0 == 200 { 200 } else { 404 };
        assert_eq!(server.get(&path).await.status, there, "{metadata}");
    }
    assert_eq!(server.get("/lake/j").await.header("x-amz-meta-colour"), "blue");
}

/// It would be open once lists are on.
#[tokio::test]
async fn nor_does_it_where_lists_are_off() {
    let server = Server::on_with(Lane::Azure, other).await;
    let open = outcome(&server, "lake/a", r#"["@acl","penstock;r*"]"#).await;
    assert_eq!(open, (400, "AccessControlListNotSupported".to_string()));
    let closed = outcome(&server, "lake/b", r#"["@acl","penstock;f=penstock"]"#).await;
    assert_eq!(closed.0, 200);
}

/// A gateway where keys are owners, with a bucket `mine` whose policy has these statements for the
/// other: effect, action, and what follows.
async fn owned(statements: &[(&str, &str, &str)]) -> Server {
    let server = Server::on_with(Lane::Azure, |options| {
        options.serve.acl = "owners".to_string();
        options.keys.push(KeyPair::new(OTHER, Secret::new(SECRET_KEY)));
    })
    .await;
    let made = Request { method: "PUT", path: "/mine", ..Default::default() };
    assert_eq!(server.send(made).await.status, 200);
    let statement = |(effect, action, rest): &(&str, &str, &str)| {
        format!(
            r#"{{"Effect": "{effect}", "Principal": {{"AWS": "{OTHER}"}}, "Action": "s3:{action}",
            "Resource": "arn:aws:s3:::mine/*"{rest}}}"#
        )
    };
    let statements: Vec<String> = statements.iter().map(statement).collect();
    let policy = format!(r#"{{"Statement": [{}]}}"#, statements.join(", "));
    let body = policy.as_bytes();
    let set = Request { method: "PUT", path: "/mine?policy", body, ..Default::default() };
    let set = server.send(set).await;
    assert_eq!(set.status, 204, "{}", set.text());
    server
}

#[tokio::test]
async fn whose_a_list_is_an_id_does_not_say() {
    let server = owned(&[("Allow", "PutObject", "")]).await;
    let of = |owner: &str| format!(r#"["@acl","{owner};f={owner}"]"#);
    let denied = (403, "AccessDenied".to_string());
    assert_eq!(outcome(&server, "mine/a", &of("third")).await, denied);
    let granting = r#"["@acl","OTHER;f=OTHER;r=third"]"#;
    assert_eq!(outcome(&server, "mine/b", granting).await, denied);
    assert_eq!(outcome(&server, "mine/c", &of(OTHER)).await.0, 200);
    assert_eq!(outcome(&server, "mine/d", &of(ACCESS_KEY)).await.0, 200);
}

/// What a policy asks of tags it asks of those that the upload began with, whatever the completion
/// says besides.
#[tokio::test]
async fn its_tags_are_judged_by_their_names_and_values() {
    let blue = r#", "Condition": {"StringEquals": {"s3:RequestObjectTag/team": "blue"}}"#;
    let server = owned(&[("Allow", "PutObject", ""), ("Allow", "PutObjectTagging", blue)]).await;
    let of = |team: &str| format!(r#"["@tagging","team={team}"],["@acl","OTHER;f=OTHER"]"#);
    let header = [("x-amz-tagging", "team=blue")];
    let denied = (403, "AccessDenied".to_string());
    assert_eq!(outcome_with(&server, "mine/a", &of("red"), &header).await, denied);
    assert_eq!(outcome(&server, "mine/b", &of("blue")).await.0, 200);
    let red = r#", "Condition": {"StringEquals": {"s3:RequestObjectTag/team": "red"}}"#;
    for action in ["PutObject", "PutObjectTagging"] {
        let server = owned(&[("Allow", "*", ""), ("Deny", action, red)]).await;
        assert_eq!(outcome(&server, "mine/a", &of("red")).await, denied, "{action}");
        assert_eq!(outcome(&server, "mine/b", &of("blue")).await.0, 200, "{action}");
    }
}

/// So it does of lists, in whichever form they can have been asked for.
#[tokio::test]
async fn its_list_is_judged_as_the_headers_that_bring_it() {
    let canned = r#", "Condition": {"StringEquals": {"s3:x-amz-acl": "public-read"}}"#;
    let granted = r#", "Condition": {"Null": {"s3:x-amz-grant-read": "false"}}"#;
    let (allow, public) = (("Allow", "*", ""), r#"["@acl","OTHER;r*;f=OTHER"]"#);
    let denied = (403, "AccessDenied".to_string());
    let both = [allow, ("Deny", "PutObjectAcl", canned), ("Deny", "PutObjectAcl", granted)];
    let server = owned(&both).await;
    assert_eq!(outcome(&server, "mine/a", public).await, denied);
    let signed = r#"["@acl","OTHER;r+;f=OTHER"]"#;
    assert_eq!(outcome(&server, "mine/b", signed).await.0, 200);
    // One form is enough: whoever may grant by header could have begun it so.
    for one in [canned, granted] {
        let server = owned(&[allow, ("Deny", "PutObjectAcl", one)]).await;
        assert_eq!(outcome(&server, "mine/a", public).await.0, 200, "{one}");
    }
    // Nor does the completion's own header let in what the upload's list does not.
    let closed = r#", "Condition": {"StringEquals": {"s3:x-amz-acl": "authenticated-read"}}"#;
    let server = owned(&[("Allow", "PutObject", ""), ("Allow", "PutObjectAcl", closed)]).await;
    let header = [("x-amz-acl", "authenticated-read")];
    assert_eq!(outcome_with(&server, "mine/a", public, &header).await, denied);
    assert_eq!(outcome(&server, "mine/b", signed).await.0, 200);
}

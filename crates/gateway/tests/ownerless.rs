//! A bucket that was there before `acl = "owners"`: everybody's, until it is somebody's.

use crate::common::{ACCESS_KEY, Answer, Lane, Request, SECRET_KEY, Server};
use penstock_base::Secret;
use penstock_gateway::{KeyPair, Options};

const OTHER: &str = "OTHER";
const TAGS: &[u8] = b"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";

fn owners(options: &mut Options) {
    options.serve.acl = "owners".to_string();
    options.keys.push(KeyPair::new(OTHER, Secret::new(SECRET_KEY)));
}

/// A gateway on a directory, in which the bucket `lake` with an object was made past it.
async fn server() -> Server {
    let server = Server::on_with(Lane::Local, owners).await;
    std::fs::write(server.dir.served().join("lake/old"), b"old").unwrap();
    server
}

impl Server {
    async fn ask_by_owner(
        &self,
        who: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Answer {
        self.send_as(who, Request { method, path, headers, ..Default::default() }).await
    }

    /// What the main key and the other are answered.
    async fn two_statuses(&self, method: &str, path: &str) -> [u16; 2] {
        let first = self.ask_by_owner(ACCESS_KEY, method, path, &[]).await.status;
        [first, self.ask_by_owner(OTHER, method, path, &[]).await.status]
    }

    async fn tag(&self, who: &str) -> u16 {
        let path = "/lake?tagging";
        let tags = Request { method: "PUT", path, body: TAGS, ..Default::default() };
        self.send_as(who, tags).await.status
    }
}

#[tokio::test]
async fn whoever_gives_it_a_list_owns_it() {
    let server = server().await;
    assert_eq!(server.two_statuses("GET", "/lake/old").await, [200, 200]);
    let shown = server.ask_by_owner(OTHER, "GET", "/lake?acl", &[]).await.text();
    assert!(shown.contains("<ID>OTHER</ID>"), "{shown}");
    let private = [("x-amz-acl", "private")];
    assert_eq!(server.ask_by_owner(OTHER, "PUT", "/lake?acl", &private).await.status, 200);
    assert_eq!(server.two_statuses("GET", "/lake/old").await, [403, 200]);
    assert_eq!(server.two_statuses("GET", "/lake?list-type=2").await, [403, 200]);
    assert_eq!(server.two_statuses("PUT", "/lake").await, [409, 200]);
    assert_eq!((server.tag(ACCESS_KEY).await, server.tag(OTHER).await), (403, 204));
}

#[tokio::test]
async fn an_object_in_it_is_theirs_who_give_it_a_list() {
    let server = server().await;
    let private = [("x-amz-acl", "private")];
    assert_eq!(server.ask_by_owner(OTHER, "PUT", "/lake/old?acl", &private).await.status, 200);
    let shown = server.ask_by_owner(OTHER, "GET", "/lake/old?acl", &[]).await.text();
    assert!(shown.contains("<Owner><DisplayName>OTHER</DisplayName>"), "{shown}");
}

#[tokio::test]
async fn it_can_be_made_again_whatever_was_set_up_on_it() {
    let server = server().await;
    assert_eq!(server.tag(ACCESS_KEY).await, 204);
    let enforced = b"<OwnershipControls><Rule><ObjectOwnership>BucketOwnerEnforced\
                     </ObjectOwnership></Rule></OwnershipControls>";
    let path = "/lake?ownershipControls";
    let put = Request { method: "PUT", path, body: enforced, ..Default::default() };
    assert_eq!(server.send(put).await.status, 200);
    // Nor is it opened by a list that it does not take.
    let open = [("x-amz-acl", "public-read")];
    let opened = server.ask_by_owner(OTHER, "PUT", "/lake", &open).await;
    assert_eq!(opened.code(), "AccessControlListNotSupported", "{}", opened.text());
    assert_eq!(server.ask_by_owner(OTHER, "PUT", "/lake", &[]).await.status, 200);
    assert_eq!(server.two_statuses("GET", "/lake/old").await, [403, 200]);
    let kept = server.ask_by_owner(OTHER, "GET", "/lake?tagging", &[]).await.text();
    assert!(kept.contains("<Key>a</Key>"), "{kept}");
    let kept = server.ask_by_owner(OTHER, "GET", path, &[]).await.text();
    assert!(kept.contains("BucketOwnerEnforced"), "{kept}");
    assert_eq!(server.two_statuses("PUT", "/lake").await, [409, 200]);
}

#[tokio::test]
async fn one_with_object_lock_is_made_again_with_its_rule() {
    let server = server().await;
    let locked = [("x-amz-bucket-object-lock-enabled", "true")];
    let made = server.ask_by_owner(OTHER, "PUT", "/lake", &locked).await;
    assert_eq!(made.code(), "BucketAlreadyOwnedByYou", "it gets no lock that way");
    let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    let rule = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule>\
                <DefaultRetention><Mode>GOVERNANCE</Mode><Days>3</Days></DefaultRetention>\
                </Rule></ObjectLockConfiguration>";
    for (path, body) in [("/lake?versioning", enabled), ("/lake?object-lock", rule)] {
        let body = body.as_bytes();
        let set = server.send(Request { method: "PUT", path, body, ..Default::default() }).await;
        assert_eq!(set.status, 200, "{path}: {}", set.text());
    }
    assert_eq!(server.ask_by_owner(OTHER, "PUT", "/lake", &locked).await.status, 200);
    assert_eq!(server.two_statuses("GET", "/lake/old").await, [403, 200]);
    let kept = server.ask_by_owner(OTHER, "GET", "/lake?object-lock", &[]).await.text();
    assert!(kept.contains("<Days>3</Days>"), "{kept}");
}

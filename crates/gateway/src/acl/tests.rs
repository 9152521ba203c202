use super::*;
use http::HeaderMap;
use proptest::prelude::*;
use s3s::dto;

struct Known;

impl Users for Known {
    fn has(&self, id: &str) -> bool {
        ["me", "you"].contains(&id)
    }
}

struct Everybody;

impl Users for Everybody {
    fn has(&self, _id: &str) -> bool {
        true
    }
}

fn asked(pairs: &[(&'static str, &'static str)]) -> s3s::S3Result<Option<Acl>> {
    let headers: HeaderMap =
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
    Asked { headers: &headers, document: None }.acl("me", "boss", &Known)
}

#[test]
fn canned_lists_let_in_whom_they_name() {
    let acl = |name| Acl::canned(name, "me", "boss").unwrap();
    let reads = |name| {
        let acl = acl(name);
        [None, Some("you"), Some("boss"), Some("me")].map(|who| acl.permits(who, Permission::Read))
    };
    assert_eq!(reads("private"), [false, false, false, true]);
    assert_eq!(reads("public-read"), [true, true, true, true]);
    assert_eq!(reads("authenticated-read"), [false, true, true, true]);
    assert_eq!(reads("bucket-owner-read"), [false, false, true, true]);
    assert_eq!(reads("bucket-owner-full-control"), [false, false, true, true]);
    assert_eq!(reads("log-delivery-write"), [false, false, false, true]);
    assert!(acl("public-read-write").permits(None, Permission::Write));
    assert!(!acl("public-read").permits(None, Permission::Write));
    assert!(Acl::canned("open", "me", "me").is_none());
}

#[test]
fn an_owner_without_grants_can_still_replace_the_list() {
    let empty = Acl { owner: "me".into(), grants: Vec::new() };
    assert!(empty.permits(Some("me"), Permission::WriteAcp));
    assert!(!empty.permits(Some("me"), Permission::Read));
    assert!(!empty.permits(Some("you"), Permission::ReadAcp));
}

#[test]
fn headers_grant() {
    assert_eq!(asked(&[]).unwrap(), None);
    let acl = asked(&[(
        "x-amz-grant-read",
        "id=\"you\", uri=http://acs.amazonaws.com/groups/global/AllUsers",
    )]);
    let grants = acl.unwrap().unwrap().grants;
    let read = Permission::Read;
    assert_eq!(grants, [(Grantee::Owner("you".into()), read), (Grantee::Everyone, read)]);
    for (name, value, code) in [
        ("x-amz-acl", "opne", "InvalidArgument"),
        ("x-amz-grant-read", "id=stranger", "InvalidArgument"),
        ("x-amz-grant-read", "uri=http://elsewhere", "InvalidArgument"),
        ("x-amz-grant-read", "you", "InvalidArgument"),
        ("x-amz-grant-read", "emailAddress=a@b.c", "UnresolvableGrantByEmailAddress"),
    ] {
        assert_eq!(asked(&[(name, value)]).unwrap_err().code().as_str(), code, "{value}");
    }
    let both = asked(&[("x-amz-acl", "private"), ("x-amz-grant-read", "id=you")]);
    assert_eq!(both.unwrap_err().code().as_str(), "InvalidRequest");
}

#[test]
fn a_list_tells_with_which_headers_it_may_have_been_asked_for() {
    let lists = ["public-read", "authenticated-read", "bucket-owner-read", "log-delivery-write"];
    for name in lists {
        let acl = Acl::canned(name, "me", "boss").unwrap();
        let forms = acl.asked_with("boss");
        assert_eq!(forms[0], [("x-amz-acl".parse().unwrap(), name.to_string())]);
        let (granted, before) = forms.split_last().unwrap();
        assert_eq!(before.len(), 1, "{name}");
        let headers: HeaderMap =
            granted.iter().map(|(name, text)| (name.clone(), text.parse().unwrap())).collect();
        let users: &dyn Users = &Everybody;
        let again = Asked { headers: &headers, document: None }.acl("me", "boss", users);
        let mut again = again.unwrap().unwrap().grants;
        again.sort_by_key(|grant| acl.grants.iter().position(|it| it == grant));
        assert_eq!(again, acl.grants, "{name}");
    }
    // Its own name has each of those that close it.
    assert_eq!(Acl::private("boss").asked_with("boss").len(), 4);
    assert_eq!(Acl { owner: "me".into(), grants: Vec::new() }.asked_with("boss"), [[]]);
}

#[test]
fn documents_are_checked() {
    let document = |owner: &str, id: Option<&str>| dto::AccessControlPolicy {
        owner: Some(dto::Owner { id: Some(owner.into()), display_name: None }),
        grants: Some(vec![dto::Grant {
            grantee: Some(dto::Grantee {
                display_name: None,
                email_address: None,
                id: id.map(str::to_string),
                type_: dto::Type::from_static(dto::Type::CANONICAL_USER),
                uri: None,
            }),
            permission: Some(dto::Permission::from_static("READ")),
        }]),
    };
    let headers = HeaderMap::new();
    let acl =
        |document| Asked { headers: &headers, document: Some(document) }.acl("me", "me", &Known);
    let good = acl(document("me", Some("you"))).unwrap().unwrap();
    assert!(good.permits(Some("you"), Permission::Read));
    assert_eq!(good.shown_grants()[0].grantee.as_ref().unwrap().id.as_deref(), Some("you"));
    assert_eq!(acl(document("you", Some("you"))).unwrap_err().code().as_str(), "AccessDenied");
    assert_eq!(acl(document("me", None)).unwrap_err().code().as_str(), "MalformedACLError");
}

fn any_grantee() -> impl Strategy<Value = Grantee> {
    prop_oneof![
        any::<String>().prop_map(Grantee::Owner),
        Just(Grantee::Everyone),
        Just(Grantee::Signed),
        Just(Grantee::LogDelivery),
    ]
}

fn any_permission() -> impl Strategy<Value = Permission> {
    (0..Permission::ALL.len()).prop_map(|index| Permission::ALL[index].0)
}

proptest! {
    #[test]
    fn a_kept_list_comes_back(
        owner in any::<String>(),
        grants in prop::collection::vec((any_grantee(), any_permission()), 0..6),
    ) {
        let acl = Acl { owner, grants };
        let text = acl.to_text();
        prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
        prop_assert_eq!(Acl::from_text(&text), Some(acl));
    }

    #[test]
    fn a_closed_list_lets_in_nobody_unnamed(
        grants in prop::collection::vec((any_grantee(), any_permission()), 0..6),
        wanted in any_permission(),
    ) {
        let acl = Acl { owner: "me".into(), grants }.without_public();
        prop_assert!(!acl.permits(None, wanted) && !acl.is_public());
    }

    #[test]
    fn garbage_is_no_list(text in "\\PC{0,40}") {
        if let Some(acl) = Acl::from_text(&text) {
            prop_assert_eq!(Acl::from_text(&acl.to_text()), Some(acl));
        }
    }
}

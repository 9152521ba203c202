//! Patterns against their definition, decisions against a model.

use super::*;
use proptest::prelude::*;

/// The definition, in exponential time.
fn defined(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), None) => defined(rest, name),
        (Some((b'*', rest)), Some((_, tail))) => defined(rest, name) || defined(pattern, tail),
        (Some((byte, rest)), Some((first, tail))) => byte == first && defined(rest, tail),
        _ => false,
    }
}

fn grants() -> impl Strategy<Value = Vec<Grant>> {
    let grant =
        (prop::collection::vec("[ab*]{0,4}", 0..3), 0..32_u8).prop_map(|(buckets, bits)| Grant {
            buckets: buckets.into_iter().map(Pattern::new).collect(),
            rights: Rights(bits),
        });
    prop::collection::vec(grant, 0..4)
}

fn right() -> impl Strategy<Value = Right> {
    prop::sample::select(Right::ALL.iter().map(|row| row.0).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn a_pattern_means_what_it_is_defined_to(pattern in "[ab*]{0,7}", name in "[ab]{0,9}") {
        let expected = defined(pattern.as_bytes(), name.as_bytes());
        prop_assert_eq!(Pattern::new(pattern).matches(&name), expected);
    }

    #[test]
    fn a_decision_is_one_grant_that_covers_bucket_and_right(
        grants in grants(), bucket in "[ab]{1,3}", right in right(),
    ) {
        let single = grants.iter().any(|grant| {
            let named = grant.buckets.iter().any(|it| defined(it.0.as_bytes(), bucket.as_bytes()));
            named && grant.rights.has(right)
        });
        prop_assert_eq!(allows(&grants, Some(&bucket), Need::Right(right)), single);
    }

    #[test]
    fn a_further_grant_takes_nothing_away(
        grants in grants(), more in grants(), bucket in "[ab]{1,3}", right in right(),
    ) {
        let before = allows(&grants, Some(&bucket), Need::Right(right));
        let both: Vec<_> = grants.into_iter().chain(more).collect();
        prop_assert!(!before || allows(&both, Some(&bucket), Need::Right(right)));
    }

    #[test]
    fn nobody_without_a_grant_may_anything(name in "[A-Za-z]{0,20}", bucket in "[ab]{1,3}") {
        prop_assert!(!allows(&[], Some(&bucket), need_of(&name)));
        prop_assert!(!allows(&[], None, need_of(&name)));
    }
}

#[test]
fn rights_of_one_grant_do_not_leak_into_the_buckets_of_another() {
    let grant = |bucket: &str, rights: &[&str]| Grant {
        buckets: vec![Pattern::new(bucket)],
        rights: Rights::parse(rights.iter().copied()).unwrap(),
    };
    let grants = [grant("logs-*", &["read", "list"]), grant("scratch", &["all"])];
    let may = |bucket, operation| allows(&grants, Some(bucket), need_of(operation));
    assert!(may("logs-2026", "GetObject") && may("logs-2026", "ListObjectsV2"));
    assert!(!may("logs-2026", "PutObject") && !may("logs-2026", "DeleteObjects"));
    assert!(may("scratch", "DeleteBucket") && !may("logs", "GetObject"));
    assert!(may("logs-2026", "HeadBucket") && !may("other", "HeadBucket"));
}

#[test]
fn unknown_operations_need_the_highest_right() {
    assert_eq!(need_of("PutBucketPolicy"), Need::Right(Right::Admin));
    assert_eq!(need_of("WhateverComesNext"), Need::Right(Right::Admin));
}

#[test]
fn a_slip_in_a_right_is_told() {
    let error = Rights::parse(["delet"]).unwrap_err();
    assert_eq!(error.hint(), Some("Did you mean `delete`?"));
    assert_eq!(Rights::parse(["all"]).unwrap(), Rights::ALL);
}

#[test]
fn a_grant_ends_at_the_name_of_its_bucket() {
    let grants = [Grant { buckets: vec![Pattern::new("trusted")], rights: Rights::ALL }];
    let may = |bucket| allows(&grants, Some(bucket), Need::Right(Right::Read));
    assert!(may("trusted"));
    for neighbour in ["trusted-evil", "trusted.evil", "trusted2", "trust", "Trusted", "trusted/x"] {
        assert!(!may(neighbour), "{neighbour}");
    }
}

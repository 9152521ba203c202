//! Objects in blocks: commits whose answers are lost, other writers, parts that never came.

use crate::support::{body, fake, get, heard, none, open, told};
use penstock_base::{Kind, Retry};
use penstock_store::streaming::StreamingStore as _;
use penstock_store::{GetRange, Part, PutOptions, Store, WriteCondition};
use penstock_testkit::fake::options::AZURE_ACCOUNT_KEY;
use std::collections::BTreeSet;

#[tokio::test]
async fn lost_answer_of_a_commit_is_made_good() {
    for condition in [WriteCondition::None, WriteCondition::IfAbsent] {
        let (fake, store) = fake();
        let options = PutOptions { condition, ..none() };
        let id = store.create_upload("k", &options).await.unwrap();
        let part = store.upload_part("k", &id, 1, body("whole")).await.unwrap();
        fake.fault("lost-answer,op=PutBlockList,times=1");
        let parts = [part];
        let result = match store.complete_upload("k", &id, &parts, &options).await {
            Ok(result) => result,
            Err(error) => {
                assert_eq!(error.retry(), Retry::BackOff, "{error}");
                store.complete_upload("k", &id, &parts, &options).await.unwrap()
            }
        };
        assert_eq!(store.stat("k").await.unwrap().etag, result.etag);
        assert_eq!(get(&store, "k", GetRange::All).await.unwrap(), "whole");
    }
}

#[tokio::test]
async fn commit_after_anothers_commit_is_a_conflict_and_no_mix() {
    let (_fake, store) = fake();
    let ours = store.create_upload("k", &none()).await.unwrap();
    let part = store.upload_part("k", &ours, 1, body("ours")).await.unwrap();
    store.put("k", body("theirs"), &none()).await.unwrap();
    let error = store.complete_upload("k", &ours, &[part], &none()).await.unwrap_err();
    told(&error, Kind::Conflict, &["another writer", "names of its own"]);
    assert_eq!(get(&store, "k", GetRange::All).await.unwrap(), "theirs");
}

/// The other's commit drops what was staged before it, not what is staged after it.
#[tokio::test]
async fn commit_of_anothers_amid_the_parts_is_a_conflict() {
    let (_fake, store) = fake();
    let ours = store.create_upload("k", &none()).await.unwrap();
    let one = store.upload_part("k", &ours, 1, body("ours")).await.unwrap();
    store.put("k", body("theirs"), &none()).await.unwrap();
    let two = store.upload_part("k", &ours, 2, body("too")).await.unwrap();
    let error = store.complete_upload("k", &ours, &[one, two], &none()).await.unwrap_err();
    told(&error, Kind::Conflict, &["another writer", "names of its own"]);
    assert_eq!(get(&store, "k", GetRange::All).await.unwrap(), "theirs");
}

#[tokio::test]
async fn a_part_that_never_came_is_named() {
    let (_fake, store) = fake();
    store.put("k", body("older"), &none()).await.unwrap();
    let id = store.create_upload("k", &none()).await.unwrap();
    let one = store.upload_part("k", &id, 1, body("x")).await.unwrap();
    let two = Part { number: 2, ..one.clone() };
    let error = store.complete_upload("k", &id, &[one.clone(), two], &none()).await.unwrap_err();
    told(&error, Kind::Invalid, &["part 2 was never uploaded"]);
    store.complete_upload("k", &id, &[one], &none()).await.unwrap();
    assert_eq!(get(&store, "k", GetRange::All).await.unwrap(), "x");
}

#[tokio::test]
async fn abort_sends_nothing() {
    let (_fake, store, heard) = heard();
    let id = store.create_upload("k", &none()).await.unwrap();
    store.upload_part("k", &id, 1, body("x")).await.unwrap();
    heard.take();
    store.abort_upload("k", &id).await.unwrap();
    assert_eq!(heard.take(), Vec::<String>::new());
    assert_eq!(store.stat("k").await.unwrap_err().kind(), Kind::NotFound);
}

#[tokio::test]
async fn upload_keeps_the_options_it_began_with() {
    let (_fake, store) = fake();
    let options = PutOptions {
        content_type: Some("text/csv".into()),
        metadata: vec![("my-key".into(), "grün".into())],
        ..none()
    };
    let id = store.create_upload("k", &options).await.unwrap();
    let part = store.upload_part("k", &id, 1, body("x")).await.unwrap();
    store.complete_upload("k", &id, &[part], &none()).await.unwrap();
    let meta = store.stat("k").await.unwrap();
    assert_eq!((meta.content_type, meta.metadata), (options.content_type, options.metadata));
}

/// Of the same size, so that nothing but its tag tells it from what it was before.
#[tokio::test]
async fn of_a_part_that_was_sent_again_the_tag_tells_the_bytes() {
    let (fake, store) = fake();
    let id = store.create_upload("k", &none()).await.unwrap();
    let first = store.upload_part("k", &id, 1, body("AAAA")).await.unwrap();
    let second = store.upload_part("k", &id, 1, body("BBBB")).await.unwrap();
    assert_ne!(first.etag, second.etag);
    // As another replica that has seen none of it.
    let other = open(&fake, &[("account_key", AZURE_ACCOUNT_KEY)]);
    let listed = other.list_parts("k", &id).await.unwrap();
    let tags = BTreeSet::from_iter(listed.iter().map(|part| &part.etag));
    assert_eq!(tags, BTreeSet::from([&first.etag, &second.etag]));
    let stray = Part { etag: format!("{}-1", "0".repeat(32)), ..second.clone() };
    let error = other.complete_upload("k", &id, &[stray], &none()).await.unwrap_err();
    told(&error, Kind::Invalid, &["part 1 was uploaded with another tag"]);
    other.complete_upload("k", &id, &[second], &none()).await.unwrap();
    assert_eq!(get(&other, "k", GetRange::All).await.unwrap(), "BBBB");
    let id = store.create_upload("l", &none()).await.unwrap();
    let first = store.upload_part("l", &id, 1, body("AAAA")).await.unwrap();
    store.upload_part("l", &id, 1, body("BBBB")).await.unwrap();
    other.complete_upload("l", &id, &[first], &none()).await.unwrap();
    assert_eq!(get(&other, "l", GetRange::All).await.unwrap(), "AAAA");
}

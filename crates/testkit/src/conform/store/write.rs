//! PUT, DELETE and copy: whole objects, conditions, batches, tags.

use super::Subject;
use super::support::{tag, when};
use crate::ramp::ramp;
use bytes::Bytes;
use penstock_base::Kind;
use penstock_store::{ETag, GetRange, ListRequest, Payload, PutOptions, WriteCondition};

/// What is put is what is got, for sizes around the usual buffer sizes.
pub async fn put_round_trip(subject: Subject) {
    if !subject.store.capabilities().write {
        return;
    }
    for (seed, size) in [0, 1, 1000, 65_535, 65_536, 65_537, (1 << 20) + 1].into_iter().enumerate()
    {
        let key = subject.key(&format!("object-{size}"));
        let result = subject.put(&key, ramp(seed as u64, 0, size), &PutOptions::default()).await;
        let put = result.unwrap_or_else(|error| panic!("put of {size} bytes: {error}"));
        subject.assert_is(&key, seed as u64, size).await;
        assert_eq!(put.etag, subject.stat(&key).await.etag, "tag of {size} bytes");
    }
}

/// A payload of many pieces, some of them empty, arrives in order.
pub async fn put_payload_in_pieces(subject: Subject) {
    if !subject.store.capabilities().write {
        return;
    }
    let mut pieces = vec![Bytes::new()];
    let mut end = 0;
    for len in [1, 0, 7, 65_536, 0, 100_000, 3, 1 << 20, 0] {
        pieces.push(ramp(1, end, len));
        end += len;
    }
    let key = subject.key("pieces");
    let put = subject.store.put(&key, Payload(pieces), &PutOptions::default()).await;
    put.expect("a payload of many pieces can be put");
    subject.assert_is(&key, 1, end).await;
}

/// The second write replaces the first as a whole, and the tag changes.
pub async fn put_overwrites_whole(subject: Subject) {
    if !subject.store.capabilities().write {
        return;
    }
    let key = subject.key("overwritten");
    let mut last = None;
    for (seed, size) in [(1, 5000), (2, 100), (3, 0), (4, 9000)] {
        let put = subject.put(&key, ramp(seed, 0, size), &PutOptions::default()).await;
        let etag = tag(put.expect("an object can be replaced").etag);
        subject.assert_is(&key, seed, size).await;
        assert_ne!(Some(&etag), last.as_ref(), "another content has another tag");
        last = Some(etag);
    }
}

/// Media type and user metadata come back.
pub async fn put_content_type_and_metadata(subject: Subject) {
    if !subject.store.capabilities().write {
        return;
    }
    let key = subject.key("typed");
    let options = PutOptions {
        content_type: Some("application/vnd.apache.parquet".to_string()),
        metadata: vec![("origin".to_string(), "conformance suite".to_string())],
        ..PutOptions::default()
    };
    subject.put(&key, ramp(1, 0, 10), &options).await.expect("type and metadata are taken");
    subject.assert_is(&key, 1, 10).await;
    let meta = subject.stat(&key).await;
    let told = meta.content_type;
    if subject.store.root().starts_with("file:") {
        return; // A file system has no place for a media type.
    }
    assert_eq!(told.as_deref(), Some("application/vnd.apache.parquet"));
    // What begins with `@` the service noted itself, such as checksums.
    let is_users = |(name, _): &&(String, String)| !name.starts_with('@');
    let users: Vec<_> = meta.metadata.iter().filter(is_users).cloned().collect();
    assert_eq!(users, options.metadata, "user metadata by stat");
    let got = subject.get(&key, GetRange::All).await.meta.content_type;
    assert_eq!(got, told, "GET and stat tell one type");
}

/// Creates once; the second attempt is a conflict and changes nothing.
pub async fn put_if_absent(subject: Subject) {
    let capabilities = subject.store.capabilities();
    if !capabilities.write {
        return;
    }
    let key = subject.key("created");
    let options = when(WriteCondition::IfAbsent);
    let first = subject.put(&key, ramp(1, 0, 100), &options).await;
    // Google by a token can create and cannot replace, and so claims neither; what it does is kept.
    if !capabilities.conditional_put && first.is_err() {
        subject.refused(first, &[Kind::Unsupported], &key);
        return subject.assert_absent(&key).await;
    }
    first.expect("nothing is there yet");
    let second = subject.put(&key, ramp(2, 0, 200), &options).await;
    subject.refused(second, &[Kind::Conflict], &key);
    subject.assert_is(&key, 1, 100).await;
    subject.store.delete(&key, None).await.expect("the object can be removed");
    subject.put(&key, ramp(3, 0, 300), &options).await.expect("nothing is there any more");
    subject.assert_is(&key, 3, 300).await;
}

/// Replaces one version only; a stale tag is a conflict and changes nothing.
pub async fn put_if_match(subject: Subject) {
    let capabilities = subject.store.capabilities();
    if !capabilities.write {
        return;
    }
    let key = subject.place("compared", 1, 100).await;
    let first = tag(subject.stat(&key).await.etag);
    let options = when(WriteCondition::IfMatch(first.clone()));
    let replaced = subject.put(&key, ramp(2, 0, 200), &options).await;
    if !capabilities.conditional_put {
        subject.refused(replaced, &[Kind::Unsupported], &key);
        return subject.assert_is(&key, 1, 100).await;
    }
    let second = tag(replaced.expect("the tag is the current one").etag);
    let stale = subject.put(&key, ramp(3, 0, 300), &options).await;
    subject.refused(stale, &[Kind::Conflict], &key);
    subject.assert_is(&key, 2, 200).await;
    let options = when(WriteCondition::IfMatch(second));
    subject.put(&key, ramp(4, 0, 400), &options).await.expect("the tag is the current one");
    let missing = subject.key("never-there");
    let nowhere = subject.put(&missing, ramp(5, 0, 5), &options).await;
    subject.refused(nowhere, &[Kind::Conflict, Kind::NotFound], &missing);
    subject.assert_absent(&missing).await;
}

/// Removed is gone; removing what is not there succeeds.
pub async fn delete_one(subject: Subject) {
    if !subject.store.capabilities().write {
        return;
    }
    let key = subject.place("removed", 1, 100).await;
    let beside = subject.place("removed-not", 2, 100).await;
    subject.store.delete(&key, None).await.expect("the object can be removed");
    subject.assert_absent(&key).await;
    subject.store.delete(&key, None).await.expect("removing what is not there succeeds");
    subject.assert_is(&beside, 2, 100).await;
}

/// Removes one version only.
pub async fn delete_if_match(subject: Subject) {
    let capabilities = subject.store.capabilities();
    if !capabilities.write {
        return;
    }
    let key = subject.place("compared", 1, 100).await;
    let first = tag(subject.stat(&key).await.etag);
    if !capabilities.conditional_delete {
        let answer = subject.store.delete(&key, Some(&first)).await;
        subject.refused(answer, &[Kind::Unsupported], &key);
        return subject.assert_is(&key, 1, 100).await;
    }
    subject.place("compared", 2, 200).await;
    let stale = subject.store.delete(&key, Some(&first)).await;
    subject.refused(stale, &[Kind::Conflict], &key);
    subject.assert_is(&key, 2, 200).await;
    let current = tag(subject.stat(&key).await.etag);
    subject.store.delete(&key, Some(&current)).await.expect("the tag is the current one");
    subject.assert_absent(&key).await;
}

/// One result for each key in order; missing keys succeed; other objects stay.
pub async fn delete_batch(subject: Subject) {
    if !subject.store.capabilities().write {
        return;
    }
    let names =
        ["plain", "with space", "per%20cent", "a+b", "q?x=1&y", "<&>\"'", "ünïcode-\u{1F980}"];
    let mut keys = Vec::new();
    for name in names.into_iter().filter(|name| !subject.may_refuse(name)) {
        keys.push(subject.place(name, 1, 10).await);
        keys.push(subject.key(&format!("missing {name}")));
    }
    let most = subject.store.profile().delete_batch_max;
    let beside = subject.place("beside", 2, 10).await;
    for chunk in keys.chunks(most) {
        let results = subject.store.delete_batch(chunk).await.expect("the request succeeds");
        assert_eq!(results.len(), chunk.len(), "one result for each key");
        for (key, result) in chunk.iter().zip(results) {
            result.unwrap_or_else(|error| panic!("{key:?} can be removed: {error}"));
        }
    }
    for key in &keys {
        subject.assert_absent(key).await;
    }
    subject.assert_is(&beside, 2, 10).await;
    let none = subject.store.delete_batch(&[]).await.expect("a batch of nothing succeeds");
    assert!(none.is_empty());
}

/// A copy has the bytes and the media type of its source, also under awkward names.
pub async fn copy_object(subject: Subject) {
    let capabilities = subject.store.capabilities();
    if !capabilities.write {
        return;
    }
    let options = PutOptions::default();
    let from = subject.place("source", 1, 100_000).await;
    if !capabilities.copy {
        let answer = subject.store.copy(&from, &subject.key("target"), &options).await;
        let error = answer.err().map(|error| error.kind());
        return assert_eq!(error, Some(Kind::Unsupported), "copying is not claimed");
    }
    let pairs = [("source", "target"), ("s p%20c+e&ü?#", "t p%20c+e&ü?#"), ("deep/er/x", "y")];
    for (from, to) in pairs.into_iter().filter(|(from, _)| !subject.may_refuse(from)) {
        let from = subject.place(from, 1, 100_000).await;
        let to = subject.key(to);
        let result = subject.store.copy(&from, &to, &options).await;
        let copied = result.unwrap_or_else(|error| panic!("copy {from:?} to {to:?}: {error}"));
        subject.assert_is(&to, 1, 100_000).await;
        subject.assert_is(&from, 1, 100_000).await;
        if copied.etag.is_some() {
            assert_eq!(copied.etag, subject.stat(&to).await.etag, "tag of the copy");
        }
    }
    let over = subject.place("over", 2, 7).await;
    subject.store.copy(&from, &over, &options).await.expect("a copy may replace");
    subject.assert_is(&over, 1, 100_000).await;
    let nowhere = subject.key("nowhere");
    let missing = subject.key("missing");
    let answer = subject.store.copy(&missing, &nowhere, &options).await;
    assert_eq!(answer.map(drop).map_err(|error| error.kind()), Err(Kind::NotFound));
    subject.assert_absent(&nowhere).await;
}

/// A conditional copy holds its condition or is refused as `Unsupported`; it never ignores it.
pub async fn copy_conditional(subject: Subject) {
    let capabilities = subject.store.capabilities();
    if !capabilities.write || !capabilities.copy {
        return;
    }
    let from = subject.place("source", 1, 100).await;
    let to = subject.place("target", 2, 200).await;
    let stale = WriteCondition::IfMatch(ETag("0badc0de".to_string()));
    for condition in [WriteCondition::IfAbsent, stale] {
        let answer = subject.store.copy(&from, &to, &when(condition)).await;
        let kind = answer.map(drop).map_err(|error| error.kind());
        assert!(
            matches!(kind, Err(Kind::Conflict | Kind::Unsupported)),
            "a condition that does not hold was answered by {kind:?}"
        );
        subject.assert_is(&to, 2, 200).await;
    }
}

/// PUT, GET, stat and the listing tell one tag for one version.
pub async fn etags_agree(subject: Subject) {
    let capabilities = subject.store.capabilities();
    if !capabilities.write {
        return;
    }
    let key = subject.key("tagged");
    for (seed, size) in [(1, 10), (2, 10), (3, 70_000)] {
        let put = subject.put(&key, ramp(seed, 0, size), &PutOptions::default()).await;
        let put = tag(put.expect("an object can be put").etag);
        assert!(put.is_strong() && !put.0.contains('"'), "{put:?} is bare and strong");
        let answer = subject.get(&key, GetRange::All).await;
        assert_eq!(answer.meta.etag.as_ref(), Some(&put), "tag by GET");
        drop(answer);
        assert_eq!(subject.stat(&key).await.etag.as_ref(), Some(&put), "tag by stat");
        if capabilities.list && capabilities.list_etag {
            let request = ListRequest { prefix: key.clone(), ..ListRequest::default() };
            let page = subject.walk(request).await.remove(0);
            assert_eq!(page.objects[0].meta.etag.as_ref(), Some(&put), "tag by listing");
        }
    }
}

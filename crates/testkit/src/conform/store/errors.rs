//! What a store says when it fails, and what it says of itself.

use super::Subject;
use super::support::{bounded, plain};
use penstock_base::Kind;
use penstock_store::{GetRange, PutOptions, UploadId};

/// A missing object is `NotFound`, for every read, and retrying is not advised.
pub async fn missing_object(subject: Subject) {
    for name in ["missing", "missing dir/with % and ü", "x/y/z"] {
        let key = subject.key(name);
        subject.refused(subject.store.stat(&key).await, &[Kind::NotFound], &key);
        for range in [GetRange::All, bounded(0, 10), GetRange::From(5)] {
            let answer = subject.store.get(&key, plain(range)).await;
            subject.refused(answer, &[Kind::NotFound], &key);
        }
    }
}

/// A store that does not claim to write refuses every way of writing.
pub async fn unclaimed_is_unsupported(subject: Subject) {
    let capabilities = subject.store.capabilities();
    let beyond = !capabilities.write
        && (capabilities.conditional_put || capabilities.conditional_delete || capabilities.copy);
    assert!(!beyond, "a store that cannot write claims ways of writing: {capabilities:?}");
    if capabilities.write {
        return;
    }
    let store = &subject.store;
    let key = subject.key("written");
    let (options, upload) = (PutOptions::default(), UploadId("none".to_string()));
    let bytes = || crate::ramp::ramp(1, 0, 10);
    let unsupported = &[Kind::Unsupported];
    subject.refused(subject.put(&key, bytes(), &options).await, unsupported, &key);
    subject.refused(store.create_upload(&key, &options).await, unsupported, &key);
    let part = store.upload_part(&key, &upload, 1, bytes().into()).await;
    subject.refused(part, unsupported, &key);
    subject.refused(store.complete_upload(&key, &upload, &[], &options).await, unsupported, &key);
    subject.refused(store.delete(&key, None).await, unsupported, &key);
    let copied = store.copy(&key, &subject.key("copy"), &options).await;
    assert_eq!(copied.map(drop).map_err(|error| error.kind()), Err(Kind::Unsupported));
    let batch = store.delete_batch(std::slice::from_ref(&key)).await;
    assert_eq!(batch.map(drop).map_err(|error| error.kind()), Err(Kind::Unsupported));
}

/// What a store says of itself makes sense.
pub async fn profile_is_sound(subject: Subject) {
    let profile = subject.store.profile();
    assert!(profile.first_byte_ms >= 0.0 && profile.first_byte_ms < 10_000.0);
    assert!(profile.connection_bytes_per_s > 0.0);
    assert!(profile.part_size_min_bytes <= profile.part_size_max_bytes);
    assert!(profile.part_count_max > 0);
    assert!(profile.put_size_max_bytes > 0);
    assert!(profile.delete_batch_max > 0);
    let root = subject.store.root();
    assert!(root.contains("://") && root.ends_with('/'), "{root} is a URL that ends with /");
    assert!(!root.contains('@') && !root.contains('?'), "{root} carries no credentials");
}

/// `Debug` of a store shows no secret.
pub async fn debug_shows_no_secret(subject: Subject) {
    subject.assert_no_secret(&format!("{:?}", subject.store));
    subject.assert_no_secret(subject.store.root());
}

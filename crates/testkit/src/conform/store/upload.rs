//! Multipart uploads: whole or not at all.

use super::Subject;
use super::support::{tag, when};
use crate::ramp::ramp;
use penstock_base::Kind;
use penstock_store::{GetRange, ListRequest, Part, PutOptions, UploadId, WriteCondition};

/// Whether uploads can be examined.
fn uploads(subject: &Subject) -> bool {
    subject.store.capabilities().write
}

async fn create(subject: &Subject, key: &str, options: &PutOptions) -> UploadId {
    let created = subject.store.create_upload(key, options).await;
    created.unwrap_or_else(|error| panic!("create upload of {key:?}: {error}"))
}

/// Sends bytes `start..start + len` of stream `seed` as part `number`.
async fn send(
    subject: &Subject,
    key: &str,
    upload: &UploadId,
    number: u32,
    bytes: (u64, u64, u64),
) -> Part {
    let (seed, start, len) = bytes;
    let sent = subject.store.upload_part(key, upload, number, ramp(seed, start, len).into()).await;
    let part = sent.unwrap_or_else(|error| panic!("part {number} of {key:?}: {error}"));
    assert_eq!((part.number, part.size_bytes), (number, len), "what the part says of itself");
    part
}

async fn complete(subject: &Subject, key: &str, upload: &UploadId, parts: &[Part]) {
    let options = PutOptions::default();
    let done = subject.store.complete_upload(key, upload, parts, &options).await;
    let done = done.unwrap_or_else(|error| panic!("complete upload of {key:?}: {error}"));
    if done.etag.is_some() {
        assert_eq!(done.etag, subject.stat(key).await.etag, "tag of the completed object");
    }
}

/// Sends `count` parts of stream `seed`, the last one short, in the order of `order`.
async fn send_all(
    subject: &Subject,
    key: &str,
    upload: &UploadId,
    seed: u64,
    order: &[u32],
) -> (Vec<Part>, u64) {
    let size = subject.part_size();
    let last = order.iter().copied().max().unwrap_or(1);
    let mut parts = Vec::new();
    for &number in order {
        let len = if number == last { 777 } else { size };
        let start = u64::from(number - 1) * size;
        parts.push(send(subject, key, upload, number, (seed, start, len)).await);
    }
    parts.sort_by_key(|part| part.number);
    (parts, u64::from(last - 1) * size + 777)
}

/// One part is enough, and may be small.
pub async fn upload_one_part(subject: Subject) {
    if !uploads(&subject) {
        return;
    }
    let key = subject.key("one part");
    let options =
        PutOptions { content_type: Some("text/csv".to_string()), ..PutOptions::default() };
    let upload = create(&subject, &key, &options).await;
    let part = send(&subject, &key, &upload, 1, (1, 0, 333)).await;
    let done = subject.store.complete_upload(&key, &upload, &[part], &options).await;
    done.expect("an upload of one part completes");
    subject.assert_is(&key, 1, 333).await;
    if !subject.store.root().starts_with("file:") {
        assert_eq!(subject.stat(&key).await.content_type.as_deref(), Some("text/csv"));
    }
}

/// Parts join in the order of their numbers, without gap or overlap; ranges may cross them.
pub async fn upload_many_parts(subject: Subject) {
    if !uploads(&subject) {
        return;
    }
    let key = subject.key("many%20parts+ü");
    let upload = create(&subject, &key, &PutOptions::default()).await;
    let (parts, size) = send_all(&subject, &key, &upload, 1, &[1, 2, 3, 4]).await;
    complete(&subject, &key, &upload, &parts).await;
    subject.assert_is(&key, 1, size).await;
    let edge = subject.part_size();
    for (start, end) in [(edge - 3, edge + 3), (edge, edge + 1), (edge - 1, 2 * edge + 1)] {
        let range = super::support::bounded(start, end);
        let bytes = subject.read(&key, range).await;
        super::support::assert_ramp(&bytes, 1, start, end - start, "range across parts");
    }
}

/// Parts may be sent in any order.
pub async fn upload_out_of_order(subject: Subject) {
    if !uploads(&subject) {
        return;
    }
    let key = subject.key("shuffled");
    let upload = create(&subject, &key, &PutOptions::default()).await;
    let (parts, size) = send_all(&subject, &key, &upload, 2, &[3, 1, 2]).await;
    complete(&subject, &key, &upload, &parts).await;
    subject.assert_is(&key, 2, size).await;
}

/// A part sent again replaces its first form.
pub async fn upload_part_sent_again(subject: Subject) {
    if !uploads(&subject) {
        return;
    }
    let key = subject.key("corrected");
    let size = subject.part_size();
    let upload = create(&subject, &key, &PutOptions::default()).await;
    send(&subject, &key, &upload, 1, (9, 0, size)).await;
    let second = send(&subject, &key, &upload, 2, (1, size, 50)).await;
    let first = send(&subject, &key, &upload, 1, (1, 0, size)).await;
    complete(&subject, &key, &upload, &[first, second]).await;
    subject.assert_is(&key, 1, size + 50).await;
}

/// Nothing shows before completion: no new object, and an old one stays whole.
pub async fn upload_invisible_until_complete(subject: Subject) {
    if !uploads(&subject) {
        return;
    }
    let fresh = subject.key("fresh");
    let upload = create(&subject, &fresh, &PutOptions::default()).await;
    subject.assert_absent(&fresh).await;
    let part = send(&subject, &fresh, &upload, 1, (1, 0, 100)).await;
    subject.assert_absent(&fresh).await;
    complete(&subject, &fresh, &upload, &[part]).await;
    subject.assert_is(&fresh, 1, 100).await;

    let old = subject.place("old", 2, 5000).await;
    let upload = create(&subject, &old, &PutOptions::default()).await;
    let part = send(&subject, &old, &upload, 1, (3, 0, 100)).await;
    subject.assert_is(&old, 2, 5000).await;
    complete(&subject, &old, &upload, &[part]).await;
    subject.assert_is(&old, 3, 100).await;
}

/// An aborted upload leaves nothing; aborting again, or what never was, succeeds.
pub async fn upload_abort_leaves_nothing(subject: Subject) {
    if !uploads(&subject) {
        return;
    }
    let key = subject.key("given up");
    let upload = create(&subject, &key, &PutOptions::default()).await;
    send(&subject, &key, &upload, 1, (1, 0, 100)).await;
    for time in ["first", "second"] {
        let aborted = subject.store.abort_upload(&key, &upload).await;
        aborted.unwrap_or_else(|error| panic!("{time} abort: {error}"));
        subject.assert_absent(&key).await;
    }
    if subject.store.capabilities().list {
        let request = ListRequest { prefix: subject.prefix.clone(), ..ListRequest::default() };
        let pages = subject.walk(request).await;
        assert!(pages.iter().all(|page| page.objects.is_empty()), "an abort leaves no name");
    }
    let old = subject.place("old", 2, 50).await;
    let upload = create(&subject, &old, &PutOptions::default()).await;
    send(&subject, &old, &upload, 1, (3, 0, 100)).await;
    subject.store.abort_upload(&old, &upload).await.expect("an upload can be aborted");
    subject.assert_is(&old, 2, 50).await;
}

/// After a lost answer the same completion succeeds again, if the object is still that upload's.
pub async fn upload_completed_twice(subject: Subject) {
    if !uploads(&subject) {
        return;
    }
    let key = subject.key("asked twice");
    let upload = create(&subject, &key, &PutOptions::default()).await;
    let (parts, size) = send_all(&subject, &key, &upload, 1, &[1, 2]).await;
    complete(&subject, &key, &upload, &parts).await;
    let first = subject.stat(&key).await.etag;
    complete(&subject, &key, &upload, &parts).await;
    subject.assert_is(&key, 1, size).await;
    assert_eq!(subject.stat(&key).await.etag, first, "completing again changes nothing");

    subject.place("asked twice", 5, 10).await;
    let options = PutOptions::default();
    let late = subject.store.complete_upload(&key, &upload, &parts, &options).await;
    assert!(late.is_err(), "the object is another one by now");
    subject.assert_is(&key, 5, 10).await;
}

/// A condition is judged when the upload completes.
pub async fn upload_conditional_complete(subject: Subject) {
    if !uploads(&subject) {
        return;
    }
    let key = subject.place("there", 1, 40).await;
    let etag = tag(subject.stat(&key).await.etag);
    let absent = when(WriteCondition::IfAbsent);
    if !subject.store.capabilities().conditional_put {
        let upload = subject.store.create_upload(&key, &absent).await;
        if let Ok(upload) = upload {
            let part = send(&subject, &key, &upload, 1, (2, 0, 80)).await;
            let done = subject.store.complete_upload(&key, &upload, &[part], &absent).await;
            subject.refused(done, &[Kind::Unsupported], &key);
        }
        return subject.assert_is(&key, 1, 40).await;
    }
    let upload = create(&subject, &key, &absent).await;
    let part = send(&subject, &key, &upload, 1, (2, 0, 80)).await;
    let done = subject.store.complete_upload(&key, &upload, &[part], &absent).await;
    subject.refused(done, &[Kind::Conflict], &key);
    subject.assert_is(&key, 1, 40).await;
    drop(subject.store.abort_upload(&key, &upload).await);

    let matching = when(WriteCondition::IfMatch(etag));
    let upload = create(&subject, &key, &matching).await;
    let part = send(&subject, &key, &upload, 1, (3, 0, 90)).await;
    let done = subject.store.complete_upload(&key, &upload, &[part], &matching).await;
    done.expect("the tag is the current one");
    subject.assert_is(&key, 3, 90).await;
}

/// Completing with a part that was never sent is an error, and nothing shows.
pub async fn upload_missing_part(subject: Subject) {
    if !uploads(&subject) {
        return;
    }
    let key = subject.key("gap");
    let upload = create(&subject, &key, &PutOptions::default()).await;
    let size = subject.part_size();
    let first = send(&subject, &key, &upload, 1, (1, 0, size)).await;
    let never = Part { number: 2, ..first.clone() };
    let options = PutOptions::default();
    let done = subject.store.complete_upload(&key, &upload, &[first, never], &options).await;
    let error = done.expect_err("part 2 was never sent");
    subject.assert_shape(&error, &key);
    subject.assert_absent(&key).await;
    subject.store.abort_upload(&key, &upload).await.expect("the upload can be aborted");
}

/// Two uploads of one key never mix: the object is one of them, whole.
pub async fn two_uploads_of_one_key(subject: Subject) {
    if !uploads(&subject) {
        return;
    }
    let key = subject.key("contended");
    let options = PutOptions::default();
    let (one, two) =
        (create(&subject, &key, &options).await, create(&subject, &key, &options).await);
    assert_ne!(one, two, "each upload has an id of its own");
    let size = subject.part_size();
    let one_first = send(&subject, &key, &one, 1, (1, 0, size)).await;
    let two_first = send(&subject, &key, &two, 1, (2, 0, size)).await;
    let two_second = send(&subject, &key, &two, 2, (2, size, 60)).await;
    let one_second = send(&subject, &key, &one, 2, (1, size, 40)).await;
    let first = subject.store.complete_upload(&key, &one, &[one_first, one_second], &options).await;
    first.expect("nothing stands in the way of the first");
    subject.assert_is(&key, 1, size + 40).await;
    let second =
        subject.store.complete_upload(&key, &two, &[two_first, two_second], &options).await;
    match second {
        Ok(_) => subject.assert_is(&key, 2, size + 60).await,
        Err(error) => {
            subject.assert_shape(&error, &key);
            subject.assert_is(&key, 1, size + 40).await;
        }
    }
    let whole = subject.read(&key, GetRange::All).await;
    assert!(whole.len() as u64 == size + 40 || whole.len() as u64 == size + 60);
}

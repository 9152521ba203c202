//! GET and stat: ranges, conditions, short reads, abandoned requests.

use super::Subject;
use super::support::{assert_ramp, bounded, plain, read_to_end, tag};
use futures_util::FutureExt;
use futures_util::future::join_all;
use penstock_base::Kind;
use penstock_store::{ETag, GetRange, GetRequest, ListRequest, PutOptions};
use std::time::{Duration, SystemTime};

const SIZE: u64 = 70_001;

/// A GET of everything tells size and range and gives every byte.
pub async fn get_whole_object(subject: Subject) {
    let key = subject.place("whole", 1, SIZE).await;
    let mut answer = subject.get(&key, GetRange::All).await;
    assert_eq!(answer.meta.size_bytes, Some(SIZE));
    assert_eq!((answer.range.start, answer.range.end), (0, SIZE));
    assert_ramp(&read_to_end(&mut answer.body).await, 1, 0, SIZE, &key);
}

/// An object of no bytes is an object.
pub async fn get_empty_object(subject: Subject) {
    let key = subject.place("empty", 1, 0).await;
    let mut answer = subject.get(&key, GetRange::All).await;
    assert_eq!(answer.meta.size_bytes, Some(0));
    assert!(read_to_end(&mut answer.body).await.is_empty());
    assert_eq!(subject.stat(&key).await.size_bytes, Some(0));
}

async fn check(subject: &Subject, key: &str, range: GetRange, start: u64, end: u64) {
    let mut answer = subject.get(key, range).await;
    let bytes = read_to_end(&mut answer.body).await;
    assert_ramp(&bytes, 1, start, end - start, &format!("{range:?}"));
    if end > start {
        assert_eq!((answer.range.start, answer.range.end), (start, end), "{range:?}");
        assert_eq!(answer.meta.size_bytes, Some(SIZE), "size of the object for {range:?}");
    } else {
        assert!(answer.range.is_empty(), "{range:?} told {:?}", answer.range);
    }
}

/// Inside, at the edges, across the end and past it.
pub async fn get_bounded_ranges(subject: Subject) {
    let key = subject.place("bounded", 1, SIZE).await;
    for (start, end) in [(0, 1), (0, SIZE), (1, SIZE - 1), (4096, 8192), (SIZE - 1, SIZE)] {
        check(&subject, &key, bounded(start, end), start, end).await;
    }
    for past in [1, 4096, u64::MAX / 4] {
        check(&subject, &key, bounded(SIZE - 5, SIZE + past), SIZE - 5, SIZE).await;
        check(&subject, &key, bounded(0, SIZE + past), 0, SIZE).await;
        check(&subject, &key, bounded(SIZE, SIZE + past), SIZE, SIZE).await;
        check(&subject, &key, bounded(SIZE + 9, SIZE + 9 + past), SIZE, SIZE).await;
    }
    check(&subject, &key, bounded(5, 5), 5, 5).await;
}

/// From an offset to the end.
pub async fn get_from_an_offset(subject: Subject) {
    let key = subject.place("from", 1, SIZE).await;
    for start in [0, 1, 65_536, SIZE - 1, SIZE, SIZE + 1, SIZE + 1_000_000] {
        check(&subject, &key, GetRange::From(start), start.min(SIZE), SIZE).await;
    }
}

/// The last bytes, where the store claims to give them.
pub async fn get_suffix_ranges(subject: Subject) {
    let key = subject.place("suffix", 1, SIZE).await;
    if !subject.store.capabilities().suffix_range {
        let answer = subject.store.get(&key, plain(GetRange::Suffix(5))).await;
        subject.refused(answer, &[Kind::Unsupported], &key);
        return;
    }
    for len in [1, 8, 65_536, SIZE - 1, SIZE, SIZE + 1, SIZE * 10] {
        check(&subject, &key, GetRange::Suffix(len), SIZE - len.min(SIZE), SIZE).await;
    }
    check(&subject, &key, GetRange::Suffix(0), SIZE, SIZE).await;
}

/// No range of nothing is an error.
pub async fn get_ranges_of_an_empty_object(subject: Subject) {
    let key = subject.place("empty", 1, 0).await;
    let mut ranges = vec![bounded(0, 10), bounded(5, 10), GetRange::From(0), GetRange::From(7)];
    if subject.store.capabilities().suffix_range {
        ranges.push(GetRange::Suffix(4));
    }
    for range in ranges {
        assert_eq!(subject.read(&key, range).await, b"", "{range:?}");
    }
}

/// One byte at a time, none at a time, and after the end.
pub async fn get_in_short_reads(subject: Subject) {
    let key = subject.place("short", 1, 300).await;
    let mut body = subject.get(&key, bounded(10, 110)).await.body;
    assert_eq!(body.read(&mut []).await.unwrap_or(9), 0, "an empty buffer takes nothing");
    let mut bytes = Vec::new();
    let mut one = [0; 1];
    while body.read(&mut one).await.expect("the body can be read") == 1 {
        bytes.push(one[0]);
    }
    assert_ramp(&bytes, 1, 10, 100, &key);
    let mut more = [0; 64];
    assert_eq!(body.read(&mut more).await.expect("the end can be read again"), 0);
}

/// Several mebibytes, whole and from the middle.
pub async fn get_large_object(subject: Subject) {
    let size = (5 << 20) + 13;
    let key = subject.place("large", 2, size).await;
    assert_ramp(&subject.read(&key, GetRange::All).await, 2, 0, size, &key);
    let middle = subject.read(&key, bounded(1 << 20, 4 << 20)).await;
    assert_ramp(&middle, 2, 1 << 20, 3 << 20, &key);
}

/// Sixteen requests in flight never mix their bytes.
pub async fn get_many_at_once(subject: Subject) {
    let key = subject.place("shared", 1, SIZE).await;
    let other = subject.place("other", 2, SIZE).await;
    let reads = (0..16).map(|index| {
        let (key, seed) = if index % 2 == 0 { (&key, 1) } else { (&other, 2) };
        let start = index * 4001;
        let subject = &subject;
        async move {
            let bytes = subject.read(key, bounded(start, start + 4001)).await;
            assert_ramp(&bytes, seed, start, 4001, key);
        }
    });
    join_all(reads).await;
}

/// A GET may be pinned to a version.
pub async fn get_if_match(subject: Subject) {
    let key = subject.place("pinned", 1, 100).await;
    let Some(etag) = subject.stat(&key).await.etag else {
        assert!(!subject.store.capabilities().write, "a store that can write tells ETags");
        return;
    };
    for range in [GetRange::All, bounded(10, 20)] {
        let request = GetRequest { range, if_match: Some(etag.clone()), ..Default::default() };
        let answer = subject.store.get(&key, request).await.expect("the tag is the current one");
        assert_eq!(answer.meta.etag, Some(etag.clone()));
        let request = GetRequest {
            range,
            if_match: Some(ETag("0badc0de".to_string())),
            ..Default::default()
        };
        subject.refused(subject.store.get(&key, request).await, &[Kind::Conflict], &key);
    }
}

/// An overwritten object is a conflict, never a mix, also past the new end.
pub async fn get_if_match_after_overwrite(subject: Subject) {
    let key = subject.place("pinned", 1, 1000).await;
    let Some(etag) = subject.stat(&key).await.etag else { return };
    subject.place("pinned", 2, 500).await;
    for range in [GetRange::All, bounded(10, 20), bounded(600, 700), GetRange::From(400)] {
        let request = GetRequest { range, if_match: Some(etag.clone()), ..Default::default() };
        subject.refused(subject.store.get(&key, request).await, &[Kind::Conflict], &key);
    }
    subject.assert_is(&key, 2, 500).await;
}

/// A GET brings nothing of the version that the reader has, and all of any other.
pub async fn get_if_none_match(subject: Subject) {
    let key = subject.place("known", 1, 1000).await;
    let Some(etag) = subject.stat(&key).await.etag else { return };
    let unless = |range, etag: &ETag| GetRequest {
        if_none_match: Some(etag.clone()),
        ..GetRequest::from(range)
    };
    for range in [GetRange::All, bounded(10, 20), GetRange::From(400)] {
        unchanged(&subject, &key, unless(range, &etag), &etag).await;
        // The time is void beside a tag.
        let long_ago = Some(SystemTime::UNIX_EPOCH);
        let both = GetRequest { if_modified_since: long_ago, ..unless(range, &etag) };
        unchanged(&subject, &key, both, &etag).await;
    }
    let other = unless(bounded(10, 20), &ETag("0badc0de".to_string()));
    let much_later = Some(SystemTime::now() + Duration::from_secs(3600));
    let both = GetRequest { if_modified_since: much_later, ..other.clone() };
    // If-Match first: this version is wanted, and it is not the one that is known.
    let pinned = GetRequest { if_match: Some(etag.clone()), ..other.clone() };
    for request in [other, both, pinned] {
        let mut answer = subject.store.get(&key, request).await.expect("the tag is another one");
        assert_eq!(answer.meta.etag, Some(etag.clone()));
        assert_ramp(&read_to_end(&mut answer.body).await, 1, 10, 10, &key);
    }
    let same = GetRequest { if_match: Some(etag.clone()), ..unless(GetRange::All, &etag) };
    unchanged(&subject, &key, same, &etag).await;
    subject.place("known", 2, 500).await;
    let mut answer =
        subject.store.get(&key, unless(GetRange::All, &etag)).await.expect("it has changed");
    assert_ramp(&read_to_end(&mut answer.body).await, 2, 0, 500, &key);
    let absent = subject.key("absent");
    let answer = subject.store.get(&absent, unless(GetRange::All, &etag)).await;
    subject.refused(answer, &[Kind::NotFound], &absent);
}

/// The same by time.
pub async fn get_if_modified_since(subject: Subject) {
    let key = subject.place("known", 1, 1000).await;
    let meta = subject.stat(&key).await;
    let (Some(etag), Some(modified)) = (meta.etag, meta.modified) else { return };
    let since =
        |range, time| GetRequest { if_modified_since: Some(time), ..GetRequest::from(range) };
    let second = Duration::from_secs(1);
    for range in [GetRange::All, bounded(10, 20)] {
        unchanged(&subject, &key, since(range, modified), &etag).await;
        unchanged(&subject, &key, since(range, modified + second), &etag).await;
        let before = since(range, modified - 2 * second);
        let answer = subject.store.get(&key, before).await.expect("it was changed since");
        assert_eq!(answer.meta.etag, Some(etag.clone()));
    }
}

/// Conditions hold also where no byte is asked for.
pub async fn get_conditions_of_empty_ranges(subject: Subject) {
    let key = subject.place("known", 1, 100).await;
    let Some(etag) = subject.stat(&key).await.etag else { return };
    for range in [bounded(10, 10), bounded(200, 300), GetRange::From(100)] {
        let same = GetRequest { if_none_match: Some(etag.clone()), ..plain(range) };
        unchanged(&subject, &key, same, &etag).await;
        let other = GetRequest { if_none_match: Some(ETag("0badc0de".into())), ..plain(range) };
        let answer = subject.store.get(&key, other).await.expect("the tag is another one");
        assert!(answer.range.is_empty(), "{range:?}");
    }
}

/// Asserts that nothing comes, since the reader has what is there.
async fn unchanged(subject: &Subject, key: &str, request: GetRequest, etag: &ETag) {
    let asked = format!("{request:?}");
    let answer = subject.store.get(key, request).await;
    let error = answer.map(drop).expect_err(&asked);
    assert!(error.is_not_modified(), "{asked}: {error}");
    if let Some(told) = error.etag() {
        assert_eq!(told, etag.0, "{asked}: the tag of what is there");
    }
    subject.refused::<()>(Err(error), &[Kind::Conflict], key);
}

/// Size, tag and a plausible time.
pub async fn stat_tells_size_and_tag(subject: Subject) {
    let key = subject.place("stat", 1, 12_345).await;
    let meta = subject.stat(&key).await;
    assert_eq!(meta.size_bytes, Some(12_345));
    let answer = subject.get(&key, GetRange::All).await;
    assert_eq!(meta.etag, answer.meta.etag, "stat and GET tell one tag");
    assert_eq!(meta.modified, answer.meta.modified, "stat and GET tell one time");
    if subject.store.capabilities().write {
        assert!(tag(meta.etag).is_strong(), "a weak tag cannot pin a version");
        let modified = meta.modified.expect("a store that can write tells the time");
        let age = SystemTime::now().duration_since(modified).unwrap_or_default();
        assert!(age < Duration::from_secs(3600), "{key} was modified {age:?} ago");
    }
}

/// A body dropped halfway leaves the store as usable as before.
pub async fn half_read_body_dropped(subject: Subject) {
    let size = 3 << 20;
    let key = subject.place("large", 1, size).await;
    for _ in 0..4 {
        let mut body = subject.get(&key, GetRange::All).await.body;
        let mut buf = [0; 1000];
        let read = body.read(&mut buf).await.expect("the body can be read");
        assert_ramp(&buf[..read], 1, 0, read as u64, &key);
        drop(body);
        assert_ramp(&subject.read(&key, bounded(77, 99)).await, 1, 77, 22, &key);
    }
}

/// Requests dropped at their first wait leave the store as usable as before.
pub async fn requests_dropped_midway(subject: Subject) {
    let key = subject.place("steady", 1, SIZE).await;
    let capabilities = subject.store.capabilities();
    for _ in 0..4 {
        drop(subject.store.get(&key, plain(GetRange::All)).now_or_never());
        drop(subject.store.stat(&key).now_or_never());
        if capabilities.list {
            drop(subject.store.list(ListRequest::default()).now_or_never());
        }
        if capabilities.write {
            let bytes = crate::ramp::ramp(3, 0, 100_000);
            let options = PutOptions::default();
            drop(subject.put(&subject.key("dropped"), bytes, &options).now_or_never());
        }
        subject.assert_is(&key, 1, SIZE).await;
    }
}

//! Pages of versions in S3's order, of stores whose services list oldest first.
#![allow(clippy::unwrap_used)] // helpers of tests fail as tests do

use penstock_store::{Payload, PutOptions, StreamingStore, VersionsRequest};

/// A key with one of its versions, or a folded prefix.
pub type Name = (String, Option<String>);

/// Puts some keys so often each, removes one of them, and gives all that is listed of them.
pub async fn put_some(store: &dyn StreamingStore) -> Vec<Name> {
    let mut all = Vec::new();
    for (key, count) in [("a", 3), ("d/x", 2), ("d/y", 1), ("d/z+ü", 1), ("e", 5), ("e/1", 2)] {
        let mut ids = Vec::new();
        for _ in 0..count {
            let bytes = Payload::from(bytes::Bytes::from_static(b"x"));
            let put = store.put(key, bytes, &PutOptions::default()).await;
            ids.push(put.unwrap().version.unwrap());
        }
        all.extend(ids.into_iter().rev().map(|id| (key.to_string(), Some(id))));
    }
    store.delete("e", None).await.unwrap();
    all
}

/// Reads the lists of several prefixes, folded and not, by pages of every length.
pub async fn assert_pages(store: &dyn StreamingStore, all: &[Name]) {
    for (prefix, delimiter) in [("", None), ("d/", None), ("", Some("/")), ("e", Some("/"))] {
        let expected = folded(all, prefix, delimiter);
        for max in 1..=expected.len() + 1 {
            let request = VersionsRequest {
                prefix: prefix.to_string(),
                delimiter: delimiter.map(str::to_string),
                max,
                ..VersionsRequest::default()
            };
            assert_eq!(pages(store, request).await, expected, "{prefix} {delimiter:?} {max}");
        }
    }
}

fn folded(all: &[Name], prefix: &str, delimiter: Option<&str>) -> Vec<Name> {
    let mut expected = Vec::new();
    for (key, id) in all.iter().filter(|it| it.0.starts_with(prefix)) {
        let folded = delimiter.and_then(|it| key[prefix.len()..].find(it));
        let name = match folded {
            Some(at) => (key[..=prefix.len() + at].to_string(), None),
            None => (key.clone(), id.clone()),
        };
        if expected.last() != Some(&name) {
            expected.push(name);
        }
    }
    expected
}

/// All names of a listing, page after page.
async fn pages(store: &dyn StreamingStore, mut request: VersionsRequest) -> Vec<Name> {
    let mut found = Vec::new();
    loop {
        let page = store.list_versions(&request).await.unwrap();
        let count = page.versions.len() + page.prefixes.len();
        let mut names: Vec<_> = page.versions.into_iter().map(|it| (it.key, Some(it.id))).collect();
        names.extend(page.prefixes.into_iter().map(|prefix| (prefix, None)));
        // Stable: the versions of a key stay as they came.
        names.sort_by(|a, b| a.0.cmp(&b.0));
        found.extend(names);
        let Some((key, version)) = page.next else { return found };
        assert_eq!(count, request.max, "a page before the last is full");
        (request.key_marker, request.version_marker) = (Some(key), version);
    }
}

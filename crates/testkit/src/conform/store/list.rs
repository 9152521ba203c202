//! Listing: order, prefixes, folding, starting points, pages.

use super::Subject;
use super::support::prefixes;
use penstock_base::Kind;
use penstock_store::{ListPage, ListRequest};
use std::collections::BTreeSet;

/// Whether listing can be examined; asserts `Unsupported` when it is not claimed.
async fn listable(subject: &Subject) -> bool {
    let request = ListRequest { prefix: subject.prefix.clone(), ..ListRequest::default() };
    if subject.store.capabilities().list {
        return true;
    }
    let kind = subject.store.list(request).await.map(drop).map_err(|error| error.kind());
    assert_eq!(kind, Err(Kind::Unsupported), "listing is not claimed");
    false
}

async fn place_all(subject: &Subject, names: &[&str]) -> Vec<String> {
    let mut keys = Vec::new();
    for name in names.iter().filter(|name| !subject.may_refuse(name)) {
        keys.push(subject.place(name, 1, 3).await);
    }
    keys.sort();
    keys
}

fn keys_of(pages: &[ListPage]) -> Vec<String> {
    pages.iter().flat_map(|page| &page.objects).map(|entry| entry.key.clone()).collect()
}

/// Names come in the byte order of UTF-8: not by segment, not by locale, not by UTF-16.
pub async fn list_order(subject: Subject) {
    if !listable(&subject).await {
        return;
    }
    let names =
        ["a", "a b", "a!", "a-b", "a.b", "a/b", "a/b/c", "a0", "aa", "A", "B", "b", "~", "é"];
    let mut expected = place_all(&subject, &names).await;
    expected.extend(place_all(&subject, &["\u{FFFD}", "\u{10000}", "ß", "z"]).await);
    expected.sort();
    assert_eq!(subject.names(&subject.prefix).await, expected);
}

/// A prefix is a string, not a directory.
pub async fn list_prefix(subject: Subject) {
    if !listable(&subject).await {
        return;
    }
    let keys = place_all(
        &subject,
        &["data/1", "data/2", "data-x", "dat", "other", "d+ %25/x", "d+ %/y", "a&b<c/z"],
    )
    .await;
    for prefix in ["", "d", "dat", "data", "data/", "data/1", "data/1x", "d+", "d+ %", "a&b<", "q"]
    {
        let prefix = subject.key(prefix);
        let expected: Vec<String> =
            keys.iter().filter(|key| key.starts_with(&prefix)).cloned().collect();
        assert_eq!(subject.names(&prefix).await, expected, "below {prefix:?}");
    }
}

const TREE: &[&str] = &[
    "a.txt",
    "dir/1",
    "dir/2",
    "dir/sub/3",
    "dir-x",
    "dir0/4",
    "s p/5",
    "ü&/6",
    "p%2F/7",
    "z.txt",
];

fn folded(keys: &[String], prefix: &str) -> (Vec<String>, BTreeSet<String>) {
    let (mut objects, mut folds) = (Vec::new(), BTreeSet::new());
    for key in keys.iter().filter(|key| key.starts_with(prefix)) {
        match key[prefix.len()..].find('/') {
            Some(at) => drop(folds.insert(key[..prefix.len() + at + 1].to_string())),
            None => objects.push(key.clone()),
        }
    }
    (objects, folds)
}

async fn check_folded(subject: &Subject, keys: &[String], prefix: &str, max_keys: Option<u32>) {
    let request = ListRequest {
        prefix: prefix.to_string(),
        delimiter: Some("/".to_string()),
        max_keys,
        ..ListRequest::default()
    };
    let pages = subject.walk(request).await;
    let (objects, folds) = folded(keys, prefix);
    assert_eq!(keys_of(&pages), objects, "objects below {prefix:?}, {max_keys:?} a page");
    assert_eq!(prefixes(&pages), folds, "prefixes below {prefix:?}, {max_keys:?} a page");
}

/// Names below the next delimiter fold into one prefix.
pub async fn list_delimiter(subject: Subject) {
    if !listable(&subject).await {
        return;
    }
    let mut keys = place_all(&subject, TREE).await;
    keys.extend(place_all(&subject, &["m/", "m//n", "m//o", "m/p"]).await);
    keys.sort();
    for prefix in ["", "d", "dir", "dir/", "dir/s", "dir/sub/", "s ", "ü&/", "p%2F/", "none/"] {
        check_folded(&subject, &keys, &subject.key(prefix), None).await;
    }
    if !subject.may_refuse("m//n") {
        check_folded(&subject, &keys, &subject.key("m/"), None).await;
        check_folded(&subject, &keys, &subject.key("m//"), None).await;
    }
}

/// Only names after the given one, whether it exists or not.
pub async fn list_start_after(subject: Subject) {
    if !listable(&subject).await {
        return;
    }
    let keys = place_all(&subject, &["a", "b", "b/c", "b0", "c d", "c+d", "e", "ü"]).await;
    for start in ["", "a", "aa", "b", "b/", "b/c", "c d", "c+d", "d", "ü", "\u{10FFFF}"] {
        let start = subject.key(start);
        let expected: Vec<String> = keys.iter().filter(|key| **key > start).cloned().collect();
        for max_keys in [None, Some(2)] {
            let request = ListRequest {
                prefix: subject.prefix.clone(),
                start_after: Some(start.clone()),
                max_keys,
                ..ListRequest::default()
            };
            let got = keys_of(&subject.walk(request).await);
            assert_eq!(got, expected, "after {start:?}, {max_keys:?} a page");
        }
    }
}

/// A prefix is told after a name that lies in it only while more lies behind that name.
pub async fn list_start_after_inside_a_prefix(subject: Subject) {
    if !listable(&subject).await {
        return;
    }
    let names = ["sa/01/a", "sa/03/a", "sa/03/b", "sa/04/a", "sa/05"];
    let keys = place_all(&subject, &names).await;
    let prefix = subject.key("sa/");
    for start in ["sa/02", "sa/03/a", "sa/03/aa", "sa/03/b", "sa/03/c", "sa/04/a", "sa/05/x"] {
        let start = subject.key(start);
        let behind: Vec<String> = keys.iter().filter(|key| **key > start).cloned().collect();
        let (objects, folds) = folded(&behind, &prefix);
        for max_keys in [None, Some(1)] {
            let request = ListRequest {
                prefix: prefix.clone(),
                delimiter: Some("/".to_string()),
                start_after: Some(start.clone()),
                max_keys,
                ..ListRequest::default()
            };
            let pages = subject.walk(request).await;
            assert_eq!(keys_of(&pages), objects, "objects after {start:?}, {max_keys:?} a page");
            assert_eq!(prefixes(&pages), folds, "prefixes after {start:?}, {max_keys:?} a page");
        }
    }
}

/// Pages of every size join to the same whole.
pub async fn list_pages(subject: Subject) {
    if !listable(&subject).await {
        return;
    }
    let names: Vec<String> = (0..23).map(|index| format!("k{index:02}/+ %ü<{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let expected = place_all(&subject, &names).await;
    for max_keys in [1, 2, 3, 7, 22, 23, 24, 1000] {
        let request = ListRequest {
            prefix: subject.prefix.clone(),
            max_keys: Some(max_keys),
            ..ListRequest::default()
        };
        let pages = subject.walk(request).await;
        assert_eq!(keys_of(&pages), expected, "{max_keys} a page");
        let least = expected.len().div_ceil(max_keys as usize);
        assert!(pages.len() >= least, "{} pages of at most {max_keys}", pages.len());
    }
}

/// A folded prefix is told once, on whatever page.
pub async fn list_pages_with_delimiter(subject: Subject) {
    if !listable(&subject).await {
        return;
    }
    let keys = place_all(&subject, TREE).await;
    for max_keys in [1, 2, 3, 1000] {
        check_folded(&subject, &keys, &subject.prefix, Some(max_keys)).await;
        check_folded(&subject, &keys, &subject.key("dir/"), Some(max_keys)).await;
    }
}

/// Size and time of each name; the tag if and only if it is claimed to equal that of GET.
pub async fn list_metadata(subject: Subject) {
    if !listable(&subject).await {
        return;
    }
    for size in [0, 1, 70_000] {
        subject.place(&format!("size-{size}"), 1, size).await;
    }
    let request = ListRequest { prefix: subject.prefix.clone(), ..ListRequest::default() };
    let pages = subject.walk(request).await;
    for entry in pages.iter().flat_map(|page| &page.objects) {
        let meta = subject.stat(&entry.key).await;
        assert_eq!(entry.meta.size_bytes, meta.size_bytes, "size of {:?}", entry.key);
        assert!(entry.meta.modified.is_some(), "time of {:?}", entry.key);
        if subject.store.capabilities().list_etag {
            assert_eq!(entry.meta.etag, meta.etag, "tag of {:?}", entry.key);
        } else {
            assert_eq!(entry.meta.etag, None, "a tag that is not claimed could be relied on");
        }
    }
}

/// A listing of nothing is one empty end, not an error.
pub async fn list_nothing(subject: Subject) {
    if !listable(&subject).await {
        return;
    }
    for (delimiter, max_keys) in [(None, None), (Some("/"), None), (None, Some(1))] {
        let request = ListRequest {
            prefix: subject.key("nothing/here/"),
            delimiter: delimiter.map(str::to_string),
            max_keys,
            ..ListRequest::default()
        };
        let pages = subject.walk(request).await;
        assert!(keys_of(&pages).is_empty() && prefixes(&pages).is_empty());
    }
}

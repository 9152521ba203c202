//! Names, tokens and sizes of pages, and listings of back ends that do as they please.

use super::*;
use futures_util::FutureExt as _;
use penstock_base::Kind;
use penstock_store::ObjectMeta;
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::future::{Ready, ready};

#[test]
fn names_are_encoded_on_demand() {
    let url = dto::EncodingType::from_static(dto::EncodingType::URL);
    let encoded = Names::new(Some(&url)).unwrap();
    assert_eq!(encoded.write("a b/\u{fc}+%\u{1}"), "a%20b/%C3%BC%2B%25%01");
    assert_eq!(Names::new(None).unwrap().write("a b"), "a b");
    let other = dto::EncodingType::from_static("base64");
    assert!(Names::new(Some(&other)).is_err());
}

#[test]
fn a_marker_that_is_a_prefix_skips_what_it_folds() {
    let after = after_marker("photos/".into(), "", Some("/"));
    assert!(after.as_str() > "photos/zzz" && after.as_str() < "photos0");
    for (prefix, marker, delimiter) in
        [("", "photos/a", Some("/")), ("", "photos/", None), ("photos/", "photos/", Some("/"))]
    {
        assert_eq!(after_marker(marker.into(), prefix, delimiter), marker);
    }
}

#[test]
fn tokens_come_back_and_strangers_are_refused() {
    for token in ["k", "s3:abc\u{1}\u{fc}<&>", "m2!92!MDAwMDI"] {
        let shown = client_token(token);
        assert!(shown.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_".contains(&it)));
        assert_eq!(store_token(&shown).unwrap(), token);
    }
    for token in ["", "k", "not base64!", "MQ==", "AAAA"] {
        assert!(store_token(token).is_err(), "{token}");
    }
}

#[test]
fn page_sizes_have_bounds() {
    assert_eq!(page_size("max-keys", None).unwrap(), 1000);
    assert_eq!(page_size("max-keys", Some(5000)).unwrap(), 1000);
    assert_eq!(page_size("max-keys", Some(0)).unwrap(), 0);
    let refused = page_size("max-parts", Some(-1)).unwrap_err();
    assert!(refused.message().is_some_and(|why| why.contains("max-parts")));
}

/// A back end that gives these pages over and over, whatever it is asked for.
fn stubborn(pages: &[ListPage]) -> impl Fn(ListRequest) -> Ready<Result<ListPage>> {
    let next = Cell::new(0);
    move |_| {
        let page = pages[next.get() % pages.len()].clone();
        next.set(next.get() + 1);
        ready(Ok(page))
    }
}

/// A back end that does what it is asked for, a few names at a time and now and then none.
fn honest(names: &BTreeSet<String>) -> impl Fn(ListRequest) -> Ready<Result<ListPage>> {
    move |request| {
        let (token, after) = (request.token, request.start_after);
        let is_empty_page = token.is_none() && after.is_none();
        let after = token.or(after).unwrap_or_default();
        let fits = |name: &&String| name.starts_with(&request.prefix) && **name > after;
        let rest: Vec<&String> = names.iter().filter(fits).collect();
        let shown = if is_empty_page { 0 } else { rest.len().min(2) };
        let next = (shown < rest.len()).then(|| match shown {
            0 => "\u{1}".to_string(),
            shown => rest[shown - 1].clone(),
        });
        ready(Ok(ListPage {
            objects: rest[..shown].iter().map(|name| entry_of(name)).collect(),
            prefixes: Vec::new(),
            next,
        }))
    }
}

fn entry_of(key: &str) -> ListEntry {
    ListEntry { key: key.to_string(), meta: ObjectMeta::default() }
}

fn gather<F: Future<Output = Result<ListPage>>>(
    within: &str,
    request: &ListRequest,
    told: Option<&str>,
    list: impl Fn(ListRequest) -> F,
) -> Result<ListPage> {
    let all = gathered(("s3://c/", within), request.clone(), told, list);
    all.now_or_never().expect("nothing is waited for")
}

/// Some of these begin with the prefixes that are asked for below, some with a part of them.
const NAME: &str = "(t|te|team|team/|team/d|\u{e9}|a)?(/|\u{e9}|d/|[a-c]){0,3}";

fn any_page() -> impl Strategy<Value = ListPage> {
    let names = || prop::collection::vec(NAME, 0..4);
    (names(), names(), prop::option::of("[xyz]")).prop_map(|(mut keys, prefixes, next)| {
        // Half of them in order, so that more than the first rule is met.
        if keys.len() % 2 == 0 {
            keys.sort();
            keys.dedup();
        }
        let objects = keys.iter().map(|key| entry_of(key)).collect();
        ListPage { objects, prefixes, next }
    })
}

proptest! {
    #[test]
    fn whatever_a_back_end_lists_only_what_was_asked_for_is_shown(
        pages in prop::collection::vec(any_page(), 1..5),
        within in "(team/)?",
        below in "(d|d/)?",
        start_after in prop::option::of("[a-d/]{1,3}"),
        token in prop::option::of("[xyz]"),
        told in prop::option::of("[a-d]/"),
    ) {
        let inside = |name: &str| format!("{within}{name}");
        let request = ListRequest {
            prefix: inside(&below),
            start_after: start_after.as_deref().map(inside),
            token,
            ..ListRequest::default()
        };
        match gather(&within, &request, told.as_deref(), stubborn(&pages)) {
            Err(error) => prop_assert_eq!(error.kind(), Kind::Corrupt),
            Ok(page) => {
                let keys: Vec<&str> = page.objects.iter().map(|it| it.key.as_str()).collect();
                let names = || keys.iter().copied().chain(page.prefixes.iter().map(String::as_str));
                prop_assert!(names().all(|name| name.starts_with(&below)), "{:?}", page);
                let were_listed = |name: &str| pages.iter().any(|page| {
                    page.objects.iter().any(|it| it.key == inside(name))
                        || page.prefixes.contains(&inside(name))
                });
                prop_assert!(names().all(were_listed), "{:?}", page);
                prop_assert!(keys.iter().is_sorted() && !keys.contains(&""));
                let after = start_after.as_deref().unwrap_or_default();
                prop_assert!(keys.iter().all(|key| *key > after));
                prop_assert!(page.next.is_none() || page.next != request.token);
            }
        }
    }

    #[test]
    fn what_a_back_end_lists_that_does_as_asked_is_shown_whole(
        names in prop::collection::btree_set(NAME, 0..20),
        within in "(team/)?",
        start_after in prop::option::of(NAME),
    ) {
        let after = start_after.clone().unwrap_or_default();
        let expected: Vec<&str> = names
            .iter()
            .filter_map(|name| name.strip_prefix(&within))
            .filter(|name| !name.is_empty() && *name > after.as_str())
            .collect();
        let mut request = ListRequest {
            prefix: within.clone(),
            start_after: start_after.map(|after| format!("{within}{after}")),
            ..ListRequest::default()
        };
        let mut seen = Vec::new();
        loop {
            let page = gather(&within, &request, None, honest(&names)).unwrap();
            seen.extend(page.objects.into_iter().map(|entry| entry.key));
            request.start_after = None;
            match page.next {
                Some(token) => request.token = Some(token),
                None => break,
            }
        }
        prop_assert_eq!(seen, expected);
    }
}

use super::*;
use proptest::collection::{btree_map, btree_set};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn each_class_has_one_other_name() {
    for (name, own) in CLASSES {
        assert_eq!(class(name), Some(*own));
        assert_eq!(told_class(own), *name);
    }
    // Their own names would be told as others.
    for other in ["NEARLINE", "COLDLINE", "GLACIER", "DEEP_ARCHIVE", "standard", ""] {
        assert_eq!(class(other), None, "{other}");
    }
    assert_eq!(told_class("MULTI_REGIONAL"), "MULTI_REGIONAL");
}

#[test]
fn a_generation_is_a_number_written_in_one_way() {
    for id in ["1", "1791390110617942", "9999999999999999999"] {
        assert!(is_generation(id) && number(id) > 0, "{id}");
    }
    for id in ["", "0", "012", "+1", "-1", "1 ", "null", "12345678901234567890", "٣"] {
        assert!(!is_generation(id), "{id}");
    }
    assert!(check_version("k").is_ok() && check_version("k\u{0}12").is_ok());
    let error = check_version("k\u{0}null").unwrap_err();
    assert_eq!((error.kind(), error.service_code()), (Kind::NotFound, Some("NoSuchVersion")));
}

fn entry(key: &str, generation: u64) -> VersionEntry {
    VersionEntry {
        key: key.to_string(),
        id: generation.to_string(),
        is_latest: false,
        is_marker: false,
        meta: ObjectMeta::default(),
    }
}

/// Names of a page in the order of the listing: a key with its generation, or a folded prefix.
fn names(page: &VersionsPage) -> Vec<(String, Option<String>)> {
    let versions = page.versions.iter().map(|it| (it.key.clone(), Some(it.id.clone())));
    let mut names: Vec<_> = versions.collect();
    names.extend(page.prefixes.iter().map(|prefix| (prefix.clone(), None)));
    names.sort_by(|a, b| {
        let newest = |it: &Option<String>| Reverse(it.as_deref().map(number));
        (&a.0, newest(&a.1)).cmp(&(&b.0, newest(&b.1)))
    });
    names
}

proptest! {
    #[test]
    fn what_a_client_writes_is_what_it_is_told(
        asked in "[A-Z_]{1,20}|STANDARD|STANDARD_IA|GLACIER_IR|ARCHIVE",
    ) {
        if let Some(own) = class(&asked) {
            prop_assert_eq!(told_class(own), asked);
        }
    }

    #[test]
    fn pages_are_the_whole_list_latest_first(
        kept in btree_map("[a-c]{1,2}", btree_set(1u64..40, 1..5), 0..6),
        folded in btree_set("[a-c]{1,2}/", 0..4),
        max in 1usize..9,
        shuffled: bool,
    ) {
        let all = |kept: &BTreeMap<String, BTreeSet<u64>>| {
            let mut all: Vec<_> = kept
                .iter()
                .flat_map(|(key, them)| them.iter().map(move |it| entry(key, *it)))
                .collect();
            if shuffled {
                all.reverse();
            }
            all
        };
        let whole = Found {
            versions: all(&kept),
            prefixes: folded.iter().cloned().collect(),
            has_more: false,
        };
        let wanted = names(&latest_first(whole, usize::MAX));
        let (mut told, mut from): (Vec<_>, Option<(String, Option<String>)>) = (Vec::new(), None);
        loop {
            // What a bucket has behind the marker.
            let is_behind = |key: &str, id: &str| match &from {
                None => true,
                Some((marker, Some(before))) if marker == key => number(id) < number(before),
                Some((marker, _)) => key > marker.as_str(),
            };
            let mut versions = all(&kept);
            versions.retain(|entry| is_behind(&entry.key, &entry.id));
            let prefixes = folded
                .iter()
                .filter(|prefix| from.as_ref().is_none_or(|from| **prefix > from.0))
                .cloned()
                .collect();
            let page = latest_first(Found { versions, prefixes, has_more: false }, max);
            prop_assert!(page.versions.len() + page.prefixes.len() <= max);
            told.extend(names(&page));
            match page.next {
                Some(next) => from = Some(next),
                None => break,
            }
        }
        prop_assert_eq!(told, wanted);
    }

    #[test]
    fn an_open_key_is_not_complete(keys in btree_set("[a-c]{1,2}", 1..6), count in 1usize..4) {
        let versions: Vec<_> =
            keys.iter().flat_map(|key| (1..=count as u64).map(move |it| entry(key, it))).collect();
        let found = Found { versions, ..Found::default() };
        let last = (keys.last().unwrap().clone(), Some(count.to_string()));
        prop_assert_eq!(found.complete(Some(&last)), (keys.len() - 1) * count);
        prop_assert_eq!(found.complete(Some(&("zz/".to_string(), None))), found.len());
        prop_assert_eq!(found.complete(None), found.len());
    }
}

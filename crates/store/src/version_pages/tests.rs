use super::*;
use crate::ObjectMeta;
use proptest::collection::{btree_map, btree_set};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

fn number(id: &str) -> u64 {
    id.parse().unwrap()
}

fn by_number(a: &VersionEntry, b: &VersionEntry) -> Ordering {
    number(&b.id).cmp(&number(&a.id))
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
        let wanted = names(&whole.page(usize::MAX, by_number));
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
            let page = Found { versions, prefixes, has_more: false }.page(max, by_number);
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
        let last = keys.last().map(String::as_str);
        prop_assert_eq!(found.complete(last), (keys.len() - 1) * count);
        prop_assert_eq!(found.complete(Some("zz/")), found.len());
        prop_assert_eq!(found.complete(None), found.len());
    }
}

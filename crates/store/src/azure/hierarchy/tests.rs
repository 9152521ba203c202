use super::fork::Sight;
use super::*;
use crate::{ListEntry, ObjectMeta};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// An account of these files, and what it answers.
struct Account {
    /// In its own order; directories too, which are listed as names that are hidden.
    names: Vec<(String, bool)>,
}

impl Account {
    fn of(files: &BTreeSet<String>) -> Self {
        let above = |name: &str| -> Vec<String> {
            name.match_indices('/').map(|(at, _)| name[..at].to_string()).collect()
        };
        let dirs: BTreeSet<String> = files.iter().flat_map(|name| above(name)).collect();
        // No name is both.
        let files = files.iter().filter(|name| !dirs.contains(*name));
        let mut names: Vec<_> = files.map(|name| (name.clone(), false)).collect();
        names.extend(dirs.iter().map(|name| (name.clone(), true)));
        names.sort_by(|a, b| compare(&a.0, &b.0));
        Account { names }
    }

    fn files(&self) -> BTreeSet<String> {
        self.names.iter().filter(|it| !it.1).map(|it| it.0.clone()).collect()
    }

    /// A page of at most `most` names; its marker is a place.
    fn page(&self, folds: bool, frame: &Frame, most: usize) -> Listing {
        let prefix = frame.prefix.as_str();
        let from = frame.from.as_deref().filter(|_| frame.marker.is_empty()).unwrap_or("");
        let mut all: Vec<Name> = Vec::new();
        for (name, is_dir) in self.names.iter().filter(|it| it.0.starts_with(prefix)) {
            let folded = component(prefix, name);
            let name = match (folds, folded.len() < name.len() || *is_dir) {
                (true, true) => Name::Prefix(below(folded)),
                (false, _) if *is_dir => Name::Hidden(name.clone()),
                _ => Name::Object(ListEntry { key: name.clone(), meta: ObjectMeta::default() }),
            };
            if all.last().map(Name::text) != Some(name.text()) {
                all.push(name);
            }
        }
        all.retain(|name| compare(name.text(), from).is_ge());
        let start: usize = frame.marker.parse().unwrap_or(0);
        // Counted from the end, so that it does not depend on where the list began.
        let start = if frame.marker.is_empty() { 0 } else { all.len() - start };
        let left = all.len().saturating_sub(start + most);
        let marker = if left > 0 { left.to_string() } else { String::new() };
        let names = all.into_iter().skip(start).take(most).collect();
        Listing { names, marker, is_hierarchical: Some(true) }
    }

    fn look(&self, node: &str) -> Looked {
        let (mut sight, mut frame) = (Sight::default(), Frame::of(node));
        loop {
            let page = self.page(true, &frame, 2);
            if sight.see(node, &page) {
                return (node.to_string(), sight);
            }
            frame.marker = page.marker;
        }
    }

    /// All names behind one, and how many pages they took.
    fn walk(&self, asked: &Asked<'_>) -> (Vec<String>, usize) {
        let Asked { prefix, after, folds, fold, most } = *asked;
        let looks =
            |nodes: Vec<String>| nodes.iter().map(|node| self.look(node)).collect::<Vec<_>>();
        let mut walk = match after {
            Some(after) if after.len() > prefix.len() => {
                let looked = looks(Walk::unknown(prefix, after, folds));
                let is_straddled =
                    Walk::directory(prefix, after, &looked).is_some_and(|directory| {
                        self.files()
                            .iter()
                            .any(|it| it.starts_with(&directory) && it.as_str() > after)
                    });
                match folds {
                    true => Walk::behind_folded(prefix, after, &looked, is_straddled),
                    false => Walk::behind(prefix, after, &looked),
                }
            }
            after => Walk::all(prefix, after),
        };
        let (mut all, mut pages) = (Vec::new(), 0);
        loop {
            pages += 1;
            assert!(pages < 500, "it comes to no end: {walk:?}");
            let (mut given, mut names) = (Vec::new(), Vec::new());
            while given.len() < most {
                match walk.turn(folds) {
                    Turn::Over => break,
                    Turn::Give(prefix) => given.push(prefix),
                    Turn::Ask => {
                        let page = self.page(folds, walk.frame().unwrap(), most - given.len());
                        let looked = looks(walk.open(&page));
                        names = walk.take(page, &looked).unwrap();
                        break;
                    }
                }
            }
            let page = walk.page(given, names, (prefix, fold));
            let mut told: Vec<String> = page.objects.into_iter().map(|it| it.key).collect();
            told.extend(page.prefixes);
            told.sort();
            assert!(told.len() <= most, "{told:?}");
            all.extend(told);
            let Some(token) = page.next else { return (all, pages) };
            walk = Walk::parse(&token, prefix).unwrap().unwrap();
        }
    }
}

struct Asked<'a> {
    prefix: &'a str,
    after: Option<&'a str>,
    folds: bool,
    fold: Option<&'a str>,
    most: usize,
}

fn expected(account: &Account, asked: &Asked<'_>) -> Vec<String> {
    let delimiter = if asked.folds { Some("/") } else { asked.fold };
    let mut names: Vec<String> = Vec::new();
    for name in account.files() {
        let Some(rest) = name.strip_prefix(asked.prefix) else { continue };
        if asked.after.is_some_and(|after| name.as_str() <= after) {
            continue;
        }
        let end = delimiter.and_then(|it| rest.find(it).map(|at| at + it.len()));
        let name = end.map_or(name.clone(), |end| format!("{}{}", asked.prefix, &rest[..end]));
        if names.last() != Some(&name) {
            names.push(name);
        }
    }
    names
}

fn files(names: &[&str]) -> Account {
    Account::of(&names.iter().map(|name| name.to_string()).collect())
}

const KEYS: [&str; 7] = ["a/00", "a/01", "a/02", "a-b/x", "a-c", "a.txt", "ab"];

#[test]
fn the_order_is_that_of_directories() {
    let listed = files(&["A/dat1", "A-B/dat2", "A-B-C", "A-C", "A.C/dat3", "AB/AB", "AB.txt"]);
    let names: Vec<_> = listed.names.iter().map(|it| it.0.as_str()).collect();
    // As in azure-sdk-for-go's issue 24210.
    assert_eq!(
        names,
        [
            "A", "A/dat1", "A-B", "A-B/dat2", "A-B-C", "A-C", "A.C", "A.C/dat3", "AB", "AB/AB",
            "AB.txt"
        ]
    );
}

#[test]
fn a_list_is_in_byte_order_whatever_its_pages() {
    let account = files(&KEYS);
    for most in 1..10 {
        let asked = Asked { prefix: "", after: None, folds: false, fold: None, most };
        let (names, _) = account.walk(&asked);
        assert_eq!(names, ["a-b/x", "a-c", "a.txt", "a/00", "a/01", "a/02", "ab"], "{most}");
    }
}

/// Ordinary trees cost no page more than they have.
#[test]
fn where_no_directory_has_such_siblings_pages_are_those_of_the_account() {
    let names = (0..40).map(|at| format!("y={}/m={}/part-{at:03}.x", at / 20, at / 10));
    let account = Account::of(&names.collect());
    let asked = Asked { prefix: "", after: None, folds: false, fold: None, most: 10 };
    let (names, pages) = account.walk(&asked);
    assert_eq!((names.len(), pages), (40, account.names.len().div_ceil(10)));
}

#[test]
fn tokens_are_of_one_list() {
    let account = files(&KEYS);
    let mut walk = Walk::all("a", None);
    let page = account.page(false, walk.frame().unwrap(), 2);
    let looked: Vec<_> = walk.open(&page).iter().map(|node| account.look(node)).collect();
    walk.take(page, &looked).unwrap();
    let text = walk.text();
    assert_eq!(Walk::parse(&text, "a").unwrap(), Some(walk));
    assert_eq!(Walk::parse("m1", "a").unwrap(), None);
    for (text, prefix) in [(text.as_str(), "b"), ("h", ""), ("h{}", ""), ("h[1]", "")] {
        assert_eq!(Walk::parse(text, prefix).unwrap_err().kind(), Kind::Invalid, "{text}");
    }
}

#[test]
fn another_order_is_an_error_where_names_would_be_lost() {
    let entry = |key: &str| ListEntry { key: key.into(), meta: ObjectMeta::default() };
    let listing = || Listing {
        names: ["b", "a"].map(|key| Name::Object(entry(key))).into(),
        marker: "1".into(),
        is_hierarchical: Some(true),
    };
    let mut walk = Walk::all("", None);
    assert_eq!(walk.take(listing(), &[]).unwrap().len(), 2);
    let mut walk = Walk::behind("", "0", &[]);
    assert_eq!(walk.take(listing(), &[]).unwrap_err().kind(), Kind::Corrupt);
}

const NAME: &str = "[a-b!.0]{1,2}(/[a-b!.0]{1,2}){0,3}";

proptest! {
    #[test]
    fn every_name_is_given_once_and_in_byte_order(
        files in prop::collection::btree_set(NAME, 0..25),
        prefix in "|[ab]|[ab][!/]?|a/b",
        rest in prop::option::of(prop_oneof![Just(String::new()), "[a-b!./0]{1,4}".boxed()]),
        picked in prop::option::of(0usize..25),
        kind in 0..3,
        most in 1usize..8,
    ) {
        let account = Account::of(&files);
        let mut after = rest.map(|rest| format!("{prefix}{rest}"));
        let known = picked.and_then(|at| account.files().into_iter().nth(at));
        if let Some(known) = known.filter(|it| it.starts_with(&prefix)) {
            after = Some(known);
        }
        let after = after.filter(|after| !after.contains("//"));
        let asked = Asked {
            prefix: &prefix,
            after: after.as_deref(),
            folds: kind == 1,
            fold: (kind == 2).then_some("!"),
            most,
        };
        let (names, _) = account.walk(&asked);
        prop_assert_eq!(names, expected(&account, &asked));
    }

    #[test]
    fn the_order_is_that_of_bytes_with_slashes_first(
        a in "[!/0é]{0,5}",
        b in "[!/0é]{0,5}",
    ) {
        prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
        prop_assert_eq!(compare(&a, &b).is_eq(), a == b);
        let (first, second) = (a.replace('/', "\u{1}"), b.replace('/', "\u{1}"));
        prop_assert_eq!(compare(&a, &b), first.cmp(&second));
    }
}

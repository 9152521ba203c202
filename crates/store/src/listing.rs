//! Cuts a sorted walk over names into pages: prefix, delimiter, `start_after` and opaque tokens.
//!
//! Decides what is folded and where a page ends; where the names come from is told by [`Names`].
//! Used by the stores that hold their own names (memory, local files).

use crate::ListRequest;
use penstock_base::{Error, Kind, Result};

/// Where a walk goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cursor {
    /// From the first name.
    Start,
    /// After this name, exclusive.
    After(String),
    /// After every name that starts with this.
    Past(String),
}

impl Cursor {
    /// Whether a name lies beyond the cursor.
    pub fn admits(&self, name: &str) -> bool {
        match self {
            Cursor::Start => true,
            Cursor::After(last) => name > last.as_str(),
            Cursor::Past(prefix) => name > prefix.as_str() && !name.starts_with(prefix.as_str()),
        }
    }

    /// Whether some name that starts with `prefix` may lie beyond the cursor.
    pub fn admits_below(&self, prefix: &str) -> bool {
        match self {
            Cursor::Start => true,
            Cursor::After(last) => prefix > last.as_str() || last.starts_with(prefix),
            Cursor::Past(done) => {
                !prefix.starts_with(done.as_str())
                    && (prefix > done.as_str() || done.starts_with(prefix))
            }
        }
    }

    /// Where a request begins.
    pub fn of(request: &ListRequest) -> Result<Self> {
        match (&request.token, &request.start_after) {
            (Some(token), _) => Cursor::from_token(token),
            (None, Some(name)) => Ok(Cursor::After(name.clone())),
            (None, None) => Ok(Cursor::Start),
        }
    }

    fn token(&self) -> String {
        match self {
            Cursor::Start => String::new(),
            Cursor::After(name) => format!("k{name}"),
            Cursor::Past(prefix) => format!("p{prefix}"),
        }
    }

    fn from_token(token: &str) -> Result<Self> {
        let rest = || token[1..].to_string();
        match token.as_bytes().first() {
            Some(b'k') => Ok(Cursor::After(rest())),
            Some(b'p') => Ok(Cursor::Past(rest())),
            _ => Err(Error::new(Kind::Invalid, "the listing token is not one of this store")),
        }
    }
}

/// A walk over names in byte order.
pub(crate) trait Names {
    /// What the walk knows of a name.
    type Entry;

    /// The first name that starts with the request's prefix and lies beyond the cursor. The cursor
    /// only ever moves forward.
    fn next(&mut self, cursor: &Cursor) -> Result<Option<(String, Self::Entry)>>;
}

/// One page, before the entries became metadata.
#[derive(Debug)]
pub(crate) struct Page<E> {
    pub objects: Vec<(String, E)>,
    pub prefixes: Vec<String>,
    pub next: Option<String>,
}

/// Reads one page; names and folded prefixes count alike towards its size.
pub(crate) fn read_page<N: Names>(
    names: &mut N,
    request: &ListRequest,
    default_max: u32,
) -> Result<Page<N::Entry>> {
    let max = request.max_keys.unwrap_or(default_max).min(default_max) as usize;
    let mut page = Page { objects: Vec::new(), prefixes: Vec::new(), next: None };
    if max == 0 {
        return Ok(page);
    }
    let mut cursor = Cursor::of(request)?;
    let delimiter = request.delimiter.as_deref().filter(|text| !text.is_empty());
    while let Some((name, entry)) = names.next(&cursor)? {
        if page.objects.len() + page.prefixes.len() == max {
            page.next = Some(cursor.token());
            break;
        }
        let rest = &name[request.prefix.len()..];
        match delimiter.and_then(|text| rest.find(text).map(|at| at + text.len())) {
            Some(end) => {
                let folded = name[..request.prefix.len() + end].to_string();
                cursor = Cursor::Past(folded.clone());
                page.prefixes.push(folded);
            }
            None => {
                cursor = Cursor::After(name.clone());
                page.objects.push((name, entry));
            }
        }
    }
    Ok(page)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    struct Set(BTreeSet<String>, String);

    impl Names for Set {
        type Entry = ();

        fn next(&mut self, cursor: &Cursor) -> Result<Option<(String, ())>> {
            let fits = |name: &&String| name.starts_with(&self.1) && cursor.admits(name);
            Ok(self.0.iter().find(fits).map(|name| (name.clone(), ())))
        }
    }

    /// All names and prefixes of a listing, page after page, in the order they came.
    fn read_all(set: &mut Set, mut request: ListRequest) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let page = read_page(set, &request, 1000).unwrap();
            assert!(page.next.is_none() || page.objects.len() + page.prefixes.len() > 0);
            let mut here: Vec<_> = page.objects.into_iter().map(|(name, ())| name).collect();
            here.extend(page.prefixes);
            here.sort();
            all.extend(here);
            match page.next {
                Some(token) => request.token = Some(token),
                None => return all,
            }
        }
    }

    #[test]
    fn foreign_token_is_refused() {
        let request = ListRequest { token: Some("x".into()), ..Default::default() };
        let error = read_page(&mut Set(BTreeSet::new(), String::new()), &request, 10).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
    }

    proptest! {
        #[test]
        fn pages_joined_are_the_whole_folded_listing(
            names in prop::collection::btree_set("[ab/ü]{1,6}", 0..40),
            prefix in "[ab/]{0,2}",
            delimiter in prop::option::of("[b/]"),
            start_after in prop::option::of("[ab/ü]{0,4}"),
            max in 1u32..5,
        ) {
            let mut expected = Vec::new();
            for name in names.iter().filter(|name| name.starts_with(&prefix)) {
                if start_after.as_ref().is_some_and(|after| name <= after) {
                    continue;
                }
                let rest = &name[prefix.len()..];
                let shown = match delimiter.as_ref().and_then(|d| rest.find(d.as_str())) {
                    Some(at) => name[..prefix.len() + at + 1].to_string(),
                    None => name.clone(),
                };
                if expected.last() != Some(&shown) {
                    expected.push(shown);
                }
            }
            let request = ListRequest {
                prefix: prefix.clone(),
                delimiter,
                start_after,
                max_keys: Some(max),
                ..Default::default()
            };
            prop_assert_eq!(read_all(&mut Set(names, prefix), request), expected);
        }

        #[test]
        fn a_pruned_directory_holds_no_admitted_name(
            dir in "[ab/]{0,3}", rest in "[ab/]{0,3}", mark in "[ab/]{0,5}", past: bool,
        ) {
            let cursor = if past { Cursor::Past(mark) } else { Cursor::After(mark) };
            let name = format!("{dir}{rest}");
            prop_assert!(!cursor.admits(&name) || cursor.admits_below(&dir));
        }
    }
}

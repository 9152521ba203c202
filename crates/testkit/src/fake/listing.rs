//! One page of names: prefix, folding at a delimiter, a place to go on from.

use super::vault::Object;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// What is asked of a page.
#[derive(Clone, Copy, Debug)]
pub struct PageRequest<'a> {
    /// Only names that start with this.
    pub prefix: &'a str,
    /// Where names fold; empty for nowhere.
    pub delimiter: &'a str,
    /// Where to begin.
    pub from: &'a Start,
    /// Most names and folds.
    pub most: usize,
}

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the first name.
    First,
    /// After this name.
    After(String),
    /// At this name or the next.
    At(String),
    /// After every name that starts with this.
    AfterFold(String),
}

impl Start {
    /// As text that [`Start::from_text`] reads back: the inside of a continuation token.
    pub fn to_text(&self) -> String {
        match self {
            Start::First => "b".to_string(),
            Start::After(name) => format!("a{name}"),
            Start::At(name) => format!("i{name}"),
            Start::AfterFold(fold) => format!("f{fold}"),
        }
    }

    /// Reads [`Start::to_text`].
    pub fn from_text(text: &str) -> Option<Self> {
        let name = text.get(1..)?.to_string();
        match text.get(..1)? {
            "b" => Some(Start::First),
            "a" => Some(Start::After(name)),
            "i" => Some(Start::At(name)),
            "f" => Some(Start::AfterFold(name)),
            _ => None,
        }
    }
}

/// One name of a page.
#[derive(Clone, Debug)]
pub enum Name {
    /// An object.
    Object(String, Arc<Object>),
    /// Names folded into one.
    Fold(String),
}

/// A page.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Names in byte order, objects and folds together.
    pub names: Vec<Name>,
    /// Where the next page begins; `None` on the last.
    pub next: Option<Start>,
}

/// Takes one page out of an index.
pub fn page(objects: &BTreeMap<String, Arc<Object>>, request: PageRequest<'_>) -> Page {
    let mut page = Page::default();
    let mut from = match request.from {
        Start::First => Start::At(request.prefix.to_string()),
        Start::After(name) if name.as_str() < request.prefix => {
            Start::At(request.prefix.to_string())
        }
        Start::At(name) if name.as_str() < request.prefix => Start::At(request.prefix.to_string()),
        from => from.clone(),
    };
    while let Some((key, object)) = first_from(objects, &from) {
        if !key.starts_with(request.prefix) {
            break;
        }
        if page.names.len() == request.most {
            page.next = Some(from);
            break;
        }
        let fold = fold_of(key, request.prefix, request.delimiter);
        from = match &fold {
            Some(fold) => Start::AfterFold(fold.clone()),
            None => Start::After(key.clone()),
        };
        page.names.push(match fold {
            Some(fold) => Name::Fold(fold),
            None => Name::Object(key.clone(), object.clone()),
        });
    }
    if request.most == 0 {
        page.next = None;
    }
    page
}

fn fold_of(key: &str, prefix: &str, delimiter: &str) -> Option<String> {
    if delimiter.is_empty() {
        return None;
    }
    let at = key[prefix.len()..].find(delimiter)?;
    Some(key[..prefix.len() + at + delimiter.len()].to_string())
}

fn first_from<'a>(
    objects: &'a BTreeMap<String, Arc<Object>>,
    from: &Start,
) -> Option<(&'a String, &'a Arc<Object>)> {
    let range = |lower| objects.range::<str, _>((lower, Bound::Unbounded));
    match from {
        Start::First => objects.iter().next(),
        Start::After(name) => range(Bound::Excluded(name.as_str())).next(),
        Start::At(name) => range(Bound::Included(name.as_str())).next(),
        Start::AfterFold(fold) => match after_prefix(fold) {
            Some(bound) => range(Bound::Included(bound.as_str())).next(),
            None => range(Bound::Excluded(fold.as_str())).find(|(key, _)| !key.starts_with(fold)),
        },
    }
}

/// The least text greater than every text that starts with `prefix`, if its last character has a
/// successor (a delimiter nearly always has).
fn after_prefix(prefix: &str) -> Option<String> {
    let mut text = prefix.to_string();
    let last = text.pop()?;
    text.push(char::from_u32(u32::from(last) + 1)?);
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::super::data::Data;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::time::SystemTime;

    fn index(keys: &BTreeSet<String>) -> BTreeMap<String, Arc<Object>> {
        let object = Arc::new(Object {
            data: Data::default(),
            etag: String::new(),
            modified: SystemTime::UNIX_EPOCH,
            headers: Vec::new(),
            metadata: Vec::new(),
            checksums: Vec::new(),
            tags: Vec::new(),
            blocks: Vec::new(),
        });
        keys.iter().map(|key| (key.clone(), object.clone())).collect()
    }

    fn expected(keys: &BTreeSet<String>, prefix: &str, delimiter: &str) -> Vec<String> {
        let mut names = Vec::new();
        for key in keys.iter().filter(|key| key.starts_with(prefix)) {
            let name = fold_of(key, prefix, delimiter).unwrap_or_else(|| key.clone());
            if names.last() != Some(&name) {
                names.push(name);
            }
        }
        names
    }

    proptest! {
        #[test]
        fn pages_join_to_the_whole(
            keys in prop::collection::btree_set("[ab/]{1,5}", 0..30),
            prefix in "[ab/]{0,2}",
            delimiter in "/?",
            most in 1usize..6,
        ) {
            let objects = index(&keys);
            let (mut names, mut from) = (Vec::new(), Start::First);
            loop {
                let start = &from;
                let request =
                    PageRequest { prefix: &prefix, delimiter: &delimiter, from: start, most };
                let page = page(&objects, request);
                prop_assert!(page.names.len() <= most);
                names.extend(page.names.into_iter().map(|name| match name {
                    Name::Object(key, _) => key,
                    Name::Fold(fold) => fold,
                }));
                let Some(next) = page.next else { break };
                prop_assert_eq!(Start::from_text(&next.to_text()), Some(next.clone()));
                from = next;
            }
            prop_assert_eq!(names, expected(&keys, &prefix, &delimiter));
        }
    }
}

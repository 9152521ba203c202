//! Globbing: the names that match a pattern, listing no more than its literal prefix.
//!
//! Where wildcards stand in the last component only, one level is listed. Otherwise everything
//! below the literal prefix is listed flat, as long as that is cheaper: if the first page is not
//! the last and fewer than half of its names match, the levels are descended instead, following
//! only the directories that match.

use crate::location::Location;
use crate::names::Entry;
use crate::names::list::{Listed, Turns, all_pages, level, object_entry, page};
use crate::names::pattern::{Component, Pattern};
use crate::query::{Query, QueryCore};
use crate::read;
use futures_util::{StreamExt, TryStreamExt, stream};
use penstock_base::{Kind, Result};
use penstock_store::{ListEntry, ListRequest, ObjectMeta};
use std::collections::HashSet;

/// Directories listed at once.
const LISTINGS_AT_ONCE: usize = 16;

impl Query {
    /// The objects whose names match, in byte order. A pattern without wildcards is its own answer
    /// and costs no request, whether the object exists or not.
    ///
    /// # Errors
    /// As [`Query::list`].
    pub async fn glob(&self, pattern: &Location) -> Result<Vec<Entry>> {
        self.core.run(glob(&self.core, pattern)).await
    }
}

/// Turns the pages of a pattern's listing. A name is given once, whatever the store repeats.
pub(super) struct Walk {
    at: Location,
    pattern: Pattern,
    /// What is asked for next; nothing behind the last page.
    next: Option<ListRequest>,
    turns: Turns,
    seen: HashSet<String>,
}

impl Walk {
    /// Waits for the statement's own uploads that may match.
    pub async fn begin(query: &QueryCore, at: &Location) -> Self {
        let pattern = Pattern::parse(&at.key);
        let prefix = pattern.literal_prefix();
        if pattern.literal().is_none() {
            query.uploads.settled_below(&at.sibling(&prefix).id()).await;
        }
        let one_level = pattern.first_wildcard() + 1 == pattern.components().len()
            && !matches!(pattern.components().last(), Some(Component::Any));
        let next = match one_level {
            true => level(&prefix),
            false => ListRequest { prefix, ..ListRequest::default() },
        };
        let (turns, seen) = (Turns::default(), HashSet::new());
        Walk { at: at.clone(), pattern, next: Some(next), turns, seen }
    }

    /// The pattern's place.
    pub fn at(&self) -> &Location {
        &self.at
    }

    /// What is listed.
    pub fn below(&self) -> Location {
        self.at.sibling(self.pattern.literal_prefix())
    }

    /// Whether all was asked for.
    pub fn is_over(&self) -> bool {
        self.next.is_none()
    }

    /// The objects of the next page that has any, in byte order; `None` behind the last.
    pub async fn next(&mut self, query: &QueryCore) -> Result<Option<Vec<Entry>>> {
        if let Some(key) = self.pattern.literal() {
            let found = self.next.take().map(|_| {
                let url = self.at.sibling(&key).url();
                vec![Entry::object(url, key, ObjectMeta::default())]
            });
            return Ok(found);
        }
        while let Some(request) = &mut self.next {
            let is_first = request.token.is_none();
            let is_flat = request.delimiter.is_none();
            let answer = page(query, &self.at, request).await?;
            let mut objects = answer.objects;
            match answer.next {
                None => self.next = None,
                Some(_) if is_first && is_flat && is_sparse(&self.pattern, &objects) => {
                    self.next = None;
                    objects = descend(query, &self.at, &self.pattern).await?;
                }
                Some(token) => self.turns.next(&self.at, request, token)?,
            }
            let entries = self.matching(objects);
            if !entries.is_empty() {
                return Ok(Some(entries));
            }
            if self.is_over() && self.seen.is_empty() && self.at.key.contains('[') {
                let found = by_its_own_name(query, &self.at).await?;
                return Ok(Some(found).filter(|found| !found.is_empty()));
            }
        }
        Ok(None)
    }

    fn matching(&mut self, objects: Vec<ListEntry>) -> Vec<Entry> {
        let mut entries: Vec<Entry> = objects
            .into_iter()
            // A name that ends with a slash marks a directory.
            .filter(|object| !object.key.ends_with('/') && self.pattern.matches(&object.key))
            .filter(|object| self.seen.insert(object.key.clone()))
            .map(|object| object_entry(&self.at, object))
            .collect();
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        entries
    }
}

/// Whether so few names of the first page match that the levels are better descended. Behind `**`
/// every directory matches, so descending saves nothing there.
fn is_sparse(pattern: &Pattern, objects: &[ListEntry]) -> bool {
    let can_descend = !matches!(pattern.components()[pattern.first_wildcard()], Component::Any);
    let matching = objects.iter().filter(|object| pattern.matches(&object.key)).count();
    can_descend && matching * 2 < objects.len()
}

async fn glob(query: &QueryCore, at: &Location) -> Result<Vec<Entry>> {
    let mut walk = Walk::begin(query, at).await;
    let mut entries = Vec::new();
    while let Some(page) = walk.next(query).await? {
        entries.extend(page);
    }
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    query.neighbours.listed(None, at, &entries);
    Ok(entries)
}

/// A pattern that matches nothing may be the very name of an object: brackets stand in names too,
/// and a listing gives them back as they are. DuckDB looks for local files in the same way.
async fn by_its_own_name(query: &QueryCore, at: &Location) -> Result<Vec<Entry>> {
    match read::stat(query, at).await {
        Ok(meta) => {
            let (url, key) = (at.url(), at.key.clone());
            Ok(vec![Entry::object(url, key, meta)])
        }
        // Invalid: no object can have such a name.
        Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Invalid) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

async fn descend(query: &QueryCore, at: &Location, pattern: &Pattern) -> Result<Vec<ListEntry>> {
    let components = pattern.components();
    let mut directories = vec![String::new()];
    for (depth, component) in components.iter().enumerate() {
        let last = depth + 1 == components.len();
        directories = match component {
            Component::Literal(literal) if !last => {
                directories.into_iter().map(|directory| format!("{directory}{literal}/")).collect()
            }
            Component::Any => return flat(query, at, directories).await,
            _ => {
                let start = component.literal_prefix();
                let below =
                    directories.iter().map(|directory| level(&format!("{directory}{start}")));
                let listed = at_once(query, at, below.collect()).await?;
                if last {
                    return Ok(listed.into_iter().flat_map(|listed| listed.objects).collect());
                }
                let prefixes = listed.into_iter().flat_map(|listed| listed.prefixes);
                prefixes.filter(|prefix| component.matches(last_component(prefix))).collect()
            }
        };
    }
    Ok(Vec::new())
}

async fn flat(
    query: &QueryCore,
    at: &Location,
    directories: Vec<String>,
) -> Result<Vec<ListEntry>> {
    let below = directories
        .into_iter()
        .map(|prefix| ListRequest { prefix, ..ListRequest::default() })
        .collect();
    let listed = at_once(query, at, below).await?;
    Ok(listed.into_iter().flat_map(|listed| listed.objects).collect())
}

async fn at_once(
    query: &QueryCore,
    at: &Location,
    requests: Vec<ListRequest>,
) -> Result<Vec<Listed>> {
    stream::iter(requests)
        .map(|request| async move {
            let mut listed = Listed::default();
            all_pages(query, at, request, &mut listed).await?;
            Ok(listed)
        })
        .buffered(LISTINGS_AT_ONCE)
        .try_collect()
        .await
}

/// `a/b/` ends in the directory `b`.
fn last_component(prefix: &str) -> &str {
    let bare = prefix.strip_suffix('/').unwrap_or(prefix);
    bare.rsplit_once('/').map_or(bare, |(_, last)| last)
}

//! Globbing: the names that match a pattern, listing no more than its literal prefix.
//!
//! Where wildcards stand in the last component only, one level is listed. Otherwise everything
//! below the literal prefix is listed flat, as long as that is cheaper: if the first page is not
//! the last and fewer than half of its names match, the levels are descended instead, following
//! only the directories that match.

use crate::location::Location;
use crate::names::Entry;
use crate::names::list::{Listed, all_pages, level, object_entry, page};
use crate::names::pattern::{Component, Pattern};
use crate::query::{Query, QueryCore};
use crate::read;
use futures_util::{StreamExt, TryStreamExt, stream};
use penstock_base::{Kind, Result};
use penstock_store::{ListEntry, ListRequest, ObjectMeta};

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

async fn glob(query: &QueryCore, at: &Location) -> Result<Vec<Entry>> {
    let pattern = Pattern::parse(&at.key);
    if let Some(key) = pattern.literal() {
        let url = at.sibling(&key).url();
        return Ok(vec![Entry { url, key, is_directory: false, meta: ObjectMeta::default() }]);
    }
    let prefix = pattern.literal_prefix();
    query.uploads.settled_below(&at.sibling(&prefix).id()).await;
    let one_level = pattern.first_wildcard() + 1 == pattern.components().len()
        && !matches!(pattern.components().last(), Some(Component::Any));
    let found = if one_level {
        let mut listed = Listed::default();
        all_pages(query, at, level(&prefix), &mut listed).await?;
        listed.objects
    } else {
        several_levels(query, at, &pattern, prefix).await?
    };
    let mut entries: Vec<Entry> = found
        .into_iter()
        // A name that ends with a slash marks a directory.
        .filter(|object| !object.key.ends_with('/') && pattern.matches(&object.key))
        .map(|object| object_entry(at, object))
        .collect();
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    entries.dedup_by(|a, b| a.key == b.key);
    if entries.is_empty() && at.key.contains('[') {
        return by_its_own_name(query, at).await;
    }
    query.neighbours.listed(at, &entries);
    Ok(entries)
}

/// A pattern that matches nothing may be the very name of an object: brackets stand in names too,
/// and a listing gives them back as they are. DuckDB looks for local files in the same way.
async fn by_its_own_name(query: &QueryCore, at: &Location) -> Result<Vec<Entry>> {
    match read::stat(query, at).await {
        Ok(meta) => {
            let (url, key) = (at.url(), at.key.clone());
            Ok(vec![Entry { url, key, is_directory: false, meta }])
        }
        // Invalid: no object can have such a name.
        Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Invalid) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

async fn several_levels(
    query: &QueryCore,
    at: &Location,
    pattern: &Pattern,
    prefix: String,
) -> Result<Vec<ListEntry>> {
    let mut request = ListRequest { prefix, ..ListRequest::default() };
    let mut listed = Listed::default();
    let Some(token) = listed.add(page(query, at, &request).await?) else {
        return Ok(listed.objects);
    };
    let matching = listed.objects.iter().filter(|object| pattern.matches(&object.key)).count();
    if can_descend(pattern) && matching * 2 < listed.objects.len() {
        return descend(query, at, pattern).await;
    }
    request.token = Some(token);
    all_pages(query, at, request, &mut listed).await?;
    Ok(listed.objects)
}

/// Behind `**` every directory matches, so descending saves nothing there.
fn can_descend(pattern: &Pattern) -> bool {
    !matches!(pattern.components()[pattern.first_wildcard()], Component::Any)
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

//! Globbing: the names that match a pattern, listing no more than its literal prefix.
//!
//! Where wildcards stand in the last component only, one level is listed. Otherwise everything
//! below the literal prefix is listed flat, as long as that is cheaper: if the first page is not
//! the last and fewer than half of its names match, the levels are descended instead, following
//! only the directories that match. What was found in this way is kept by its pattern.

use crate::location::Location;
use crate::names::kept::ListingKey;
use crate::names::list::{all_pages, level, object_entry};
use crate::names::pattern::{Component, Pattern};
use crate::names::turned::{Finding, Found, Page, Pages};
use crate::names::{Entry, Listed};
use crate::query::{Query, QueryCore};
use crate::read;
use crate::warm::{Coming, warm};
use futures_util::future::join;
use futures_util::{StreamExt, TryStreamExt, stream};
use penstock_base::{Kind, Result};
use penstock_store::{ListEntry, ListRequest, ObjectMeta};
use std::collections::HashSet;
use std::sync::Arc;

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

/// Turns the pages of a pattern's listing. A name is given once, whatever the store repeats. After
/// a failure it stands where it stood.
#[derive(Debug)]
pub(super) struct Walk {
    at: Location,
    pattern: Pattern,
    /// A pattern without wildcards, until it was given.
    literal: Option<String>,
    /// None behind the last one.
    pages: Option<Pages>,
    /// They were all here before anything was asked for.
    were_kept: bool,
    /// The next page may show that the levels are better descended.
    may_descend: bool,
    /// Its first request has not been sent.
    is_at_rest: bool,
    seen: HashSet<String>,
}

impl Walk {
    /// Waits for the statement's own uploads that may match.
    pub async fn begin(query: &QueryCore, at: &Location) -> Self {
        let pattern = Pattern::parse(&at.key);
        let literal = pattern.literal();
        let mut walk = Walk {
            at: at.clone(),
            pattern,
            literal,
            pages: None,
            were_kept: false,
            may_descend: false,
            is_at_rest: false,
            seen: HashSet::new(),
        };
        if walk.literal.is_none() {
            query.uploads.settled_below(&walk.below().id()).await;
            let pages = walk.known(query);
            walk.were_kept = pages.is_here();
            walk.may_descend = walk.is_flat() && !walk.were_kept;
            walk.is_at_rest = !pages.is_here();
            walk.pages = Some(pages);
        }
        walk
    }

    /// Whether all below the literal prefix is listed, not one level.
    fn is_flat(&self) -> bool {
        let (pattern, last) = (&self.pattern, self.pattern.components().last());
        pattern.first_wildcard() + 1 < pattern.components().len()
            || matches!(last, Some(Component::Any))
    }

    fn request(&self) -> ListRequest {
        let prefix = self.pattern.literal_prefix();
        match self.is_flat() {
            true => ListRequest { prefix, ..ListRequest::default() },
            false => level(&prefix),
        }
    }

    fn known(&self, query: &QueryCore) -> Pages {
        let found = Pages::found(query, &self.at, &self.found_key()).filter(|_| self.is_flat());
        found.unwrap_or_else(|| Pages::of(query, &self.at, self.request()))
    }

    /// Names what is found level by level.
    fn found_key(&self) -> ListingKey {
        let key = ListingKey::new(&self.at, &self.pattern.literal_prefix(), None);
        ListingKey { pattern: Some(self.at.key.clone()), ..key }
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
        self.literal.is_none() && self.pages.is_none()
    }

    /// The objects of the next page that has any, in byte order; `None` behind the last.
    pub async fn next(&mut self, query: &QueryCore) -> Result<Option<Vec<Entry>>> {
        if let Some(key) = self.literal.take() {
            let url = self.at.sibling(&key).url();
            return Ok(Some(vec![Entry::object(url, key, ObjectMeta::default())]));
        }
        while let Some(pages) = &mut self.pages {
            // Several files will be read: behind the request's own first step, in which it takes a
            // connection, others are opened beside it.
            let warms = std::mem::take(&mut self.is_at_rest);
            let beside = async { warms.then(|| warm(query, &self.at, Coming::Files)) };
            let (page, _) = join(pages.next(query), beside).await;
            let page = page?;
            let is_over = pages.is_over();
            let Some(mut page) = page else {
                self.pages = None;
                break;
            };
            let may_descend = self.may_descend && !is_over;
            if may_descend && is_sparse(&self.pattern, &page.objects) {
                // Until all was found, a failure leaves it before its first page.
                self.pages = Some(Pages::of(query, &self.at, self.request()));
                let finding = Finding::begin(query, self.found_key());
                let found = descend(query, &self.at, &self.pattern).await?;
                page = finding.ends(query, &found);
                self.pages = None;
            } else if is_over {
                self.pages = None;
            }
            self.may_descend = false;
            let entries = self.matching(&page);
            if !entries.is_empty() {
                return Ok(Some(entries));
            }
            if !self.is_over() || !self.seen.is_empty() {
                continue;
            }
            if std::mem::take(&mut self.were_kept) {
                // That nothing is there is never taken from memory.
                self.pages = Some(Pages::anew(&self.at, self.request()));
                self.may_descend = self.is_flat();
            } else if self.at.key.contains('[') {
                let found = by_its_own_name(query, &self.at).await?;
                return Ok(Some(found).filter(|found| !found.is_empty()));
            }
        }
        Ok(None)
    }

    fn matching(&mut self, page: &Page) -> Vec<Entry> {
        let mut entries: Vec<Entry> = page
            .objects
            .iter()
            // A name that ends with a slash marks a directory.
            .filter(|object| !object.key.ends_with('/') && self.pattern.matches(&object.key))
            .filter(|object| self.seen.insert(object.key.clone()))
            .map(|object| object_entry(&self.at, object, page.listed))
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

/// The pages of the last level, and when the oldest of all that led there was told.
async fn descend(query: &QueryCore, at: &Location, pattern: &Pattern) -> Result<Found> {
    let components = pattern.components();
    let mut oldest: Option<Listed> = None;
    let mut note = |pages: &[Arc<Page>]| {
        let told = pages.iter().map(|page| page.listed);
        oldest = told.chain(oldest).min();
        oldest
    };
    let mut directories = vec![String::new()];
    for (depth, component) in components.iter().enumerate() {
        let last = depth + 1 == components.len();
        directories = match component {
            Component::Literal(literal) if !last => {
                directories.into_iter().map(|directory| format!("{directory}{literal}/")).collect()
            }
            Component::Any => {
                let pages = flat(query, at, directories).await?;
                return Ok(Found { oldest: note(&pages), pages });
            }
            _ => {
                let start = component.literal_prefix();
                let below =
                    directories.iter().map(|directory| level(&format!("{directory}{start}")));
                let listed = at_once(query, at, below.collect()).await?;
                let oldest = note(&listed);
                if last {
                    return Ok(Found { oldest, pages: listed });
                }
                let prefixes = listed.iter().flat_map(|page| &page.prefixes);
                let matching = |prefix: &&String| component.matches(last_component(prefix));
                prefixes.filter(matching).cloned().collect()
            }
        };
        // Several pages tell the same one where the store does not fold.
        directories.dedup();
    }
    Ok(Found { pages: Vec::new(), oldest })
}

async fn flat(
    query: &QueryCore,
    at: &Location,
    directories: Vec<String>,
) -> Result<Vec<Arc<Page>>> {
    let below = directories
        .into_iter()
        .map(|prefix| ListRequest { prefix, ..ListRequest::default() })
        .collect();
    at_once(query, at, below).await
}

async fn at_once(
    query: &QueryCore,
    at: &Location,
    requests: Vec<ListRequest>,
) -> Result<Vec<Arc<Page>>> {
    let pages: Vec<_> = stream::iter(requests)
        .map(|request| all_pages(query, Pages::of(query, at, request)))
        .buffered(LISTINGS_AT_ONCE)
        .try_collect()
        .await?;
    Ok(pages.into_iter().flatten().collect())
}

/// `a/b/` ends in the directory `b`.
fn last_component(prefix: &str) -> &str {
    let bare = prefix.strip_suffix('/').unwrap_or(prefix);
    bare.rsplit_once('/').map_or(bare, |(_, last)| last)
}

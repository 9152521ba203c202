//! Listing: pages of names, and what they tell of the objects.

use crate::attempt::{Weight, retry};
use crate::cause::Cause;
use crate::location::Location;
use crate::names::turned::{Page, Pages, as_asked};
use crate::names::{Entry, Listed};
use crate::query::{Query, QueryCore};
use crate::read;
use penstock_base::{Error, Kind, Result};
use penstock_store::{ListEntry, ListPage, ListRequest, ObjectMeta};
use std::sync::Arc;
use tokio::time::Instant;

impl Query {
    /// One level below a directory, in byte order. A directory that does not exist is empty. What
    /// was listed before is told again for as long as `cache_validation` lets it count.
    ///
    /// # Errors
    /// `Unsupported` where the store cannot list; `NotFound` for a missing bucket or container;
    /// `Denied`, `Throttled`, `Unavailable`.
    pub async fn list(&self, directory: &Location) -> Result<Vec<Entry>> {
        let mut entries = self.list_with_itself(directory).await?;
        let own = as_directory(directory).key;
        entries.retain(|entry| entry.is_directory || entry.key != own);
        Ok(entries)
    }

    /// The same, with the object that has the directory's own name, slash and all, where there is
    /// one: it marks a directory for some programs, and is a mistake of others.
    ///
    /// # Errors
    /// As [`Query::list`].
    pub async fn list_with_itself(&self, directory: &Location) -> Result<Vec<Entry>> {
        self.core.run(list(&self.core, directory)).await
    }

    /// One page of a listing as the store gives it, for a gateway.
    ///
    /// # Errors
    /// As [`Query::list`].
    pub async fn list_page(&self, at: &Location, request: &ListRequest) -> Result<ListPage> {
        self.core.run(page(&self.core, at, request)).await
    }

    /// Whether an object of this name exists; from memory while that is valid.
    ///
    /// # Errors
    /// `Denied`, `Throttled`, `Unavailable`.
    pub async fn exists(&self, at: &Location) -> Result<bool> {
        match self.core.run(read::stat(&self.core, at)).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == Kind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether any object lies below this directory.
    ///
    /// # Errors
    /// As [`Query::list`]; a missing bucket or container is an empty one.
    pub async fn directory_exists(&self, directory: &Location) -> Result<bool> {
        self.core.run(any_below(&self.core, directory)).await
    }
}

async fn list(query: &QueryCore, directory: &Location) -> Result<Vec<Entry>> {
    let below = as_directory(directory);
    query.uploads.settled_below(&below.id()).await;
    let mut entries = Vec::new();
    for page in all_pages(query, Pages::of(query, directory, level(&below.key))).await? {
        let (listed, objects) = (page.listed, page.objects.iter());
        let directories = page.prefixes.iter();
        entries.extend(directories.map(|prefix| directory_entry(directory, prefix, listed)));
        entries.extend(objects.map(|object| object_entry(directory, object, listed)));
    }
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    entries.dedup_by(|a, b| a.key == b.key && a.is_directory == b.is_directory);
    Ok(entries)
}

async fn any_below(query: &QueryCore, directory: &Location) -> Result<bool> {
    let below = as_directory(directory);
    query.uploads.settled_below(&below.id()).await;
    let mut request =
        ListRequest { prefix: below.key.clone(), max_keys: Some(1), ..ListRequest::default() };
    let mut turns = Turns::default();
    loop {
        let answer = match page(query, directory, &request).await {
            Err(error) if error.kind() == Kind::NotFound => return Ok(false),
            answer => as_asked(answer?, &request),
        };
        if !answer.objects.is_empty() || !answer.prefixes.is_empty() {
            return Ok(true);
        }
        match answer.next {
            // A page may be empty and not be the last.
            Some(token) => turns.next(directory, &mut request, token)?,
            None => return Ok(false),
        }
    }
}

/// The request for one level below a prefix.
pub(crate) fn level(prefix: &str) -> ListRequest {
    ListRequest {
        prefix: prefix.to_string(),
        delimiter: Some("/".to_string()),
        ..ListRequest::default()
    }
}

/// Turns page after page until the last.
pub(crate) async fn all_pages(query: &QueryCore, mut pages: Pages) -> Result<Vec<Arc<Page>>> {
    let mut all = Vec::new();
    while let Some(page) = pages.next(query).await? {
        all.push(page);
    }
    Ok(all)
}

/// How often in a row the same page may be told as the next one. A busy service may have nothing
/// to tell yet; a server or cache that does not look at tokens would be asked for ever.
const SAME_TOKENS_MAX: u32 = 16;

/// Turning the pages of one listing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    same: u32,
}

impl Turns {
    pub fn next(&mut self, at: &Location, request: &mut ListRequest, token: String) -> Result<()> {
        self.same = if request.token.as_ref() == Some(&token) { self.same + 1 } else { 0 };
        if self.same >= SAME_TOKENS_MAX {
            return Err(Error::new(Kind::Corrupt, "the listing comes back to the same page")
                .with_operation("list")
                .with_object(at.url())
                .with_hint("Does a proxy or cache between here and the store answer listings?"));
        }
        request.token = Some(token);
        Ok(())
    }
}

/// Fetches one page and remembers what it tells of the objects.
pub(crate) async fn page(
    query: &QueryCore,
    at: &Location,
    request: &ListRequest,
) -> Result<ListPage> {
    if !at.mount.capabilities.list {
        return Err(Error::new(Kind::Unsupported, "this store cannot list names")
            .with_operation("list")
            .with_object(at.url())
            .with_hint("Name each object in full"));
    }
    let asked = request.max_keys.or(u32::try_from(query.settings.list_page_size).ok());
    let request = ListRequest { max_keys: asked, ..request.clone() };
    let begun = Instant::now();
    let answer = retry(query, (Cause::List, "list", at), Weight::Small, async || {
        let asked = Instant::now();
        let answer = at.mount.store.list(request.clone()).await?;
        at.mount.latency.note(asked.elapsed());
        Ok(answer)
    })
    .await?;
    if at.mount.capabilities.list_etag {
        for object in &answer.objects {
            if object.meta.etag.is_some() && object.meta.size_bytes.is_some() {
                let at = at.sibling(&object.key);
                query.engine.metadata.confirm(&at, &object.meta, false, begun);
            }
        }
    }
    Ok(answer)
}

/// The prefix that the names below a directory share.
pub(crate) fn as_directory(directory: &Location) -> Location {
    if directory.key.is_empty() || directory.key.ends_with('/') {
        directory.clone()
    } else {
        directory.sibling(format!("{}/", directory.key))
    }
}

pub(crate) fn object_entry(at: &Location, object: &ListEntry, listed: Listed) -> Entry {
    let url = at.sibling(&object.key).url();
    Entry { listed, ..Entry::object(url, object.key.clone(), object.meta.clone()) }
}

fn directory_entry(at: &Location, prefix: &str, listed: Listed) -> Entry {
    let key = prefix.strip_suffix('/').unwrap_or(prefix);
    let url = at.sibling(key).url();
    let entry = Entry::object(url, key.to_string(), ObjectMeta::default());
    Entry { is_directory: true, listed, ..entry }
}

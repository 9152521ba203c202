//! A glob whose pages are used while the next ones are fetched: the first file is read after one
//! request, however many there are.

use crate::location::Location;
use crate::names::Entry;
use crate::names::glob::Walk;
use crate::names::listings::{Ends, Turning};
use crate::query::{Query, QueryCore};
use penstock_base::{Error, Kind, Result};
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;

/// Pages that are fetched before their reader asks for them.
const PAGES_AHEAD: usize = 2;

/// What a glob finds, page by page. Dropping it ends its requests.
#[derive(Debug)]
pub struct GlobPages {
    at: Location,
    first: Option<Vec<Entry>>,
    rest: Option<Rest>,
}

#[derive(Debug)]
struct Rest {
    /// `None` behind the last page.
    pages: UnboundedReceiver<Result<Option<Vec<Entry>>>>,
    turning: Arc<Turning>,
    task: AbortHandle,
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl GlobPages {
    /// Whether no more requests are needed.
    pub fn is_whole(&self) -> bool {
        self.rest.is_none()
    }
}

impl Query {
    /// As [`Query::glob`], of which the first page has come when this returns. The names of a page
    /// are in byte order, and pages in that of the store (S3, Azure and GCS list in byte order).
    ///
    /// # Errors
    /// As [`Query::glob`].
    pub async fn glob_pages(&self, pattern: &Location) -> Result<GlobPages> {
        self.core.run(begin(&self.core, pattern)).await
    }

    /// The next page, which is never empty; `None` behind the last one.
    ///
    /// # Errors
    /// As [`Query::glob`]; then no further page is to be had, nor an end.
    pub async fn next_page(&self, pages: &mut GlobPages) -> Result<Option<Vec<Entry>>> {
        if let Some(first) = pages.first.take() {
            return Ok(Some(first));
        }
        let Some(rest) = &mut pages.rest else { return Ok(None) };
        let come = self.core.run(async { Ok(rest.pages.recv().await) }).await?;
        rest.turning.taken();
        let page = come.unwrap_or_else(|| Err(broken(&pages.at)))?;
        if page.is_none() {
            pages.rest = None;
        }
        Ok(page)
    }
}

async fn begin(query: &Arc<QueryCore>, at: &Location) -> Result<GlobPages> {
    let mut walk = Walk::begin(query, at).await;
    let turning = query.engine.listings.begin(&walk.below(), PAGES_AHEAD);
    let ends = Ends(turning.clone());
    let first = walk.next(query).await?;
    let followed = query.neighbours.listed(None, at, first.as_deref().unwrap_or_default());
    let rest = (!walk.is_over()).then(|| {
        let (sender, pages) = unbounded_channel();
        let task = turn(query.clone(), walk, followed, sender, ends);
        Rest { pages, turning, task: query.engine.handle.spawn(task).abort_handle() }
    });
    Ok(GlobPages { at: at.clone(), first, rest })
}

/// Fetches page after page, a few ahead of who takes them, or all of them before a change.
async fn turn(
    query: Arc<QueryCore>,
    mut walk: Walk,
    mut followed: Option<u64>,
    sender: UnboundedSender<Result<Option<Vec<Entry>>>>,
    ends: Ends,
) {
    loop {
        ends.0.may_turn().await;
        let page = query.run(walk.next(&query)).await;
        if let Ok(Some(entries)) = &page {
            followed = query.neighbours.listed(followed, walk.at(), entries);
        }
        let is_last = !matches!(page, Ok(Some(_)));
        if sender.send(page).is_err() || is_last {
            return;
        }
    }
}

/// Names that did not come are not names that are not there.
fn broken(at: &Location) -> Error {
    Error::new(Kind::Unavailable, "the listing failed before, or was ended")
        .with_operation("list")
        .with_object(at.url())
        .with_hint("Run the statement again; one that was prepared has to be prepared anew")
}

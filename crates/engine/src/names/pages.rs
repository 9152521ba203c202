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
    pages: UnboundedReceiver<Turned>,
    turning: Arc<Turning>,
    task: AbortHandle,
    /// Where the listing stands, after a page failed.
    failed: Option<Walking>,
}

/// A listing that stands before a page, and what its files are followed as.
#[derive(Debug)]
struct Walking {
    walk: Walk,
    followed: Option<u64>,
}

/// What became of a page.
#[derive(Debug)]
enum Turned {
    Page(Vec<Entry>),
    Over,
    Failed(Error, Box<Walking>),
}

impl Rest {
    fn begin(query: &Arc<QueryCore>, walking: Walking, turning: Arc<Turning>, ends: Ends) -> Self {
        let (sender, pages) = unbounded_channel();
        let task = query.engine.handle.spawn(turn(query.clone(), walking, sender, ends));
        Rest { pages, turning, task: task.abort_handle(), failed: None }
    }
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
    /// As [`Query::glob`]; asking again then asks for the same page again.
    pub async fn next_page(&self, pages: &mut GlobPages) -> Result<Option<Vec<Entry>>> {
        if let Some(first) = pages.first.take() {
            return Ok(Some(first));
        }
        let Some(rest) = &mut pages.rest else { return Ok(None) };
        if let Some(walking) = rest.failed.take() {
            let (turning, ends) = note(&self.core, &walking.walk);
            *rest = Rest::begin(&self.core, walking, turning, ends);
        }
        let come = self.core.run(async { Ok(rest.pages.recv().await) }).await?;
        rest.turning.taken();
        match come.ok_or_else(|| broken(&pages.at))? {
            Turned::Page(entries) => Ok(Some(entries)),
            Turned::Over => {
                pages.rest = None;
                Ok(None)
            }
            Turned::Failed(error, walking) => {
                rest.failed = Some(*walking);
                Err(error)
            }
        }
    }
}

/// Takes note of a listing, so that changes wait for its pages.
fn note(query: &QueryCore, walk: &Walk) -> (Arc<Turning>, Ends) {
    let turning = query.engine.listings.begin(&walk.below(), PAGES_AHEAD);
    let ends = Ends(turning.clone());
    (turning, ends)
}

async fn begin(query: &Arc<QueryCore>, at: &Location) -> Result<GlobPages> {
    let mut walk = Walk::begin(query, at).await;
    let (turning, ends) = note(query, &walk);
    let first = walk.next(query).await?;
    let followed = query.neighbours.listed(None, at, first.as_deref().unwrap_or_default());
    let rest =
        (!walk.is_over()).then(|| Rest::begin(query, Walking { walk, followed }, turning, ends));
    Ok(GlobPages { at: at.clone(), first, rest })
}

/// Fetches page after page, a few ahead of who takes them, or all of them before a change.
async fn turn(
    query: Arc<QueryCore>,
    mut walking: Walking,
    sender: UnboundedSender<Turned>,
    ends: Ends,
) {
    loop {
        ends.0.may_turn().await;
        let Walking { walk, followed } = &mut walking;
        let turned = match query.run(walk.next(&query)).await {
            Ok(Some(entries)) => {
                *followed = query.neighbours.listed(*followed, walk.at(), &entries);
                Turned::Page(entries)
            }
            Ok(None) => Turned::Over,
            Err(error) => {
                // Its reader may be gone.
                let _ = sender.send(Turned::Failed(error, Box::new(walking)));
                return;
            }
        };
        let is_last = matches!(turned, Turned::Over);
        if sender.send(turned).is_err() || is_last {
            return;
        }
    }
}

/// Names that did not come are not names that are not there.
fn broken(at: &Location) -> Error {
    Error::new(Kind::Unavailable, "the listing was ended before its last page")
        .with_operation("list")
        .with_object(at.url())
        .with_hint("Run the statement again; one that was prepared has to be prepared anew")
}

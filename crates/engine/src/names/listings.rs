//! Globs whose pages are still being fetched, and changes that wait for them: what a statement
//! writes or removes must not be in the later pages of what it reads, or missing there.

use crate::location::Location;
use crate::names::changing::Change;
use crate::query::QueryCore;
use penstock_base::Result;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{Semaphore, watch};

/// Those that are under way.
#[derive(Debug, Default)]
pub(crate) struct Listings(Mutex<Vec<Row>>);

#[derive(Debug)]
struct Row {
    /// What the names of all that it may find begin with.
    begins: String,
    turning: Weak<Turning>,
}

/// One glob whose pages are being turned.
#[derive(Debug)]
pub(crate) struct Turning {
    /// One for each page that may be fetched before its reader asks.
    permits: Semaphore,
    is_over: watch::Sender<bool>,
}

impl Listings {
    /// Takes note of one of the names below a prefix, of which so many pages may be fetched before
    /// they are asked for.
    pub fn begin(&self, below: &Location, pages: usize) -> Arc<Turning> {
        let (permits, is_over) = (Semaphore::new(pages), watch::Sender::new(false));
        let turning = Arc::new(Turning { permits, is_over });
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.retain(|row| row.turning.strong_count() > 0);
        rows.push(Row { begins: below.name(), turning: Arc::downgrade(&turning) });
        drop(rows);
        turning
    }

    /// To be called before these objects appear or go: fetches the pages that are left of globs
    /// that may find them, and waits until they are here, or failed. What it gives is to be held
    /// until the change was answered, or given up.
    ///
    /// # Errors
    /// As [`crate::Query::change`].
    pub async fn finish<'a>(
        &self,
        query: &'a QueryCore,
        changing: &'a [Location],
    ) -> Result<Change<'a>> {
        let running = self.running(changing);
        running.iter().for_each(|turning| turning.permits.close());
        for turning in running {
            let mut is_over = turning.is_over.subscribe();
            // The sender is in `turning`, so waiting cannot fail.
            let _ = is_over.wait_for(|is_over| *is_over).await;
        }
        query.change(changing).await
    }

    fn running(&self, changing: &[Location]) -> Vec<Arc<Turning>> {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.retain(|row| row.turning.strong_count() > 0);
        if rows.is_empty() {
            return Vec::new();
        }
        let names: Vec<String> = changing.iter().map(Location::name).collect();
        let may_find = |row: &&Row| names.iter().any(|name| name.starts_with(&row.begins));
        rows.iter().filter(may_find).filter_map(|row| row.turning.upgrade()).collect()
    }
}

impl Turning {
    /// Waits until the next page may be fetched.
    pub async fn may_turn(&self) {
        if let Ok(permit) = self.permits.acquire().await {
            permit.forget();
        }
    }

    /// A page was taken: another one may be fetched.
    pub fn taken(&self) {
        self.permits.add_permits(1);
    }
}

/// Says that a glob is over when this goes, however it ended.
pub(crate) struct Ends(pub Arc<Turning>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.is_over.send_replace(true);
    }
}

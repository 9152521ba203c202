//! Globs whose pages are still being fetched, and changes that wait for them: what a statement
//! writes or removes must not be in the later pages of what it reads, or missing there.

use crate::location::Location;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{Semaphore, watch};

/// Those that are under way, by the roots of their stores.
#[derive(Debug, Default)]
pub(crate) struct Listings(Mutex<Vec<(String, Weak<Turning>)>>);

/// One glob whose pages are being turned.
#[derive(Debug)]
pub(crate) struct Turning {
    /// One for each page that may be fetched before its reader asks.
    permits: Semaphore,
    is_over: watch::Sender<bool>,
}

impl Listings {
    /// Takes note of one, of which so many pages may be fetched before they are asked for.
    pub fn begin(&self, at: &Location, pages: usize) -> Arc<Turning> {
        let (permits, is_over) = (Semaphore::new(pages), watch::Sender::new(false));
        let turning = Arc::new(Turning { permits, is_over });
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.retain(|(_, turning)| turning.strong_count() > 0);
        rows.push((at.mount.store.root().to_string(), Arc::downgrade(&turning)));
        drop(rows);
        turning
    }

    /// To be called before an object of this store appears or goes: fetches the pages that are
    /// left, and waits until they are here, or failed.
    pub async fn finish(&self, at: &Location) {
        let running: Vec<Arc<Turning>> = {
            let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            rows.retain(|(_, turning)| turning.strong_count() > 0);
            if rows.is_empty() {
                return;
            }
            let root = at.mount.store.root();
            rows.iter().filter(|row| row.0 == root).filter_map(|row| row.1.upgrade()).collect()
        };
        running.iter().for_each(|turning| turning.permits.close());
        for turning in running {
            let mut is_over = turning.is_over.subscribe();
            // The sender is in `turning`, so waiting cannot fail.
            let _ = is_over.wait_for(|is_over| *is_over).await;
        }
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

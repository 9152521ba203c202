//! Objects that are being changed: nothing that is remembered of them lasts from before the request
//! to behind it, whatever becomes of it. Who changes them through a verb of a query need not think
//! of that; who asks a store directly (a gateway, whose bodies flow) says so with
//! [`Query::change`].
//!
//! A request that nobody heard the end of may be carried out later: its caller gave up, or its
//! connection broke. For a while nothing is remembered of its objects, so that what was told before
//! that counts for nobody behind it.
//!
//! A disk cache outlives its process: that what it has of an object is not to be taken for it is on
//! the disk before the request is sent.

use crate::cache::{DiskCache, NOTING_MAX, name_in_cache};
use crate::engine::Engine;
use crate::location::Location;
use crate::query::{Query, QueryCore};
use penstock_base::door::setting;
use penstock_base::{Error, Kind, Result};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a store may still carry out what nobody waits for. Most do within the second; S3 lets
/// the completion of a large upload take several minutes.
const UNHEARD: Duration = Duration::from_secs(300);

/// Objects that are being changed, until this is dropped.
#[derive(Debug)]
pub struct Change<'a> {
    engine: Arc<Engine>,
    objects: &'a [Location],
    is_heard: bool,
    /// The disk cache that may have something of them, and the names that they have there.
    cached: Option<(Arc<DiskCache>, Vec<String>)>,
}

impl Query {
    /// Says that these objects are about to be written or removed by a request that is no verb of
    /// this: what is known of them is forgotten now, and once more when the change ends or is
    /// dropped. Waits until the disk cache of these settings has noted that what it has of them is
    /// not to be taken for them; at once where it has nothing.
    ///
    /// # Errors
    /// `Exhausted` where the disk cache takes no such note, and what it has cannot be removed
    /// either, or it stands still: then nothing may be sent.
    pub async fn change<'a>(&self, objects: &'a [Location]) -> Result<Change<'a>> {
        self.core.change(objects).await
    }
}

impl QueryCore {
    /// As [`Query::change`], for the verbs.
    pub(crate) async fn change<'a>(&self, objects: &'a [Location]) -> Result<Change<'a>> {
        let now = Instant::now();
        objects.iter().for_each(|at| self.engine.forget(at, now));
        let engine = Arc::clone(&self.engine);
        let mut change = Change { engine, objects, is_heard: false, cached: None };
        // One that cannot be used is the error of statements that read with it.
        let is_cached = objects.iter().any(|at| at.mount.origin.is_some());
        if let Some(disk) = is_cached.then(|| self.disk().ok().flatten()).flatten() {
            let names: Vec<String> = objects.iter().filter_map(name_in_cache).collect();
            let is_news = disk.change_begins(&names);
            change.cached = Some((Arc::clone(&disk), names));
            if is_news && let Err(error) = disk.noted(&self.engine.handle, NOTING_MAX).await {
                // Nothing is sent.
                change.is_heard = true;
                return Err(unnoted(&self.settings.cache_dir, &error));
            }
        }
        Ok(change)
    }
}

fn unnoted(cache_dir: &str, error: &io::Error) -> Error {
    let message = format!(
        "the disk cache cannot note that the object changes, nor be emptied, so a later process \
         could take old bytes for it, and nothing was sent: {error}"
    );
    Error::new(Kind::Exhausted, message)
        .with_operation("note a change in the disk cache")
        .with_object(cache_dir)
        .with_hint(format!(
            "Free or repair its disk, or remove that cache and set {} to ''",
            setting("cache_dir")
        ))
}

impl Engine {
    /// Forgets an object, and what answers tell of it that were asked for before this time.
    pub(crate) fn forget(&self, at: &Location, changed: Instant) {
        self.metadata.forget(at, changed);
        self.together.forget(at);
        self.kept_listings.forget(at);
        self.held.forget(&at.id());
    }
}

impl Change<'_> {
    /// It ended so. Where the error leaves open what became of it, it counts as unheard.
    pub fn ended<T>(mut self, result: &Result<T>) {
        self.is_heard = result.as_ref().err().is_none_or(|error| !leaves_open(error));
    }

    /// It ended, with these errors for some of the objects.
    pub fn ended_but<'e>(mut self, failures: impl IntoIterator<Item = &'e Error>) {
        self.is_heard = !failures.into_iter().any(leaves_open);
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let changed = if self.is_heard { now } else { now + UNHEARD };
        self.objects.iter().for_each(|at| self.engine.forget(at, changed));
        if let Some((disk, names)) = &self.cached {
            disk.change_ends(names);
        }
    }
}

/// Whether whoever sent a request that failed so cannot know what becomes of it.
fn leaves_open(error: &Error) -> bool {
    may_have_acted(error) || matches!(error.kind(), Kind::Cancelled | Kind::Internal)
}

/// Whether the store may have carried out a request that failed so. One that throttles has not, but
/// a 503 without the store's code for it may come from a proxy that did not wait for the answer.
pub(crate) fn may_have_acted(error: &Error) -> bool {
    let is_from_between = || error.http_status() == Some(503) && error.service_code().is_none();
    match error.kind() {
        Kind::Unavailable | Kind::Corrupt => true,
        Kind::Throttled => is_from_between(),
        _ => false,
    }
}

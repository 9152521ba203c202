//! One request for all statements that open the same object at the same time.
//!
//! Decides whether the request of another statement that is under way is as good as one of this
//! statement's own: it has to bring as many bytes, and to have been sent when `cache_validation`
//! lets its answer count. Who finds no such request sends one, and tells the others what came. Who
//! is stopped meanwhile leaves that to one of the others; an error is told to nobody, who waited
//! for it asks alone, as where the server tells neither tag nor time of the object.
//!
//! How old what is remembered may be is decided in `metadata`; who of one statement opens, by its
//! own cells.

use crate::location::Location;
use crate::metadata::Validity;
use crate::query::QueryCore;
use crate::read::opened::{Bytes as Place, Opened};
use crate::read::version::Version;
use bytes::Bytes;
use penstock_base::settings::Validation;
use penstock_base::{ByteRange, Metric, Result};
use penstock_store::{GetRange, ObjectMeta};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::time::Instant;

/// What the request that opened an object brought.
#[derive(Clone, Debug)]
pub(super) struct Brought {
    pub meta: ObjectMeta,
    /// Where its bytes begin, and they; a HEAD has none.
    pub bytes: Option<(u64, Bytes)>,
}

impl Brought {
    /// Keeps it for the readers of a query.
    pub fn keep(self, query: &QueryCore, at: &Location) -> Opened {
        let version = Version::of(&self.meta);
        let opened = Opened::new(self.meta);
        let Some((start, bytes)) = self.bytes else { return opened };
        let held = match &opened.bytes {
            Place::Query(held) => Arc::clone(held),
            _ => query.engine.held.get_or_default(at, &version),
        };
        let range = ByteRange { start, end: start + bytes.len() as u64 };
        // Of a version that is told it is there, unless it was forgotten meanwhile.
        if !held.covers(&range) {
            held.keep(start, bytes, &query.engine.budget);
        }
        query.engine.held.put(at, &version, &held);
        opened
    }
}

/// What became of a request, for those who wait for it.
#[derive(Clone, Debug)]
enum Told {
    Brought(Brought),
    /// The server serves only whole objects, or tells no size of others.
    Whole,
    Failed,
}

/// A request under way.
#[derive(Debug)]
struct Request {
    mount: u64,
    wanted: Wanted,
    /// Not earlier than this.
    sent: Instant,
    told: watch::Receiver<Option<Told>>,
}

/// The requests under way that open objects, by their names. They are as many as statements (and
/// what opens files ahead of them) send at once.
#[derive(Debug, Default)]
pub(crate) struct Together(Mutex<HashMap<String, Vec<Arc<Request>>>>);

/// What opening an object asks for: these bytes of it, or `None`, where they are here and a HEAD is
/// enough.
pub(super) type Wanted = Option<GetRange>;

/// Whether one request brings all that another one would, whatever the object's size is.
fn has_all_of(request: Wanted, wanted: Wanted) -> bool {
    match (request, wanted) {
        (Some(GetRange::Suffix(range)), Some(GetRange::Suffix(wanted))) => range >= wanted,
        (Some(GetRange::Bounded(range)), Some(GetRange::Bounded(wanted))) => {
            range.contains(&wanted)
        }
        (request, wanted) => request == wanted,
    }
}

/// When requests of other queries have to have been sent for their answers to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// They never do.
    Never,
    After(Instant),
    AnyTime,
}

impl Sent {
    /// By the policy of a query that opens an object.
    fn of(query: &QueryCore, is_immutable: bool) -> Self {
        match query.validity(Validation::Time) {
            _ if is_immutable => Sent::AnyTime,
            // What was sent before the object is opened does not tell what it is then.
            _ if query.asks_always() => Sent::Never,
            Validity::Asked => Sent::After(query.began),
            // It would count if it had come already.
            Validity::For(_) | Validity::Forever => Sent::AnyTime,
        }
    }

    fn allows(self, sent: Instant) -> bool {
        match self {
            Sent::Never => false,
            Sent::After(began) => sent > began,
            Sent::AnyTime => true,
        }
    }
}

enum Turn<'a> {
    Lead(Leader<'a>),
    Join(watch::Receiver<Option<Told>>),
}

impl Together {
    /// Those who open an object from now on wait for none of the requests that were sent before.
    pub fn forget(&self, at: &Location) {
        self.lock().remove(&at.name());
    }

    /// The same for every object.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn enter(&self, at: &Location, wanted: Wanted, allowed: Sent) -> Turn<'_> {
        let name = at.name();
        let mut requests = self.lock();
        let known = requests.entry(name.clone()).or_default();
        let is_good = |request: &&Arc<Request>| {
            request.mount == at.mount.id
                && has_all_of(request.wanted, wanted)
                && allowed.allows(request.sent)
        };
        if let Some(request) = known.iter().find(is_good) {
            return Turn::Join(request.told.clone());
        }
        let (tell, told) = watch::channel(None);
        let request = Request { mount: at.mount.id, wanted, sent: Instant::now(), told };
        let request = Arc::new(request);
        known.push(Arc::clone(&request));
        Turn::Lead(Leader { together: self, name, request, tell })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<Arc<Request>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who sends a request that others may wait for, until it is dropped.
struct Leader<'a> {
    together: &'a Together,
    name: String,
    request: Arc<Request>,
    tell: watch::Sender<Option<Told>>,
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let mut requests = self.together.lock();
        if let Some(known) = requests.get_mut(&self.name) {
            known.retain(|request| !Arc::ptr_eq(request, &self.request));
            if known.is_empty() {
                requests.remove(&self.name);
            }
        }
    }
}

/// Opens an object by the request of another query where there is one that counts, else by `ask`;
/// `None` where the server serves only whole objects. `ask` is given up with this.
pub(super) async fn opened<F>(
    query: &Arc<QueryCore>,
    at: &Location,
    (wanted, is_immutable): (Wanted, bool),
    ask: impl FnOnce() -> F,
) -> Result<Option<Opened>>
where
    F: Future<Output = Result<Option<Brought>>>,
{
    let allowed = Sent::of(query, is_immutable);
    let keep = |brought: Option<Brought>| brought.map(|brought| brought.keep(query, at));
    loop {
        let mut told = match query.engine.together.enter(at, wanted, allowed) {
            Turn::Join(told) => told,
            Turn::Lead(leader) => {
                let answer = ask().await;
                let told = match &answer {
                    Ok(Some(brought)) => Told::Brought(brought.clone()),
                    Ok(None) => Told::Whole,
                    Err(_) => Told::Failed,
                };
                let opened = answer.map(keep);
                // When it is kept, so that who joins finds it.
                leader.tell.send_replace(Some(told));
                return opened;
            }
        };
        let told = told.wait_for(Option::is_some).await.ok().and_then(|told| told.clone());
        match told {
            // Nothing would tell it from what this query fetches itself of another version.
            Some(Told::Brought(brought)) if !Version::of(&brought.meta).is_told() => {
                return ask().await.map(keep);
            }
            Some(Told::Brought(brought)) => {
                query.scope.count(Metric::FlightsShared, 1);
                return Ok(keep(Some(brought)));
            }
            Some(Told::Whole) => return Ok(None),
            Some(Told::Failed) => return ask().await.map(keep),
            // Who asked was stopped: now somebody else does.
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn what_was_sent_too_early_does_not_count() {
        let began = Instant::now();
        let later = began + Duration::from_millis(1);
        assert!(!Sent::Never.allows(later));
        assert!(Sent::AnyTime.allows(began));
        assert!(Sent::After(began).allows(later));
        assert!(!Sent::After(began).allows(began), "within one tick of the clock");
        assert!(!Sent::After(later).allows(began));
    }

    fn any_range() -> impl Strategy<Value = GetRange> {
        let bounded = |(start, len)| GetRange::Bounded(ByteRange { start, end: start + len });
        prop_oneof![
            (0u64..20).prop_map(GetRange::Suffix),
            (0u64..20, 1u64..20).prop_map(bounded),
            (0u64..20).prop_map(GetRange::From),
            Just(GetRange::All),
        ]
    }

    proptest! {
        #[test]
        fn a_range_has_all_of_another_in_an_object_of_any_size(
            range in any_range(), wanted in any_range(), size in 0u64..50,
        ) {
            prop_assert!(has_all_of(Some(wanted), Some(wanted)) && has_all_of(None, None));
            prop_assert!(!has_all_of(None, Some(wanted)), "no bytes come with a HEAD");
            if has_all_of(Some(range), Some(wanted)) {
                let (range, wanted) = (range.resolve(size), wanted.resolve(size));
                prop_assert!(wanted.is_empty() || range.contains(&wanted), "{range:?} {wanted:?}");
            }
        }
    }
}

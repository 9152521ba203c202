//! Remembers size and ETag of objects, and for how long they count as known.
//!
//! An entry is confirmed by every answer of the store that carries its ETag; for how long that
//! makes it fresh is `cache_validation`'s to say ([`Validity`]). What was asked for after a query
//! began is fresh for that query, unless each open is to ask. Writing or removing an object
//! through this engine replaces or drops its entry, whatever credentials were used. Absence is
//! never remembered. An answer to a request that began before that tells nothing new.

use crate::generations::Generations;
use crate::location::Location;
use crate::query::QueryCore;
use penstock_base::settings::Validation;
use penstock_store::ObjectMeta;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug)]
struct Entry {
    mount: u64,
    meta: ObjectMeta,
    confirmed: Instant,
    /// When the latest request began that told it.
    asked: Instant,
    immutable: bool,
}

impl Entry {
    fn is_fresh(&self, validity: Validity, since: Option<Instant>) -> bool {
        // Within one tick of the clock nobody knows what came first.
        let is_of_now = since.is_some_and(|since| self.asked > since);
        self.immutable || is_of_now || validity.holds(self.confirmed.elapsed())
    }
}

/// What is known under one name.
#[derive(Debug, Default)]
struct Known {
    /// When it was last written, removed or seen to have changed; later than now where a write may
    /// still be carried out.
    changed: Option<Instant>,
    /// One for each mount of the same store.
    entries: Vec<Entry>,
}

/// What is remembered of an object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Remembered {
    /// Nothing.
    Nothing,
    /// This, but it has to be confirmed.
    Stale(ObjectMeta),
    /// This, without asking.
    Fresh(ObjectMeta),
}

/// For how long what the store confirmed counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validity {
    /// It is asked again.
    Asked,
    /// So long; never zero.
    For(Duration),
    /// It never changes.
    Forever,
}

impl Validity {
    pub fn holds(self, age: Duration) -> bool {
        match self {
            Validity::Asked => false,
            Validity::For(time) => age <= time,
            Validity::Forever => true,
        }
    }
}

impl QueryCore {
    /// What was asked for later than this counts in this query; nothing where each open asks.
    pub(crate) fn counts_since(&self, of_the_door: Validation) -> Option<Instant> {
        let policy = self.settings.cache_validation.or(of_the_door);
        (!matches!(policy, Validation::Auto | Validation::Always)).then_some(self.began)
    }

    /// For how long what is known of objects counts in this query.
    pub(crate) fn validity(&self, of_the_door: Validation) -> Validity {
        match self.settings.cache_validation.or(of_the_door) {
            Validation::Auto | Validation::Always | Validation::Query => Validity::Asked,
            Validation::Never => Validity::Forever,
            // A time of 0 asks in every query, even within one tick of the clock.
            Validation::Time => match self.settings.metadata_validity_ms {
                0 => Validity::Asked,
                time_ms => Validity::For(Duration::from_millis(time_ms)),
            },
        }
    }
}

impl Known {
    /// Takes no more room than that: a vector would begin with four places, and most names have one
    /// mount.
    fn add(&mut self, entry: Entry) {
        self.entries.reserve_exact(1);
        self.entries.push(entry);
    }

    fn weight(&self) -> u64 {
        self.entries.len().max(1) as u64
    }
}

#[derive(Debug)]
pub(crate) struct MetadataCache {
    /// By name.
    entries: Mutex<Generations<String, Known>>,
}

impl MetadataCache {
    pub fn new(entries_max: u64) -> Self {
        MetadataCache { entries: Mutex::new(Generations::new(entries_max)) }
    }

    /// Remembers so many from now on.
    pub fn set_entries_max(&self, entries_max: u64) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).set_capacity(entries_max);
    }

    /// What is known, and whether that is fresh: because it is valid still, or because it was asked
    /// for later than `since`.
    pub fn get(&self, at: &Location, validity: Validity, since: Option<Instant>) -> Remembered {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let found = entries
            .get(&at.name())
            .and_then(|known| known.entries.iter().find(|entry| entry.mount == at.mount.id));
        match found {
            None => Remembered::Nothing,
            Some(entry) if entry.is_fresh(validity, since) => Remembered::Fresh(entry.meta.clone()),
            Some(entry) => Remembered::Stale(entry.meta.clone()),
        }
    }

    /// Whether the object was seen to be another one than this, which was told then.
    pub fn has_changed_since(&self, at: &Location, told: Instant, meta: &ObjectMeta) -> bool {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(&at.name()).is_some_and(|known| {
            let is_other = |entry: &Entry| {
                entry.mount == at.mount.id && entry.confirmed > told && entry.meta.etag != meta.etag
            };
            known.changed.is_some_and(|changed| changed > told)
                || known.entries.iter().any(is_other)
        })
    }

    /// The store just told this, to a request that began at `asked`. What is immutable stays so as
    /// long as its tag is the same. Whether it counts: not where the object changed since.
    pub fn confirm(
        &self,
        at: &Location,
        meta: &ObjectMeta,
        immutable: bool,
        asked: Instant,
    ) -> bool {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let name = at.name();
        let mut known = entries.remove(&name).unwrap_or_default();
        let is_late = known.changed.is_some_and(|changed| asked < changed);
        let confirmed = Instant::now();
        let fresh = Entry { mount: at.mount.id, meta: meta.clone(), confirmed, asked, immutable };
        let counts = match known.entries.iter_mut().find(|entry| entry.mount == at.mount.id) {
            Some(entry) => {
                let is_same = entry.meta.etag == meta.etag;
                let counts = !is_late && (is_same || asked >= entry.confirmed);
                if counts {
                    let immutable = immutable || (entry.immutable && is_same);
                    let known_size = entry.meta.size_bytes;
                    let asked = asked.max(entry.asked);
                    *entry = Entry { immutable, asked, ..fresh };
                    // An answer may confirm the version, and tell no size.
                    if is_same && entry.meta.etag.is_some() && entry.meta.size_bytes.is_none() {
                        entry.meta.size_bytes = known_size;
                    }
                }
                counts
            }
            None if is_late => false,
            None => {
                known.add(fresh);
                true
            }
        };
        let weight = known.weight();
        entries.insert(name, known, weight);
        counts
    }

    /// The object changed or went away: nothing is known of it, through any mount, and what answers
    /// tell that were asked for before `changed` counts no more.
    pub fn forget(&self, at: &Location, changed: Instant) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let name = at.name();
        let before = entries.remove(&name).and_then(|known| known.changed);
        let known = Known { changed: before.max(Some(changed)), entries: Vec::new() };
        let weight = known.weight();
        entries.insert(name, known, weight);
    }

    /// Whether the object was written, removed or seen to have changed.
    pub fn has_changed(&self, at: &Location) -> bool {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(&at.name()).is_some_and(|known| known.changed.is_some())
    }

    /// Whether the object was seen to change, and this tag is not known to be its since.
    pub fn has_outgrown(&self, at: &Location, etag: &str) -> bool {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let has_tag = |entry: &Entry| entry.meta.etag.as_ref().is_some_and(|known| known.0 == etag);
        entries
            .get(&at.name())
            .is_some_and(|known| known.changed.is_some() && !known.entries.iter().any(has_tag))
    }

    /// Shows every entry's name and what is known of it.
    pub fn each(&self, mut show: impl FnMut(&str, &ObjectMeta)) {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, known) in entries.iter() {
            known.entries.iter().for_each(|entry| show(name, &entry.meta));
        }
    }

    /// Forgets everything but which objects have changed: what answers tell that were asked for
    /// before that counts no more now than without it.
    pub fn clear(&self) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let changed: Vec<(String, Option<Instant>)> = entries
            .iter()
            .filter(|(_, known)| known.changed.is_some())
            .map(|(name, known)| (name.clone(), known.changed))
            .collect();
        entries.clear();
        for (name, changed) in changed {
            let known = Known { changed, entries: Vec::new() };
            let weight = known.weight();
            entries.insert(name, known, weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_an_object_takes_the_room_of_its_mounts() {
        let mut known = Known::default();
        for mount in 1..4 {
            let (meta, now) = (ObjectMeta::default(), Instant::now());
            known.add(Entry { mount, meta, confirmed: now, asked: now, immutable: false });
            assert_eq!((known.entries.capacity() as u64, known.weight()), (mount, mount));
        }
    }
}

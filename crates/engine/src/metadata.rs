//! Remembers size and ETag of objects, and for how long they count as known.
//!
//! An entry is confirmed by every answer of the store that carries its ETag; for how long that
//! makes it fresh is `cache_validation`'s to say ([`Validity`]). Writing or removing an object
//! through this engine replaces or drops its entry, whatever credentials were used. Absence is
//! never remembered.

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
    immutable: bool,
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
    fn holds(self, age: Duration) -> bool {
        match self {
            Validity::Asked => false,
            Validity::For(time) => age <= time,
            Validity::Forever => true,
        }
    }
}

impl QueryCore {
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

#[derive(Debug)]
pub(crate) struct MetadataCache {
    /// By root and key; one entry for each mount of the same root.
    entries: Mutex<Generations<String, Vec<Entry>>>,
}

impl MetadataCache {
    pub fn new(entries_max: u64) -> Self {
        MetadataCache { entries: Mutex::new(Generations::new(entries_max)) }
    }

    /// Remembers so many from now on.
    pub fn set_entries_max(&self, entries_max: u64) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).set_capacity(entries_max);
    }

    /// What is known, and whether that is fresh.
    pub fn get(&self, at: &Location, validity: Validity) -> Remembered {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let found = entries
            .get(&at.name())
            .and_then(|all| all.iter().find(|entry| entry.mount == at.mount.id));
        match found {
            None => Remembered::Nothing,
            Some(entry) if entry.immutable || validity.holds(entry.confirmed.elapsed()) => {
                Remembered::Fresh(entry.meta.clone())
            }
            Some(entry) => Remembered::Stale(entry.meta.clone()),
        }
    }

    /// The store just told this. What is immutable stays so as long as its tag is the same.
    pub fn confirm(&self, at: &Location, meta: &ObjectMeta, immutable: bool) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let name = at.name();
        let mut all = entries.remove(&name).unwrap_or_default();
        let fresh =
            Entry { mount: at.mount.id, meta: meta.clone(), confirmed: Instant::now(), immutable };
        match all.iter_mut().find(|entry| entry.mount == at.mount.id) {
            Some(entry) => {
                let immutable = immutable || (entry.immutable && entry.meta.etag == meta.etag);
                *entry = Entry { immutable, ..fresh };
            }
            None => all.push(fresh),
        }
        let weight = all.len() as u64;
        entries.insert(name, all, weight);
    }

    /// The object changed or went away: nothing is known of it, through any mount.
    pub fn forget(&self, at: &Location) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).remove(&at.name());
    }

    /// Shows every entry's name and what is known of it.
    pub fn each(&self, mut show: impl FnMut(&str, &ObjectMeta)) {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, all) in entries.iter() {
            all.iter().for_each(|entry| show(name, &entry.meta));
        }
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

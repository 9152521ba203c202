//! Which listings are known: those that are whole and kept for later, and those under way, which
//! others who ask for the same may share. Holds them; that pages are fetched is `turned`'s.
//!
//! A listing counts as the metadata of its objects does (`cache_validation`), from the moment at
//! which its first page was asked for. It is dropped, and kept no more if it is under way, before
//! and after this process changes an object that it may tell of. Only whole ones that tell of
//! something are kept, within the bytes that remembered metadata may have.

use crate::generations::Generations;
use crate::location::Location;
use crate::names::turned::Turned;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::time::Instant;

/// What a remembered object may take, on average: so many bytes of listings are kept for each of
/// `metadata_cache_entries`.
const ENTRY_BYTES: u64 = 256;

/// Names one listing, as one set of credentials sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ListingKey {
    /// What the names of all that it tells of begin with.
    pub below: String,
    pub mount: u64,
    /// Whether names further down are folded.
    pub delimiter: Option<String>,
    /// Of names that were found level by level: those that match this.
    pub pattern: Option<String>,
}

impl ListingKey {
    pub fn new(at: &Location, prefix: &str, delimiter: Option<&str>) -> Self {
        ListingKey {
            below: at.sibling(prefix).name(),
            mount: at.mount.id,
            delimiter: delimiter.map(str::to_string),
            pattern: None,
        }
    }
}

/// The listings of an engine.
#[derive(Debug)]
pub(crate) struct KeptListings {
    state: Mutex<State>,
    /// Whether any is known: most changes meet none.
    is_any: AtomicBool,
}

#[derive(Debug)]
struct State {
    /// Whole ones, by weight in bytes.
    kept: Generations<ListingKey, Arc<Turned>>,
    /// Those and the ones under way, by what their names begin with.
    known: BTreeMap<String, Vec<Weak<Turned>>>,
    /// Names in `known` when those that are gone were last taken out.
    swept: usize,
    listing_bytes_max: u64,
}

/// Bytes of listings that are kept beside so many objects.
fn capacity(entries_max: u64) -> u64 {
    entries_max.saturating_mul(ENTRY_BYTES)
}

impl KeptListings {
    pub fn new(entries_max: u64) -> Self {
        let capacity = capacity(entries_max);
        let (kept, known) = (Generations::new(capacity), BTreeMap::new());
        let state = State { kept, known, swept: 0, listing_bytes_max: capacity / 2 };
        KeptListings { state: Mutex::new(state), is_any: AtomicBool::new(false) }
    }

    /// Keeps what is worth so many objects from now on.
    pub fn set_entries_max(&self, entries_max: u64) {
        let mut state = self.lock();
        state.kept.set_capacity(capacity(entries_max));
        state.listing_bytes_max = capacity(entries_max) / 2;
    }

    /// Most bytes of one listing that may be kept.
    pub fn listing_bytes_max(&self) -> u64 {
        self.lock().listing_bytes_max
    }

    /// A whole listing of this name that was begun at a time which counts.
    pub fn find(&self, key: &ListingKey, counts: impl Fn(Instant) -> bool) -> Option<Arc<Turned>> {
        let mut state = self.lock();
        state.kept.get(key).filter(|listing| counts(listing.begun)).cloned()
    }

    /// As [`KeptListings::find`], or one under way; where there is none, this new one is known from
    /// now on.
    pub fn find_or(&self, new: Turned, counts: impl Fn(Instant) -> bool) -> Arc<Turned> {
        let mut state = self.lock();
        let State { kept, known, .. } = &mut *state;
        let of_name = known.get(&new.key.below).into_iter().flatten();
        let mut running = of_name.rev().filter_map(Weak::upgrade);
        let found = running.find(|listing| listing.key == new.key && counts(listing.begun));
        if let Some(found) = found {
            // It counts as used.
            kept.get(&new.key);
            return found;
        }
        let new = Arc::new(new);
        state.sweep();
        let of_name = state.known.entry(new.key.below.clone()).or_default();
        of_name.retain(|listing| listing.strong_count() > 0);
        of_name.push(Arc::downgrade(&new));
        self.is_any.store(true, Ordering::Release);
        new
    }

    /// Keeps a listing that is whole, unless something that it may tell of changed meanwhile.
    pub fn keep(&self, listing: &Arc<Turned>, weight_bytes: u64) {
        let mut state = self.lock();
        let is_known = state.known.get(&listing.key.below).is_some_and(|of_name| {
            of_name.iter().any(|known| known.as_ptr() == Arc::as_ptr(listing))
        });
        if is_known {
            state.kept.insert(listing.key.clone(), Arc::clone(listing), weight_bytes);
        }
    }

    /// Nobody else is to share this one.
    pub fn leave(&self, listing: &Arc<Turned>) {
        let mut state = self.lock();
        let is_other = |known: &Weak<Turned>| known.as_ptr() != Arc::as_ptr(listing);
        if let Some(of_name) = state.known.get_mut(&listing.key.below) {
            of_name.retain(is_other);
        }
    }

    /// An object changes: no listing that may tell of it counts any more.
    pub fn forget(&self, at: &Location) {
        if !self.is_any.load(Ordering::Acquire) {
            return;
        }
        let name = at.name();
        let mut state = self.lock();
        for below in prefixes_among(&state.known, &name) {
            state.drop_all(&below);
        }
        self.is_any.store(!state.known.is_empty(), Ordering::Release);
    }

    /// Forgets everything; what is under way is not kept.
    pub fn clear(&self) {
        let mut state = self.lock();
        state.kept.clear();
        state.known.clear();
        self.is_any.store(false, Ordering::Release);
    }

    /// Shows every listing that is kept.
    pub fn each(&self, mut show: impl FnMut(&Turned)) {
        let state = self.lock();
        state.kept.iter().for_each(|(_, listing)| show(listing));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn drop_all(&mut self, below: &str) {
        for listing in self.known.remove(below).unwrap_or_default() {
            if let Some(listing) = listing.upgrade() {
                self.kept.remove(&listing.key);
            }
        }
    }

    /// Takes out what is gone, once there may be as much of it as of what is not.
    fn sweep(&mut self) {
        if self.known.len() < 2 * self.swept + 16 {
            return;
        }
        self.known.retain(|_, of_name| {
            of_name.retain(|listing| listing.strong_count() > 0);
            !of_name.is_empty()
        });
        self.swept = self.known.len();
    }
}

/// The keys of a map that a name begins with, the longest first. Each step looks behind the last
/// name that may be one, so a large map is not gone through.
fn prefixes_among<V>(map: &BTreeMap<String, V>, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut bound = name;
    let mut is_below = false;
    loop {
        let upto = if is_below { Bound::Excluded(bound) } else { Bound::Included(bound) };
        let upto = map.range::<str, _>((Bound::Unbounded, upto)).next_back();
        let Some((key, _)) = upto else { return found };
        let shared = common(key, name);
        (bound, is_below) = (&name[..shared], shared == key.len());
        if is_below {
            found.push(key.clone());
        }
    }
}

/// Length of what both begin with, in whole characters.
fn common(a: &str, b: &str) -> usize {
    let mut len = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    while !b.is_char_boundary(len) {
        len -= 1;
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_prefixes_are_found(
            keys in prop::collection::btree_set("[ab/é]{0,5}", 0..40), name in "[ab/é]{0,8}",
        ) {
            let map: BTreeMap<String, ()> = keys.iter().map(|key| (key.clone(), ())).collect();
            let mut wanted: Vec<_> =
                keys.into_iter().filter(|key| name.starts_with(key.as_str())).collect();
            wanted.reverse();
            prop_assert_eq!(prefixes_among(&map, &name), wanted);
        }
    }
}

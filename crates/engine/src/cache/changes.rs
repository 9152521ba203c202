//! Objects that change while the disk cache has something of them: which of its versions are not to
//! be taken for them any more, and that this is on the disk before it matters.

use crate::cache::disk::{DiskCache, Shared, State};
use crate::cache::index::ObjectVersion;
use crate::cache::outdated::Noted;
use std::sync::PoisonError;

impl DiskCache {
    /// These objects are about to change: what is cached of them, and what comes until as many
    /// changes have ended, is not to be taken for them. Whether that still has to be noted.
    pub fn change_begins(&self, names: &[String]) -> bool {
        let mut state = self.shared.lock();
        for name in names {
            *state.changing.entry(name.clone()).or_default() += 1;
            state.outdate(name);
        }
        state.noted < state.outdated
    }

    /// A change of these objects has ended.
    pub fn change_ends(&self, names: &[String]) {
        let mut state = self.shared.lock();
        for name in names {
            let left = state.changing.get_mut(name).map_or(0, |count| {
                *count -= 1;
                *count
            });
            if left == 0 {
                state.changing.remove(name);
            }
        }
    }

    /// What is cached of an object is not to be taken for it; noted with the next block.
    pub fn outdate(&self, name: &str) {
        self.shared.lock().outdate(name);
    }

    /// As [`DiskCache::outdate`], of one version that is about to be offered.
    pub fn outdate_version(&self, version: &ObjectVersion) {
        self.shared.lock().outdate_version(version);
    }

    /// Returns when the medium has noted which versions are outdated. Blocks on the disk.
    pub fn note_outdated(&self) {
        self.shared.note_outdated();
    }
}

impl Shared {
    /// Has the medium note which versions are outdated, if that has changed. Where it does not,
    /// everything is forgotten: what is on the disk would be taken for what it is not.
    pub fn note_outdated(&self) {
        let noting = self.noting.lock().unwrap_or_else(PoisonError::into_inner);
        let (outdated, noted) = {
            let state = self.lock();
            if state.noted == state.outdated {
                return;
            }
            (state.outdated, Noted::of(state.index.outdated()))
        };
        let is_noted = self.medium.note(&noted).is_ok();
        if !is_noted {
            self.clear();
            self.lock().met_refused_block();
        }
        self.lock().noted = outdated;
        drop(noting);
    }
}

impl State {
    /// As [`DiskCache::outdate`].
    pub fn outdate(&mut self, name: &str) {
        self.outdated += u64::from(self.index.outdate(name));
        if let Some(changed) = &mut self.moving {
            changed.insert(name.to_string());
        }
    }

    /// As [`DiskCache::outdate_version`].
    pub fn outdate_version(&mut self, version: &ObjectVersion) {
        self.outdated += u64::from(self.index.outdate_version(version));
    }
}

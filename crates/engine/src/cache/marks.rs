//! Marks of cached versions that are not to be taken for their objects without asking. Pure.

use crate::cache::index::ObjectVersion;
use crate::cache::outdated;
use std::collections::HashMap;

/// That a version is not to be taken for its object without asking.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// As it is noted.
    pub hash: u64,
    /// Nothing is known of it but that the note said so of all.
    pub is_doubt: bool,
}

/// By version.
#[derive(Debug, Default)]
pub(super) struct Marks(HashMap<ObjectVersion, Mark>);

impl Marks {
    pub fn of(&self, version: &ObjectVersion) -> Option<Mark> {
        self.0.get(version).copied()
    }

    /// Marks a version as that of an object which changed; whether it had no mark.
    pub fn outdate(&mut self, version: &ObjectVersion) -> bool {
        if let Some(mark) = self.0.get_mut(version) {
            mark.is_doubt = false;
            return false;
        }
        self.insert(version, false)
    }

    /// Marks a version of which nothing is known; whether it had no mark.
    pub fn doubt(&mut self, version: &ObjectVersion) -> bool {
        !self.0.contains_key(version) && self.insert(version, true)
    }

    fn insert(&mut self, version: &ObjectVersion, is_doubt: bool) -> bool {
        let mark = Mark { hash: outdated::hash(version), is_doubt };
        self.0.insert(version.clone(), mark).is_none()
    }

    /// Takes a mark off; whether there was one.
    pub fn remove(&mut self, version: &ObjectVersion) -> bool {
        self.0.remove(version).is_some()
    }

    /// Hashes of all that are marked.
    pub fn hashes(&self) -> impl Iterator<Item = u64> {
        self.0.values().map(|mark| mark.hash)
    }
}

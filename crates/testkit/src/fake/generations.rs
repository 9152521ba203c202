//! Generations of a bucket's objects, as Google counts them, and Azure's versions: every write has
//! one, and those that another took the place of stay where versions are kept.
//!
//! They are in memory only: a restarted fake gives its objects new ones and has forgotten the rest.

use super::vault::Object;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

/// The first of a bucket; the real ones are times in microseconds.
const FIRST: u64 = 1_791_390_110_617_942;
/// From one to the next.
const STEP: u64 = 557_625;

/// What is not the live object of its key any more.
#[derive(Clone, Debug)]
pub struct Gone {
    /// What it was.
    pub object: Arc<Object>,
    /// Since when.
    pub since: SystemTime,
}

/// The generations of one bucket.
#[derive(Clone, Debug, Default)]
pub struct Generations {
    /// `Enabled`, `Suspended`, or nothing where nobody ever asked.
    pub status: String,
    live: BTreeMap<String, u64>,
    gone: BTreeMap<(String, u64), Gone>,
    count: u64,
}

impl Generations {
    /// Counts a write over what was there; the generation of what is there now.
    pub fn written(&mut self, key: &str, before: Option<Arc<Object>>, now: SystemTime) -> u64 {
        self.removed(key, before, now);
        let generation = FIRST + self.count * STEP;
        self.count += 1;
        self.live.insert(key.to_string(), generation);
        generation
    }

    /// Counts the end of a live object, which stays where versions are kept.
    pub fn removed(&mut self, key: &str, object: Option<Arc<Object>>, now: SystemTime) {
        let generation = self.live.remove(key);
        if let (Some(generation), Some(object), "Enabled") =
            (generation, object, self.status.as_str())
        {
            self.gone.insert((key.to_string(), generation), Gone { object, since: now });
        }
    }

    /// Forgets the live generation of a key, for good.
    pub fn forget_live(&mut self, key: &str) {
        self.live.remove(key);
    }

    /// Forgets one that is not live; whether there was one.
    pub fn forget(&mut self, key: &str, generation: u64) -> bool {
        self.gone.remove(&(key.to_string(), generation)).is_some()
    }

    /// The generation of the live object.
    pub fn live(&self, key: &str) -> Option<u64> {
        self.live.get(key).copied()
    }

    /// One that is not live.
    pub fn gone(&self, key: &str, generation: u64) -> Option<&Gone> {
        self.gone.get(&(key.to_string(), generation))
    }

    /// Changes what is told of one that is not live.
    pub fn amend(&mut self, key: &str, generation: u64, object: Object) {
        if let Some(gone) = self.gone.get_mut(&(key.to_string(), generation)) {
            gone.object = Arc::new(object);
        }
    }

    /// All that are not live, by key and oldest first.
    pub fn all_gone(&self) -> impl Iterator<Item = (&str, u64, &Gone)> {
        self.gone.iter().map(|((key, generation), gone)| (key.as_str(), *generation, gone))
    }
}

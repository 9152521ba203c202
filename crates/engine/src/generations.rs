//! A bounded map that forgets what was not used for longest, in O(1) and without a list.
//!
//! Two generations: entries live in the young one; when it holds half of the capacity it becomes
//! the old one and the former old one is forgotten. A hit in the old one moves the entry back.
//! What was used within the last half capacity is always there.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

#[derive(Debug)]
pub(crate) struct Generations<K, V> {
    young: HashMap<K, (V, u64)>,
    old: HashMap<K, (V, u64)>,
    young_weight: u64,
    old_weight: u64,
    capacity: u64,
}

impl<K: Hash + Eq, V> Generations<K, V> {
    /// Holds entries up to a total weight of `capacity`; none where that is 0.
    pub fn new(capacity: u64) -> Self {
        let (young, old) = (HashMap::new(), HashMap::new());
        Generations { young, old, young_weight: 0, old_weight: 0, capacity }
    }

    /// Puts an entry of some weight, replacing the one before. One that is heavier than half of the
    /// capacity leaves less room for the old generation; one that is heavier than all is not kept.
    pub fn insert(&mut self, key: K, value: V, weight: u64) {
        self.remove(&key);
        if weight > self.capacity {
            return;
        }
        let half = self.capacity.div_ceil(2);
        if self.young_weight + weight > half && !self.young.is_empty() {
            self.old = std::mem::take(&mut self.young);
            self.old_weight = std::mem::take(&mut self.young_weight);
        }
        if self.young_weight + self.old_weight + weight > 2 * half {
            self.old.clear();
            self.old_weight = 0;
        }
        self.young_weight += weight;
        self.young.insert(key, (value, weight));
    }

    /// The entry, which counts as used.
    pub fn get<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        if let Some((key, (value, weight))) = self.old.remove_entry(key) {
            self.old_weight -= weight;
            self.insert(key, value, weight);
        }
        self.young.get_mut(key).map(|(value, _)| value)
    }

    /// Takes the entry out.
    pub fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        if let Some((value, weight)) = self.young.remove(key) {
            self.young_weight -= weight;
            return Some(value);
        }
        let (value, weight) = self.old.remove(key)?;
        self.old_weight -= weight;
        Some(value)
    }

    /// Changes the capacity. Where it shrinks, what no longer fits is forgotten at once, and the
    /// old generation with it.
    pub fn set_capacity(&mut self, capacity: u64) {
        if capacity < self.capacity {
            self.old.clear();
            self.old_weight = 0;
            let mut kept = 0;
            self.young.retain(|_, (_, weight)| {
                let fits = kept + *weight <= capacity;
                kept += if fits { *weight } else { 0 };
                fits
            });
            self.young_weight = kept;
        }
        self.capacity = capacity;
    }

    /// All entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.young.iter().chain(&self.old).map(|(key, (value, _))| (key, value))
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
        (self.young_weight, self.old_weight) = (0, 0);
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    #[cfg(test)]
    fn weight(&self) -> u64 {
        let weigh = |map: &HashMap<K, (V, u64)>| map.values().map(|(_, weight)| weight).sum();
        assert_eq!((self.young_weight, self.old_weight), (weigh(&self.young), weigh(&self.old)));
        self.young.values().chain(self.old.values()).map(|(_, weight)| weight).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn recently_used_entries_survive() {
        let mut map = Generations::new(8);
        for key in 0..100 {
            map.insert(key, key, 1);
            assert_eq!(map.get(&0).copied(), Some(0), "0 is used all the time");
        }
        assert_eq!(map.get(&1), None);
    }

    #[test]
    fn capacity_zero_keeps_nothing() {
        let mut map = Generations::new(0);
        map.insert(1, 1, 1);
        assert_eq!(map.get(&1), None);
    }

    #[test]
    fn an_entry_of_more_than_half_is_kept_until_there_is_no_room() {
        let mut map = Generations::new(8);
        map.insert(0, (), 1);
        map.insert(1, (), 6);
        assert!(map.get(&1).is_some() && map.get(&0).is_some());
        map.insert(2, (), 9);
        assert!(map.get(&2).is_none() && map.get(&1).is_some());
        for key in 3..9 {
            map.insert(key, (), 1);
            assert!(map.get(&1).is_some(), "used all the time, at {key}");
        }
        map.insert(9, (), 6);
        assert!(map.get(&1).is_none() && map.get(&9).is_some());
    }

    proptest! {
        #[test]
        fn weight_stays_within_capacity_also_when_that_changes(
            mut capacity in 0u64..50,
            steps in prop::collection::vec((0u8..20, 1u64..30, prop::option::of(0u64..50)), 0..200),
        ) {
            let mut map = Generations::new(capacity);
            for (key, weight, other_capacity) in steps {
                map.insert(key, (), weight);
                if let Some(other) = other_capacity {
                    capacity = other;
                    map.set_capacity(capacity);
                }
                prop_assert!(map.weight() <= capacity + 1);
                map.get(&(key / 2));
                prop_assert!(map.weight() <= capacity + 1);
            }
        }
    }
}

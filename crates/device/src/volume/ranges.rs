//! Ranges of pages of a file that have something in common. Pure; what it is, their owner knows.

use std::collections::BTreeMap;

/// Ranges of pages: the first one, and the one after the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// The pages before `end`.
    pub(crate) fn before(end: u64) -> Self {
        let mut ranges = Ranges::default();
        ranges.add(0, end);
        ranges
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a range that overlaps no other.
    pub(crate) fn add(&mut self, first: u64, end: u64) {
        if first < end {
            debug_assert!(!self.meets(first, end));
            self.0.insert(first, end);
        }
    }

    /// Whether some of a range is in here.
    pub(crate) fn meets(&self, first: u64, end: u64) -> bool {
        first < end && self.0.range(..end).next_back().is_some_and(|row| *row.1 > first)
    }

    /// Takes out what lies in a range; the parts of it that were in here.
    pub(crate) fn take(&mut self, first: u64, end: u64) -> Vec<(u64, u64)> {
        let mut taken = Vec::new();
        let meets: Vec<(u64, u64)> = self
            .0
            .range(..end)
            .rev()
            .take_while(|(_, to)| **to > first)
            .map(|(from, to)| (*from, *to))
            .collect();
        for (from, to) in meets {
            self.0.remove(&from);
            if from < first {
                self.0.insert(from, first);
            }
            if to > end {
                self.0.insert(end, to);
            }
            taken.push((from.max(first), to.min(end)));
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn pages(ranges: &Ranges) -> BTreeSet<u64> {
        ranges.0.iter().flat_map(|(first, end)| *first..*end).collect()
    }

    proptest! {
        #[test]
        fn ranges_agree_with_a_set_of_pages(
            gaps in prop::collection::vec((0u64..4, 1u64..6), 0..8),
            takes in prop::collection::vec((0u64..60, 0u64..20), 0..10),
        ) {
            let (mut ranges, mut model, mut at) = (Ranges::default(), BTreeSet::new(), 0);
            for (gap, length) in gaps {
                // Neighbours that touch are ranges of their own, which does no harm.
                ranges.add(at + gap, at + gap + length);
                model.extend(at + gap..at + gap + length);
                at += gap + length;
            }
            for (first, length) in takes {
                let end = first + length;
                let meets = ranges.meets(first, end);
                let taken: BTreeSet<u64> =
                    ranges.take(first, end).into_iter().flat_map(|(from, to)| from..to).collect();
                let expected: BTreeSet<u64> =
                    model.iter().copied().filter(|page| (first..end).contains(page)).collect();
                prop_assert_eq!(&taken, &expected);
                prop_assert_eq!(meets, !taken.is_empty());
                model.retain(|page| !(first..end).contains(page));
                prop_assert_eq!(pages(&ranges), model.clone());
            }
            prop_assert_eq!(ranges.is_empty(), model.is_empty());
        }
    }
}

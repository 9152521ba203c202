//! Pages of a file that were never written, though the file is longer. Pure; that they read as
//! zeros is the file's matter.
//!
//! Threads that add blocks side by side write the later one first now and then. Zeros in the place
//! of the earlier one would be written for nothing, so they wait until somebody needs them.

use std::collections::BTreeMap;

/// Ranges of pages: the first one, and the one after the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holes(BTreeMap<u64, u64>);

impl Holes {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a range that overlaps no other.
    pub(crate) fn add(&mut self, first: u64, end: u64) {
        if first < end {
            debug_assert!(self.0.range(..end).next_back().is_none_or(|row| *row.1 <= first));
            self.0.insert(first, end);
        }
    }

    /// Takes out what lies in a range; the parts of it that were in here.
    pub(crate) fn take(&mut self, first: u64, end: u64) -> Vec<(u64, u64)> {
        let mut taken = Vec::new();
        let meets: Vec<(u64, u64)> = self
            .0
            .range(..end)
            .rev()
            .take_while(|(_, hole_end)| **hole_end > first)
            .map(|(hole_first, hole_end)| (*hole_first, *hole_end))
            .collect();
        for (hole_first, hole_end) in meets {
            self.0.remove(&hole_first);
            if hole_first < first {
                self.0.insert(hole_first, first);
            }
            if hole_end > end {
                self.0.insert(end, hole_end);
            }
            taken.push((hole_first.max(first), hole_end.min(end)));
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn pages(holes: &Holes) -> BTreeSet<u64> {
        holes.0.iter().flat_map(|(first, end)| *first..*end).collect()
    }

    proptest! {
        #[test]
        fn holes_agree_with_a_set_of_pages(
            gaps in prop::collection::vec((0u64..4, 1u64..6), 0..8),
            takes in prop::collection::vec((0u64..60, 0u64..20), 0..10),
        ) {
            let (mut holes, mut model, mut at) = (Holes::default(), BTreeSet::new(), 0);
            for (gap, length) in gaps {
                // Neighbours that touch are ranges of their own, which does no harm.
                holes.add(at + gap, at + gap + length);
                model.extend(at + gap..at + gap + length);
                at += gap + length;
            }
            for (first, length) in takes {
                let end = first + length;
                let taken: BTreeSet<u64> =
                    holes.take(first, end).into_iter().flat_map(|(from, to)| from..to).collect();
                let expected: BTreeSet<u64> =
                    model.iter().copied().filter(|page| (first..end).contains(page)).collect();
                prop_assert_eq!(&taken, &expected);
                model.retain(|page| !(first..end).contains(page));
                prop_assert_eq!(pages(&holes), model.clone());
            }
            prop_assert_eq!(holes.is_empty(), model.is_empty());
        }
    }
}

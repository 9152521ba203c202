//! A set of bytes of an object. Pure.

use penstock_base::ByteRange;

/// Ranges that neither overlap nor touch, in order.
#[derive(Debug, Default)]
pub(super) struct Ranges(Vec<ByteRange>);

impl Ranges {
    /// Adds a range; gives how many bytes of it are new.
    pub fn add(&mut self, range: ByteRange) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let first = self.0.partition_point(|known| known.end < range.start);
        let behind = self.0.partition_point(|known| known.start <= range.end);
        let touched = &self.0[first..behind];
        let known_bytes: u64 = touched.iter().map(|known| common(*known, range)).sum();
        let start = touched.first().map_or(range.start, |known| known.start.min(range.start));
        let end = touched.last().map_or(range.end, |known| known.end.max(range.end));
        self.0.splice(first..behind, [ByteRange { start, end }]);
        range.len() - known_bytes
    }

    /// Bytes of a range that are among them.
    pub fn bytes_in(&self, range: ByteRange) -> u64 {
        let first = self.0.partition_point(|known| known.end <= range.start);
        let shared = self.0[first..].iter().take_while(|known| known.start < range.end);
        shared.map(|known| common(*known, range)).sum()
    }

    /// In order.
    pub fn all(&self) -> &[ByteRange] {
        &self.0
    }
}

/// Bytes that lie in both.
fn common(one: ByteRange, other: ByteRange) -> u64 {
    one.end.min(other.end).saturating_sub(one.start.max(other.start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn bytes_are_counted_once_however_they_come(
            added in prop::collection::vec((0u64..60, 0u64..20), 0..30),
            asked in (0u64..60, 0u64..30),
        ) {
            let (mut ranges, mut bytes) = (Ranges::default(), BTreeSet::new());
            for (start, len) in added {
                let new = (start..start + len).filter(|byte| bytes.insert(*byte)).count();
                let range = ByteRange { start, end: start + len };
                prop_assert_eq!(ranges.add(range), new as u64);
                let apart = ranges.0.windows(2).all(|pair| pair[0].end < pair[1].start);
                prop_assert!(apart, "{:?}", ranges);
            }
            let range = ByteRange { start: asked.0, end: asked.0 + asked.1 };
            let found = bytes.range(range.start..range.end).count();
            prop_assert_eq!(ranges.bytes_in(range), found as u64);
        }
    }
}

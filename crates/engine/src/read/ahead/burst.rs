//! Large reads of one reader that are under way at once. Pure.
//!
//! DuckDB 2.0 divides a read of 16 or 32 MB (of CSV, JSON, a blob) into blocks of 2 MiB, and its
//! threads for input and output fetch as many at a time as there are threads. Blocks that are under
//! way side by side are such a read, and more of it follows (`CachingFileHandle::Read` of its
//! `caching_file_system.cpp`).

use penstock_base::ByteRange;

/// By default DuckDB has so many threads for input and output with one thread of work.
const READS_MIN: usize = 4;

/// Which reads are under way.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    reads: Vec<ByteRange>,
    /// The reader had a burst before. Bytes behind a burst may be wasted, so only one is believed.
    was_burst: bool,
}

impl UnderWay {
    /// Takes note of a read. Gives the stretch of a burst, the first time that reads make one: they
    /// follow each other without a gap.
    pub fn begins(&mut self, range: ByteRange) -> Option<ByteRange> {
        let place = self.reads.partition_point(|read| read.start < range.start);
        self.reads.insert(place, range);
        let is_burst = self.reads.len() >= READS_MIN
            && self.reads.windows(2).all(|pair| pair[0].end == pair[1].start);
        if !is_burst || std::mem::replace(&mut self.was_burst, true) {
            return None;
        }
        let (first, last) = (self.reads.first()?, self.reads.last()?);
        Some(ByteRange { start: first.start, end: last.end })
    }

    /// Whether a read begins or ends where one that is under way ends or begins.
    pub fn is_beside(&self, range: ByteRange) -> bool {
        self.reads.iter().any(|read| read.end == range.start || read.start == range.end)
    }

    /// Takes note of the end of a read.
    pub fn ended(&mut self, range: ByteRange) {
        if let Some(place) = self.reads.iter().position(|read| *read == range) {
            self.reads.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: u64) -> ByteRange {
        ByteRange { start: number * 10, end: number * 10 + 10 }
    }

    #[test]
    fn reads_side_by_side_in_any_order_are_a_burst_once() {
        let mut under_way = UnderWay::default();
        for number in [1, 0, 3] {
            assert_eq!(under_way.begins(block(number)), None);
        }
        assert_eq!(under_way.begins(block(2)), Some(ByteRange { start: 0, end: 40 }));
        assert_eq!(under_way.begins(block(4)), None);
    }

    #[test]
    fn reads_apart_and_reads_one_after_another_are_none() {
        let mut under_way = UnderWay::default();
        for number in [0, 2, 4, 6, 8] {
            assert_eq!(under_way.begins(block(number)), None);
        }
        let mut under_way = UnderWay::default();
        for number in 0..20 {
            assert_eq!(under_way.begins(block(number)), None);
            under_way.ended(block(number));
        }
    }
}

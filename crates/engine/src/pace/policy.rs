//! Decides whether a large read may be split, into how many parts, and where they begin: of a
//! wrapped system and of a store of ours alike. Pure.
//!
//! Whether it should be split is the cost model's question (`learn`).

use penstock_base::{ByteRange, Settings};

/// The settings `parallel_read_*` as they count, the preset applied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Policy {
    /// Off: every read is one request.
    pub enabled: bool,
    /// What one part should hold.
    pub chunk_bytes: u64,
    /// Most parts of one read.
    pub fanout_max: u64,
    /// Smaller reads are never split.
    pub min_bytes: u64,
    /// The cost model chooses below `fanout_max`.
    pub auto: bool,
    /// The cost model learns.
    pub adaptive: bool,
    /// Penalty for each extra request.
    pub overhead_ms: f64,
}

impl Policy {
    pub fn of(settings: &Settings) -> Self {
        let policy = Policy {
            enabled: settings.parallel_read_enabled,
            chunk_bytes: settings.parallel_read_chunk_size_bytes,
            fanout_max: settings.parallel_read_max_fanout,
            min_bytes: settings.parallel_read_min_bytes,
            auto: settings.parallel_read_auto_fanout_enabled,
            adaptive: settings.parallel_read_auto_fanout_overhead_adaptive_enabled,
            overhead_ms: settings.parallel_read_auto_fanout_overhead_ms as f64,
        };
        if settings.parallel_read_recommended_preset_enabled {
            Policy { chunk_bytes: 16 << 20, fanout_max: 2, min_bytes: 2 << 20, ..policy }
        } else {
            policy
        }
    }

    /// Most requests at once for any read.
    pub fn requests_max(&self) -> u64 {
        if self.enabled { self.fanout_max.max(1) } else { 1 }
    }

    /// Most parts that a read of this length may have.
    pub fn fanout_limit(&self, len: u64) -> u64 {
        if !self.enabled || len < self.min_bytes {
            return 1;
        }
        len.div_ceil(self.chunk_bytes.max(1)).clamp(1, self.fanout_max.max(1))
    }
}

/// Parts begin at multiples of this, as far as the range allows: pages of DuckDB, of the system and
/// of disks behind the store stay whole.
const ALIGN_BYTES: u64 = 64 << 10;

/// Covers `range` with at most `count` parts of about the same length, in order.
pub(crate) fn parts(range: ByteRange, count: u64) -> Vec<ByteRange> {
    let count = count.clamp(1, range.len().max(1));
    let each = range.len().div_ceil(count).next_multiple_of(ALIGN_BYTES);
    let mut parts = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let wanted = (start + each) / ALIGN_BYTES * ALIGN_BYTES;
        let is_last = parts.len() as u64 + 1 == count;
        let end = if is_last { range.end } else { wanted.min(range.end) };
        parts.push(ByteRange { start, end });
        start = end;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policy(chunk_bytes: u64, fanout_max: u64, min_bytes: u64) -> Policy {
        let defaults = Policy::of(&Settings::default());
        Policy { chunk_bytes, fanout_max, min_bytes, ..defaults }
    }

    #[test]
    fn the_preset_wins_over_the_three_settings() {
        let mut settings = Settings::default();
        settings.set("parallel_read_max_fanout", "64").unwrap();
        settings.set("parallel_read_chunk_size_bytes", "1MiB").unwrap();
        settings.set("parallel_read_min_bytes", "1GiB").unwrap();
        assert_eq!(Policy::of(&settings).fanout_limit(64 << 20), 1);
        settings.set("parallel_read_recommended_preset_enabled", "true").unwrap();
        let preset = Policy::of(&settings);
        assert_eq!((preset.fanout_limit(64 << 20), preset.fanout_limit(1 << 20)), (2, 1));
        assert_eq!(preset.fanout_limit(8 << 20), 1, "one chunk");
        settings.set("parallel_read_enabled", "false").unwrap();
        assert_eq!(Policy::of(&settings).fanout_limit(64 << 20), 1);
    }

    #[test]
    fn a_read_has_as_many_parts_as_it_has_chunks() {
        let policy = policy(16 << 20, 4, 2 << 20);
        assert_eq!(policy.fanout_limit(16 << 20), 1);
        assert_eq!(policy.fanout_limit((16 << 20) + 1), 2);
        assert_eq!(policy.fanout_limit(128 << 20), 4);
    }

    proptest! {
        #[test]
        fn parts_cover_the_range_once_and_are_alike(
            start in 0u64..1 << 40, len in 0u64..1 << 32, count in 1u64..300
        ) {
            let range = ByteRange { start, end: start + len };
            let parts = parts(range, count);
            prop_assert!(parts.len() as u64 <= count);
            let mut at = start;
            for part in &parts {
                prop_assert_eq!(part.start, at);
                prop_assert!(!part.is_empty());
                prop_assert!(part.len() <= len.div_ceil(count) + 2 * ALIGN_BYTES);
                at = part.end;
            }
            prop_assert_eq!(at, range.end);
        }

        #[test]
        fn limit_grows_with_the_read_and_keeps_its_bounds(
            chunk in 1u64..1 << 30, most in 1u64..256, min in 0u64..1 << 30,
            a in 0u64..1 << 34, b in 0u64..1 << 34
        ) {
            let policy = policy(chunk, most, min);
            let (short, long) = (a.min(b), a.max(b));
            let (few, many) = (policy.fanout_limit(short), policy.fanout_limit(long));
            prop_assert!(few <= many && many <= most && few >= 1);
            prop_assert!(short >= min || few == 1);
        }
    }
}

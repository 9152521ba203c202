//! Decides how an object is cut into parts. Pure.
//!
//! Parts begin small, so that an upload overlaps with the making of its bytes, and double after
//! every twentieth of the store's part count, so that even the largest object finds room: S3's
//! 10,000 parts reach more than 5 TiB, Azure's 50,000 more than 90 TiB. R2 wants parts of one size,
//! which therefore starts larger.

use penstock_store::Profile;

/// Part size where all parts must be equal: 10,000 of them hold 640 GiB.
const UNIFORM_PART_BYTES: u64 = 64 << 20;

/// How one object is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    first_bytes: u64,
    max_bytes: u64,
    min_bytes: u64,
    count_max: u32,
    uniform: bool,
}

impl Schedule {
    /// `part_size_bytes` is the wish; no part takes more than a quarter of the memory limit, unless
    /// the store's smallest part does.
    pub fn new(profile: &Profile, part_size_bytes: u64, memory_limit_bytes: u64) -> Self {
        let largest = profile.part_size_max_bytes.min(profile.put_size_max_bytes).max(1);
        let floor = profile.part_size_min_bytes.clamp(1, largest);
        let ceiling = (memory_limit_bytes / 4).clamp(floor, largest);
        let wish = if profile.parts_uniform {
            part_size_bytes.max(UNIFORM_PART_BYTES)
        } else {
            part_size_bytes
        };
        Schedule {
            first_bytes: wish.clamp(floor, ceiling),
            max_bytes: ceiling,
            min_bytes: floor,
            count_max: profile.part_count_max.max(1),
            uniform: profile.parts_uniform,
        }
    }

    /// Size of a part, counted from 1; `None` past the last number that the store takes.
    pub fn part_bytes(&self, number: u32) -> Option<u64> {
        if number == 0 || number > self.count_max {
            return None;
        }
        if self.uniform {
            return Some(self.first_bytes);
        }
        let step = (self.count_max / 20).max(1);
        let doublings = ((number - 1) / step).min(63);
        Some(self.first_bytes.saturating_mul(1 << doublings).min(self.max_bytes))
    }

    /// How small a part may be when memory is short; `None` where it has to be whole. Short parts
    /// use up numbers, so the second half of them is kept for whole ones.
    pub fn early_bytes_min(&self, number: u32) -> Option<u64> {
        (!self.uniform && number <= self.count_max / 2).then_some(self.min_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn profile(min: u64, max: u64, count: u32, uniform: bool) -> Profile {
        Profile {
            first_byte_ms: 1.0,
            connection_bytes_per_s: 1e8,
            part_size_min_bytes: min,
            part_size_max_bytes: max,
            part_count_max: count,
            parts_uniform: uniform,
            put_size_max_bytes: max,
            delete_batch_max: 1000,
        }
    }

    fn reach(schedule: &Schedule, count: u32) -> u64 {
        (1..=count).map_while(|number| schedule.part_bytes(number)).sum()
    }

    #[test]
    fn the_largest_objects_fit() {
        let s3 = Schedule::new(&profile(5 << 20, 5 << 30, 10_000, false), 8 << 20, u64::MAX);
        assert!(reach(&s3, 10_000) > 5 << 40);
        let azure = Schedule::new(&profile(1, 4000 << 20, 50_000, false), 8 << 20, u64::MAX);
        assert!(reach(&azure, 50_000) > 90 << 40);
        assert_eq!(s3.part_bytes(10_001), None);
    }

    #[test]
    fn uniform_parts_are_uniform_and_never_sent_early() {
        let r2 = Schedule::new(&profile(5 << 20, 5 << 30, 10_000, true), 8 << 20, u64::MAX);
        assert_eq!(r2.part_bytes(1), r2.part_bytes(10_000));
        assert_eq!(r2.early_bytes_min(1), None);
    }

    proptest! {
        #[test]
        fn sizes_grow_and_stay_within_the_store_and_the_memory(
            min in 1u64..(8 << 20), extra in 0u64..(1 << 33), count in 1u32..60_000,
            wish in 1u64..(1 << 32), memory in (1u64 << 20)..(1 << 40), uniform: bool,
        ) {
            let profile = profile(min, min + extra, count, uniform);
            let schedule = Schedule::new(&profile, wish, memory);
            let mut before = 0;
            for number in [1, 2, count / 3, count / 2, count].map(|number| number.clamp(1, count)) {
                let bytes = schedule.part_bytes(number).unwrap();
                prop_assert!((min..=min + extra).contains(&bytes));
                prop_assert!(bytes <= (memory / 4).max(min));
                if number > 1 && !uniform {
                    prop_assert!(bytes >= before);
                }
                before = if number == 1 { 0 } else { bytes };
            }
            prop_assert_eq!(schedule.part_bytes(count + 1), None);
        }
    }
}

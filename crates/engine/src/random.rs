//! Chance, behind a trait so that tests choose it.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Where back-off jitter comes from.
pub trait Random: Send + Sync + std::fmt::Debug {
    /// A number in `0.0..1.0`.
    fn unit(&self) -> f64;
}

/// SplitMix64 (Steele, Lea, Flood 2014): plenty for jitter, not for secrets.
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    /// The same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        SeededRandom(AtomicU64::new(seed))
    }

    /// Other numbers in every process.
    pub fn from_entropy() -> Self {
        Self::new(RandomState::new().hash_one(std::process::id()))
    }
}

impl Random for SeededRandom {
    fn unit(&self) -> f64 {
        const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut z = self.0.fetch_add(GOLDEN, Ordering::Relaxed).wrapping_add(GOLDEN);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        // The top 53 bits fill a double's mantissa.
        (z >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_in_the_unit_interval_and_spread() {
        let random = SeededRandom::new(1);
        let numbers: Vec<f64> = (0..1000).map(|_| random.unit()).collect();
        assert!(numbers.iter().all(|x| (0.0..1.0).contains(x)));
        let mean = numbers.iter().sum::<f64>() / 1000.0;
        assert!((0.45..0.55).contains(&mean), "{mean}");
    }
}

//! Numbers from a seed.

use penstock_engine::{Random, SeededRandom};

#[derive(Debug)]
pub struct Dice(SeededRandom);

impl Dice {
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds begin far apart.
        Dice(SeededRandom::new(seed.wrapping_mul(0xA076_1D64_78BD_642F)))
    }

    pub fn chance(&self, probability: f64) -> bool {
        self.0.unit() < probability
    }

    /// Both ends inclusive.
    pub fn whole(&self, least: u64, most: u64) -> u64 {
        least + ((most - least + 1) as f64 * self.0.unit()) as u64
    }

    /// Spread evenly over the orders of magnitude.
    pub fn between(&self, least: u64, most: u64) -> u64 {
        (least as f64 * (most as f64 / least as f64).powf(self.0.unit())) as u64
    }

    pub fn pick<'a, T>(&self, from: &'a [T]) -> &'a T {
        &from[self.whole(0, from.len() as u64 - 1) as usize]
    }
}

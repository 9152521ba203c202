//! Learns the cost model of one wrapped file system from the times that its reads took, and chooses
//! the fan-out of the next read. Pure: times come in as numbers.
//!
//! Small reads tell the latency, large plain ones the bandwidth of one connection, split ones what
//! an extra request really costs: on a saturated link or processor that is all that the split was
//! to gain, so the model returns to one plain request by itself. What is known fades: now and then
//! a read is plain again, or split again, to see whether the store has changed.

use crate::parallel::cost::CostModel;
use crate::parallel::plan::Policy;

/// Weight of the newest observation.
const WEIGHT: f64 = 0.3;
/// Reads up to this size tell the latency.
const SMALL_BYTES: u64 = 256 << 10;
/// Reads from this size on tell the bandwidth.
const LARGE_BYTES: u64 = 1 << 20;
/// A read faster than this came from memory and tells nothing of the store.
const FROM_MEMORY_MS: f64 = 0.1;
/// With a latency below this the store is so near that a plain read is measured before any split.
const NEAR_MS: f64 = 5.0;
/// After so many split reads the first plain one measures the bandwidth, until then a guess.
const PLAIN_FIRST: u32 = 2;
/// After so many split reads one plain read measures the bandwidth again.
const PLAIN_EVERY: u32 = 32;
/// What remains of the learned penalty after each large read that was left plain.
const FADE: f64 = 0.98;
/// Longest penalty that is believed.
const OVERHEAD_MAX_MS: f64 = 60_000.0;

/// An exponentially weighted average that begins with a guess.
#[derive(Clone, Copy, Debug)]
struct Average {
    value: f64,
    is_guess: bool,
}

impl Average {
    fn guess(value: f64) -> Self {
        Average { value, is_guess: true }
    }

    fn observe(&mut self, seen: f64) {
        let weight = if self.is_guess { 1.0 } else { WEIGHT };
        *self = Average { value: self.value + weight * (seen - self.value), is_guess: false };
    }
}

/// What is known of one wrapped file system.
#[derive(Clone, Debug)]
pub(crate) struct Learner {
    first_byte_ms: Average,
    bytes_per_ms: Average,
    /// `None` until a large read was decided on.
    overhead_ms: Option<Average>,
    /// A split read (length, fan-out, time) from before the first plain one, to be judged by it.
    unjudged: Option<(u64, u64, f64)>,
    plain_was_seen: bool,
    split_since_plain: u32,
}

impl Default for Learner {
    fn default() -> Self {
        Learner {
            first_byte_ms: Average::guess(CostModel::S3.first_byte_ms),
            bytes_per_ms: Average::guess(CostModel::S3.bytes_per_ms),
            overhead_ms: None,
            unjudged: None,
            plain_was_seen: false,
            split_since_plain: 0,
        }
    }
}

impl Learner {
    /// The model as it stands.
    pub fn model(&self, policy: &Policy) -> CostModel {
        CostModel {
            first_byte_ms: self.first_byte_ms.value,
            bytes_per_ms: self.bytes_per_ms.value,
            overhead_ms: self.overhead_ms(policy),
        }
    }

    /// What was learned, or to begin with the setting; but an extra request should not cost much
    /// more than the latency, so near stores are tried sooner.
    fn overhead_ms(&self, policy: &Policy) -> f64 {
        let guess = policy.overhead_ms.min(self.first_byte_ms.value);
        self.overhead_ms.map_or(guess, |overhead| overhead.value)
    }

    /// The fan-out of a read of `len` bytes, at most `limit`.
    pub fn choose(&mut self, policy: &Policy, len: u64, limit: u64) -> u64 {
        if limit <= 1 || !policy.auto {
            return limit;
        }
        if !policy.adaptive {
            let model = CostModel { overhead_ms: policy.overhead_ms, ..CostModel::S3 };
            return model.best_fanout(len, limit);
        }
        let is_near = !self.plain_was_seen && self.first_byte_ms.value < NEAR_MS;
        let most = if self.plain_was_seen { PLAIN_EVERY } else { PLAIN_FIRST };
        if is_near || self.split_since_plain >= most {
            return 1;
        }
        let fanout = self.model(policy).best_fanout(len, limit);
        if fanout == 1 {
            let value = self.overhead_ms(policy) * FADE;
            let is_guess = self.overhead_ms.is_none_or(|overhead| overhead.is_guess);
            self.overhead_ms = Some(Average { value, is_guess });
        }
        fanout
    }

    /// A read of `len` bytes in `fanout` requests at once took so long.
    pub fn observe(&mut self, policy: &Policy, len: u64, fanout: u64, took_ms: f64) {
        if took_ms < FROM_MEMORY_MS {
            return;
        }
        if fanout > 1 {
            self.observe_overhead(policy, len, fanout, took_ms);
            self.split_since_plain = self.split_since_plain.saturating_add(1);
        } else if len <= SMALL_BYTES {
            let transfer_ms = len as f64 / self.bytes_per_ms.value;
            self.first_byte_ms.observe((took_ms - transfer_ms).max(0.0));
        } else if len >= LARGE_BYTES {
            // The latency of this very read is not known; a tenth of it at least was transfer.
            let transfer_ms = (took_ms - self.first_byte_ms.value).max(took_ms * 0.1);
            self.bytes_per_ms.observe(len as f64 / transfer_ms);
            if let Some((len, fanout, took_ms)) = self.unjudged.take() {
                self.observe_overhead(policy, len, fanout, took_ms);
            }
            if len >= policy.min_bytes {
                self.plain_was_seen = true;
                self.split_since_plain = 0;
            }
        }
    }

    /// Opening a file took so long: with a request in it, it tells how far the store is.
    pub fn observe_open(&mut self, took_ms: f64) {
        if took_ms >= FROM_MEMORY_MS && self.first_byte_ms.is_guess {
            // The connection was opened as well, so this is a guess still.
            self.first_byte_ms = Average::guess(took_ms);
        }
    }

    fn observe_overhead(&mut self, policy: &Policy, len: u64, fanout: u64, took_ms: f64) {
        if self.bytes_per_ms.is_guess {
            // What no plain read was compared with says nothing yet.
            self.unjudged = Some((len, fanout, took_ms));
            return;
        }
        let free = CostModel { overhead_ms: 0.0, ..self.model(policy) };
        let extra_ms = (took_ms - free.read_ms(len, fanout)) / (fanout - 1) as f64;
        // A penalty as long as a whole plain read ends splitting; a longer one is a mishap.
        let seen_ms = extra_ms.min(free.read_ms(len, 1)).clamp(0.0, OVERHEAD_MAX_MS);
        let guess = Average::guess(self.overhead_ms(policy));
        self.overhead_ms.get_or_insert(guess).observe(seen_ms);
    }
}

#[cfg(test)]
mod tests;

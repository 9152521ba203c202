//! Learns the cost model of one store, or of one wrapped file system, from the times that its reads
//! took, and chooses the fan-out of the next read. Pure: times come in as numbers.
//!
//! Large plain reads tell the bandwidth of one connection, split ones what an extra request really
//! costs: on a saturated link or processor that is all that the split was to gain, so the model
//! returns to one plain request by itself. What is known fades: now and then a read is plain again,
//! or split again, to see whether the store has changed. What the penalty is thought to be before
//! it was seen ends no splitting for good: a few reads of files that are open already try it.
//!
//! Of a wrapped system only whole reads are seen: small ones tell the latency. Of a store of ours
//! the latency is measured, and how much else was on its way: so the limit of the link is known as
//! well ([`Load`]), and readers share it.

use crate::pace::cost::{CostModel, GAIN_MIN};
use crate::pace::policy::Policy;

mod wrapped;

pub(crate) use wrapped::FileState;

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
/// The penalty is a guess until it was seen so often; one read may have had bad luck.
const TRIALS: u32 = 3;
/// In so many requests a read is to try the penalty: the fewest that tell it.
pub(crate) const TRIAL_FANOUT: u64 = 2;
/// The first split read of each thread's file opens connections, and tells nothing of those that
/// follow. From so many in a row on they are what this store is read by: many files, each read
/// once.
const COLD_MAX: u32 = 4;
/// What remains of the learned penalty after each large read that was left plain.
const FADE: f64 = 0.98;
/// Most whole plain reads that trying a split is believed to cost.
const EXCESS_MAX: f64 = 100.0;
/// Longest penalty that is believed.
const OVERHEAD_MAX_MS: f64 = 60_000.0;
/// A connection that gets less than this part of what it got in calm shares a full link.
const SHARE_MIN: f64 = 0.9;
/// By how much the link is believed to have grown with each read, until it is filled again.
const LINK_GROWTH: f64 = 1.02;
/// Weight of what a full link carried last.
const LINK_WEIGHT: f64 = 0.5;
/// By how much the load counts as calm that the bandwidth of one connection was measured in: what
/// was seen in greater calm is forgotten in the end.
const CALM_GROWTH: f64 = 1.05;

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

/// How many reads and requests of a store were on their way during a read, itself included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    pub reads: f64,
    pub requests: f64,
}

/// A read that ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seen {
    pub len: u64,
    /// Requests at once that it was made of.
    pub fanout: u64,
    pub took_ms: f64,
    /// Where it is known.
    pub load: Option<Load>,
    /// It had to open connections first, which later reads of the same file find open.
    pub is_cold: bool,
}

/// What is known of one store or wrapped file system.
#[derive(Clone, Debug)]
pub(crate) struct Learner {
    first_byte_ms: Average,
    bytes_per_ms: Average,
    /// What opening a file of a wrapped system takes, its connection included.
    open_ms: Average,
    /// Requests on their way when `bytes_per_ms` was seen.
    calm_requests: f64,
    /// What all connections get together; `None` until that was seen to have a limit.
    link_bytes_per_ms: Option<f64>,
    /// `None` until a large read was decided on.
    overhead_ms: Option<Average>,
    /// A split read from before the first plain one, to be judged by it.
    unjudged: Option<Seen>,
    plain_was_seen: bool,
    split_since_plain: u32,
    /// Split reads that told the penalty.
    judged: u32,
    /// Split reads in a row that were not judged because they were cold.
    cold_in_a_row: u32,
    /// How many whole plain reads the last judged split cost beyond what it was to take, and the
    /// one before it. Where both cost more than one, the penalty fades so much more slowly.
    excess: [f64; 2],
}

impl Default for Learner {
    fn default() -> Self {
        Learner::new(CostModel::S3.first_byte_ms, CostModel::S3.bytes_per_ms)
    }
}

impl Learner {
    /// Begins with what a store says of itself.
    pub fn new(first_byte_ms: f64, bytes_per_ms: f64) -> Self {
        Learner {
            first_byte_ms: Average::guess(first_byte_ms.max(0.0)),
            bytes_per_ms: Average::guess(bytes_per_ms.max(1.0)),
            open_ms: Average::guess(0.0),
            calm_requests: 1.0,
            link_bytes_per_ms: None,
            overhead_ms: None,
            unjudged: None,
            plain_was_seen: false,
            split_since_plain: 0,
            judged: 0,
            cold_in_a_row: 0,
            excess: [1.0; 2],
        }
    }

    /// Whether a large read has told what one connection brings.
    pub fn knows_bandwidth(&self) -> bool {
        !self.bytes_per_ms.is_guess
    }

    /// The model as it stands, for one of so many readers.
    pub fn model(&self, policy: &Policy, reads: f64) -> CostModel {
        CostModel {
            first_byte_ms: self.first_byte_ms.value,
            bytes_per_ms: self.bytes_per_ms.value,
            link_bytes_per_ms: self
                .link_bytes_per_ms
                .map_or(f64::INFINITY, |link| link / reads.max(1.0)),
            overhead_ms: self.overhead_ms(policy),
        }
    }

    /// What was learned, or to begin with the setting; but an extra request should not cost much
    /// more than the latency, so near stores are tried sooner.
    fn overhead_ms(&self, policy: &Policy) -> f64 {
        let guess = policy.overhead_ms.min(self.first_byte_ms.value);
        self.overhead_ms.map_or(guess, |overhead| overhead.value)
    }

    /// The fan-out of a read of `len` bytes, at most `limit`, while so many are read at once.
    pub fn choose(&self, policy: &Policy, len: u64, limit: u64, reads: f64) -> u64 {
        if limit <= 1 || !policy.auto {
            return limit;
        }
        if !policy.adaptive {
            let model = CostModel { overhead_ms: policy.overhead_ms, ..CostModel::S3 };
            return model.best_fanout(len, limit);
        }
        if self.is_to_be_plain() {
            return 1;
        }
        self.model(policy, reads).best_fanout(len, limit)
    }

    /// Whether the next read measures the bandwidth, whatever the model says.
    fn is_to_be_plain(&self) -> bool {
        let is_near = !self.plain_was_seen && self.first_byte_ms.value < NEAR_MS;
        let most = if self.plain_was_seen { PLAIN_EVERY } else { PLAIN_FIRST };
        is_near || self.split_since_plain >= most
    }

    /// What is known fades with each read that was decided by it and is seen to end: one that is
    /// not seen tells nothing that could take the place of what was known.
    fn fade(&mut self, policy: &Policy, fanout: u64) {
        if let Some(link) = &mut self.link_bytes_per_ms {
            *link *= LINK_GROWTH;
        }
        if fanout == 1 {
            // One costly split may have had bad luck.
            let excess = self.excess[0].min(self.excess[1]);
            let value = self.overhead_ms(policy) * FADE.powf(1.0 / excess);
            let is_guess = self.overhead_ms.is_none_or(|overhead| overhead.is_guess);
            self.overhead_ms = Some(Average { value, is_guess });
        }
    }

    /// A read has ended.
    pub fn observe(&mut self, policy: &Policy, seen: &Seen) {
        let &Seen { len, fanout, took_ms, load, is_cold } = seen;
        if took_ms < FROM_MEMORY_MS {
            return;
        }
        let is_decided = policy.auto && policy.adaptive && policy.fanout_limit(len) > 1;
        if is_decided && !self.is_to_be_plain() {
            self.fade(policy, fanout);
        }
        if fanout > 1 {
            self.cold_in_a_row = if is_cold { self.cold_in_a_row.saturating_add(1) } else { 0 };
            if !is_cold || self.cold_in_a_row > COLD_MAX {
                self.observe_split(policy, seen);
            }
            self.split_since_plain = self.split_since_plain.saturating_add(1);
        } else if len <= SMALL_BYTES && load.is_none() {
            let transfer_ms = len as f64 / self.bytes_per_ms.value;
            self.first_byte_ms.observe((took_ms - transfer_ms).max(0.0));
        } else if len >= LARGE_BYTES {
            match load {
                Some(load) => self.observe_share(seen, load),
                None => self.bytes_per_ms.observe(len as f64 / self.transfer_ms(took_ms)),
            }
            if let Some(unjudged) = self.unjudged.take() {
                self.observe_split(policy, &unjudged);
            }
            if len >= policy.min_bytes {
                self.plain_was_seen = true;
                self.split_since_plain = 0;
            }
        }
    }

    /// The latency, where it is measured by itself.
    pub fn know_first_byte(&mut self, first_byte_ms: f64) {
        self.first_byte_ms = Average { value: first_byte_ms, is_guess: false };
    }

    /// The latency of one very read is not known; a tenth of it at least was transfer.
    fn transfer_ms(&self, took_ms: f64) -> f64 {
        (took_ms - self.first_byte_ms.value).max(took_ms * 0.1)
    }

    fn observe_split(&mut self, policy: &Policy, seen: &Seen) {
        if self.bytes_per_ms.is_guess {
            // What no plain read was compared with says nothing yet. Of a store of ours there will
            // be others, with connections that are open already.
            self.unjudged = seen.load.is_none().then_some(*seen);
            return;
        }
        let &Seen { len, fanout, took_ms, load, .. } = seen;
        if let Some(load) = load {
            self.observe_share(seen, load);
        }
        let reads = load.map_or(1.0, |load| load.reads);
        let free = CostModel { overhead_ms: 0.0, ..self.model(policy, reads) };
        let extra_ms = (took_ms - free.read_ms(len, fanout)) / (fanout - 1) as f64;
        // A penalty as long as a whole plain read ends splitting; a longer one is a mishap, or a
        // reason to try it less often.
        let plain_ms = free.read_ms(len, 1);
        let seen_ms = extra_ms.min(plain_ms).clamp(0.0, OVERHEAD_MAX_MS);
        self.excess = [(extra_ms / plain_ms).clamp(1.0, EXCESS_MAX), self.excess[0]];
        let guess = Average::guess(self.overhead_ms(policy));
        self.overhead_ms.get_or_insert(guess).observe(seen_ms);
        self.judged = self.judged.saturating_add(1);
    }

    /// What each connection got tells the bandwidth of one in calm, and otherwise whether they fill
    /// the link together.
    fn observe_share(&mut self, seen: &Seen, load: Load) {
        let requests = load.requests.max(seen.fanout as f64);
        let each = seen.len as f64 / seen.fanout as f64 / self.transfer_ms(seen.took_ms);
        let is_calm = requests <= self.calm_requests * CALM_GROWTH || self.bytes_per_ms.is_guess;
        if is_calm || each > self.bytes_per_ms.value {
            if requests < self.calm_requests * SHARE_MIN {
                // Not seen in such calm lately: what was seen in more bustle does not count.
                self.bytes_per_ms.is_guess = true;
            }
            self.bytes_per_ms.observe(each);
            self.calm_requests = requests;
        } else {
            self.calm_requests *= CALM_GROWTH;
            let total = each * requests;
            if each < self.bytes_per_ms.value * SHARE_MIN {
                // One slow read is not believed at once.
                let unlimited = requests * self.bytes_per_ms.value;
                let link = self.link_bytes_per_ms.unwrap_or(unlimited);
                self.link_bytes_per_ms = Some(link + LINK_WEIGHT * (total - link));
            } else if let Some(link) = &mut self.link_bytes_per_ms {
                *link = link.max(total);
            }
        }
    }
}

#[cfg(test)]
mod tests;

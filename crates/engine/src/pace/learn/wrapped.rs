//! Fan-out of wrapped systems, whose sub-reads read open files of their own: what these cost to
//! connect counts, and whether a file has been read so much that it would have paid.

use super::{CostModel, FROM_MEMORY_MS, GAIN_MIN, Learner, Policy, TRIAL_FANOUT, TRIALS};

/// What a connection takes of an open that opened one: two of three round trips where it is
/// secured. How far the store is, is told by small reads only; until then this part of an open.
const CONNECTING_SHARE: f64 = 2.0 / 3.0;
/// Connections are opened for what they gain even if one brings so many times what it is thought
/// to bring, until that was seen.
const UNSEEN_BANDWIDTH: f64 = 4.0;

/// What is to be known of an open file before a read of it is split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FileState {
    /// In so many parts it can be read by open files that were read before.
    pub open_fanout: u64,
    /// The reader's own file has a connection: without, one plain read opens one as well.
    pub is_connected: bool,
    /// Bytes that were read of it so far.
    pub bytes_read: u64,
}

impl Learner {
    /// The fan-out of a read of a wrapped system, which is at most `limit`.
    pub fn choose_wrapped(&self, policy: &Policy, len: u64, limit: u64, file: &FileState) -> u64 {
        let chosen = self.choose(policy, len, limit, 1.0);
        if limit <= 1 || !policy.auto || !policy.adaptive {
            return chosen;
        }
        let open_limit = limit.min(file.open_fanout.max(1));
        if chosen > open_limit && !self.pays_to_connect(policy, len, chosen, file) {
            return self.choose(policy, len, open_limit, 1.0);
        }
        if chosen > 1 || !self.is_to_be_tried() || self.is_to_be_plain() {
            return chosen;
        }
        let free = CostModel { overhead_ms: 0.0, ..self.model(policy, 1.0) };
        let tried = free.best_fanout(len, limit.min(TRIAL_FANOUT));
        let is_open = file.open_fanout >= TRIAL_FANOUT;
        if is_open || self.has_earned(&free, len, tried, file) { tried } else { chosen }
    }

    /// Whether too few split reads have told yet what an extra request costs. With what it is
    /// thought to cost instead, no other might ever be split: many threads begin with split reads
    /// that are all cold.
    fn is_to_be_tried(&self) -> bool {
        self.knows_bandwidth() && self.judged < TRIALS
    }

    /// Whether this read alone, or as many bytes as were read of the file already, gain more than
    /// it takes to connect. A file that is read once more only is never much slower than without.
    fn pays_to_connect(&self, policy: &Policy, len: u64, fanout: u64, file: &FileState) -> bool {
        let mut model = self.model(policy, 1.0);
        if !self.knows_bandwidth() && file.is_connected {
            // What else another request costs is a guess as well; here its connection counts.
            let bytes_per_ms = model.bytes_per_ms * UNSEEN_BANDWIDTH;
            model = CostModel { bytes_per_ms, overhead_ms: 0.0, ..model };
        }
        let split_ms = model.read_ms(len, fanout) + self.connecting_ms(file);
        split_ms <= model.read_ms(len, 1) * (1.0 - GAIN_MIN)
            || self.has_earned(&model, len, fanout, file)
    }

    fn has_earned(&self, model: &CostModel, len: u64, fanout: u64, file: &FileState) -> bool {
        let gain_ms = model.read_ms(len, 1) - model.read_ms(len, fanout);
        let reads = file.bytes_read as f64 / len.max(1) as f64;
        reads > 0.0 && gain_ms > 0.0 && gain_ms * reads >= self.connecting_ms(file)
    }

    /// What a read waits for further connections that one plain read would not wait for.
    fn connecting_ms(&self, file: &FileState) -> f64 {
        if !file.is_connected {
            return 0.0;
        }
        match self.first_byte_ms.is_guess {
            true => self.open_ms.value * CONNECTING_SHARE,
            false => (self.open_ms.value - self.first_byte_ms.value).max(0.0),
        }
    }

    /// Opening a file took so long; whether there was a request in it, which tells how far the
    /// store is.
    pub fn observe_open(&mut self, took_ms: f64) -> bool {
        if took_ms < FROM_MEMORY_MS {
            return false;
        }
        self.open_ms.observe(took_ms);
        if self.first_byte_ms.is_guess {
            // The connection was opened as well, so this is a guess still.
            self.first_byte_ms = super::Average::guess(took_ms);
        }
        true
    }
}

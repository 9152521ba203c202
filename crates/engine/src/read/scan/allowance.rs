//! How much may be ahead of a scan. Pure.

use super::Scan;
use crate::query::WASTE_PARTS;

/// That many in any case: fewer than a round trip is worth on any link.
pub(super) const WASTE_BYTES_MIN: u64 = 256 << 10;
/// Once a row group is over, this much may be ahead whatever little was read so far.
const AHEAD_BYTES_MIN: u64 = 1 << 20;
/// A scan that begins anew this often is several at once: there is nothing to learn from it.
pub(super) const RESTARTS_MAX: u32 = 3;

impl Scan {
    /// So much may be ahead before it is known to go on.
    pub fn may_begin_with(&mut self, first_bytes: u64) {
        self.first_bytes = first_bytes;
    }

    /// Says that the scan may end before its files do.
    pub fn may_end_early(&mut self) {
        self.ends_early = true;
    }

    /// Bytes that may be ahead, given how many the link takes.
    pub fn allowed_bytes(&self, window_bytes: u64) -> u64 {
        if self.restarts > RESTARTS_MAX
            || self.wasted_bytes > WASTE_BYTES_MIN + self.read_bytes / WASTE_PARTS
        {
            0
        } else if self.told.is_some() {
            window_bytes
        } else if self.is_learned {
            // Of a glob no less than before it was known to go on: what lies ready for files far
            // ahead must not hold up what is found missing of the next one.
            window_bytes.min(self.read_bytes.max(AHEAD_BYTES_MIN)).max(self.first_bytes)
        } else {
            self.first_bytes
        }
    }

    /// Once row groups were skipped the next ones may be too, and of a scan that may end early all
    /// that follow: then no more is fetched of them than may be in vain.
    pub(super) fn bytes_max_outside(&self, bytes_max: u64) -> u64 {
        if self.skipped == 0 && !self.ends_early {
            return bytes_max;
        }
        let in_vain = WASTE_BYTES_MIN + self.read_bytes / WASTE_PARTS;
        bytes_max.min(in_vain.saturating_sub(self.wasted_bytes + self.pending_bytes))
    }
}

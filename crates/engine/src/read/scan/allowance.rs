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

    /// Says that whoever takes its rows may stop at any of them.
    pub fn may_be_left(&mut self) {
        self.may_be_left = true;
    }

    /// Bytes that may be ahead, given how many the link takes.
    pub fn allowed_bytes(&self, window_bytes: u64) -> u64 {
        if self.restarts > RESTARTS_MAX {
            return 0;
        }
        // What is in vain beyond a tenth comes off the window: so it never is more than a tenth and
        // a window, however the scan goes.
        let window_bytes = window_bytes.saturating_sub(self.owed_bytes());
        let is_owing = self.owed_bytes() > 0;
        if self.told.is_some() {
            window_bytes
        } else if self.is_learned {
            let allowed = window_bytes.min(self.read_bytes.max(AHEAD_BYTES_MIN));
            // Of a glob no less than before it was known to go on: what lies ready for files far
            // ahead must not hold up what is found missing of the next one.
            if is_owing { allowed } else { allowed.max(self.first_bytes) }
        } else if is_owing {
            0
        } else {
            self.first_bytes
        }
    }

    /// Bytes that may be in vain.
    fn in_vain_max(&self) -> u64 {
        WASTE_BYTES_MIN + self.read_bytes / WASTE_PARTS
    }

    /// Bytes that were in vain and should not have been. Until enough was read, only what is proven
    /// is expected.
    pub(super) fn owed_bytes(&self) -> u64 {
        self.wasted_bytes.saturating_sub(self.in_vain_max())
    }

    /// Of what may well be in vain, so much may be ahead.
    pub(super) fn bytes_max_doubted(&self) -> u64 {
        self.in_vain_max().saturating_sub(self.wasted_bytes + self.doubted_bytes)
    }

    /// Once row groups were skipped the next ones may be too, and of a scan that may end early, or
    /// whose filter is not known yet, all that follow: then no more is fetched of them than may be
    /// in vain.
    pub(super) fn bytes_max_outside(&self, bytes_max: u64) -> u64 {
        if self.skipped == 0 && !self.ends_early && !self.awaits_bound() {
            return bytes_max;
        }
        bytes_max.min(self.in_vain_max().saturating_sub(self.wasted_bytes + self.pending_bytes))
    }
}

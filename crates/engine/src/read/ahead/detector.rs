//! Which reads follow each other. Pure.

use penstock_base::ByteRange;

/// Larger reads go straight into the caller's buffer, as far as they are not here before.
pub(super) const STEP_BYTES_MAX: u64 = 1 << 20;

/// Notices runs of reads.
#[derive(Debug, Default)]
pub(super) struct Detector {
    pub next: Option<u64>,
    pub run_bytes: u64,
    /// The run began with the object.
    pub is_from_start: bool,
}

impl Detector {
    /// Takes note of reads that were under way at once, in whatever order they came.
    pub fn burst(&mut self, stretch: ByteRange) {
        self.next = self.next.max(Some(stretch.end));
        self.run_bytes = self.run_bytes.max(stretch.len());
    }

    /// Takes note of a read; bytes of the run that it continues, or 0. It may do so out of turn,
    /// where it `was_expected`.
    pub fn note(&mut self, range: ByteRange, was_expected: bool) -> u64 {
        let begins = range.start == 0 && is_large(range);
        let follows = was_expected || self.next == Some(range.start);
        self.is_from_start = if follows { self.is_from_start } else { range.start == 0 };
        self.next = self.next.filter(|_| was_expected).max(Some(range.end));
        self.run_bytes = match (follows, begins) {
            (true, _) => self.run_bytes + range.len(),
            (false, true) => range.len(),
            (false, false) => 0,
        };
        self.run_bytes
    }
}

/// Whether a read is too large to be fetched into memory of ours first.
pub(in crate::read) fn is_large(range: ByteRange) -> bool {
    range.len() > STEP_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    #[test]
    fn random_and_large_reads_are_no_run() {
        let mut detector = Detector::default();
        for read in [range(0, 10), range(50, 60), range(20, 30), range(60, 70)] {
            assert_eq!(detector.note(read, false), 0);
        }
        assert_eq!(detector.note(range(70, 90), false), 20);
        assert_eq!(detector.note(range(100, 101 + STEP_BYTES_MAX), false), 0);
    }

    #[test]
    fn a_large_read_of_the_beginning_is_a_run_and_threads_may_read_it_out_of_turn() {
        const STEP: u64 = 4 << 20;
        let step = |index: u64| range(index * STEP, (index + 1) * STEP);
        let mut detector = Detector::default();
        assert_eq!(detector.note(step(3), false), 0);
        for (index, was_expected) in [(0, false), (1, false), (3, true), (2, true)] {
            assert!(detector.note(step(index), was_expected) >= STEP, "{index}");
        }
        assert_eq!((detector.next, detector.run_bytes), (Some(4 * STEP), 4 * STEP));
        assert_eq!(detector.note(step(9), false), 0);
    }
}

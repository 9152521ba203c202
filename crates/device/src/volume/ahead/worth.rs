//! Whether reading ahead is worth it. Where a device carries out reads within the call (zram, or
//! memory that poses as a disk) it is the processor itself: a thread that reads ahead takes it from
//! the readers, and adds a copy. Linux's swapping reads nothing ahead there, either. Pure.

/// Fetches after which is judged.
const JUDGED: u32 = 16;
/// Fetches after which half of what was seen before is forgotten.
const REMEMBERED: u32 = 256;
/// It rests when fewer than one in so many fetches slept. Some do on any device: a ring's worker in
/// the kernel is tried now and then, and memory may have to be waited for.
const SLEEPING_SHARE: u32 = 4;
/// Pieces that are refused before it is tried again: a sixteenth of them is fetched in vain then.
const REFUSED: u32 = 16 * 4 * JUDGED;

/// What fetches showed of a device.
#[derive(Default)]
pub(super) struct Worth {
    fetches: u32,
    slept: u32,
    refused: u32,
}

impl Worth {
    /// Notes a fetch, and whether its thread slept until the device was done.
    pub(super) fn note(&mut self, has_slept: bool) {
        self.fetches += 1;
        self.slept += u32::from(has_slept);
        if self.fetches >= REMEMBERED {
            (self.fetches, self.slept) = (self.fetches / 2, self.slept / 2);
        }
    }

    /// Whether so many pieces should be fetched.
    pub(super) fn is_wanted(&mut self, pieces: usize) -> bool {
        if self.fetches < JUDGED || self.slept * SLEEPING_SHARE >= self.fetches {
            return true;
        }
        self.refused += pieces as u32;
        if self.refused >= REFUSED {
            *self = Worth::default();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(count: u32, has_slept: impl Fn(u32) -> bool) -> Worth {
        let mut worth = Worth::default();
        (0..count).for_each(|index| worth.note(has_slept(index)));
        worth
    }

    #[test]
    fn a_device_that_lets_threads_sleep_is_read_ahead() {
        for count in 0..2 * REMEMBERED {
            assert!(noted(count, |_| true).is_wanted(4), "after {count}");
            // It may be a fast one that had often ended before anybody could sleep.
            assert!(noted(count, |index| index % 3 == 0).is_wanted(4), "after {count}");
        }
    }

    #[test]
    fn one_that_is_the_processor_is_not_but_tried_again() {
        assert!(noted(JUDGED - 1, |_| false).is_wanted(4), "too few to tell");
        let mut worth = noted(JUDGED, |index| index == 3);
        let refused = (1..).find(|_| worth.is_wanted(4)).expect("it is tried again");
        assert_eq!(refused, REFUSED / 4 + 1);
        (0..JUDGED).for_each(|_| worth.note(false));
        assert!(!worth.is_wanted(4), "and as before");
        let mut changed = noted(3 * REMEMBERED, |_| false);
        (0..REMEMBERED).for_each(|_| changed.note(true));
        assert!(changed.is_wanted(4), "what was long ago does not count");
    }
}

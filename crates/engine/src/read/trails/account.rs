//! How much may be ahead of all trails together. Pure.
//!
//! Of one that has read for long a tenth of that may be in vain, as of every reader. To begin with
//! it *owes*: what is ahead of it, or was in vain, beyond that tenth. All of them together owe no
//! more than a start, and what those that are over have left of their tenths. So of all that was
//! read in ranges a tenth and that start are in vain at most, however many clients read two ranges
//! in a row and then elsewhere; and where they have used that up, one that goes on still has its
//! own tenth.

use crate::query::WASTE_PARTS;

/// What four clients have ahead to begin with.
pub(super) const START_BYTES: u64 = 64 << 20;

/// What one trail has read, what is ahead of it, and what was in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub read_bytes: u64,
    pub wasted_bytes: u64,
    pub pending_bytes: u64,
}

impl Standing {
    /// What of it its own tenth does not pay for.
    fn owed_bytes(&self) -> u64 {
        (self.wasted_bytes + self.pending_bytes).saturating_sub(self.read_bytes / WASTE_PARTS)
    }
}

/// Of all trails.
#[derive(Debug, Default)]
pub(super) struct Account {
    read_bytes: u64,
    wasted_bytes: u64,
    owed_bytes: u64,
    pending_bytes: u64,
}

impl Account {
    /// A range was read that belongs to no trail that goes on.
    pub fn read(&mut self, bytes: u64) {
        self.read_bytes = self.read_bytes.saturating_add(bytes);
    }

    /// How much a trail that stands so may owe.
    pub fn owed_bytes_max(&self, own: &Standing) -> u64 {
        let others_bytes = self.owed_bytes.saturating_sub(own.owed_bytes());
        (START_BYTES + self.read_bytes / WASTE_PARTS)
            .saturating_sub(self.wasted_bytes)
            .saturating_sub(others_bytes)
    }

    /// How much may be ahead of one that stands so, where no more than this may be of all.
    pub fn pending_bytes_max(&self, own: &Standing, all_bytes: u64) -> u64 {
        all_bytes.saturating_sub(self.pending_bytes.saturating_sub(own.pending_bytes))
    }

    /// A trail stood so before, and does so now.
    pub fn moved(&mut self, before: &Standing, now: &Standing) {
        self.owed_bytes = (self.owed_bytes + now.owed_bytes()).saturating_sub(before.owed_bytes());
        self.pending_bytes =
            (self.pending_bytes + now.pending_bytes).saturating_sub(before.pending_bytes);
    }

    /// A trail is over that stood so before, and has wasted so much in all.
    pub fn over(&mut self, before: &Standing, wasted_bytes: u64) {
        self.moved(before, &Standing::default());
        self.read_bytes = self.read_bytes.saturating_add(before.read_bytes);
        self.wasted_bytes = self.wasted_bytes.saturating_add(wasted_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn those_who_stop_soon_use_up_the_start_and_one_who_goes_on_keeps_its_tenth() {
        let mut account = Account::default();
        let two_ranges = Standing { read_bytes: 0, wasted_bytes: 0, pending_bytes: 16 * MIB };
        for _ in 0..4 {
            assert!(account.owed_bytes_max(&Standing::default()) >= 16 * MIB);
            account.moved(&Standing::default(), &two_ranges);
            account.over(&two_ranges, 16 * MIB);
        }
        let long = Standing { read_bytes: 100 * MIB, ..Standing::default() };
        assert_eq!(account.owed_bytes_max(&long), 0);
        account.read(50 * MIB);
        assert_eq!(account.owed_bytes_max(&long), 5 * MIB);
    }

    #[test]
    fn what_is_ahead_of_all_is_bounded() {
        let mut account = Account::default();
        let one = Standing { pending_bytes: 6 * MIB, ..Standing::default() };
        account.moved(&Standing::default(), &one);
        assert_eq!(account.pending_bytes_max(&one, 10 * MIB), 10 * MIB);
        assert_eq!(account.pending_bytes_max(&Standing::default(), 10 * MIB), 4 * MIB);
    }

    proptest! {
        /// Whatever they read and whenever they stop: what was in vain, and would be if all stopped
        /// now, is a tenth of all that was read and the start.
        #[test]
        fn never_more_is_in_vain_than_a_tenth_and_a_start(
            steps in prop::collection::vec(
                (0usize..12, 1u64..64 * MIB, 0u64..64 * MIB, 0u8..5, 0u64..=100), 1..400),
        ) {
            let mut account = Account::default();
            let mut trails = vec![Standing::default(); 12];
            let (mut read, mut wasted) = (0, 0);
            for (index, len, wanted, what, percent) in steps {
                read += len;
                let before = trails[index];
                match what {
                    0 => account.read(len),
                    1 => {
                        // Of what is ahead as much as has come is in vain.
                        read -= len;
                        let lost = before.pending_bytes * percent / 100;
                        wasted += lost;
                        account.over(&before, before.wasted_bytes + lost);
                        trails[index] = Standing::default();
                    }
                    _ => {
                        let used = before.pending_bytes * percent / 100;
                        let read_bytes = before.read_bytes + len;
                        let pending_bytes = before.pending_bytes - used;
                        let now = Standing { read_bytes, pending_bytes, ..before };
                        account.moved(&before, &now);
                        let most = read_bytes / WASTE_PARTS + account.owed_bytes_max(&now);
                        let room = most.saturating_sub(now.wasted_bytes + now.pending_bytes);
                        let pending_bytes = pending_bytes + room.min(wanted);
                        trails[index] = Standing { pending_bytes, ..now };
                        account.moved(&now, &trails[index]);
                    }
                }
                let pending: u64 = trails.iter().map(|trail| trail.pending_bytes).sum();
                prop_assert_eq!(pending, account.pending_bytes);
                let in_vain = wasted + pending;
                let most = read / WASTE_PARTS + START_BYTES;
                prop_assert!(in_vain <= most, "{} of {}", in_vain, read);
            }
        }
    }
}

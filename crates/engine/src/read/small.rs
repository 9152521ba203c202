//! Whether the small files of a glob are fetched whole when they are opened ahead. Pure.
//!
//! One request in place of a footer's and those for the columns, and bytes in vain where a
//! statement wants a file's footer only, or few of its columns. So a few files come whole, and more
//! as long as what came so is read.

use crate::query::WASTE_PARTS;

/// Most bytes of files that come whole and are not closed, before any was.
const TRIED_BYTES_MAX: u64 = 512 << 10;
/// That many may be in vain in any case.
const UNREAD_BYTES_MIN: u64 = 256 << 10;

/// What comes whole is read where so many times more of it was than was not.
const MOSTLY: u64 = 4;

/// What became of the files that came whole.
#[derive(Debug, Default)]
pub(super) struct Small {
    /// Of files that are not closed.
    pending_bytes: u64,
    read_bytes: u64,
    unread_bytes: u64,
}

impl Small {
    /// How many bytes of further files may come whole.
    pub fn bytes_max(&self) -> u64 {
        let Small { pending_bytes, read_bytes, unread_bytes } = *self;
        if unread_bytes > UNREAD_BYTES_MIN + read_bytes / WASTE_PARTS {
            0
        } else if read_bytes > MOSTLY * unread_bytes {
            u64::MAX
        } else {
            TRIED_BYTES_MAX.saturating_sub(pending_bytes)
        }
    }

    /// Takes note of a file that comes whole.
    pub fn asked(&mut self, bytes: u64) {
        self.pending_bytes += bytes;
    }

    /// Takes note that it is closed, and how much of it was read.
    pub fn closed(&mut self, bytes: u64, read_bytes: u64) {
        self.pending_bytes = self.pending_bytes.saturating_sub(bytes);
        self.read_bytes += read_bytes.min(bytes);
        self.unread_bytes += bytes.saturating_sub(read_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILE: u64 = 150 << 10;

    #[test]
    fn files_that_are_read_come_whole_and_others_do_not() {
        let mut small = Small::default();
        assert_eq!(small.bytes_max(), TRIED_BYTES_MAX);
        for _ in 0..3 {
            small.asked(FILE);
        }
        assert!(small.bytes_max() < FILE, "until one of them is closed");
        small.closed(FILE, FILE);
        assert_eq!(small.bytes_max(), u64::MAX);
        small.closed(FILE, 16 << 10);
        assert_eq!(small.bytes_max(), TRIED_BYTES_MAX - FILE, "one of two was");
        small.closed(FILE, 8 << 10);
        assert_eq!(small.bytes_max(), 0);
    }

    proptest! {
        /// However much of each file is read: what came whole in vain is little, or a tenth.
        #[test]
        fn what_is_in_vain_is_bounded(
            reads in prop::collection::vec(0u64..=100, 1..400), at_once in 1usize..8,
        ) {
            let (mut small, mut open) = (Small::default(), std::collections::VecDeque::new());
            let (mut read_bytes, mut unread_bytes) = (0, 0);
            for percent in reads {
                if open.len() == at_once {
                    let read: u64 = open.pop_front().unwrap();
                    small.closed(FILE, read);
                    read_bytes += read;
                    unread_bytes += FILE - read;
                }
                if small.bytes_max() >= FILE {
                    small.asked(FILE);
                    open.push_back(FILE * percent / 100);
                }
            }
            let bound = UNREAD_BYTES_MIN + read_bytes / WASTE_PARTS + at_once as u64 * FILE;
            prop_assert!(unread_bytes <= bound.max(TRIED_BYTES_MAX), "{unread_bytes}, {bound}");
        }
    }
}

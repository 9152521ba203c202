//! Whether the small files of a glob are fetched whole when they are opened ahead. Pure.
//!
//! Of Parquet: one request in place of a footer's and those for the columns, and bytes in vain
//! where a statement wants a file's footer only, or few of its columns. What it wants shows in the
//! files that it has closed, however they came; before any is, a few are tried. On a link that
//! brings much more in a round trip than what is tried, they are tried again, since that costs no
//! time.
//!
//! Of text, which is read front to back: one request in place of two, where a file is a little
//! longer than what opening fetches.

use crate::query::WASTE_PARTS;

/// Most bytes of files that come whole and are not closed, before any was.
const TRIED_BYTES_MAX: u64 = 512 << 10;
/// A link that brings so much in a round trip is not filled by what is tried.
pub(super) const LINK_BYTES_MAX: u64 = 4 * TRIED_BYTES_MAX;
/// That many may be in vain in any case.
const UNREAD_BYTES_MIN: u64 = 256 << 10;

/// Files are wanted whole where so many times more of them was read than was not.
const MOSTLY: u64 = 4;

/// Files of text come whole up to so many times what opening fetches.
const TEXT_PARTS: u64 = 4;

/// What became of files.
#[derive(Debug, Default)]
struct Tally {
    read_bytes: u64,
    unread_bytes: u64,
}

impl Tally {
    /// So much more of a file of so many bytes was read, which was counted `before` or was not.
    fn note(&mut self, bytes: u64, more_bytes: u64, before: bool) {
        let new_bytes = if before { 0 } else { bytes };
        self.read_bytes += more_bytes;
        self.unread_bytes = (self.unread_bytes + new_bytes).saturating_sub(more_bytes);
    }
}

/// What became of the small files of a glob.
#[derive(Debug, Default)]
pub(super) struct Small {
    /// Of files that came whole and are not closed.
    pending_bytes: u64,
    whole: Tally,
    all: Tally,
}

impl Small {
    /// How many bytes of further files may come whole, on a link that brings so many in a round
    /// trip, [`LINK_BYTES_MAX`] or more.
    pub fn bytes_max(&self, link_bytes: u64) -> u64 {
        let Small { pending_bytes, whole, all } = self;
        if whole.unread_bytes > UNREAD_BYTES_MIN + whole.read_bytes / WASTE_PARTS {
            0
        } else if all.read_bytes > MOSTLY * all.unread_bytes {
            u64::MAX
        } else if all.unread_bytes > 0 && link_bytes < LINK_BYTES_MAX {
            0
        } else {
            link_bytes.min(TRIED_BYTES_MAX).saturating_sub(*pending_bytes)
        }
    }

    /// Takes note of a file that comes whole.
    pub fn asked(&mut self, bytes: u64) {
        self.pending_bytes += bytes;
    }

    /// Takes note that a reader of a file is closed, and how much of the file was read by now;
    /// `before` is what was known of that, if another of its readers was closed already.
    pub fn closed(&mut self, bytes: u64, is_whole: bool, read_bytes: u64, before: Option<u64>) {
        let more_bytes = read_bytes.min(bytes).saturating_sub(before.unwrap_or(0));
        self.all.note(bytes, more_bytes, before.is_some());
        if is_whole {
            self.whole.note(bytes, more_bytes, before.is_some());
            if before.is_none() {
                self.pending_bytes = self.pending_bytes.saturating_sub(bytes);
            }
        }
    }
}

/// What became of the files of text of a glob.
#[derive(Debug, Default)]
pub(super) struct Text(Tally);

impl Text {
    /// Up to this length further ones come whole: as long as those before were read so, but for a
    /// tenth of what was read.
    pub fn bytes_max(&self, opening_bytes: u64) -> u64 {
        let Tally { read_bytes, unread_bytes } = self.0;
        let is_read = unread_bytes <= read_bytes / WASTE_PARTS;
        if is_read { opening_bytes.saturating_mul(TEXT_PARTS) } else { 0 }
    }

    /// As [`Small::closed`].
    pub fn closed(&mut self, bytes: u64, read_bytes: u64, before: Option<u64>) {
        let more_bytes = read_bytes.min(bytes).saturating_sub(before.unwrap_or(0));
        self.0.note(bytes, more_bytes, before.is_some());
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
        assert_eq!(small.bytes_max(LINK_BYTES_MAX), TRIED_BYTES_MAX);
        assert_eq!(small.bytes_max(FILE - 1), FILE - 1, "a slow link");
        for _ in 0..3 {
            small.asked(FILE);
        }
        assert!(small.bytes_max(LINK_BYTES_MAX) < FILE, "until one of them is closed");
        small.closed(FILE, true, FILE, None);
        assert_eq!(small.bytes_max(0), u64::MAX);
        small.closed(FILE, true, 16 << 10, None);
        assert_eq!(small.bytes_max(LINK_BYTES_MAX - 1), 0, "one of two was");
        assert_eq!(small.bytes_max(LINK_BYTES_MAX), TRIED_BYTES_MAX - FILE, "it costs no time");
        small.closed(FILE, true, FILE, Some(16 << 10));
        assert_eq!(small.bytes_max(0), u64::MAX, "it was read by its next reader");
        small.closed(FILE, true, 0, None);
        small.closed(FILE, true, 0, None);
        small.closed(FILE, true, 0, None);
        assert_eq!(small.bytes_max(LINK_BYTES_MAX), 0, "enough was in vain");
    }

    #[test]
    fn what_came_by_its_footer_tells_as_much() {
        let mut small = Small::default();
        small.closed(FILE, false, 16 << 10, None);
        assert_eq!(small.bytes_max(TRIED_BYTES_MAX), 0);
        assert_eq!(small.bytes_max(LINK_BYTES_MAX), TRIED_BYTES_MAX);
        small.closed(FILE, false, FILE, Some(16 << 10));
        assert_eq!(small.bytes_max(0), u64::MAX);
    }

    #[test]
    fn text_comes_whole_as_long_as_it_is_read() {
        let mut text = Text::default();
        assert_eq!(text.bytes_max(256 << 10), 1 << 20);
        text.closed(FILE, FILE, None);
        text.closed(FILE, FILE / 20, None);
        assert_eq!(text.bytes_max(256 << 10), 0, "its head was wanted");
        text.closed(FILE, FILE, Some(FILE / 20));
        assert_eq!(text.bytes_max(256 << 10), 1 << 20, "and then the rest");
        assert_eq!(text.bytes_max(0), 0);
    }

    proptest! {
        /// However much of each file is read, and by how many readers: what came whole in vain is
        /// little, or a tenth.
        #[test]
        fn what_is_in_vain_is_bounded(
            reads in prop::collection::vec((0u64..=100, 0u64..=100), 1..400), at_once in 1usize..8,
        ) {
            let (mut small, mut open) = (Small::default(), std::collections::VecDeque::new());
            let (mut read_bytes, mut unread_bytes) = (0, 0);
            for (percent, first_percent) in reads {
                if open.len() == at_once {
                    let (is_whole, first, read): (bool, u64, u64) = open.pop_front().unwrap();
                    small.closed(FILE, is_whole, first, None);
                    small.closed(FILE, is_whole, read, Some(first));
                    if is_whole {
                        read_bytes += read;
                        unread_bytes += FILE - read;
                    }
                }
                let is_whole = small.bytes_max(LINK_BYTES_MAX) >= FILE;
                if is_whole {
                    small.asked(FILE);
                }
                let read = FILE * percent / 100;
                open.push_back((is_whole, read * first_percent / 100, read));
            }
            let bound = UNREAD_BYTES_MIN + read_bytes / WASTE_PARTS + at_once as u64 * FILE;
            prop_assert!(unread_bytes <= bound.max(TRIED_BYTES_MAX), "{unread_bytes}, {bound}");
        }
    }
}

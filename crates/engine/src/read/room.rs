//! Memory that bytes land in: ours, for what is fetched ahead of reads, and the caller's.
//!
//! A page that is written first costs a trap and is filled with zeros: together four times what it
//! costs to copy into it. Ours comes in huge pages where the kernel has some; of the caller's,
//! which nobody may have touched yet, the kernel is asked for many pages at once, shortly before
//! they are written, so that they are still in the processor's cache then.

use bytes::{Bytes, BytesMut};
use penstock_device::{HUGE_PAGE_BYTES, LargeBuffer, populate};
use std::ops::{Deref, DerefMut};

/// So many bytes are taken from the kernel at once.
const STEP_BYTES: usize = 256 << 10;

/// Zero bytes to be filled.
#[derive(Debug)]
pub(super) enum Room {
    /// The allocator's, with all its pages where that is worth a call.
    Small(BytesMut),
    Large(LargeBuffer),
}

impl Room {
    pub fn of(bytes: u64) -> Self {
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        if length < HUGE_PAGE_BYTES {
            let mut bytes = BytesMut::zeroed(length);
            // The allocator may have taken it from the kernel just now.
            populate(&mut bytes);
            Room::Small(bytes)
        } else {
            Room::Large(LargeBuffer::new(length))
        }
    }

    /// To be shared.
    pub fn freeze(self) -> Bytes {
        match self {
            Room::Small(bytes) => bytes.freeze(),
            Room::Large(buffer) => Bytes::from_owner(buffer),
        }
    }
}

impl Deref for Room {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Room::Small(bytes) => bytes,
            Room::Large(buffer) => buffer,
        }
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Room::Small(bytes) => bytes,
            Room::Large(buffer) => buffer,
        }
    }
}

/// A caller's buffer, of which the kernel gave the pages as far as `ready` tells.
#[derive(Debug, Default)]
pub(super) struct Pages {
    ready: usize,
}

impl Pages {
    /// What is to be written next of a buffer that is filled so far; of its beginning the pages are
    /// there.
    pub fn next<'a>(&mut self, buf: &'a mut [u8], filled: usize) -> &'a mut [u8] {
        if filled >= self.ready {
            let end = buf.len().min(filled.saturating_add(STEP_BYTES));
            populate(&mut buf[filled..end]);
            self.ready = end;
        }
        &mut buf[filled..]
    }
}

/// Copies into a caller's buffer of the same length.
pub(crate) fn copy_into(buf: &mut [u8], bytes: &[u8]) {
    for (into, from) in buf.chunks_mut(STEP_BYTES).zip(bytes.chunks(STEP_BYTES)) {
        populate(into);
        into.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_and_large_rooms_are_zero_and_keep_what_is_written() {
        for length in [0, 1, HUGE_PAGE_BYTES - 1, HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES + 5] {
            let mut room = Room::of(length as u64);
            assert_eq!(room.len(), length);
            assert!(room.iter().all(|byte| *byte == 0));
            room.fill(3);
            let bytes = room.freeze();
            assert_eq!(bytes.len(), length);
            assert!(bytes.iter().all(|byte| *byte == 3));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// However it is filled, nothing is lost, and all of what is given is the rest.
        #[test]
        fn pages_of_a_buffer_change_no_byte(
            length in 0usize..2_000_000, steps in prop::collection::vec(1usize..700_000, 1..12),
        ) {
            let wanted: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
            let (mut buf, mut filled, mut pages) = (vec![0; length], 0, Pages::default());
            for step in steps.iter().cycle().take(10_000) {
                if filled == length {
                    break;
                }
                let rest = pages.next(&mut buf, filled);
                prop_assert_eq!(rest.len(), length - filled);
                let count = rest.len().min(*step);
                rest[..count].copy_from_slice(&wanted[filled..filled + count]);
                filled += count;
            }
            prop_assert_eq!(&buf[..filled], &wanted[..filled]);
            let mut copied = vec![0; length];
            copy_into(&mut copied, &wanted);
            prop_assert_eq!(copied, wanted);
        }
    }
}

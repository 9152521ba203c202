//! How large the buffers are through which the bytes of answers pass.
//!
//! A client that takes its answer slowly holds as many of them as wait to be sent. What comes in
//! small pieces would keep a large buffer for each, and many clients would hold much together: so
//! a buffer is not much larger than what came before, and all share one budget.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes per piece: large enough that the read costs more than the hop, small enough to stay in
/// the processor's second-level cache on its way from file to socket.
const PIECE_BYTES_MAX: usize = 256 << 10;
/// Fewest that are worth a call.
const PIECE_BYTES_MIN: usize = 32 << 10;
/// One piece of each body, as long as each has the least.
const PIECE_BYTES_ALL: usize = 16 << 20;

/// Bodies whose bytes pass through buffers at this moment.
static PASSING: AtomicUsize = AtomicUsize::new(0);

/// Most bytes of one piece among so many bodies.
fn bytes_each(bodies: usize) -> usize {
    let share = PIECE_BYTES_ALL / bodies.max(1);
    1 << share.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX).ilog2()
}

/// The size of the piece behind one of `size` bytes of which `filled` came.
fn following(size: usize, filled: usize, most: usize) -> usize {
    let wanted = if filled == size { 2 * size } else { 2 * filled };
    wanted.next_power_of_two().clamp(PIECE_BYTES_MIN, most)
}

/// The buffers of one body. It counts from its first read on.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Of the next one; 0 before the first.
    size: usize,
}

impl Pieces {
    /// How large the next buffer is.
    pub fn size(&mut self) -> usize {
        if self.size == 0 {
            PASSING.fetch_add(1, Ordering::Relaxed);
            self.size = PIECE_BYTES_MAX;
        }
        self.size = self.size.min(bytes_each(PASSING.load(Ordering::Relaxed)));
        self.size
    }

    /// So much came of it.
    pub fn came(&mut self, filled: usize) {
        let most = bytes_each(PASSING.load(Ordering::Relaxed));
        self.size = following(self.size, filled, most);
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        if self.size > 0 {
            PASSING.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_buffer_is_as_large_as_what_comes() {
        let mut pieces = Pieces::default();
        let first = pieces.size();
        pieces.came(1000);
        assert_eq!(pieces.size(), PIECE_BYTES_MIN);
        for _ in 0..10 {
            let size = pieces.size();
            pieces.came(size);
        }
        assert_eq!(pieces.size(), first);
        let others: Vec<_> = (0..600).map(|_| Pieces { size: 1 }).collect();
        PASSING.fetch_add(600, Ordering::Relaxed);
        assert_eq!(pieces.size(), PIECE_BYTES_MIN, "many share");
        drop(others);
    }

    proptest! {
        #[test]
        fn pieces_stay_within_one_budget(bodies in 1usize..100_000) {
            let each = bytes_each(bodies);
            prop_assert!(each * bodies <= PIECE_BYTES_ALL || each == PIECE_BYTES_MIN);
            prop_assert!((PIECE_BYTES_MIN..=PIECE_BYTES_MAX).contains(&each));
            prop_assert!(each >= bytes_each(bodies + 1));
        }

        /// What is held of a piece is less than four times what it brought, or the least.
        #[test]
        fn a_buffer_is_not_much_larger_than_what_came_before(
            filled in 1usize..=PIECE_BYTES_MAX,
            most in 15u32..19,
        ) {
            let next = following(PIECE_BYTES_MAX, filled, 1 << most);
            prop_assert!(next < 4 * filled || next == PIECE_BYTES_MIN);
            prop_assert!((PIECE_BYTES_MIN..=1 << most).contains(&next));
            let grown = following(next, next, 1 << most);
            prop_assert_eq!(grown, (2 * next).min(1 << most));
        }
    }
}

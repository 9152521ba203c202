//! What is held of a body until it is written.

use bytes::{Bytes, BytesMut};

/// A piece that is shorter than this is copied.
const SMALL_BYTES: usize = 4 << 10;

/// Pieces in order. Small ones are copied behind each other: each would keep the buffer that it was
/// read into, thousands of bytes for one.
#[derive(Debug, Default)]
pub(super) struct Held {
    pieces: Vec<Bytes>,
    /// The small ones behind those.
    small: BytesMut,
    bytes: usize,
}

impl Held {
    /// Takes the next piece.
    pub fn push(&mut self, piece: Bytes) {
        self.bytes += piece.len();
        if piece.len() < SMALL_BYTES {
            self.small.extend_from_slice(&piece);
            return;
        }
        self.end_small();
        self.pieces.push(piece);
    }

    /// How many bytes are held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// All of it, to be written.
    pub fn take(&mut self) -> Vec<Bytes> {
        self.end_small();
        self.bytes = 0;
        std::mem::take(&mut self.pieces)
    }

    fn end_small(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(self.small.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_come_back_in_order_and_small_ones_together(
            sizes in prop::collection::vec(prop_oneof![0usize..10, 4000usize..5000], 0..40),
        ) {
            let (mut held, mut all) = (Held::default(), Vec::new());
            for (number, size) in sizes.iter().enumerate() {
                let piece = vec![number as u8; *size];
                all.extend_from_slice(&piece);
                held.push(piece.into());
                prop_assert_eq!(held.bytes(), all.len());
            }
            let pieces = held.take();
            prop_assert_eq!(pieces.concat(), all);
            let is_small = |piece: &Bytes| piece.len() < SMALL_BYTES;
            let large = sizes.iter().filter(|size| **size >= SMALL_BYTES).count();
            prop_assert!(pieces.len() <= 2 * large + 1, "none stands alone beside small ones");
            prop_assert!(!pieces.windows(2).any(|two| is_small(&two[0]) && is_small(&two[1])));
            prop_assert_eq!((held.bytes(), held.take()), (0, Vec::new()));
        }
    }
}

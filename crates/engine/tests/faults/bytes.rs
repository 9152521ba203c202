//! What objects hold: pieces of one long run of bytes in which no two places look alike.

use penstock_testkit::fake::data::{Data, Piece};
use std::sync::LazyLock;

const ALL_BYTES: usize = 24 << 20;

static ALL: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut all = Vec::with_capacity(ALL_BYTES);
    let mut state = 0u64;
    while all.len() < ALL_BYTES {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        all.extend_from_slice(&(mixed ^ (mixed >> 27)).to_le_bytes());
    }
    all
});

/// The content of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    from: usize,
    pub len: usize,
}

impl Content {
    /// `from` tells contents of one length apart.
    pub fn new(from: u64, len: u64) -> Self {
        let len = len as usize;
        Content { from: from as usize % (ALL_BYTES - len), len }
    }

    pub fn bytes(&self) -> &'static [u8] {
        &ALL[self.from..self.from + self.len]
    }

    /// Whether a server holds just this.
    pub fn is(&self, held: &Data) -> bool {
        let mut left = self.bytes();
        for piece in &held.0 {
            let Piece::Memory(bytes) = piece else { panic!("the fake keeps all in memory") };
            match left.strip_prefix(&bytes[..]) {
                Some(rest) => left = rest,
                None => return false,
            }
        }
        left.is_empty()
    }
}

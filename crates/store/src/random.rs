//! Random bytes for names that must never meet: temporary files, upload ids.

use ring::rand::{SecureRandom, SystemRandom};

/// Bytes from the operating system.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the operating system has random bytes");
    bytes
}

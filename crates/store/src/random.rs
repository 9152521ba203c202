//! Random bytes for names that must never meet (temporary files, upload ids), and how such names
//! are spelt.

use ring::rand::{SecureRandom, SystemRandom};

/// Bytes from the operating system.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the operating system has random bytes");
    bytes
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

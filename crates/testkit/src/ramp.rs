//! Deterministic bytes whose value tells their position, so that any misplaced byte shows.

use bytes::Bytes;

/// The byte of stream `seed` at `position`. Neighbouring pages, parts and streams all differ.
pub fn byte_at(seed: u64, position: u64) -> u8 {
    let mixed = (position / 8 + 1)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add(seed.wrapping_mul(0xD1B5_4A32_D192_ED03));
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> (8 * (position % 8))) as u8
}

/// Bytes `start..start + len` of stream `seed`.
pub fn ramp(seed: u64, start: u64, len: u64) -> Bytes {
    (start..start + len).map(|position| byte_at(seed, position)).collect()
}

/// Where `got` first differs from stream `seed` read at `start`, as a sentence; `None` if nowhere.
pub fn first_difference(got: &[u8], seed: u64, start: u64) -> Option<String> {
    got.iter().zip(start..).find(|(byte, position)| **byte != byte_at(seed, *position)).map(
        |(byte, position)| {
            format!(
                "byte {position} is {byte:#04x}, expected {:#04x} (reply offset {})",
                byte_at(seed, position),
                position - start
            )
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_positions_differ() {
        let a = ramp(1, 0, 4096);
        assert_ne!(a, ramp(2, 0, 4096));
        assert_ne!(a, ramp(1, 8, 4096));
        assert_eq!(a.slice(100..200), ramp(1, 100, 100));
    }

    #[test]
    fn difference_names_the_position() {
        let mut bytes = ramp(1, 50, 20).to_vec();
        assert_eq!(first_difference(&bytes, 1, 50), None);
        bytes[3] ^= 1;
        assert!(first_difference(&bytes, 1, 50).unwrap().starts_with("byte 53 "));
    }
}

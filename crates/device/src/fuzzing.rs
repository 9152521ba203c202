//! What a fuzzer feeds bytes to: every parser here of what a disk holds, a device tells or a user
//! names.
//!
//! A body takes any bytes, must come back, and asserts what has to hold of whatever was parsed.
//! `fuzz/` runs the bodies under libFuzzer; the tests below run the same ones in every
//! `cargo test`.

use crate::address::Address;

/// Takes any bytes.
pub type Body = fn(&[u8]);

/// Every body by name, each with an input from which a fuzzer may begin.
pub const BODIES: &[(&str, Body, &[u8])] = &[
    (
        // Behind what makes it a table: generation, identity, pages, their size, files, unused;
        // then one file of one extent.
        "volume_table",
        crate::volume::table::fuzz,
        b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x10\0\0\x01\0\0\0\
          \0\0\0\0\0\0\0\0\x02\0db\0\x10\0\0\0\0\0\0\x01\0\0\0\0\x02\0\0\0\0\0\0\x01\0\0\0\0\0\0\0",
    ),
    (
        "volume_url",
        url,
        b"nvme:///dev/ng0n1?db=sales&io=passthrough&queues=thread&depth=32&wait=poll",
    ),
    ("nvme_identify", crate::nvme::fuzz, &[9; 64]),
];

fn url(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    for parsed in [Address::parse(text), Address::parse_any(text)].into_iter().flatten() {
        let (device, asked) = (parsed.device.clone(), parsed.asked);
        if let Ok(canonical) = parsed.canonical(&device, asked) {
            let again = Address::parse_any(&canonical).expect("what it writes it reads");
            assert_eq!(again.canonical(&device, asked).ok(), Some(canonical));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    penstock_testkit::fuzzed!(BODIES);
}

//! What a fuzzer feeds bytes to: every parser here of what a store sends or a disk holds.
//!
//! A body takes any bytes, must come back, and asserts what has to hold of whatever was parsed.
//! `fuzz/` runs the bodies under libFuzzer; the tests below run the same ones in every
//! `cargo test`.

/// Takes any bytes.
pub type Body = fn(&[u8]);

/// Every body by name, each with an input from which a fuzzer may begin.
pub const BODIES: &[(&str, Body, &[u8])] = &[
    (
        // FileMetaData with one row group of one column chunk of 40 bytes at 4.
        "parquet_footer",
        crate::read::fuzz_footer,
        b"\x49\x1c\x19\x1c\x3c\x96\x50\x56\x08\x00\x00\x00\x00\x00",
    ),
    (
        "cache_record",
        crate::cache::fuzz_record,
        b"\x06\0\x01\0\x09\0\0\0abcd\0\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\0\0\0\0s3://be",
    ),
    (
        "glob_pattern",
        crate::names::fuzz_pattern,
        b"s3://b/a{1,2}/[!x-z]?*/**/\\*.parquet\na1/c/d/*.parquet",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    penstock_testkit::fuzzed!(BODIES);
}

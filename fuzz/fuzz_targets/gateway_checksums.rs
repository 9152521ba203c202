//! Feeds the body `gateway_checksums` of crates/gateway/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("gateway_checksums"), |input: &[u8]| {
    penstock_fuzz::feed("gateway_checksums", input);
});

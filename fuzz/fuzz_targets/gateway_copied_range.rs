//! Feeds the body `gateway_copied_range` of crates/gateway/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("gateway_copied_range"), |input: &[u8]| {
    penstock_fuzz::feed("gateway_copied_range", input);
});

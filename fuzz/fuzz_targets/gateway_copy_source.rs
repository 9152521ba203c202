//! Feeds the body `gateway_copy_source` of crates/gateway/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("gateway_copy_source"), |input: &[u8]| {
    penstock_fuzz::feed("gateway_copy_source", input);
});

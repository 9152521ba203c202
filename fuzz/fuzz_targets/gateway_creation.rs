//! Feeds the body `gateway_creation` of crates/gateway/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("gateway_creation"), |input: &[u8]| {
    penstock_fuzz::feed("gateway_creation", input);
});

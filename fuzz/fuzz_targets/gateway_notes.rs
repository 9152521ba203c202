//! Feeds the body `gateway_notes` of crates/gateway/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("gateway_notes"), |input: &[u8]| {
    penstock_fuzz::feed("gateway_notes", input);
});

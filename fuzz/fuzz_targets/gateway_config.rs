//! Feeds the body `gateway_config` of crates/gateway/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("gateway_config"), |input: &[u8]| {
    penstock_fuzz::feed("gateway_config", input);
});

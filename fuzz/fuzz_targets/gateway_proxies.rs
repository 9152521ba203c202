//! Feeds the body `gateway_proxies` of crates/gateway/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("gateway_proxies"), |input: &[u8]| {
    penstock_fuzz::feed("gateway_proxies", input);
});

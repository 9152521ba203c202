//! Feeds the body `http_proxy` of crates/store/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("http_proxy"), |input: &[u8]| {
    penstock_fuzz::feed("http_proxy", input);
});

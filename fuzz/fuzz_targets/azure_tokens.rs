//! Feeds the body `azure_tokens` of crates/store/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("azure_tokens"), |input: &[u8]| {
    penstock_fuzz::feed("azure_tokens", input);
});

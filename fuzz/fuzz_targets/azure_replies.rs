//! Feeds the body `azure_replies` of crates/store/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("azure_replies"), |input: &[u8]| {
    penstock_fuzz::feed("azure_replies", input);
});

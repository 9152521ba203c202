//! Feeds the body `azure_batch` of crates/store/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("azure_batch"), |input: &[u8]| {
    penstock_fuzz::feed("azure_batch", input);
});

//! Feeds the body `file_attributes` of crates/store/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("file_attributes"), |input: &[u8]| {
    penstock_fuzz::feed("file_attributes", input);
});

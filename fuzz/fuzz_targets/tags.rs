//! Feeds the body `tags` of crates/store/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("tags"), |input: &[u8]| {
    penstock_fuzz::feed("tags", input);
});

//! Feeds the body `s3_markers` of crates/store/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("s3_markers"), |input: &[u8]| {
    penstock_fuzz::feed("s3_markers", input);
});

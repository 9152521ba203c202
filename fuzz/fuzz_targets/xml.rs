//! Feeds the body `xml` of crates/store/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("xml"), |input: &[u8]| {
    penstock_fuzz::feed("xml", input);
});

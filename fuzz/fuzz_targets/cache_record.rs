//! Feeds the body `cache_record` of crates/engine/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("cache_record"), |input: &[u8]| {
    penstock_fuzz::feed("cache_record", input);
});

//! Feeds the body `glob_pattern` of crates/engine/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("glob_pattern"), |input: &[u8]| {
    penstock_fuzz::feed("glob_pattern", input);
});

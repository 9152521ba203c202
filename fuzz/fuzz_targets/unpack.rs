//! Feeds the body `unpack` of crates/store/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("unpack"), |input: &[u8]| {
    penstock_fuzz::feed("unpack", input);
});

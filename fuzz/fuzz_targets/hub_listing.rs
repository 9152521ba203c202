//! Feeds the body `hub_listing` of crates/store/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("hub_listing"), |input: &[u8]| {
    penstock_fuzz::feed("hub_listing", input);
});

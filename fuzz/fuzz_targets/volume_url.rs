//! Feeds the body `volume_url` of crates/device/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("volume_url"), |input: &[u8]| {
    penstock_fuzz::feed("volume_url", input);
});

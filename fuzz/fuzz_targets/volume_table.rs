//! Feeds the body `volume_table` of crates/device/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("volume_table"), |input: &[u8]| {
    penstock_fuzz::feed("volume_table", input);
});

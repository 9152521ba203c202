//! Feeds the body `nvme_identify` of crates/device/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("nvme_identify"), |input: &[u8]| {
    penstock_fuzz::feed("nvme_identify", input);
});

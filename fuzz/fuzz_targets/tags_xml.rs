//! Feeds the body `tags_xml` of crates/store/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("tags_xml"), |input: &[u8]| {
    penstock_fuzz::feed("tags_xml", input);
});

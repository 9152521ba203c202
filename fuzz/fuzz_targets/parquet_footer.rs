//! Feeds the body `parquet_footer` of crates/engine/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(init: penstock_fuzz::seed("parquet_footer"), |input: &[u8]| {
    penstock_fuzz::feed("parquet_footer", input);
});

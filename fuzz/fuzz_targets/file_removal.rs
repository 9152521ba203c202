//! Feeds the body `file_removal` of crates/store/src/fuzzing.rs.
#![no_main]

use penstock_store::fuzzing::BODIES;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    for (name, body, _) in BODIES {
        if *name == "file_removal" {
            body(input);
        }
    }
});

//! Feeds the body `gateway_traceparent` of crates/gateway/src/fuzzing.rs.
#![no_main]

use penstock_gateway::fuzzing::BODIES;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    for (name, body, _) in BODIES {
        if *name == "gateway_traceparent" {
            body(input);
        }
    }
});

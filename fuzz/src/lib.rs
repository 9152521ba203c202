//! What every target does: finds its body among those of the crates, and feeds it.

use penstock_device::fuzzing as device;
use penstock_engine::fuzzing as engine;
use penstock_gateway::fuzzing as gateway;
use penstock_store::fuzzing as store;
use std::path::Path;

/// A body takes any bytes, and asserts what has to hold.
type Row = (&'static str, fn(&[u8]), &'static [u8]);

fn row(name: &str) -> Row {
    let rows = store::BODIES.iter().chain(engine::BODIES).chain(device::BODIES);
    let mut rows = rows.chain(gateway::BODIES);
    *rows.find(|row| row.0 == name).unwrap_or_else(|| panic!("no crate has a body {name}"))
}

/// Puts the input from which a fuzzer may begin where PENSTOCK_FUZZ_SEEDS says, if it does.
pub fn seed(name: &str) {
    if let Some(directory) = std::env::var_os("PENSTOCK_FUZZ_SEEDS") {
        let at = Path::new(&directory).join("seed");
        let written = std::fs::write(&at, row(name).2);
        written.unwrap_or_else(|error| panic!("{}: {error}", at.display()));
    }
}

/// Feeds a body.
pub fn feed(name: &str, input: &[u8]) {
    (row(name).1)(input);
}

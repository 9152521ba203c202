//! Pages go from what spills to what lasts and back, on a real file: neither ever gives the other's
//! bytes, though what spills is written later.

use crate::shadow::{CREATE, Disk, EXISTING, pattern};
use penstock_device::Io;
use penstock_device::model::Dice;
use penstock_device::volume::File;
use std::collections::BTreeMap;

const BLOCK: usize = 256 << 10;
const VOLUME_BYTES: u64 = 24 << 20;

fn check(file: &File, live: &[u8]) {
    let mut bytes = vec![1; live.len()];
    assert_eq!(file.read_at(&mut bytes, 0).expect("reads"), live.len());
    assert!(bytes == live, "{}", file.name());
}

#[test]
fn pages_go_from_one_kind_to_the_other_and_hold_what_was_written_last() {
    for (seed, io) in [(1, Io::Uring), (2, Io::Direct), (3, Io::Uring), (4, Io::Direct)] {
        let disk = Disk::new(&format!("spilled-{seed}"), VOLUME_BYTES);
        let mut dice = Dice::new(seed);
        let volume = disk.open(io, true).expect("opens");
        let mut live: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for step in 0..300 {
            let number = dice.roll() % 3;
            let name = match dice.roll() % 2 {
                0 => format!("db{number}"),
                _ => format!("temp/{number}"),
            };
            match dice.roll() % 10 {
                0 if live.contains_key(&name) => {
                    volume.remove(&name).expect("removes");
                    live.remove(&name);
                }
                1 if live.contains_key(&name) => {
                    let file = volume.open_file(&name, EXISTING).expect("opens");
                    let bytes = live.get_mut(&name).expect("it is there");
                    bytes.truncate(bytes.len() / 2);
                    file.truncate(bytes.len() as u64).expect("truncates");
                }
                2 if live.contains_key(&name) => {
                    let file = volume.open_file(&name, EXISTING).expect("opens");
                    file.sync().expect("syncs");
                }
                _ => {
                    let bytes = live.entry(name.clone()).or_default();
                    let file = volume.open_file(&name, CREATE).expect("opens");
                    // Blocks mostly, and now and then a few bytes anywhere.
                    let (at, length) = match dice.roll() % 4 {
                        0 => (dice.roll() as usize % (3 << 20), dice.roll() as usize % 9000),
                        _ => (dice.roll() as usize % 12 * BLOCK, BLOCK),
                    };
                    if bytes.len() < at + length {
                        bytes.resize(at + length, 0);
                    }
                    let written = pattern(length, &mut dice);
                    file.write_at(&written, at as u64).expect("writes");
                    bytes[at..at + length].copy_from_slice(&written);
                }
            }
            if step % 10 == 0 {
                for (name, bytes) in &live {
                    check(&volume.open_file(name, EXISTING).expect("is there"), bytes);
                }
            }
        }
        for name in live.keys() {
            volume.open_file(name, EXISTING).expect("is there").sync().expect("syncs");
        }
        drop(volume);
        // Past every cache, and through the page cache.
        for io in [Io::Direct, Io::File] {
            let volume = disk.open(io, true).expect("opens");
            let lasting: Vec<_> = live.iter().filter(|row| row.0.starts_with("db")).collect();
            assert_eq!(volume.list().len(), lasting.len(), "what spilled is gone");
            for (name, bytes) in lasting {
                check(&volume.open_file(name, EXISTING).expect("is there"), bytes);
            }
        }
    }
}

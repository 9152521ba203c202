//! Pages go from what spills to what lasts and back, on a real file: neither ever gives the other's
//! bytes, though what spills is written later.

use crate::held::Bound;
use crate::shadow::{CREATE, Disk, EXISTING, content, device, formatted, pattern};
use penstock_base::{Error, Kind, Result};
use penstock_device::model::{Dice, ModelDevice};
use penstock_device::volume::{File, Volume};
use penstock_device::{Command, Device, Discipline, Geometry, Io, Meter, Ownership, Port, Queue};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

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
        // So little that most of what spills is written meanwhile.
        volume.charge(|_| Arc::new(Bound::of(1 << 20)));
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

/// What [`Slow`] and those who use it have come to.
const QUICK: u8 = 0;
const ARMED: u8 = 1;
const WRITING: u8 = 2;
const CUT: u8 = 3;

/// How often others get a turn while a write is on its way.
const TURNS: u32 = 2000;

/// A model whose next write, once it is armed, gives others time to cut the file, and fails.
struct Slow(Arc<ModelDevice>, Arc<AtomicU8>);

struct SlowQueue(Box<dyn Queue>, Arc<AtomicU8>);

impl Device for Slow {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }

    fn open_queue(&self, ownership: Ownership) -> Result<Box<dyn Queue>> {
        Ok(Box::new(SlowQueue(self.0.open_queue(ownership)?, self.1.clone())))
    }
}

impl Queue for SlowQueue {
    fn run(&mut self, commands: &mut [Command<'_>], meter: &Meter) -> Result<()> {
        let is_write = matches!(commands.first(), Some(Command::Write { .. }));
        let (order, failed) = (Ordering::AcqRel, Ordering::Acquire);
        if !is_write || self.1.compare_exchange(ARMED, WRITING, order, failed).is_err() {
            return self.0.run(commands, meter);
        }
        for _ in 0..TURNS {
            if self.1.load(Ordering::Acquire) == CUT {
                break;
            }
            std::thread::yield_now();
        }
        Err(Error::new(Kind::Unavailable, "the device fails"))
    }
}

/// Pages whose write failed become holes, but none of a file that was cut meanwhile: there they
/// would be in the way of the pages that it grows by next.
#[test]
fn a_write_that_fails_beside_a_truncation_leaves_nothing_behind_the_end() {
    for name in ["temp/a", "db"] {
        let turn = Arc::new(AtomicU8::new(QUICK));
        let slow = Slow(device(4096, formatted(4096)).0, turn.clone());
        let port = Port::new(Arc::new(slow), Discipline::Thread).expect("opens");
        let volume = Volume::open(port).expect("opens");
        let file = volume.open_file(name, CREATE).expect("creates");
        file.write_at(&[1; 8192], 0).expect("writes");
        turn.store(ARMED, Ordering::Release);
        std::thread::scope(|scope| {
            scope.spawn(|| file.write_at(&[2; 65_536], 8192).expect_err("the device fails"));
            while turn.load(Ordering::Acquire) != WRITING {
                std::thread::yield_now();
            }
            file.truncate(8192).expect("cuts");
            turn.store(CUT, Ordering::Release);
        });
        file.write_at(&[3; 100], 40_960).expect("grows, with a gap before");
        file.write_at(&[4; 8192], 49_152).expect("grows again");
        let found = content(&volume, name);
        assert_eq!(found.len(), 57_344, "{name}");
        for (at, byte) in found.iter().enumerate() {
            let wanted = match at {
                ..8192 => 1,
                40_960..41_060 => 3,
                49_152.. => 4,
                _ => 0,
            };
            assert_eq!(*byte, wanted, "{name} at {at}");
        }
    }
}

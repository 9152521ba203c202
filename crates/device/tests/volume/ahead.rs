//! Files that are read ahead, or written behind, give what was written last.

use crate::shadow::{CREATE, EXISTING, device, formatted, pattern};
use penstock_base::{DeviceMetric, Kind};
use penstock_device::meter::readings;
use penstock_device::model::{Dice, Failure};
use penstock_device::volume::{File, FormatOptions, SharedVolume, Volume, format};
use penstock_device::{Discipline, Io, MemoryDevice, OpenOptions, Port, open};
use std::sync::Arc;

const BLOCK: usize = 256 << 10;
const BLOCKS: usize = 24;
/// As in DuckDB's files, blocks begin behind three headers.
const FIRST: usize = 12288;

fn in_memory() -> Arc<Volume> {
    let device = MemoryDevice::new(4096, 16 << 8, BLOCK as u32).expect("the sizes are right");
    let port = Port::new(Arc::new(device), Discipline::Thread).expect("memory has queues");
    format(&port, FormatOptions::default()).expect("it is empty");
    Volume::open_with_helpers(port).expect("opens")
}

fn read(file: &File, offset: usize, length: usize) -> Vec<u8> {
    let mut into = vec![0; length];
    let count = file.read_at(&mut into, offset as u64).expect("reads");
    into.truncate(count);
    into
}

#[test]
fn a_scan_is_fetched_by_a_thread_of_the_volume() {
    let path = std::env::temp_dir().join(format!("penstock-ahead-{}", std::process::id()));
    let options = OpenOptions { create_bytes: Some(16 << 20), ..OpenOptions::new(Io::Uring) };
    let port = Port::new(open(&path, &options).expect("makes the file"), Discipline::Sync);
    format(&port.expect("has queues"), FormatOptions::default()).expect("it is empty");
    let volume = SharedVolume::open(&path, &options, Discipline::Thread).expect("opens");
    let bytes = pattern(FIRST + BLOCKS * BLOCK, &mut Dice::new(7));
    let file = volume.open_file("db", CREATE).expect("creates");
    file.write_at(&bytes, 0).expect("writes");
    let name = path.display().to_string();
    let queues = || {
        let rows = readings().1.into_iter().filter(|row| row.device == name && row.queue.is_some());
        rows.filter(|row| row.reading.get(DeviceMetric::Reads) > 0).count()
    };
    for index in 0..BLOCKS {
        let at = FIRST + index * BLOCK;
        assert!(read(&file, at, BLOCK) == bytes[at..at + BLOCK], "block {index}");
        // After the fourth block there is something to fetch that nobody else reads.
        while index == 3 && queues() < 2 {
            std::thread::yield_now();
        }
    }
    drop(file);
    drop(volume);
    // Nothing holds the device any more.
    open(&path, &options).expect("opens again");
    std::fs::remove_file(&path).expect("removes");
}

#[test]
fn what_was_written_is_read_also_where_it_was_fetched_before() {
    for seed in 0..30 {
        let (volume, mut dice) = (in_memory(), Dice::new(seed));
        let file = volume.open_file("db", CREATE).expect("creates");
        let mut live = pattern(FIRST + BLOCKS * BLOCK, &mut dice);
        file.write_at(&live, 0).expect("writes");
        let mut at = FIRST;
        for _ in 0..200 {
            match dice.below(10) {
                0..6 => at += BLOCK,
                6 => at = FIRST + dice.below(BLOCKS as u64) as usize * BLOCK,
                7 | 8 => {
                    let from = at + dice.below(8) as usize * BLOCK / 2;
                    let bytes = pattern(1 + dice.below(2 * BLOCK as u64) as usize, &mut dice);
                    let end = (from + bytes.len()).min(live.len());
                    if from < end {
                        file.write_at(&bytes[..end - from], from as u64).expect("writes");
                        live[from..end].copy_from_slice(&bytes[..end - from]);
                    }
                }
                _ => {
                    let size = live.len() - dice.below(BLOCK as u64) as usize;
                    file.truncate(size as u64).expect("cuts");
                    live.truncate(size);
                    file.truncate((size + BLOCK / 2) as u64).expect("grows");
                    live.resize(size + BLOCK / 2, 0);
                }
            }
            if at + BLOCK > live.len() {
                at = FIRST;
            }
            let end = live.len().min(at + BLOCK);
            assert!(read(&file, at, BLOCK) == live[at..end], "seed {seed}, offset {at}");
        }
    }
}

#[test]
fn what_was_spilled_is_read_wherever_it_is() {
    for seed in 0..20 {
        let (volume, mut dice) = (in_memory(), Dice::new(seed));
        let file = volume.open_file("temp/0", CREATE).expect("creates");
        let mut live = Vec::new();
        for _ in 0..300 {
            let slot = dice.below(20) as usize * BLOCK;
            match dice.below(12) {
                0..6 => {
                    let bytes = pattern(BLOCK, &mut dice);
                    file.write_at(&bytes, slot as u64).expect("spills");
                    live.resize(live.len().max(slot + BLOCK), 0);
                    live[slot..slot + BLOCK].copy_from_slice(&bytes);
                }
                6 => {
                    let from = slot + dice.below(BLOCK as u64) as usize;
                    let bytes = pattern(1 + dice.below(9000) as usize, &mut dice);
                    file.write_at(&bytes, from as u64).expect("spills");
                    live.resize(live.len().max(from + bytes.len()), 0);
                    live[from..from + bytes.len()].copy_from_slice(&bytes);
                }
                7 => {
                    let size = dice.below(live.len() as u64 + 1) as usize;
                    file.truncate(size as u64).expect("cuts");
                    live.truncate(size);
                    file.truncate((size + 5000) as u64).expect("grows");
                    live.resize(size + 5000, 0);
                }
                8 => {
                    let from = dice.below(live.len() as u64 + 1) as usize;
                    let length = 1 + dice.below(2 * BLOCK as u64) as usize;
                    let end = live.len().min(from + length);
                    assert!(read(&file, from, length) == live[from..end], "seed {seed}");
                }
                _ => {
                    let (from, end) = (slot.min(live.len()), live.len().min(slot + BLOCK));
                    assert!(read(&file, slot, BLOCK) == live[from..end], "seed {seed}");
                }
            }
        }
        volume.remove("temp/0").expect("removes");
        let other = volume.open_file("other", CREATE).expect("creates");
        let bytes = pattern(20 * BLOCK, &mut dice);
        other.write_at(&bytes, 0).expect("writes");
        drop(file);
        assert!(read(&other, 0, bytes.len()) == bytes, "nothing late comes to pages of others");
    }
}

#[test]
fn a_device_that_fails_is_told_by_a_later_call_on_what_was_spilled() {
    let (model, port) = device(4096, formatted(4096));
    let volume = Volume::open_with_helpers(port).expect("opens");
    let file = volume.open_file("temp/0", CREATE).expect("creates");
    file.write_at(&[1; 65536], 0).expect("is taken");
    // A part that reaches beyond what is read is waited for.
    assert_eq!(read(&file, 1, 10), [1; 10]);
    model.fail(0..u64::MAX, Failure::Failing);
    file.write_at(&[2; 65536], 0).expect("is taken");
    let outcomes = [file.read_at(&mut [0; 10], 1), file.read_at(&mut [0; 4096], 0)];
    for outcome in outcomes {
        assert_eq!(outcome.expect_err("it is not there").kind(), Kind::Unavailable);
    }
    let error = file.write_at(&[3; 65536], 0).expect_err("the file is lost");
    assert!(error.to_string().contains("an earlier write failed"), "{error}");
    model.fail(0..0, Failure::Failing);
    let next = volume.open_file("temp/1", CREATE).expect("creates");
    next.write_at(&[4; 65536], 0).expect("is taken");
    assert_eq!(read(&next, 0, 65536), [4; 65536]);
}

#[test]
fn a_device_that_fails_is_told_by_the_read() {
    let (model, port) = device(4096, formatted(4096));
    let volume = Volume::open_with_helpers(port).expect("opens");
    let length = 64 << 10;
    let bytes = pattern(16 * length, &mut Dice::new(3));
    volume.open_file("db", CREATE).expect("creates").write_at(&bytes, 0).expect("writes");
    let file = volume.open_file("db", EXISTING).expect("is there");
    for index in 0..4 {
        assert!(read(&file, index * length, length) == bytes[index * length..][..length]);
    }
    model.fail(0..u64::MAX, Failure::Failing);
    // What was fetched before it failed may still be given.
    let mut into = vec![0; length];
    let outcomes = (4..16).map(|index| file.read_at(&mut into, (index * length) as u64));
    let error = outcomes.filter_map(Result::err).last().expect("the end was never fetched");
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    model.fail(0..0, Failure::Failing);
    for index in 4..16 {
        assert!(read(&file, index * length, length) == bytes[index * length..][..length]);
    }
}

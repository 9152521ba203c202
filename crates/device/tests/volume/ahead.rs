//! Files that are read ahead, or written behind, give what was written last.

use crate::held::Bound;
use crate::shadow::{
    CREATE, EXISTING, content, device, device_of, formatted, formatted_at, pattern,
};
use penstock_base::{DeviceMetric, Kind};
use penstock_device::meter::readings;
use penstock_device::model::{Dice, Failure};
use penstock_device::volume::{File, FormatOptions, SharedVolume, Volume, format};
use penstock_device::{Discipline, Io, MemoryDevice, OpenOptions, Port, open};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const BLOCK: usize = 256 << 10;
const BLOCKS: usize = 24;
/// As in DuckDB's files, blocks begin behind three headers.
const FIRST: usize = 12288;

fn memory_device() -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(4096, 16 << 8, BLOCK as u32).expect("the sizes are right"))
}

fn port(device: &Arc<MemoryDevice>) -> Port {
    Port::new(device.clone(), Discipline::Thread).expect("memory has queues")
}

fn opened(device: &Arc<MemoryDevice>) -> Arc<Volume> {
    format(&port(device), FormatOptions::default()).expect("it is empty");
    Volume::open_with_helpers(port(device)).expect("opens")
}

pub fn in_memory() -> Arc<Volume> {
    opened(&memory_device())
}

/// The volume on a device, whoever has it open.
fn beside(device: &Arc<MemoryDevice>) -> Arc<Volume> {
    Volume::open(port(device)).expect("opens")
}

pub fn read(file: &File, offset: usize, length: usize) -> Vec<u8> {
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
fn a_small_file_is_fetched_whole_with_its_second_block_and_dropped_with_its_last_handle() {
    let (model, port) = device_of(16 << 20, 4096, formatted_at(16 << 20, 4096));
    let volume = Volume::open_with_helpers(port).expect("opens");
    let bytes = pattern(FIRST + BLOCKS * BLOCK, &mut Dice::new(7));
    let file = volume.open_file("db", CREATE).expect("creates");
    file.write_at(&bytes, 0).expect("writes");
    file.sync().expect("syncs");
    let mut memory = None;
    volume.charge(|found| {
        memory = Some(found.clone());
        Arc::new(Bound::of(0))
    });
    let fetched = || memory.as_ref().expect("it reads ahead").spare_bytes();
    assert!(read(&file, 0, 4096) == bytes[..4096]);
    assert_eq!(fetched(), Some(0), "that is no block");
    let read_before = [17, 3].map(|index| FIRST + index * BLOCK);
    for (at, is_begun) in read_before.into_iter().zip([false, true]) {
        assert!(read(&file, at, BLOCK) == bytes[at..][..BLOCK]);
        assert!(is_begun || fetched() == Some(0), "one block may be all that is wanted");
    }
    let begun = Instant::now();
    while fetched() != Some((BLOCKS * BLOCK) as u64) {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?} bytes are here", fetched());
        std::thread::yield_now();
    }
    model.fail(0..u64::MAX, Failure::Failing);
    let places =
        || (0..BLOCKS).map(|index| FIRST + index * BLOCK).filter(|at| !read_before.contains(at));
    for at in places().take(BLOCKS / 2) {
        assert!(read(&file, at, BLOCK) == bytes[at..][..BLOCK], "it is here");
    }
    let other = volume.open_file("db", EXISTING).expect("is there");
    drop(file);
    let mut places = places().skip(BLOCKS / 2);
    let at = places.next().expect("there are more");
    assert!(read(&other, at, BLOCK) == bytes[at..][..BLOCK], "somebody reads on");
    drop(other);
    let file = volume.open_file("db", EXISTING).expect("is there");
    let at = places.next().expect("there are more") as u64;
    file.read_at(&mut [0; BLOCK], at).expect_err("it was dropped");
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

/// Writes, cuts and reads at random; returns what the file holds then.
pub fn live_through(file: &File, dice: &mut Dice, seed: u64) -> Vec<u8> {
    let mut live = Vec::new();
    for _ in 0..300 {
        let slot = dice.below(20) as usize * BLOCK;
        match dice.below(13) {
            0..6 => {
                let bytes = pattern(BLOCK, dice);
                file.write_at(&bytes, slot as u64).expect("writes");
                live.resize(live.len().max(slot + BLOCK), 0);
                live[slot..slot + BLOCK].copy_from_slice(&bytes);
            }
            6 => {
                let from = slot + dice.below(BLOCK as u64) as usize;
                let bytes = pattern(1 + dice.below(90_000) as usize, dice);
                file.write_at(&bytes, from as u64).expect("writes");
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
                assert!(read(file, from, length) == live[from..end], "seed {seed}");
            }
            9 => file.sync().expect("syncs"),
            _ => {
                let (from, end) = (slot.min(live.len()), live.len().min(slot + BLOCK));
                assert!(read(file, slot, BLOCK) == live[from..end], "seed {seed}");
            }
        }
    }
    live
}

#[test]
fn what_was_written_is_read_wherever_it_is() {
    for seed in 0..40 {
        let (volume, mut dice) = (in_memory(), Dice::new(seed));
        let name = if seed % 2 == 0 { "temp/0" } else { "db" };
        let file = volume.open_file(name, CREATE).expect("creates");
        live_through(&file, &mut dice, seed);
        volume.remove(name).expect("removes");
        let other = volume.open_file("other", CREATE).expect("creates");
        let bytes = pattern(20 * BLOCK, &mut dice);
        other.write_at(&bytes, 0).expect("writes");
        drop(file);
        assert!(read(&other, 0, bytes.len()) == bytes, "nothing late comes to pages of others");
    }
}

#[test]
fn what_was_synced_is_on_the_device_and_what_was_written_after_the_close() {
    for seed in 0..20 {
        let (device, mut dice) = (memory_device(), Dice::new(seed));
        let volume = opened(&device);
        let file = volume.open_file("db", CREATE).expect("creates");
        let mut live = live_through(&file, &mut dice, seed);
        live.resize(20 * BLOCK, 0);
        file.truncate(live.len() as u64).expect("grows");
        file.sync().expect("syncs");
        // Past the volume and its threads, as somebody would find it after a crash.
        assert!(content(&beside(&device), "db") == live, "seed {seed}, synced");
        let block = pattern(BLOCK, &mut dice);
        live[BLOCK..2 * BLOCK].copy_from_slice(&block);
        file.write_at(&block, BLOCK as u64).expect("writes");
        drop((file, volume));
        assert!(content(&beside(&device), "db") == live, "seed {seed}, closed");
    }
}

#[test]
fn what_a_device_does_not_take_stays_and_a_sync_tells() {
    let (model, port) = device(4096, formatted(4096));
    let volume = Volume::open_with_helpers(port).expect("opens");
    let file = volume.open_file("db", CREATE).expect("creates");
    let bytes = pattern(4 * 65536, &mut Dice::new(5));
    file.write_at(&bytes, 0).expect("is taken");
    file.sync().expect("syncs");
    model.fail(0..u64::MAX, Failure::Full);
    let later = pattern(65536, &mut Dice::new(6));
    file.write_at(&later, 65536).expect("is taken");
    for _ in 0..3 {
        assert_eq!(file.sync().expect_err("it is not there").kind(), Kind::Exhausted);
        assert!(read(&file, 65536, 65536) == later, "nothing is lost meanwhile");
    }
    // Parts of it have to be on the device before they can be read, or written again.
    assert_eq!(file.read_at(&mut [0; 10], 65537).expect_err("so").kind(), Kind::Exhausted);
    assert_eq!(file.write_at(&[1; 10], 65537).expect_err("so").kind(), Kind::Exhausted);
    model.fail(0..0, Failure::Full);
    file.sync().expect("there is room now");
    drop((file, volume));
    let found = content(&Volume::open(device(4096, model.image()).1).expect("opens"), "db");
    assert!(found[65536..131_072] == later && found[..65536] == bytes[..65536]);
}

#[test]
fn what_failed_changes_nothing_that_returned() {
    let (model, port) = device(4096, formatted(4096));
    let volume = Volume::open_with_helpers(port).expect("opens");
    // What lay in the pages before must not show.
    let other = volume.open_file("other", CREATE).expect("creates");
    other.write_at(&[0xEE; 1 << 20], 0).expect("writes");
    other.sync().expect("syncs");
    drop(other);
    volume.remove("other").expect("removes");
    let file = volume.open_file("db", CREATE).expect("creates");
    let mut live = pattern(4 * 65536, &mut Dice::new(8));
    file.write_at(&live, 0).expect("is taken");
    file.sync().expect("syncs");
    model.fail(0..u64::MAX, Failure::Full);
    for at in [0, 2 * 65536] {
        let block = pattern(65536, &mut Dice::new(9 + at as u64));
        file.write_at(&block, at as u64).expect("is taken");
        live[at..at + 65536].copy_from_slice(&block);
    }
    // The first is to be kept and cannot be written; so the second must not be lost either.
    assert_eq!(file.truncate(65536).expect_err("no room").kind(), Kind::Exhausted);
    // Its blocks were taken, its last page was not: it never was.
    for gap in [3 * 4096, 2 * 4096, 0] {
        assert!(file.write_at(&vec![7; 100_000], live.len() as u64 + gap).is_err());
    }
    assert_eq!(file.size_bytes(), live.len() as u64);
    // Pages that nobody wrote are zeros, also when making them so failed first.
    file.write_at(&[5; 65536], 6 * 65536).expect("is taken");
    assert_eq!(file.sync().expect_err("no room").kind(), Kind::Exhausted);
    model.fail(0..0, Failure::Full);
    live.resize(6 * 65536, 0);
    live.extend([5; 65536]);
    assert!(read(&file, 0, live.len()) == live, "read");
    file.sync().expect("there is room now");
    drop((file, volume));
    let found = content(&Volume::open(device(4096, model.image()).1).expect("opens"), "db");
    assert!(found == live, "on the device");
}

#[test]
fn what_is_spilled_to_a_device_that_fails_is_told_once_memory_does_not_do() {
    let (model, port) = device(4096, formatted(4096));
    let volume = Volume::open_with_helpers(port).expect("opens");
    volume.charge(|_| Arc::new(Bound::of(4 << 20)));
    let file = volume.open_file("temp/0", CREATE).expect("creates");
    model.fail(0..u64::MAX, Failure::Failing);
    let length = 12 << 10;
    let write = |index: usize| file.write_at(&vec![index as u8; length], (index * length) as u64);
    let taken = (0..140).map(write).take_while(Result::is_ok).count();
    assert_eq!(taken, 128, "as much as may be in memory, in pieces of 32 KiB");
    assert_eq!(read(&file, 5 * length, length), vec![5; length]);
    // What is needed no more makes room.
    file.truncate(60 * length as u64).expect("cuts");
    file.write_at(&vec![9; length], 60 * length as u64).expect("is taken");
    volume.remove("temp/0").expect("removes");
    drop(file);
    model.fail(0..0, Failure::Failing);
    let next = volume.open_file("temp/1", CREATE).expect("creates");
    for index in 0..64 {
        next.write_at(&vec![4; length], index * length as u64).expect("is taken");
    }
    assert_eq!(read(&next, 0, length), vec![4; length]);
}

#[test]
fn a_device_that_fails_is_told_by_the_read() {
    let (model, port) = device_of(32 << 20, 4096, formatted_at(32 << 20, 4096));
    let volume = Volume::open_with_helpers(port).expect("opens");
    // Longer than what is fetched whole.
    let (length, count) = (64 << 10, 280);
    let bytes = pattern(count * length, &mut Dice::new(3));
    volume.open_file("db", CREATE).expect("creates").write_at(&bytes, 0).expect("writes");
    let file = volume.open_file("db", EXISTING).expect("is there");
    for index in 0..4 {
        assert!(read(&file, index * length, length) == bytes[index * length..][..length]);
    }
    model.fail(0..u64::MAX, Failure::Failing);
    // What was fetched before it failed may still be given.
    let mut into = vec![0; length];
    let outcomes = (4..count).map(|index| file.read_at(&mut into, (index * length) as u64));
    let error = outcomes.filter_map(Result::err).last().expect("the end was never fetched");
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    model.fail(0..0, Failure::Failing);
    for index in 4..count {
        assert!(read(&file, index * length, length) == bytes[index * length..][..length]);
    }
}

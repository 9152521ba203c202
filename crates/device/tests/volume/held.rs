//! What spills stays in memory as long as there is some, gives what was written last, and leaves it
//! when others want the memory.

use crate::ahead::{BLOCK, in_memory, live_through, read};
use crate::shadow::{CREATE, content, pattern};
use penstock_base::Kind;
use penstock_device::model::{Dice, Failure, Image, ModelDevice};
use penstock_device::volume::{
    Account, FormatOptions, Lease, Leased, Memory, Purpose, Sides, SpillsMost, Volume, format,
};
use penstock_device::{Discipline, Port};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

const MIB: u64 = 1 << 20;

/// Lets so many bytes of spilled files be held, and knows how many are.
#[derive(Clone, Default)]
pub struct Bound {
    limit: Arc<AtomicU64>,
    held: Arc<AtomicI64>,
    returning: Arc<AtomicI64>,
}

struct Told {
    bytes: i64,
    is_returning: AtomicBool,
    bound: Bound,
}

impl Bound {
    pub fn of(limit: u64) -> Self {
        Bound { limit: Arc::new(AtomicU64::new(limit)), ..Bound::default() }
    }

    fn held(&self) -> i64 {
        self.held.load(Ordering::SeqCst)
    }

    fn returning(&self) -> i64 {
        self.returning.load(Ordering::SeqCst)
    }
}

impl Account for Bound {
    fn spilled_most(&self, _: Sides<u64>) -> SpillsMost {
        SpillsMost::anywhere(self.limit.load(Ordering::SeqCst))
    }

    fn lease(&self, bytes: u64, purpose: Purpose) -> Option<Lease> {
        let bytes = match purpose {
            Purpose::Spilled => bytes as i64,
            Purpose::Ahead | Purpose::Behind => 0,
        };
        let limit = self.limit.load(Ordering::SeqCst) as i64;
        let sum = |held: i64| Some(held + bytes).filter(|sum| *sum <= limit);
        self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, sum).ok()?;
        let is_returning = AtomicBool::new(false);
        Some(Box::new(Told { bytes, is_returning, bound: self.clone() }))
    }
}

impl Leased for Told {
    fn set_returning(&self) {
        if !self.is_returning.swap(true, Ordering::SeqCst) {
            self.bound.returning.fetch_add(self.bytes, Ordering::SeqCst);
        }
    }

    fn set_staying(&self) {
        if self.is_returning.swap(false, Ordering::SeqCst) {
            self.bound.returning.fetch_sub(self.bytes, Ordering::SeqCst);
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.set_staying();
        self.bound.held.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

/// A volume of 64 MiB on a model device, and what answers for its memory.
fn bounded(limit: u64) -> (Arc<ModelDevice>, Arc<Volume>, Bound, Arc<Memory>) {
    let model = ModelDevice::new(4096, 64 << 8, Image::default()).expect("the sizes are right");
    let model = Arc::new(model);
    let port = || Port::new(model.clone(), Discipline::Thread).expect("the model has queues");
    format(&port(), FormatOptions::default()).expect("it is empty");
    let volume = Volume::open_with_helpers(port()).expect("opens");
    let (bound, memory) = (Bound::of(limit), OnceLock::new());
    volume.charge(|own| {
        memory.get_or_init(|| own.clone());
        Arc::new(bound.clone())
    });
    (model, volume, bound, memory.into_inner().expect("nobody answered before"))
}

fn wait_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

#[test]
fn what_spills_moves_no_byte_of_the_device_while_there_is_memory() {
    let (model, volume, bound, _) = bounded(32 * MIB);
    let mut before = model.command_count();
    let mut dice = Dice::new(1);
    for round in 0..5 {
        let name = format!("temp/{round}");
        let file = volume.open_file(&name, CREATE).expect("creates");
        let bytes = pattern(24 * BLOCK, &mut dice);
        for (index, block) in bytes.chunks(BLOCK).enumerate() {
            file.write_at(block, (index * BLOCK) as u64).expect("is taken");
        }
        // DuckDB compresses what it spills.
        let small = pattern(3 * 32768, &mut dice);
        file.write_at(&small, 24 * BLOCK as u64).expect("is taken");
        assert!(read(&file, 24 * BLOCK, small.len()) == small);
        for index in [7, 23, 0] {
            let wanted = &bytes[index * BLOCK..][..BLOCK];
            assert!(read(&file, index * BLOCK, BLOCK) == wanted, "round {round}, block {index}");
        }
        assert!(bound.held() >= 6 * MIB as i64, "{}", bound.held());
        assert_eq!(model.command_count(), before);
        match round % 3 {
            0 => volume.remove(&name).expect("removes"),
            1 => file.truncate(0).expect("cuts"),
            _ => {
                file.trim(0, u64::MAX).expect("trims");
                assert!(model.command_count() > before, "the device is told");
                before = model.command_count();
            }
        }
        // A little is kept for the next.
        wait_until(|| bound.held() <= 8 * MIB as i64);
        assert_eq!(model.command_count(), before);
    }
    drop(volume);
    assert_eq!(bound.held(), 0);
}

#[test]
fn what_spills_is_read_as_it_was_written_last_however_little_memory_there_is() {
    for (seed, limit) in [0, 1, 300, 1024, 2048, 3000, 5000, 1 << 20].into_iter().enumerate() {
        for presses in [false, true] {
            let (volume, mut dice) = (in_memory(), Dice::new(seed as u64));
            let (bound, memory) = (Bound::of(limit << 10), OnceLock::new());
            volume.charge(|own| {
                memory.get_or_init(|| own.clone());
                Arc::new(bound.clone())
            });
            let memory: &Arc<Memory> = memory.get().expect("nobody answered before");
            let file = volume.open_file("temp/0", CREATE).expect("creates");
            let is_done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while presses && !is_done.load(Ordering::Acquire) {
                        memory.write_spilled();
                        memory.free();
                        std::thread::yield_now();
                    }
                });
                let live = live_through(&file, &mut dice, seed as u64);
                // Now from the device: nothing is held, and nothing may be.
                bound.limit.store(0, Ordering::SeqCst);
                let end = live.len() / BLOCK * BLOCK;
                file.write_at(&[], 0).expect("nothing");
                while bound.held() > 0 {
                    memory.write_spilled();
                    memory.free();
                    std::thread::yield_now();
                }
                assert!(read(&file, 0, end) == live[..end], "seed {seed}, limit {limit}");
                assert!(read(&file, 0, live.len()) == live, "seed {seed}, limit {limit}");
                is_done.store(true, Ordering::Release);
            });
            assert_eq!(bound.returning(), 0);
        }
    }
}

#[test]
fn where_memory_becomes_scarce_the_oldest_is_written_and_read_from_the_device() {
    let (_, volume, bound, _) = bounded(32 * MIB);
    let file = volume.open_file("temp/0", CREATE).expect("creates");
    let bytes = pattern(80 * BLOCK, &mut Dice::new(3));
    for (index, block) in bytes.chunks(BLOCK).enumerate() {
        file.write_at(block, (index * BLOCK) as u64).expect("is taken");
    }
    assert!(bound.held() >= 20 * MIB as i64);
    // Nobody spills any more; somebody else takes the memory.
    bound.limit.store(4 * MIB, Ordering::SeqCst);
    wait_until(|| bound.held() <= 4 * MIB as i64);
    assert!(bound.held() > 0, "no more than has to go");
    assert!(read(&file, 0, bytes.len()) == bytes);
}

#[test]
fn what_a_device_refuses_stays_in_memory_and_is_not_said_to_return() {
    let (model, volume, bound, memory) = bounded(32 * MIB);
    let db = volume.open_file("db", CREATE).expect("creates");
    let kept = pattern(BLOCK, &mut Dice::new(4));
    db.write_at(&kept, 0).expect("writes");
    let file = volume.open_file("temp/0", CREATE).expect("creates");
    let bytes = pattern(16 * BLOCK, &mut Dice::new(5));
    for (index, block) in bytes.chunks(BLOCK).enumerate() {
        file.write_at(block, (index * BLOCK) as u64).expect("is taken");
    }
    db.sync().expect("a sync waits for nothing that was spilled");
    let held = bound.held();
    model.fail(0..u64::MAX, Failure::Full);
    assert_eq!(memory.write_spilled(), Some(true));
    wait_until(|| memory.spilled_bytes() == Some(0) && bound.returning() == 0);
    assert_eq!(bound.held(), held);
    assert_eq!(memory.write_spilled(), Some(false), "nobody is told to wait for it");
    assert!(read(&file, 0, bytes.len()) == bytes);
    // A part of a page has to be on the device before it can be read: that tells.
    assert_eq!(file.read_at(&mut [0; 10], 77).expect_err("so").kind(), Kind::Exhausted);
    model.fail(0..0, Failure::Full);
    wait_until(|| memory.spilled_bytes().is_some_and(|bytes| bytes > 0));
    wait_until(|| {
        memory.write_spilled();
        memory.free();
        bound.held() == 0
    });
    assert!(read(&file, 0, bytes.len()) == bytes, "from the device");
    assert!(content(&volume, "db") == kept);
}

#[test]
fn a_full_volume_is_told_to_who_spills_though_there_is_memory() {
    let (model, volume, _, _) = bounded(1024 * MIB);
    let file = volume.open_file("temp/0", CREATE).expect("creates");
    let before = model.command_count();
    let block = vec![1; BLOCK];
    let outcomes = (0..300).map(|index| file.write_at(&block, (index * BLOCK) as u64));
    let error = outcomes.filter_map(Result::err).next().expect("it has 64 MiB");
    assert_eq!(error.kind(), Kind::Exhausted);
    assert_eq!(model.command_count(), before, "the room was taken, nothing was written");
    assert!(read(&file, 0, BLOCK) == block);
}

#[test]
fn what_spills_behind_a_header_goes_to_the_device_for_it_is_read_in_parts_of_pages() {
    let (model, volume, bound, _) = bounded(32 * MIB);
    let file = volume.open_file("temp/0", CREATE).expect("creates");
    let bytes = pattern(32 + BLOCK, &mut Dice::new(7));
    file.write_at(&bytes, 0).expect("writes");
    assert_eq!(bound.held(), 0);
    let before = model.command_count();
    assert!(read(&file, 32, BLOCK) == bytes[32..]);
    assert!(model.command_count() > before);
}

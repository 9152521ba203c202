//! What volumes hold beside their callers, by the account that answers for it.

use super::*;
use penstock_base::Metrics;
use penstock_device::model::{Failure, Image, ModelDevice};
use penstock_device::volume::{File, FormatOptions, Lock, OpenFileOptions, format};
use penstock_device::{Discipline, Port};
use std::sync::atomic::AtomicBool;

const BLOCK: usize = 256 << 10;
const BLOCKS: usize = 64;

fn failing_volume() -> (Arc<ModelDevice>, Arc<Volume>) {
    let model = ModelDevice::new(4096, 16_384, Image::default()).expect("the sizes are right");
    let model = Arc::new(model);
    let port = || Port::new(model.clone(), Discipline::Thread).expect("opens");
    format(&port(), FormatOptions::default()).expect("formats");
    let volume = Volume::open_with_helpers(port()).expect("opens");
    (model, volume)
}

fn volume() -> Arc<Volume> {
    failing_volume().1
}

fn file(volume: &Arc<Volume>) -> File {
    let options = OpenFileOptions { create: true, lock: Lock::None };
    volume.open_file("db", options).expect("creates")
}

fn write(file: &File) {
    for number in 0..BLOCKS {
        file.write_at(&vec![number as u8; BLOCK], (number * BLOCK) as u64).expect("writes");
    }
    file.sync().expect("syncs");
}

fn read(file: &File, budget: &Arc<Budget>) -> u64 {
    let (mut most, mut found) = (0, vec![0; BLOCK]);
    for number in 0..BLOCKS {
        file.read_at(&mut found, (number * BLOCK) as u64).expect("reads");
        assert!(found == vec![number as u8; BLOCK], "block {number}");
        most = most.max(budget.held_bytes());
    }
    most
}

fn bounded(limit: u64) -> (Arc<Metrics>, Arc<Budget>) {
    let metrics = Arc::new(Metrics::default());
    (metrics.clone(), Budget::new(limit, metrics))
}

#[test]
fn what_a_volume_keeps_beside_its_callers_is_within_the_limit_and_told() {
    for limit in [0, 100 << 10, 1 << 20, 4 << 20, 64 << 20] {
        let (metrics, budget) = bounded(limit);
        let volume = volume();
        budget.answer_for(&volume);
        let file = file(&volume);
        write(&file);
        let most = read(&file, &budget).max(budget.held_bytes());
        assert!(most <= limit, "{most} of {limit}");
        assert_eq!(most > 0, limit >= BLOCK as u64, "{most} of {limit}");
        assert_eq!(metrics.get(Metric::MemoryOfVolumesNow), budget.held_bytes());
        drop(file);
        drop(volume);
        assert_eq!((budget.held_bytes(), metrics.get(Metric::MemoryOfVolumesNow)), (0, 0));
    }
}

#[tokio::test]
async fn a_volume_gives_way_to_who_waits_for_memory() {
    const LIMIT: u64 = 64 << 20;
    let (metrics, budget) = bounded(LIMIT);
    let volume = volume();
    budget.answer_for(&volume);
    let file = file(&volume);
    write(&file);
    read(&file, &budget);
    assert!(budget.held_bytes() > 0, "memory is kept for the next blocks");
    // What is being fetched at this moment comes back a moment later.
    let all = loop {
        match budget.lease_within(LIMIT).await {
            Some(lease) => break lease,
            None => std::thread::yield_now(),
        }
    };
    assert_eq!(metrics.get(Metric::MemoryOfVolumesNow), 0);
    // And goes on without any.
    read(&file, &budget);
    write(&file);
    assert_eq!(budget.held_bytes(), LIMIT);
    drop(all);
    // A block that is read ahead may come too late; one that is written takes memory at once.
    write(&file);
    assert!(metrics.get(Metric::MemoryOfVolumesNow) > 0);
}

fn spill(volume: &Arc<Volume>) -> File {
    let options = OpenFileOptions { create: true, lock: Lock::None };
    let file = volume.open_file("temp/0", options).expect("creates");
    for number in 0..BLOCKS {
        file.write_at(&vec![number as u8; BLOCK], (number * BLOCK) as u64).expect("writes");
    }
    file
}

#[test]
fn what_is_spilled_stays_within_half_of_the_limit_and_is_told() {
    for limit in [0, 1 << 20, 8 << 20, 64 << 20] {
        let (metrics, budget) = bounded(limit);
        let volume = volume();
        budget.answer_for(&volume);
        let file = spill(&volume);
        let held = metrics.get(Metric::MemoryOfSpillsNow);
        assert!(held <= limit / 2, "{held} of {limit}");
        assert_eq!(held > 0, limit >= 1 << 20, "{held} of {limit}");
        assert!(budget.held_bytes() <= limit);
        read(&file, &budget);
        drop((file, volume));
        assert_eq!(metrics.get(Metric::MemoryOfSpillsNow), 0);
        assert_eq!((budget.held_bytes(), budget.spilled.held()), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_spilled_is_written_for_who_waits_for_memory() {
    const LIMIT: u64 = 64 << 20;
    let (metrics, budget) = bounded(LIMIT);
    let volume = volume();
    budget.answer_for(&volume);
    let file = spill(&volume);
    assert!(metrics.get(Metric::MemoryOfSpillsNow) >= 16 << 20);
    let all = budget.lease_within(LIMIT).await.expect("all of it is written");
    assert_eq!(metrics.get(Metric::MemoryOfSpillsNow), 0);
    read(&file, &budget);
    drop(all);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_what_a_device_does_not_take() {
    const LIMIT: u64 = 64 << 20;
    let (_, budget) = bounded(LIMIT);
    let (model, volume) = failing_volume();
    budget.answer_for(&volume);
    let file = spill(&volume);
    model.fail(0..u64::MAX, Failure::Failing);
    assert!(budget.lease_within(LIMIT).await.is_none(), "it cannot come back");
    let beyond = budget.lease(LIMIT).await;
    assert!(budget.held_bytes() > LIMIT);
    read(&file, &budget);
    drop(beyond);
}

/// Those who wait for memory within the limit have no use of what lies beside it.
#[tokio::test(flavor = "multi_thread")]
async fn what_spills_beside_the_limit_takes_nothing_from_it_and_is_not_written_for_others() {
    const LIMIT: u64 = 64 << 20;
    let (metrics, budget) = bounded(LIMIT);
    budget.set_spills_beside(8 << 20);
    let (model, volume) = failing_volume();
    budget.answer_for(&volume);
    let (file, spilled) = (spill(&volume), (BLOCKS * BLOCK) as u64);
    let names =
        [Metric::MemoryOfSpillsNow, Metric::MemoryOfVolumesNow, Metric::MemoryOfSpillsBesideNow];
    let told = || names.map(|name| metrics.get(name));
    assert_eq!(told(), [spilled, spilled - (8 << 20), 8 << 20]);
    assert_eq!(budget.held_bytes(), spilled - (8 << 20));
    let before = model.command_count();
    let all = budget.lease_within(LIMIT).await.expect("what lies within it is written");
    assert_eq!(told(), [8 << 20, 0, 8 << 20]);
    assert!(model.command_count() > before);
    read(&file, &budget);
    drop((all, file, volume));
    assert_eq!((budget.held_bytes(), budget.spilled.held()), (0, 0));
    assert_eq!(told(), [0, 0, 0]);
}

#[test]
fn what_spills_lies_beside_the_limit_as_long_as_it_may() {
    let (metrics, budget) = bounded(1 << 20);
    budget.set_spills_beside(1 << 30);
    let (model, volume) = failing_volume();
    budget.answer_for(&volume);
    let before = model.command_count();
    let file = spill(&volume);
    read(&file, &budget);
    assert_eq!(model.command_count(), before, "nothing went to the device");
    assert_eq!(metrics.get(Metric::MemoryOfSpillsNow), (BLOCKS * BLOCK) as u64);
    assert_eq!(budget.held_bytes(), 0);
    // What the operator allows no more is written by and by.
    budget.set_spills_beside(0);
    while metrics.get(Metric::MemoryOfSpillsNow) > 1 << 20 {
        std::thread::yield_now();
    }
    read(&file, &budget);
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed().as_secs() < 20, "{what}");
        std::thread::yield_now();
    }
}

/// What lies beside it is older, and would go first by its age.
#[test]
fn a_lower_limit_pushes_out_what_lies_within_it_while_a_query_runs() {
    let (metrics, budget) = bounded(64 << 20);
    budget.set_spills_beside(8 << 20);
    let volume = volume();
    budget.answer_for(&volume);
    let file = spill(&volume);
    assert_eq!(budget.held_bytes(), 8 << 20);
    budget.set_limit(4 << 20);
    wait_until("half of the limit is held at most", || budget.held_bytes() <= 2 << 20);
    assert!(metrics.get(Metric::MemoryOfSpillsNow) >= 4 << 20, "no more than has to go");
    read(&file, &budget);
    budget.set_limit(0);
    wait_until("nothing is within it", || budget.held_bytes() == 0);
    assert_eq!(metrics.get(Metric::MemoryOfVolumesNow), 0);
    read(&file, &budget);
    drop((file, volume));
    assert_eq!((budget.spilled.held(), metrics.get(Metric::MemoryOfSpillsNow)), (0, 0));
}

#[test]
fn what_may_no_longer_lie_beside_the_limit_is_entered_within_it_where_there_is_room() {
    let (metrics, budget) = bounded(64 << 20);
    budget.set_spills_beside(8 << 20);
    let (model, volume) = failing_volume();
    budget.answer_for(&volume);
    let (file, spilled) = (spill(&volume), (BLOCKS * BLOCK) as u64);
    let before = model.command_count();
    budget.set_spills_beside(0);
    wait_until("all of it is within", || budget.held_bytes() == spilled);
    assert_eq!(metrics.get(Metric::MemoryOfVolumesNow), spilled);
    assert_eq!(metrics.get(Metric::MemoryOfSpillsNow), spilled);
    assert_eq!(metrics.get(Metric::MemoryOfSpillsBesideNow), 0);
    assert_eq!(model.command_count(), before, "nothing of it was written");
    read(&file, &budget);
    drop((file, volume));
    assert_eq!((budget.held_bytes(), budget.spilled.held()), (0, 0));
    assert_eq!(metrics.get(Metric::MemoryOfVolumesNow), 0);
    // Where there is none, it is written.
    let volume = self::volume();
    budget.set_spills_beside(8 << 20);
    budget.answer_for(&volume);
    let file = spill(&volume);
    let rest = budget.try_lease((64 << 20) - budget.held_bytes()).expect("so much is free");
    budget.set_spills_beside(0);
    wait_until("it is gone", || metrics.get(Metric::MemoryOfSpillsNow) == 8 << 20);
    assert_eq!(budget.held_bytes(), 64 << 20);
    read(&file, &budget);
    drop(rest);
}

/// Memory that nobody uses and that lies beside the limit is of no use to them, either.
#[test]
fn who_waits_for_memory_is_told_of_none_that_lies_beside_the_limit() {
    let (metrics, budget) = bounded(64 << 20);
    budget.set_spills_beside(64 << 20);
    let mut memory = None;
    let volume = volume();
    volume.charge(|own| {
        memory = Some(Arc::clone(own));
        let (budget, memory) = (Arc::clone(&budget), Arc::downgrade(own));
        let spilled = Arc::new(Spilled(memory.clone()));
        Arc::new(OfVolume { budget, memory, spilled })
    });
    let memory = memory.expect("nobody answered before");
    let file = spill(&volume);
    file.truncate(0).expect("cuts");
    assert!(metrics.get(Metric::MemoryOfSpillsNow) >= 8 << 20, "it is kept for a while");
    // The volume's own thread may look at it at any moment.
    wait_until("nothing is spare", || memory.spare_bytes() == Some(0));
    wait_until("there is nothing to give", || memory.free() == Some(false));
    assert!(metrics.get(Metric::MemoryOfSpillsNow) >= 8 << 20);
}

/// Whoever fills a page that was to be written says that it stays, and is asked for it at once,
/// since somebody still waits.
#[test]
fn who_spills_while_others_wait_goes_on() {
    const LIMIT: u64 = 16 << 20;
    let (_, budget) = bounded(LIMIT);
    let volume = volume();
    budget.answer_for(&volume);
    let spills = &|number: u8| {
        let options = OpenFileOptions { create: true, lock: Lock::None };
        let file = volume.open_file(&format!("temp/{number}"), options).expect("creates");
        let bytes = vec![number; BLOCK];
        for round in 0..1000u64 {
            file.write_at(&bytes, (round % 8) * BLOCK as u64).expect("writes");
            if round % 8 == 7 {
                file.truncate(0).expect("cuts");
            }
        }
    };
    let is_over = AtomicBool::new(false);
    let waits = || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("starts");
        while !is_over.load(Ordering::Relaxed) {
            drop(runtime.block_on(budget.lease_within(LIMIT)));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(waits);
        let writers: Vec<_> = (0..4).map(|number| scope.spawn(move || spills(number))).collect();
        writers.into_iter().for_each(|writer| writer.join().expect("spills"));
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn the_first_account_of_a_volume_stays() {
    let ((_, first), (_, second)) = (bounded(64 << 20), bounded(64 << 20));
    let volume = volume();
    first.answer_for(&volume);
    second.answer_for(&volume);
    write(&file(&volume));
    assert!(first.held_bytes() > 0 && second.held_bytes() == 0);
}

//! A device that fails, at every command in turn; tables that are damaged one by one.

use crate::shadow::{CREATE, EXISTING, VOLUME_BYTES, content, device, formatted};
use penstock_base::{Error, Kind, Result};
use penstock_device::model::{Failure, Image, ModelDevice};
use penstock_device::volume::table::{PAGE_BYTES, copy_pages};
use penstock_device::volume::{File, Volume, check};
use penstock_device::{Device, Discipline, Geometry, Ownership, Port, Queue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const COMMITTED: &[u8] = b"what a transaction committed";

/// Some work on a volume; true once the first sync has returned.
fn work(volume: &Arc<Volume>, is_committed: &mut bool) -> Result<()> {
    let wal = volume.open_file("db.wal", CREATE)?;
    wal.write_at(COMMITTED, 0)?;
    wal.sync()?;
    *is_committed = true;
    let db = volume.open_file("db", CREATE)?;
    db.write_at(&[7; 20_000], 0)?;
    db.sync()?;
    wal.write_at(b"and more", 100)?;
    wal.sync()?;
    volume.rename("db", "other")?;
    wal.truncate(COMMITTED.len() as u64)?;
    db.read_at(&mut [0; 100], 0)?;
    Ok(())
}

type Opener = fn(Port) -> Result<Arc<Volume>>;

#[test]
fn a_failure_at_any_command_is_told_and_loses_nothing() {
    let base = formatted(4096);
    let kinds = [
        (Failure::Full, Kind::Exhausted),
        (Failure::ReadOnly, Kind::Denied),
        (Failure::Gone, Kind::Unavailable),
        (Failure::Failing, Kind::Unavailable),
    ];
    let openers: [Opener; 2] = [Volume::open, Volume::open_with_helpers];
    for (failure, kind) in kinds {
        for (is_lasting, open) in
            [false, true].into_iter().flat_map(|lasting| openers.map(|open| (lasting, open)))
        {
            for first in 0..200u64 {
                let (model, port) = device(4096, base.clone());
                let end = if is_lasting { u64::MAX } else { first + 1 };
                let mut is_committed = false;
                let outcome = open(port).and_then(|volume| {
                    model.fail(first..end, failure);
                    work(&volume, &mut is_committed)
                });
                let was_reached = model.command_count() > first;
                if let Err(error) = &outcome {
                    assert_eq!(error.kind(), kind, "{failure:?} at {first}: {error}");
                    assert!(error.to_string().contains("os error"), "{error}");
                }
                let volume = Volume::open(device(4096, model.image()).1).expect("opens again");
                if is_committed {
                    let found = content(&volume, "db.wal");
                    assert!(found.starts_with(COMMITTED), "{failure:?} at {first}");
                }
                if !was_reached {
                    outcome.expect("nothing failed");
                    break;
                }
            }
        }
    }
}

#[test]
fn a_block_that_could_not_be_overwritten_is_the_old_one() {
    for failure in [Failure::Full, Failure::Failing] {
        let (model, port) = device(4096, formatted(4096));
        let volume = Volume::open(port).expect("opens");
        let file = volume.open_file("db", CREATE).expect("creates");
        file.write_at(&[1; 65_536], 0).expect("writes");
        file.sync().expect("syncs");
        let free = volume.free_bytes();
        let next = model.command_count();
        model.fail(next..next + 1, failure);
        file.write_at(&[2; 32_768], 16_384).expect_err("the write fails");
        assert_eq!(content(&volume, "db"), [1; 65_536], "{failure:?}");
        assert_eq!(volume.free_bytes(), free, "nothing is lost");
        file.sync().expect("what there is, is durable");
        file.write_at(&[3; 16_384], 0).expect("goes on");
        drop((file, volume));
        let volume = Volume::open(device(4096, model.image()).1).expect("opens again");
        let found = content(&volume, "db");
        assert!(found[..16_384] == [3; 16_384] && found[16_384..] == [1; 49_152], "{failure:?}");
    }
}

/// What lies beside a write that failed is as it was: no byte of it, nor of a file that was there.
#[test]
fn what_failed_leaves_zeros_where_nothing_was_written() {
    let write = |file: &File, byte: u8, offset: usize, length: usize| {
        file.write_at(&vec![byte; length], offset as u64)
    };
    for (offset, length) in [(12_388, 10_000), (12_388, 40), (12_288, 8192), (12_300, 30_000)] {
        for failing in 0..8 {
            let (model, port) = device(4096, formatted(4096));
            let volume = Volume::open(port).expect("opens");
            let old = volume.open_file("old", CREATE).expect("creates");
            write(&old, 0xee, 0, volume.free_bytes() as usize / 2).expect("writes");
            old.sync().expect("syncs");
            // Behind the five commands of the commit: what is not trimmed keeps its bytes.
            let trim = model.command_count() + 5;
            model.fail(trim..u64::MAX, Failure::Failing);
            volume.remove("old").expect("removes");
            assert_eq!(model.command_count(), trim + 1);
            model.fail(0..0, Failure::Failing);
            let file = volume.open_file("db", CREATE).expect("creates");
            write(&file, 1, 0, 8192).expect("writes");
            write(&file, 2, 61_440, 4096).expect("writes, with a gap before");
            let next = model.command_count() + failing;
            model.fail(next..next + 1, Failure::Failing);
            let gap = write(&file, 9, offset, length);
            let behind = write(&file, 9, 53_248 + offset, length);
            let end = file.size_bytes() as usize;
            model.fail(0..0, Failure::Failing);
            write(&file, 3, end.max(69_000), 100).expect("goes on");
            file.sync().expect("syncs");
            let found = content(&volume, "db");
            for (at, byte) in found.iter().enumerate() {
                let is_in = |begin: usize| (begin..begin + length).contains(&at);
                let is_behind = is_in(53_248 + offset) && at < end && behind.is_ok();
                let wanted = match at {
                    _ if is_in(offset) && gap.is_err() => {
                        assert!([0, 9].contains(byte), "{byte} at {at}, command {failing}");
                        continue;
                    }
                    _ if is_in(offset) || is_behind => 9,
                    ..8192 => 1,
                    61_440..65_536 => 2,
                    _ if at >= end.max(69_000) => 3,
                    _ => 0,
                };
                assert_eq!(*byte, wanted, "at {at}, {offset} + {length}, command {failing}");
            }
        }
    }
}

/// A model whose queues cannot be opened while it is told so, and which counts how often what is
/// cached of it was dropped.
struct Fickle {
    model: Arc<ModelDevice>,
    has_no_queues: AtomicBool,
    forgotten: AtomicU64,
}

impl Fickle {
    fn new() -> (Arc<Self>, Port) {
        let (model, _) = device(4096, formatted(4096));
        let fickle = Arc::new(Fickle {
            model,
            has_no_queues: AtomicBool::new(false),
            forgotten: AtomicU64::new(0),
        });
        let port = Port::new(fickle.clone(), Discipline::Thread).expect("opens");
        (fickle, port)
    }
}

impl Device for Fickle {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn geometry(&self) -> &Geometry {
        self.model.geometry()
    }

    fn open_queue(&self, ownership: Ownership) -> Result<Box<dyn Queue>> {
        match self.has_no_queues.load(Ordering::Acquire) {
            true => Err(Error::new(Kind::Exhausted, "no descriptors are left")),
            false => self.model.open_queue(ownership),
        }
    }

    fn forget_cached(&self) {
        self.forgotten.fetch_add(1, Ordering::AcqRel);
    }
}

#[test]
fn a_queue_that_cannot_be_opened_is_no_failure_of_the_device() {
    let (device, port) = Fickle::new();
    let volume = Volume::open(port).expect("opens");
    let file = volume.open_file("db", CREATE).expect("creates");
    file.write_at(&[1; 9000], 0).expect("writes");
    device.has_no_queues.store(true, Ordering::Release);
    // Threads that have no queue yet: one flush of a new size, and one of bytes alone.
    let elsewhere = |job: &(dyn Fn() -> Result<()> + Sync)| {
        std::thread::scope(|scope| scope.spawn(job).join().expect("does not panic"))
    };
    let told = elsewhere(&|| file.sync()).expect_err("there is no queue");
    assert_eq!(told.kind(), Kind::Exhausted, "{told}");
    file.sync().expect("this thread has one");
    elsewhere(&|| file.sync()).expect_err("there is no queue");
    elsewhere(&|| volume.rename("db", "a")).expect_err("there is no queue");
    device.has_no_queues.store(false, Ordering::Release);
    elsewhere(&|| file.sync()).expect("nothing has failed for good");
    file.write_at(&[2; 9000], 0).expect("writes");
    file.sync().expect("syncs");
}

/// The page cache keeps what it could not write as if it were written.
#[test]
fn a_volume_that_failed_leaves_nothing_in_a_cache_for_who_opens_it_next() {
    for fails in [false, true] {
        let (device, port) = Fickle::new();
        let volume = Volume::open(port).expect("opens");
        let file = volume.open_file("db", CREATE).expect("creates");
        file.write_at(&[1; 4096], 0).expect("writes");
        let next = device.model.command_count();
        device.model.fail(next..next + u64::from(fails), Failure::Failing);
        assert_eq!(file.sync().is_err(), fails);
        assert_eq!(device.forgotten.load(Ordering::Acquire), 0, "others may be reading");
        drop((file, volume));
        assert_eq!(device.forgotten.load(Ordering::Acquire), u64::from(fails));
    }
}

#[test]
fn after_a_failed_flush_nothing_is_promised_any_more() {
    let (model, port) = device(4096, formatted(4096));
    let volume = Volume::open(port).expect("opens");
    let file = volume.open_file("db", CREATE).expect("creates");
    file.write_at(&[1; 4096], 0).expect("writes");
    let next = model.command_count();
    model.fail(next..next + 1, Failure::Failing);
    assert_eq!(file.sync().expect_err("the flush failed").kind(), Kind::Unavailable);
    for outcome in [file.sync(), file.write_at(&[2; 1], 0), volume.remove("db")] {
        let error = outcome.expect_err("what is durable is not known");
        assert!(error.to_string().contains("open it anew"), "{error}");
    }
    file.read_at(&mut [0; 10], 0).expect("reading goes on");
}

/// A volume with a file, and its image.
fn sample(block_size: u32) -> Image {
    let (model, port) = device(block_size, formatted(block_size));
    let volume = Volume::open(port).expect("opens");
    let file = volume.open_file("db", CREATE).expect("creates");
    file.write_at(COMMITTED, 0).expect("writes");
    file.sync().expect("syncs");
    drop((file, volume));
    model.image()
}

fn damage(image: &mut Image, copy: usize, byte: u64) {
    let at = copy_pages(VOLUME_BYTES / PAGE_BYTES)[copy] * PAGE_BYTES + byte;
    let mut one = [0];
    image.read(at, &mut one);
    image.write(at, &[one[0] ^ 0x40]);
}

#[test]
fn any_two_copies_may_be_damaged_anywhere() {
    let image = sample(4096);
    for byte in (0..90).chain([4000]) {
        for spared in 0..3 {
            let mut hurt = image.clone();
            (0..3).filter(|copy| *copy != spared).for_each(|copy| damage(&mut hurt, copy, byte));
            let (model, port) = device(4096, hurt);
            let volume = Volume::open(port)
                .unwrap_or_else(|error| panic!("byte {byte}, spared {spared}: {error}"));
            assert_eq!(content(&volume, "db"), COMMITTED);
            drop(volume);
            let report = check(&device(4096, model.image()).1).expect("it is whole");
            assert_eq!(report.sound_copies, 3, "opening repairs: {:?}", report.copies);
        }
    }
}

/// What a medium lost is damage like any other; a device that fails for a moment has it still, and
/// an older copy must not be taken for it, nor written over it.
#[test]
fn any_two_copies_may_be_lost_by_the_medium_but_none_is_given_up_for_another_failure() {
    let image = sample(4096);
    let places = copy_pages(VOLUME_BYTES / PAGE_BYTES).map(|page| page * PAGE_BYTES);
    for spared in 0..3 {
        let (model, port) = device(4096, image.clone());
        let lost = (0..3).filter(|copy| *copy != spared);
        lost.for_each(|copy| model.lose(places[copy] + 512..places[copy] + 1024));
        let report = check(&port).expect("one copy is sound");
        assert_eq!(report.sound_copies, 1, "{:?}", report.copies);
        let told = report.copies.iter().filter(|copy| copy.contains("the medium lost"));
        assert_eq!(told.count(), 2, "{:?}", report.copies);
        let volume = Volume::open(port).unwrap_or_else(|error| panic!("spared {spared}: {error}"));
        assert_eq!(content(&volume, "db"), COMMITTED);
        drop(volume);
        let port = Port::new(model, Discipline::Sync).expect("has queues");
        assert_eq!(check(&port).expect("it is whole").sound_copies, 3, "opening repairs");
    }
    let (model, port) = device(4096, image.clone());
    places.iter().for_each(|place| model.lose(*place..place + 4096));
    let error = Volume::open(port).err().expect("all are lost");
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    assert!(error.to_string().contains("no copy of the volume's table is sound"), "{error}");
    let (model, port) = device(4096, image);
    model.fail(0..u64::MAX, Failure::Failing);
    assert_eq!(Volume::open(port).err().expect("so").kind(), Kind::Unavailable);
    assert_eq!(model.event_count(), 0, "nothing was written");
}

/// A file system that is made over a volume leaves most of the device as it was, and with it a
/// sound copy of the table.
#[test]
fn what_was_made_over_a_volume_is_told_and_left_alone() {
    for spared in [[false, false, true], [false, true, true]] {
        let mut image = sample(4096);
        for (page, _) in copy_pages(VOLUME_BYTES / PAGE_BYTES).iter().zip(spared).filter(|it| !it.1)
        {
            image.write(page * PAGE_BYTES, &[0; 4096]);
        }
        image.write(1080, b"\x53\xef");
        let (model, port) = device(4096, image);
        let error = Volume::open(port).err().expect("it is another's");
        assert_eq!(error.kind(), Kind::NotFound, "{error}");
        assert!(error.to_string().contains("but an ext2, ext3 or ext4 file system"), "{error}");
        assert_eq!(model.event_count(), 0, "nothing was written");
        let error = check(&device(4096, model.image()).1).expect_err("nor is it looked at as one");
        assert!(error.to_string().contains("but an ext2, ext3 or ext4 file system"), "{error}");
    }
}

#[test]
fn with_all_copies_damaged_the_error_says_so() {
    let mut image = sample(4096);
    (0..3).for_each(|copy| damage(&mut image, copy, 70));
    let error = Volume::open(device(4096, image).1).err().expect("no copy is sound");
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    assert!(error.to_string().contains("checksum"), "{error}");
    let error = Volume::open(device(4096, Image::default()).1).err().expect("nothing there");
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
    assert!(error.to_string().contains("nvme format"), "{error}");
}

#[test]
fn a_device_that_shrank_is_told() {
    let image = sample(4096);
    let blocks = VOLUME_BYTES / 4096 - 10;
    let model = ModelDevice::new(4096, blocks, image).expect("right");
    let port = Port::new(Arc::new(model), Discipline::Sync).expect("has queues");
    let error = Volume::open(port).err().expect("it is smaller");
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    assert!(error.to_string().contains("shrank"), "{error}");
    assert!(error.to_string().contains("no file lay behind its end"), "{error}");
}

#[test]
fn the_block_size_may_change_under_a_volume() {
    for (from, to) in [(512, 4096), (4096, 512), (1024, 2048)] {
        let volume = Volume::open(device(to, sample(from)).1).expect("pages are the same");
        assert_eq!(content(&volume, "db"), COMMITTED);
        let file = volume.open_file("db", EXISTING).expect("it is there");
        file.write_at(b"W", 0).expect("writes");
        file.sync().expect("syncs");
    }
    let model = ModelDevice::new(8192, 1024, Image::default());
    let model = Arc::new(model.expect("the sizes are right"));
    let port = Port::new(model, Discipline::Sync).expect("has queues");
    let error = Volume::open(port).err().expect("blocks larger than pages");
    assert_eq!(error.kind(), Kind::Unsupported, "{error}");
}

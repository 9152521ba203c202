//! What a database asks of its files.

use crate::shadow::pattern;
use crate::shadow::{
    CREATE, EXISTING, Shadow, ShadowFile, VOLUME_BYTES, content, device, formatted,
};
use penstock_base::Kind;
use penstock_device::model::{Dice, Image};
use penstock_device::volume::{Lock, OpenFileOptions, TEMP_PREFIX, Volume};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn fresh() -> Arc<Volume> {
    Volume::open(device(4096, formatted(4096)).1).expect("opens")
}

fn bytes(length: usize, seed: u64) -> Vec<u8> {
    pattern(length, &mut Dice::new(seed))
}

#[test]
fn sizes_are_exact_and_survive() {
    let (model, port) = device(512, formatted(512));
    let volume = Volume::open(port).expect("opens");
    let mut shadow = Shadow::new();
    for (index, size) in [0usize, 1, 511, 4095, 4096, 4097, 70_000, 262_144].iter().enumerate() {
        let name = format!("file{index}");
        let file = volume.open_file(&name, CREATE).expect("creates");
        file.write_at(&bytes(*size, index as u64), 0).expect("writes");
        file.sync().expect("syncs");
        assert_eq!(file.size_bytes(), *size as u64);
        shadow.insert(name, ShadowFile { live: bytes(*size, index as u64), ..Default::default() });
    }
    drop(volume);
    let volume = Volume::open(device(512, model.image()).1).expect("opens again");
    assert_eq!(volume.list().len(), shadow.len());
    for (name, file) in shadow {
        assert!(content(&volume, &name) == file.live, "{name}");
    }
}

#[test]
fn a_log_grows_by_small_pieces_and_is_emptied() {
    let volume = fresh();
    let log = volume.open_file("db.wal", CREATE).expect("creates");
    let mut all = Vec::new();
    for round in 0..200u64 {
        let piece = bytes(1 + round as usize * 7 % 900, round);
        log.write_at(&piece, all.len() as u64).expect("appends");
        all.extend(piece);
        if round % 3 == 0 {
            log.sync().expect("syncs");
        }
    }
    assert!(content(&volume, "db.wal") == all);
    let before = volume.free_bytes();
    log.truncate(0).expect("empties");
    assert_eq!(log.size_bytes(), 0);
    assert!(volume.free_bytes() > before, "its pages are free again");
    log.write_at(b"next", 0).expect("appends");
    assert_eq!(content(&volume, "db.wal"), b"next");
}

#[test]
fn what_lies_between_is_zeros_also_where_other_files_lay() {
    let volume = fresh();
    let old = volume.open_file("old", CREATE).expect("creates");
    old.write_at(&vec![0xAA; 1 << 20], 0).expect("writes");
    drop(old);
    volume.remove("old").expect("removes");
    let file = volume.open_file("new", CREATE).expect("creates");
    file.write_at(b"a", 10).expect("writes");
    file.write_at(b"b", 300_001).expect("writes");
    file.write_at(&[7; 4096], 409_600).expect("writes");
    file.truncate(500_000).expect("grows");
    let mut expected = vec![0; 500_000];
    expected[10] = b'a';
    expected[300_001] = b'b';
    expected[409_600..413_696].fill(7);
    assert!(content(&volume, "new") == expected);
    file.truncate(5000).expect("shrinks");
    file.truncate(9000).expect("grows");
    expected.truncate(5000);
    expected.resize(9000, 0);
    assert!(content(&volume, "new") == expected);
}

#[test]
fn reads_end_with_the_file() {
    let volume = fresh();
    let file = volume.open_file("f", CREATE).expect("creates");
    let all = bytes(10_000, 1);
    file.write_at(&all, 0).expect("writes");
    for (offset, length) in [(0usize, 10_000usize), (1, 4095), (4095, 2), (4096, 5904), (9999, 9)] {
        let mut into = vec![0; length];
        let count = file.read_at(&mut into, offset as u64).expect("reads");
        assert_eq!(count, length.min(10_000 - offset));
        assert!(into[..count] == all[offset..offset + count], "{offset} {length}");
    }
    assert_eq!(file.read_at(&mut [0; 5], 10_000).expect("reads"), 0);
    assert_eq!(file.read_at(&mut [0; 5], u64::MAX).expect("reads"), 0);
    let error = file.write_at(&[0; 5], u64::MAX - 2).expect_err("no device is so large");
    assert_eq!(error.kind(), Kind::Invalid);
}

#[test]
fn a_rename_replaces_and_handles_follow() {
    let volume = fresh();
    let wal = volume.open_file("db.wal", CREATE).expect("creates");
    wal.write_at(b"old", 0).expect("writes");
    let checkpoint = volume.open_file("db.wal.checkpoint", CREATE).expect("creates");
    checkpoint.write_at(b"new log", 0).expect("writes");
    checkpoint.sync().expect("syncs");
    volume.rename("db.wal.checkpoint", "db.wal").expect("renames");
    assert!(!volume.exists("db.wal.checkpoint"));
    assert_eq!(content(&volume, "db.wal"), b"new log");
    assert_eq!(checkpoint.name(), "db.wal");
    checkpoint.write_at(b"!", 7).expect("the handle follows");
    assert_eq!(content(&volume, "db.wal"), b"new log!");
    let gone = wal.read_at(&mut [0; 3], 0).expect_err("it was replaced");
    assert_eq!(gone.kind(), Kind::NotFound, "{gone}");
    assert!(gone.to_string().contains("it was replaced while it was open"), "{gone}");
    assert_eq!(gone.hint(), Some("Run the statement again"));
    for outcome in [wal.write_at(b"x", 0), wal.sync(), wal.truncate(0), wal.trim(0, 9)] {
        assert_eq!(outcome.expect_err("it was replaced").kind(), Kind::NotFound);
    }
    volume.rename("db.wal", "db.wal").expect("to itself");
    let error = volume.rename("nothing", "x").expect_err("there is none");
    assert!(error.to_string().contains("model?db=nothing"), "{error}");
}

#[test]
fn who_reads_while_a_file_is_replaced_is_told_of_that() {
    let volume = fresh();
    let done = AtomicBool::new(false);
    let read_it = || {
        while !done.load(Ordering::Relaxed) {
            // Until the first one is there, and between the two.
            let Ok(file) = volume.open_file("file", EXISTING) else { continue };
            let error = loop {
                if let Err(error) = file.read_at(&mut [0; 8192], 0) {
                    break error.to_string();
                }
                if done.load(Ordering::Relaxed) {
                    return;
                }
            };
            assert!(error.contains("it was replaced while it was open"), "{error}");
        }
    };
    std::thread::scope(|threads| {
        (0..3).for_each(|_| drop(threads.spawn(read_it)));
        for _ in 0..5_000 {
            let next = volume.open_file("next", CREATE).expect("creates");
            next.write_at(&[1; 8192], 0).expect("writes");
            next.sync().expect("syncs");
            volume.rename("next", "file").expect("renames");
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn locks_keep_handles_apart() {
    let volume = fresh();
    let with = |lock| volume.open_file("db", OpenFileOptions { create: true, lock });
    let writer = with(Lock::Write).expect("nobody else");
    assert_eq!(with(Lock::Read).err().expect("a writer").kind(), Kind::Conflict);
    assert_eq!(with(Lock::Write).err().expect("a writer").kind(), Kind::Conflict);
    drop(with(Lock::None).expect("does not care"));
    // Nor does another file take its place.
    drop(volume.open_file("tmp_db", CREATE).expect("creates"));
    let replace = || volume.rename("tmp_db", "db");
    assert_eq!(replace().expect_err("a writer").kind(), Kind::Conflict);
    assert_eq!(volume.check_replaceable("db").expect_err("a writer").kind(), Kind::Conflict);
    drop(writer);
    let first = with(Lock::Read).expect("nobody else");
    let second = with(Lock::Read).expect("readers go together");
    assert_eq!(with(Lock::Write).err().expect("readers").kind(), Kind::Conflict);
    let error = replace().expect_err("readers");
    assert!(error.to_string().contains("model?db=db: it is open already"), "{error}");
    drop((first, second));
    volume.check_replaceable("db").expect("all are gone");
    volume.check_replaceable("none").expect("there is none");
    replace().expect("all are gone");
    drop(with(Lock::Write).expect("all are gone"));
}

/// Whoever keeps no handle knows his file again, and no other of its name: also not one that has
/// its size and lies where it lay.
#[test]
fn a_version_is_of_one_file() {
    let anew = |image: Image| {
        let (model, port) = device(4096, image);
        (model, Volume::open(port).expect("opens"))
    };
    let (mut model, mut volume) = anew(formatted(4096));
    let put = |volume: &Arc<Volume>, name: &str, bytes: &[u8]| {
        let file = volume.open_file(name, CREATE).expect("creates");
        file.write_at(bytes, 0).expect("writes");
        file.sync().expect("syncs");
    };
    let replace = |volume: &Arc<Volume>, bytes: &[u8]| {
        put(volume, "tmp_f", bytes);
        volume.rename("tmp_f", "f").expect("renames");
    };
    let open = |volume: &Arc<Volume>| volume.open_file("f", EXISTING).expect("it is there");
    for length in [0, 1, 4096, 5000, 70_000] {
        put(&volume, "f", &bytes(length, 1));
        let first = open(&volume).version().expect("reads");
        put(&volume, "other", &bytes(9000, 2));
        volume.remove("other").expect("removes");
        assert!(open(&volume).is_still(&first).expect("reads"), "{length}: others changed");
        drop(volume);
        (model, volume) = anew(model.image());
        assert!(open(&volume).is_still(&first).expect("reads"), "{length}: opened anew");
        let again = open(&volume).version().expect("reads").to_string();
        assert_eq!(again, first.to_string(), "{length}");
        let others = [bytes(length + 1, 3), bytes(length, 4), bytes(length, 5), bytes(length, 6)];
        for (index, other) in others.iter().filter(|other| !other.is_empty()).enumerate() {
            replace(&volume, other);
            let now = open(&volume);
            assert!(!now.is_still(&first).expect("reads"), "{length}: replaced by {index}");
            assert_ne!(now.version().expect("reads").to_string(), first.to_string());
        }
        volume.remove("f").expect("removes");
        drop(volume);
        (model, volume) = anew(model.image());
    }
}

#[test]
fn temporary_files_are_gone_after_closing_and_their_space_is_free() {
    let (model, port) = device(4096, formatted(4096));
    let volume = Volume::open(port).expect("opens");
    let free = volume.free_bytes();
    let name = format!("{TEMP_PREFIX}duckdb_temp_storage_DEFAULT-0.tmp");
    let file = volume.open_file(&name, CREATE).expect("creates");
    file.write_at(&bytes(262_144, 4), 262_144).expect("writes");
    file.write_at(&[1; 8], 8).expect("writes");
    file.sync().expect("nothing to make durable");
    assert_eq!(file.size_bytes(), 524_288);
    assert!(volume.free_bytes() < free);
    assert_eq!(volume.rename(&name, "db").expect_err("temporary").kind(), Kind::Invalid);
    drop((file, volume));
    let volume = Volume::open(device(4096, model.image()).1).expect("opens");
    assert!(volume.list().is_empty());
    assert_eq!(volume.free_bytes(), free);
}

#[test]
fn a_full_volume_says_so_and_goes_on() {
    let volume = fresh();
    let file = volume.open_file("db", CREATE).expect("creates");
    let block = vec![3; 262_144];
    let mut blocks = 0u64;
    let error = loop {
        match file.write_at(&block, blocks * 262_144) {
            Ok(()) => blocks += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), Kind::Exhausted, "{error}");
    assert!(error.to_string().contains("nvme grow"), "{error}");
    assert!(blocks * 262_144 + 262_144 > volume.free_bytes(), "most of it was used");
    file.sync().expect("what is there can be synced");
    assert_eq!(file.size_bytes(), blocks * 262_144);
    file.truncate(262_144).expect("shrinks");
    volume.open_file("other", CREATE).expect("creates").write_at(&block, 0).expect("fits again");
}

#[test]
fn threads_write_blocks_side_by_side() {
    const THREADS: u64 = 4;
    let volume = fresh();
    let file = volume.open_file("db", CREATE).expect("creates");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let file = &file;
            scope.spawn(move || {
                for round in 0..5u64 {
                    let block = round * THREADS + thread;
                    let bytes = bytes(16_384, block);
                    file.write_at(&bytes, block * 16_384).expect("writes");
                    let mut back = vec![0; bytes.len()];
                    file.read_at(&mut back, block * 16_384).expect("reads");
                    assert!(back == bytes, "block {block}");
                }
            });
        }
        for thread in 0..THREADS {
            // Parts of pages, in one file of all threads.
            let log = volume.open_file("log", CREATE).expect("creates");
            scope.spawn(move || {
                for round in 0..50u64 {
                    let at = (round * THREADS + thread) * 100;
                    log.write_at(&[thread as u8 + 1; 100], at).expect("writes");
                }
            });
        }
    });
    file.sync().expect("syncs");
    for block in 0..5 * THREADS {
        let mut back = vec![0; 16_384];
        file.read_at(&mut back, block * 16_384).expect("reads");
        assert!(back == bytes(16_384, block), "block {block}");
    }
    for (index, piece) in content(&volume, "log").chunks(100).enumerate() {
        let expected = index as u64 % THREADS + 1;
        assert!(piece.iter().all(|byte| u64::from(*byte) == expected), "piece {index}");
    }
}

#[test]
fn a_device_that_grew_gives_its_room_to_the_volume() {
    let (small, port) = device(4096, formatted(4096));
    let volume = Volume::open(port).expect("opens");
    let file = volume.open_file("db", CREATE).expect("creates");
    file.write_at(&bytes(100_000, 9), 0).expect("writes");
    file.sync().expect("syncs");
    drop((file, volume));
    let blocks = 2 * VOLUME_BYTES / 4096;
    let open = |image: Image| {
        let model = penstock_device::model::ModelDevice::new(4096, blocks, image);
        let model = Arc::new(model.expect("the sizes are right"));
        let port = penstock_device::Port::new(model.clone(), penstock_device::Discipline::Thread);
        (model, Volume::open(port.expect("has queues")).expect("opens"))
    };
    let (large, volume) = open(small.image());
    let free = volume.free_bytes();
    assert_eq!(volume.size_bytes(), VOLUME_BYTES, "nothing grows unasked");
    assert_eq!(volume.grow().expect("grows"), 2 * VOLUME_BYTES);
    assert_eq!(volume.free_bytes(), free + VOLUME_BYTES);
    drop(volume);
    let (_, volume) = open(large.image());
    assert_eq!(volume.free_bytes(), free + VOLUME_BYTES);
    assert!(content(&volume, "db") == bytes(100_000, 9));
    let file = volume.open_file("db", EXISTING).expect("it is there");
    file.write_at(&vec![1; 6 << 20], 0).expect("the new room can be used");
}

#[test]
fn an_error_names_what_to_do() {
    let volume = Volume::open(device(4096, formatted(4096)).1).expect("opens");
    let hint = |outcome: penstock_base::Result<()>| {
        let error = outcome.expect_err("it is refused");
        error.hint().unwrap_or_else(|| panic!("{error}")).to_string()
    };
    let absent = || volume.open_file("absent", EXISTING).map(drop);
    assert_eq!(hint(absent()), "The volume is empty");
    let names: Vec<String> = (10..30).map(|number| format!("n{number}")).collect();
    names.iter().for_each(|name| drop(volume.open_file(name, CREATE).expect("creates")));
    let told = hint(absent());
    assert!(told.starts_with("There are: n10, n11, ") && told.ends_with(", n21, ..."), "{told}");
    assert_eq!(hint(volume.remove("absent")), told);
    assert_eq!(hint(volume.rename("absent", "other")), told);
    hint(volume.open_file("", CREATE).map(drop));
    let file = volume.open_file("n10", EXISTING).expect("it is there");
    hint(file.write_at(&[1], u64::MAX));
    volume.remove("n10").expect("removes");
    hint(file.read_at(&mut [0], 0).map(drop));
}

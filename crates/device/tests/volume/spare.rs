//! Room that files have beyond their need: others get it before they are told that the volume is
//! full, it is given back with the last handle, and no power cut meets a page that two files have.

use crate::crash::cut_everywhere;
use crate::history::{Change, Course};
use crate::shadow::{CREATE, EXISTING, Shadow, content, device, formatted, formatted_at, pattern};
use penstock_base::Kind;
use penstock_device::model::Dice;
use penstock_device::volume::{File, Volume};
use std::sync::{Arc, LazyLock};

const PAGE: usize = 4096;
/// Pages that files can have on a volume of these tests.
const PAGES: usize = 512;

fn fresh() -> Arc<Volume> {
    Volume::open(device(4096, formatted(4096)).1).expect("opens")
}

fn allocated(volume: &Arc<Volume>) -> Vec<u64> {
    volume.list().iter().map(|file| file.allocated_bytes).collect()
}

fn create(volume: &Arc<Volume>, name: &str) -> File {
    volume.open_file(name, CREATE).expect("creates")
}

#[test]
fn files_that_are_open_leave_the_last_page_to_whoever_needs_it() {
    let volume = fresh();
    let mut files = Vec::new();
    for number in 0..PAGES {
        // What spills may not have the last pages.
        let is_temp = number % 9 == 0 && number < PAGES * 3 / 4;
        let file = create(&volume, &format!("{}{number}", if is_temp { "temp/" } else { "f" }));
        // Bytes of the page, so that none is overwritten whole.
        file.write_at(&[number as u8; 100], 0).expect("there is a page for it");
        if number % 3 == 0 {
            file.sync().expect("syncs");
        }
        files.push(file);
    }
    assert_eq!(volume.free_bytes(), 0);
    let error = create(&volume, "one more").write_at(&[1], 0).expect_err("it is full");
    assert_eq!(error.kind(), Kind::Exhausted, "{error}");
    for (number, file) in files.iter().enumerate() {
        let mut found = [0; 200];
        assert_eq!(file.read_at(&mut found, 0).expect("reads"), 100);
        assert_eq!(found[..100], [number as u8; 100]);
    }
}

#[test]
fn the_last_handle_gives_back_what_its_file_does_not_need() {
    let (model, port) = device(4096, formatted(4096));
    let volume = Volume::open(port).expect("opens");
    let all = volume.free_bytes();
    let (file, other) = (create(&volume, "db"), create(&volume, "db"));
    file.write_at(&[1; 5000], 0).expect("writes");
    file.sync().expect("syncs");
    drop(file);
    assert!(allocated(&volume)[0] > 8192, "another handle is open, and may grow on");
    drop(other);
    assert_eq!(allocated(&volume), [8192]);
    // What is not synced keeps its room too, and what spills is no other.
    let (log, spill) = (create(&volume, "db.wal"), create(&volume, "temp/a"));
    log.write_at(&[2; 9000], 0).expect("writes");
    spill.write_at(&[3; 9000], 0).expect("writes");
    drop((log, spill));
    assert_eq!(allocated(&volume), [8192, 12_288, 12_288]);
    assert_eq!(content(&volume, "temp/a"), [3; 9000]);
    drop(volume);
    let volume = Volume::open(device(4096, model.image()).1).expect("opens again");
    assert_eq!(content(&volume, "db"), [1; 5000]);
    assert_eq!(volume.free_bytes() + allocated(&volume).iter().sum::<u64>(), all);
}

#[test]
fn a_growth_that_fails_keeps_no_room() {
    let volume = fresh();
    let file = create(&volume, "db");
    file.write_at(&[1; 5000], 0).expect("writes");
    file.truncate(u64::from(u32::MAX)).expect_err("there is no such room");
    drop(file);
    assert_eq!(allocated(&volume), [8192]);
}

/// A query that spills is told that the volume is full while commits still have room.
#[test]
fn what_spills_leaves_room_for_a_commit() {
    let volume = fresh();
    let log = create(&volume, "db.wal");
    log.write_at(&[1; 5000], 0).expect("writes");
    log.sync().expect("syncs");
    let spills = [create(&volume, "temp/a"), create(&volume, "temp/b")];
    let mut blocks = 0;
    let error = loop {
        let at = (blocks / 2 * 8 * PAGE) as u64;
        match spills[blocks % 2].write_at(&[2; 8 * PAGE], at) {
            Ok(()) => blocks += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), Kind::Exhausted, "{error}");
    assert!(error.to_string().contains("are kept for databases"), "{error}");
    assert!(blocks * 8 > PAGES * 3 / 4, "{blocks} blocks");
    log.write_at(&vec![3; 50 * PAGE], 5000).expect("there is room");
    log.sync().expect("commits");
    // What it had is room for the next query.
    for spill in &spills {
        volume.remove(&spill.name()).expect("removes");
    }
    create(&volume, "temp/c").write_at(&vec![4; 300 * PAGE], 0).expect("spills");
}

/// What others hold in reserve is no reason to overwrite a block where it lies.
#[test]
fn blocks_move_into_what_others_have_beyond_their_need() {
    const BLOCK: usize = 16 << 10;
    let volume = fresh();
    let file = create(&volume, "db");
    file.write_at(&[1; 90 * PAGE], 0).expect("writes");
    file.sync().expect("syncs");
    let mut others = Vec::new();
    while volume.free_bytes() as usize > 90 * PAGE {
        let other = create(&volume, &format!("f{}", others.len()));
        other.write_at(&[2; 100], 0).expect("writes");
        others.push(other);
    }
    // Less than a sixteenth of the volume is free now, and most of it unused.
    let rest = create(&volume, "rest");
    rest.write_at(&vec![3; volume.free_bytes() as usize - 20 * PAGE], 0).expect("writes");
    file.write_at(&[4; BLOCK], 0).expect("overwrites");
    assert_eq!(volume.stayed_bytes(), 0);
    file.sync().expect("syncs");
    assert!(content(&volume, "db")[..BLOCK] == [4; BLOCK]);
    assert!(others.iter().all(|other| content(&volume, &other.name()) == [2; 100]));
}

/// Threads that make files longer while what these have beyond their need is taken back.
#[test]
fn files_that_grow_side_by_side_keep_what_they_were_given() {
    const WRITERS: usize = 4;
    let content_of = |writer| pattern((PAGES - 16) / WRITERS * PAGE, &mut Dice::new(writer));
    for _ in 0..10 {
        let volume = fresh();
        std::thread::scope(|scope| {
            for writer in 0..WRITERS as u64 {
                let volume = &volume;
                scope.spawn(move || {
                    let file = create(volume, &format!("f{writer}"));
                    let all = content_of(writer);
                    // Parts of pages: the file tells of them once they are written.
                    for (number, piece) in all.chunks(3000).enumerate() {
                        file.write_at(piece, number as u64 * 3000).expect("there is room");
                        if number % 64 == 0 {
                            file.sync().expect("syncs");
                        }
                    }
                });
            }
        });
        for writer in 0..WRITERS as u64 {
            let found = content(&volume, &format!("f{writer}"));
            assert!(found == content_of(writer), "{writer}");
        }
    }
}

/// More files than there is room for with a reserve each.
static MANY: LazyLock<Vec<&str>> =
    LazyLock::new(|| (0..24).map(|number| &*format!("f{number}").leak()).collect());
/// Pages of all of them together: the smallest volume has room for a few more.
const ALL_PAGES_MOST: usize = 248;

/// Files that grow in a volume nearly full: blocks are too small to move, so that the volume makes
/// no syncs of its own.
fn choose(shadow: &Shadow, dice: &mut Dice) -> Change {
    let name = MANY[dice.below(MANY.len() as u64) as usize];
    let Some(file) = shadow.get(name) else { return Change::Create(name) };
    let size = file.live.len();
    let pages = |bytes: usize| bytes.div_ceil(PAGE);
    let used: usize = shadow.values().map(|file| pages(file.live.len())).sum();
    match dice.below(40) {
        0..29 => {
            let length = PAGE + dice.below(4 * PAGE as u64) as usize;
            match used + pages(size + length) - pages(size) <= ALL_PAGES_MOST {
                true => Change::Write(name, size, pattern(length, dice)),
                false => Change::Truncate(name, size / 2),
            }
        }
        29..31 => {
            let length = dice.below(2 * PAGE as u64) as usize + 1;
            let offset = dice.below(size as u64 + 1) as usize;
            let length = length.min(pages(size) * PAGE - offset);
            Change::Write(name, offset, pattern(length, dice))
        }
        31..38 => Change::Sync(name),
        38 => Change::Truncate(name, dice.below(size as u64 + 1) as usize),
        _ => Change::Remove(name),
    }
}

#[test]
fn after_every_power_cut_no_page_that_was_taken_back_is_missing_or_has_two_owners() {
    let course = Course { choose, changes: 220 };
    let mut cuts = 0;
    for seed in 1..4 {
        let base = formatted_at(4 << 20, 4096);
        cuts += cut_everywhere(4096, &base, course, seed).0;
    }
    assert!(cuts > 2000, "{cuts} cuts");
}

#[test]
fn a_volume_whose_files_hold_reserves_of_before_takes_them_back() {
    let (model, port) = device(4096, formatted(4096));
    let volume = Volume::open(port).expect("opens");
    let file = create(&volume, "db");
    file.write_at(&[1; 5000], 0).expect("writes");
    file.sync().expect("syncs");
    // As a process leaves it that was killed.
    let image = model.image();
    let (model, port) = device(4096, image);
    let other = Volume::open(port).expect("opens");
    let free = other.free_bytes();
    let new = create(&other, "new");
    new.write_at(&vec![2; free as usize + PAGE], 0).expect("the other gives room");
    new.sync().expect("syncs");
    drop((new, other));
    let other = Volume::open(device(4096, model.image()).1).expect("opens again");
    assert_eq!(other.open_file("db", EXISTING).expect("is there").size_bytes(), 5000);
    assert_eq!(content(&other, "db"), [1; 5000]);
}

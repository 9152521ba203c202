//! Random histories of changes to a volume, made from a seed: what is asked of the volume, what of
//! it must be durable, and what the device was told meanwhile.

use crate::shadow::{CREATE, EXISTING, Shadow, VOLUME_BYTES, content, device, pattern};
use penstock_device::Port;
use penstock_device::model::{Dice, Event, Image};
use penstock_device::volume::table::NAME_BYTES_MAX;
use penstock_device::volume::{File, TEMP_PREFIX, Volume};
use std::sync::{Arc, LazyLock};

/// Changes of a history.
const CHANGES: usize = 40;

/// With some of them the table is longer than a sector, so that a power cut can tear it.
static NAMES: LazyLock<[&str; 5]> = LazyLock::new(|| {
    let long = |letter: &str| &*letter.repeat(NAME_BYTES_MAX).leak();
    ["db", "db.wal", long("n"), long("o"), "other"]
});

#[derive(Clone, Debug)]
pub enum Change {
    Create(&'static str),
    Write(&'static str, usize, Vec<u8>),
    Sync(&'static str),
    Truncate(&'static str, usize),
    /// At an offset, so many bytes.
    Trim(&'static str, usize, usize),
    Rename(&'static str, &'static str),
    Remove(&'static str),
    Spill(usize),
    /// Over the whole device, which had become larger.
    Grow,
}

impl Change {
    /// Without the bytes.
    pub fn tell(&self) -> String {
        match self {
            Change::Write(name, offset, bytes) => {
                format!("Write({name}, {offset}, {} bytes)", bytes.len())
            }
            other => format!("{other:?}"),
        }
    }
}

fn choose(shadow: &Shadow, dice: &mut Dice) -> Change {
    let pick = |dice: &mut Dice| NAMES[dice.below(NAMES.len() as u64) as usize];
    let name = pick(dice);
    let Some(file) = shadow.get(name) else { return Change::Create(name) };
    let size = file.live.len();
    match dice.below(25) {
        // As a log is written: small pieces at the end.
        0..4 => {
            let length = dice.below(700) as usize + 1;
            Change::Write(name, size, pattern(length, dice))
        }
        // As blocks are written: whole pages anywhere, also behind the end.
        4..8 => {
            let page = dice.below(size as u64 / 4096 + 6) as usize * 4096;
            let length = (dice.below(6) as usize + 1) * 4096;
            Change::Write(name, page, pattern(length, dice))
        }
        8..11 => {
            let offset = dice.below(size as u64 + 9000) as usize;
            let length = dice.below(9000) as usize + 1;
            Change::Write(name, offset, pattern(length, dice))
        }
        11..15 => Change::Sync(name),
        15 => Change::Truncate(name, dice.below(size as u64 + 1) as usize),
        16 => Change::Truncate(name, size + dice.below(9000) as usize),
        17 => Change::Remove(name),
        18 => Change::Spill(dice.below(20_000) as usize + 1),
        19 => Change::Grow,
        // As blocks that are free in the database are.
        20 => {
            let offset = dice.below(size as u64 + 1) as usize;
            Change::Trim(name, offset, dice.below(40_000) as usize)
        }
        // As blocks are written anew.
        21..24 => {
            let page = dice.below(size as u64 / 4096 + 1).saturating_sub(4) as usize * 4096;
            let length = (dice.below(5) as usize + 4) * 4096;
            Change::Write(name, page, pattern(length, dice))
        }
        _ => Change::Rename(name, pick(dice)),
    }
}

/// Gives the handle that it used, which keeps the room that its file has beyond its need.
fn apply(volume: &Arc<Volume>, change: &Change) -> Option<File> {
    let open = |name: &str| volume.open_file(name, EXISTING).expect("it is there");
    match change {
        Change::Create(name) => return Some(volume.open_file(name, CREATE).expect("creates")),
        Change::Write(name, offset, bytes) => {
            let file = open(name);
            file.write_at(bytes, *offset as u64).expect("writes");
            return Some(file);
        }
        Change::Sync(name) => open(name).sync().expect("syncs"),
        Change::Truncate(name, size) => {
            let file = open(name);
            file.truncate(*size as u64).expect("truncates");
            return Some(file);
        }
        Change::Trim(name, offset, length) => {
            open(name).trim(*offset as u64, *length as u64).expect("trims");
        }
        Change::Rename(from, to) => volume.rename(from, to).expect("renames"),
        Change::Remove(name) => volume.remove(name).expect("removes"),
        Change::Grow => assert_eq!(volume.grow().expect("grows"), VOLUME_BYTES),
        Change::Spill(length) => {
            let name = format!("{TEMP_PREFIX}spill");
            let file = volume.open_file(&name, CREATE).expect("creates");
            file.write_at(&vec![0xEE; *length], file.size_bytes()).expect("spills");
            if length % 3 == 0 {
                volume.remove(&name).expect("removes");
            }
        }
    }
    None
}

fn apply_to_shadow(shadow: &mut Shadow, change: &Change, before: Shadow) {
    match change {
        Change::Create(name) => drop(shadow.insert(name.to_string(), Default::default())),
        Change::Write(name, offset, bytes) => {
            let file = shadow.get_mut(*name).expect("it is there");
            file.write(*offset, bytes);
            file.since = before[*name].since.clone();
        }
        Change::Sync(name) => shadow.get_mut(*name).expect("it is there").sync(),
        Change::Truncate(name, size) => {
            shadow.get_mut(*name).expect("it is there").truncate(*size);
        }
        Change::Trim(name, offset, length) => {
            shadow.get_mut(*name).expect("it is there").trim(*offset, *length);
        }
        Change::Rename(from, to) => {
            let file = shadow.remove(*from).expect("it is there");
            shadow.insert(to.to_string(), file);
        }
        Change::Remove(name) => drop(shadow.remove(*name)),
        Change::Spill(_) | Change::Grow => {}
    }
}

/// The shadow while a change is under way: what it writes may be there already, and what it trims
/// be gone.
fn under_way(shadow: &Shadow, change: &Change, blocks_move: bool) -> Shadow {
    let mut shadow = shadow.clone();
    if let Change::Write(name, offset, bytes) = change {
        let file = shadow.get_mut(*name).expect("it is there");
        file.write_under_way(*offset, bytes, blocks_move);
    }
    if let Change::Trim(name, offset, length) = change {
        shadow.get_mut(*name).expect("it is there").trim(*offset, *length);
    }
    shadow
}

fn overwrites_blocks(shadow: &Shadow, change: &Change) -> bool {
    let Change::Write(name, offset, bytes) = change else { return false };
    !shadow[*name].moved(*offset, offset + bytes.len()).is_empty()
}

/// A change, and which events of the device it made.
pub struct Step {
    pub change: Change,
    /// Whether blocks went to other places.
    pub moves: bool,
    pub until: usize,
    pub before: Shadow,
    pub after: Shadow,
}

/// How a history goes.
#[derive(Clone, Copy)]
pub struct Course {
    /// The next change.
    pub choose: fn(&Shadow, &mut Dice) -> Change,
    /// How many.
    pub changes: usize,
}

pub const USUAL: Course = Course { choose, changes: CHANGES };

/// Handles are closed after so many changes, in histories that keep them.
const KEPT_FOR: usize = 9;

pub fn history(
    block_size: u32,
    base: &Image,
    course: Course,
    seed: u64,
) -> (Vec<Step>, Vec<Event>) {
    let mut dice = Dice::new(seed);
    let (model, port) = device(block_size, base.clone());
    // Threads of the volume write beside the history: where the cuts fall, chance decides.
    let volume = open(port, seed.is_multiple_of(3));
    let mut shadow = Shadow::new();
    let mut steps = Vec::new();
    let mut kept = Vec::new();
    for number in 0..course.changes {
        let change = (course.choose)(&shadow, &mut dice);
        let stayed = volume.stayed_bytes();
        kept.extend(apply(&volume, &change));
        if seed.is_multiple_of(5) || number % KEPT_FOR == 0 {
            kept.clear();
        }
        // Where there is no room for both, an overwritten block stays where it is.
        let blocks_move = volume.stayed_bytes() == stayed;
        let before = under_way(&shadow, &change, blocks_move);
        apply_to_shadow(&mut shadow, &change, before.clone());
        let until = model.event_count();
        let moves = blocks_move && overwrites_blocks(&shadow, &change);
        steps.push(Step { change, moves, until, before, after: shadow.clone() });
    }
    for (name, file) in &shadow {
        let found = content(&volume, name);
        assert!(file.is_live(&found), "{name} before any cut");
    }
    let events = model.events();
    (steps, events)
}

pub fn open(port: Port, has_helpers: bool) -> Arc<Volume> {
    let opened = match has_helpers {
        true => Volume::open_with_helpers(port),
        false => Volume::open(port),
    };
    opened.expect("opens")
}

pub fn replay(mut image: Image, events: &[Event]) -> Image {
    for (offset, bytes) in events.iter().filter_map(Event::put) {
        image.write(offset, bytes);
    }
    image
}

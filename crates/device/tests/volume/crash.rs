//! Power cuts: a seed makes a history of changes, the history is cut at every command of the
//! device, and a second seed decides what of the unflushed writes is left. After each cut the
//! volume opens and holds exactly what was durable: no file less or more, no size, no byte. The
//! same where a process was killed first, and the power goes while the next opens the volume.

use crate::shadow::{
    CREATE, EXISTING, Shadow, VOLUME_BYTES, contents, device, formatted, formatted_at, pattern,
};
use penstock_base::DeviceMetric;
use penstock_device::Port;
use penstock_device::model::{Dice, Event, Image, ModelDevice, survivors};
use penstock_device::volume::table::NAME_BYTES_MAX;
use penstock_device::volume::{File, TEMP_PREFIX, Volume};
use std::sync::{Arc, LazyLock};

/// Histories; together they have more cuts than [`CUTS_MIN`].
const HISTORIES: u64 = 88;
/// Fewest cuts of a run.
const CUTS_MIN: usize = 10_000;
/// Fewest writes of a run that put blocks in other places.
const MOVES_MIN: usize = 100;
/// Fewest trims of a run.
const TRIMS_MIN: usize = 200;
/// Changes of a history.
const CHANGES: usize = 40;

/// Bytes of the smallest block that moves when it is overwritten.
const BLOCK: usize = 16 << 10;

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
    fn tell(&self) -> String {
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
struct Step {
    change: Change,
    /// Whether blocks went to other places.
    moves: bool,
    until: usize,
    before: Shadow,
    after: Shadow,
}

/// How a history goes.
#[derive(Clone, Copy)]
pub struct Course {
    /// The next change.
    pub choose: fn(&Shadow, &mut Dice) -> Change,
    /// How many.
    pub changes: usize,
}

const USUAL: Course = Course { choose, changes: CHANGES };
/// Handles are closed after so many changes, in histories that keep them.
const KEPT_FOR: usize = 9;

fn history(block_size: u32, base: &Image, course: Course, seed: u64) -> (Vec<Step>, Vec<Event>) {
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
        let found = crate::shadow::content(&volume, name);
        assert!(file.is_live(&found), "{name} before any cut");
    }
    let events = model.events();
    (steps, events)
}

/// Whether the files are what they must be, or what is wrong.
fn judge(shadow: &Shadow, volume: &Arc<Volume>) -> Result<(), String> {
    let found = contents(volume);
    let names: Vec<&String> = found.keys().collect();
    if names != shadow.keys().collect::<Vec<_>>() {
        return Err(format!("files {names:?} instead of {:?}", shadow.keys()));
    }
    for (name, file) in shadow {
        if !file.allows(&found[name]) {
            let (is, was) = (found[name].len(), file.synced.len());
            return Err(format!("{name} is wrong: {is} bytes, synced were {was}"));
        }
    }
    Ok(())
}

/// `allowed` are the states of which the volume must hold one.
fn check_cut(block_size: u32, image: Image, allowed: &[&Shadow], what: &str) {
    let (_, port) = device(block_size, image);
    let volume = Volume::open(port).unwrap_or_else(|error| panic!("{what}: {error}"));
    let verdicts: Vec<_> = allowed.iter().map(|shadow| judge(shadow, &volume)).collect();
    assert!(verdicts.iter().any(Result::is_ok), "{what}: {verdicts:?}");
    // It must also go on from there.
    let file = volume.open_file("new", CREATE).expect("creates");
    file.write_at(b"still usable", 5).expect("writes");
    file.sync().expect("syncs");
}

/// Kills at a cut: nothing that the device was told is lost, and nothing more of it is durable.
/// Then cuts the opening that follows at every command; returns how many cuts those were.
fn kill_then_cut(
    block_size: u32,
    (durable, pending): (&Image, &[Event]),
    seed: u64,
    check: impl Fn(Image, &str),
) -> usize {
    let (model, port) = device(block_size, replay(durable.clone(), pending));
    let volume = Volume::open(port).expect("opens after a kill");
    let events: Vec<Event> = pending.iter().cloned().chain(model.events()).collect();
    drop(volume);
    for cut in pending.len() + 1..=events.len() {
        let flushed = events[..cut].iter().rposition(|event| matches!(event, Event::Flush));
        let (before, after) = events[..cut].split_at(flushed.map_or(0, |at| at + 1));
        let left = survivors(&replay(durable.clone(), before), after, seed ^ (cut as u64) << 40);
        check(left, &format!("command {} of the opening", cut - pending.len()));
    }
    events.len() - pending.len()
}

/// Cuts one history everywhere; returns how many cuts there were, how many writes that moved
/// blocks, and how many trims.
pub fn cut_everywhere(
    block_size: u32,
    base: &Image,
    course: Course,
    seed: u64,
) -> (usize, usize, usize) {
    let (steps, events) = history(block_size, base, course, seed);
    let mut durable = base.clone();
    let (mut pending, mut cuts) = (0, 0);
    for cut in 0..=events.len() {
        let done = steps.partition_point(|step| step.until <= cut);
        let mut allowed = Vec::new();
        match steps.get(done) {
            // A change that has told the device nothing yet can have changed nothing durable.
            Some(step) => {
                let began = done.checked_sub(1).map_or(0, |last| steps[last].until);
                allowed.push(&step.before);
                allowed.extend((cut > began).then_some(&step.after));
            }
            None => allowed.push(&steps[done - 1].after),
        }
        let under_way = steps.get(done).map_or("nothing".into(), |step| step.change.tell());
        let what = format!("history {seed}, cut {cut}, in {under_way}");
        let image = survivors(&durable, &events[pending..cut], seed ^ (cut as u64) << 20);
        check_cut(block_size, image, &allowed, &what);
        let told = (&durable, &events[pending..cut]);
        cuts += 1 + kill_then_cut(block_size, told, seed ^ (cut as u64) << 20, |image, opening| {
            check_cut(block_size, image, &allowed, &format!("{what}, then {opening}"));
        });
        match events.get(cut) {
            Some(Event::Flush) => {
                durable = replay(durable, &events[pending..cut]);
                pending = cut + 1;
            }
            Some(Event::Write { .. } | Event::Trim { .. }) | None => {}
        }
    }
    let trims = events.iter().filter(|event| matches!(event, Event::Trim { .. }));
    (cuts, steps.iter().filter(|step| step.moves).count(), trims.count())
}

#[test]
fn after_every_power_cut_the_volume_holds_what_was_synced() {
    // Half of the devices have become larger since they were formatted.
    let bases: Vec<_> = [VOLUME_BYTES, VOLUME_BYTES - (1 << 20)]
        .into_iter()
        .flat_map(|bytes| [512, 4096].map(|size| (size, formatted_at(bytes, size))))
        .collect();
    let (mut cuts, mut moves, mut trims) = (0, 0, 0);
    std::thread::scope(|scope| {
        let half = |half| {
            let bases = &bases;
            scope.spawn(move || {
                let seeds = (0..HISTORIES).filter(move |seed| seed % 2 == half);
                let cut = seeds.map(|seed| {
                    let (block_size, base) = &bases[(seed / 2 % 4) as usize];
                    cut_everywhere(*block_size, base, USUAL, seed)
                });
                cut.collect::<Vec<_>>()
            })
        };
        for half in [half(0), half(1)] {
            for (here, moved, trimmed) in half.join().expect("every cut is fine") {
                cuts += here;
                moves += moved;
                trims += trimmed;
            }
        }
    });
    assert!(cuts >= CUTS_MIN, "{cuts} cuts");
    assert!(moves >= MOVES_MIN, "{moves} writes that moved blocks");
    assert!(trims >= TRIMS_MIN, "{trims} trims");
}

/// A block that tells its number and version.
fn block(number: usize, version: u8) -> Vec<u8> {
    let mut bytes = vec![version; BLOCK];
    bytes[0] = number as u8;
    bytes
}

/// Cuts from an event on everywhere: the file has at least so many blocks, each where it belongs
/// and of one version throughout. Returns how many cuts there were.
fn cut_blocks(
    base: &Image,
    events: &[Event],
    begin: usize,
    least: usize,
    (what, seed): (&str, u64),
) -> usize {
    for cut in begin..=events.len() {
        let flushed = events[..cut].iter().rposition(|event| matches!(event, Event::Flush));
        let pending = flushed.map_or(0, |at| at + 1);
        let durable = replay(base.clone(), &events[..pending]);
        let image = survivors(&durable, &events[pending..cut], seed << 32 | cut as u64);
        let volume = Volume::open(device(4096, image).1).expect("opens");
        let found = crate::shadow::content(&volume, "db");
        assert!(found.len() >= least * BLOCK, "{what}, cut {cut}: {} bytes", found.len());
        for (number, bytes) in found.chunks(BLOCK).enumerate() {
            let is_whole = bytes[1] > 0 && bytes == block(number, bytes[1]);
            assert!(is_whole, "{what}, cut {cut}, block {number}");
        }
    }
    events.len() + 1 - begin
}

fn write(file: &File, number: usize, version: u8) {
    file.write_at(&block(number, version), (number * BLOCK) as u64).expect("writes");
}

fn open(port: Port, has_helpers: bool) -> Arc<Volume> {
    let opened = match has_helpers {
        true => Volume::open_with_helpers(port),
        false => Volume::open(port),
    };
    opened.expect("opens")
}

/// Threads overwrite blocks and add some, while another one syncs: at no moment may a block be of
/// two versions, or one that was added without its bytes.
#[test]
fn no_power_cut_divides_a_block_that_is_written_beside_a_sync() {
    const BLOCKS: usize = 8;
    const ADDED: usize = 12;
    let mut cuts = 0;
    for round in 0..12u64 {
        let base = formatted(4096);
        let (model, port) = device(4096, base.clone());
        let volume = open(port, round % 2 == 0);
        let file = volume.open_file("db", CREATE).expect("creates");
        (0..BLOCKS).for_each(|number| write(&file, number, 1));
        file.sync().expect("syncs");
        let begin = model.event_count();
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let file = &file;
                scope.spawn(move || {
                    for version in 2..40u8 {
                        let number =
                            (usize::from(version) * 3 + writer) % (BLOCKS / 2) * 2 + writer;
                        write(file, number, version);
                    }
                });
            }
            scope.spawn(|| (0..ADDED).for_each(|number| write(&file, BLOCKS + number, 1)));
            (0..30).for_each(|_| file.sync().expect("syncs"));
        });
        assert_eq!(volume.stayed_bytes(), 0, "there is room");
        let what = format!("round {round}");
        cuts += cut_blocks(&base, &model.events(), begin, BLOCKS, (&what, round));
    }
    assert!(cuts > 500, "{cuts}");
}

/// More blocks are overwritten between two syncs than the volume has room for, by several threads:
/// it makes syncs of its own. Only where there is no room for one block more does a block stay.
#[test]
fn no_power_cut_divides_a_block_while_there_is_room_for_one_more() {
    const BLOCKS: usize = 40;
    for round in 0..8 {
        let base = formatted(4096);
        let (model, port) = device(4096, base.clone());
        let volume = open(port, round % 2 == 0);
        let file = volume.open_file("db", CREATE).expect("creates");
        (0..BLOCKS).for_each(|number| write(&file, number, 1));
        file.sync().expect("syncs");
        let begin = model.event_count();
        let overwrite = |version: u8, writers: usize| {
            std::thread::scope(|scope| {
                for writer in 0..writers {
                    let mine = (0..BLOCKS).filter(move |number| number % writers == writer);
                    let file = &file;
                    scope.spawn(move || mine.for_each(|number| write(file, number, version)));
                }
            });
        };
        (2..5).for_each(|version| overwrite(version, 3));

        // The places that wait are room to grow into as well.
        file.sync().expect("syncs");
        let blocks = volume.free_bytes() as usize / BLOCK;
        overwrite(6, 1);
        (0..blocks).for_each(|number| write(&file, BLOCKS + number, 7));
        assert_eq!(volume.stayed_bytes(), 0, "there is room");
        let what = format!("round {round}");
        let cuts = cut_blocks(&base, &model.events(), begin, BLOCKS, (&what, round));
        assert!(cuts > 4 * BLOCKS, "{cuts}");

        let counted = || penstock_device::meter::readings().0.get(DeviceMetric::BytesInPlace);
        let before = counted();
        overwrite(8, 1);
        let stayed = volume.stayed_bytes();
        assert!(stayed > 0, "there is none left");
        assert!(counted() >= before + stayed);
    }
}

#[test]
fn the_judge_notices_what_is_wrong() {
    let mut shadow = Shadow::new();
    let mut file = crate::shadow::ShadowFile::default();
    file.write(0, &[5; 1000]);
    file.sync();
    file.write(200, &[6; 100]);
    let mut found = vec![5; 1000];
    assert!(file.allows(&found));
    found[250] = 6;
    assert!(file.allows(&found), "written since");
    found[300] = 6;
    assert!(!file.allows(&found), "written by nobody");
    assert!(!file.allows(&[5; 999]), "too short");
    let mut file = crate::shadow::ShadowFile::default();
    file.write(0, &[5; 12_300]);
    file.sync();
    file.trim(100, 9000);
    let mut found = vec![5; 12_300];
    found[4096..8192].fill(9);
    assert!(file.allows(&found) && file.is_live(&found), "a whole page was trimmed");
    found[8192] = 9;
    assert!(!file.allows(&found) && !file.is_live(&found), "of this page not all");
    found[8192] = 5;
    file.write(5000, &[6; 10]);
    assert!(file.allows(&found) && !file.is_live(&found), "written, and not synced");
    found[5000..5010].fill(6);
    assert!(file.is_live(&found));
    file.sync();
    assert!(file.allows(&found));
    found[5000] = 5;
    assert!(!file.allows(&found), "synced since");
    shadow.insert("db".into(), file);
    let (_, port) = device(4096, formatted(4096));
    let volume = Volume::open(port).expect("opens");
    assert!(judge(&shadow, &volume).is_err(), "the file is not there");
}

/// A volume in which the second flush of a commit is left out must not pass: the test can fail.
#[test]
fn a_device_that_loses_flushed_writes_is_found_out() {
    let base = formatted(4096);
    let mut noticed = 0;
    for seed in 0..20u64 {
        let (steps, events) = history(4096, &base, USUAL, seed);
        let last = steps.last().expect("there are steps");
        let image = survivors(&base, &events, seed << 8 | 3);
        let (_, port) = device(4096, image);
        let fine = Volume::open(port).is_ok_and(|volume| judge(&last.after, &volume).is_ok());
        noticed += usize::from(!fine);
    }
    assert!(noticed >= 10, "{noticed} of 20");
}

#[test]
fn formatting_that_is_cut_leaves_the_old_volume_or_the_new_one_or_none() {
    for was_formatted in [false, true] {
        let base = if was_formatted { formatted(512) } else { Image::default() };
        let (model, port) = device(512, base.clone());
        let force = penstock_device::volume::FormatOptions { force: true };
        penstock_device::volume::format(&port, force).expect("formats");
        let events = model.events();
        for cut in (0..=events.len()).step_by(13) {
            let flushed = events[..cut].iter().rposition(|event| matches!(event, Event::Flush));
            let pending = flushed.map_or(0, |at| at + 1);
            for seed in 0..8 {
                let durable = replay(base.clone(), &events[..pending]);
                let (_, port) = device(512, survivors(&durable, &events[pending..cut], seed));
                match Volume::open(port) {
                    Ok(volume) => assert!(volume.list().is_empty()),
                    Err(error) => assert!(!was_formatted && pending == 0, "cut {cut}: {error}"),
                }
            }
        }
    }
}

fn replay(mut image: Image, events: &[Event]) -> Image {
    for (offset, bytes) in events.iter().filter_map(Event::put) {
        image.write(offset, bytes);
    }
    image
}

/// The model keeps what it was told in order; a reader of its events relies on that.
#[test]
fn events_are_what_the_device_was_told() {
    let (model, port): (Arc<ModelDevice>, _) = device(4096, Image::default());
    port.write(1, &[3; 4096]).expect("writes");
    port.flush().expect("flushes");
    let events = model.events();
    assert!(matches!(&events[0], Event::Write { offset: 4096, bytes } if bytes.len() == 4096));
    assert!(matches!(events[1], Event::Flush));
    assert_eq!((model.event_count(), model.command_count()), (2, 2));
}

//! Power cuts: a seed makes a history of changes, the history is cut at every command of the
//! device, and a second seed decides what of the unflushed writes is left. After each cut the
//! volume opens and holds exactly what was durable: no file less or more, no size, no byte. The
//! same where a process was killed first, and the power goes while the next opens the volume.

use crate::history::{Course, USUAL, history, replay};
use crate::shadow::{
    CREATE, Shadow, ShadowFile, VOLUME_BYTES, contents, device, formatted, formatted_at,
};
use penstock_device::model::{Event, Image, ModelDevice, survivors};
use penstock_device::volume::Volume;
use std::sync::Arc;

/// Histories; together they have more cuts than [`CUTS_MIN`].
const HISTORIES: u64 = 88;

/// Fewest cuts of a run.
const CUTS_MIN: usize = 10_000;

/// Fewest writes of a run that put blocks in other places.
const MOVES_MIN: usize = 100;

/// Fewest trims of a run.
const TRIMS_MIN: usize = 200;

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

#[test]
fn the_judge_notices_what_is_wrong() {
    let mut shadow = Shadow::new();
    let mut file = ShadowFile::default();
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
    let mut file = ShadowFile::default();
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

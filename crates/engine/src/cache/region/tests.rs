//! The disk cache on a device that loses its power, its bytes or its room: what comes back is what
//! was offered, or nothing.

use super::layout::{Label, PAGE_BYTES};
use super::{Region, format_device, look_at_device};
use crate::budget::Budget;
use crate::cache::disk::DiskCache;
use crate::cache::index::ObjectVersion;
use bytes::Bytes;
use penstock_base::{ByteRange, Kind, Metrics};
use penstock_device::model::{Dice, Event, Failure, Image, ModelDevice, survivors};
use penstock_device::volume::{FormatOptions, format};
use penstock_device::{AlignedBuffer, Discipline, Port};
use proptest::prelude::*;
use std::sync::Arc;

/// Slots of 256 KiB: eviction begins after a few megabytes.
const SLOT_BYTES: u64 = 256 << 10;
const DEVICE_BYTES: u64 = 4 << 20;

fn model(block_bytes: u32, image: Image) -> Arc<ModelDevice> {
    let blocks = DEVICE_BYTES / u64::from(block_bytes);
    Arc::new(ModelDevice::new(block_bytes, blocks, image).unwrap())
}

fn port(model: &Arc<ModelDevice>) -> Port {
    Port::new(model.clone(), Discipline::Thread).unwrap()
}

fn lay_out(model: &Arc<ModelDevice>) -> DiskCache {
    let region = Region::lay_out(port(model), SLOT_BYTES).unwrap();
    DiskCache::on(Box::new(region), 0).unwrap()
}

fn hold(model: &Arc<ModelDevice>) -> DiskCache {
    DiskCache::on(Box::new(Region::hold(port(model)).unwrap()), 0).unwrap()
}

fn version(name: u64, etag: u64) -> ObjectVersion {
    ObjectVersion {
        name: format!("https://h/b/{name}").into(),
        etag: format!("{etag}").into(),
        size_bytes: 1 << 40,
    }
}

/// Bytes of a version of an object, other ones at every place.
fn bytes(name: u64, etag: u64, start: u64, len: u64) -> Bytes {
    let seed = (name << 40 | etag << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (start..start + len).map(|at| ((at ^ seed).wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn offer(cache: &DiskCache, name: u64, etag: u64, start: u64, len: u64) {
    let budget = Budget::new(1 << 30, Arc::new(Metrics::default()));
    let lease = budget.try_lease(len).unwrap();
    cache.offer(&version(name, etag), start, &bytes(name, etag, start, len), lease, || false);
}

/// How many bytes of an object the cache has; each of them is judged.
fn check(cache: &DiskCache, name: u64, etag: u64) -> u64 {
    let of = version(name, etag);
    let mut count = 0;
    for found in cache.find(&of, ByteRange { start: 0, end: 1 << 40 }) {
        let (start, len) = (found.block.start, found.block.len());
        let mut buf = vec![0; len as usize];
        if cache.read(&of, &found, start, &mut buf) {
            assert!(buf == bytes(name, etag, start, len), "object {name} at {start}");
            count += len;
        }
    }
    count
}

/// Some part of a block, from its middle.
fn check_part(cache: &DiskCache, name: u64, start: u64, len: u64) {
    let of = version(name, 0);
    let found = cache.find(&of, ByteRange { start, end: start + len });
    let mut buf = vec![0; len as usize];
    assert!(cache.read(&of, &found[0], start, &mut buf));
    assert!(buf == bytes(name, 0, start, len));
}

#[test]
fn what_was_offered_is_there_after_a_restart_and_after_a_kill() {
    for block_bytes in [512, 4096] {
        let device = model(block_bytes, Image::default());
        let cache = lay_out(&device);
        offer(&cache, 1, 0, 100, 200_000);
        offer(&cache, 2, 0, 7, 11);
        cache.flush();
        check_part(&cache, 1, 150, 5000);
        // As it is now, no file is closed.
        let killed = hold(&model(block_bytes, device.image()));
        drop(cache);
        for again in [killed, hold(&device)] {
            assert_eq!([1, 2].map(|name| check(&again, name, 0)), [200_000, 11]);
            assert_eq!(check(&again, 1, 1), 0, "another version is another object");
            offer(&again, 3, 0, 0, 5000);
            again.flush();
            assert_eq!(check(&again, 3, 0), 5000);
        }
    }
}

#[test]
fn the_oldest_give_way_and_what_is_read_again_stays() {
    let device = model(512, Image::default());
    let mut cache = lay_out(&device);
    for round in 0..120 {
        offer(&cache, 1, 0, round * 60_000, 60_000);
        if round == 0 {
            offer(&cache, 2, 0, 0, 10_000);
        }
        cache.flush();
        assert_eq!(check(&cache, 2, 0), 10_000, "round {round}");
        if round % 17 == 0 {
            drop(cache);
            cache = hold(&device);
        }
    }
    let holdings = cache.holdings();
    assert!(holdings.file_bytes <= 14 * SLOT_BYTES, "{holdings:?}");
    assert_eq!(holdings.counts.failed_blocks, 0, "{holdings:?}");
    let kept = check(&cache, 1, 0);
    assert!((2_000_000..DEVICE_BYTES).contains(&kept), "{kept}");
}

#[test]
fn where_there_is_no_cache_it_is_told_what_there_is() {
    let refused = |device: &Arc<ModelDevice>| Region::hold(port(device)).unwrap_err();
    let device = model(512, Image::default());
    let nothing = refused(&device);
    assert!(nothing.message().contains("no cache of format 1"), "{nothing}");
    format(&port(&device), FormatOptions::default()).unwrap();
    let (before, volume) = (device.events().len(), refused(&device));
    assert!(volume.message().ends_with("but a Penstock volume"), "{volume}");
    assert!(volume.hint().unwrap().contains("format --cache --force"), "{volume}");
    assert_eq!(device.events().len(), before, "nothing is written");
    // Too small for either.
    let tiny = Arc::new(ModelDevice::new(512, 16, Image::default()).unwrap());
    assert_eq!(refused(&tiny).kind(), Kind::Invalid);
    // A label that is damaged does not make it somebody else's.
    let cache = model(512, Image::default());
    let mut label = AlignedBuffer::new(4096, 4096);
    label[..8].copy_from_slice(b"PENCACHE");
    port(&cache).write(0, &label).unwrap();
    assert!(refused(&cache).message().contains("no cache of format 1"));
}

#[test]
fn what_was_cleared_does_not_come_back() {
    let device = model(512, Image::default());
    let cache = lay_out(&device);
    (0..30).for_each(|at| offer(&cache, 1, 0, at * 60_000, 60_000));
    cache.flush();
    cache.clear();
    // Nothing that was not durable then arrives any more.
    let cut = durable(&device.events());
    let again = hold(&model(512, cut));
    assert_eq!((check(&again, 1, 0), again.holdings().blocks), (0, 0));
    offer(&again, 2, 0, 0, 50_000);
    again.flush();
    offer(&cache, 3, 0, 0, 50_000);
    cache.flush();
    drop(cache);
    let last = hold(&device);
    assert_eq!([1, 3].map(|name| check(&last, name, 0)), [0, 50_000]);
}

/// What is there if nothing after the last flush has arrived.
fn durable(events: &[Event]) -> Image {
    let flushed = events.iter().rposition(|event| matches!(event, Event::Flush)).unwrap_or(0);
    let mut image = Image::default();
    for (offset, bytes) in events[..flushed].iter().filter_map(Event::put) {
        image.write(offset, bytes);
    }
    image
}

#[test]
fn a_power_cut_at_any_command_never_gives_a_wrong_byte() {
    let (mut cuts, mut kept) = (0u64, 0u64);
    for seed in 0..12 {
        let events = history(seed);
        let mut base = Image::default();
        let mut pending: Vec<Event> = Vec::new();
        // The labels are the first events: without them there is no cache yet.
        for (index, event) in events.iter().enumerate() {
            pending.push(event.clone());
            if matches!(event, Event::Flush) {
                for (offset, bytes) in pending.iter().filter_map(Event::put) {
                    base.write(offset, bytes);
                }
                pending.clear();
            }
            if index < 4 || index % 5 != (seed % 5) as usize {
                continue;
            }
            cuts += 1;
            let image = survivors(&base, &pending, seed << 32 | index as u64);
            let device = model(512, image);
            let cache = hold(&device);
            for (name, etag) in (0..4).flat_map(|name| (0..2).map(move |etag| (name, etag))) {
                kept += check(&cache, name, etag);
            }
            // And it goes on.
            offer(&cache, 9, 0, 3, 70_000);
            cache.flush();
            drop(cache);
            assert_eq!(check(&hold(&device), 9, 0), 70_000, "seed {seed}, cut {index}");
        }
    }
    assert!(cuts > 1000 && kept > cuts * 100_000, "{cuts} cuts, {kept} bytes");
}

/// What a device is told while a cache is filled, read, cleared and opened again.
fn history(seed: u64) -> Vec<Event> {
    let mut dice = Dice::new(seed);
    let device = model(512, Image::default());
    let mut cache = lay_out(&device);
    for _ in 0..110 {
        let (name, etag) = (dice.below(4), dice.below(2));
        match dice.below(40) {
            0 => cache.clear(),
            1 => {
                drop(cache);
                cache = hold(&device);
            }
            2..8 => drop(check(&cache, name, etag)),
            _ => offer(&cache, name, etag, dice.below(40) * 70_000, 1 + dice.below(120_000)),
        }
        cache.flush();
    }
    drop(cache);
    device.events()
}

/// A name, and whether what is cached of it is taken for the object.
fn is_present(cache: &DiskCache, name: u64) -> Option<bool> {
    cache.latest(&version(name, 0).name).map(|(_, is_present)| is_present)
}

#[test]
fn what_is_outdated_stays_so_through_any_power_cut() {
    let device = model(512, Image::default());
    let cache = lay_out(&device);
    (1..6).for_each(|name| offer(&cache, name, 0, 0, 50_000));
    cache.flush();
    drop(cache);
    let cache = hold(&device);
    assert!((1..6).all(|name| is_present(&cache, name) == Some(true)));
    // How many commands there were when each was noted; the third one twice.
    let mut noted = vec![device.events().len()];
    for name in [1, 2, 3, 3] {
        let names = [version(name, 0).name.to_string()];
        if cache.change_begins(&names) {
            cache.shared.note(true).unwrap();
        }
        noted.push(device.events().len());
        cache.change_ends(&names);
    }
    assert_eq!(noted[3], noted[4], "what is noted is not noted again");
    offer(&cache, 7, 0, 0, 50_000);
    drop(cache);
    let events = device.events();
    for cut in noted[0]..=events.len() {
        let flushed = events[..cut].iter().rposition(|event| matches!(event, Event::Flush));
        let mut base = Image::default();
        for (offset, bytes) in events[..flushed.unwrap()].iter().filter_map(Event::put) {
            base.write(offset, bytes);
        }
        let image = survivors(&base, &events[flushed.unwrap()..cut], cut as u64);
        let again = hold(&model(512, image));
        for (index, name) in [1, 2, 3].into_iter().enumerate() {
            if cut >= noted[index + 1] {
                assert_eq!(is_present(&again, name), Some(false), "{name}, cut {cut}: {noted:?}");
            }
        }
        // What came before a note is durable with it; one that is torn counts for all.
        let kept = check(&again, 4, 0);
        if cut >= noted[1] {
            assert_eq!(kept, 50_000, "cut {cut}");
        }
        if noted[1..].contains(&cut) {
            assert_eq!(is_present(&again, 4), Some(true), "cut {cut}");
        }
    }
}

#[test]
fn a_note_that_is_damaged_counts_for_everything() {
    let device = model(512, Image::default());
    let cache = lay_out(&device);
    (1..3).for_each(|name| offer(&cache, name, 0, 0, 50_000));
    assert!(cache.change_begins(&[version(1, 0).name.to_string()]));
    cache.shared.note(true).unwrap();
    drop(cache);
    assert_eq!([1, 2].map(|name| is_present(&hold(&device), name)), [Some(false), Some(true)]);
    for at in 0..24 {
        let mut image = device.image();
        let mut byte = [0];
        image.read(PAGE_BYTES + at, &mut byte);
        image.write(PAGE_BYTES + at, &[byte[0] ^ 0x11]);
        let again = hold(&model(512, image));
        assert_eq!([1, 2].map(|name| is_present(&again, name)), [Some(false); 2], "byte {at}");
        assert_eq!([1, 2].map(|name| check(&again, name, 0)), [50_000; 2]);
    }
}

#[test]
fn what_was_not_made_a_cache_is_left_alone() {
    let mut foreign = Image::default();
    foreign.write(0, b"PENSTOCK");
    foreign.write(5000, b"somebody's own bytes");
    for image in [Image::default(), foreign] {
        let device = model(512, image);
        let error = Region::hold(port(&device)).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.hint().unwrap().contains("penstock nvme format --cache"), "{error}");
        assert_eq!(device.event_count(), 0, "nothing was written");
    }
}

fn large(image: Image) -> Arc<ModelDevice> {
    Arc::new(ModelDevice::new(4096, 8192, image).unwrap())
}

#[test]
fn making_a_cache_wants_an_empty_device_or_to_be_forced() {
    let device = large(Image::default());
    assert_eq!(format_device(&port(&device), false).unwrap(), 6 * (4 << 20));
    drop(hold(&device));
    let error = format_device(&port(&device), false).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    assert!(error.to_string().contains("a Penstock cache"), "{error}");
    format_device(&port(&device), true).unwrap();
    // The second is too small for a volume as well.
    for blocks in [2048, 16] {
        let small = Arc::new(ModelDevice::new(4096, blocks, Image::default()).unwrap());
        let error = format_device(&port(&small), false).unwrap_err();
        assert!(error.to_string().contains("too few for a cache"), "{error}");
        assert!(error.hint().is_some_and(|it| it.contains("a larger device")), "{error}");
    }
}

#[test]
fn one_label_is_enough_and_another_version_is_given_up() {
    let device = large(Image::default());
    format_device(&port(&device), false).unwrap();
    let cache = hold(&device);
    offer(&cache, 1, 0, 0, 50_000);
    drop(cache);
    let last = 8191 * PAGE_BYTES;
    for place in [0, last] {
        let mut image = device.image();
        image.write(place + 16, &[0xAA; 8]);
        let repaired = large(image);
        assert_eq!(check(&hold(&repaired), 1, 0), 50_000);
        let mut label = [0; 64];
        repaired.image().read(place, &mut label);
        assert_eq!(label[..], Label::encode(&label_of(&repaired))[..64], "it is written anew");
    }
    let mut image = device.image();
    [0, last].into_iter().for_each(|place| image.write(place + 16, &[0xAA; 8]));
    assert!(Region::hold(port(&large(image))).is_err());
    let mut other = label_of(&device).encode();
    other[8] += 1;
    other[12..16].fill(0);
    let crc = crc32fast::hash(&other[..64]);
    other[12..16].copy_from_slice(&crc.to_le_bytes());
    let mut image = device.image();
    [0, last].into_iter().for_each(|place| image.write(place, &other));
    let cache = hold(&large(image));
    assert_eq!(check(&cache, 1, 0), 0);
    offer(&cache, 1, 0, 0, 50_000);
    cache.flush();
    assert_eq!(check(&cache, 1, 0), 50_000);
}

#[test]
fn what_a_cache_was_made_over_is_not_taken_for_what_came_after() {
    let mut image = Image::default();
    image.write(65_600, b"_BHRfS_M");
    let device = large(image);
    format_device(&port(&device), true).unwrap();
    let mut image = device.image();
    image.write(0, &[0; 4096]);
    drop(hold(&large(image)));
}

/// A file system that is made over a cache may leave the label at its end.
#[test]
fn what_was_made_over_a_cache_is_told_and_left_alone() {
    let device = large(Image::default());
    format_device(&port(&device), false).unwrap();
    let mut image = device.image();
    image.write(0, &[0; 4096]);
    image.write(1080, b"\x53\xef");
    let device = large(image);
    let error = Region::hold(port(&device)).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("but an ext2, ext3 or ext4 file system"), "{error}");
    assert!(look_at_device(&port(&device)).unwrap().is_none());
    assert_eq!(device.event_count(), 0, "nothing was written");
}

#[test]
fn a_cache_that_was_cut_off_is_told_and_left_alone() {
    let device = model(512, Image::default());
    drop(lay_out(&device));
    for blocks in [DEVICE_BYTES / 512 - 600, PAGE_BYTES / 512] {
        let small = Arc::new(ModelDevice::new(512, blocks, device.image()).unwrap());
        for outcome in
            [Region::hold(port(&small)).map(drop), look_at_device(&port(&small)).map(drop)]
        {
            let error = outcome.expect_err("a part of it is gone");
            assert_eq!(error.kind(), Kind::Corrupt, "{error}");
            assert!(error.to_string().contains("--cache --force model"), "{error}");
        }
        assert_eq!(small.event_count(), 0);
    }
}

fn label_of(device: &Arc<ModelDevice>) -> Label {
    Region::hold(port(device)).unwrap().0.label
}

#[test]
fn a_device_that_fails_costs_no_read() {
    for failure in [Failure::Full, Failure::ReadOnly, Failure::Failing, Failure::Gone] {
        let device = model(512, Image::default());
        let cache = lay_out(&device);
        offer(&cache, 1, 0, 0, 50_000);
        cache.flush();
        let now = device.command_count();
        device.fail(now..u64::MAX, failure);
        (1..9).for_each(|at| offer(&cache, 1, 0, at * 60_000, 50_000));
        cache.flush();
        let counts = cache.holdings().counts;
        assert_eq!(counts.failed_blocks, 8, "{failure:?}: {counts:?}");
        // What the device still reads is there.
        let still = check(&cache, 1, 0);
        let reads = matches!(failure, Failure::Full | Failure::ReadOnly);
        let expected = if reads { 50_000 } else { 0 };
        assert_eq!(still, expected, "{failure:?}");
        // It works again: so does the cache.
        device.fail(0..0, failure);
        offer(&cache, 2, 0, 0, 50_000);
        cache.flush();
        assert_eq!(check(&cache, 2, 0), 50_000, "{failure:?}");
    }
}

/// The file of a cache has holes, and others may fill the file system below it.
#[test]
fn a_full_device_keeps_what_is_cached() {
    let device = model(512, Image::default());
    let cache = lay_out(&device);
    // Five slots, of which the last is open.
    (0..20).for_each(|at| offer(&cache, 1, 0, at * 60_000, 60_000));
    cache.flush();
    let kept = check(&cache, 1, 0);
    assert_eq!(kept, 20 * 60_000);
    let now = device.command_count();
    device.fail(now..u64::MAX, Failure::Full);
    (0..8).for_each(|at| offer(&cache, 2, 0, at * 60_000, 60_000));
    cache.flush();
    assert_eq!(cache.holdings().counts.failed_blocks, 8);
    assert_eq!([1, 2].map(|name| check(&cache, name, 0)), [kept, 0]);
    // There is room again, for the rest of the device too.
    device.fail(0..0, Failure::Full);
    (0..20).for_each(|at| offer(&cache, 2, 0, at * 60_000, 60_000));
    cache.flush();
    drop(cache);
    assert_eq!([1, 2].map(|name| check(&hold(&device), name, 0)), [kept; 2]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever byte of the device is changed: a block comes back as it was offered, or not at all,
    /// and no other block is lost but those of a file whose head is gone.
    #[test]
    fn damage_is_never_read(
        slot in 0u64..2, at in 0u64..SLOT_BYTES, change in 1u8.., is_closed: bool,
    ) {
        let device = model(512, Image::default());
        let cache = lay_out(&device);
        for index in 0..20 {
            offer(&cache, 1, 0, index * 20_000, 19_999);
        }
        cache.flush();
        let label = label_of(&device);
        if is_closed {
            drop(cache);
        }
        // Slots are taken from the first on.
        let mut image = device.image();
        let place = label.slot_start(slot) + at;
        let mut byte = [0];
        image.read(place, &mut byte);
        image.write(place, &[byte[0] ^ change]);
        let device = model(512, image);
        let again = hold(&device);
        let count = check(&again, 1, 0);
        if is_closed && at >= PAGE_BYTES {
            prop_assert!(count >= 19 * 19_999, "{count} with byte {at} of slot {slot} changed");
        }
        offer(&again, 2, 0, 0, 100);
        again.flush();
        prop_assert_eq!(check(&again, 2, 0), 100);
    }
}

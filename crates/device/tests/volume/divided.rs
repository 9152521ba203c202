//! Power cuts while blocks are overwritten: at no moment may a block be of two versions, however
//! many threads write and sync.

use crate::history::{open, replay};
use crate::shadow::{CREATE, content, device, formatted};
use penstock_base::DeviceMetric;
use penstock_device::model::{Event, Image, survivors};
use penstock_device::volume::{File, Volume};

/// Bytes of the smallest block that moves when it is overwritten.
const BLOCK: usize = 16 << 10;

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
        let found = content(&volume, "db");
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

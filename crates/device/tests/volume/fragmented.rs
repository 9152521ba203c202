//! Files that lie in as many pieces as the table has room for: what is told, and when.

use crate::shadow::{CREATE, EXISTING};
use penstock_base::Kind;
use penstock_device::model::{Image, ModelDevice};
use penstock_device::volume::space::Extent;
use penstock_device::volume::table::{Entry, NAME_BYTES_MAX, PAGE_BYTES, Table, copy_pages};
use penstock_device::volume::table::{PAGES_MIN, data_pages};
use penstock_device::volume::{File, Volume};
use penstock_device::{Discipline, Port};
use std::sync::Arc;

const BLOCK: usize = 16 << 10;
/// Fewer than let the blocks of such a file stay.
const PIECES: u64 = 4090;
/// Pages of the one file that lies in one piece.
const PAGES: u64 = 256;

/// A volume of so many files that have every second page, and one in one piece, `db`; between them
/// single pages are free.
fn fragmented(files: u64) -> (Arc<ModelDevice>, Port) {
    let taken = 2 * files * PIECES + PAGES;
    let page_count = PAGES_MIN + taken - data_pages(PAGES_MIN).pages;
    let data = data_pages(page_count);
    let mut table = Table::new(1, 1, page_count);
    for file in 0..files {
        let piece =
            |at| Extent { first_page: data.first_page + 2 * (file * PIECES + at), pages: 1 };
        let extents: Vec<Extent> = (0..PIECES).map(piece).collect();
        let entry = Entry { size_bytes: PIECES * PAGE_BYTES, extents };
        table.files.insert(format!("f{file:02}"), entry);
    }
    let whole = Extent { first_page: data.end() - PAGES, pages: PAGES };
    let entry = Entry { size_bytes: PAGES * PAGE_BYTES, extents: vec![whole] };
    table.files.insert("db".into(), entry);
    let bytes = table.encode().expect("there is room");
    let mut image = Image::default();
    copy_pages(page_count).iter().for_each(|page| image.write(page * PAGE_BYTES, &bytes));
    let model = ModelDevice::new(4096, page_count, image).expect("the sizes are right");
    let model = Arc::new(model);
    let port = Port::new(model.clone(), Discipline::Single).expect("the model has queues");
    (model, port)
}

fn overwrite(file: &File, block: u64, byte: u8) {
    file.write_at(&[byte; BLOCK], block * BLOCK as u64).expect("writes");
}

#[test]
fn blocks_move_while_a_quarter_of_the_table_is_left() {
    let volume = Volume::open(fragmented(12).1).expect("opens");
    let file = volume.open_file("db", EXISTING).expect("it is there");
    // Without a sync: what they leave is one piece, into which others would come to lie.
    (0..8).for_each(|block| overwrite(&file, block, 1));
    assert_eq!(volume.stayed_bytes(), 0, "there is room");
    (8..40).for_each(|block| overwrite(&file, block, 1));
    file.sync().expect("syncs");
    assert!(volume.stayed_bytes() >= 20 * BLOCK as u64, "{}", volume.stayed_bytes());
}

#[test]
fn a_full_table_is_told_when_a_file_grows_and_never_to_a_sync() {
    let (model, port) = fragmented(16);
    let volume = Volume::open(port).expect("opens");
    let file = volume.open_file("db", EXISTING).expect("it is there");
    let size = file.size_bytes();
    for block in 0..20 {
        overwrite(&file, block, 2);
        file.sync().expect("the blocks stayed in place");
    }
    assert_eq!(volume.stayed_bytes(), 20 * BLOCK as u64);
    let free = volume.free_bytes();
    let error = file.write_at(&[3; 100 * 4096], size).expect_err("these are too many pieces");
    assert_eq!(error.kind(), Kind::Exhausted, "{error}");
    assert!(error.to_string().contains("too many pieces"), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("import it again")), "{error}");
    assert_eq!((file.size_bytes(), volume.free_bytes()), (size, free), "nothing has changed");
    file.sync().expect("what there was is durable");

    // A name takes nothing of what a file that has grown will need for its sync.
    file.write_at(&[3; 50 * 4096], size).expect("there is room for these");
    let name = |letter: &str| letter.repeat(NAME_BYTES_MAX);
    volume.open_file(&name("a"), CREATE).expect("there is room for one");
    for outcome in
        [volume.open_file(&name("b"), CREATE).map(drop), volume.rename("f00", &name("b"))]
    {
        let error = outcome.expect_err("there is none for another");
        assert!(error.to_string().contains("too many pieces"), "{error}");
    }
    file.sync().expect("syncs");
    volume.remove("f01").expect("removes");
    file.write_at(&[4; 100 * 4096], file.size_bytes()).expect("there is room again");
    file.sync().expect("syncs");
    drop((file, volume));
    let port = Port::new(model, Discipline::Single).expect("the model has queues");
    let volume = Volume::open(port).expect("opens again");
    let file = volume.open_file("db", EXISTING).expect("it is there");
    assert_eq!(file.size_bytes(), size + 150 * 4096);
    for (at, byte) in [(0, 2), (20 * BLOCK as u64, 0), (size, 3), (size + 50 * 4096, 4)] {
        let mut found = [9; 4096];
        file.read_at(&mut found, at).expect("reads");
        assert_eq!(found, [byte; 4096], "at {at}");
    }
}

//! Tables there and back, and what is made of bytes that are none.

use super::*;
use proptest::prelude::*;

fn tables() -> impl Strategy<Value = Table> {
    let file = ("[a-z.]{1,12}", prop::collection::vec(1u64..20, 0..6), 0u64..PAGE_BYTES);
    (any::<u64>(), any::<u64>(), prop::collection::vec(file, 0..12)).prop_map(
        |(id, generation, files)| {
            let mut table = Table::new(id, generation, 1 << 20);
            let mut at = data_pages(table.page_count).first_page;
            for (name, lengths, slack) in files {
                let mut entry = Entry::default();
                for pages in lengths {
                    entry.extents.push(Extent { first_page: at, pages });
                    entry.size_bytes += pages * PAGE_BYTES;
                    at += pages + pages % 3;
                }
                entry.size_bytes = entry.size_bytes.saturating_sub(slack);
                table.files.insert(name, entry);
            }
            table
        },
    )
}

proptest! {
    #[test]
    fn a_table_comes_back(table in tables()) {
        let bytes = table.encode().expect("it is small");
        prop_assert_eq!(bytes.len() as u64 % PAGE_BYTES, 0);
        prop_assert_eq!(Table::decode(&bytes), Ok(table));
    }

    #[test]
    fn no_damaged_byte_goes_unnoticed(
        table in tables(), place in any::<prop::sample::Index>(), flip in 1u8..,
    ) {
        let mut bytes = table.encode().expect("it is small");
        let length = Table::encoded_length(&bytes).expect("it is a table");
        let at = place.index(length);
        bytes[at] ^= flip;
        prop_assert!(Table::decode(&bytes).is_err(), "byte {}", at);
    }

    #[test]
    fn a_table_torn_between_sectors_goes_unnoticed_never(
        old in tables(), new in tables(), seed in any::<u64>(),
    ) {
        let (from, to) = (old.encode().expect("small"), new.encode().expect("small"));
        let mut torn = from.clone();
        torn.resize(from.len().max(to.len()), 0);
        for (index, sector) in to.chunks(512).enumerate() {
            if seed >> (index % 64) & 1 == 1 {
                torn[index * 512..index * 512 + sector.len()].copy_from_slice(sector);
            }
        }
        match Table::decode(&torn) {
            Ok(found) => prop_assert!(found == old || found == new),
            Err(flaw) => {
                prop_assert!(matches!(flaw, Flaw::Damaged(_) | Flaw::Other(_)), "{:?}", flaw);
            }
        }
    }

    #[test]
    fn no_bytes_bring_the_reader_down(
        mut bytes in prop::collection::vec(any::<u8>(), 0..600), sum in any::<bool>(),
    ) {
        if bytes.len() >= HEADER_BYTES {
            bytes[..8].copy_from_slice(&MAGIC);
            let length = (bytes.len() - HEADER_BYTES) as u32;
            bytes[12..16].copy_from_slice(&length.to_le_bytes());
            if sum {
                bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
                bytes[48..52].copy_from_slice(&(PAGE_BYTES as u32).to_le_bytes());
                bytes[52..64].fill(0);
                bytes[52] = 1;
                let sum = checksum(&bytes);
                bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
            }
        }
        prop_assert!(Table::decode(&bytes).is_err());
    }
}

fn sample() -> Table {
    let mut table = Table::new(7, 3, PAGES_MIN);
    let extents = vec![Extent { first_page: 512, pages: 4 }];
    table.files.insert("a".into(), Entry { size_bytes: 5000, extents });
    table
}

fn flaw(change: impl FnOnce(&mut Table)) -> Flaw {
    let mut table = sample();
    change(&mut table);
    Table::decode(&table.encode().expect("it is small")).expect_err("it is flawed")
}

#[test]
fn numbers_that_do_not_fit_are_told_though_the_checksum_is_right() {
    let entry = |first_page, pages, size_bytes| Entry {
        size_bytes,
        extents: vec![Extent { first_page, pages }],
    };
    let with = |entry: Entry| flaw(|table| drop(table.files.insert("b".into(), entry)));
    assert_eq!(with(entry(515, 2, 1)), Flaw::Damaged("two files share a page"));
    assert_eq!(with(entry(500, 2, 1)), Flaw::Damaged("a file lies outside the volume"));
    assert_eq!(with(entry(760, 9, 1)), Flaw::Damaged("a file lies outside the volume"));
    assert_eq!(with(entry(u64::MAX, 9, 1)), Flaw::Damaged("a file lies outside the volume"));
    assert_eq!(with(entry(600, 1, 4097)), Flaw::Damaged("a file is longer than its pages"));
    let small = flaw(|table| table.page_count = 100);
    assert_eq!(small, Flaw::Damaged("it has no right number of pages"));
    let named = flaw(|table| drop(table.files.insert("a\n".into(), Entry::default())));
    assert_eq!(named, Flaw::Damaged("its parts do not fit together"));
}

#[test]
fn a_newer_format_is_told_from_a_damaged_one() {
    let mut bytes = sample().encode().expect("it is small");
    let length = Table::encoded_length(&bytes).expect("it is a table");
    bytes[8] = 2;
    assert_eq!(Table::decode(&bytes), Err(Flaw::Other(2)));
    // Another header: what we take for the length is something else.
    let mut other = bytes.clone();
    other[12..16].fill(0xff);
    assert_eq!(Table::decode(&other), Err(Flaw::Other(2)));
    let sum = checksum(&bytes[..length]);
    bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(Table::decode(&bytes), Err(Flaw::Newer(2)));
    assert_eq!(Table::decode(&[0; 4096]), Err(Flaw::Foreign));
    assert_eq!(Table::decode(b"PENSTOCK"), Err(Flaw::Damaged("it is cut off")));
    bytes[8] = 1;
    assert_eq!(Table::decode(&bytes), Err(Flaw::Damaged("its checksum is wrong")));
}

#[test]
fn the_form_on_the_device_stays_as_it_is() {
    let bytes = sample().encode().expect("it is small");
    assert_eq!(bytes.len(), 4096);
    assert_eq!(&bytes[..16], b"PENSTOCK\x01\0\0\0\x1f\0\0\0");
    assert_eq!(bytes[24], 3, "the generation");
    assert_eq!(bytes[32], 7, "the identity");
    assert_eq!(&bytes[64..75], b"\x01\0a\x88\x13\0\0\0\0\0\0");
}

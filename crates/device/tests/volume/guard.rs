//! What formatting must not destroy, and what `check` tells.

use crate::shadow::{CREATE, VOLUME_BYTES, device, formatted};
use penstock_base::Kind;
use penstock_device::model::Image;
use penstock_device::volume::table::{PAGE_BYTES, Table, copy_pages};
use penstock_device::volume::{FormatOptions, Volume, check, format};
use penstock_device::{Discipline, MemoryDevice, Port};
use std::sync::Arc;

#[test]
fn what_is_there_is_named_and_kept_unless_forced() {
    let end = VOLUME_BYTES - 4096;
    let cases: [(u64, &[u8], &str); 7] = [
        (1080, b"\x53\xef", "ext4"),
        (0, b"XFSB", "XFS"),
        (8, b"DUCK", "DuckDB"),
        (512, b"EFI PART", "GPT"),
        (700_000, b"x", "data"),
        (2_500_000, b"x", "data"),
        (end, b"x", "data"),
    ];
    for (at, bytes, name) in cases {
        let mut image = Image::default();
        image.write(at, bytes);
        let (model, port) = device(4096, image);
        let error = format(&port, FormatOptions::default()).expect_err("it is not empty");
        assert_eq!(error.kind(), Kind::Conflict, "{error}");
        assert!(error.to_string().contains(name), "{error}");
        assert!(error.to_string().contains("--force"), "{error}");
        assert_eq!(model.event_count(), 0, "nothing was written");
        format(&port, FormatOptions { force: true }).expect("forced");
        drop(Volume::open(port).expect("opens"));
    }
    let (_, port) = device(4096, formatted(4096));
    let error = format(&port, FormatOptions::default()).expect_err("it is not empty");
    assert!(error.to_string().contains("Penstock volume"), "{error}");
}

#[test]
fn a_device_that_is_too_small_is_told() {
    let model = MemoryDevice::new(4096, 1000, 4096).expect("the sizes are right");
    let port = Port::new(Arc::new(model), Discipline::Sync).expect("has queues");
    let error = format(&port, FormatOptions::default()).expect_err("too small");
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    assert!(error.to_string().contains("4194304"), "{error}");
}

#[test]
fn a_volume_of_a_newer_format_is_left_alone() {
    let mut image = formatted(4096);
    let mut page = [0; 4096];
    image.read(0, &mut page);
    page[8] = 9;
    let length = Table::encoded_length(&page).expect("it is a table");
    let sum = checksum(&page[..length]);
    page[16..24].copy_from_slice(&sum.to_le_bytes());
    for first in copy_pages(VOLUME_BYTES / PAGE_BYTES) {
        image.write(first * PAGE_BYTES, &page);
    }
    let (model, port) = device(4096, image);
    let error = Volume::open(port).err().expect("it is newer");
    assert_eq!(error.kind(), Kind::Unsupported, "{error}");
    assert!(error.to_string().contains("format 9"), "{error}");
    assert_eq!(model.event_count(), 0, "nothing was written");
}

/// A newer format may have another header, where our checksum tells nothing; and where a copy says
/// its format it may be damaged.
#[test]
fn a_newer_header_is_told_from_a_damaged_one() {
    let base = formatted(4096);
    let with = |versions: [u8; 3]| {
        let mut image = base.clone();
        for (first, version) in copy_pages(VOLUME_BYTES / PAGE_BYTES).into_iter().zip(versions) {
            if version != 1 {
                image.write(first * PAGE_BYTES + 8, &[version, 0, 0, 0, 0xff, 0xff, 0xff]);
            }
        }
        let (model, port) = device(4096, image);
        let told = Volume::open(port).map(drop).map_err(|error| (error.kind(), error.to_string()));
        (told, model.event_count() > 0)
    };
    for versions in [[9, 9, 9], [9, 9, 0], [9, 0, 9], [0, 9, 9]] {
        let (told, has_written) = with(versions);
        let (kind, message) = told.expect_err("it is newer");
        assert_eq!(kind, Kind::Unsupported, "{message}");
        assert!(message.contains("format 9"), "{message}");
        assert!(!has_written);
    }
    for versions in [[9, 1, 1], [1, 9, 9], [9, 0, 1], [1, 9, 8]] {
        with(versions).0.unwrap_or_else(|told| panic!("{versions:?}: {told:?}"));
    }
    let (kind, message) = with([9, 8, 7]).0.expect_err("no two agree");
    assert_eq!(kind, Kind::Corrupt, "{message}");
}

/// CRC-64/NVME by its definition, apart from the product's.
fn checksum(bytes: &[u8]) -> u64 {
    let masked = bytes.iter().enumerate().map(|(at, byte)| match at {
        16..24 => 0,
        _ => *byte,
    });
    let step = |crc: u64, byte: u8| {
        (0..8).fold(crc ^ u64::from(byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0x9A6C_9329_AC4B_C9B5 } else { crc >> 1 }
        })
    };
    !masked.fold(!0, step)
}

#[test]
fn check_tells_what_is_there_and_changes_nothing() {
    let (model, port) = device(4096, formatted(4096));
    let volume = Volume::open(port).expect("opens");
    let file = volume.open_file("db", CREATE).expect("creates");
    file.write_at(&[1; 5000], 0).expect("writes");
    file.sync().expect("syncs");
    drop(file);
    let free = volume.free_bytes();
    drop(volume);
    let mut image = model.image();
    image.write(70, b"damage");
    let (model, port) = device(4096, image);
    let report = check(&port).expect("two copies are left");
    assert_eq!(model.event_count(), 0);
    assert_eq!(report.sound_copies, 2);
    assert!(report.copies[0].contains("checksum"), "{:?}", report.copies);
    assert_eq!((report.size_bytes, report.free_bytes), (VOLUME_BYTES, free));
    let names: Vec<_> = report.files.iter().map(|it| (it.name.as_str(), it.size_bytes)).collect();
    assert_eq!(names, [("db", 5000)]);
}

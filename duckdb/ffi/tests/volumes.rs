//! What a careless or hostile caller does with files on volumes: nulls, lengths that no memory has,
//! handles that outlive what they came from, files that are removed while they are open.
#![allow(unsafe_code, clippy::unwrap_used)] // this test is the C side of the treaty

use penstock_base::Kind;
use penstock_device::volume::{FormatOptions, format};
use penstock_device::{Discipline, Io, OpenOptions, Port, open};
use penstock_ffi::*;
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};

const WRITE: u32 = 1;
const CREATE: u32 = 2;
const READ_LOCK: u32 = 32;
const WRITE_LOCK: u32 = 64;

/// The kind and message of an error, which is freed.
fn told(error: *mut PsError) -> (Kind, String) {
    assert!(!error.is_null());
    // SAFETY: it came from the library.
    unsafe {
        let number = ps_error_kind(error);
        let message = ps_error_message(error).text("the message").unwrap().to_string();
        ps_error_free(error);
        let kinds = [
            Kind::Invalid,
            Kind::Internal,
            Kind::Denied,
            Kind::NotFound,
            Kind::Conflict,
            Kind::Unsupported,
            Kind::Exhausted,
            Kind::Corrupt,
        ];
        (kinds.into_iter().find(|kind| *kind as i32 == number).unwrap(), message)
    }
}

/// A volume on a file, and what a database instance asks of it.
struct Opened {
    image: PathBuf,
    engine: *mut PsEngine,
    volumes: *mut PsVolumes,
}

impl Opened {
    fn new(name: &str) -> Self {
        let file = format!("penstock-ffi-{name}-{}.img", std::process::id());
        let image = std::env::temp_dir().join(file);
        let options = OpenOptions { create_bytes: Some(16 << 20), ..OpenOptions::new(Io::File) };
        let port = Port::new(open(&image, &options).unwrap(), Discipline::Sync).unwrap();
        format(&port, FormatOptions { force: true }).unwrap();
        let (mut engine, mut volumes, mut error) = (null_mut(), null_mut(), null_mut());
        // SAFETY: no settings, writable out-parameters.
        unsafe {
            assert!(ps_engine_new(null(), 0, &mut engine, &mut error));
            assert!(ps_volumes_new(engine, &mut volumes, &mut error));
        }
        Opened { image, engine, volumes }
    }

    fn url(&self, db: &str) -> String {
        format!("nvme://{}?db={db}&io=file", self.image.display())
    }

    fn open(&self, db: &str, flags: u32) -> Result<*mut PsFile, (Kind, String)> {
        let url = self.url(db);
        let (mut file, mut error) = (null_mut(), null_mut());
        // SAFETY: a live handle, readable text, writable out-parameters.
        let done = unsafe {
            let url = PsStr::lend(&url);
            ps_file_open(self.volumes, url, null(), 0, flags, &mut file, &mut error)
        };
        if done { Ok(file) } else { Err(told(error)) }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: both came from the library; null is nothing to free.
        unsafe {
            ps_volumes_free(self.volumes);
            ps_engine_free(self.engine);
        }
        let _ = std::fs::remove_file(&self.image);
    }
}

fn write(file: *mut PsFile, bytes: &[u8], offset: u64) -> Result<(), (Kind, String)> {
    let mut error = null_mut();
    // SAFETY: a handle of the library, readable bytes.
    let done = unsafe {
        ps_file_write(file, bytes.as_ptr().cast(), bytes.len() as u64, offset, &mut error)
    };
    if done { Ok(()) } else { Err(told(error)) }
}

fn read(file: *mut PsFile, length: usize, offset: u64) -> Result<Vec<u8>, (Kind, String)> {
    let (mut bytes, mut got, mut error) = (vec![0u8; length], 0, null_mut());
    let room = bytes.as_mut_ptr().cast::<c_void>();
    // SAFETY: a handle of the library, writable bytes.
    match unsafe { ps_file_read(file, null(), room, length as u64, offset, &mut got, &mut error) } {
        true => {
            bytes.truncate(usize::try_from(got).unwrap());
            Ok(bytes)
        }
        false => Err(told(error)),
    }
}

/// Whether nobody has the image open for writing.
fn is_free(image: &Path) -> bool {
    open(image, &OpenOptions::new(Io::File)).is_ok()
}

#[test]
fn nulls_are_errors_and_never_crashes() {
    let opened = Opened::new("nulls");
    let url = opened.url("a");
    let url = PsStr::lend(&url);
    let file = opened.open("a", WRITE | CREATE).unwrap();
    let (mut flag, mut got, mut byte) = (false, 0u64, 0u8);
    let (mut rows, mut other, mut volumes) = (null_mut(), null_mut(), null_mut());
    let (flag, got, room) = (&raw mut flag, &raw mut got, (&raw mut byte).cast::<c_void>());
    let (rows, other, volumes) = (&raw mut rows, &raw mut other, &raw mut volumes);
    let nowhere = PsStr { data: null(), len: 3 };
    let endless = PsStr { data: room.cast_const().cast(), len: usize::MAX };
    // SAFETY: null is what is tested; the rest is live.
    unsafe {
        let calls: [&dyn Fn(*mut *mut PsError) -> bool; 31] = [
            &|e| ps_volumes_new(null(), volumes, e),
            &|e| ps_volumes_new(opened.engine, null_mut(), e),
            &|e| ps_volume_database(nowhere, rows, e),
            &|e| ps_volume_database(endless, rows, e),
            &|e| ps_volume_database(url, null_mut(), e),
            &|e| ps_volume_replaced(nowhere, rows, e),
            &|e| ps_volume_replaced(endless, rows, e),
            &|e| ps_volume_replaced(url, null_mut(), e),
            &|e| ps_volume_url(null(), url, null(), 0, rows, e),
            &|e| ps_volume_url(opened.volumes, url, null(), 2, rows, e),
            &|e| ps_volume_url(opened.volumes, url, null(), 0, null_mut(), e),
            &|e| ps_volume_glob(null(), url, null(), 0, rows, e),
            &|e| ps_volume_glob(opened.volumes, url, null(), 0, null_mut(), e),
            &|e| ps_file_open(null(), url, null(), 0, 0, other, e),
            &|e| ps_file_open(opened.volumes, url, null(), 0, 0, null_mut(), e),
            &|e| ps_file_read(null(), null(), room, 1, 0, got, e),
            &|e| ps_file_read(file, null(), null_mut(), 1, 0, got, e),
            &|e| ps_file_read(file, null(), room, 0, 0, null_mut(), e),
            &|e| ps_file_write(null(), room, 1, 0, e),
            &|e| ps_file_write(file, null(), 1, 0, e),
            &|e| ps_file_sync(null(), e),
            &|e| ps_file_truncate(null(), 0, e),
            &|e| ps_file_trim(null(), 0, 1, e),
            &|e| ps_file_version(null(), rows, e),
            &|e| ps_file_version(file, null_mut(), e),
            &|e| ps_file_exists(opened.volumes, url, null(), 0, null_mut(), e),
            &|e| ps_file_remove(null(), url, null(), 0, flag, e),
            &|e| ps_file_move(null(), url, url, null(), 0, e),
            &|e| ps_spill_exists(null(), url, flag, e),
            &|e| ps_spill_list(null(), url, rows, e),
            &|e| ps_spill_create(null(), url, null(), 0, e),
        ];
        for (index, call) in calls.into_iter().enumerate() {
            let mut error = null_mut();
            assert!(!call(&mut error), "call {index}");
            let (kind, message) = told(error);
            assert_eq!(kind, Kind::Internal, "call {index}: {message}");
            assert!(!call(null_mut()), "nowhere to put the error is fine too, call {index}");
        }
        assert_eq!(ps_file_size(null()), 0);
        ps_file_free(null_mut());
        ps_volumes_free(null_mut());
        ps_file_free(file);
    }
}

#[test]
fn ranges_that_no_device_has_are_refused_and_change_nothing() {
    let opened = Opened::new("ranges");
    let file = opened.open("a", WRITE | CREATE | WRITE_LOCK).unwrap();
    write(file, b"0123456789", 0).unwrap();
    let mut byte = 0u8;
    let room = (&raw mut byte).cast::<c_void>();
    let (mut got, mut error) = (7, null_mut());
    for length in [u64::MAX, 1 << 63] {
        // SAFETY: the length is what is tested: it must be refused before the room is touched.
        unsafe {
            assert!(!ps_file_read(file, null(), room, length, 0, &mut got, &mut error));
            assert_eq!(told(error).0, Kind::Invalid);
            assert!(!ps_file_write(file, room, length, 0, &mut error));
            assert_eq!(told(error).0, Kind::Invalid);
        }
    }
    for offset in [u64::MAX, u64::MAX - 1, 1 << 60] {
        assert_eq!(read(file, 4, offset).unwrap(), b"", "nothing lies there");
        assert_eq!(write(file, b"xy", offset).unwrap_err().0, Kind::Invalid);
        // SAFETY: a live handle.
        unsafe {
            assert!(!ps_file_truncate(file, offset, &mut error));
            assert_eq!(told(error).0, Kind::Invalid);
            assert!(ps_file_trim(file, offset, u64::MAX, &mut error), "no page lies there");
        }
    }
    assert_eq!(write(file, b"xy", 1 << 40).unwrap_err().0, Kind::Exhausted);
    // SAFETY: a live handle.
    unsafe {
        assert!(!ps_file_truncate(file, 1 << 40, &mut error));
        assert_eq!(told(error).0, Kind::Exhausted);
        assert!(ps_file_trim(file, 0, u64::MAX, &mut error), "but for the parts of pages");
        assert_eq!(ps_file_size(file), 10);
        assert_eq!(read(file, 100, 0).unwrap(), b"0123456789");
        ps_file_free(file);
    }
}

#[test]
fn a_file_outlives_what_it_was_opened_by_and_the_device_is_free_after_it() {
    let mut opened = Opened::new("orders");
    let file = opened.open("a", WRITE | CREATE | WRITE_LOCK).unwrap();
    let url = format!("nvme://{}?temp&io=file", opened.image.display());
    let mut error = null_mut();
    // SAFETY: live handles; each is freed once.
    unsafe {
        assert!(ps_spill_create(opened.volumes, PsStr::lend(&url), null(), 0, &mut error));
        ps_volumes_free(std::mem::replace(&mut opened.volumes, null_mut()));
        ps_engine_free(std::mem::replace(&mut opened.engine, null_mut()));
        write(file, b"still there", 0).unwrap();
        assert!(ps_file_sync(file, &mut error));
        assert_eq!(read(file, 100, 6).unwrap(), b"there");
        assert!(!is_free(&opened.image));
        ps_file_free(file);
    }
    assert!(is_free(&opened.image));
}

#[test]
fn a_file_that_was_removed_is_told_to_be_so() {
    let opened = Opened::new("removed");
    let file = opened.open("a", WRITE | CREATE).unwrap();
    write(file, &[7; 20_000], 0).unwrap();
    for offset in [0, 4096, 8192] {
        assert_eq!(read(file, 4096, offset).unwrap(), [7; 4096]);
    }
    let url = opened.url("a");
    let (mut was_there, mut error) = (false, null_mut());
    // SAFETY: live handles, readable text, writable out-parameters.
    unsafe {
        let url = PsStr::lend(&url);
        assert!(ps_file_remove(opened.volumes, url, null(), 0, &mut was_there, &mut error));
        assert!(was_there);
        assert!(ps_file_remove(opened.volumes, url, null(), 0, &mut was_there, &mut error));
        assert!(!was_there, "it can be removed once");
        assert_eq!(read(file, 4096, 12288).unwrap_err().0, Kind::NotFound, "not read ahead");
        assert_eq!(write(file, b"x", 0).unwrap_err().0, Kind::NotFound);
        assert!(!ps_file_sync(file, &mut error));
        assert_eq!(told(error).0, Kind::NotFound);
        ps_file_free(file);
    }
    assert!(is_free(&opened.image));
}

#[test]
fn who_reads_may_not_write_and_locks_hold() {
    let opened = Opened::new("denied");
    let writer = opened.open("a", WRITE | CREATE | WRITE_LOCK).unwrap();
    write(writer, b"x", 0).unwrap();
    assert_eq!(opened.open("a", WRITE | WRITE_LOCK).unwrap_err().0, Kind::Conflict);
    assert_eq!(opened.open("a", READ_LOCK).unwrap_err().0, Kind::Conflict);
    let reader = opened.open("a", 0).unwrap();
    let mut error = null_mut();
    assert_eq!(write(reader, b"x", 0).unwrap_err().0, Kind::Denied);
    // SAFETY: live handles.
    unsafe {
        let calls: [&dyn Fn(*mut *mut PsError) -> bool; 3] =
            [&|e| ps_file_sync(reader, e), &|e| ps_file_truncate(reader, 0, e), &|e| {
                ps_file_trim(reader, 0, 1, e)
            }];
        for call in calls {
            assert!(!call(&mut error));
            assert_eq!(told(error).0, Kind::Denied);
        }
        ps_file_free(writer);
        ps_file_free(reader);
    }
}

#[test]
fn a_look_at_a_volume_that_is_destroyed_meanwhile_is_an_error() {
    let opened = Opened::new("look");
    let file = opened.open("a", WRITE | CREATE).unwrap();
    write(file, &[5; 10_000], 0).unwrap();
    // SAFETY: each handle is freed once.
    unsafe {
        assert!(ps_file_sync(file, null_mut()));
        ps_file_free(file);
    }
    let look = opened.open("a", 0).unwrap();
    assert_eq!(read(look, 10, 9_000).unwrap(), [5; 10]);
    std::fs::write(&opened.image, vec![0xAB; 16 << 20]).unwrap();
    let (kind, message) = read(look, 10, 9_000).unwrap_err();
    assert!(message.contains("there is no Penstock volume on it"), "{kind:?} {message}");
    std::fs::remove_file(&opened.image).unwrap();
    assert_eq!(read(look, 10, 9_000).unwrap_err().0, Kind::NotFound);
    // SAFETY: each handle is freed once.
    unsafe { ps_file_free(look) };
}

/// As COPY does it, by handles that go at once.
fn replace(opened: &Opened, db: &str, bytes: &[u8]) -> Result<(), (Kind, String)> {
    const TRUNCATE: u32 = 4;
    let url = |name: &str| format!("nvme://{}?io=file&file=/{name}", opened.image.display());
    let (from, to) = (url(&format!("tmp_{db}")), url(db));
    let (from, to) = (PsStr::lend(&from), PsStr::lend(&to));
    let (mut file, mut error) = (null_mut(), null_mut());
    let flags = WRITE | CREATE | TRUNCATE | WRITE_LOCK;
    // SAFETY: live handles, readable texts, writable out-parameters; the file is freed once.
    unsafe {
        if !ps_file_open(opened.volumes, from, null(), 0, flags, &mut file, &mut error) {
            return Err(told(error));
        }
        write(file, bytes, 0)?;
        assert!(ps_file_sync(file, null_mut()));
        ps_file_free(file);
        match ps_file_move(opened.volumes, from, to, null(), 0, &mut error) {
            true => Ok(()),
            false => Err(told(error)),
        }
    }
}

#[test]
fn a_look_at_a_file_that_is_replaced_meanwhile_is_an_error() {
    let opened = Opened::new("replaced");
    // Three of one size: the third may lie where the first one did.
    let versions = [1u8, 2, 3].map(|letter| vec![letter; 100_000]);
    replace(&opened, "a", &versions[0]).unwrap();
    let look = opened.open("a", 0).unwrap();
    assert_eq!(read(look, 10, 50_000).unwrap(), [1; 10]);
    replace(&opened, "b", &versions[1]).unwrap();
    assert_eq!(read(look, 10, 50_000).unwrap(), [1; 10], "another file was made");
    for version in &versions[1..] {
        replace(&opened, "a", version).unwrap();
        // It is open to others when it is looked at, or not.
        let holders = [None, Some(opened.open("b", WRITE).unwrap())];
        for holder in holders.into_iter().rev() {
            let (kind, message) = read(look, 10, 50_000).unwrap_err();
            assert_eq!(kind, Kind::Conflict, "{message}");
            assert!(message.contains("?db=a: it was replaced while it was read"), "{message}");
            assert!(message.contains("Run the statement again"), "{message}");
            if let Some(holder) = holder {
                // SAFETY: it is freed once.
                unsafe { ps_file_free(holder) };
            }
        }
    }
    let fresh = opened.open("a", 0).unwrap();
    assert_eq!(read(fresh, 10, 50_000).unwrap(), [3; 10]);
    // SAFETY: each handle is freed once.
    unsafe {
        ps_file_free(look);
        ps_file_free(fresh);
    }
}

#[test]
fn what_is_to_replace_a_file_that_is_locked_is_not_even_begun() {
    let opened = Opened::new("locked");
    for lock in [WRITE_LOCK, READ_LOCK] {
        replace(&opened, "a", b"old").unwrap();
        // So that the volume can be written.
        let other = opened.open("b", WRITE | CREATE).unwrap();
        let holder = opened.open("a", lock).unwrap();
        let (kind, message) = replace(&opened, "a", b"new").unwrap_err();
        assert_eq!(kind, Kind::Conflict, "{message}");
        assert!(message.contains("?db=a: it is open already"), "{message}");
        assert_eq!(read(holder, 10, 0).unwrap(), b"old");
        assert!(opened.open("tmp_a", 0).is_err(), "nothing is left");
        // SAFETY: each handle is freed once.
        unsafe {
            ps_file_free(holder);
            ps_file_free(other);
        }
        replace(&opened, "a", b"new").unwrap();
    }
}

/// Files for spilling have the same names on every device.
#[test]
fn what_is_spilled_to_one_device_is_not_found_on_another() {
    let (opened, other) = (Opened::new("spilling"), Opened::new("beside"));
    let url = |image: &Path, file: &str| format!("nvme://{}?io=file&temp{file}", image.display());
    let (mut file, mut there, mut error) = (null_mut(), false, null_mut());
    // SAFETY: live handles, readable texts, writable out-parameters; the file is freed once.
    unsafe {
        let directory = url(&opened.image, "");
        assert!(ps_spill_create(opened.volumes, PsStr::lend(&directory), null(), 0, &mut error));
        let spilled = url(&opened.image, "/duckdb_temp_x");
        let flags = WRITE | CREATE;
        let spilled = PsStr::lend(&spilled);
        assert!(ps_file_open(opened.volumes, spilled, null(), 0, flags, &mut file, &mut error));
        let mut exists = |url: &str| {
            let url = PsStr::lend(url);
            assert!(ps_file_exists(opened.volumes, url, null(), 0, &mut there, &mut error));
            there
        };
        assert!(exists(&url(&opened.image, "/duckdb_temp_x")));
        assert!(!exists(&url(&other.image, "/duckdb_temp_x")));
        ps_file_free(file);
    }
}

#[test]
fn moving_is_for_files_of_one_device() {
    let (opened, other) = (Opened::new("from"), Opened::new("to"));
    // SAFETY: each handle is freed once.
    unsafe { ps_file_free(opened.open("a", WRITE | CREATE).unwrap()) };
    let spill = format!("nvme://{}?temp", opened.image.display());
    for (from, to, kind) in [
        (opened.url("a"), other.url("a"), Kind::Unsupported),
        (opened.url("absent"), opened.url("b"), Kind::NotFound),
        (opened.url("a"), spill, Kind::Invalid),
        (opened.url("a"), "s3://bucket/a".into(), Kind::Invalid),
    ] {
        let mut error = null_mut();
        // SAFETY: live handles, readable texts.
        let done = unsafe {
            let (from, to) = (PsStr::lend(&from), PsStr::lend(&to));
            ps_file_move(opened.volumes, from, to, null(), 0, &mut error)
        };
        assert!(!done, "{from} to {to}");
        let (found, message) = told(error);
        assert_eq!(found, kind, "{from} to {to}: {message}");
    }
}

/// Small reads in a row are read ahead; a write by another handle is seen by the next read.
#[test]
fn what_was_read_ahead_is_never_older_than_a_write() {
    let opened = Opened::new("ahead");
    let writer = opened.open("a", WRITE | CREATE).unwrap();
    write(writer, &vec![1; 1 << 20], 0).unwrap();
    let reader = opened.open("a", 0).unwrap();
    for piece in 0..100u64 {
        assert_eq!(read(reader, 4096, piece * 4096).unwrap(), [1 + piece as u8; 4096]);
        write(writer, &[2 + piece as u8; 4096], (piece + 1) * 4096).unwrap();
    }
    let mut error = null_mut();
    // SAFETY: live handles, freed once.
    unsafe {
        assert!(ps_file_truncate(writer, 101 * 4096 + 10, &mut error));
        assert_eq!(read(reader, 4096, 100 * 4096).unwrap(), [101; 4096]);
        assert_eq!(read(reader, 4096, 101 * 4096).unwrap().len(), 10);
        ps_file_free(reader);
        ps_file_free(writer);
    }
}

//! `penstock nvme` as a person meets it: volumes and caches in files.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

mod copies;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};

struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("penstock-nvme-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_string()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn nvme(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
    command.env_clear().arg("nvme").args(args).output().unwrap()
}

fn fine(args: &[&str]) -> String {
    let output = nvme(args);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(args: &[&str]) -> String {
    let output = nvme(args);
    assert!(!output.status.success(), "{args:?} went through");
    String::from_utf8(output.stderr).unwrap()
}

/// What is said under a variable of the environment.
fn told_with(variable: (&str, &str), args: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
    command.env_clear().env(variable.0, variable.1).arg("nvme").args(args);
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

/// Something like a database file; its length is no multiple of anything.
fn database(path: &str, length: u32, salt: u32) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..length).map(|at| (at * 7 / 13 + salt) as u8).collect();
    bytes[8..12].copy_from_slice(b"DUCK");
    std::fs::write(path, &bytes).unwrap();
    bytes
}

#[test]
fn what_is_there_is_not_formatted_unless_forced() {
    let dir = Dir::new();
    let (device, db) = (dir.path("disk"), dir.path("x.duckdb"));
    let mut bytes = vec![0; 8 << 20];
    bytes[8..12].copy_from_slice(b"DUCK");
    std::fs::write(&db, &bytes).unwrap();
    let error = refused(&["format", &db]);
    assert!(error.contains("a DuckDB database") && error.contains("--force"), "{error}");
    assert!(std::fs::read(&db).unwrap() == bytes);
    fine(&["format", &device, "--size", "8MiB"]);
    assert!(refused(&["format", &device]).contains("a Penstock volume"));
    fine(&["format", &device, "--force"]);
    assert!(refused(&["ls", &db]).contains("nvme import"));
    assert!(refused(&["ls", &dir.path("absent")]).contains("there is no such device"));
    assert!(refused(&["ls", &device, "--io", "urin"]).contains("Did you mean uring?"));
}

#[test]
fn a_cache_in_a_file_is_its_owners_alone() {
    let dir = Dir::new();
    let cache = dir.path("cache");
    fine(&["format", "--cache", &cache, "--size", "64MiB"]);
    assert_eq!(std::fs::metadata(&cache).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn nothing_is_made_where_no_url_leads() {
    let dir = Dir::new();
    for (name, told) in [
        ("x.wal", "what ends with .wal is a log"),
        ("x.wal.checkpoint", "what ends with .wal.checkpoint is a log"),
        ("q?.img", "its path has a ? in it"),
        ("duckdb_temp_x", "temporary files are called so"),
    ] {
        let device = dir.path(name);
        let error = refused(&["format", &device, "--size", "8MiB"]);
        assert!(error.contains(told) && error.contains("another name"), "{name}: {error}");
        assert!(!Path::new(&device).exists(), "{name}");
        // Nor on what is there, by whatever path.
        let link = dir.path("link");
        std::fs::write(&device, b"").unwrap();
        resize(&device, 8 << 20);
        std::os::unix::fs::symlink(&device, &link).unwrap();
        assert!(refused(&["format", &link, "--force"]).contains(told), "{name}");
        assert!(std::fs::read(&device).unwrap().iter().all(|byte| *byte == 0), "{name}");
        std::fs::remove_file(&link).unwrap();
        std::fs::remove_file(&device).unwrap();
        // The URL of a cache is its path and no more.
        let cache = ["format", &device, "--size", "32MiB", "--cache"];
        match name.contains('?') {
            true => assert!(refused(&cache).contains(told), "{name}"),
            false => drop(fine(&cache)),
        }
        assert_eq!(Path::new(&device).exists(), !name.contains('?'), "{name}");
    }
    let nowhere = refused(&["format", &dir.path("absent/x.img"), "--size", "8MiB"]);
    assert!(nowhere.contains("Look at the path"), "{nowhere}");
}

#[test]
fn a_url_is_told_how_it_is_said_here() {
    let dir = Dir::new();
    let device = dir.path("disk");
    fine(&["format", &device, "--size", "8MiB"]);
    for (url, more) in [("?db=sales", "; the database by --db sales"), ("?temp", ""), ("", "")] {
        let url = format!("nvme://{device}{url}");
        for verb in [&["ls", &url][..], &["format", &url, "--force"], &["rm", &url, "--db", "a"]] {
            let error = refused(verb);
            let told = format!("Name it by its path: {device}{more}\n");
            assert!(error.contains("it is a URL") && error.ends_with(&told), "{error}");
        }
    }
    let mistaken = refused(&["ls", &format!("nvme://{device}?dbs=sales")]);
    assert!(mistaken.contains("dbs"), "{mistaken}");
    let pipe = dir.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(refused(&["ls", &pipe]).contains("a pipe is no device for blocks"));
    assert!(refused(&["ls", &dir.path("")]).contains("a directory is no device for blocks"));
}

/// The flags of settings hold for every verb, and so do their variables.
#[test]
fn settings_say_how_a_device_is_opened_and_the_verb_s_own_flag_wins() {
    let dir = Dir::new();
    let device = dir.path("disk");
    fine(&["format", &device, "--size", "8MiB", "--nvme-queue-depth", "4"]);
    for (set, told) in [
        ("--nvme-io=urin", "Did you mean uring?"),
        ("--nvme-io=passthrough", "/dev/ng0n1"),
        ("--nvme-queues=treads", "Did you mean thread?"),
        ("--nvme-queue-depth=0", "1"),
        ("--nvme-wait=pol", "Did you mean poll?"),
    ] {
        let error = refused(&["ls", &device, set]);
        assert!(error.contains(told), "{set}: {error}");
    }
    let (is_fine, error) = told_with(("PENSTOCK_NVME_IO", "bogus"), &["ls", &device]);
    assert!(!is_fine && error.contains("there is no io=bogus"), "{error}");
    let by = |io| ["ls", &device, "--io", io];
    for (io, is_good) in [("direct", false), ("auto", true)] {
        let (is_fine, error) = told_with(("PENSTOCK_NVME_WAIT", "poll"), &by(io));
        assert_eq!(is_fine, is_good, "{io}: {error}");
        assert!(is_good || error.contains("there is nothing to poll"), "{error}");
    }
    let (is_fine, error) = told_with(("PENSTOCK_NVME_IO", "passthrough"), &by("direct"));
    assert!(is_fine, "{error}");
    let (is_fine, _) = told_with(("PENSTOCK_NVME_IO", "passthrough"), &["ls", &device]);
    assert!(!is_fine);
}

#[test]
fn a_larger_file_gives_its_room_and_a_damaged_table_is_told() {
    let dir = Dir::new();
    let (device, db) = (dir.path("disk"), dir.path("db"));
    fine(&["format", &device, "--size", "8MiB"]);
    database(&db, 6_000_000, 3);
    let error = refused(&["import", &device, &db, "--db", "big"]);
    assert!(error.contains("nvme grow"), "{error}");
    resize(&device, 32 << 20);
    let grown = fine(&["grow", &device]);
    assert!(grown.contains("a volume of 32MiB") && !grown.contains("nothing grew"), "{grown}");
    assert!(fine(&["grow", &device]).contains("nothing grew"));
    fine(&["import", &device, &db, "--db", "big"]);
    let absent = refused(&["rm", &device, "--db", "bog"]);
    assert!(
        absent.contains("there is no such file") && absent.contains("There are: big"),
        "{absent}"
    );
    let exported = refused(&["export", &device, &dir.path("b"), "--db", "bog"]);
    assert!(exported.contains("There are: big"), "{exported}");
    for path in [dir.path("absent"), format!("{device}/x")] {
        let unread = refused(&["import", &device, &path, "--db", "x"]);
        assert!(unread.contains("Look at the path"), "{unread}");
    }
    let behind = refused(&["ls", &format!("{device}/big")]);
    assert!(behind.contains("Name what lies on a volume by db"), "{behind}");
    assert_eq!(fine(&["ls", &device]), "       6000000  big\n");
    let mut bytes = std::fs::read(&device).unwrap();
    bytes[70] ^= 1;
    std::fs::write(&device, &bytes).unwrap();
    let output = nvme(&["check", &device]);
    assert!(!output.status.success());
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("table 1: damaged: its checksum is wrong"), "{told}");
    assert!(told.contains("table 2: sound"), "{told}");
    fine(&["rm", &device, "--db", "big"]);
    fine(&["check", &device]);
}

/// The third copy of the table is where the device ended, at whole MiB or not.
#[test]
fn a_sound_copy_is_found_on_a_device_that_grew() {
    use std::os::unix::fs::FileExt;
    for size in ["64MiB", "10000001B"] {
        let dir = Dir::new();
        let (device, db, back) = (dir.path("disk"), dir.path("db"), dir.path("back"));
        fine(&["format", &device, "--size", size]);
        let bytes = database(&db, 3_000_000, 5);
        fine(&["import", &device, &db, "--db", "kept"]);
        resize(&device, 128 << 20);
        let file = std::fs::OpenOptions::new().write(true).open(&device).unwrap();
        for page in [0, 256] {
            file.write_all_at(&[0; 4096], page * 4096).unwrap();
        }
        let output = nvme(&["check", &device]);
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(told.contains("table 3: sound"), "{size}: {told}");
        fine(&["export", &device, &back, "--db", "kept"]);
        assert!(std::fs::read(&back).unwrap() == bytes);
        // The next opening for writing makes the others anew, and the volume may grow.
        fine(&["grow", &device]);
        assert_eq!(fine(&["check", &device]).matches("sound").count(), 3);
        // Where all are lost, what is there is not called empty.
        for page in [0, 256, (128 << 8) - 256] {
            file.write_all_at(&[0; 4096], page * 4096).unwrap();
        }
        // None is left at the former end, which would be an older one.
        let error = refused(&["ls", &device]);
        assert!(error.contains("truncate -s SIZE") && error.contains("--force"), "{error}");
    }
}

/// What was at the beginning tells what was cut off.
#[test]
fn a_file_that_was_cut_off_is_told_to_be_that() {
    let dir = Dir::new();
    let (device, cache, db) = (dir.path("disk"), dir.path("cache"), dir.path("db"));
    fine(&["format", &device, "--size", "32MiB"]);
    database(&db, 6_000_000, 4);
    fine(&["import", &device, &db, "--db", "first"]);
    fine(&["import", &device, &db, "--db", "second"]);
    let whole = std::fs::read(&device).unwrap();
    for (size, told) in [
        (30 << 20, "no file lay behind its end"),
        (10 << 20, "behind its end lay parts of second\n"),
        (5 << 20, "behind its end lay parts of first, second\n"),
        (2 << 20, "behind its end lay parts of first, second\n"),
        (4096, "behind its end lay parts of first, second\n"),
        (512, "it was cut off: restore it from a backup"),
        (0, "it was cut off: restore it from a backup"),
    ] {
        std::fs::write(&device, &whole[..size]).unwrap();
        for verb in [&["ls", &device][..], &["check", &device], &["grow", &device]] {
            let error = refused(verb);
            assert!(error.contains(told), "{verb:?} at {size}: {error}");
            let is_named = size < 4096 || error.contains("truncate -s 33554432");
            assert!(is_named, "{verb:?} at {size}: {error}");
        }
    }
    // As the hint says.
    std::fs::write(&device, &whole[..10 << 20]).unwrap();
    resize(&device, 32 << 20);
    fine(&["export", &device, &dir.path("back"), "--db", "first"]);
    assert!(std::fs::read(dir.path("back")).unwrap() == std::fs::read(&db).unwrap());

    fine(&["format", "--cache", &cache, "--size", "64MiB"]);
    for size in [60 << 20, 20 << 20, 1 << 20, 4096] {
        resize(&cache, size);
        for verb in [&["ls", &cache][..], &["check", &cache]] {
            let error = refused(verb);
            assert!(error.contains("the cache on it"), "{verb:?} at {size}: {error}");
            assert!(error.contains(&format!("--cache --force {cache}")), "{error}");
        }
    }
    resize(&cache, 63 << 20);
    fine(&["format", "--cache", "--force", &cache]);
    assert!(fine(&["ls", &cache]).contains("no volume"));
}

#[test]
fn a_file_with_data_in_its_middle_only_is_not_empty() {
    use std::os::unix::fs::FileExt;
    let dir = Dir::new();
    let device = dir.path("disk");
    for io in ["file", "direct", "uring"] {
        for page in [300, 123_457, 262_143] {
            let file = std::fs::File::create(&device).unwrap();
            // So large that not every page can be looked at in passing.
            file.set_len(1 << 30).unwrap();
            file.write_all_at(b"precious", page * 4096 + 99).unwrap();
            let error = refused(&["format", &device, "--io", io]);
            assert!(error.contains("the device holds data"), "{io} {page}: {error}");
            let cached = refused(&["format", "--cache", &device, "--io", io]);
            assert!(cached.contains("the device holds data"), "{io} {page}: {cached}");
        }
        let zeros = std::fs::File::create(&device).unwrap();
        zeros.set_len(64 << 20).unwrap();
        zeros.write_all_at(&[0; 1 << 20], 9 << 20).unwrap();
        fine(&["format", &device, "--io", io]);
    }
}

fn resize(path: impl AsRef<Path>, bytes: u64) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

#[test]
fn a_cache_is_told_to_be_one_and_never_taken_for_a_volume() {
    let dir = Dir::new();
    let (device, file) = (dir.path("cache"), dir.path("db"));
    fine(&["format", "--cache", &device, "--size", "64MiB"]);
    assert!(fine(&["ls", &device]).contains("a cache of 56MiB, no volume"));
    let checked = fine(&["check", &device]);
    assert_eq!(checked.matches("sound").count(), 2, "{checked}");
    database(&file, 5000, 1);
    for verb in [&["grow", &device][..], &["import", &device, &file, "--db", "x"]] {
        assert!(refused(verb).contains("but a Penstock cache"), "{}", refused(verb));
    }
    let mut bytes = std::fs::read(&device).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&device, &bytes).unwrap();
    assert!(refused(&["check", &device]).contains("one of the cache's labels is damaged"));
    // Each, made over the other, leaves nothing by which the other would open.
    fine(&["format", &device, "--force"]);
    assert_eq!(fine(&["ls", &device]), "");
    fine(&["import", &device, &file, "--db", "x"]);
    fine(&["format", "--cache", &device, "--force"]);
    for copy in [0, bytes.len() - 4096] {
        let mut bytes = std::fs::read(&device).unwrap();
        bytes[copy..copy + 64].fill(0);
        std::fs::write(&device, &bytes).unwrap();
    }
    assert!(refused(&["ls", &device]).contains("there is no Penstock volume on it"));
}

#[test]
fn a_database_in_a_file_of_its_own_is_told_whatever_its_size() {
    let dir = Dir::new();
    // Too small for a volume, and large enough.
    for size_bytes in [12_288, 536_576, 12 << 20] {
        let file = dir.path("archive.duckdb");
        database(&file, size_bytes, 1);
        let error = refused(&["ls", &file]);
        assert!(error.contains("but a DuckDB database"), "{error}");
        assert!(error.contains("penstock nvme import"), "{error}");
        assert!(!error.contains("truncate"), "{error}");
        let error = refused(&["format", &file]);
        assert!(error.contains("holds a DuckDB database"), "{error}");
        assert!(!error.contains("truncate"), "{error}");
    }
}

#[test]
fn a_failed_format_leaves_nothing_and_a_size_is_never_ignored() {
    let dir = Dir::new();
    let device = dir.path("disk");
    assert!(refused(&["format", &device, "--size", "1MiB"]).contains("too few"));
    for size in ["0", "10", "511"] {
        let error = refused(&["format", &device, "--size", size]);
        assert!(error.contains("a volume takes 4 MiB"), "{size}: {error}");
    }
    for size in [u64::MAX, i64::MAX.unsigned_abs()] {
        let error = refused(&["format", &device, "--size", &size.to_string()]);
        let said = error.contains("no file here can have") && error.contains("--size a smaller");
        assert!(said, "{size}: {error}");
    }
    assert!(!Path::new(&device).exists());
    fine(&["format", &device, "--size", "8MiB"]);
    let error = refused(&["format", &device, "--size", "16MiB", "--force"]);
    assert!(error.contains("truncate -s"), "{error}");
    fine(&["format", &device, "--size", "8MiB", "--force"]);
}

//! Databases in and out of volumes, and what a copy leaves that did not come to its end.

use super::{Dir, database, fine, refused};
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn a_database_goes_in_and_comes_out_byte_for_byte_by_every_io() {
    for io in ["file", "direct", "uring"] {
        let dir = Dir::new();
        let (device, sales, back) = (dir.path("disk"), dir.path("sales.db"), dir.path("back.db"));
        let made = fine(&["format", &device, "--size", "64MiB", "--io", io]);
        assert!(made.contains("a volume of 64MiB, 61MiB free"), "{made}");
        let bytes = database(&sales, 9_000_001, 1);
        let log = database(&format!("{sales}.wal"), 12_345, 2);
        fine(&["import", &device, &sales, "--db", "sales", "--io", io]);
        let listed = fine(&["ls", &device, "--io", io]);
        assert_eq!(listed, "       9000001  sales\n         12345  sales.wal\n");
        let checked = fine(&["check", &device, "--io", io]);
        assert_eq!(checked.matches("sound").count(), 3, "{checked}");
        fine(&["export", &device, &back, "--db", "sales", "--io", io]);
        assert!(std::fs::read(&back).unwrap() == bytes);
        assert!(std::fs::read(format!("{back}.wal")).unwrap() == log);
        let again = refused(&["export", &device, &back, "--db", "sales", "--io", io]);
        assert!(again.contains("exists"), "{again}");
        let twice = refused(&["import", &device, &sales, "--db", "sales", "--io", io]);
        assert!(twice.contains("there is a file sales already"), "{twice}");
        assert!(twice.contains(&format!("penstock nvme rm {device} --db sales")), "{twice}");
        fine(&["rm", &device, "--db", "sales", "--io", io]);
        assert_eq!(fine(&["ls", &device, "--io", io]), "");
    }
}

#[test]
fn names_that_would_hide_or_overwrite_something_are_refused() {
    let dir = Dir::new();
    let (device, file, back) = (dir.path("disk"), dir.path("db"), dir.path("back.db"));
    fine(&["format", &device, "--size", "32MiB"]);
    database(&file, 5000, 1);
    let long = "n".repeat(234);
    for name in ["", "temp/y", "x.wal", "x.wal.checkpoint", "bad.import", "a&b", &long] {
        let error = refused(&["import", &device, &file, "--db", name]);
        assert!(error.contains("database"), "{name}: {error}");
        assert_eq!(fine(&["ls", &device]), "", "{name} left something");
    }
    fine(&["import", &device, &file, "--db", &long[1..]]);
    // Somebody's own file of the name that an export uses meanwhile.
    let precious = format!("{back}.export");
    std::fs::write(&precious, "precious").unwrap();
    let error = refused(&["export", &device, &back, "--db", &long[1..]]);
    assert!(error.contains("remove this one"), "{error}");
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
    assert!(!Path::new(&back).exists());
    std::fs::remove_file(&precious).unwrap();
    fine(&["export", &device, &back, "--db", &long[1..]]);
}

#[test]
fn an_import_that_fails_or_was_killed_leaves_nothing() {
    let dir = Dir::new();
    let (device, db) = (dir.path("disk"), dir.path("jj.db"));
    fine(&["format", &device, "--size", "8MiB"]);
    let length = 5_100_000;
    database(&db, length, 1);
    database(&format!("{db}.wal"), 660_625, 2);
    let error = refused(&["import", &device, &db, "--db", "jj"]);
    assert!(error.contains("bytes more are needed"), "{error}");
    assert_eq!(fine(&["ls", &device]), "");
    // What a kill leaves, made by hand.
    let options = penstock_device::OpenOptions::new(penstock_device::Io::File);
    let left = |name: &str| {
        use penstock_device::volume::{Lock, OpenFileOptions, Volume};
        let opened = penstock_device::open(Path::new(&device), &options).unwrap();
        let port = penstock_device::Port::new(opened, penstock_device::Discipline::Sync).unwrap();
        let volume = Volume::open(port).unwrap();
        let options = OpenFileOptions { create: true, lock: Lock::None };
        volume.open_file(name, options).unwrap().write_at(&[1; 5000], 0).unwrap();
    };
    left("jj.wal.import");
    fine(&["rm", &device, "--db", "jj"]);
    assert_eq!(fine(&["ls", &device]), "");
    left("jj.wal");
    let error = refused(&["import", &device, &db, "--db", "jj"]);
    assert!(error.contains("there is a file jj.wal already"), "nobody knows whose: {error}");
    // That of an import that was killed between its two last steps.
    left("jj.import");
    std::fs::remove_file(format!("{db}.wal")).unwrap();
    fine(&["import", &device, &db, "--db", "jj"]);
    assert_eq!(fine(&["ls", &device]), format!("{length:>14}  jj\n"));
    fine(&["rm", &device, "--db", "jj"]);
    left("jj.wal.import");
    fine(&["import", &device, &db, "--db", "jj"]);
    assert_eq!(fine(&["ls", &device]), format!("{length:>14}  jj\n"));
}

/// The kernel kills who writes more to a file than is allowed: here in the middle of an export.
#[test]
fn an_export_that_was_killed_leaves_no_database() {
    use std::os::unix::process::ExitStatusExt;
    let dir = Dir::new();
    let (device, db, back) = (dir.path("disk"), dir.path("jj.db"), dir.path("back.db"));
    fine(&["format", &device, "--size", "64MiB"]);
    let bytes = database(&db, 9_000_001, 1);
    let log = database(&format!("{db}.wal"), 12_345, 2);
    fine(&["import", &device, &db, "--db", "jj"]);
    let mut killed = Command::new("sh");
    killed.args(["-c", "ulimit -c 0; ulimit -f 8000; exec \"$@\"", "sh"]);
    killed.args([env!("CARGO_BIN_EXE_penstock"), "nvme", "export", &device, &back, "--db", "jj"]);
    let output = killed.env_clear().env("PATH", "/usr/bin:/bin").output().unwrap();
    assert!(output.status.signal().is_some(), "{output:?}");
    assert!(!Path::new(&back).exists(), "DuckDB would take it for an empty database");
    assert!(!Path::new(&format!("{back}.wal")).exists(), "nor a log beside another one");
    let error = refused(&["export", &device, &back, "--db", "jj"]);
    assert!(error.contains(".export") && error.contains("remove this one"), "{error}");
    for left in [".export", ".wal.export"] {
        std::fs::remove_file(format!("{back}{left}")).unwrap();
    }
    fine(&["export", &device, &back, "--db", "jj"]);
    assert!(std::fs::read(&back).unwrap() == bytes);
    assert!(std::fs::read(format!("{back}.wal")).unwrap() == log);
}

/// DuckDB would replay it, though the database has none.
#[test]
fn a_database_is_not_exported_beside_the_log_of_another() {
    let dir = Dir::new();
    let (device, db, back) = (dir.path("disk"), dir.path("jj.db"), dir.path("back.db"));
    fine(&["format", &device, "--size", "8MiB"]);
    database(&db, 300_000, 1);
    fine(&["import", &device, &db, "--db", "jj"]);
    for ending in [".wal", ".wal.checkpoint", ".wal.recovery"] {
        let log = format!("{back}{ending}");
        std::fs::write(&log, "of another").unwrap();
        let error = refused(&["export", &device, &back, "--db", "jj"]);
        assert!(error.contains(&log) && error.contains("remove this one"), "{error}");
        assert!(!Path::new(&back).exists(), "{ending}");
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "of another");
        std::fs::remove_file(&log).unwrap();
    }
    fine(&["export", &device, &back, "--db", "jj"]);
}

#[test]
fn what_is_no_database_is_not_imported() {
    let dir = Dir::new();
    let (device, pipe) = (dir.path("disk"), dir.path("pipe"));
    fine(&["format", &device, "--size", "8MiB"]);
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in ["/dev/null", &pipe] {
        let error = refused(&["import", &device, path, "--db", "x"]);
        assert!(error.contains("neither a file nor a block device"), "{path}: {error}");
    }
    let (empty, other) = (dir.path("empty"), dir.path("other"));
    std::fs::write(&empty, "").unwrap();
    std::fs::write(&other, [7; 5000]).unwrap();
    for path in [&empty, &other] {
        let error = refused(&["import", &device, path, "--db", "x"]);
        assert!(error.contains("it is no DuckDB database"), "{path}: {error}");
    }
    // Nor a pipe for a log.
    let db = dir.path("db");
    database(&db, 5000, 1);
    std::fs::rename(&pipe, format!("{db}.wal")).unwrap();
    let error = refused(&["import", &device, &db, "--db", "x"]);
    assert!(error.contains("db.wal") && error.contains("neither a file nor"), "{error}");
    assert_eq!(fine(&["ls", &device]), "");
}

/// A signal that asks a copy to end, in its midst: at a size that is written in 100 ms and more.
#[test]
fn what_a_signal_ends_leaves_nothing() {
    let dir = Dir::new();
    let (device, db, back) = (dir.path("disk"), dir.path("large.db"), dir.path("back.db"));
    let length = 200 << 20;
    database(&db, 1 << 20, 1);
    File::options().write(true).open(&db).unwrap().set_len(length).unwrap();
    for signal in ["-INT", "-TERM", "-HUP"] {
        std::fs::remove_file(&device).ok();
        fine(&["format", &device, "--size", "300MiB"]);
        let outcome = signalled(signal, &["import", &device, &db, "--db", "large"], || {
            // The file of an empty volume has less.
            std::fs::metadata(&device).unwrap().blocks() * 512 > 16 << 20
        });
        assert!(outcome.contains("a signal ended it"), "{signal}: {outcome}");
        assert_eq!(fine(&["ls", &device]), "", "{signal}");
    }
    fine(&["import", &device, &db, "--db", "large"]);
    for signal in ["-INT", "-TERM", "-HUP"] {
        let outcome = signalled(signal, &["export", &device, &back, "--db", "large"], || {
            Path::new(&format!("{back}.export")).exists()
        });
        assert!(outcome.contains("a signal ended it"), "{signal}: {outcome}");
        assert!(!Path::new(&format!("{back}.export")).exists(), "{signal}");
        assert!(!Path::new(&back).exists(), "{signal}");
    }
    fine(&["export", &device, &back, "--db", "large"]);
    assert_eq!(std::fs::metadata(&back).unwrap().len(), length);
}

/// Starts a verb, signals it once it is at work, and tells what it says.
fn signalled(signal: &str, args: &[&str], is_at_work: impl Fn() -> bool) -> String {
    // Whoever runs the tests may have hang-ups ignored.
    let mut verb = Command::new("env");
    verb.args(["-i", "--default-signal=HUP,INT", env!("CARGO_BIN_EXE_penstock"), "nvme"]);
    let mut verb = verb.args(args).stderr(Stdio::piped()).spawn().unwrap();
    while !is_at_work() {
        assert!(verb.try_wait().unwrap().is_none(), "{args:?} came to its end");
        std::thread::yield_now();
    }
    // Halted, so that it does not come to its end before the signal does.
    let halted = rustix::process::Pid::from_child(&verb);
    rustix::process::kill_process(halted, rustix::process::Signal::STOP).unwrap();
    let number = verb.id().to_string();
    for each in [signal, "-CONT"] {
        assert!(Command::new("kill").args([each, &number]).status().unwrap().success());
    }
    let output = verb.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(19), "{signal}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

//! The exam through libxnvme: a small library of our own with the same interface, made with `cc`;
//! or the one that PENSTOCK_TEST_XNVME names, with the backend that PENSTOCK_TEST_XNVME_BACKEND
//! names (io_uring without it). On files of the test, and on loop devices where they can be made;
//! or on the device that PENSTOCK_TEST_XNVME_DEVICE names, whose first blocks it overwrites (with
//! `--test-threads=1`).

#[macro_use]
#[path = "conformance/exam.rs"]
mod exam;
#[path = "conformance/cases.rs"]
mod cases;
#[path = "conformance/loops.rs"]
mod loops;
#[allow(dead_code)] // the exam of other devices uses the rest
#[path = "conformance/made.rs"]
mod made;
#[path = "conformance/subject.rs"]
mod subject;

use made::Scratch;
use penstock_base::{DeviceMetric, Kind};
use penstock_device::{Io, OpenOptions, open};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use subject::{BLOCKS, Subject};

/// A library of our own, kept by what its definitions differ in.
fn made(name: &str, definitions: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let out = folder.join(format!("libxnvme-{name}-{}.so", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/xnvme/fake_xnvme.c");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&out).arg(source);
    let status = cc.args(definitions).status().expect("cc is there");
    assert!(status.success(), "the library of the test does not compile");
    out
}

/// The library to examine, and its backend.
fn examined() -> &'static (PathBuf, String) {
    static LIBRARY: OnceLock<(PathBuf, String)> = OnceLock::new();
    LIBRARY.get_or_init(|| match std::env::var_os("PENSTOCK_TEST_XNVME") {
        Some(path) => {
            let backend = std::env::var("PENSTOCK_TEST_XNVME_BACKEND");
            (path.into(), backend.unwrap_or_else(|_| "io_uring".into()))
        }
        None => (made("fake", &[]), "posix".into()),
    })
}

fn options(library: &Path, backend: &str) -> OpenOptions {
    let io = Io::by_name(&format!("xnvme:{backend}")).expect("every backend has a name");
    OpenOptions { xnvme_library: Some(library.to_path_buf()), ..OpenOptions::new(io) }
}

fn subject(block_size: u32, blocks_per_transfer: u32) -> Subject {
    let (library, backend) = examined();
    if let Some(path) = std::env::var_os("PENSTOCK_TEST_XNVME_DEVICE") {
        let options = options(library, backend);
        return Subject::head(open(Path::new(&path), &options).expect("the library opens it"));
    }
    let scratch = Scratch::new();
    let options = OpenOptions {
        create_bytes: Some(BLOCKS * u64::from(block_size)),
        block_size_bytes: Some(block_size),
        transfer_max_bytes: Some(block_size * blocks_per_transfer),
        ..options(library, backend)
    };
    let device = open(&scratch.0, &options).expect("the library opens a file");
    Subject::new(device, scratch)
}

fn subject_on_loop(block_size: u32, blocks_per_transfer: u32) -> Subject {
    let (library, backend) = examined();
    Subject::on_loop(block_size, blocks_per_transfer, options(library, backend))
}

exam!(xnvme, || subject(4096, 8));
exam!(xnvme_512, || subject(512, 256));
exam!(xnvme_on_loop, || subject_on_loop(4096, 8), if loops::are_there);
exam!(xnvme_on_loop_512, || subject_on_loop(512, 256), if loops::are_there);

/// What comes of opening a file with a library.
fn refusal(library: &Path, backend: &str) -> penstock_base::Error {
    let scratch = Scratch::new();
    std::fs::write(&scratch.0, [0; 8192]).expect("writes");
    let error = open(&scratch.0, &options(library, backend)).err().expect("it is refused");
    assert_eq!(error.kind(), Kind::Unsupported, "{error}");
    assert!(error.hint().is_some(), "{error}");
    error
}

#[test]
fn libraries_that_are_not_known_are_told() {
    let absent = refusal(Path::new("/nowhere/libxnvme.so"), "posix").to_string();
    assert!(absent.contains("cannot be loaded"), "{absent}");
    let newer = refusal(&made("newer", &["-DMINOR=8"]), "posix").to_string();
    assert!(newer.contains("version 0.8, known is 0.7"), "{newer}");
    let drifted = refusal(&made("drifted", &["-DSHIFT=4"]), "posix").to_string();
    assert!(drifted.contains("another layout"), "{drifted}");
    let libc = refusal(Path::new("libc.so.6"), "posix").to_string();
    assert!(libc.contains("it has no xnvme_"), "{libc}");
    let backend = refusal(&examined().0, "no-such-backend").to_string();
    assert!(backend.contains("no backend no-such-backend"), "{backend}");
}

/// Where it has no name the library finds it itself, unless somebody names it all the same.
#[test]
fn what_identifies_a_file_need_not_have_a_name() {
    let library = made("nameless", &["-DADMIN=\"other\""]);
    let scratch = Scratch::new();
    std::fs::write(&scratch.0, [0; 8192]).expect("writes");
    open(&scratch.0, &options(&library, "posix")).expect("the library finds it");
    let named = refusal(&library, "async=posix,admin=file_as_ns");
    let cause = std::error::Error::source(&named).expect("the library gives one").to_string();
    assert!(cause.contains("no backend of the library has these parts"), "{cause}");
}

/// As it is tried with more and with less named, each has an error of its own.
#[test]
fn every_try_to_open_is_told() {
    let told = refusal(&made("twice", &["-DADMIN=\"other\"", "-DOPEN=13"]), "posix");
    let cause = std::error::Error::source(&told).expect("the library gives one").to_string();
    let (first, second) = cause.split_once("; ").expect("two were tried");
    assert!(first.contains("with sync=psync,admin=file_as_ns: no backend"), "{first}");
    assert!(second.contains("with sync=psync: Permission denied"), "{second}");
}

/// 0.7.5 tells the kernel's numbers as a vendor's status; where a part of a backend does not fill
/// one in, `emu` and `thrpool` put the number into the code, or what a byte holds of it below zero.
#[test]
fn the_kernels_error_is_told_however_the_library_tells_it() {
    let ways: [(&str, &[&str]); 3] = [
        ("vendor", &["-DFAIL=28"]),
        ("generic", &["-DFAIL=28", "-DTYPE=0"]),
        ("byte", &["-DFAIL=-28", "-DTYPE=0"]),
    ];
    for (name, definitions) in ways {
        let scratch = Scratch::new();
        let options = OpenOptions {
            create_bytes: Some(1 << 20),
            ..options(&made(name, definitions), "posix")
        };
        let device = open(&scratch.0, &options).expect("opens");
        let port = Subject::new(device, ()).port(penstock_device::Discipline::Thread);
        let error = port.write(0, &[1; 8192]).expect_err("every command fails");
        assert_eq!(error.kind(), Kind::Exhausted, "{name}: {error}");
        assert!(error.to_string().contains("os error 28"), "{name}: {error}");
    }
}

#[test]
fn a_queue_that_cannot_be_made_is_told_whatever_the_sign_of_its_error() {
    for (name, result) in [("below", "-DQUEUE=-22"), ("above", "-DQUEUE=1")] {
        let told = refusal(&made(name, &[result]), "posix").to_string();
        assert!(told.contains("makes no queue for 32 commands"), "{told}");
    }
}

#[test]
fn every_part_of_a_backend_gets_its_name() {
    let library = made("parts", &[]);
    let all = "async=posix,sync=psync,be=linux,admin=file_as_ns,mem=malloc";
    let scratch = Scratch::new();
    std::fs::write(&scratch.0, [0; 8192]).expect("writes");
    open(&scratch.0, &options(&library, all)).expect("the library knows all of these");
    open(&scratch.0, &options(&library, "mem=malloc,async=posix")).expect("and some of them");
    for part in ["async", "sync", "be", "admin", "mem"] {
        let words = all.split(',').map(|word| match word.split_once('=') {
            Some((name, _)) if name == part => format!("{part}=other"),
            _ => word.to_string(),
        });
        let backend = words.collect::<Vec<_>>().join(",");
        let told = refusal(&library, &backend).to_string();
        assert!(told.contains(&format!("{part}=other")), "{told}");
    }
}

#[test]
fn a_queue_is_as_deep_as_was_asked_for() {
    let library = made("deep", &["-DLIMIT=4096"]);
    for depth in [1, 3, 32, 200] {
        let scratch = Scratch::new();
        let options = OpenOptions {
            create_bytes: Some(1 << 20),
            queue_depth: Some(depth),
            ..options(&library, "posix")
        };
        let device = open(&scratch.0, &options).expect("opens");
        let name = device.name().to_string();
        let port = Subject::new(device, ()).port(penstock_device::Discipline::Thread);
        let mut bytes = vec![0; 256 * 4096];
        let reads = bytes.chunks_mut(4096).zip(0u64..);
        let mut batch: Vec<_> =
            reads.map(|(into, block)| penstock_device::Command::Read { block, into }).collect();
        port.run(&mut batch).expect("reads");
        let (_, queues) = penstock_device::meter::readings();
        let own = queues.iter().filter(|it| it.device == name);
        let most = own.map(|it| it.reading.get(DeviceMetric::InFlightMost)).max();
        assert_eq!(most, Some(u64::from(depth)));
    }
}

#[test]
fn an_end_that_moved_is_told() {
    let (library, backend) = examined();
    end_that_moves(library, backend);
    // A thread of the library's tells what failed in it before.
    end_that_moves(&made("stale", &["-DSTALE=5"]), "posix");
}

fn end_that_moves(library: &Path, backend: &str) {
    let scratch = Scratch::new();
    let options = OpenOptions { create_bytes: Some(1 << 20), ..options(library, backend) };
    let device = open(&scratch.0, &options).expect("opens");
    let port = Subject::new(device, ()).port(penstock_device::Discipline::Thread);
    let file = std::fs::OpenOptions::new().write(true).open(&scratch.0).expect("opens");
    file.set_len(8192).expect("shrinks");
    for block in [1, 2, 200] {
        let error = port.read(block, &mut [0; 8192]).expect_err("the end is in the way");
        assert_eq!(error.kind(), Kind::Conflict, "{error}");
    }
    port.read(0, &mut [0; 8192]).expect("what is left can be read");
}

//! What only files and block devices can meet: other processes, permissions, ends that move.

use crate::loops::{self, Loop};
use crate::made::Scratch;
use penstock_base::{Kind, Result};
use penstock_device::{Command, Discipline, Io, IoChoice, OpenOptions, Port, open, peek};
use std::path::Path;

fn options(io: Io) -> OpenOptions {
    OpenOptions { create_bytes: Some(1 << 20), ..OpenOptions::new(io) }
}

fn port(path: &Path, options: &OpenOptions) -> Result<Port> {
    Port::new(open(path, options)?, Discipline::Thread)
}

fn each(case: impl Fn(Io, &Path)) {
    for io in [Io::File, Io::Direct, Io::Uring] {
        let scratch = Scratch::new();
        case(io, &scratch.0);
    }
}

#[test]
fn bytes_are_there_for_the_next_opener() {
    each(|io, path| {
        let bytes = vec![7; 64 << 10];
        let writer = port(path, &options(io)).expect("opens");
        writer.write(4, &bytes).expect("writes");
        writer.flush().expect("flushes");
        drop(writer);
        for other in [Io::File, Io::Direct, Io::Uring] {
            let reader = OpenOptions { write: false, ..OpenOptions::new(other) };
            let mut into = vec![0; bytes.len()];
            port(path, &reader).expect("opens").read(4, &mut into).expect("reads");
            assert!(into == bytes);
        }
    });
}

/// A device that a writer has, which another one takes while it is looked at.
fn looked_at(path: &Path, io: Io) {
    let bytes = [7; 4096];
    let writer = port(path, &options(io)).expect("opens");
    writer.write(8, &bytes).expect("writes");
    writer.flush().expect("flushes");
    let look = peek(path, IoChoice::By(io)).expect("it takes no lock");
    let look = Port::new(look, Discipline::Single).expect("has queues");
    drop(writer);
    let _next = port(path, &options(io)).expect("nobody is in the way");
    let mut into = [0; 4096];
    look.read(8, &mut into).expect("reads");
    assert!(into == bytes, "{io}");
    look.write(8, &bytes).expect_err("it is for reading only");
}

#[test]
fn a_device_is_looked_at_without_a_lock() {
    each(|io, path| looked_at(path, io));
    if loops::are_there("peek") {
        for io in [Io::File, Io::Direct, Io::Uring] {
            looked_at(Loop::new(1 << 20, 512).expect("there is one").path(), io);
        }
    }
}

#[test]
fn a_writer_keeps_others_out_and_readers_keep_writers_out() {
    each(|io, path| {
        let read = OpenOptions { write: false, ..OpenOptions::new(io) };
        let writer = port(path, &options(io)).expect("opens");
        // A queue of another thread must not keep the lock either, once the port is gone.
        std::thread::scope(|scope| {
            let job = scope.spawn(|| writer.flush());
            job.join().expect("no panic").expect("flushes");
        });
        for second in [&options(io), &read] {
            let error = port(path, second).err().expect("the writer has it");
            assert_eq!(error.kind(), Kind::Conflict, "{error}");
            assert!(error.to_string().contains("another process"), "{error}");
        }
        drop(writer);
        let _first = port(path, &read).expect("opens");
        let _second = port(path, &read).expect("readers go together");
        assert_eq!(port(path, &options(io)).err().expect("readers").kind(), Kind::Conflict);
    });
}

/// A block device is claimed before it is locked, and the kernel calls what is claimed busy.
#[test]
fn who_has_a_block_device_is_told() {
    if !loops::are_there("files::who_has_a_block_device_is_told") {
        return;
    }
    for io in [Io::File, Io::Direct, Io::Uring] {
        let device = Loop::new(1 << 20, 512).expect("another could be made");
        let writes = OpenOptions::new(io);
        let reads = OpenOptions { write: false, ..OpenOptions::new(io) };
        for (first, seconds) in [(&writes, &[&writes, &reads][..]), (&reads, &[&writes])] {
            let held = port(device.path(), first).expect("opens");
            for second in seconds {
                let error = port(device.path(), second).err().expect("it is open");
                assert_eq!(error.kind(), Kind::Conflict, "{error}");
                assert!(error.to_string().contains("another process has the device"), "{error}");
                let hint = error.hint().expect("who");
                assert!(hint.starts_with("This process has it."), "{error}");
            }
            drop(held);
        }
    }
}

#[test]
fn polling_is_refused_where_there_is_nothing_to_poll() {
    for io in [Io::File, Io::Direct] {
        let scratch = Scratch::new();
        let options = OpenOptions { wait: penstock_device::Wait::Poll, ..options(io) };
        let error = port(&scratch.0, &options).err().expect("calls cannot be polled for");
        assert_eq!(error.kind(), Kind::Unsupported, "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("io=uring")), "{error}");
        assert!(!scratch.0.exists(), "no file was made");
    }
}

#[test]
fn a_read_only_device_refuses_to_change() {
    each(|io, path| {
        drop(port(path, &options(io)).expect("makes the file"));
        let reader = OpenOptions { write: false, ..OpenOptions::new(io) };
        let reader = port(path, &reader).expect("opens");
        let outcomes = [reader.write(0, &[1; 4096]), reader.trim(0, 1)];
        for error in outcomes.map(|outcome| outcome.expect_err("it is read-only")) {
            assert_eq!(error.kind(), Kind::Denied, "{error}");
        }
        reader.read(0, &mut [1; 4096]).expect("reads");
    });
}

#[test]
fn an_end_that_moved_is_told() {
    each(|io, path| {
        let port = port(path, &options(io)).expect("opens");
        let file = std::fs::OpenOptions::new().write(true).open(path).expect("opens");
        file.set_len(8192).expect("shrinks");
        for block in [1, 2, 200] {
            let (mut alone, mut first, mut second) = ([0; 8192], [0; 4096], [0; 8192]);
            let beside = Command::Read { block: 0, into: &mut first };
            // A command that is alone may take another way than two.
            let outcomes = [
                port.read(block, &mut alone),
                port.run(&mut [beside, Command::Read { block, into: &mut second }]),
            ];
            for error in outcomes.map(|outcome| outcome.expect_err("the end is in the way")) {
                assert_eq!(error.kind(), Kind::Conflict, "{error}");
                assert!(error.to_string().contains("ends at byte"), "{error}");
            }
        }
        port.read(0, &mut [0; 8192]).expect("what is left can be read");
    });
}

#[test]
fn a_file_that_cannot_be_so_large_is_told() {
    // More than any file system holds: the kernel says so as it does for a full one.
    each(|io, path| {
        let beyond = OpenOptions { create_bytes: Some(1 << 62), ..options(io) };
        let error = port(path, &beyond).err().expect("no file system holds that");
        assert_eq!(error.kind(), Kind::Exhausted, "{error}");
        assert!(error.hint().is_some(), "{error}");
    });
}

#[test]
fn wrong_paths_and_sizes_are_told() {
    each(|io, path| {
        let absent = port(path, &OpenOptions::new(io)).err().expect("there is no file");
        assert_eq!(absent.kind(), Kind::NotFound, "{absent}");
        let folder = port(&std::env::temp_dir(), &options(io)).err().expect("a directory");
        assert_eq!(folder.kind(), Kind::Unsupported, "{folder}");
        let odd = OpenOptions { block_size_bytes: Some(1000), ..options(io) };
        assert_eq!(port(path, &odd).err().expect("odd blocks").kind(), Kind::Unsupported);
        let small = OpenOptions { transfer_max_bytes: Some(512), ..options(io) };
        assert_eq!(port(path, &small).err().expect("half blocks").kind(), Kind::Invalid);
        std::fs::write(path, b"short").expect("writes");
        let short = port(path, &OpenOptions::new(io)).err().expect("less than a block");
        assert_eq!(short.kind(), Kind::Invalid, "{short}");
    });
}

#[test]
fn commands_of_nvme_are_refused_where_there_is_no_nvme() {
    for io in [Io::Ioctl, Io::Passthrough] {
        let scratch = Scratch::new();
        std::fs::write(&scratch.0, [0; 8192]).expect("writes");
        for path in [scratch.0.as_path(), Path::new("/dev/null")] {
            let error = port(path, &OpenOptions::new(io)).err().expect("it is no NVMe device");
            assert_eq!(error.kind(), Kind::Unsupported, "{error}");
            assert!(error.to_string().contains("/dev/ng0n1"), "{error}");
        }
    }
}

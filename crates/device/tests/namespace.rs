//! The exam on a real or emulated NVMe namespace, whose first blocks it overwrites. The variable
//! PENSTOCK_TEST_NVME names its `/dev/ngXnY`; run it with `--test-threads=1`.

#[macro_use]
#[path = "conformance/exam.rs"]
mod exam;
#[path = "conformance/cases.rs"]
mod cases;
#[path = "conformance/subject.rs"]
mod subject;

use penstock_device::{Io, OpenOptions, Wait, open};
use std::path::Path;
use subject::Subject;

fn subject(io: Io) -> Subject {
    subject_by(&OpenOptions::new(io))
}

fn subject_by(options: &OpenOptions) -> Subject {
    let path = std::env::var("PENSTOCK_TEST_NVME").expect("PENSTOCK_TEST_NVME names the device");
    Subject::head(open(Path::new(&path), options).expect("it opens"))
}

exam!(ioctl, || subject(Io::Ioctl));
exam!(passthrough, || subject(Io::Passthrough));
exam!(passthrough_polled, || subject_by(&OpenOptions {
    wait: Wait::Poll,
    ..OpenOptions::new(Io::Passthrough)
}));

#[test]
fn a_second_opener_is_kept_out() {
    let path = std::env::var("PENSTOCK_TEST_NVME").expect("PENSTOCK_TEST_NVME names the device");
    let _first = subject(Io::Passthrough);
    for io in [Io::Passthrough, Io::Ioctl] {
        let second = open(Path::new(&path), &OpenOptions::new(io));
        let error = second.err().expect("the first has it");
        assert_eq!(error.kind(), penstock_base::Kind::Conflict, "{error}");
    }
}

/// Devices that are not well; the virtual machine has them, a real one does not.
mod faults {
    use super::*;
    use penstock_base::{Kind, Result};
    use penstock_device::{AlignedBuffer, Discipline, Port};

    fn port(variable: &str, io: Io) -> Port {
        let path = std::env::var(variable).unwrap_or_else(|_| panic!("{variable} names a device"));
        let device = open(Path::new(&path), &OpenOptions::new(io)).expect("it opens");
        Port::new(device, Discipline::Thread).expect("it has queues")
    }

    fn refused(outcome: Result<()>, kind: Kind, name: &str) {
        let error = outcome.expect_err("the device refuses this");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(name), "{error}");
        assert!(error.hint().is_some(), "{error}");
    }

    /// Reads of block 2048, writes of block 4096 and every flush fail; the rest is well.
    #[test]
    fn what_a_device_cannot_do_is_told_by_name() {
        for io in [Io::Ioctl, Io::Passthrough] {
            let port = port("PENSTOCK_TEST_NVME_BAD", io);
            assert!(port.geometry().transfer_max_bytes <= 16 << 10, "{:?}", port.geometry());
            let mut bytes = AlignedBuffer::new(256 << 10, 4096);
            refused(port.read(1900, &mut bytes), Kind::Corrupt, "Unrecovered Read Error");
            refused(port.write(4000, &bytes), Kind::Unavailable, "Write Fault");
            refused(port.flush(), Kind::Unavailable, "NVMe status");
            port.read(4096, &mut bytes).expect("a read beside the bad block");
            port.write(8192, &bytes).expect("a write beside the bad block");
        }
    }

    /// Has somebody outside do something to a device.
    fn ask(verb: &str, device: &str) {
        let to = std::env::var("PENSTOCK_TEST_PULL").expect("PENSTOCK_TEST_PULL names a file");
        std::fs::write(to, format!("{verb} {device}\n")).expect("somebody reads it");
    }

    /// Writes and flushes until the device is gone.
    fn goes(letter: &str, io: Io) {
        let port = port(&format!("PENSTOCK_TEST_NVME_PULLED_{}", letter.to_uppercase()), io);
        assert!(port.geometry().has_volatile_cache);
        let bytes = AlignedBuffer::new(64 << 10, 4096);
        ask("pull", &format!("pulled-{letter}"));
        let mut outcome = Ok(());
        while outcome.is_ok() {
            outcome = port.write(0, &bytes).and_then(|()| port.flush());
        }
        let error = outcome.expect_err("the loop ended so");
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        let again = port.read(0, &mut [0; 4096]).expect_err("it stays away");
        assert_eq!(again.kind(), Kind::Unavailable, "{again}");
        assert!(again.to_string().contains("gone"), "{again}");
    }

    #[test]
    fn a_device_that_is_pulled_out_is_gone() {
        goes("a", Io::Passthrough);
        goes("b", Io::Ioctl);
    }

    /// The kernel waits for the queue's `io_timeout` (made short for this), asks the controller to
    /// abort, waits again, and resets it, which ends the command.
    #[test]
    fn a_controller_that_hangs_is_told_and_works_again() {
        for io in [Io::Ioctl, Io::Passthrough] {
            let port = port("PENSTOCK_TEST_NVME_HUNG", io);
            let mut bytes = AlignedBuffer::new(4096, 4096);
            port.read(0, &mut bytes).expect("it is well");
            ask("hang", "hung");
            let mut outcome = Ok(());
            while outcome.is_ok() {
                outcome = port.read(0, &mut bytes);
            }
            let error = outcome.expect_err("the loop ended so");
            assert_eq!(error.kind(), Kind::Unavailable, "{error}");
            assert!(error.to_string().contains("NVMe status"), "{error}");
            assert!(error.hint().is_some_and(|hint| hint.contains("dmesg")), "{error}");
            ask("free", "hung");
            // What is under way of the reset may end a command more.
            let mut failed = 0;
            while let Err(error) = port.read(0, &mut bytes) {
                failed += 1;
                assert!(failed < 5, "{error}");
            }
        }
    }
}

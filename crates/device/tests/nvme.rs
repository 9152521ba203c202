//! The exam on a real or emulated NVMe namespace, whose first blocks it overwrites. The variable
//! PENSTOCK_TEST_NVME names its `/dev/ngXnY`; run it with `--test-threads=1`.

#[macro_use]
#[path = "conformance/exam.rs"]
mod exam;
#[path = "conformance/cases.rs"]
mod cases;
#[path = "conformance/subject.rs"]
mod subject;

use penstock_device::{Io, OpenOptions, open};
use std::path::Path;
use subject::Subject;

fn subject(io: Io) -> Subject {
    let path = std::env::var("PENSTOCK_TEST_NVME").expect("PENSTOCK_TEST_NVME names the device");
    Subject::head(open(Path::new(&path), &OpenOptions::new(io)).expect("it opens"))
}

exam!(ioctl, || subject(Io::Ioctl));
exam!(passthrough, || subject(Io::Passthrough));

#[test]
fn a_second_opener_and_a_mount_are_kept_out() {
    let path = std::env::var("PENSTOCK_TEST_NVME").expect("PENSTOCK_TEST_NVME names the device");
    let _first = subject(Io::Passthrough);
    for io in [Io::Passthrough, Io::Ioctl] {
        let second = open(Path::new(&path), &OpenOptions::new(io));
        let error = second.err().expect("the first has it");
        assert_eq!(error.kind(), penstock_base::Kind::Conflict, "{error}");
    }
}

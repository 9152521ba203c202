//! The exam that every device passes, by every discipline of queues.
//!
//! A case asks for what `penstock_device::device` promises and nothing more. A new device takes the
//! exam by one line of `exam!`.

#[macro_use]
mod exam;
mod cases;
mod files;
mod loops;
mod made;
mod readonly;
mod subject;

use penstock_device::{Io, OpenOptions, Wait};
use subject::Subject;

fn polled() -> OpenOptions {
    OpenOptions { wait: Wait::Poll, ..OpenOptions::new(Io::Uring) }
}

exam!(memory_4096, || Subject::memory(4096, 16));
exam!(memory_512_single_block_commands, || Subject::memory(512, 1));
exam!(file, || Subject::file(Io::File, 4096, 8));
exam!(file_512, || Subject::file(Io::File, 512, 256));
exam!(direct, || Subject::file(Io::Direct, 4096, 8));
exam!(uring, || Subject::file(Io::Uring, 4096, 8));
exam!(uring_single_block_commands, || Subject::file(Io::Uring, 4096, 1));
exam!(uring_polled, || Subject::file_by(polled(), 4096, 8));
exam!(uring_polled_512, || Subject::file_by(polled(), 512, 256));
exam!(
    direct_on_loop_512,
    || Subject::on_loop(512, 256, OpenOptions::new(Io::Direct)),
    if loops::are_there
);
exam!(
    uring_on_loop,
    || Subject::on_loop(4096, 8, OpenOptions::new(Io::Uring)),
    if loops::are_there
);
exam!(
    uring_on_loop_512,
    || Subject::on_loop(512, 256, OpenOptions::new(Io::Uring)),
    if loops::are_there
);

exam!(
    uring_polled_on_loop,
    || Subject::on_loop(4096, 8, polled()),
    if loops::are_there
);

#[test]
fn a_part_of_a_device_passes_as_well() {
    cases::random_commands_agree_with_a_model(&|| Subject::head(Subject::memory(512, 4).device));
}

//! The exam that every device passes, by every discipline of queues.
//!
//! A case asks for what `penstock_device::device` promises and nothing more. A new device takes the
//! exam by one line of `exam!`.

mod cases;
mod files;
mod subject;

use penstock_device::Io;
use subject::Subject;

/// One test of each case for one kind of device; each case goes through all disciplines.
macro_rules! exam {
    ($device:ident, $make:expr) => {
        exam!($device, $make, [
            fresh_blocks_read_as_zeros, random_commands_agree_with_a_model,
            memory_at_any_address_will_do, a_batch_may_be_longer_than_the_queue,
            threads_do_not_disturb_each_other, one_queue_after_another_sees_the_same_bytes,
            wrong_ranges_are_refused_before_anything_is_done, empty_commands_are_nothing,
            names_and_numbers_are_right,
        ]);
    };
    ($device:ident, $make:expr, [$($case:ident),* $(,)?]) => {
        mod $device {
            use super::*;
            $(#[test]
            fn $case() {
                cases::$case(&$make);
            })*
        }
    };
}

exam!(memory_4096, || Subject::memory(4096, 16));
exam!(memory_512_single_block_commands, || Subject::memory(512, 1));
exam!(file, || Subject::file(Io::File, 4096, 8));
exam!(file_512, || Subject::file(Io::File, 512, 256));
exam!(direct, || Subject::file(Io::Direct, 4096, 8));
exam!(uring, || Subject::file(Io::Uring, 4096, 8));
exam!(uring_single_block_commands, || Subject::file(Io::Uring, 4096, 1));

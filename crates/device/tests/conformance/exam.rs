//! The list of cases.

/// One test of each case for one kind of device; each case goes through all disciplines. With `if`
/// only where there are such devices: the condition gets the name of the exam, to say it where
/// there are none.
macro_rules! exam {
    ($device:ident, $make:expr) => {
        exam!($device, $make, if |_: &str| true);
    };
    ($device:ident, $make:expr, if $are_there:expr) => {
        exam!($device, $make, $are_there, [
            fresh_blocks_read_as_zeros, random_commands_agree_with_a_model,
            memory_at_any_address_will_do, a_batch_may_be_longer_than_the_queue,
            threads_do_not_disturb_each_other, one_queue_after_another_sees_the_same_bytes,
            wrong_ranges_are_refused_before_anything_is_done, empty_commands_are_nothing,
            names_and_numbers_are_right,
        ]);
    };
    ($device:ident, $make:expr, $are_there:expr, [$($case:ident),* $(,)?]) => {
        mod $device {
            use super::*;
            $(#[test]
            fn $case() {
                if ($are_there)(concat!(stringify!($device), "::", stringify!($case))) {
                    cases::$case(&$make);
                }
            })*
        }
    };
}

//! Children of a fork, for tests.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seconds until a child that waits for what never comes is ended.
const ALARM_S: u32 = 30;

/// A child; to be waited for.
#[must_use]
pub(crate) struct Child(libc::pid_t);

/// Does a job in a child of a fork only, which ends at once after it.
pub(crate) fn fork(job: impl FnOnce()) -> Child {
    // SAFETY: the child touches nothing but what the job does, and its allocator is made ready for
    // that by the C library; it leaves without running what the parent has yet to run.
    unsafe {
        match libc::fork() {
            0 => {
                libc::alarm(ALARM_S);
                let outcome = catch_unwind(AssertUnwindSafe(job));
                libc::_exit(i32::from(outcome.is_err()));
            }
            child => {
                assert!(child > 0, "{}", std::io::Error::last_os_error());
                Child(child)
            }
        }
    }
}

impl Child {
    /// Waits for its end; whether the job returned.
    pub(crate) fn ends_well(self) -> bool {
        let mut status = -1;
        // SAFETY: the child is this process's own, and the number lives until the call returns.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        waited == self.0 && status == 0
    }
}

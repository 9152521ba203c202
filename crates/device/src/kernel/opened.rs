//! Opening a ring. It decides of which kind it is, and what to tell where there is none.

use crate::device::Ownership;
use crate::errno::explain_io;
use crate::kernel::dialect::{Dialect, Ring};
use crate::wait::Wait;
use penstock_base::{Error, Kind};
use rustix::io::Errno;

pub(super) fn open_ring<D: Dialect>(
    depth: u32,
    ownership: Ownership,
    wait: Wait,
) -> std::io::Result<Ring<D>> {
    if ownership == Ownership::Thread {
        // Since Linux 6.1: completions cost no interrupt of the thread, and no lock.
        let mut builder = Ring::<D>::builder();
        builder.setup_single_issuer().setup_defer_taskrun();
        if wait == Wait::Poll {
            // The kernel says when there is something to take: who looks need not ask it.
            builder.setup_taskrun_flag();
        }
        match builder.build(depth) {
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {}
            other => return other,
        }
    }
    Ring::<D>::builder().build(depth)
}

pub(super) fn no_ring(error: &std::io::Error, object: &str) -> Error {
    let number = error.raw_os_error();
    if [Errno::NOSYS, Errno::PERM].iter().any(|errno| number == Some(errno.raw_os_error())) {
        return Error::new(Kind::Unsupported, "the kernel does not let this process use io_uring")
            .with_operation("device open")
            .with_object(object)
            .with_hint(
                "Choose io=direct, or allow it: the sysctl kernel.io_uring_disabled and, in a \
                 container, its seccomp profile can forbid it",
            );
    }
    explain_io(error, "device open", object)
}

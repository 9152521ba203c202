//! Opening a ring. It decides of which kind it is, and what to tell where there is none.

use crate::device::Ownership;
use crate::errno::explain_io;
use crate::kernel::dialect::{Dialect, Ring};
use crate::wait::Wait;
use penstock_base::{Error, Kind, Result};
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

/// Whether this process may have rings, asked by a call that the kernel refuses for want of an
/// address once it has allowed it: to open a ring only to close it again takes 0.1 ms.
///
/// # Errors
/// `Unsupported` where it may not.
pub(super) fn check_rings(object: &str) -> Result<()> {
    let nowhere = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the kernel reads what it is told from there before it does anything, and cannot.
    let descriptor = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1_u32, nowhere) };
    debug_assert!(descriptor < 0, "nothing was asked for");
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() == Some(Errno::FAULT.raw_os_error()) {
        true => Ok(()),
        false => Err(no_ring(&error, object)),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Io, IoChoice, OpenOptions, open_by};
    use penstock_testkit::scratch::Scratch;

    /// Has the kernel refuse rings to this thread from now on, as containers do.
    fn forbid_rings() {
        let (load, if_equal, give) = (
            (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16,
            (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            (libc::BPF_RET | libc::BPF_K) as u16,
        );
        let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
        let mut steps = [
            // The number of the call is what stands first.
            step(load, 0, 0, 0),
            step(if_equal, 0, 1, libc::SYS_io_uring_setup as u32),
            step(give, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            step(give, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
        // SAFETY: the kernel copies the program, which outlives the calls; only this thread may do
        // less then.
        let outcome = unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
        };
        assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
    }

    #[test]
    fn where_rings_are_forbidden_that_is_told_and_what_is_chosen_does_without() {
        let scratch = Scratch::new("forbidden");
        let path = scratch.path().join("disk");
        let options = OpenOptions { create_bytes: Some(1 << 20), ..OpenOptions::new(Io::Uring) };
        assert_eq!(open_by(&path, IoChoice::Auto, &options).expect("opens").0, Io::Uring);
        let forbidden = std::thread::spawn(move || {
            forbid_rings();
            let asked = open_by(&path, IoChoice::By(Io::Uring), &options);
            let error = asked.map(|_| ()).expect_err("there are none");
            assert_eq!(error.kind(), Kind::Unsupported, "{error}");
            assert!(error.hint().is_some_and(|hint| hint.contains("io=direct")), "{error}");
            assert_eq!(open_by(&path, IoChoice::Auto, &options).expect("opens").0, Io::Direct);
        });
        forbidden.join().expect("no panic");
    }
}

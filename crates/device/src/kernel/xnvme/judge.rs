//! What the status of a completion says, as libxnvme's backends fill it in (0.7.5). Pure.
//!
//! A status has a type and a code. On files and block devices there is no NVMe, so whatever a
//! backend tells is an error number of the kernel. On namespaces `io_uring_cmd` keeps the device's
//! statuses and the kernel's numbers apart by the type; `emu` and `thrpool`, which carry commands
//! out by ioctl, give the number as if it were a status of the first type.

use rustix::io::Errno;

/// The type of a status by which backends tell the kernel's error number.
const VENDOR: u16 = 7;

/// What fills a status in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Teller {
    /// A file or block device.
    Plain,
    /// A namespace, by a backend that tells the device's statuses from the kernel's numbers.
    Apart,
    /// A namespace, by one that does not.
    Alike,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It went well, as far as the status says.
    Good,
    /// The kernel gave this error number.
    Errno(Errno),
    /// The device answered this.
    Status(u32),
    /// One of both, the status having the same number.
    Either(Errno, u32),
}

/// What the kernel gives where a command does not reach the device, or was cancelled; the other
/// numbers are statuses.
const OF_COMMANDS: [Errno; 14] = [
    Errno::PERM,
    Errno::INTR,
    Errno::IO,
    Errno::NXIO,
    Errno::AGAIN,
    Errno::NOMEM,
    Errno::ACCESS,
    Errno::FAULT,
    Errno::BUSY,
    Errno::NODEV,
    Errno::INVAL,
    Errno::NOSYS,
    Errno::OPNOTSUPP,
    Errno::TIMEDOUT,
];

/// The end that a completion's status word tells.
pub(super) fn judge(status: u16, teller: Teller) -> End {
    let (code, kind) = (status >> 1 & 0xff, status >> 9 & 7);
    if (code, kind) == (0, 0) {
        return End::Good;
    }
    let whole = u32::from(status >> 1);
    match (kind, teller) {
        (VENDOR, _) | (0, Teller::Plain) => End::Errno(number(code)),
        (0, Teller::Alike) if OF_COMMANDS.contains(&number(code)) => {
            End::Either(number(code), whole)
        }
        _ => End::Status(whole),
    }
}

/// Backends put the number there, or what a byte holds of it below zero.
fn number(code: u16) -> Errno {
    Errno::from_raw_os_error(match i32::from(code) {
        0 => Errno::IO.raw_os_error(),
        code @ 1..134 => code,
        code => 256 - code,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(kind: u16, code: i32) -> u16 {
        // The phase bit below them means nothing.
        kind << 9 | (code as u16 & 0xff) << 1 | 1
    }

    #[test]
    fn on_a_file_every_number_is_the_kernels() {
        for errno in [Errno::NOSPC, Errno::IO, Errno::NODEV, Errno::OPNOTSUPP] {
            for code in [errno.raw_os_error(), -errno.raw_os_error()] {
                for kind in [0, VENDOR] {
                    let end = judge(word(kind, code), Teller::Plain);
                    assert_eq!(end, End::Errno(errno), "{kind} {code}");
                }
            }
        }
        assert_eq!(judge(word(0, 0), Teller::Plain), End::Good);
        assert_eq!(judge(word(VENDOR, 0), Teller::Plain), End::Errno(Errno::IO));
    }

    #[test]
    fn on_a_namespace_a_status_is_told_from_a_number_where_the_backend_does() {
        let (number, status) = (word(VENDOR, -19), word(0, 0x13));
        for teller in [Teller::Apart, Teller::Alike] {
            assert_eq!(judge(number, teller), End::Errno(Errno::NODEV));
            assert_eq!(judge(word(2, 0x81), teller), End::Status(0x281), "a media error");
            assert_eq!(judge(word(0, 0x81), teller), End::Status(0x081), "no number of the kernel");
            assert_eq!(judge(word(0, 0), teller), End::Good);
        }
        assert_eq!(judge(status, Teller::Apart), End::Status(0x013));
        assert_eq!(judge(status, Teller::Alike), End::Either(Errno::NODEV, 0x013));
        let none = judge(word(0, -38), Teller::Alike);
        assert_eq!(none, End::Either(Errno::NOSYS, 0x0da), "of a backend without such a part");
    }
}

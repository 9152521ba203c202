//! What an error number of the kernel means for a device. Pure.

use crate::address::NO_DIRECTORIES;
use penstock_base::{Error, Kind};
use rustix::io::Errno;

/// Kind, reason and cure of an error number; the number's own text follows as the cause.
fn judge(errno: Errno) -> (Kind, &'static str, &'static str) {
    match errno {
        Errno::NOENT => (
            Kind::NotFound,
            "there is no such device or file",
            "Look at what there is: `lsblk`, `ls /dev/ng*`. `penstock nvme format PATH --size 10GiB` \
             makes a volume in a file",
        ),
        Errno::NOTDIR => {
            (Kind::NotFound, "its path goes on behind a file or device", NO_DIRECTORIES)
        }
        Errno::ACCESS | Errno::PERM => (
            Kind::Denied,
            "the kernel refused access",
            "Give the user rights to the device, for example by its group",
        ),
        Errno::ROFS => (
            Kind::Denied,
            "the device is read-only",
            "Attach it with (READ_ONLY), or let it be written to: blockdev --setrw, where it is a \
             file mount -o remount,rw",
        ),
        Errno::BUSY => (
            Kind::Conflict,
            "the device is in use: mounted, swap, part of another device, or claimed by a process",
            "Unmount it, close it there, or name another one",
        ),
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => (
            Kind::Exhausted,
            "the device is full",
            "Free space where the file or the thin volume lies",
        ),
        Errno::NOMEM | Errno::MFILE | Errno::NFILE => (
            Kind::Exhausted,
            "the kernel is out of memory or descriptors",
            "Raise the limits (ulimit -n, ulimit -l), or use fewer threads or queues=single",
        ),
        Errno::NODEV | Errno::NXIO => (
            Kind::Unavailable,
            "the device is gone",
            "Check the cabling and the kernel's log, then open it anew",
        ),
        // The block layer's names for what NVMe calls media errors and guard check errors.
        Errno::NODATA | Errno::ILSEQ => {
            (Kind::Corrupt, "the medium lost what these blocks held", "Replace the device")
        }
        // And its name for what NVMe and SCSI call a reservation conflict.
        Errno::BADE => (
            Kind::Conflict,
            "another host has reserved the device",
            "See `nvme resv-report` or `sg_persist`, and have it released there",
        ),
        Errno::IO | Errno::REMOTEIO | Errno::TIMEDOUT | Errno::NOLINK => {
            (Kind::Unavailable, "the device failed", "See the kernel's log (dmesg)")
        }
        Errno::INVAL => (
            Kind::Invalid,
            "the kernel refused the request: address, length or memory is misaligned, or direct \
             I/O is not known there",
            "Compare the block size with the device's, or choose io=file",
        ),
        Errno::OPNOTSUPP | Errno::NOSYS => (
            Kind::Unsupported,
            "the kernel or the device cannot do that",
            "Choose another io, such as io=direct or io=file",
        ),
        _ => (Kind::Unavailable, "the kernel failed", "See the kernel's log (dmesg)"),
    }
}

/// The error of a failed call. `object` is the device.
pub(crate) fn explain(errno: Errno, operation: &'static str, object: &str) -> Error {
    let (_, _, hint) = judge(errno);
    explain_hinted(errno, operation, object, hint)
}

/// The same where something better than usual is known to do.
pub(crate) fn explain_hinted(
    errno: Errno,
    operation: &'static str,
    object: &str,
    hint: &'static str,
) -> Error {
    let (kind, why, _) = judge(errno);
    let cause = std::io::Error::from_raw_os_error(errno.raw_os_error());
    let error = Error::new(kind, why).with_operation(operation).with_object(object);
    error.with_source(cause).with_hint(hint)
}

/// The error of a write to what was made read-only while it was open: the kernel's number is that
/// of missing rights.
pub(crate) fn turned_read_only(operation: &'static str, object: &str, hint: &'static str) -> Error {
    let cause = std::io::Error::from_raw_os_error(Errno::PERM.raw_os_error());
    let error = Error::new(Kind::Denied, "the device was made read-only while it was open");
    error.with_operation(operation).with_object(object).with_source(cause).with_hint(hint)
}

/// The same for an error of the standard library.
pub(crate) fn explain_io(error: &std::io::Error, operation: &'static str, object: &str) -> Error {
    match error.raw_os_error() {
        Some(number) => explain(Errno::from_raw_os_error(number), operation, object),
        None => Error::new(Kind::Unavailable, error.to_string())
            .with_operation(operation)
            .with_object(object),
    }
}

/// The error of a read or write that the device ended before its end.
pub(crate) fn ended_early(operation: &'static str, object: &str, offset: u64) -> Error {
    // Nothing is damaged for certain: what lay behind may be there again.
    Error::new(
        Kind::Conflict,
        format!("the device ends at byte {offset}, in the middle of a command"),
    )
    .with_operation(operation)
    .with_object(object)
    .with_hint("It shrank while it was open; open it anew and check the volume")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_of_a_device_has_its_kind() {
        let kinds = [
            (Errno::NOSPC, Kind::Exhausted),
            (Errno::ROFS, Kind::Denied),
            (Errno::NODEV, Kind::Unavailable),
            (Errno::IO, Kind::Unavailable),
            (Errno::NODATA, Kind::Corrupt),
            (Errno::ILSEQ, Kind::Corrupt),
            (Errno::BADE, Kind::Conflict),
            (Errno::TIMEDOUT, Kind::Unavailable),
            (Errno::BUSY, Kind::Conflict),
            (Errno::INVAL, Kind::Invalid),
            (Errno::NOENT, Kind::NotFound),
            (Errno::NOTDIR, Kind::NotFound),
        ];
        for (errno, kind) in kinds {
            let error = explain(errno, "device write", "/dev/x");
            assert_eq!(error.kind(), kind, "{error}");
            let text = error.to_string();
            assert!(text.starts_with("device write /dev/x: "), "{text}");
            assert!(text.contains("os error"), "{text}");
            assert!(error.hint().is_some(), "{error}");
        }
    }
}

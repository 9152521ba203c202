//! Names and kinds of the status codes that commands end with. Pure; the codes are those of the NVM
//! Express base, NVM and zoned command set specifications for what we send: reads, writes, flushes,
//! deallocations and Identify.

use crate::errno::explain;
use penstock_base::{Error, Kind};
use rustix::io::Errno;

/// Type and code, name, kind.
const STATUSES: &[(u16, &str, Kind)] = &[
    (0x001, "Invalid Command Opcode", Kind::Unsupported),
    (0x002, "Invalid Field in Command", Kind::Invalid),
    (0x003, "Command ID Conflict", Kind::Invalid),
    (0x004, "Data Transfer Error", Kind::Unavailable),
    (0x005, "Commands Aborted due to Power Loss Notification", Kind::Unavailable),
    (0x006, "Internal Error", Kind::Unavailable),
    (0x007, "Command Abort Requested", Kind::Unavailable),
    (0x008, "Command Aborted due to SQ Deletion", Kind::Unavailable),
    (0x009, "Command Aborted due to Failed Fused Command", Kind::Unavailable),
    (0x00a, "Command Aborted due to Missing Fused Command", Kind::Unavailable),
    (0x00b, "Invalid Namespace or Format", Kind::Invalid),
    (0x00c, "Command Sequence Error", Kind::Invalid),
    (0x00d, "Invalid SGL Segment Descriptor", Kind::Invalid),
    (0x00e, "Invalid Number of SGL Descriptors", Kind::Invalid),
    (0x00f, "Data SGL Length Invalid", Kind::Invalid),
    (0x010, "Metadata SGL Length Invalid", Kind::Invalid),
    (0x011, "SGL Descriptor Type Invalid", Kind::Invalid),
    (0x012, "Invalid Use of Controller Memory Buffer", Kind::Invalid),
    (0x013, "PRP Offset Invalid", Kind::Invalid),
    (0x014, "Atomic Write Unit Exceeded", Kind::Invalid),
    (0x015, "Operation Denied", Kind::Denied),
    (0x016, "SGL Offset Invalid", Kind::Invalid),
    (0x018, "Host Identifier Inconsistent Format", Kind::Invalid),
    (0x019, "Keep Alive Timer Expired", Kind::Unavailable),
    (0x01a, "Keep Alive Timeout Invalid", Kind::Invalid),
    (0x01b, "Command Aborted due to Preempt and Abort", Kind::Conflict),
    (0x01c, "Sanitize Failed", Kind::Unavailable),
    (0x01d, "Sanitize In Progress", Kind::Unavailable),
    (0x01e, "SGL Data Block Granularity Invalid", Kind::Invalid),
    (0x01f, "Command Not Supported for Queue in CMB", Kind::Unsupported),
    (0x020, "Namespace is Write Protected", Kind::Denied),
    (0x021, "Command Interrupted", Kind::Unavailable),
    (0x022, "Transient Transport Error", Kind::Unavailable),
    (0x023, "Command Prohibited by Command and Feature Lockdown", Kind::Denied),
    (0x024, "Admin Command Media Not Ready", Kind::Unavailable),
    (0x080, "LBA Out of Range", Kind::Invalid),
    (0x081, "Capacity Exceeded", Kind::Exhausted),
    (0x082, "Namespace Not Ready", Kind::Unavailable),
    (0x083, "Reservation Conflict", Kind::Conflict),
    (0x084, "Format In Progress", Kind::Unavailable),
    (0x180, "Conflicting Attributes", Kind::Invalid),
    (0x181, "Invalid Protection Information", Kind::Invalid),
    (0x182, "Attempted Write to Read Only Range", Kind::Denied),
    (0x183, "Command Size Limit Exceeded", Kind::Invalid),
    (0x1b8, "Zoned Boundary Error", Kind::Unsupported),
    (0x1b9, "Zone Is Full", Kind::Unsupported),
    (0x1ba, "Zone Is Read Only", Kind::Unsupported),
    (0x1bb, "Zone Is Offline", Kind::Unsupported),
    (0x1bc, "Zone Invalid Write", Kind::Unsupported),
    (0x1bd, "Too Many Active Zones", Kind::Unsupported),
    (0x1be, "Too Many Open Zones", Kind::Unsupported),
    (0x280, "Write Fault", Kind::Unavailable),
    (0x281, "Unrecovered Read Error", Kind::Corrupt),
    (0x282, "End-to-end Guard Check Error", Kind::Corrupt),
    (0x283, "End-to-end Application Tag Check Error", Kind::Corrupt),
    (0x284, "End-to-end Reference Tag Check Error", Kind::Corrupt),
    (0x285, "Compare Failure", Kind::Conflict),
    (0x286, "Access Denied", Kind::Denied),
    (0x287, "Deallocated or Unwritten Logical Block", Kind::Corrupt),
    (0x288, "End-to-End Storage Tag Check Error", Kind::Corrupt),
    (0x300, "Internal Path Error", Kind::Unavailable),
    (0x301, "Asymmetric Access Persistent Loss", Kind::Unavailable),
    (0x302, "Asymmetric Access Inaccessible", Kind::Unavailable),
    (0x303, "Asymmetric Access Transition", Kind::Unavailable),
    (0x360, "Controller Pathing Error", Kind::Unavailable),
    (0x370, "Host Pathing Error", Kind::Unavailable),
    (0x371, "Command Aborted By Host", Kind::Unavailable),
];

/// A command that was cancelled.
const ABORTED_BY_HOST: u32 = 0x371;

/// What one can do about a status; `None` where only the logs tell more.
fn cure(code: u16) -> Option<&'static str> {
    match code {
        0x01c | 0x01d => Some("See `nvme sanitize-log`: its contents are being erased, or were"),
        0x015 | 0x020 | 0x182 => Some(
            "It is protected: `nvme get-feature -f 0x84`. Let it be written to, or attach it with \
             (READ_ONLY)",
        ),
        0x01b | 0x083 => {
            Some("Another host has reserved it: `nvme resv-report`; have it released there")
        }
        0x082 | 0x084 | 0x303 => Some("Wait until the device is ready, then open it anew"),
        0x081 => {
            Some("Free space behind the namespace: its controller has promised more than it has")
        }
        0x1b8..=0x1be => Some("A zoned namespace holds no volume: take a conventional one"),
        0x281..=0x284 | 0x287 | 0x288 => {
            Some("Restore what these blocks held from a backup, and replace the device")
        }
        _ => None,
    }
}

/// What a status of no known name is about: its type tells.
fn unknown(code: u16) -> &'static str {
    match code >> 8 {
        0 => "a status without a name",
        1 => "a status of this command without a name",
        2 => "an error of the medium without a name",
        3 => "an error of the path without a name",
        7 => "a status of the vendor's own",
        _ => "a status of a reserved type",
    }
}

/// The error of a command to which the kernel gave an error number in place of a status. One that
/// it cancelled, for a timeout or because the controller was reset, it calls interrupted, which
/// asks nobody to give it again.
pub(crate) fn command_error(errno: Errno, operation: &'static str, object: &str) -> Error {
    match errno {
        Errno::INTR => status_error(ABORTED_BY_HOST, operation, object),
        errno => explain(errno, operation, object),
    }
}

/// The error of a status that a command ended with; it is not 0.
pub(crate) fn status_error(status: u32, operation: &'static str, object: &str) -> Error {
    // Three bits of type and eight of code; above them: more information, do not retry.
    let code = (status & 0x7ff) as u16;
    let known = STATUSES.binary_search_by_key(&code, |row| row.0).ok().map(|at| STATUSES[at]);
    let (_, name, kind) = known.unwrap_or((code, unknown(code), Kind::Unavailable));
    Error::new(kind, format!("the device answered {name} (NVMe status {code:#05x})"))
        .with_operation(operation)
        .with_object(object)
        .with_hint(cure(code).unwrap_or("See `nvme error-log` and the kernel's log (dmesg)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(status: u32) -> Error {
        status_error(status, "device read", "/dev/ng0n1")
    }

    #[test]
    fn a_status_has_its_name() {
        let error = told(0x4080);
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains("LBA Out of Range"), "{error}");
        assert_eq!(told(0x281).kind(), Kind::Corrupt);
        let reserved = told(0x83);
        assert_eq!(reserved.kind(), Kind::Conflict, "{reserved}");
        assert!(reserved.hint().is_some_and(|hint| hint.contains("resv-report")), "{reserved}");
        assert!(told(0x371).hint().is_some_and(|hint| hint.contains("dmesg")));
        assert!(STATUSES.windows(2).all(|pair| pair[0].0 < pair[1].0), "they are searched");
    }

    /// The specifications' codes without those that are reserved, and of those for commands that
    /// we send.
    #[test]
    fn every_status_of_what_is_sent_has_a_name() {
        let generic = (0x01..=0x24).filter(|code| *code != 0x17).chain(0x80..=0x84);
        let command = (0x180..=0x183).chain(0x1b8..=0x1be);
        let others = (0x280..=0x288).chain(0x300..=0x303).chain([0x360, 0x370, 0x371]);
        let mut count = 0;
        for code in generic.chain(command).chain(others) {
            let error = told(code);
            assert!(!error.to_string().contains("without a name"), "{error}");
            assert!(error.to_string().contains(&format!("(NVMe status {code:#05x})")), "{error}");
            count += 1;
        }
        assert_eq!(count, STATUSES.len());
    }

    #[test]
    fn a_status_without_a_name_is_told_by_its_type_and_number() {
        for (status, type_) in [
            (0x7c1, "the vendor's own"),
            (0x4017, "a status without"),
            (0x170, "of this command"),
            (0x2c0, "of the medium"),
            (0x3c0, "of the path"),
            (0x4ff, "a reserved type"),
        ] {
            let error = told(status);
            let code = format!("{:#05x}", status & 0x7ff);
            assert!(error.to_string().contains(type_), "{error}");
            assert!(error.to_string().contains(&code), "{error}");
            assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        }
    }
}

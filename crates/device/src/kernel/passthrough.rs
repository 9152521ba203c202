//! NVMe commands through io_uring (`IORING_OP_URING_CMD` on `/dev/ngXnY`): no block layer between.
//! It decides the form of the entries.

use crate::device::{Command, Device, Geometry, Ownership, Queue};
use crate::kernel::dialect::{Dialect, Direction, FILE, Moved, Transfer};
use crate::kernel::ioctl::{NvmeFile, run};
use crate::kernel::ring::RingQueue;
use crate::nvme::{PASSTHROUGH_BYTES, Passthrough, command_error, status_error};
use crate::open::OpenFile;
use io_uring::{cqueue, opcode, squeue};
use penstock_base::Result;
use rustix::io::Errno;
use std::sync::Arc;

/// `_IOWR('N', 0x80, struct nvme_uring_cmd)` of `linux/nvme_ioctl.h`.
const URING_IO: u32 = 3 << 30 | (PASSTHROUGH_BYTES as u32) << 16 | 0x4e80;

/// A namespace by passthrough.
pub struct PassthroughDevice(Arc<NvmeFile>);

impl PassthroughDevice {
    /// # Errors
    /// `Unsupported` where the kernel has no io_uring or does not let this process use it.
    pub(crate) fn new(file: NvmeFile) -> Result<Self> {
        let device = PassthroughDevice(Arc::new(file));
        device.open_queue(Ownership::Shared)?;
        Ok(device)
    }
}

impl Device for PassthroughDevice {
    fn name(&self) -> &str {
        &self.0.file.name
    }

    fn geometry(&self) -> &Geometry {
        &self.0.file.geometry
    }

    fn open_queue(&self, ownership: Ownership) -> Result<Box<dyn Queue>> {
        Ok(Box::new(RingQueue::open(Nvme(self.0.clone()), ownership)?))
    }
}

struct Nvme(Arc<NvmeFile>);

impl Dialect for Nvme {
    // NVMe commands need the large entries, and results the large completions.
    type Entry = squeue::Entry128;
    type Completion = cqueue::Entry32;
    /// There is an ioctl, but whether it costs less than the ring was measured on no controller
    /// that is not emulated.
    const CALLS: bool = false;

    fn file(&self) -> &OpenFile {
        &self.0.file
    }

    fn entry(&self, transfer: &Transfer, user_data: u64) -> squeue::Entry128 {
        let NvmeFile { file, namespace } = &*self.0;
        let size = file.geometry.block_size_bytes;
        let block = transfer.block + transfer.done as u64 / u64::from(size);
        let address = transfer.address.expose_provenance() as u64;
        let order = match transfer.direction {
            Direction::Read => Passthrough::read(*namespace, block, address, transfer.length, size),
            Direction::Write => {
                Passthrough::write(*namespace, block, address, transfer.length, size)
            }
            Direction::Flush => Passthrough::flush(*namespace),
        };
        opcode::UringCmd80::new(FILE, URING_IO)
            .cmd(order.to_entry())
            .buf_index(transfer.slot)
            .build()
            .user_data(user_data)
    }

    fn call(&self, _: &Transfer) -> i32 {
        unreachable!("a queue asks for calls only where there are any")
    }

    fn completion(entry: &cqueue::Entry32) -> (u64, i32) {
        (entry.user_data(), entry.result())
    }

    fn moved(&self, result: i32, length: usize, operation: &'static str) -> Result<Moved> {
        judge(result, length, operation, &self.0.file.name)
    }

    fn trim(&self, block: u64, blocks: u64) -> Result<()> {
        run(&self.0, &mut Command::Trim { block, blocks })
    }
}

/// What a completion means: 0, a status, or an error number below zero.
fn judge(result: i32, length: usize, operation: &'static str, name: &str) -> Result<Moved> {
    match u32::try_from(result) {
        Ok(0) => Ok(Moved::Bytes(length)),
        Ok(status) => Err(status_error(status, operation, name)),
        Err(_) => match Errno::from_raw_os_error(-result) {
            // The queue of the device was full: it has not begun.
            Errno::AGAIN => Ok(Moved::Again),
            errno => Err(command_error(errno, operation, name)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::Kind;

    #[test]
    fn a_command_that_was_cancelled_has_failed() {
        let of = |errno: Errno| judge(-errno.raw_os_error(), 512, "device write", "/dev/ng0n1");
        let error = of(Errno::INTR).err().expect("it is not given again");
        assert_eq!(error.kind(), Kind::Unavailable);
        assert!(error.to_string().contains("Command Aborted By Host (NVMe status 0x371)"));
        assert!(error.hint().is_some_and(|hint| hint.contains("dmesg")));
        assert!(matches!(of(Errno::AGAIN), Ok(Moved::Again)));
        assert_eq!(of(Errno::NODEV).err().map(|error| error.kind()), Some(Kind::Unavailable));
        assert!(matches!(judge(0, 512, "device write", "x"), Ok(Moved::Bytes(512))));
        assert!(judge(0x80, 512, "device write", "x").is_err());
    }
}

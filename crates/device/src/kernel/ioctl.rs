//! NVMe commands by ioctl: one after the other, each waited for in the kernel. It decides nothing
//! but how the kernel is called; the commands are made by `nvme`.

use crate::device::{Command, Device, Geometry, Ownership, Queue};
use crate::errno::explain_hinted;
use crate::meter::Meter;
use crate::nvme::{IDENTIFY_BYTES, PASSTHROUGH_BYTES, Passthrough, command_error};
use crate::nvme::{status_error, trim_range};
use crate::open::OpenFile;
use penstock_base::{Error, Kind, Result};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// `_IO('N', 0x40)`, `_IOWR('N', 0x41, ...)` and `_IOWR('N', 0x43, ...)` of `linux/nvme_ioctl.h`.
const NAMESPACE: u32 = 0x4e40;
const ADMIN: u32 = 3 << 30 | (PASSTHROUGH_BYTES as u32) << 16 | 0x4e41;
const IO: u32 = 3 << 30 | (PASSTHROUGH_BYTES as u32) << 16 | 0x4e43;

/// An open NVMe namespace.
pub(crate) struct NvmeFile {
    pub(crate) file: OpenFile,
    pub(crate) namespace: u32,
}

/// A namespace by synchronous ioctls.
pub struct IoctlDevice(Arc<NvmeFile>);

impl IoctlDevice {
    pub(crate) fn new(file: NvmeFile) -> Self {
        IoctlDevice(Arc::new(file))
    }
}

impl Device for IoctlDevice {
    fn name(&self) -> &str {
        &self.0.file.name
    }

    fn geometry(&self) -> &Geometry {
        &self.0.file.geometry
    }

    fn open_queue(&self, _: Ownership) -> Result<Box<dyn Queue>> {
        Ok(Box::new(IoctlQueue(self.0.clone())))
    }
}

struct IoctlQueue(Arc<NvmeFile>);

impl Queue for IoctlQueue {
    fn run(&mut self, commands: &mut [Command<'_>], meter: &Meter) -> Result<()> {
        meter.one_by_one(commands, |command| run(&self.0, command))
    }
}

/// Carries out one command and waits for it.
pub(crate) fn run(device: &NvmeFile, command: &mut Command<'_>) -> Result<()> {
    let NvmeFile { file, namespace } = device;
    let size = file.geometry.block_size_bytes;
    let name = command.name();
    let range;
    let order = match command {
        Command::Read { block, into } => {
            let (address, length) = (into.as_mut_ptr().expose_provenance(), into.len());
            Passthrough::read(*namespace, *block, address as u64, length as u32, size)
        }
        Command::Write { block, from } => {
            let (address, length) = (from.as_ptr().expose_provenance(), from.len());
            Passthrough::write(*namespace, *block, address as u64, length as u32, size)
        }
        Command::Flush => Passthrough::flush(*namespace),
        Command::Trim { block, blocks } => {
            let Some(bytes) = trim_range(*block, *blocks) else {
                return Err(Error::new(Kind::Unsupported, "one trim has 2^32 blocks at most")
                    .with_operation(name)
                    .with_object(&file.name)
                    .with_hint("Trim a shorter range at a time"));
            };
            range = bytes;
            Passthrough::trim(*namespace, range.as_ptr().expose_provenance() as u64)
        }
    };
    // SAFETY: the address and length are those of a slice that `command` borrows, mutably for a
    // read, or of `range`; the call returns when the device is done with it.
    unsafe { call(&file.file, IO, order, name, &file.name) }
}

/// Which namespace an open device is.
pub(crate) fn namespace(file: &File, object: &str) -> Result<u32> {
    // SAFETY: this request takes no memory.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), NAMESPACE as _) };
    u32::try_from(result).map_err(|_| {
        let hint = "io=ioctl and io=passthrough want an NVMe device such as /dev/ng0n1";
        explain_hinted(last_errno(), "device identify", object, hint)
    })
}

/// The number of the call that failed last on this thread.
fn last_errno() -> Errno {
    let number = std::io::Error::last_os_error().raw_os_error();
    Errno::from_raw_os_error(number.unwrap_or(libc::EIO))
}

/// Asks the device what it is: structure 0 for the namespace, 1 for the controller.
pub(crate) fn identify(
    file: &File,
    namespace: u32,
    structure: u32,
    object: &str,
) -> Result<Box<[u8; IDENTIFY_BYTES]>> {
    let mut bytes = Box::new([0; IDENTIFY_BYTES]);
    let address = bytes.as_mut_ptr().expose_provenance() as u64;
    // The controller's structure is asked for without a namespace.
    let of = if structure == 0 { namespace } else { 0 };
    let order = Passthrough::identify(of, structure, address);
    // SAFETY: the address is that of `bytes`, which has the length that the order says; the call
    // returns when the device is done with it.
    unsafe { call(file, ADMIN, order, "device identify", object)? };
    Ok(bytes)
}

/// Calls the kernel with one command.
///
/// # Safety
/// The address and the length of `order` are those of memory that may be read, and written where
/// the command does so, until this returns.
unsafe fn call(
    file: &File,
    request: u32,
    mut order: Passthrough,
    operation: &'static str,
    object: &str,
) -> Result<()> {
    // SAFETY: `order` is the structure that these requests take; the caller vouches for its memory.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request as _, &raw mut order) };
    match u32::try_from(result) {
        Ok(0) => Ok(()),
        Ok(status) => Err(status_error(status, operation, object)),
        Err(_) => Err(command_error(last_errno(), operation, object)),
    }
}

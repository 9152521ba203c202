//! Devices through libxnvme: reads and writes by whichever of its backends is named. It decides
//! what is ours: locks, geometry, flush and trim, which not every backend has, and what the end of
//! a command means. How commands are given and waited for, `queue` decides.

mod judge;
mod library;
mod opening;
mod queue;

use crate::backend::Backend;
use crate::device::{Command, Device, Geometry, Ownership, Queue};
use crate::errno::{ended_early, explain, explain_io};
use crate::file::trim;
use crate::holes::Written;
use crate::kernel::ioctl::{self, NvmeFile};
use crate::nvme::{command_error, status_error};
use crate::open::{OpenFile, OpenOptions, is_character_device};
use judge::{End, Teller, judge};
use library::Library;
use opening::Names;
use penstock_base::{Error, Kind, Result};
use queue::XnvmeQueue;
use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;

/// A file, block device or NVMe namespace through libxnvme.
pub struct XnvmeDevice(Arc<Handle>);

/// The file as we have it open beside the library.
enum Own {
    Plain(OpenFile),
    Namespace(NvmeFile),
}

/// What the queues share.
struct Handle {
    library: Library,
    device: *mut c_void,
    namespace: u32,
    /// A block as the library counts them.
    block_bytes: u32,
    geometry: Geometry,
    own: Own,
    /// How a completion's status is to be read.
    teller: Teller,
    /// The library may look at them as long as the device is open.
    _names: Names,
}

// SAFETY: the library's device is only read after it was opened; each of its queues is used by one
// thread at a time.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: opened by this library, and its queues are gone: they hold this handle.
        unsafe { (self.library.close)(self.device) };
    }
}

impl Own {
    fn file(&self) -> &OpenFile {
        match self {
            Own::Plain(file) | Own::Namespace(NvmeFile { file, .. }) => file,
        }
    }

    /// Which statuses come from it by one of the library's backends.
    fn teller(&self, backend: Backend) -> Teller {
        match (self, backend.part("async")) {
            (Own::Plain(_), _) => Teller::Plain,
            (Own::Namespace(_), Some("io_uring_cmd")) => Teller::Apart,
            (Own::Namespace(_), _) => Teller::Alike,
        }
    }
}

impl XnvmeDevice {
    /// Opens a device, which is locked and claimed as by every other io, with one of the library's
    /// backends.
    ///
    /// # Errors
    /// As [`crate::open()`]; `Unsupported` without a library that is known, or where it refuses the
    /// backend for this device.
    pub(crate) fn open(path: &Path, options: &OpenOptions, backend: Backend) -> Result<Self> {
        let library = Library::load(options.xnvme_library.as_deref())?;
        let own = match is_character_device(path) {
            true => Own::Namespace(crate::namespace::open(path, options, false)?),
            false => Own::Plain(OpenFile::open(path, options)?),
        };
        let name = &own.file().name;
        let fail = |message: String, hint: &str| {
            let error = Error::new(Kind::Unsupported, message).with_operation("device open");
            error.with_object(name).with_hint(hint)
        };
        let Ok(uri) = CString::new(path.as_os_str().as_bytes()) else {
            return Err(fail("its name has a zero byte".into(), "Rename it, or name a link to it"));
        };
        let opened = opening::open(&library, &uri, backend, path.is_file(), options.write);
        let (device, names) = opened.map_err(|cause| {
            let hint = "On Linux it has io_uring, io_uring_cmd (/dev/ngXnY), libaio, thrpool, emu \
                        and posix, as far as it was built with them: see `xnvme library-info`";
            let message = format!("libxnvme opens it with no backend {backend}");
            fail(message, hint).with_source(cause)
        })?;
        // SAFETY: an open device has a geometry as long as it is open.
        let (geo, namespace) = unsafe { (&*(library.geo)(device), (library.namespace)(device)) };
        let (block_bytes, most) = (geo.block_bytes, geo.transfer_max_bytes);
        let (name, geometry) = (name.clone(), own.file().geometry.clone());
        let teller = own.teller(backend);
        // From here on the device is closed when this is dropped.
        let mut handle = Handle {
            library,
            device,
            namespace,
            block_bytes,
            geometry,
            own,
            teller,
            _names: names,
        };
        let ours = handle.geometry.block_size_bytes;
        if !ours.is_multiple_of(block_bytes) {
            let message = format!("libxnvme counts blocks of {block_bytes} bytes, it has {ours}");
            return Err(Error::new(Kind::Unsupported, message)
                .with_operation("device open")
                .with_object(name)
                .with_hint("Choose another backend, or an io that is not libxnvme's"));
        }
        let most = most.min(handle.geometry.transfer_max_bytes);
        let most = most.min(block_bytes.saturating_mul(1 << 16));
        handle.geometry.transfer_max_bytes = most - most % ours;
        handle.geometry.check(&name)?;
        let device = XnvmeDevice(Arc::new(handle));
        device.open_queue(Ownership::Shared)?;
        Ok(device)
    }
}

impl Device for XnvmeDevice {
    fn name(&self) -> &str {
        &self.0.own.file().name
    }

    fn geometry(&self) -> &Geometry {
        &self.0.geometry
    }

    fn open_queue(&self, _: Ownership) -> Result<Box<dyn Queue>> {
        let mut queue = null_mut();
        let depth = self.0.own.file().queue_depth as usize;
        // Contexts of the queue: a power of two, more than are in flight.
        let capacity = (depth + 1).next_power_of_two() as u16;
        // SAFETY: the device is open, and the queue is written before it is used.
        let result =
            unsafe { (self.0.library.queue_init)(self.0.device, capacity, 0, &raw mut queue) };
        // Some of its backends fail with a number above zero, and their queue is gone then.
        if result != 0 || queue.is_null() {
            let cause = std::io::Error::from_raw_os_error(result.abs());
            let message = format!("libxnvme makes no queue for {depth} commands");
            let error = Error::new(Kind::Unsupported, message).with_operation("device open");
            return Err(error
                .with_object(self.name())
                .with_hint("Choose another backend, a smaller depth, or fewer threads")
                .with_source(cause));
        }
        Ok(Box::new(XnvmeQueue::new(queue, self.0.clone(), depth)))
    }

    fn written_from(&self, offset: u64) -> Written {
        self.0.own.file().written_from(offset)
    }
}

impl Handle {
    /// Flush and trim, past the library.
    fn own(&self, command: &mut Command<'_>) -> Result<()> {
        match (&self.own, command) {
            (Own::Namespace(file), command) => ioctl::run(file, command),
            (Own::Plain(file), Command::Trim { block, blocks }) => trim(file, *block, *blocks),
            (Own::Plain(file), _) => {
                let flushed = file.file.sync_data();
                flushed.map_err(|error| explain_io(&error, "device flush", &file.name))
            }
        }
    }

    /// What a completion means.
    fn judge(&self, command: &Command<'_>, status: u16, result: u32) -> Result<()> {
        let OpenFile { name, geometry, .. } = self.own.file();
        let operation = command.name();
        let block = match command {
            Command::Read { block, .. } | Command::Write { block, .. } => *block,
            Command::Flush | Command::Trim { .. } => 0,
        };
        let start = block * u64::from(geometry.block_size_bytes);
        let is_plain = matches!(self.own, Own::Plain(_));
        match judge(status, self.teller) {
            End::Good if is_plain && u64::from(result) < command.length_bytes() => {
                Err(ended_early(operation, name, start + u64::from(result)))
            }
            End::Good => Ok(()),
            End::Errno(errno) if is_plain => {
                // Threads of a backend that find a file shorter tell the number of whatever failed
                // in them before.
                let is_read = matches!(command, Command::Read { .. });
                let end = self.own.file().end_of_file().filter(|_| is_read);
                Err(match end.filter(|end| *end < start + command.length_bytes()) {
                    Some(end) => ended_early(operation, name, end),
                    None => explain(errno, operation, name),
                })
            }
            End::Errno(errno) => Err(command_error(errno, operation, name)),
            End::Status(status) => Err(status_error(status, operation, name)),
            End::Either(errno, status) => {
                let other = status_error(status, operation, name);
                Err(command_error(errno, operation, name).with_note(format!(
                    "or {}: this backend tells both by one number, xnvme:io_uring_cmd does not",
                    other.message()
                )))
            }
        }
    }
}

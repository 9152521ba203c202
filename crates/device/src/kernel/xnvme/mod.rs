//! Devices through libxnvme: reads and writes by whichever of its backends is named. It decides how
//! commands are given and waited for. Locks, geometry, flush and trim are our own: not every
//! backend has them.
//!
//! As with the kernel's ring, [`Queue::run`] never returns while the library holds an address.

mod library;
mod opening;

use crate::backend::Backend;
use crate::buffer::{AlignedBuffer, is_aligned};
use crate::device::{Command, Device, Geometry, Ownership, Queue};
use crate::errno::{ended_early, explain, explain_io};
use crate::file::trim;
use crate::kernel::ioctl::{self, NvmeFile};
use crate::meter::Meter;
use crate::nvme::{command_error, status_error};
use crate::open::{OpenFile, OpenOptions, is_character_device};
use library::{Context, Library};
use opening::Names;
use penstock_base::{Error, Kind, Result};
use rustix::io::Errno;
use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Instant;

/// The type of a status by which backends tell the kernel's error number.
const VENDOR: u16 = 7;

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
        // From here on the device is closed when this is dropped.
        let mut handle =
            Handle { library, device, namespace, block_bytes, geometry, own, _names: names };
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
        let (flights, bounce) = (Vec::new(), Vec::new());
        let mut queue = XnvmeQueue { queue, handle: self.0.clone(), flights, bounce };
        queue.flights.resize_with(depth, Flight::default);
        Ok(Box::new(queue))
    }
}

struct XnvmeQueue {
    queue: *mut c_void,
    /// Never longer or shorter: the library keeps addresses of them.
    flights: Vec<Flight>,
    /// Aligned memory for callers whose own is not, one for each flight that needed it.
    bounce: Vec<AlignedBuffer>,
    handle: Arc<Handle>,
}

// SAFETY: the library asks that one thread at a time uses a queue, and it is used through `&mut`.
unsafe impl Send for XnvmeQueue {}

impl Drop for XnvmeQueue {
    fn drop(&mut self) {
        // SAFETY: made by this library; nothing is in flight.
        unsafe { (self.handle.library.queue_term)(self.queue) };
    }
}

/// A command with the library.
#[derive(Default)]
struct Flight {
    /// Its place among the commands, its context, and when it was given.
    given: Option<(usize, *mut Context, Instant)>,
    is_bounced: bool,
    /// Status and result; written by the callback.
    ended: Option<(u16, u32)>,
}

/// Takes note of a completion; the argument is the [`Flight`].
extern "C" fn ended(context: *mut Context, flight: *mut c_void) {
    // SAFETY: the library calls this on the thread that pokes, with the context of a command and
    // the address of the flight that was given with it, which stays until it has ended.
    unsafe {
        let Context { status, result, .. } = &*context;
        (*flight.cast::<Flight>()).ended = Some((*status, *result));
    }
}

/// How many commands the library holds. While there are any, the caller's memory must stay.
struct InFlight(usize);

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.0 > 0 {
            // Going on would let the device write into memory that has another use by then.
            std::process::abort();
        }
    }
}

impl Queue for XnvmeQueue {
    fn run(&mut self, commands: &mut [Command<'_>], meter: &Meter) -> Result<()> {
        let depth = self.flights.len();
        let mut next = 0;
        let mut in_flight = InFlight(0);
        let mut failure: Option<Error> = None;
        loop {
            while failure.is_none() && next < commands.len() && in_flight.0 < depth {
                if matches!(commands[next], Command::Flush | Command::Trim { .. }) {
                    let own = std::slice::from_mut(&mut commands[next]);
                    failure = meter.one_by_one(own, |it| self.handle.own(it)).err();
                    next += 1;
                    continue;
                }
                match self.give(next, &mut commands[next]) {
                    Ok(true) => (in_flight.0, next) = (in_flight.0 + 1, next + 1),
                    Ok(false) if in_flight.0 > 0 => break,
                    Ok(false) => std::thread::yield_now(),
                    Err(error) => failure = Some(error),
                }
            }
            if in_flight.0 == 0 {
                meter.in_flight(0);
                return failure.map_or(Ok(()), Err);
            }
            meter.in_flight(in_flight.0);
            // Backends that read here tell the error number of this thread when a file ends early,
            // which no call has set then.
            // SAFETY: the thread's own number; the queue is open, and this thread's for now.
            let result = unsafe {
                *libc::__errno_location() = 0;
                (self.handle.library.poke)(self.queue, 0)
            };
            let errno = (result < 0).then(|| Errno::from_raw_os_error(-result));
            match errno {
                None | Some(Errno::INTR | Errno::AGAIN | Errno::BUSY) => {}
                Some(errno) => {
                    // What it holds can no longer be waited for: see `InFlight`.
                    return Err(explain(errno, "libxnvme poke", &self.handle.own.file().name));
                }
            }
            if result <= 0 {
                std::thread::yield_now();
            }
            let now = Instant::now();
            for index in 0..depth {
                if self.flights[index].ended.is_some() {
                    in_flight.0 -= 1;
                    let outcome = self.take(index, commands, now, meter);
                    failure = failure.or(outcome.err());
                }
            }
        }
    }
}

impl XnvmeQueue {
    /// Gives a command to the library; `false` if it has no room now.
    fn give(&mut self, index: usize, command: &mut Command<'_>) -> Result<bool> {
        let Handle { library, geometry, block_bytes, namespace, own, .. } = &*self.handle;
        let name = &own.file().name;
        let at = self.flights.iter().position(|flight| flight.given.is_none());
        let at = at.expect("fewer are in flight than there are places");
        // SAFETY: the queue is open, and this thread's for now.
        let context = unsafe { (library.get)(self.queue) };
        if context.is_null() {
            return Ok(false);
        }
        let (memory, length, block, transfer) = match command {
            Command::Read { block, into } => (into.as_mut_ptr(), into.len(), *block, library.read),
            Command::Write { block, from } => {
                // Only read: the function says so.
                (from.as_ptr().cast_mut(), from.len(), *block, library.write)
            }
            Command::Flush | Command::Trim { .. } => unreachable!("these are our own"),
        };
        let is_straight = match command {
            Command::Read { into, .. } => is_aligned(into, geometry.buffer_alignment_bytes),
            Command::Write { from, .. } => is_aligned(from, geometry.buffer_alignment_bytes),
            Command::Flush | Command::Trim { .. } => true,
        };
        let mut memory = memory;
        if !is_straight {
            let alignment = geometry.buffer_alignment_bytes.max(4096) as usize;
            let most = geometry.transfer_max_bytes as usize;
            while self.bounce.len() <= at {
                self.bounce.push(AlignedBuffer::new(most, alignment));
            }
            if let Command::Write { from, .. } = command {
                self.bounce[at][..length].copy_from_slice(from);
            }
            memory = self.bounce[at].as_mut_ptr();
        }
        let per_block = u64::from(geometry.block_size_bytes / block_bytes);
        let count = length as u64 / u64::from(*block_bytes);
        let given = Some((index, context, Instant::now()));
        self.flights[at] = Flight { given, is_bounced: !is_straight, ended: None };
        let flight: *mut Flight = &raw mut self.flights[at];
        // SAFETY: a context of this queue that is not in use; the memory is borrowed by `commands`
        // or belongs to `self`, and stays until the command has ended, for `run` does not return or
        // unwind before (InFlight).
        let result = unsafe {
            (*context).callback = Some(ended);
            (*context).argument = flight.cast();
            // Nobody else does, and most backends tell failures only: it may be a failed one's.
            ((*context).status, (*context).result) = (0, 0);
            let (block, count) = (block * per_block, (count - 1) as u16);
            transfer(context, *namespace, block, count, memory.cast(), null_mut())
        };
        if result >= 0 {
            return Ok(true);
        }
        self.flights[at] = Flight::default();
        // SAFETY: the library did not take it.
        unsafe { (library.put)(self.queue, context) };
        match Errno::from_raw_os_error(-result) {
            Errno::AGAIN | Errno::BUSY => Ok(false),
            errno => Err(explain(errno, command.name(), name)),
        }
    }

    /// Takes a command back that has ended.
    fn take(
        &mut self,
        at: usize,
        commands: &mut [Command<'_>],
        now: Instant,
        meter: &Meter,
    ) -> Result<()> {
        let flight = std::mem::take(&mut self.flights[at]);
        let (Some((index, context, begun)), Some((status, result))) = (flight.given, flight.ended)
        else {
            unreachable!("it was given, and has ended")
        };
        // SAFETY: the library is done with the context.
        unsafe { (self.handle.library.put)(self.queue, context) };
        let command = &mut commands[index];
        let outcome = self.handle.judge(command, status, result);
        if let (Ok(()), true, Command::Read { into, .. }) =
            (&outcome, flight.is_bounced, &mut *command)
        {
            into.copy_from_slice(&self.bounce[at][..into.len()]);
        }
        meter.ended(command, now - begun, outcome.is_ok());
        outcome
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
        let (code, kind) = (status >> 1 & 0xff, status >> 9 & 7);
        if kind == VENDOR {
            // Backends put the number there, or what is left of it below zero.
            let number = match i32::from(code) {
                0 => Errno::IO.raw_os_error(),
                code @ 1..134 => code,
                code => 256 - code,
            };
            let errno = Errno::from_raw_os_error(number);
            return Err(match self.own {
                Own::Namespace(_) => command_error(errno, command.name(), name),
                Own::Plain(_) => explain(errno, command.name(), name),
            });
        }
        if (code, kind) != (0, 0) {
            return Err(status_error(u32::from(status >> 1), command.name(), name));
        }
        let length = command.length_bytes();
        if matches!(self.own, Own::Plain(_)) && u64::from(result) < length {
            let block = match command {
                Command::Read { block, .. } | Command::Write { block, .. } => *block,
                Command::Flush | Command::Trim { .. } => 0,
            };
            let start = block * u64::from(geometry.block_size_bytes);
            return Err(ended_early(command.name(), name, start + u64::from(result)));
        }
        Ok(())
    }
}

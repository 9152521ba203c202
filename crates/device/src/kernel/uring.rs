//! Files and block devices by io_uring. It decides how many commands are in flight and which of
//! them use registered buffers; the caller sees only that all have ended.
//!
//! The kernel holds addresses of the caller's memory while a command is in flight, so
//! [`Queue::run`] never returns before the last of them has ended; if that became impossible, the
//! process ends.

use crate::buffer::{AlignedBuffer, is_aligned};
use crate::device::{Command, Device, Geometry, Ownership, Queue};
use crate::errno::{ended_early, explain, explain_io};
use crate::file::trim;
use crate::open::OpenFile;
use io_uring::{IoUring, opcode, squeue, types};
use penstock_base::{Error, Kind, Result};
use rustix::io::Errno;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// Most commands in flight per queue.
const DEPTH: usize = 32;
/// Memory of a queue for callers whose own is not aligned.
const SLOTS_BYTES: usize = 2 << 20;
/// The place of the only registered file.
const FILE: types::Fixed = types::Fixed(0);

/// A file or block device, past the page cache.
pub struct UringDevice(Arc<OpenFile>);

impl UringDevice {
    /// Takes a file that was opened with O_DIRECT.
    ///
    /// # Errors
    /// `Unsupported` where the kernel has no io_uring or does not let this process use it.
    pub fn new(file: OpenFile) -> Result<Self> {
        let device = UringDevice(Arc::new(file));
        device.open_queue(Ownership::Shared)?;
        Ok(device)
    }
}

impl Device for UringDevice {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn geometry(&self) -> &Geometry {
        &self.0.geometry
    }

    fn open_queue(&self, ownership: Ownership) -> Result<Box<dyn Queue>> {
        let ring = open_ring(ownership).map_err(|error| no_ring(&error, &self.0.name))?;
        ring.submitter()
            .register_files(&[self.0.file.as_raw_fd()])
            .map_err(|error| explain_io(&error, "io_uring register", &self.0.name))?;
        Ok(Box::new(UringQueue {
            ring,
            file: self.0.clone(),
            slots: Slots::default(),
            is_broken: false,
        }))
    }
}

fn open_ring(ownership: Ownership) -> std::io::Result<IoUring> {
    if ownership == Ownership::Thread {
        // Since Linux 6.1: completions cost no interrupt of the thread, and no lock.
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun();
        match builder.build(DEPTH as u32) {
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {}
            other => return other,
        }
    }
    IoUring::new(DEPTH as u32)
}

fn no_ring(error: &std::io::Error, object: &str) -> Error {
    let number = error.raw_os_error();
    if [Errno::NOSYS, Errno::PERM].iter().any(|errno| number == Some(errno.raw_os_error())) {
        return Error::new(Kind::Unsupported, "the kernel does not let this process use io_uring")
            .with_operation("device open")
            .with_object(object)
            .with_hint("Choose io=direct or io=file, or set kernel.io_uring_disabled=0");
    }
    explain_io(error, "device open", object)
}

/// Aligned memory for callers whose own is not, registered with the ring where the kernel takes it.
#[derive(Default)]
struct Slots {
    buffers: Vec<AlignedBuffer>,
    free: Vec<usize>,
    is_registered: bool,
}

impl Slots {
    /// Makes and registers the slots, each of its own: before Linux 6.12 NVMe counts the segments
    /// of a whole registered region against the limit of one command.
    fn fill(&mut self, ring: &IoUring, geometry: &Geometry) {
        let length = geometry.transfer_max_bytes as usize;
        let count = (SLOTS_BYTES / length).clamp(2, DEPTH);
        let alignment = geometry.buffer_alignment_bytes.max(4096) as usize;
        self.buffers = (0..count).map(|_| AlignedBuffer::new(length, alignment)).collect();
        self.free = (0..count).collect();
        let regions: Vec<libc::iovec> = self
            .buffers
            .iter_mut()
            .map(|it| libc::iovec { iov_base: it.as_mut_ptr().cast(), iov_len: it.len() })
            .collect();
        // SAFETY: the regions are memory of `self.buffers`, which never moves, is never shrunk
        // and is dropped after the ring (order of the fields of `UringQueue`).
        self.is_registered = unsafe { ring.submitter().register_buffers(&regions) }.is_ok();
    }
}

struct UringQueue {
    // Before `slots` and `file`: it goes first, and with it the kernel's hold on their memory.
    ring: IoUring,
    slots: Slots,
    file: Arc<OpenFile>,
    /// Whether entries lie in the ring that must never reach the kernel.
    is_broken: bool,
}

/// A command that is in flight: how much of it is done, and where its bytes lie meanwhile.
#[derive(Clone, Copy, Default)]
struct Progress {
    done: usize,
    slot: Option<usize>,
}

/// How many commands the kernel holds. While there are any, the caller's memory must stay.
struct InFlight(usize);

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.0 > 0 {
            // Going on would let the kernel write into memory that has another use by then.
            std::process::abort();
        }
    }
}

impl Queue for UringQueue {
    fn run(&mut self, commands: &mut [Command<'_>]) -> Result<()> {
        if self.is_broken {
            return Err(Error::new(Kind::Unavailable, "the ring failed earlier")
                .with_object(&self.file.name)
                .with_hint("Open the device anew"));
        }
        let mut progress = vec![Progress::default(); commands.len()];
        let outcome = self.drive(commands, &mut progress);
        self.slots.free.extend(progress.iter().filter_map(|progress| progress.slot));
        outcome
    }
}

impl UringQueue {
    /// Pushes and waits until nothing is in flight any more.
    fn drive(&mut self, commands: &mut [Command<'_>], progress: &mut [Progress]) -> Result<()> {
        let mut waiting: Vec<usize> = (0..commands.len()).rev().collect();
        let mut in_flight = InFlight(0);
        let mut failure: Option<Error> = None;
        loop {
            while failure.is_none() && in_flight.0 < DEPTH {
                let Some(index) = waiting.last().copied() else { break };
                match self.push(index, &mut commands[index], &mut progress[index]) {
                    Ok(Pushed::InFlight) => in_flight.0 += 1,
                    Ok(Pushed::Ended) => {}
                    Ok(Pushed::NoSlot) => break,
                    Err(error) => failure = Some(error),
                }
                waiting.pop();
            }
            if in_flight.0 == 0 {
                return failure.map_or(Ok(()), Err);
            }
            // With nothing left to push the thread sleeps until the last one has ended.
            let wanted = if waiting.is_empty() { in_flight.0 } else { in_flight.0.div_ceil(2) };
            self.submit(wanted, &mut in_flight)?;
            loop {
                let Some(entry) = self.ring.completion().next() else { break };
                in_flight.0 -= 1;
                let index = entry.user_data() as usize;
                let (command, progress) = (&mut commands[index], &mut progress[index]);
                match self.finish(entry.result(), command, progress) {
                    Ok(true) => {}
                    Ok(false) => waiting.push(index),
                    Err(error) => failure = failure.or(Some(error)),
                }
            }
        }
    }

    /// Gives the kernel what was pushed and waits for `wanted` completions.
    fn submit(&mut self, wanted: usize, in_flight: &mut InFlight) -> Result<()> {
        let Err(error) = self.ring.submit_and_wait(wanted) else { return Ok(()) };
        let number = error.raw_os_error().map(Errno::from_raw_os_error);
        if matches!(number, Some(Errno::INTR | Errno::AGAIN | Errno::BUSY)) {
            return Ok(());
        }
        // What the kernel has not taken it will never touch, as nothing is submitted after this.
        self.is_broken = true;
        in_flight.0 -= self.ring.submission().len().min(in_flight.0);
        Err(explain_io(&error, "io_uring submit", &self.file.name))
    }
}

/// What became of a command that should go to the kernel.
enum Pushed {
    InFlight,
    Ended,
    NoSlot,
}

impl UringQueue {
    /// Hands one command to the ring, or the rest of one that came back in part.
    fn push(
        &mut self,
        index: usize,
        command: &mut Command<'_>,
        progress: &mut Progress,
    ) -> Result<Pushed> {
        if let Command::Trim { block, blocks } = command {
            return trim(&self.file, *block, *blocks).map(|()| Pushed::Ended);
        }
        let alignment = self.file.geometry.buffer_alignment_bytes;
        let needs_slot = match command {
            Command::Read { into, .. } => !is_aligned(into, alignment),
            Command::Write { from, .. } => !is_aligned(from, alignment),
            _ => false,
        };
        if needs_slot && progress.slot.is_none() {
            if self.slots.buffers.is_empty() {
                self.slots.fill(&self.ring, &self.file.geometry);
            }
            let Some(slot) = self.slots.free.pop() else { return Ok(Pushed::NoSlot) };
            progress.slot = Some(slot);
            if let Command::Write { from, .. } = command {
                self.slots.buffers[slot][..from.len()].copy_from_slice(from);
            }
        }
        let entry = self.entry(command, *progress).user_data(index as u64);
        // SAFETY: the entry points into memory that `commands` borrows or that the slots own; both
        // stay until the command has ended, for `run` does not return or unwind before (InFlight).
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the ring has room for as many commands as are allowed in flight");
        Ok(Pushed::InFlight)
    }

    /// The kernel's form of what is still to be done of a command.
    fn entry(&mut self, command: &mut Command<'_>, progress: Progress) -> squeue::Entry {
        let size = u64::from(self.file.geometry.block_size_bytes);
        let Progress { done, slot } = progress;
        let fixed = slot.filter(|_| self.slots.is_registered).map(|slot| slot as u16);
        let mut slot = slot.map(|slot| &mut self.slots.buffers[slot]);
        match command {
            Command::Read { block, into } => {
                let rest = (into.len() - done) as u32;
                let memory = slot.as_deref_mut().map_or(&mut **into, |slot| &mut **slot);
                let pointer = memory[done..].as_mut_ptr();
                let offset = *block * size + done as u64;
                match fixed {
                    Some(slot) => {
                        opcode::ReadFixed::new(FILE, pointer, rest, slot).offset(offset).build()
                    }
                    None => opcode::Read::new(FILE, pointer, rest).offset(offset).build(),
                }
            }
            Command::Write { block, from } => {
                let rest = (from.len() - done) as u32;
                let memory = slot.as_deref().map_or(&**from, |slot| &**slot);
                let pointer = memory[done..].as_ptr();
                let offset = *block * size + done as u64;
                match fixed {
                    Some(slot) => {
                        opcode::WriteFixed::new(FILE, pointer, rest, slot).offset(offset).build()
                    }
                    None => opcode::Write::new(FILE, pointer, rest).offset(offset).build(),
                }
            }
            Command::Flush | Command::Trim { .. } => {
                opcode::Fsync::new(FILE).flags(types::FsyncFlags::DATASYNC).build()
            }
        }
    }

    /// Takes a completion: whether the command is done, or has a rest.
    fn finish(
        &mut self,
        result: i32,
        command: &mut Command<'_>,
        progress: &mut Progress,
    ) -> Result<bool> {
        let name = &self.file.name;
        let length = command.length_bytes() as usize;
        let outcome = match usize::try_from(result) {
            Err(_) => match Errno::from_raw_os_error(-result) {
                Errno::INTR | Errno::AGAIN => Ok(false),
                errno => Err(explain(errno, command.name(), name)),
            },
            Ok(_) if length == 0 => Ok(true),
            Ok(0) => {
                let block = match command {
                    Command::Read { block, .. } | Command::Write { block, .. } => *block,
                    Command::Flush | Command::Trim { .. } => 0,
                };
                let start = block * u64::from(self.file.geometry.block_size_bytes);
                Err(ended_early(command.name(), name, start + progress.done as u64))
            }
            Ok(count) => {
                progress.done += count;
                Ok(progress.done >= length)
            }
        };
        if !matches!(outcome, Ok(false))
            && let Some(slot) = progress.slot.take()
        {
            if let (Ok(true), Command::Read { into, .. }) = (&outcome, command) {
                into.copy_from_slice(&self.slots.buffers[slot][..into.len()]);
            }
            self.slots.free.push(slot);
        }
        outcome
    }
}

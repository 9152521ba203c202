//! A queue over a ring of the kernel. It decides how many commands are in flight, and which of them
//! use registered buffers; which need no ring is the matter of `way`, what an entry looks like that
//! of its dialect, how the thread waits that of `waiting`.
//!
//! The kernel holds addresses of the caller's memory while a command is in flight, so
//! [`Queue::run`] never returns before the last of them has ended; if that became impossible, the
//! process ends.

mod waiting;

use crate::buffer::is_aligned;
use crate::device::{Command, Ownership, Queue};
use crate::errno::{ended_early, explain_io};
use crate::kernel::dialect::{Dialect, Direction, Moved, Ring, Transfer};
use crate::kernel::opened::{no_ring, open_ring};
use crate::kernel::pages::populate;
use crate::kernel::slots::Slots;
use crate::kernel::way::{Likes, Way, Ways};
use crate::meter::Meter;
use crate::open::OpenFile;
use crate::wait::Wait;
use penstock_base::{Error, Kind, Result};
use std::os::fd::AsRawFd;
use std::time::Instant;
use waiting::InFlight;

/// In how many steps a ring is filled: the device begins with the first while others are prepared.
const STRIDES: usize = 4;
/// Which share of a full ring is waited for together: it saves calls, and the rest keeps the device
/// busy. With a quarter, a device that is faster with more commands in flight gave a tenth less.
const WAITED_SHARE: usize = 8;

pub(super) struct RingQueue<D: Dialect> {
    // Before the others: it goes first, and with it the kernel's hold on their memory.
    ring: Ring<D>,
    slots: Slots,
    dialect: D,
    /// Of each command of a batch; kept so that a batch allocates nothing.
    progress: Vec<Progress>,
    /// Commands that came back with a rest or with nothing done.
    again: Vec<usize>,
    /// What batches took through the ring and by calls.
    pub(super) ways: Ways,
    /// The same of commands that were alone, where the ring is polled.
    pub(super) ways_alone: Ways,
    /// Whether entries lie in the ring that must never reach the kernel.
    is_broken: bool,
}

/// A command that is in flight: how much of it is done, and where its bytes lie meanwhile.
#[derive(Clone, Copy)]
struct Progress {
    done: usize,
    slot: Option<usize>,
    begun: Instant,
}

impl<D: Dialect> Queue for RingQueue<D> {
    fn run(&mut self, commands: &mut [Command<'_>], meter: &Meter) -> Result<()> {
        if self.is_broken {
            return Err(Error::new(Kind::Unavailable, "the ring failed earlier")
                .with_object(&self.dialect.file().name)
                .with_hint("Open the device anew"));
        }
        let begun = Instant::now();
        self.again.clear();
        self.progress.clear();
        self.progress.resize(commands.len(), Progress { done: 0, slot: None, begun });
        let outcome = match commands {
            [_] if D::CALLS => self.alone(commands, begun, meter),
            _ => self.batch(commands, begun, meter),
        };
        meter.in_flight(0);
        self.slots.free.extend(self.progress.iter().filter_map(|progress| progress.slot));
        outcome
    }
}

/// What became of a command that should go to the kernel.
enum Prepared {
    Transfer(Transfer),
    Ended,
    NoSlot,
}

/// For what a command is prepared.
#[derive(Clone, Copy)]
enum Room {
    /// A call, with nothing beside it in flight.
    Call,
    Ring,
}

impl<D: Dialect> RingQueue<D> {
    /// Opens a ring for a device.
    pub(super) fn open(dialect: D, ownership: Ownership) -> Result<Self> {
        let OpenFile { file, name, queue_depth, wait, .. } = dialect.file();
        let ring = open_ring::<D>(*queue_depth, ownership, *wait);
        let ring = ring.map_err(|error| no_ring(&error, name))?;
        ring.submitter()
            .register_files(&[file.as_raw_fd()])
            .map_err(|error| explain_io(&error, "io_uring register", name))?;
        Ok(RingQueue {
            ring,
            slots: Slots::default(),
            dialect,
            progress: Vec::new(),
            again: Vec::new(),
            ways: Ways::default(),
            ways_alone: Ways::default(),
            is_broken: false,
        })
    }

    #[cfg(test)]
    pub(super) fn counted(&self) -> &D {
        &self.dialect
    }

    #[cfg(test)]
    pub(super) fn slots(&self) -> (usize, bool) {
        (self.slots.buffers.len(), self.slots.is_registered)
    }

    #[cfg(test)]
    pub(super) fn block_size_bytes(&self) -> u64 {
        u64::from(self.dialect.file().geometry.block_size_bytes)
    }

    /// Carries out several commands, by the way that was faster for such, and sees how long it
    /// takes. Where commands are not alike nothing is learned of them.
    fn batch(&mut self, commands: &mut [Command<'_>], begun: Instant, meter: &Meter) -> Result<()> {
        let Some(likes) = Likes::of(commands).filter(|_| D::CALLS && commands.len() > 1) else {
            return self.drive(commands, begun, meter);
        };
        let by_calls = match self.ways.next(likes) {
            Way::Ring => 0,
            Way::Both => 1,
            Way::Calls => commands.len(),
        };
        let mut now = begun;
        for (index, command) in commands[..by_calls].iter_mut().enumerate() {
            now = self.by_call(index, command, now, meter)?;
        }
        if by_calls > 0 {
            self.ways.note_calls(likes, now - begun, by_calls);
            self.progress[..by_calls].fill(Progress { done: 0, slot: None, begun: now });
        }
        let others = &mut commands[by_calls..];
        if !others.is_empty() {
            self.drive(others, now, meter)?;
            self.ways.note_ring(likes, now.elapsed(), others.len());
        }
        Ok(())
    }

    /// Carries out a command that is alone: by a call, unless the ring is polled and that is
    /// faster. A call sleeps in the kernel until a disk has answered; on a device that ends its
    /// commands within the call nothing is faster.
    fn alone(&mut self, command: &mut [Command<'_>], begun: Instant, meter: &Meter) -> Result<()> {
        let is_polled = self.dialect.file().wait == Wait::Poll;
        let Some(likes) = Likes::of(command).filter(|_| is_polled) else {
            return self.by_call(0, &mut command[0], begun, meter).map(drop);
        };
        match self.ways_alone.next(likes) {
            Way::Ring => {
                self.drive(command, begun, meter)?;
                self.ways_alone.note_ring(likes, begun.elapsed(), 1);
            }
            Way::Both | Way::Calls => {
                let end = self.by_call(0, &mut command[0], begun, meter)?;
                self.ways_alone.note_calls(likes, end - begun, 1);
            }
        }
        Ok(())
    }

    /// Carries out a command by a call, with nothing beside it in flight; gives when it ended. For
    /// a command that is alone a ring only adds work of its own (to a flush, and where a device may
    /// not be asked without waiting, a thread of the kernel: on zram a read by the call is 2 to 16
    /// times as fast).
    fn by_call(
        &mut self,
        index: usize,
        command: &mut Command<'_>,
        begun: Instant,
        meter: &Meter,
    ) -> Result<Instant> {
        meter.in_flight(1);
        let outcome = loop {
            let transfer = match self.prepare(index, command, Room::Call) {
                Ok(Prepared::Transfer(transfer)) => transfer,
                Ok(Prepared::Ended) => break Ok(()),
                Ok(Prepared::NoSlot) => unreachable!("nothing else holds a slot"),
                Err(error) => break Err(error),
            };
            let result = self.dialect.call(&transfer);
            match self.finish(index, result, command) {
                Ok(true) => break Ok(()),
                Ok(false) => {}
                Err(error) => break Err(error),
            }
        };
        let end = Instant::now();
        meter.ended(command, end - begun, outcome.is_ok());
        outcome.map(|()| end)
    }

    /// Pushes and waits until nothing is in flight any more.
    fn drive(&mut self, commands: &mut [Command<'_>], begun: Instant, meter: &Meter) -> Result<()> {
        // Read once for all that ended together, and taken for the start of those that follow.
        let mut now = begun;
        let mut next = 0;
        let mut in_flight = InFlight(0);
        let mut failure: Option<Error> = None;
        let depth = self.dialect.file().queue_depth as usize;
        let stride = depth.div_ceil(STRIDES);
        loop {
            let full = depth.min(in_flight.0 + stride);
            let mut has_slot = true;
            while failure.is_none() && in_flight.0 < full {
                let (index, is_rest) = match self.again.last() {
                    Some(index) => (*index, true),
                    None if next < commands.len() => (next, false),
                    None => break,
                };
                if !is_rest {
                    self.progress[index].begun = now;
                }
                match self.prepare(index, &mut commands[index], Room::Ring) {
                    Ok(Prepared::Transfer(transfer)) => {
                        self.push(index, &transfer);
                        in_flight.0 += 1;
                    }
                    Ok(Prepared::Ended) => {
                        let end = Instant::now();
                        meter.ended(&commands[index], end - now, true);
                        now = end;
                    }
                    Ok(Prepared::NoSlot) => {
                        has_slot = false;
                        break;
                    }
                    Err(error) => {
                        meter.ended(&commands[index], now.elapsed(), false);
                        failure = Some(error);
                    }
                }
                match is_rest {
                    true => drop(self.again.pop()),
                    false => next += 1,
                }
            }
            if in_flight.0 == 0 {
                return failure.map_or(Ok(()), Err);
            }
            // With nothing left to push the thread waits until the last one has ended; before,
            // until a few have. It does not wait while there is something to push or to take.
            let is_last = next == commands.len() && self.again.is_empty();
            let can_push = !is_last && failure.is_none() && has_slot && in_flight.0 < depth;
            let wanted = match is_last {
                true => in_flight.0,
                false if can_push || !self.ring.completion().is_empty() => 0,
                false => in_flight.0.div_ceil(WAITED_SHARE),
            };
            meter.in_flight(in_flight.0);
            self.wait_for(wanted, &mut in_flight)?;
            now = Instant::now();
            // What ended at once is not taken at once: the device has nothing to do meanwhile.
            let most = if is_last { depth } else { stride };
            if let Err(error) = self.take_ended(most, commands, &mut in_flight, now, meter) {
                failure = failure.or(Some(error));
            }
        }
    }

    /// Takes up to `most` completions; fails with the first failure among them.
    fn take_ended(
        &mut self,
        most: usize,
        commands: &mut [Command<'_>],
        in_flight: &mut InFlight,
        now: Instant,
        meter: &Meter,
    ) -> Result<()> {
        let mut all = Ok(());
        for _ in 0..most {
            let Some(entry) = self.ring.completion().next() else { break };
            in_flight.0 -= 1;
            let (index, result) = D::completion(&entry);
            let index = index as usize;
            let outcome = self.finish(index, result, &mut commands[index]);
            if !matches!(outcome, Ok(false)) {
                let took = now - self.progress[index].begun;
                meter.ended(&commands[index], took, outcome.is_ok());
            }
            match outcome {
                Ok(true) => {}
                Ok(false) => self.again.push(index),
                Err(error) => all = all.and(Err(error)),
            }
        }
        all
    }

    /// Finds memory for a command, or for the rest of one that came back in part; what the ring
    /// does not know is done at once.
    fn prepare(&mut self, index: usize, command: &mut Command<'_>, room: Room) -> Result<Prepared> {
        if let Command::Trim { block, blocks } = command {
            return self.dialect.trim(*block, *blocks).map(|()| Prepared::Ended);
        }
        let OpenFile { geometry, queue_depth, .. } = self.dialect.file();
        let alignment = geometry.buffer_alignment_bytes;
        let needs_slot = match command {
            Command::Read { into, .. } => !is_aligned(into, alignment),
            Command::Write { from, .. } => !is_aligned(from, alignment),
            Command::Flush | Command::Trim { .. } => false,
        };
        if needs_slot && self.progress[index].slot.is_none() {
            match room {
                Room::Call => self.slots.one(geometry),
                Room::Ring => self.slots.fill::<D>(&self.ring, geometry, *queue_depth as usize),
            }
            let Some(slot) = self.slots.free.pop() else { return Ok(Prepared::NoSlot) };
            self.progress[index].slot = Some(slot);
            if let Command::Write { from, .. } = command {
                self.slots.buffers[slot][..from.len()].copy_from_slice(from);
            }
        }
        Ok(Prepared::Transfer(self.transfer(command, self.progress[index])))
    }

    /// Hands a command to the ring.
    fn push(&mut self, index: usize, transfer: &Transfer) {
        let entry = self.dialect.entry(transfer, index as u64);
        // SAFETY: the entry points into memory that `commands` borrows or that the slots own; both
        // stay until the command has ended, for `run` does not return or unwind before (InFlight).
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the ring has room for as many commands as are allowed in flight");
    }

    /// What is still to be done of a command, and where its bytes lie.
    fn transfer(&mut self, command: &mut Command<'_>, progress: Progress) -> Transfer {
        let Progress { done, slot, .. } = progress;
        let registered = slot.filter(|_| self.slots.is_registered).map(|slot| slot as u16);
        let memory = slot.map(|slot| self.slots.buffers[slot].as_mut_ptr());
        let (direction, block, own, length) = match command {
            Command::Read { block, into } => {
                (Direction::Read, *block, into.as_mut_ptr(), into.len())
            }
            // Only read: the direction says so.
            Command::Write { block, from } => {
                (Direction::Write, *block, from.as_ptr().cast_mut(), from.len())
            }
            Command::Flush | Command::Trim { .. } => (Direction::Flush, 0, std::ptr::null_mut(), 0),
        };
        let address = memory.unwrap_or(own).wrapping_add(done);
        let length = (length - done) as u32;
        Transfer { direction, block, done, address, length, slot: registered }
    }

    /// Takes a completion: whether the command is done, or has a rest.
    fn finish(&mut self, index: usize, result: i32, command: &mut Command<'_>) -> Result<bool> {
        let progress = &mut self.progress[index];
        let length = command.length_bytes() as usize;
        let moved = self.dialect.moved(result, length - progress.done, command.name());
        let outcome = moved.and_then(|moved| match moved {
            Moved::Again => Ok(false),
            Moved::Bytes(0) if length > 0 => {
                let OpenFile { name, geometry, .. } = self.dialect.file();
                let block = match command {
                    Command::Read { block, .. } | Command::Write { block, .. } => *block,
                    Command::Flush | Command::Trim { .. } => 0,
                };
                let start = block * u64::from(geometry.block_size_bytes);
                Err(ended_early(command.name(), name, start + progress.done as u64))
            }
            Moved::Bytes(count) => {
                progress.done += count;
                Ok(progress.done >= length)
            }
        });
        let outcome = outcome.map_err(|error| self.dialect.file().judge(error, command.name()));
        if !matches!(outcome, Ok(false))
            && let Some(slot) = progress.slot.take()
        {
            if let (Ok(true), Command::Read { into, .. }) = (&outcome, command) {
                populate(into);
                into.copy_from_slice(&self.slots.buffers[slot][..into.len()]);
            }
            self.slots.free.push(slot);
        }
        outcome
    }
}

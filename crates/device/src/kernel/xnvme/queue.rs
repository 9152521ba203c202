//! A queue of libxnvme. It decides how commands are given, kept in flight and waited for.
//!
//! As with the kernel's ring, [`Queue::run`] never returns while the library holds an address.

use crate::buffer::{AlignedBuffer, is_aligned};
use crate::device::{Command, Queue};
use crate::errno::explain;
use crate::kernel::xnvme::Handle;
use crate::kernel::xnvme::library::Context;
use crate::meter::Meter;
use penstock_base::{Error, Result};
use rustix::io::Errno;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Instant;

pub(super) struct XnvmeQueue {
    queue: *mut c_void,
    /// Never longer or shorter: the library keeps addresses of them.
    flights: Vec<Flight>,
    /// Aligned memory for callers whose own is not, one for each flight that needed it.
    bounce: Vec<AlignedBuffer>,
    handle: Arc<Handle>,
}

impl XnvmeQueue {
    /// Takes a queue that the library has made, for so many commands in flight.
    pub(super) fn new(queue: *mut c_void, handle: Arc<Handle>, depth: usize) -> Self {
        let (flights, bounce) = (Vec::new(), Vec::new());
        let mut queue = XnvmeQueue { queue, handle, flights, bounce };
        queue.flights.resize_with(depth, Flight::default);
        queue
    }
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

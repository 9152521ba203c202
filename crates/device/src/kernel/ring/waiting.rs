//! Giving a ring's commands to the kernel and waiting for their ends. It decides whether the thread
//! sleeps meanwhile, and what happens when the kernel cannot be waited for any more.

use super::RingQueue;
use crate::errno::explain_io;
use crate::kernel::dialect::Dialect;
use crate::wait::Wait;
use penstock_base::Result;
use rustix::io::Errno;

/// Who polls offers the processor to others after so many looks: to ask the kernel for that each
/// time takes longer than a look.
const LOOKS: u32 = 16;

/// How many commands the kernel holds. While there are any, the caller's memory must stay.
pub(super) struct InFlight(pub usize);

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.0 > 0 {
            // Going on would let the kernel write into memory that has another use by then.
            std::process::abort();
        }
    }
}

impl<D: Dialect> RingQueue<D> {
    /// Gives the kernel what was pushed and waits until so many commands have ended.
    pub(super) fn wait_for(&mut self, wanted: usize, in_flight: &mut InFlight) -> Result<()> {
        match self.dialect.file().wait {
            Wait::Sleep => self.submit(wanted, in_flight),
            Wait::Poll => self.poll(wanted, in_flight),
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
        Err(explain_io(&error, "io_uring submit", &self.dialect.file().name))
    }

    /// Gives the kernel what was pushed and looks until so many have ended, without sleeping. The
    /// kernel is called only where it asks for it; the processor is offered to others now and then,
    /// for the work of a disk may be theirs (a loop device's is).
    fn poll(&mut self, wanted: usize, in_flight: &mut InFlight) -> Result<()> {
        let mut looks = 0_u32;
        loop {
            let pushed = self.ring.submission();
            let is_due = !pushed.is_empty() || pushed.taskrun() || pushed.cq_overflow();
            drop(pushed);
            if is_due {
                self.submit(0, in_flight)?;
            }
            if self.ring.completion().len() >= wanted {
                return Ok(());
            }
            looks = looks.wrapping_add(1);
            match looks.is_multiple_of(LOOKS) {
                true => std::thread::yield_now(),
                false => std::hint::spin_loop(),
            }
        }
    }
}

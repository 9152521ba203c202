//! Files and block devices by io_uring, past the page cache. It decides the form of the entries,
//! and of the calls for commands that are alone.

use crate::device::{Device, Geometry, Ownership, Queue};
use crate::errno::explain;
use crate::file::trim;
use crate::holes::Written;
use crate::kernel::dialect::{Dialect, Direction, FILE, Moved, Transfer};
use crate::kernel::ring::RingQueue;
use crate::open::OpenFile;
use io_uring::{cqueue, opcode, squeue, types};
use penstock_base::Result;
use rustix::io::Errno;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

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
        Ok(Box::new(RingQueue::open(Plain(self.0.clone()), ownership)?))
    }

    fn written_from(&self, offset: u64) -> Written {
        self.0.written_from(offset)
    }

    fn lets_sleep(&self) -> bool {
        true
    }
}

/// Reads and writes as of any file.
struct Plain(Arc<OpenFile>);

impl Plain {
    /// At which byte a transfer begins, or what is left of it.
    fn offset(&self, transfer: &Transfer) -> u64 {
        let start = transfer.block * u64::from(self.0.geometry.block_size_bytes);
        start + transfer.done as u64
    }
}

impl Dialect for Plain {
    type Entry = squeue::Entry;
    type Completion = cqueue::Entry;
    const CALLS: bool = true;

    fn file(&self) -> &OpenFile {
        &self.0
    }

    fn entry(&self, transfer: &Transfer, user_data: u64) -> squeue::Entry {
        let Transfer { address, length, .. } = *transfer;
        let offset = self.offset(transfer);
        let entry = match (transfer.direction, transfer.slot) {
            (Direction::Read, Some(slot)) => {
                opcode::ReadFixed::new(FILE, address, length, slot).offset(offset).build()
            }
            (Direction::Read, None) => {
                opcode::Read::new(FILE, address, length).offset(offset).build()
            }
            (Direction::Write, Some(slot)) => {
                opcode::WriteFixed::new(FILE, address, length, slot).offset(offset).build()
            }
            (Direction::Write, None) => {
                opcode::Write::new(FILE, address, length).offset(offset).build()
            }
            (Direction::Flush, _) => {
                opcode::Fsync::new(FILE).flags(types::FsyncFlags::DATASYNC).build()
            }
        };
        entry.user_data(user_data)
    }

    fn call(&self, transfer: &Transfer) -> i32 {
        let (file, length) = (self.0.file.as_raw_fd(), transfer.length as usize);
        let offset = self.offset(transfer) as libc::off64_t;
        // SAFETY: the file is open, and the memory is borrowed by the command, or the queue's own,
        // and `length` bytes long; the kernel touches it no more when the call has returned.
        let result = unsafe {
            let memory = transfer.address.cast();
            match transfer.direction {
                Direction::Read => libc::pread64(file, memory, length, offset),
                Direction::Write => libc::pwrite64(file, memory, length, offset),
                Direction::Flush => libc::fdatasync(file) as isize,
            }
        };
        // What moved fits: the length has 32 bits, and the kernel moves less than 2 GiB at once.
        if result < 0 { last_error() } else { result as i32 }
    }

    fn completion(entry: &cqueue::Entry) -> (u64, i32) {
        (entry.user_data(), entry.result())
    }

    fn moved(&self, result: i32, _: usize, operation: &'static str) -> Result<Moved> {
        match usize::try_from(result) {
            Ok(count) => Ok(Moved::Bytes(count)),
            Err(_) => match Errno::from_raw_os_error(-result) {
                Errno::INTR | Errno::AGAIN => Ok(Moved::Again),
                errno => Err(explain(errno, operation, &self.0.name)),
            },
        }
    }

    fn trim(&self, block: u64, blocks: u64) -> Result<()> {
        trim(&self.0, block, blocks)
    }
}

/// The error of the last call, as a ring tells it.
fn last_error() -> i32 {
    -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Command;
    use crate::kernel::way::Likes;
    use crate::meter::Meter;
    use crate::{Io, OpenOptions};
    use penstock_base::DeviceMetric;
    use penstock_testkit::scratch::Scratch;
    use std::time::Duration;

    const BLOCK: usize = 4096;
    const COUNT: usize = 40;

    /// A queue of a new file, and what was seen of commands that take so long by calls; through the
    /// ring each takes a millisecond.
    fn queue(path: &std::path::Path, call: Duration) -> RingQueue<Plain> {
        let options = OpenOptions { create_bytes: Some(1 << 20), ..OpenOptions::new(Io::Uring) };
        let file = OpenFile::open(path, &options).expect("opens");
        let mut queue =
            RingQueue::open(Plain(Arc::new(file)), Ownership::Thread).expect("there are rings");
        let mut memory = [0; BLOCK];
        let reads = [Command::Read { block: 0, into: &mut memory }];
        let writes = [Command::Write { block: 0, from: &[0; BLOCK] }];
        for likes in [&reads[..], &writes].map(|it| Likes::of(it).expect("they are alike")) {
            for _ in 0..9 {
                queue.ways.note_ring(likes, Duration::from_millis(1), 1);
                queue.ways.note_calls(likes, call, 1);
            }
            // The look that is due first.
            queue.ways.next(likes);
            queue.ways.next(likes);
        }
        queue
    }

    #[test]
    fn a_batch_gives_the_same_by_calls_as_through_the_ring() {
        let scratch = Scratch::new("ways");
        for (name, call) in [("calls", Duration::from_micros(1)), ("ring", Duration::from_secs(1))]
        {
            let mut queue = queue(&scratch.path().join(name), call);
            let device_block = BLOCK as u64 / queue.block_size_bytes();
            // Neither memory is aligned: all of it goes through slots.
            let written: Vec<u8> = (0..=COUNT * BLOCK).map(|at| (at / BLOCK) as u8).collect();
            let mut found = vec![0xff; COUNT * BLOCK + 1];
            for _ in 0..2 {
                let meter = Meter::default();
                let place = |at: usize| at as u64 * device_block;
                let mut writes: Vec<_> = written[1..]
                    .chunks_exact(BLOCK)
                    .enumerate()
                    .map(|(at, from)| Command::Write { block: place(at), from })
                    .collect();
                queue.run(&mut writes, &meter).expect("writes");
                let mut reads: Vec<_> = found[1..]
                    .chunks_exact_mut(BLOCK)
                    .enumerate()
                    .map(|(at, into)| Command::Read { block: place(at), into })
                    .collect();
                queue.run(&mut reads, &meter).expect("reads");
                assert!(found[1..] == written[1..]);
                let reading = meter.reading();
                assert_eq!(reading.get(DeviceMetric::Reads), COUNT as u64);
                assert_eq!(reading.get(DeviceMetric::Writes), COUNT as u64);
                let most = reading.get(DeviceMetric::InFlightMost);
                assert_eq!(most == 1, name == "calls", "{name}: {most} at once");
                found.fill(0xff);
            }
        }
    }

    #[test]
    fn a_batch_by_calls_ends_with_the_first_that_fails() {
        let scratch = Scratch::new("ways");
        let mut queue = queue(&scratch.path().join("disk"), Duration::from_micros(1));
        let device_block = BLOCK as u64 / queue.block_size_bytes();
        let mut memory = vec![0; 3 * BLOCK];
        let places = [0, 1 << 20, 1];
        let mut reads: Vec<_> = memory
            .chunks_exact_mut(BLOCK)
            .zip(places)
            .map(|(into, place)| Command::Read { block: place * device_block, into })
            .collect();
        let meter = Meter::default();
        queue.run(&mut reads, &meter).expect_err("the second lies beyond the end");
        let reading = meter.reading();
        assert_eq!(reading.get(DeviceMetric::Reads), 2, "the third was not begun");
        assert_eq!(reading.get(DeviceMetric::Errors), 1);
        queue.run(&mut [Command::Flush], &meter).expect("it goes on");
    }
}

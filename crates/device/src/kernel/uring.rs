//! Files and block devices by io_uring, past the page cache. It decides the form of the entries,
//! and of the calls for commands that are alone.

use crate::device::{Device, Geometry, Ownership, Queue};
use crate::errno::explain;
use crate::file::trim;
use crate::holes::Written;
use crate::kernel::dialect::{Dialect, Direction, FILE, Moved, Transfer};
use crate::kernel::opened::check_rings;
use crate::kernel::ring::RingQueue;
use crate::open::OpenFile;
use crate::wait::Wait;
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
        check_rings(&file.name)?;
        Ok(UringDevice(Arc::new(file)))
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
        self.0.wait == Wait::Sleep
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
    use crate::kernel::slept::sleeps;
    use crate::kernel::way::Likes;
    use crate::meter::Meter;
    use crate::{Io, OpenOptions};
    use penstock_base::DeviceMetric;
    use penstock_testkit::scratch::Scratch;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    const BLOCK: usize = 4096;
    const COUNT: usize = 40;

    /// The same, and what of it was done by calls, if there are any, and with registered memory.
    struct Counted<const CALLS: bool> {
        plain: Plain,
        calls: Arc<AtomicUsize>,
        registered: Arc<AtomicUsize>,
    }

    impl<const CALLS: bool> Dialect for Counted<CALLS> {
        type Entry = squeue::Entry;
        type Completion = cqueue::Entry;
        const CALLS: bool = CALLS;

        fn file(&self) -> &OpenFile {
            self.plain.file()
        }

        fn entry(&self, transfer: &Transfer, user_data: u64) -> squeue::Entry {
            let entry = self.plain.entry(transfer, user_data);
            let fixed = [opcode::ReadFixed::CODE, opcode::WriteFixed::CODE];
            let is_fixed = fixed.iter().any(|code| entry.get_opcode() == u32::from(*code));
            self.registered.fetch_add(usize::from(is_fixed), Ordering::Relaxed);
            entry
        }

        fn call(&self, transfer: &Transfer) -> i32 {
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.plain.call(transfer)
        }

        fn completion(entry: &cqueue::Entry) -> (u64, i32) {
            Plain::completion(entry)
        }

        fn moved(&self, result: i32, most: usize, operation: &'static str) -> Result<Moved> {
            self.plain.moved(result, most, operation)
        }

        fn trim(&self, block: u64, blocks: u64) -> Result<()> {
            self.plain.trim(block, blocks)
        }
    }

    /// A queue of a new file that sleeps; as [`waiting`].
    fn queue(path: &std::path::Path, call: Duration) -> RingQueue<Counted<true>> {
        waiting(path, call, Wait::Sleep)
    }

    /// A queue of a new file, and what was seen of commands that take so long by calls; through the
    /// ring each takes a millisecond.
    fn waiting<const CALLS: bool>(
        path: &std::path::Path,
        call: Duration,
        wait: Wait,
    ) -> RingQueue<Counted<CALLS>> {
        let (create_bytes, io) = (Some(1 << 20), Io::Uring);
        let options = OpenOptions { create_bytes, wait, ..OpenOptions::new(io) };
        let plain = Plain(Arc::new(OpenFile::open(path, &options).expect("opens")));
        let counted = Counted { plain, calls: Arc::default(), registered: Arc::default() };
        let mut queue = RingQueue::open(counted, Ownership::Thread).expect("there are rings");
        let mut memory = [0; BLOCK];
        let reads = [Command::Read { block: 0, into: &mut memory }];
        let writes = [Command::Write { block: 0, from: &[0; BLOCK] }];
        for likes in [&reads[..], &writes].map(|it| Likes::of(it).expect("they are alike")) {
            for ways in [&mut queue.ways, &mut queue.ways_alone] {
                for _ in 0..9 {
                    ways.note_ring(likes, Duration::from_millis(1), 1);
                    ways.note_calls(likes, call, 1);
                }
                // Past the look that is due first: what it finds hangs on how busy the machine is.
                // The choice of calls began the count of batches anew.
                let batches = if call < Duration::from_millis(1) { 2 } else { 3 };
                for _ in 0..batches {
                    ways.next(likes);
                }
            }
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
                let calls = queue.counted().calls.swap(0, Ordering::Relaxed);
                assert_eq!(calls, if name == "calls" { 2 * COUNT } else { 0 }, "{name}");
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

    /// So many reads of a block, one at a time.
    fn read_alone<const CALLS: bool>(queue: &mut RingQueue<Counted<CALLS>>, reads: u64) {
        let meter = Meter::default();
        let mut memory = crate::AlignedBuffer::new(BLOCK, 4096);
        for block in 0..reads {
            let read = Command::Read { block, into: &mut memory };
            queue.run(&mut [read], &meter).expect("reads");
        }
        assert_eq!(meter.reading().get(DeviceMetric::Reads), reads);
    }

    #[test]
    fn a_command_that_is_alone_goes_by_a_call_unless_the_ring_is_polled_and_faster() {
        let scratch = Scratch::new("alone");
        let (fast, slow) = (Duration::from_micros(1), Duration::from_secs(1));
        for (name, call, wait, by_calls) in [
            ("sleeps", slow, Wait::Sleep, 3),
            ("calls", fast, Wait::Poll, 3),
            ("ring", slow, Wait::Poll, 0),
        ] {
            let mut queue = waiting::<true>(&scratch.path().join(name), call, wait);
            // No more than come before the next look: what they take is learned.
            read_alone(&mut queue, 3);
            let calls = queue.counted().calls.load(Ordering::Relaxed);
            assert_eq!(calls, by_calls, "{name}");
            queue.run(&mut [Command::Flush], &Meter::default()).expect("flushes");
            let calls = queue.counted().calls.load(Ordering::Relaxed);
            assert_eq!(calls, by_calls + 1, "{name}: a flush is a call");
        }
    }

    #[test]
    fn who_polls_does_not_sleep() {
        const READS: u64 = 200;
        let scratch = Scratch::new("polls");
        let path = scratch.path().join("disk");
        // Without calls there is but the ring.
        let mut queue = waiting::<false>(&path, Duration::from_secs(1), Wait::Poll);
        // What was never written is read without the disk.
        let all = crate::AlignedBuffer::new(READS as usize * BLOCK, 4096);
        let places = all.chunks_exact(BLOCK).zip(0u64..);
        let mut writes: Vec<_> =
            places.map(|(from, block)| Command::Write { block, from }).collect();
        queue.run(&mut writes, &Meter::default()).expect("writes");
        let before = sleeps().expect("Linux tells");
        read_alone(&mut queue, READS);
        let slept = sleeps().expect("Linux tells") - before;
        assert!(slept < READS as i64 / 4, "it slept {slept} times");
    }

    #[test]
    fn who_reads_alone_takes_one_slot_and_a_batch_the_others() {
        let scratch = Scratch::new("slots");
        let mut queue = queue(&scratch.path().join("disk"), Duration::from_secs(1));
        let meter = Meter::default();
        let mut memory = crate::AlignedBuffer::new(COUNT * BLOCK + 1, 4096);
        queue
            .run(&mut [Command::Read { block: 0, into: &mut memory[..BLOCK] }], &meter)
            .expect("reads");
        assert_eq!(queue.slots(), (0, false), "it needs none");
        for block in 0..3 {
            let into = &mut memory[1..=BLOCK];
            queue.run(&mut [Command::Read { block, into }], &meter).expect("reads");
            assert_eq!(queue.slots(), (1, false), "a call pins nothing");
        }
        let pieces = memory[1..].chunks_exact_mut(BLOCK).zip(0u64..);
        let mut batch: Vec<_> = pieces.map(|(into, block)| Command::Read { block, into }).collect();
        queue.run(&mut batch, &meter).expect("reads");
        let (count, is_registered) = queue.slots();
        assert!(count > 1 && is_registered, "{count}");
    }

    #[test]
    fn memory_for_callers_whose_own_is_not_aligned_is_registered() {
        let scratch = Scratch::new("registered");
        let mut queue = queue(&scratch.path().join("disk"), Duration::from_secs(1));
        let meter = Meter::default();
        let mut memory = crate::AlignedBuffer::new(COUNT * BLOCK + 1, 4096);
        for (shift, registered) in [(1, COUNT - 1), (0, 0)] {
            // The first of a batch may be a look at what a call takes.
            for is_write in [true, false] {
                let before = queue.counted().registered.load(Ordering::Relaxed);
                let pieces = memory[shift..shift + COUNT * BLOCK].chunks_exact_mut(BLOCK);
                let mut batch: Vec<_> = pieces
                    .zip(0u64..)
                    .map(|(into, block)| match is_write {
                        true => Command::Write { block, from: into },
                        false => Command::Read { block, into },
                    })
                    .collect();
                queue.run(&mut batch, &meter).expect("runs");
                let found = queue.counted().registered.load(Ordering::Relaxed) - before;
                let most = if registered == 0 { 0 } else { COUNT };
                assert!((registered..=most).contains(&found), "{is_write} {shift}: {found}");
            }
        }
    }
}

//! The disciplines by which threads share a device's queues, as the paper on DuckDB over xNVMe
//! compares them. It decides which queue a thread gets; what runs on it is the caller's matter.
//!
//! Every discipline waits for what it gave to a queue before it lets go of it, so a completion is
//! always taken by the thread that asked.

use crate::device::{Command, Device, Ownership, Queue};
use crate::meter::Listed;
use crate::open::by_name;
use penstock_base::Result;
use std::cell::RefCell;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

/// How the threads of a process share queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// A queue per thread, one command at a time.
    Sync,
    /// One queue behind a lock.
    Single,
    /// As many queues as processors, each behind a lock; a thread takes a free one.
    Pool,
    /// A queue per thread.
    Thread,
}

impl Discipline {
    /// Every discipline, its name, and what it is.
    pub const ALL: &'static [(Discipline, &'static str, &'static str)] = &[
        (Discipline::Sync, "sync", "a queue per thread, one command at a time"),
        (Discipline::Single, "single", "one queue behind a lock"),
        (Discipline::Pool, "pool", "as many queues as processors, each behind a lock"),
        (Discipline::Thread, "thread", "a queue per thread"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }

    /// Finds a discipline by its name.
    ///
    /// # Errors
    /// `Invalid`, naming the nearest known one.
    pub fn by_name(name: &str) -> Result<Self> {
        by_name("queues", name, Self::ALL, &[])
    }
}

/// A queue with its meter.
pub(crate) struct Lane {
    // Before the meter, which goes to the device's when nothing is added any more.
    queue: Box<dyn Queue>,
    meter: Listed,
}

impl Lane {
    fn open(device: &dyn Device, ownership: Ownership) -> Result<Self> {
        Ok(Lane { queue: device.open_queue(ownership)?, meter: Listed::new(device.name()) })
    }

    /// As [`Queue::run`], counted.
    pub(crate) fn run(&mut self, commands: &mut [Command<'_>]) -> Result<()> {
        self.queue.run(commands, self.meter.meter())
    }
}

type Slot = Mutex<Lane>;

/// Queues of one device.
pub(crate) enum Queues {
    Shared(Vec<Slot>),
    Owned(Arc<Owned>),
}

impl Queues {
    pub(crate) fn new(device: &dyn Device, discipline: Discipline) -> Result<Self> {
        let count = match discipline {
            Discipline::Sync | Discipline::Thread => {
                return Ok(Queues::Owned(Arc::new(Owned::default())));
            }
            Discipline::Single => 1,
            Discipline::Pool => std::thread::available_parallelism().map_or(1, NonZero::get),
        };
        let open = |_| Lane::open(device, Ownership::Shared).map(Mutex::new);
        Ok(Queues::Shared((0..count).map(open).collect::<Result<_>>()?))
    }

    /// Opens the queue of this thread, where each has its own.
    pub(crate) fn open(&self, device: &dyn Device) -> Result<()> {
        match self {
            Queues::Shared(_) => Ok(()),
            Queues::Owned(owned) => owned.of_this_thread(device).map(drop),
        }
    }

    /// Lets `job` use a queue that no other thread uses meanwhile.
    pub(crate) fn with<T>(
        &self,
        device: &dyn Device,
        job: impl FnOnce(&mut Lane) -> Result<T>,
    ) -> Result<T> {
        match self {
            Queues::Shared(slots) => job(&mut take(slots)),
            Queues::Owned(owned) => {
                let Some(slot) = owned.of_this_thread(device)? else {
                    return job(&mut Lane::open(device, Ownership::Shared)?);
                };
                let mut lane = lock(&slot);
                match lane.as_mut() {
                    Some(lane) => job(lane),
                    None => unreachable!("a queue is taken away only when its port is dropped"),
                }
            }
        }
    }
}

/// A panic inside a queue leaves nothing in flight, so its lock may be used on.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A free queue, looked for from a place of the thread's own; if all are busy, that one.
fn take(slots: &[Slot]) -> MutexGuard<'_, Lane> {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let first = hasher.hash_one(std::thread::current().id()) as usize % slots.len();
    for step in 0..slots.len() {
        match slots[(first + step) % slots.len()].try_lock() {
            Ok(queue) => return queue,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {}
        }
    }
    lock(&slots[first])
}

/// A thread's queue. Only its thread uses it, so the lock is free; it is there so that the port can
/// close the queues of other threads when it goes.
type OwnedSlot = Mutex<Option<Lane>>;

/// The queues that threads own at one port.
#[derive(Default)]
pub(crate) struct Owned {
    slots: Mutex<Vec<Arc<OwnedSlot>>>,
}

thread_local! {
    /// The queues of this thread, one for each port it has used.
    static LEASES: RefCell<Vec<Lease>> = const { RefCell::new(Vec::new()) };
}

/// A thread's hold on its queue at one port; the queue goes with the thread or with the port.
struct Lease {
    owner: Weak<Owned>,
    slot: Arc<OwnedSlot>,
    process: u32,
}

impl Owned {
    /// `None` in a thread that ends and has lost its leases already: a database may be closed from
    /// another thread-local of it, or, in the main thread, when the program exits (`atexit`,
    /// destructors of statics).
    fn of_this_thread(self: &Arc<Self>, device: &dyn Device) -> Result<Option<Arc<OwnedSlot>>> {
        let here = Arc::as_ptr(self);
        let found = LEASES.try_with(|leases| {
            let leases = leases.borrow();
            let mine = leases.iter().find(|lease| lease.owner.as_ptr() == here);
            mine.map(|lease| lease.slot.clone())
        });
        match found {
            Ok(None) => {}
            Ok(Some(slot)) => return Ok(Some(slot)),
            Err(_) => return Ok(None),
        }
        let lane = Lane::open(device, Ownership::Thread)?;
        let slot = Arc::new(Mutex::new(Some(lane)));
        lock(&self.slots).push(slot.clone());
        LEASES.with_borrow_mut(|leases| {
            leases.retain(|lease| lease.owner.strong_count() > 0);
            let (owner, process) = (Arc::downgrade(self), std::process::id());
            leases.push(Lease { owner, slot: slot.clone(), process });
        });
        Ok(Some(slot))
    }

    /// Queues that are open now.
    #[cfg(test)]
    fn count(&self) -> usize {
        lock(&self.slots).len()
    }
}

impl Owned {
    /// Closes the queues of all threads. One that a thread which ends is closing is waited for:
    /// when this returns nothing holds the device any more.
    fn close(&self) {
        for slot in lock(&self.slots).drain(..) {
            lock(&slot).take();
        }
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        if let Queues::Owned(owned) = self {
            owned.close();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // A child of a fork: the ring is its parent's, and so are the locks.
            std::mem::forget(self.slot.clone());
            return;
        }
        if let Some(owner) = self.owner.upgrade() {
            let mut slots = lock(&owner.slots);
            slots.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
            // Under the lock of all, for which `Owned::close` waits.
            lock(&self.slot).take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Meter;
    use crate::{Geometry, MemoryDevice};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_queue_goes_with_its_thread_or_with_its_port() {
        let device = MemoryDevice::new(512, 8, 512).expect("the sizes are right");
        let queues = Queues::new(&device, Discipline::Thread).expect("memory has queues");
        let Queues::Owned(owned) = &queues else { unreachable!("threads own queues") };
        queues.with(&device, |_| Ok(())).expect("memory has queues");
        queues.with(&device, |_| Ok(())).expect("memory has queues");
        assert_eq!(owned.count(), 1, "the second use finds the queue of the first");
        std::thread::scope(|scope| {
            let other = scope.spawn(|| queues.with(&device, |_| Ok(owned.count())));
            assert_eq!(other.join().expect("no panic").expect("memory has queues"), 2);
        });
        let slot = owned.of_this_thread(&device).expect("it is there").expect("with its leases");
        assert!(lock(&slot).is_some());
        drop(queues);
        assert!(lock(&slot).is_none(), "the port closes the queues of every thread");
    }

    /// What is closed by a thread's own locals finds the thread without its leases.
    #[test]
    fn a_thread_that_has_lost_its_leases_has_a_queue_for_each_job() {
        struct Closes(Arc<(MemoryDevice, Queues)>, std::sync::mpsc::Sender<bool>);
        impl Drop for Closes {
            fn drop(&mut self) {
                let (device, queues) = &*self.0;
                let is_lost = LEASES.try_with(|_| ()).is_err();
                let ran = queues.with(device, |_| Ok(())).is_ok();
                self.1.send(is_lost && ran).expect("the test waits");
            }
        }
        thread_local! {
            static CLOSES: RefCell<Option<Closes>> = const { RefCell::new(None) };
        }
        let device = MemoryDevice::new(512, 8, 512).expect("the sizes are right");
        let queues = Queues::new(&device, Discipline::Thread).expect("memory has queues");
        let all = Arc::new((device, queues));
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // Locals go in the reverse order of their first use.
            CLOSES.set(Some(Closes(all.clone(), tell)));
            all.1.with(&all.0, |_| Ok(())).expect("memory has queues");
        });
        assert!(told.recv().expect("it is told"));
    }

    /// A device that counts its open queues, which are slow to close.
    struct Counted(MemoryDevice, Arc<AtomicUsize>);

    impl Device for Counted {
        fn name(&self) -> &str {
            self.0.name()
        }

        fn geometry(&self) -> &Geometry {
            self.0.geometry()
        }

        fn open_queue(&self, ownership: Ownership) -> Result<Box<dyn Queue>> {
            self.1.fetch_add(1, Ordering::SeqCst);
            Ok(Box::new(Slow(self.0.open_queue(ownership)?, self.1.clone())))
        }
    }

    struct Slow(Box<dyn Queue>, Arc<AtomicUsize>);

    impl Queue for Slow {
        fn run(&mut self, commands: &mut [Command<'_>], meter: &Meter) -> Result<()> {
            self.0.run(commands, meter)
        }
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            for _ in 0..100 {
                std::thread::yield_now();
            }
            self.1.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_thread_that_ends_meanwhile_does_not_keep_the_device() {
        let memory = MemoryDevice::new(512, 8, 512).expect("the sizes are right");
        let open = Arc::new(AtomicUsize::new(0));
        let device = Counted(memory, open.clone());
        for _ in 0..200 {
            let queues = Queues::new(&device, Discipline::Thread).expect("memory has queues");
            // A scope ends before its threads have left behind what was theirs.
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| queues.with(&device, |_| Ok(())));
                }
            });
            drop(queues);
            assert_eq!(open.load(Ordering::SeqCst), 0);
        }
    }

    #[test]
    fn a_misspelt_name_is_told_the_nearest() {
        let error = Discipline::by_name("thred").expect_err("it is misspelt");
        assert!(error.to_string().contains("thread"), "{error}");
        for row in Discipline::ALL {
            assert_eq!(Discipline::by_name(row.1).expect("it is known"), row.0);
        }
    }
}

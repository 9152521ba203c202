//! Memory of what a volume reads ahead and writes behind, and who answers for it. It decides what
//! of it the volume can do without at any moment, and that several pieces lie in one huge page,
//! where so much may be held: the kernel pins such a piece, and a disk takes it, as one stretch
//! instead of 64 pages. How much there may be, whoever answers decides; what he refuses, the
//! callers read and write themselves.
//!
//! A huge page goes back whole, and is leased whole: a piece that nobody needs is of use to others
//! only with its neighbours. Where the kernel has no huge pages all is the same, in small ones.

use crate::buffer::AlignedBuffer;
use crate::kernel::large::{HUGE_PAGE_BYTES, LargeBuffer};
use crate::kernel::part::BufferPart;
use crate::port::Port;
use crate::process::Own;
use crate::volume::Volume;
use crate::volume::ahead::Kept;
use crate::volume::behind::{Pool, Spilled};
use crate::volume::copies::memory;
use crate::volume::side::{Side, Sides, SpillsMost};
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError, Weak};

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Bytes that nobody has asked for yet.
    Ahead,
    /// Bytes on their way to the device.
    Behind,
    /// Bytes of spilled files, which go to the device only where memory is short.
    Spilled,
}

/// The right to hold memory, until it is dropped.
pub trait Leased: Send + Sync {
    /// Says that the memory is about to come back.
    fn set_returning(&self);

    /// Says that it does not, after all.
    fn set_staying(&self);

    /// Where it is entered.
    fn side(&self) -> Side {
        Side::Within
    }

    /// Enters what lies beside the account of those who wait in it, if there is room. Whether it
    /// lies within now.
    fn move_within(&self) -> bool {
        self.side() == Side::Within
    }
}

/// See [`Leased`].
pub type Lease = Box<dyn Leased>;

/// Who answers for the memory of volumes.
pub trait Account: Send + Sync {
    /// How much of spilled files a volume may hold that holds so many bytes now.
    fn spilled_most(&self, held_bytes: Sides<u64>) -> SpillsMost;

    /// The right to hold so many bytes; none where they are more than there may be.
    fn lease(&self, bytes: u64, purpose: Purpose) -> Option<Lease>;
}

/// Memory, and the right to hold it.
pub(crate) struct Held {
    // Before the right to hold it.
    bytes: Bytes,
    lease: Option<Arc<Lease>>,
}

enum Bytes {
    Own(AlignedBuffer),
    Part(BufferPart),
}

impl Deref for Held {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Own(buffer) => buffer,
            Bytes::Part(part) => part,
        }
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.bytes {
            Bytes::Own(buffer) => buffer,
            Bytes::Part(part) => part,
        }
    }
}

impl Held {
    /// The right to hold it, which does not hold it.
    pub(crate) fn lease(&self) -> Weak<Lease> {
        self.lease.as_ref().map_or_else(Weak::new, Arc::downgrade)
    }

    /// Tells pieces that come back together from others.
    pub(crate) fn place(&self) -> usize {
        match &self.bytes {
            Bytes::Own(buffer) => buffer.as_ptr().addr(),
            Bytes::Part(part) => part.buffer(),
        }
    }
}

/// What would come back if some pieces went: those that are alone, and huge pages of which every
/// piece is among them.
#[derive(Default)]
pub(crate) struct Tally {
    alone_bytes: u64,
    /// Of each huge page how many pieces were counted, and how many there are.
    pages: HashMap<usize, (usize, usize)>,
}

impl Tally {
    /// Counts a piece.
    pub(crate) fn add(&mut self, held: &Held) {
        match &held.bytes {
            Bytes::Own(buffer) => self.alone_bytes += buffer.len() as u64,
            Bytes::Part(part) => {
                let (counted, all) = self.pages.entry(part.buffer()).or_default();
                (*counted, *all) = (*counted + 1, part.siblings());
            }
        }
    }

    fn is_whole(&self, held: &Held) -> bool {
        match &held.bytes {
            Bytes::Own(_) => true,
            Bytes::Part(part) => {
                self.pages.get(&part.buffer()).is_some_and(|(counted, all)| counted == all)
            }
        }
    }

    /// So many bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let whole = self.pages.values().filter(|(counted, all)| counted == all);
        self.alone_bytes + (whole.count() * HUGE_PAGE_BYTES) as u64
    }
}

/// Divides pieces into those that give memory back if all of them go, and those that give none:
/// others have pieces of the same huge pages. Those of one huge page stand together.
pub(crate) fn divided(mut held: Vec<Held>) -> (Vec<Held>, Vec<Held>) {
    let mut tally = Tally::default();
    held.iter().for_each(|held| tally.add(held));
    held.sort_by_key(Held::place);
    held.into_iter().partition(|held| tally.is_whole(held))
}

/// Where the helpers of a volume get their memory: anywhere, until somebody answers for it.
#[derive(Default)]
pub(crate) struct Source(OnceLock<Arc<dyn Account>>);

impl Source {
    /// Pieces of memory for commands of a port: a huge page of them, or one where no more may be
    /// held, or none.
    pub(crate) fn get(&self, port: &Port, bytes: usize, purpose: Purpose) -> Vec<Held> {
        let fits = bytes < HUGE_PAGE_BYTES
            && bytes.is_multiple_of(port.geometry().buffer_alignment_bytes.max(1) as usize);
        if fits && let Some(lease) = self.lease(HUGE_PAGE_BYTES, purpose) {
            let buffer = match purpose {
                // So much of it is filled at once that the kernel would have to look for huge
                // pages, and clear them; and most of it never moves to or from the device.
                Purpose::Spilled => LargeBuffer::of_any_pages(HUGE_PAGE_BYTES),
                Purpose::Ahead | Purpose::Behind => LargeBuffer::new(HUGE_PAGE_BYTES),
            };
            let parts = BufferPart::divide(buffer, bytes);
            let held = |part| Held { bytes: Bytes::Part(part), lease: lease.clone() };
            return parts.into_iter().map(held).collect();
        }
        self.one(port, bytes, purpose).into_iter().collect()
    }

    /// One piece of memory, if it may be held.
    pub(crate) fn one(&self, port: &Port, bytes: usize, purpose: Purpose) -> Option<Held> {
        let lease = self.lease(bytes, purpose)?;
        Some(Held { bytes: Bytes::Own(memory(port, bytes)), lease })
    }

    /// How much of spilled files may be held where so many bytes are.
    pub(crate) fn spilled_most(&self, held_bytes: Sides<u64>) -> SpillsMost {
        /// Where nobody answers.
        const MOST_BYTES: u64 = 16 << 20;
        match self.0.get() {
            Some(account) => account.spilled_most(held_bytes),
            None => SpillsMost::anywhere(MOST_BYTES),
        }
    }

    /// The right to hold so much, where somebody answers for it; `None` if it may not be held.
    #[expect(clippy::option_option, reason = "there may be nobody to ask")]
    fn lease(&self, bytes: usize, purpose: Purpose) -> Option<Option<Arc<Lease>>> {
        match self.0.get() {
            Some(account) => Some(Some(Arc::new(account.lease(bytes as u64, purpose)?))),
            None => Some(None),
        }
    }
}

/// The lock if nobody has it.
pub(crate) fn at_once<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// What a volume holds beside its callers. Whoever answers for it looks at it through this, which
/// has nothing of the device: it may be the last to let it go, on any thread, and that must not
/// close a volume.
pub struct Memory(Own<Parts>);

struct Parts {
    source: Arc<Source>,
    ahead: Arc<Kept>,
    behind: Arc<Pool>,
    spilled: Arc<Spilled>,
}

impl Memory {
    pub(crate) fn new(
        source: Arc<Source>,
        ahead: Arc<Kept>,
        behind: Arc<Pool>,
        spilled: Arc<Spilled>,
    ) -> Self {
        Memory(Own::new(Parts { source, ahead, behind, spilled }))
    }

    /// Bytes that [`Memory::free`] would give to those who wait for memory; `None` while others are
    /// at them. Neither waits for a lock. In a child of a fork there are none: the locks may be
    /// held for ever.
    pub fn spare_bytes(&self) -> Option<u64> {
        if !self.0.is_here() {
            return Some(0);
        }
        let Parts { ahead, behind, spilled, .. } = &*self.0;
        Some(ahead.spare_bytes()? + behind.spare_bytes()? + spilled.spare_bytes()?)
    }

    /// Bytes of spilled files that [`Memory::write_spilled`] would have written, for those who wait
    /// for memory ([`Side::Within`]); `None` while others are at them.
    pub fn spilled_bytes(&self) -> Option<u64> {
        if self.0.is_here() { self.0.spilled.writable_bytes() } else { Some(0) }
    }

    /// Has a part of that written, so that its memory returns. Whether there was any; `None` while
    /// others are at it.
    pub fn write_spilled(&self) -> Option<bool> {
        if self.0.is_here() { self.0.spilled.press() } else { Some(false) }
    }

    /// Gives those who wait for memory what nobody has use for at this moment, and drops what was
    /// read ahead. Tells whether that was anything; `None` while others are at it.
    pub fn free(&self) -> Option<bool> {
        if !self.0.is_here() {
            return Some(false);
        }
        let Parts { ahead, behind, spilled, .. } = &*self.0;
        let freed = [ahead.take(), behind.take_spares(), spilled.take_spares()];
        let is_any = freed.iter().flatten().any(|held| !held.is_empty());
        match is_any || freed.iter().all(Option::is_some) {
            true => Some(is_any),
            false => None,
        }
    }
}

impl Volume {
    /// Has somebody answer for the memory of what is read ahead and written behind, unless somebody
    /// does already, or the volume does neither.
    pub fn charge(&self, account: impl FnOnce(&Arc<Memory>) -> Arc<dyn Account>) {
        if let Some(helpers) = &self.helpers {
            helpers.memory.0.source.0.get_or_init(|| account(&helpers.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Discipline;
    use crate::model::{Image, ModelDevice};
    use std::sync::atomic::{AtomicU64, Ordering};

    const PIECE: usize = 256 << 10;
    const IN_PAGE: usize = HUGE_PAGE_BYTES / PIECE;

    /// Lets so many bytes be held, and knows how many are.
    struct Bound(u64, Arc<AtomicU64>);

    struct Told(u64, Arc<AtomicU64>);

    impl Drop for Told {
        fn drop(&mut self) {
            self.1.fetch_sub(self.0, Ordering::SeqCst);
        }
    }

    impl Leased for Told {
        fn set_returning(&self) {}

        fn set_staying(&self) {}
    }

    impl Account for Bound {
        fn spilled_most(&self, _: Sides<u64>) -> SpillsMost {
            SpillsMost::anywhere(self.0)
        }

        fn lease(&self, bytes: u64, _: Purpose) -> Option<Lease> {
            let fits = self.1.load(Ordering::SeqCst) + bytes <= self.0;
            fits.then(|| {
                self.1.fetch_add(bytes, Ordering::SeqCst);
                Box::new(Told(bytes, self.1.clone())) as Lease
            })
        }
    }

    fn source(limit: usize) -> (Port, Source, Arc<AtomicU64>) {
        let model = ModelDevice::new(4096, 64, Image::default()).expect("the sizes are right");
        let port = Port::new(Arc::new(model), Discipline::Thread).expect("opens");
        let held = Arc::<AtomicU64>::default();
        let source = Source::default();
        let bound: Arc<dyn Account> = Arc::new(Bound(limit as u64, held.clone()));
        source.0.get_or_init(|| bound);
        (port, source, held)
    }

    #[test]
    fn a_huge_page_is_held_whole_until_its_last_piece_goes() {
        let (port, source, held) = source(HUGE_PAGE_BYTES + PIECE);
        let mut pieces = source.get(&port, PIECE, Purpose::Ahead);
        assert_eq!(pieces.len(), IN_PAGE);
        for (number, piece) in pieces.iter_mut().enumerate() {
            assert_eq!(piece.len(), PIECE);
            piece.fill(number as u8);
        }
        assert!(pieces.iter().enumerate().all(|(number, piece)| piece[PIECE - 1] == number as u8));
        // No second huge page may be held, but a piece; then nothing.
        let one = source.get(&port, PIECE, Purpose::Ahead);
        assert_eq!((one.len(), one[0].len()), (1, PIECE));
        assert!(source.get(&port, PIECE, Purpose::Ahead).is_empty());
        let held_bytes = || held.load(Ordering::SeqCst) as usize;
        assert_eq!(held_bytes(), HUGE_PAGE_BYTES + PIECE);
        drop(one);
        pieces.truncate(1);
        assert_eq!(held_bytes(), HUGE_PAGE_BYTES, "one piece keeps the page");
        pieces.clear();
        assert_eq!(held_bytes(), 0);
    }

    #[test]
    fn only_what_gives_memory_back_is_told_to() {
        let (port, source, _) = source(2 * HUGE_PAGE_BYTES + PIECE);
        let mut whole = source.get(&port, PIECE, Purpose::Behind);
        let mut split = source.get(&port, PIECE, Purpose::Behind);
        let alone = source.get(&port, PIECE, Purpose::Behind);
        assert_eq!(alone.len(), 1);
        // Somebody else has one of them.
        let busy = split.pop();
        let all: Vec<Held> = whole.drain(..).chain(split.drain(..)).chain(alone).collect();
        let mut tally = Tally::default();
        all.iter().for_each(|held| tally.add(held));
        assert_eq!(tally.bytes(), (HUGE_PAGE_BYTES + PIECE) as u64);
        let (gone, kept) = divided(all);
        assert_eq!((gone.len(), kept.len()), (IN_PAGE + 1, IN_PAGE - 1));
        drop((gone, busy));
        let (gone, kept) = divided(kept);
        assert_eq!((gone.len(), kept.len()), (IN_PAGE - 1, 0), "nobody has the other any more");
    }
}

//! What of spilled files is in memory, and in which order it goes to the device. Pure: what memory
//! and pieces are, the caller knows.
//!
//! Memory comes and goes in pages (huge ones, mostly), so pages are what is chosen: first the one
//! into which nothing was put for the longest time. What DuckDB reads back it needs no more, and
//! soon it writes something else to the same place of the file or cuts it off: nothing of a page
//! has to be written then.

use crate::volume::side::{Side, Sides};
use std::collections::{BTreeMap, BTreeSet};

/// Pages of memory, each in equal pieces. `M` is the memory of a piece, `P` what lies in it.
pub(super) struct Shelf<M, P> {
    pages: BTreeMap<usize, Page<M, P>>,
    order: Order,
    /// Pieces that were given and pages that were refused, of all pages.
    clock: u64,
    /// Whether a piece was given since unused pages were last taken out.
    is_used: bool,
}

struct Page<M, P> {
    bytes: u64,
    side: Side,
    piece_bytes: usize,
    pieces: usize,
    free: Vec<M>,
    /// By the places of their pieces.
    used: BTreeMap<usize, P>,
    /// When a piece was last given, or the device refused what it holds.
    filled: u64,
    /// What it holds is being written, and it gives pieces only where there are no others.
    is_leaving: bool,
}

impl<M, P> Page<M, P> {
    fn is_idle(&self) -> bool {
        self.free.len() == self.pieces
    }
}

/// Which pages there are for what, so that nobody looks through all of them.
#[derive(Default)]
struct Order {
    /// Those that can give pieces: by the size of those, then by when they were filled.
    giving: BTreeSet<(usize, u64, usize)>,
    /// Those that could, did they not leave, in the same order.
    leaving: BTreeSet<(usize, u64, usize)>,
    /// Those that can leave, by when they were filled.
    writable: Sides<BTreeSet<(u64, usize)>>,
    idle: Sides<BTreeSet<usize>>,
    held_bytes: Sides<u64>,
    staying_bytes: Sides<u64>,
    idle_bytes: Sides<u64>,
}

impl Order {
    fn enter<M, P>(&mut self, number: usize, page: &Page<M, P>) {
        let side = page.side;
        *self.held_bytes.of_mut(side) += page.bytes;
        if page.is_idle() {
            self.idle.of_mut(side).insert(number);
            *self.idle_bytes.of_mut(side) += page.bytes;
        } else if !page.is_leaving {
            *self.staying_bytes.of_mut(side) += page.bytes;
        }
        if !page.free.is_empty() {
            let set = if page.is_leaving { &mut self.leaving } else { &mut self.giving };
            set.insert((page.piece_bytes, page.filled, number));
        }
        if !page.is_leaving && !page.used.is_empty() {
            self.writable.of_mut(side).insert((page.filled, number));
        }
    }

    fn leave<M, P>(&mut self, number: usize, page: &Page<M, P>) {
        let side = page.side;
        *self.held_bytes.of_mut(side) -= page.bytes;
        if self.idle.of_mut(side).remove(&number) {
            *self.idle_bytes.of_mut(side) -= page.bytes;
        } else if !page.is_leaving {
            *self.staying_bytes.of_mut(side) -= page.bytes;
        }
        let set = if page.is_leaving { &mut self.leaving } else { &mut self.giving };
        set.remove(&(page.piece_bytes, page.filled, number));
        self.writable.of_mut(side).remove(&(page.filled, number));
    }
}

/// The page with pieces of a size that was filled last.
fn last_of(pages: &BTreeSet<(usize, u64, usize)>, piece_bytes: usize) -> Option<usize> {
    let of_size = (piece_bytes, 0, 0)..=(piece_bytes, u64::MAX, usize::MAX);
    Some(pages.range(of_size).next_back()?.2)
}

impl<M, P> Default for Shelf<M, P> {
    fn default() -> Self {
        Shelf { pages: BTreeMap::new(), order: Order::default(), clock: 0, is_used: false }
    }
}

impl<M, P: Clone> Shelf<M, P> {
    /// Bytes of all pages.
    pub fn held_bytes(&self) -> Sides<u64> {
        self.order.held_bytes
    }

    /// Bytes of pages that hold something and do not leave.
    pub fn staying_bytes(&self) -> Sides<u64> {
        self.order.staying_bytes
    }

    /// Bytes of pages that hold nothing.
    pub fn idle_bytes(&self) -> Sides<u64> {
        self.order.idle_bytes
    }

    /// Changes a page, if it is there.
    fn change<T>(&mut self, number: usize, work: impl FnOnce(&mut Page<M, P>) -> T) -> Option<T> {
        let page = self.pages.get_mut(&number)?;
        self.order.leave(number, page);
        let outcome = work(page);
        self.order.enter(number, page);
        Some(outcome)
    }

    /// Takes a page out; the memory of its pieces that are not in use.
    fn remove(&mut self, number: usize) -> Vec<M> {
        let Some(page) = self.pages.remove(&number) else { return Vec::new() };
        self.order.leave(number, &page);
        page.free
    }

    /// Adds a page of equal pieces, none of which is in use.
    pub fn add(&mut self, number: usize, page: (u64, Side), piece_bytes: usize, free: Vec<M>) {
        let ((bytes, side), pieces, filled) = (page, free.len(), self.clock);
        let (used, is_leaving) = (BTreeMap::new(), false);
        let page = Page { bytes, side, piece_bytes, pieces, free, used, filled, is_leaving };
        self.order.enter(number, &page);
        self.pages.insert(number, page);
    }

    /// A piece of so many bytes, of the page that was filled last: the others become free sooner.
    pub fn take(&mut self, piece_bytes: usize) -> Option<M> {
        self.take_of(last_of(&self.order.giving, piece_bytes)?)
    }

    /// As [`Shelf::take`], of a page that leaves: it stays once this piece is filled.
    pub fn take_of_leaving(&mut self, piece_bytes: usize) -> Option<M> {
        self.take_of(last_of(&self.order.leaving, piece_bytes)?)
    }

    fn take_of(&mut self, number: usize) -> Option<M> {
        self.clock += 1;
        self.is_used = true;
        let clock = self.clock;
        self.change(number, |page| {
            page.filled = clock;
            page.free.pop()
        })?
    }

    /// Says what lies in a piece that was taken. Its page stays, if it was about to leave: nobody
    /// would write this. Whether it was.
    pub fn fill(&mut self, page: usize, place: usize, part: P) -> bool {
        let filled = self.change(page, |page| {
            page.used.insert(place, part);
            std::mem::take(&mut page.is_leaving)
        });
        filled.unwrap_or(false)
    }

    /// Takes a piece back, of which nobody has use any more; the memory of its page, if that is to
    /// go.
    pub fn put_back(&mut self, page: usize, place: usize, memory: M) -> Vec<M> {
        if !self.pages.contains_key(&page) {
            return vec![memory];
        }
        let goes = self.change(page, |found| {
            found.used.remove(&place);
            found.free.push(memory);
            found.is_idle() && found.is_leaving
        });
        if goes == Some(true) { self.remove(page) } else { Vec::new() }
    }

    /// Takes out the pages of a side that hold nothing.
    pub fn take_idle(&mut self, side: Side) -> Vec<M> {
        let mut gone = Vec::new();
        while let Some(page) = self.order.idle.of(side).first() {
            gone.extend(self.remove(*page));
        }
        gone
    }

    /// Takes out pages that hold nothing, but for so many bytes of them, if no piece was given
    /// since this was last done.
    pub fn take_unused(&mut self, kept_bytes: u64) -> Vec<M> {
        let mut gone = Vec::new();
        if std::mem::take(&mut self.is_used) {
            return gone;
        }
        for side in Side::ALL {
            while self.idle_bytes().sum() > kept_bytes
                && let Some(page) = self.order.idle.of(side).first()
            {
                gone.extend(self.remove(*page));
            }
        }
        gone
    }

    /// The page that is written next where so many bytes may stay; it leaves.
    pub fn next(&mut self, most_bytes: u64) -> Option<(usize, Vec<P>)> {
        if self.staying_bytes().sum() <= most_bytes {
            return None;
        }
        let oldest = Side::ALL.iter().filter_map(|side| self.order.writable.of(*side).first());
        self.leave(oldest.min()?.1)
    }

    /// The page of a side that is written next where so many bytes of that side may stay.
    pub fn next_of(&self, side: Side, most_bytes: u64) -> Option<usize> {
        let is_more = *self.staying_bytes().of(side) > most_bytes;
        is_more.then(|| self.order.writable.of(side).first())?.map(|(_, number)| *number)
    }

    /// Says on which side a page lies now.
    pub fn set_side(&mut self, number: usize, side: Side) {
        self.change(number, |page| page.side = side);
    }

    /// Pages of a side that can be written, and their bytes, in the order in which they are.
    pub fn writable(&self, side: Side) -> impl Iterator<Item = (usize, u64)> {
        let pages = self.order.writable.of(side).iter();
        pages.filter_map(|(_, number)| Some((*number, self.pages.get(number)?.bytes)))
    }

    /// Has a page leave, to be written.
    pub fn leave(&mut self, number: usize) -> Option<(usize, Vec<P>)> {
        let parts = self.change(number, |page| {
            page.is_leaving = true;
            page.used.values().cloned().collect()
        });
        Some((number, parts?))
    }

    /// Keeps a page that was to leave: it could not be written. All others are tried before it is
    /// again.
    pub fn stay(&mut self, page: usize) {
        self.clock += 1;
        let clock = self.clock;
        self.change(page, |page| {
            page.is_leaving = false;
            page.filled = clock;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE_BYTES: u64 = 1 << 20;
    const PIECES: usize = 4;

    /// What the tests know: of each piece its page, its place, and when it was filled.
    type Filled = Vec<(usize, usize, u64)>;

    #[derive(Clone, Debug)]
    enum Step {
        Fill,
        Free(usize),
        Write { most_pages: u64, works: bool },
        TakeIdle,
        Look { kept_pages: u64 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            8 => Just(Step::Fill),
            4 => (0usize..1000).prop_map(Step::Free),
            2 => (0u64..8, any::<bool>())
                .prop_map(|(most_pages, works)| Step::Write { most_pages, works }),
            1 => Just(Step::TakeIdle),
            2 => (0u64..4).prop_map(|kept_pages| Step::Look { kept_pages }),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn pages_leave_oldest_first_with_all_they_hold_and_no_piece_is_lost(steps in steps()) {
            let mut shelf: Shelf<(usize, usize), u64> = Shelf::default();
            let (mut filled, mut pages, mut clock): (Filled, usize, u64) = Default::default();
            let (mut gone, mut is_used) = (0, false);
            for step in steps {
                match step {
                    Step::Fill => {
                        if shelf.take(8).is_some() {
                            prop_assert!(false, "no page has such pieces");
                        }
                        let (page, place) = match shelf.take(16) {
                            Some(piece) => piece,
                            None => {
                                pages += 1;
                                let pieces = (0..PIECES).map(|place| (pages, place)).collect();
                                // Every other one lies beside the limit.
                                let side = Side::ALL[pages % 2];
                                shelf.add(pages, (PAGE_BYTES, side), 16, pieces);
                                shelf.take(16).expect("there is a page now")
                            }
                        };
                        prop_assert!(!filled.iter().any(|row| (row.0, row.1) == (page, place)));
                        (clock, is_used) = (clock + 1, true);
                        shelf.fill(page, place, clock);
                        filled.push((page, place, clock));
                    }
                    Step::Free(_) if filled.is_empty() => {}
                    Step::Free(which) => {
                        let (page, place, _) = filled.swap_remove(which % filled.len());
                        gone += shelf.put_back(page, place, (page, place)).len();
                    }
                    Step::TakeIdle => {
                        let idle = Side::ALL.map(|side| shelf.take_idle(side).len());
                        gone += idle.iter().sum::<usize>();
                        prop_assert_eq!(shelf.idle_bytes().sum(), 0);
                    }
                    Step::Look { kept_pages } => {
                        let (before, kept) = (shelf.idle_bytes().sum(), kept_pages * PAGE_BYTES);
                        gone += shelf.take_unused(kept).len();
                        let left = if is_used { before } else { before.min(kept) };
                        prop_assert_eq!(shelf.idle_bytes().sum(), left);
                        is_used = false;
                    }
                    Step::Write { most_pages, works } => {
                        let staying = shelf.staying_bytes().sum();
                        let mut used: Vec<usize> = filled.iter().map(|row| row.0).collect();
                        used.sort_unstable();
                        used.dedup();
                        prop_assert_eq!(staying, used.len() as u64 * PAGE_BYTES);
                        let Some((page, parts)) = shelf.next(most_pages * PAGE_BYTES) else {
                            prop_assert!(staying <= most_pages * PAGE_BYTES);
                            continue;
                        };
                        prop_assert!(staying > most_pages * PAGE_BYTES);
                        // All that lies in it.
                        let mut own: Vec<u64> =
                            filled.iter().filter(|row| row.0 == page).map(|row| row.2).collect();
                        own.sort_unstable();
                        let mut told = parts;
                        told.sort_unstable();
                        prop_assert_eq!(&told, &own);
                        prop_assert_eq!(shelf.staying_bytes().sum(), staying - PAGE_BYTES);
                        if works {
                            let left: Filled =
                                filled.extract_if(.., |row| row.0 == page).collect();
                            let freed: usize = left
                                .iter()
                                .map(|row| shelf.put_back(row.0, row.1, (row.0, row.1)).len())
                                .sum();
                            prop_assert_eq!(freed, PIECES, "its memory goes with its last piece");
                            gone += freed;
                        } else {
                            shelf.stay(page);
                            prop_assert_eq!(shelf.staying_bytes().sum(), staying);
                        }
                    }
                }
                let there = pages * PIECES - gone;
                prop_assert_eq!(shelf.held_bytes().sum(), (there / PIECES) as u64 * PAGE_BYTES);
            }
        }

        #[test]
        fn the_page_that_was_filled_longest_ago_goes_first(refilled in 0usize..6) {
            let mut shelf: Shelf<(usize, usize), usize> = Shelf::default();
            for page in 0..6 {
                shelf.add(page, (PAGE_BYTES, Side::ALL[page % 2]), 16, vec![(page, 0)]);
                let (page, place) = shelf.take(16).expect("it is new");
                shelf.fill(page, place, page);
            }
            // One is written anew.
            shelf.put_back(refilled, 0, (refilled, 0));
            let (page, place) = shelf.take(16).expect("it is free");
            shelf.fill(page, place, page);
            let order: Vec<usize> =
                std::iter::from_fn(|| shelf.next(0)).map(|(page, _)| page).collect();
            let others = (0..6).filter(|page| *page != refilled);
            prop_assert_eq!(order, others.chain([refilled]).collect::<Vec<_>>());
            prop_assert_eq!(shelf.staying_bytes().sum(), 0);
        }
    }

    #[test]
    fn each_side_gives_its_own_and_a_page_may_change_sides() {
        let mut shelf: Shelf<usize, usize> = Shelf::default();
        for (page, side) in [(1, Side::Beside), (2, Side::Within), (3, Side::Beside)] {
            shelf.add(page, (PAGE_BYTES, side), 16, vec![0]);
            let place = shelf.take(16).expect("it is new");
            shelf.fill(page, place, page);
        }
        let sides = |within: u64, beside: u64| Sides {
            within: within * PAGE_BYTES,
            beside: beside * PAGE_BYTES,
        };
        assert_eq!((shelf.held_bytes(), shelf.staying_bytes()), (sides(1, 2), sides(1, 2)));
        assert_eq!(shelf.next_of(Side::Beside, 2 * PAGE_BYTES), None, "so much may stay");
        assert_eq!(shelf.next_of(Side::Beside, PAGE_BYTES), Some(1), "the older of both");
        assert_eq!(shelf.next_of(Side::Within, 0), Some(2));
        shelf.set_side(1, Side::Within);
        assert_eq!((shelf.held_bytes(), shelf.staying_bytes()), (sides(2, 1), sides(2, 1)));
        assert_eq!(shelf.next_of(Side::Within, PAGE_BYTES), Some(1), "by its age");
        assert_eq!(shelf.writable(Side::Within).count(), 2);
        assert!(shelf.put_back(3, 0, 0).is_empty());
        assert_eq!(shelf.idle_bytes(), sides(0, 1));
        assert!(shelf.take_idle(Side::Within).is_empty());
        assert_eq!(shelf.take_idle(Side::Beside).len(), 1);
        assert_eq!(shelf.held_bytes(), sides(2, 0));
    }

    #[test]
    fn a_page_that_the_device_refuses_holds_up_no_other() {
        let mut shelf: Shelf<usize, usize> = Shelf::default();
        for page in 0..3 {
            shelf.add(page, (PAGE_BYTES, Side::ALL[page % 2]), 16, vec![0]);
            let place = shelf.take(16).expect("it is new");
            shelf.fill(page, place, page);
        }
        let mut next = || {
            let page = shelf.next(0).expect("three are there").0;
            shelf.stay(page);
            page
        };
        assert_eq!([next(), next(), next(), next()], [0, 1, 2, 0]);
    }

    #[test]
    fn a_refused_page_is_no_use_of_memory() {
        let mut shelf: Shelf<usize, usize> = Shelf::default();
        for page in 0..2 {
            shelf.add(page, (PAGE_BYTES, Side::ALL[page % 2]), 16, vec![0]);
            let place = shelf.take(16).expect("it is new");
            shelf.fill(page, place, page);
        }
        shelf.put_back(0, 0, 0);
        assert!(shelf.take_unused(0).is_empty(), "pieces were given since");
        let page = shelf.next(0).expect("one holds something").0;
        shelf.stay(page);
        assert_eq!(shelf.take_unused(0).len(), 1);
    }

    #[test]
    fn what_is_filled_while_its_page_leaves_keeps_it() {
        let mut shelf: Shelf<usize, usize> = Shelf::default();
        shelf.add(1, (PAGE_BYTES, Side::Within), 16, vec![0, 1]);
        let (first, second) = (shelf.take(16).expect("two"), shelf.take(16).expect("two"));
        shelf.fill(1, first, 10);
        assert_eq!(shelf.next(0), Some((1, vec![10])), "who took the other has not filled it");
        assert_eq!(shelf.take(16), None);
        shelf.fill(1, second, 20);
        assert_eq!(shelf.put_back(1, first, first), Vec::<usize>::new());
        assert_eq!(shelf.next(0), Some((1, vec![20])));
        assert_eq!(shelf.put_back(1, second, second).len(), 2);
        assert_eq!(shelf.held_bytes().sum(), 0);
    }

    #[test]
    fn a_page_that_leaves_gives_pieces_to_who_has_no_other() {
        let mut shelf: Shelf<usize, usize> = Shelf::default();
        shelf.add(1, (PAGE_BYTES, Side::Within), 16, vec![0, 1]);
        assert_eq!(shelf.take_of_leaving(16), None, "it stays");
        let first = shelf.take(16).expect("two");
        shelf.fill(1, first, 10);
        assert_eq!(shelf.next(0), Some((1, vec![10])));
        assert_eq!((shelf.take(16), shelf.take_of_leaving(8)), (None, None));
        let second = shelf.take_of_leaving(16).expect("one is free");
        assert_eq!(shelf.take_of_leaving(16), None);
        // It is written before the other is filled; or that is given back without.
        assert!(shelf.put_back(1, first, first).is_empty());
        assert_eq!(shelf.take_of_leaving(16), Some(first));
        assert!(shelf.fill(1, first, 30));
        assert_eq!(shelf.next(0), Some((1, vec![30])));
        assert!(shelf.put_back(1, first, first).is_empty());
        assert_eq!(shelf.put_back(1, second, second).len(), 2);
        assert_eq!(shelf.held_bytes().sum(), 0);
    }
}

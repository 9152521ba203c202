//! The memory of spilled files. Blocks of them stay in it until their file gives them up, or others
//! need the memory: they go to the device only then. It decides how much there may be, and which
//! of it has to be written.

use super::lock;
use super::part::Part;
use super::pool::{Bytes, Home};
use super::shelf::Shelf;
use super::wake::Wake;
use crate::kernel::large::HUGE_PAGE_BYTES;
use crate::kernel::pages::populate;
use crate::port::Port;
use crate::volume::account::{Held, Lease, Purpose, Source, at_once};
use crate::volume::node::Node;
use crate::volume::side::{Side, SpillsMost};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// Pieces are multiples of this: DuckDB spills blocks of 256 KiB, and compressed ones in multiples
/// of 32.
const STEP_BYTES: usize = 32 << 10;
/// One part in so many of what may be held is kept free for what comes next, by writing.
const FREE_PARTS: u64 = 8;
/// While memory is held, it is looked this often whether it can stay.
pub(super) const LOOK: Duration = Duration::from_millis(250);
/// So much of memory that nobody uses is kept for what comes next.
const IDLE_BYTES: u64 = 8 << 20;
/// So much returns when others press.
const PRESSED_BYTES: u64 = 16 << 20;

/// What lies in a piece. Neither is held: its file may give it up at any time.
pub(super) type Owner = (Weak<Node>, Weak<Part>);

pub(crate) struct Spilled {
    source: Arc<Source>,
    wake: Arc<Wake>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    shelf: Shelf<Held, Owner>,
    /// Of its pages.
    leases: BTreeMap<usize, Weak<Lease>>,
    /// Pages that have to be written for others.
    pressed: VecDeque<(usize, Vec<Owner>)>,
    /// When it was last looked which memory is of no use.
    looked: Option<Instant>,
    /// The device did not take the last one.
    is_refused: bool,
}

impl State {
    /// To be told outside of the lock: it may let others go on, who press.
    fn lease(&self, page: usize) -> Option<Arc<Lease>> {
        self.leases.get(&page).and_then(Weak::upgrade)
    }

    /// Takes the pages of a side that hold nothing.
    fn take_idle(&mut self, side: Side) -> Vec<Held> {
        let idle = self.shelf.take_idle(side);
        self.forget_leases(&idle);
        idle
    }

    /// A page that may not stay where it lies, since less may lie there than when it was filled.
    /// What lies beside the limit is entered within first, where there is room.
    fn next_of_too_much(&mut self, most: &SpillsMost) -> Option<usize> {
        while let Some(page) = self.shelf.next_of(Side::Beside, most.each.beside) {
            if !self.lease(page).is_some_and(|lease| lease.move_within()) {
                return Some(page);
            }
            self.shelf.set_side(page, Side::Within);
        }
        self.shelf.next_of(Side::Within, most.each.within)
    }

    fn forget_leases(&mut self, gone: &[Held]) {
        gone.iter().for_each(|held| drop(self.leases.remove(&held.place())));
    }
}

/// What may stay, so that there is room for what comes next.
fn stays_most_bytes(most: &SpillsMost) -> u64 {
    most.all - most.all / FREE_PARTS
}

impl Spilled {
    pub(crate) fn new(source: Arc<Source>) -> Self {
        Spilled { source, wake: Arc::default(), state: Mutex::default() }
    }

    pub(super) fn wake(&self) -> &Arc<Wake> {
        &self.wake
    }

    /// Gives back memory that nobody has used for `LOOK`, but for a little. Whether there is
    /// something to look at then.
    pub(super) fn look(&self) -> bool {
        let mut state = lock(&self.state);
        let mut idle = Vec::new();
        if state.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            state.looked = Some(Instant::now());
            idle = state.shelf.take_unused(IDLE_BYTES);
            state.forget_leases(&idle);
            let held = state.shelf.held_bytes();
            let most = self.source.spilled_most(held);
            for side in Side::ALL {
                if held.of(side) > most.each.of(side) {
                    idle.extend(state.take_idle(side));
                }
            }
        }
        let (held, idle_now) = (state.shelf.held_bytes().sum(), state.shelf.idle_bytes().sum());
        let is_any = held > idle_now || idle_now > IDLE_BYTES;
        drop(state);
        // The lock is free: others may have waited for this memory.
        drop(idle);
        is_any
    }

    /// A copy of some bytes, if there may be one. It is written only once it is told whose it is
    /// ([`Spilled::fill`]).
    pub(super) fn copy(self: &Arc<Self>, port: &Port, from: &[u8]) -> Option<Arc<Bytes>> {
        let mut held = self.piece(port, from.len().next_multiple_of(STEP_BYTES))?;
        let here = &mut held[..from.len()];
        populate(here);
        here.copy_from_slice(from);
        Some(Bytes::new(Home::Spilled(self.clone()), held))
    }

    fn piece(&self, port: &Port, bytes: usize) -> Option<Held> {
        // Dropped when the lock is free: others may have waited for that memory.
        let mut _idle = Vec::new();
        let mut state = lock(&self.state);
        if let Some(piece) = state.shelf.take(bytes) {
            return Some(piece);
        }
        let held = state.shelf.held_bytes();
        let most = self.source.spilled_most(held).all;
        let mut room = most.saturating_sub(held.sum());
        if room < HUGE_PAGE_BYTES as u64 {
            _idle = Side::ALL.into_iter().flat_map(|side| state.take_idle(side)).collect();
            room = most.saturating_sub(state.shelf.held_bytes().sum());
        }
        let pieces: Vec<Held> = if room >= HUGE_PAGE_BYTES as u64 {
            self.source.get(port, bytes, Purpose::Spilled)
        } else if room >= bytes as u64 {
            self.source.one(port, bytes, Purpose::Spilled).into_iter().collect()
        } else {
            Vec::new()
        };
        let Some(first) = pieces.first() else {
            // What leaves comes back where the device refuses it: there is room in it.
            let last = if state.is_refused { state.shelf.take_of_leaving(bytes) } else { None };
            drop(state);
            self.wake.ring();
            return last;
        };
        let (page, lease) = (first.place(), first.lease());
        let page_bytes = if pieces.len() > 1 { HUGE_PAGE_BYTES } else { bytes };
        let side = lease.upgrade().map_or(Side::Within, |lease| lease.side());
        state.leases.insert(page, lease);
        state.shelf.add(page, (page_bytes as u64, side), bytes, pieces);
        let piece = state.shelf.take(bytes);
        drop(state);
        // There is something to look at from now on.
        self.wake.ring();
        piece
    }

    /// Says whose a copy is.
    pub(super) fn fill(&self, bytes: &Bytes, owner: Owner) {
        let (page, place) = (bytes.page(), bytes.get().as_ptr().addr());
        let mut state = lock(&self.state);
        let stays = state.shelf.fill(page, place, owner).then(|| state.lease(page)).flatten();
        let most = self.source.spilled_most(state.shelf.held_bytes());
        let is_much = state.shelf.staying_bytes().sum() > stays_most_bytes(&most);
        drop(state);
        if let Some(lease) = stays {
            lease.set_staying();
        }
        if is_much {
            self.wake.ring();
        }
    }

    pub(super) fn put_back(&self, piece: Held) {
        let (page, place) = (piece.place(), piece.as_ptr().addr());
        let mut state = lock(&self.state);
        let gone = state.shelf.put_back(page, place, piece);
        state.forget_leases(&gone);
        drop(state);
        // The lock is free: others may have waited for this memory.
        drop(gone);
    }

    /// What has to be written next.
    pub(super) fn next(&self) -> Option<(usize, Vec<Owner>)> {
        let mut state = lock(&self.state);
        if let Some(pressed) = state.pressed.pop_front() {
            return Some(pressed);
        }
        if state.is_refused {
            // It is tried again, or nobody would learn that the device takes it now.
            return state.shelf.next(0);
        }
        let most = self.source.spilled_most(state.shelf.held_bytes());
        if let Some(page) = state.next_of_too_much(&most) {
            return state.shelf.leave(page);
        }
        state.shelf.next(stays_most_bytes(&most))
    }

    /// It was written, or the device did not take it and it stays.
    pub(super) fn written(&self, page: usize, is_written: bool) {
        let mut state = lock(&self.state);
        state.is_refused = !is_written;
        if is_written {
            return;
        }
        state.shelf.stay(page);
        let refused = std::mem::take(&mut state.pressed);
        refused.iter().for_each(|row| state.shelf.stay(row.0));
        let pages = refused.iter().map(|row| row.0).chain([page]);
        let leases: Vec<_> = pages.filter_map(|page| state.lease(page)).collect();
        drop(state);
        leases.iter().for_each(|lease| lease.set_staying());
    }

    /// Bytes that [`Spilled::take_spares`] would give; `None` while another thread is at them.
    pub(crate) fn spare_bytes(&self) -> Option<u64> {
        Some(at_once(&self.state)?.shelf.idle_bytes().within)
    }

    /// Takes the memory that is kept for what comes next and that others have use of; `None` while
    /// another thread is at it.
    pub(crate) fn take_spares(&self) -> Option<Vec<Held>> {
        Some(at_once(&self.state)?.take_idle(Side::Within))
    }

    /// Bytes that [`Spilled::press`] may have written; none while the device takes nothing.
    pub(crate) fn writable_bytes(&self) -> Option<u64> {
        let state = at_once(&self.state)?;
        Some(if state.is_refused {
            0
        } else {
            state.shelf.writable(Side::Within).map(|(_, bytes)| bytes).sum()
        })
    }

    /// Has some of it written, so that its memory returns to those who wait for memory: the oldest
    /// of it. Whether there was any; `None` while another thread is at it.
    pub(crate) fn press(&self) -> Option<bool> {
        let mut state = at_once(&self.state)?;
        if state.is_refused {
            return Some(false);
        }
        let mut rest = PRESSED_BYTES;
        let oldest = state.shelf.writable(Side::Within).take_while(|(_, bytes)| {
            let is_wanted = rest > 0;
            rest = rest.saturating_sub(*bytes);
            is_wanted
        });
        let oldest: Vec<usize> = oldest.map(|(page, _)| page).collect();
        let pages: Vec<_> = oldest.iter().filter_map(|page| state.shelf.leave(*page)).collect();
        let is_any = !pages.is_empty();
        let leases: Vec<_> = pages.iter().filter_map(|row| state.lease(row.0)).collect();
        leases.iter().for_each(|lease| lease.set_returning());
        state.pressed.extend(pages);
        drop(state);
        self.wake.ring();
        Some(is_any)
    }
}

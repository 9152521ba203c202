//! The memory of what was read ahead. It decides what is kept for the next pieces, and finds what
//! was fetched and not read yet, to take it back.

use super::{Piece, State, lock};
use crate::volume::account::{Held, Tally, at_once, divided};
use std::sync::{Arc, Mutex, Weak};

/// Buffers that are kept for the next pieces.
const SPARES: usize = 32;
/// So many more before it is looked which can go: a huge page of them.
const SURPLUS: usize = 8;
/// So many pieces are remembered before it is looked which of them are gone.
const REMEMBERED_LEAST: usize = 256;

/// The memory of all read-ahead of a volume.
#[derive(Default)]
pub(crate) struct Kept {
    spares: Mutex<Vec<Held>>,
    fetched: Mutex<Fetched>,
}

#[derive(Default)]
struct Fetched {
    pieces: Vec<Weak<Piece>>,
    /// So many were left when it was last looked which are gone.
    left: usize,
}

impl Kept {
    /// Buffers for so many pieces, or as many as there are.
    pub(super) fn buffers(&self, count: usize) -> Vec<Held> {
        let mut spares = lock(&self.spares);
        let kept = spares.len().saturating_sub(count);
        spares.split_off(kept)
    }

    /// Keeps buffers for the next pieces, a few of them, and those without which others that are in
    /// use would keep the memory all the same.
    pub(super) fn keep(&self, buffers: impl Iterator<Item = Held>) {
        let mut spares = lock(&self.spares);
        spares.extend(buffers);
        if spares.len() < SPARES + SURPLUS {
            return;
        }
        let (mut whole, others) = divided(std::mem::take(&mut *spares));
        let mut surplus = Vec::new();
        while others.len() + whole.len() > SPARES
            && let Some(last) = whole.pop()
        {
            while let Some(neighbour) = whole.pop_if(|it| it.place() == last.place()) {
                surplus.push(neighbour);
            }
            surplus.push(last);
        }
        *spares = others;
        spares.append(&mut whole);
        drop(spares);
    }

    /// Remembers pieces that were fetched.
    pub(super) fn note(&self, pieces: &[Arc<Piece>]) {
        let mut fetched = lock(&self.fetched);
        if fetched.pieces.len() >= REMEMBERED_LEAST.max(2 * fetched.left) {
            fetched.pieces.retain(|piece| piece.strong_count() > 0);
            fetched.left = fetched.pieces.len();
        }
        fetched.pieces.extend(pieces.iter().map(Arc::downgrade));
    }

    /// Bytes that [`Kept::take`] would give; `None` while another thread is at them.
    pub(crate) fn spare_bytes(&self) -> Option<u64> {
        let mut tally = Tally::default();
        at_once(&self.spares)?.iter().for_each(|held| tally.add(held));
        // Held until the lock is free: the last owner of a piece gives its memory back.
        let fetched: Vec<Arc<Piece>> =
            at_once(&self.fetched)?.pieces.iter().filter_map(Weak::upgrade).collect();
        for piece in &fetched {
            if let Some(state) = at_once(&piece.state)
                && let State::Here(held) = &*state
            {
                tally.add(held);
            }
        }
        Some(tally.bytes())
    }

    /// Takes what is kept, and fetched and not read; not what is being read at this moment, and
    /// nothing that lies in one huge page with that: it is kept. `None` while another thread is at
    /// it.
    pub(crate) fn take(&self) -> Option<Vec<Held>> {
        let mut taken = std::mem::take(&mut *at_once(&self.spares)?);
        let Some(mut fetched) = at_once(&self.fetched) else {
            let whole = self.whole_of(taken);
            return if whole.is_empty() { None } else { Some(whole) };
        };
        let pieces = std::mem::take(&mut *fetched).pieces;
        drop(fetched);
        let mut busy = Vec::new();
        for piece in pieces.iter().filter_map(Weak::upgrade) {
            match at_once(&piece.state) {
                Some(mut state) => taken.extend(state.take()),
                None => busy.push(Arc::downgrade(&piece)),
            }
        }
        if let Some(mut fetched) = at_once(&self.fetched) {
            fetched.pieces.extend(busy);
        }
        Some(self.whole_of(taken))
    }

    /// Of pieces those that give memory back; the others are kept.
    fn whole_of(&self, taken: Vec<Held>) -> Vec<Held> {
        let (whole, others) = divided(taken);
        lock(&self.spares).extend(others);
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Image, ModelDevice};
    use crate::volume::account::{Purpose, Source};
    use crate::{Discipline, Port};

    #[test]
    fn surplus_goes_by_huge_pages_and_what_others_need_stays() {
        let model = ModelDevice::new(4096, 64, Image::default()).expect("the sizes are right");
        let port = Port::new(Arc::new(model), Discipline::Thread).expect("opens");
        let source = Source::default();
        let page = || source.get(&port, 256 << 10, Purpose::Ahead);
        let kept = Kept::default();
        let mut busy = Vec::new();
        for _ in 0..6 {
            let mut pieces = page();
            busy.push(pieces.pop().expect("there are eight"));
            kept.keep(pieces.into_iter());
        }
        assert_eq!(kept.buffers(usize::MAX).len(), 42, "to drop one would give nothing back");
        // All are gone but those in use, which are the last of their pages now.
        assert_eq!(kept.spare_bytes(), Some(0));
        for _ in 0..6 {
            kept.keep(page().into_iter());
        }
        assert_eq!(kept.spare_bytes(), Some((SPARES * (256 << 10)) as u64));
        let taken = kept.take().expect("nobody is at it");
        assert_eq!(taken.len(), SPARES);
        let mut pieces = page();
        let last = pieces.pop();
        kept.keep(pieces.into_iter());
        assert!(kept.take().is_some_and(|taken| taken.is_empty()));
        drop(last);
        assert!(kept.take().is_some_and(|taken| taken.len() == 7), "they were kept");
        drop(busy);
    }
}

//! The memory of parts of lasting files on their way. It decides how many there may be, and what of
//! their memory is kept for the next ones.

use super::spilled::Spilled;
use super::{PART_BYTES, lock};
use crate::port::Port;
use crate::volume::account::{Held, Purpose, Source, Tally, at_once, divided};
use std::sync::{Arc, Mutex};

/// Most parts on their way, of all files of a volume.
const PARTS: usize = 64;

/// Memory for parts: as much as may be on its way.
pub(crate) struct Pool {
    source: Arc<Source>,
    /// How much is in use, and what is kept for the next parts.
    state: Mutex<(usize, Vec<Held>)>,
}

/// The bytes of a part. Their memory goes back with the last who holds them.
pub(super) struct Bytes {
    home: Home,
    buffer: Option<Held>,
}

/// Where memory goes back to.
pub(super) enum Home {
    Lasting(Arc<Pool>),
    Spilled(Arc<Spilled>),
}

impl Pool {
    pub(crate) fn new(source: Arc<Source>) -> Self {
        Pool { source, state: Mutex::default() }
    }

    /// Bytes that [`Pool::take_spares`] would give; `None` while another thread is at them.
    pub(crate) fn spare_bytes(&self) -> Option<u64> {
        let mut tally = Tally::default();
        at_once(&self.state)?.1.iter().for_each(|held| tally.add(held));
        Some(tally.bytes())
    }

    /// Takes the memory that is kept for the next parts, unless it lies in one huge page with parts
    /// on their way; `None` while another thread is at it.
    pub(crate) fn take_spares(&self) -> Option<Vec<Held>> {
        let mut state = at_once(&self.state)?;
        let (whole, others) = divided(std::mem::take(&mut state.1));
        state.1 = others;
        Some(whole)
    }

    /// A copy of some bytes, unless too much is on its way.
    pub(super) fn copy(self: &Arc<Self>, port: &Port, from: &[u8]) -> Option<Arc<Bytes>> {
        let spare = {
            let (count, spares) = &mut *lock(&self.state);
            if *count >= PARTS {
                return None;
            }
            *count += 1;
            spares.pop()
        };
        let Some(mut buffer) = spare.or_else(|| self.fresh(port)) else {
            lock(&self.state).0 -= 1;
            return None;
        };
        buffer[..from.len()].copy_from_slice(from);
        Some(Bytes::new(Home::Lasting(self.clone()), buffer))
    }

    /// Memory of one part, if it may be held; what comes with it is kept.
    fn fresh(&self, port: &Port) -> Option<Held> {
        let mut fresh = self.source.get(port, PART_BYTES, Purpose::Behind);
        let one = fresh.pop();
        lock(&self.state).1.append(&mut fresh);
        one
    }
}

impl Bytes {
    pub(super) fn new(home: Home, buffer: Held) -> Arc<Self> {
        Arc::new(Bytes { home, buffer: Some(buffer) })
    }

    pub(super) fn get(&self) -> &[u8] {
        self.held()
    }

    /// What tells the page of memory from others in which it lies.
    pub(super) fn page(&self) -> usize {
        self.held().place()
    }

    fn held(&self) -> &Held {
        self.buffer.as_ref().expect("it goes when this goes")
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        match &self.home {
            Home::Lasting(pool) => {
                let (count, spares) = &mut *lock(&pool.state);
                *count -= 1;
                spares.push(buffer);
            }
            Home::Spilled(spilled) => spilled.put_back(buffer),
        }
    }
}

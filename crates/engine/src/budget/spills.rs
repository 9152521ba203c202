//! How much memory may hold what was spilled to volumes, all of them together. It decides what of
//! it lies within the memory limit, where it gives way to whoever waits for memory, and what beside
//! it: a part of what the machine, or its container, has to spare, as the page cache would take it.

use super::Machine;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Within the limit, one part in so many of it.
const WITHIN_PARTS: u64 = 2;
/// Beside it, one part in so many of what would be available without spills: about what Linux lets
/// be written to files and not be on their disks yet (a fifth).
const BESIDE_PARTS: u64 = 4;
/// One part in so many of all memory is left to others.
const LEFT_PARTS: u64 = 8;
/// And so much may be held all the same, within its part of the limit.
const LEAST_BYTES: u64 = 16 << 20;
/// How long a look at the machine holds.
const LOOK: Duration = Duration::from_millis(100);

/// What the machine has for spills, those included that are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Room {
    /// All that leaves enough to others.
    spare: u64,
    /// The part that may lie beside the limit.
    part: u64,
}

impl Room {
    fn of(held: u64, machine: Option<Machine>) -> Self {
        let Some(machine) = machine else { return Room::default() };
        let available = held.saturating_add(machine.available);
        let spare = available.saturating_sub(machine.total / LEFT_PARTS);
        Room { spare, part: spare.min(available / BESIDE_PARTS) }
    }
}

/// Most bytes that may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Most {
    within: u64,
    beside: u64,
    all: u64,
}

impl Most {
    /// `beside` is what the operator allows beside the limit.
    fn of(limit: u64, beside: u64, room: Room) -> Self {
        let (within, beside) = (limit / WITHIN_PARTS, room.part.min(beside));
        let all = room.spare.max(LEAST_BYTES).min(within.max(beside));
        Most { within, beside, all }
    }
}

/// Where held memory is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// In the account of the limit.
    Within,
    /// In none but this.
    Beside,
}

#[derive(Default)]
struct State {
    within: u64,
    beside: u64,
    /// What the operator allows beside the limit.
    beside_most: u64,
    look: Option<(Instant, Room)>,
}

impl State {
    fn held(&self) -> u64 {
        self.within + self.beside
    }

    fn most(&mut self, limit: u64) -> Most {
        let held = self.held();
        let look = self.look.take().filter(|(at, _)| at.elapsed() < LOOK);
        let (_, room) = self
            .look
            .insert(look.unwrap_or_else(|| (Instant::now(), Room::of(held, Machine::now()))));
        Most::of(limit, self.beside_most, *room)
    }

    fn of(&mut self, side: Side) -> &mut u64 {
        match side {
            Side::Within => &mut self.within,
            Side::Beside => &mut self.beside,
        }
    }

    fn take(&mut self, bytes: u64, most: Most) -> Option<Side> {
        let fits = |held: u64, most| held.checked_add(bytes).is_some_and(|sum| sum <= most);
        if !fits(self.held(), most.all) {
            return None;
        }
        // What lies beside takes nothing from reads and uploads.
        let side = match (fits(self.beside, most.beside), fits(self.within, most.within)) {
            (true, _) => Side::Beside,
            (false, true) => Side::Within,
            (false, false) => return None,
        };
        *self.of(side) += bytes;
        Some(side)
    }
}

/// What was spilled to all volumes.
#[derive(Default)]
pub(super) struct Share(Mutex<State>);

impl Share {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn held(&self) -> u64 {
        self.lock().held()
    }

    /// Most that may be held now under a memory limit.
    pub fn most_bytes(&self, limit: u64) -> u64 {
        self.lock().most(limit).all
    }

    pub fn set_beside_most(&self, bytes: u64) {
        self.lock().beside_most = bytes;
    }

    /// Enters bytes, if so many may be held, and tells where.
    pub fn take(&self, bytes: u64, limit: u64) -> Option<Side> {
        let mut state = self.lock();
        let most = state.most(limit);
        state.take(bytes, most)
    }

    pub fn give_back(&self, bytes: u64, side: Side) {
        *self.lock().of(side) -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn spills_leave_memory_to_others(
            limit in 0u64..1 << 40, held in 0u64..1 << 36, available in 0u64..1 << 36,
            more in 0u64..1 << 36, beside in prop_oneof![Just(0u64), 0u64..1 << 40],
        ) {
            let total = available + more;
            let room = Room::of(held, Some(Machine { total, available }));
            let most = Most::of(limit, beside, room);
            prop_assert_eq!(most.within, limit / 2);
            prop_assert!(most.beside <= beside && most.beside <= (held + available) / 4);
            prop_assert!(most.all <= most.within.max(most.beside));
            let left = (held + available).saturating_sub(most.all);
            prop_assert!(most.all <= LEAST_BYTES || left >= total / 8);
            prop_assert!(most.all >= LEAST_BYTES.min(most.within));
            // No less than could be.
            prop_assert!(
                most.all == most.within.max(most.beside)
                    || most.all == LEAST_BYTES
                    || left == total / 8
            );
            // Nobody knows of a machine that tells nothing.
            let unknown = Most::of(limit, beside, Room::of(held, None));
            prop_assert_eq!(unknown.all, LEAST_BYTES.min(limit / 2));
        }

        #[test]
        fn what_is_held_is_bounded_on_each_side_and_beside_comes_first(
            steps in prop::collection::vec((any::<bool>(), 1u64..9, any::<u16>()), 1..80),
            within in 0u64..40, beside in 0u64..40, all in 0u64..80,
        ) {
            let most = Most { within, beside, all };
            let (mut state, mut held) = (State::default(), Vec::new());
            for (gives, bytes, pick) in steps {
                if gives && !held.is_empty() {
                    let (bytes, side) = held.swap_remove(pick as usize % held.len());
                    *state.of(side) -= bytes;
                    continue;
                }
                let fits = state.beside + bytes <= beside && state.held() + bytes <= all;
                match state.take(bytes, most) {
                    Some(side) => {
                        prop_assert_eq!(side == Side::Beside, fits);
                        held.push((bytes, side));
                    }
                    None => prop_assert!(
                        state.held() + bytes > all
                            || (state.beside + bytes > beside && state.within + bytes > within)
                    ),
                }
                prop_assert!(state.within <= within && state.beside <= beside);
                let sum = |side| -> u64 {
                    held.iter().filter(|row| row.1 == side).map(|row| row.0).sum()
                };
                prop_assert_eq!(state.within, sum(Side::Within));
                prop_assert_eq!(state.beside, sum(Side::Beside));
            }
        }
    }
}

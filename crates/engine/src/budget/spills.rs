//! How much memory may hold what was spilled to volumes, all of them together. It decides what of
//! it lies within the memory limit, where it gives way to whoever waits for memory, and what beside
//! it: a part of what the machine, or its container, has to spare, as the page cache would take it.

use super::Machine;
use penstock_device::volume::{Side, Sides, SpillsMost};
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

/// Most bytes that may be held. `beside` is what the operator allows beside the limit.
fn most_of(limit: u64, beside: u64, room: Room) -> SpillsMost {
    let (within, beside) = (limit / WITHIN_PARTS, room.part.min(beside));
    let all = room.spare.max(LEAST_BYTES).min(within.max(beside));
    SpillsMost { each: Sides { within, beside }, all }
}

#[derive(Default)]
struct State {
    held: Sides<u64>,
    /// What the operator allows beside the limit.
    beside_most: u64,
    look: Option<(Instant, Room)>,
}

impl State {
    fn most(&mut self, limit: u64) -> SpillsMost {
        let held = self.held.sum();
        let look = self.look.take().filter(|(at, _)| at.elapsed() < LOOK);
        let (_, room) = self
            .look
            .insert(look.unwrap_or_else(|| (Instant::now(), Room::of(held, Machine::now()))));
        most_of(limit, self.beside_most, *room)
    }

    fn take(&mut self, bytes: u64, most: SpillsMost) -> Option<Side> {
        let SpillsMost { each, all } = most;
        let fits = |held: u64, most| held.checked_add(bytes).is_some_and(|sum| sum <= most);
        if !fits(self.held.sum(), all) {
            return None;
        }
        // What lies beside takes nothing from reads and uploads.
        let first = [Side::Beside, Side::Within];
        let side = first.into_iter().find(|side| fits(*self.held.of(*side), *each.of(*side)))?;
        *self.held.of_mut(side) += bytes;
        Some(side)
    }

    /// Enters within what lies beside, if so much may lie there.
    fn move_within(&mut self, bytes: u64, most: SpillsMost) -> bool {
        let fits = self.held.within + bytes <= most.each.within && self.held.sum() <= most.all;
        if fits {
            self.held.beside -= bytes;
            self.held.within += bytes;
        }
        fits
    }
}

/// What was spilled to all volumes.
#[derive(Default)]
pub(super) struct Share(Mutex<State>);

impl Share {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub fn held(&self) -> u64 {
        self.lock().held.sum()
    }

    /// Most that a holder may have now, under a memory limit, who has so much.
    pub fn most_of_holder(&self, own: Sides<u64>, limit: u64) -> SpillsMost {
        let mut state = self.lock();
        state.most(limit).of_holder(own, state.held)
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

    /// Enters within the limit what lies beside it, if so much may lie there.
    pub fn move_within(&self, bytes: u64, limit: u64) -> bool {
        let mut state = self.lock();
        let most = state.most(limit);
        state.move_within(bytes, most)
    }

    /// Takes back what [`Share::move_within`] did.
    pub fn move_beside(&self, bytes: u64) {
        let mut state = self.lock();
        state.held.within -= bytes;
        state.held.beside += bytes;
    }

    pub fn give_back(&self, bytes: u64, side: Side) {
        *self.lock().held.of_mut(side) -= bytes;
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
            let most = most_of(limit, beside, room);
            let each = most.each;
            prop_assert_eq!(each.within, limit / 2);
            prop_assert!(each.beside <= beside && each.beside <= (held + available) / 4);
            prop_assert!(most.all <= each.within.max(each.beside));
            let left = (held + available).saturating_sub(most.all);
            prop_assert!(most.all <= LEAST_BYTES || left >= total / 8);
            prop_assert!(most.all >= LEAST_BYTES.min(each.within));
            // No less than could be.
            prop_assert!(
                most.all == each.within.max(each.beside)
                    || most.all == LEAST_BYTES
                    || left == total / 8
            );
            // Nobody knows of a machine that tells nothing.
            let unknown = most_of(limit, beside, Room::of(held, None));
            prop_assert_eq!(unknown.all, LEAST_BYTES.min(limit / 2));
        }

        #[test]
        fn what_is_held_is_bounded_on_each_side_and_beside_comes_first(
            steps in prop::collection::vec((any::<bool>(), 1u64..9, any::<u16>()), 1..80),
            within in 0u64..40, beside in 0u64..40, all in 0u64..80,
        ) {
            let most = SpillsMost { each: Sides { within, beside }, all };
            let (mut state, mut held) = (State::default(), Vec::<(u64, Side)>::new());
            for (gives, bytes, pick) in steps {
                if gives && !held.is_empty() {
                    let one = pick as usize % held.len();
                    // It changes sides, or goes.
                    if pick > u16::MAX / 2 && held[one].1 == Side::Beside {
                        let fits = state.held.within + held[one].0 <= within;
                        prop_assert_eq!(state.move_within(held[one].0, most), fits);
                        held[one].1 = if fits { Side::Within } else { Side::Beside };
                        continue;
                    }
                    let (bytes, side) = held.swap_remove(one);
                    *state.held.of_mut(side) -= bytes;
                    continue;
                }
                let fits = state.held.beside + bytes <= beside && state.held.sum() + bytes <= all;
                match state.take(bytes, most) {
                    Some(side) => {
                        prop_assert_eq!(side == Side::Beside, fits);
                        held.push((bytes, side));
                    }
                    None => prop_assert!(
                        state.held.sum() + bytes > all
                            || (state.held.beside + bytes > beside
                                && state.held.within + bytes > within)
                    ),
                }
                prop_assert!(state.held.within <= within && state.held.beside <= beside);
                let sum = |side| -> u64 {
                    held.iter().filter(|row| row.1 == side).map(|row| row.0).sum()
                };
                prop_assert_eq!(state.held.within, sum(Side::Within));
                prop_assert_eq!(state.held.beside, sum(Side::Beside));
            }
        }
    }
}

//! How many of something are in flight at once (parts of uploads, requests that wait for an
//! answer); a number that may change while they are.

use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The slots. Permits of the semaphore are always `total + surplus`, taken and free ones together.
#[derive(Debug)]
pub(crate) struct Slots {
    permits: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    total: usize,
    /// Permits that were taken when the total shrank: their holders do not give them back.
    surplus: usize,
}

/// The right to send one.
#[derive(Debug)]
pub(crate) struct Slot<'a> {
    slots: &'a Slots,
    permit: Option<SemaphorePermit<'a>>,
}

impl Slots {
    pub fn new(total: usize) -> Self {
        let total = total.clamp(1, Semaphore::MAX_PERMITS);
        Slots { permits: Semaphore::new(total), state: Mutex::new(State { total, surplus: 0 }) }
    }

    /// Changes the number. A lower one is reached as they end; nobody is cut off, and whoever
    /// waits is served as soon as fewer than the new number are in flight.
    pub fn set_total(&self, total: usize) {
        let total = total.clamp(1, Semaphore::MAX_PERMITS);
        let mut state = self.lock();
        if total > state.total {
            let grown = total - state.total;
            let kept = grown.min(state.surplus);
            state.surplus -= kept;
            self.permits.add_permits(grown - kept);
        } else {
            state.surplus += state.total - total;
            self.shed(&mut state);
        }
        state.total = total;
    }

    /// Waits for a slot, first come, first served.
    pub async fn slot(&self) -> Slot<'_> {
        // A waiter that left may have given a surplus permit back.
        self.shed(&mut self.lock());
        let permit = self.permits.acquire().await.expect("the semaphore is never closed");
        Slot { slots: self, permit: Some(permit) }
    }

    /// Takes free permits out that are too many.
    fn shed(&self, state: &mut State) {
        state.surplus -= self.permits.forget_permits(state.surplus);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut state = self.slots.lock();
        if state.surplus > 0
            && let Some(permit) = self.permit.take()
        {
            state.surplus -= 1;
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiting::serve;
    use futures_util::future::BoxFuture;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Ask,
        End(prop::sample::Index),
        Leave(prop::sample::Index),
        Total(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let index = any::<prop::sample::Index>;
        prop_oneof![
            3 => Just(Step::Ask),
            2 => index().prop_map(Step::End),
            1 => index().prop_map(Step::Leave),
            1 => (1usize..6).prop_map(Step::Total),
        ]
    }

    proptest! {
        /// Nobody waits while fewer than the total are in flight, and nobody is served beyond it.
        #[test]
        fn a_change_of_the_total_strands_nobody(steps in prop::collection::vec(step(), 0..100)) {
            let slots = Slots::new(3);
            let mut total = 3;
            let mut taken: Vec<Slot<'_>> = Vec::new();
            let mut waiting: Vec<BoxFuture<'_, Slot<'_>>> = Vec::new();
            for step in steps {
                match step {
                    Step::Ask => waiting.push(Box::pin(slots.slot())),
                    Step::End(at) if !taken.is_empty() => {
                        drop(taken.swap_remove(at.index(taken.len())));
                    }
                    Step::Leave(at) if !waiting.is_empty() => {
                        drop(waiting.remove(at.index(waiting.len())));
                    }
                    Step::Total(wanted) => {
                        total = wanted;
                        slots.set_total(wanted);
                    }
                    _ => {}
                }
                let before = taken.len();
                serve(&mut waiting, &mut taken);
                prop_assert!(taken.len() <= total.max(before));
                prop_assert!(waiting.is_empty() || taken.len() >= total);
            }
            drop(waiting);
            drop(taken);
            slots.shed(&mut slots.lock());
            prop_assert_eq!(slots.permits.available_permits(), total);
        }
    }
}

//! The memory of volumes on devices, in the one account: what they read ahead is within the quarter
//! of the limit that all read-ahead has, what they write behind within the limit, and of what was
//! spilled to them what `spills` says. All of it gives way to whoever waits for memory; what was
//! spilled is written first.

#[cfg(test)]
mod tests;

use super::{Budget, Lease, Pressable, Pressed};
use penstock_base::Metric;
use penstock_device::volume::{
    Account, Lease as VolumeLease, Leased, Memory, Purpose, Side, Sides, SpillsMost, Volume,
};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

/// The memory of one volume, which keeps this, and so the account, as long as it is open.
struct OfVolume {
    budget: Arc<Budget>,
    memory: Weak<Memory>,
    spilled: Arc<Spilled>,
}

/// What was spilled to one volume. It is asked for its own: what it gives is returning, not there.
struct Spilled(Weak<Memory>);

/// Memory of a volume, told apart from that of other holders.
struct Told {
    budget: Arc<Budget>,
    bytes: u64,
    /// In the account of the limit; spills may lie beside it, and be entered there later. No lock:
    /// whoever says that it stays may be asked for this very memory, on the same thread.
    lease: OnceLock<Lease>,
    is_spilled: bool,
}

impl Told {
    fn new(budget: Arc<Budget>, bytes: u64, lease: Option<Lease>, is_spilled: bool) -> Self {
        if is_spilled {
            budget.metrics.add(Metric::MemoryOfSpillsNow, bytes);
        }
        let lease = lease.map_or_else(OnceLock::new, OnceLock::from);
        let told = Told { budget, bytes, lease, is_spilled };
        told.budget.metrics.add(told.metric(), bytes);
        told
    }

    /// What counts it by its side.
    fn metric(&self) -> Metric {
        match self.side() {
            Side::Within => Metric::MemoryOfVolumesNow,
            Side::Beside => Metric::MemoryOfSpillsBesideNow,
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.budget.metrics.sub(self.metric(), self.bytes);
        if self.is_spilled {
            self.budget.metrics.sub(Metric::MemoryOfSpillsNow, self.bytes);
            self.budget.spilled.give_back(self.bytes, self.side());
        }
    }
}

impl Leased for Told {
    fn set_returning(&self) {
        self.lease.get().into_iter().for_each(Lease::set_returning);
    }

    fn set_staying(&self) {
        self.lease.get().into_iter().for_each(Lease::set_staying);
    }

    fn side(&self) -> Side {
        if self.lease.get().is_some() { Side::Within } else { Side::Beside }
    }

    fn move_within(&self) -> bool {
        let budget = &self.budget;
        if self.side() == Side::Within {
            return true;
        }
        if !budget.spilled.move_within(self.bytes, budget.limit_bytes()) {
            return false;
        }
        let lease = budget.try_lease(self.bytes);
        let is_within = lease.is_some_and(|lease| self.lease.set(lease).is_ok());
        match is_within {
            true => {
                budget.metrics.sub(Metric::MemoryOfSpillsBesideNow, self.bytes);
                budget.metrics.add(Metric::MemoryOfVolumesNow, self.bytes);
            }
            false => budget.spilled.move_beside(self.bytes),
        }
        is_within
    }
}

impl Lease {
    /// Says that these bytes do not come back by themselves, after all. Those who wait are judged
    /// again.
    fn set_staying(&self) {
        let mut state = self.budget.lock();
        if self.returning.swap(false, Ordering::Relaxed) {
            state.returning -= self.bytes;
            self.budget.settle(state);
        }
    }
}

impl Account for OfVolume {
    fn spilled_most(&self, held_bytes: Sides<u64>) -> SpillsMost {
        self.budget.spilled.most_of_holder(held_bytes, self.budget.limit_bytes())
    }

    fn lease(&self, bytes: u64, purpose: Purpose) -> Option<VolumeLease> {
        let budget = &self.budget;
        let told = |lease, is_spilled| {
            Box::new(Told::new(Arc::clone(budget), bytes, lease, is_spilled)) as VolumeLease
        };
        let lease = match purpose {
            Purpose::Ahead => budget.try_lease_ahead(bytes)?,
            Purpose::Behind => budget.try_lease(bytes)?,
            Purpose::Spilled => {
                let side = budget.spilled.take(bytes, budget.limit_bytes())?;
                if side == Side::Beside {
                    return Some(told(None, true));
                }
                let lease = budget.try_lease(bytes);
                if lease.is_none() {
                    budget.spilled.give_back(bytes, side);
                }
                return lease.map(|lease| told(Some(lease), true));
            }
        };
        Some(told(Some(lease), false))
    }
}

fn pressed(outcome: Option<bool>) -> Pressed {
    outcome.map_or(Pressed::Busy, Pressed::gave)
}

impl Pressable for OfVolume {
    fn returnable_bytes(&self) -> Option<u64> {
        self.memory.upgrade().map_or(Some(0), |memory| memory.spare_bytes())
    }

    fn press(&self) -> Pressed {
        pressed(self.memory.upgrade().map_or(Some(false), |memory| memory.free()))
    }

    fn is_ahead(&self) -> bool {
        true
    }
}

impl Pressable for Spilled {
    fn returnable_bytes(&self) -> Option<u64> {
        self.0.upgrade().map_or(Some(0), |memory| memory.spilled_bytes())
    }

    fn press(&self) -> Pressed {
        pressed(self.0.upgrade().map_or(Some(false), |memory| memory.write_spilled()))
    }
}

impl Budget {
    /// Answers for what a volume reads ahead and writes behind, and what was spilled to it, unless
    /// the account of another engine of this process does already.
    pub fn answer_for(self: &Arc<Self>, volume: &Arc<Volume>) {
        let mut added = None;
        volume.charge(|memory| {
            let memory = Arc::downgrade(memory);
            let spilled = Arc::new(Spilled(memory.clone()));
            let account = Arc::new(OfVolume { budget: Arc::clone(self), memory, spilled });
            added = Some((Arc::downgrade(&account), Arc::downgrade(&account.spilled)));
            account
        });
        if let Some((account, spilled)) = added {
            self.register(account as Weak<dyn Pressable>);
            self.register(spilled as Weak<dyn Pressable>);
        }
    }
}

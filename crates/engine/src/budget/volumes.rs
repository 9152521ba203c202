//! The memory of volumes on devices, in the one account: what they read ahead is within the quarter
//! of the limit that all read-ahead has, what they write behind within the limit, and of what was
//! spilled to them what `spills` says. All of it gives way to whoever waits for memory; what was
//! spilled is written first.

use super::spills::Side;
use super::{Budget, Lease, Pressable, Pressed};
use penstock_base::Metric;
use penstock_device::volume::{Account, Lease as VolumeLease, Leased, Memory, Purpose, Volume};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

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
    /// In the account of the limit; spills may lie beside it.
    lease: Option<Lease>,
    spilled: Option<Side>,
}

impl Told {
    fn new(budget: Arc<Budget>, bytes: u64, lease: Option<Lease>, spilled: Option<Side>) -> Self {
        let told = Told { budget, bytes, lease, spilled };
        told.metrics().for_each(|metric| told.budget.metrics.add(metric, bytes));
        told
    }

    fn metrics(&self) -> impl Iterator<Item = Metric> + use<> {
        let within = self.lease.as_ref().map(|_| Metric::MemoryOfVolumesNow);
        within.into_iter().chain(self.spilled.map(|_| Metric::MemoryOfSpillsNow))
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.metrics().for_each(|metric| self.budget.metrics.sub(metric, self.bytes));
        if let Some(side) = self.spilled {
            self.budget.spilled.give_back(self.bytes, side);
        }
    }
}

impl Leased for Told {
    fn set_returning(&self) {
        self.lease.iter().for_each(Lease::set_returning);
    }

    fn set_staying(&self) {
        self.lease.iter().for_each(Lease::set_staying);
    }

    fn serves_others(&self) -> bool {
        self.lease.is_some()
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
    fn spilled_most_bytes(&self, held_bytes: u64) -> u64 {
        let share = &self.budget.spilled;
        let most = share.most_bytes(self.budget.limit_bytes());
        (held_bytes + most).saturating_sub(share.held())
    }

    fn lease(&self, bytes: u64, purpose: Purpose) -> Option<VolumeLease> {
        let budget = &self.budget;
        let told = |lease, spilled| {
            Box::new(Told::new(Arc::clone(budget), bytes, lease, spilled)) as VolumeLease
        };
        let lease = match purpose {
            Purpose::Ahead => budget.try_lease_ahead(bytes)?,
            Purpose::Behind => budget.try_lease(bytes)?,
            Purpose::Spilled => {
                let side = budget.spilled.take(bytes, budget.limit_bytes())?;
                if side == Side::Beside {
                    return Some(told(None, Some(side)));
                }
                let lease = budget.try_lease(bytes);
                if lease.is_none() {
                    budget.spilled.give_back(bytes, side);
                }
                return lease.map(|lease| told(Some(lease), Some(side)));
            }
        };
        Some(told(Some(lease), None))
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

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::Metrics;
    use penstock_device::model::{Failure, Image, ModelDevice};
    use penstock_device::volume::{File, FormatOptions, Lock, OpenFileOptions, format};
    use penstock_device::{Discipline, Port};

    const BLOCK: usize = 256 << 10;
    const BLOCKS: usize = 64;

    fn failing_volume() -> (Arc<ModelDevice>, Arc<Volume>) {
        let model = ModelDevice::new(4096, 16_384, Image::default()).expect("the sizes are right");
        let model = Arc::new(model);
        let port = || Port::new(model.clone(), Discipline::Thread).expect("opens");
        format(&port(), FormatOptions::default()).expect("formats");
        let volume = Volume::open_with_helpers(port()).expect("opens");
        (model, volume)
    }

    fn volume() -> Arc<Volume> {
        failing_volume().1
    }

    fn file(volume: &Arc<Volume>) -> File {
        let options = OpenFileOptions { create: true, lock: Lock::None };
        volume.open_file("db", options).expect("creates")
    }

    fn write(file: &File) {
        for number in 0..BLOCKS {
            file.write_at(&vec![number as u8; BLOCK], (number * BLOCK) as u64).expect("writes");
        }
        file.sync().expect("syncs");
    }

    fn read(file: &File, budget: &Arc<Budget>) -> u64 {
        let (mut most, mut found) = (0, vec![0; BLOCK]);
        for number in 0..BLOCKS {
            file.read_at(&mut found, (number * BLOCK) as u64).expect("reads");
            assert!(found == vec![number as u8; BLOCK], "block {number}");
            most = most.max(budget.held_bytes());
        }
        most
    }

    fn bounded(limit: u64) -> (Arc<Metrics>, Arc<Budget>) {
        let metrics = Arc::new(Metrics::default());
        (metrics.clone(), Budget::new(limit, metrics))
    }

    #[test]
    fn what_a_volume_keeps_beside_its_callers_is_within_the_limit_and_told() {
        for limit in [0, 100 << 10, 1 << 20, 4 << 20, 64 << 20] {
            let (metrics, budget) = bounded(limit);
            let volume = volume();
            budget.answer_for(&volume);
            let file = file(&volume);
            write(&file);
            let most = read(&file, &budget).max(budget.held_bytes());
            assert!(most <= limit, "{most} of {limit}");
            assert_eq!(most > 0, limit >= BLOCK as u64, "{most} of {limit}");
            assert_eq!(metrics.get(Metric::MemoryOfVolumesNow), budget.held_bytes());
            drop(file);
            drop(volume);
            assert_eq!((budget.held_bytes(), metrics.get(Metric::MemoryOfVolumesNow)), (0, 0));
        }
    }

    #[tokio::test]
    async fn a_volume_gives_way_to_who_waits_for_memory() {
        const LIMIT: u64 = 64 << 20;
        let (metrics, budget) = bounded(LIMIT);
        let volume = volume();
        budget.answer_for(&volume);
        let file = file(&volume);
        write(&file);
        read(&file, &budget);
        assert!(budget.held_bytes() > 0, "memory is kept for the next blocks");
        // What is being fetched at this moment comes back a moment later.
        let all = loop {
            match budget.lease_within(LIMIT).await {
                Some(lease) => break lease,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(metrics.get(Metric::MemoryOfVolumesNow), 0);
        // And goes on without any.
        read(&file, &budget);
        write(&file);
        assert_eq!(budget.held_bytes(), LIMIT);
        drop(all);
        // A block that is read ahead may come too late; one that is written takes memory at once.
        write(&file);
        assert!(metrics.get(Metric::MemoryOfVolumesNow) > 0);
    }

    fn spill(volume: &Arc<Volume>) -> File {
        let options = OpenFileOptions { create: true, lock: Lock::None };
        let file = volume.open_file("temp/0", options).expect("creates");
        for number in 0..BLOCKS {
            file.write_at(&vec![number as u8; BLOCK], (number * BLOCK) as u64).expect("writes");
        }
        file
    }

    #[test]
    fn what_is_spilled_stays_within_half_of_the_limit_and_is_told() {
        for limit in [0, 1 << 20, 8 << 20, 64 << 20] {
            let (metrics, budget) = bounded(limit);
            let volume = volume();
            budget.answer_for(&volume);
            let file = spill(&volume);
            let held = metrics.get(Metric::MemoryOfSpillsNow);
            assert!(held <= limit / 2, "{held} of {limit}");
            assert_eq!(held > 0, limit >= 1 << 20, "{held} of {limit}");
            assert!(budget.held_bytes() <= limit);
            read(&file, &budget);
            drop((file, volume));
            assert_eq!(metrics.get(Metric::MemoryOfSpillsNow), 0);
            assert_eq!((budget.held_bytes(), budget.spilled.held()), (0, 0));
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_spilled_is_written_for_who_waits_for_memory() {
        const LIMIT: u64 = 64 << 20;
        let (metrics, budget) = bounded(LIMIT);
        let volume = volume();
        budget.answer_for(&volume);
        let file = spill(&volume);
        assert!(metrics.get(Metric::MemoryOfSpillsNow) >= 16 << 20);
        let all = budget.lease_within(LIMIT).await.expect("all of it is written");
        assert_eq!(metrics.get(Metric::MemoryOfSpillsNow), 0);
        read(&file, &budget);
        drop(all);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nobody_waits_for_what_a_device_does_not_take() {
        const LIMIT: u64 = 64 << 20;
        let (_, budget) = bounded(LIMIT);
        let (model, volume) = failing_volume();
        budget.answer_for(&volume);
        let file = spill(&volume);
        model.fail(0..u64::MAX, Failure::Failing);
        assert!(budget.lease_within(LIMIT).await.is_none(), "it cannot come back");
        let beyond = budget.lease(LIMIT).await;
        assert!(budget.held_bytes() > LIMIT);
        read(&file, &budget);
        drop(beyond);
    }

    /// Those who wait for memory within the limit have no use of what lies beside it.
    #[tokio::test(flavor = "multi_thread")]
    async fn what_spills_beside_the_limit_takes_nothing_from_it_and_is_not_written_for_others() {
        const LIMIT: u64 = 64 << 20;
        let (metrics, budget) = bounded(LIMIT);
        budget.set_spills_beside(8 << 20);
        let (model, volume) = failing_volume();
        budget.answer_for(&volume);
        let (file, spilled) = (spill(&volume), (BLOCKS * BLOCK) as u64);
        let told = || [Metric::MemoryOfSpillsNow, Metric::MemoryOfVolumesNow];
        assert_eq!(told().map(|name| metrics.get(name)), [spilled, spilled - (8 << 20)]);
        assert_eq!(budget.held_bytes(), spilled - (8 << 20));
        let before = model.command_count();
        let all = budget.lease_within(LIMIT).await.expect("what lies within it is written");
        assert_eq!(told().map(|name| metrics.get(name)), [8 << 20, 0]);
        assert!(model.command_count() > before);
        read(&file, &budget);
        drop((all, file, volume));
        assert_eq!((budget.held_bytes(), budget.spilled.held()), (0, 0));
        assert_eq!(told().map(|name| metrics.get(name)), [0, 0]);
    }

    #[test]
    fn what_spills_lies_beside_the_limit_as_long_as_it_may() {
        let (metrics, budget) = bounded(1 << 20);
        budget.set_spills_beside(1 << 30);
        let (model, volume) = failing_volume();
        budget.answer_for(&volume);
        let before = model.command_count();
        let file = spill(&volume);
        read(&file, &budget);
        assert_eq!(model.command_count(), before, "nothing went to the device");
        assert_eq!(metrics.get(Metric::MemoryOfSpillsNow), (BLOCKS * BLOCK) as u64);
        assert_eq!(budget.held_bytes(), 0);
        // What the operator allows no more is written by and by.
        budget.set_spills_beside(0);
        while metrics.get(Metric::MemoryOfSpillsNow) > 1 << 20 {
            std::thread::yield_now();
        }
        read(&file, &budget);
    }

    #[test]
    fn the_first_account_of_a_volume_stays() {
        let ((_, first), (_, second)) = (bounded(64 << 20), bounded(64 << 20));
        let volume = volume();
        first.answer_for(&volume);
        second.answer_for(&volume);
        write(&file(&volume));
        assert!(first.held_bytes() > 0 && second.held_bytes() == 0);
    }
}

//! The memory of volumes on devices, in the one account: what they read ahead is within the quarter
//! of the limit that all read-ahead has, what they write behind within the limit; both give way to
//! whoever waits for memory.

use super::{Budget, Lease, Pressable, Pressed};
use penstock_base::Metric;
use penstock_device::volume::{Account, Lease as VolumeLease, Memory, Purpose, Volume};
use std::sync::{Arc, Weak};

/// The memory of one volume, which keeps this, and so the account, as long as it is open.
struct OfVolume {
    budget: Arc<Budget>,
    memory: Weak<Memory>,
}

/// A lease that is told apart from those of other holders.
struct Told(Lease);

impl Told {
    fn new(lease: Lease) -> Self {
        lease.budget.metrics.add(Metric::MemoryOfVolumesNow, lease.bytes);
        Told(lease)
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.0.budget.metrics.sub(Metric::MemoryOfVolumesNow, self.0.bytes);
    }
}

impl Account for OfVolume {
    fn lease(&self, bytes: u64, purpose: Purpose) -> Option<VolumeLease> {
        let lease = match purpose {
            Purpose::Ahead => self.budget.try_lease_ahead(bytes),
            Purpose::Behind => self.budget.try_lease(bytes),
        };
        lease.map(|lease| Box::new(Told::new(lease)) as VolumeLease)
    }
}

impl Pressable for OfVolume {
    fn returnable_bytes(&self) -> Option<u64> {
        self.memory.upgrade().map_or(Some(0), |memory| memory.spare_bytes())
    }

    fn press(&self) -> Pressed {
        match self.memory.upgrade().map_or(Some(false), |memory| memory.free()) {
            Some(gave) => Pressed::gave(gave),
            None => Pressed::Busy,
        }
    }

    fn is_ahead(&self) -> bool {
        true
    }
}

impl Budget {
    /// Answers for what a volume reads ahead and writes behind, unless the account of another
    /// engine of this process does already.
    pub fn answer_for(self: &Arc<Self>, volume: &Arc<Volume>) {
        let mut added = None;
        volume.charge(|memory| {
            let account =
                Arc::new(OfVolume { budget: Arc::clone(self), memory: Arc::downgrade(memory) });
            added = Some(Arc::downgrade(&account));
            account
        });
        if let Some(added) = added {
            self.register(added as Weak<dyn Pressable>);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::Metrics;
    use penstock_device::model::{Image, ModelDevice};
    use penstock_device::volume::{File, FormatOptions, Lock, OpenFileOptions, format};
    use penstock_device::{Discipline, Port};

    const BLOCK: usize = 256 << 10;
    const BLOCKS: usize = 64;

    fn volume() -> Arc<Volume> {
        let model = ModelDevice::new(4096, 16_384, Image::default()).expect("the sizes are right");
        let model = Arc::new(model);
        let port = || Port::new(model.clone(), Discipline::Thread).expect("opens");
        format(&port(), FormatOptions::default()).expect("formats");
        Volume::open_with_helpers(port()).expect("opens")
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
        read(&file, &budget);
        assert!(metrics.get(Metric::MemoryOfVolumesNow) > 0);
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

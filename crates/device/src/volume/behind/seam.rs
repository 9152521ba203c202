//! Places between two steps of a thread at which a test has another one's step happen: what would
//! take two threads and luck happens there each time.

use std::cell::RefCell;

type Step = Box<dyn FnOnce()>;

thread_local! {
    static NEXT: RefCell<Option<(&'static str, Step)>> = const { RefCell::new(None) };
}

/// Has a step happen where this thread next comes to a place.
fn next(place: &'static str, step: impl FnOnce() + 'static) {
    NEXT.set(Some((place, Box::new(step))));
}

/// This thread has come to a place.
pub(super) fn reached(place: &str) {
    if let Some((_, step)) = NEXT.with_borrow_mut(|next| next.take_if(|it| it.0 == place)) {
        step();
    }
}

/// Whether what was to happen has.
fn is_done() -> bool {
    NEXT.with_borrow(Option::is_none)
}

mod tests {
    use super::super::part::Part;
    use super::super::pool::Bytes;
    use super::*;
    use crate::model::{Image, ModelDevice};
    use crate::volume::{
        Account, FormatOptions, Lease, Leased, Lock, OpenFileOptions, Purpose, Sides, SpillsMost,
        Volume, format,
    };
    use crate::{Discipline, Port};
    use std::sync::Arc;

    const BLOCK: usize = 256 << 10;

    const MIB: u64 = 1 << 20;

    /// Whoever asks gets memory; of spilled files so many bytes may be held.
    struct Plenty(u64);

    impl Leased for Plenty {
        fn set_returning(&self) {}
        fn set_staying(&self) {}
    }

    impl Account for Plenty {
        fn spilled_most(&self, _: Sides<u64>) -> SpillsMost {
            SpillsMost::anywhere(self.0)
        }

        fn lease(&self, _: u64, _: Purpose) -> Option<Lease> {
            Some(Box::new(Plenty(self.0)))
        }
    }

    fn volume(spilled_most_bytes: u64) -> Arc<Volume> {
        let model = ModelDevice::new(4096, 8192, Image::default()).expect("the sizes are right");
        let model = Arc::new(model);
        let port = || Port::new(model.clone(), Discipline::Thread).expect("opens");
        format(&port(), FormatOptions::default()).expect("formats");
        let volume = Volume::open_with_helpers(port()).expect("opens");
        volume.charge(|_| Arc::new(Plenty(spilled_most_bytes)));
        volume
    }

    #[test]
    fn who_makes_a_spilled_file_longer_forgets_nothing_that_another_has_just_added() {
        let volume = volume(64 * MIB);
        let options = OpenFileOptions { create: true, lock: Lock::None };
        let open = || volume.open_file("temp/0", options).expect("opens");
        let (file, other) = (open(), open());
        file.write_at(&vec![1; BLOCK], 0).expect("writes");
        next("settle", move || other.write_at(&vec![2; BLOCK], BLOCK as u64).expect("adds"));
        file.truncate(3 * BLOCK as u64).expect("makes it longer");
        assert!(is_done());
        let mut found = vec![0xff; 3 * BLOCK];
        assert_eq!(file.read_at(&mut found, 0).expect("reads"), found.len());
        for (number, block) in [1, 2, 0].into_iter().zip(found.chunks(BLOCK)) {
            assert!(block.iter().all(|byte| *byte == number), "block {number}: {}", block[0]);
        }
    }

    #[test]
    fn a_part_that_is_entered_while_it_ends_does_not_stay_behind() {
        let volume = volume(64 * MIB);
        let options = OpenFileOptions { create: true, lock: Lock::None };
        let file = volume.open_file("temp/0", options).expect("opens");
        let helpers = volume.helpers.as_ref().expect("it has");
        let spilled = &helpers.behind.shared.spilled;
        let bytes = spilled.copy(volume.port(), &[7; BLOCK]).expect("there is memory");
        let part = Part::new(0, BLOCK, bytes);
        let claimed = part.claim().expect("nobody has it");
        let node = file.node.clone();
        next("ended", move || {
            node.late().insert(part.clone());
            assert!(part.bytes().is_some(), "who enters it sees no end of it");
        });
        claimed.end(&file.node);
        assert!(is_done() && file.node.late().is_empty());
    }

    /// While a device refuses what was spilled, that is tried again and again: the page of it is
    /// leaving then, though it stays.
    #[test]
    fn what_spills_while_a_refused_page_is_tried_again_finds_room_in_it() {
        let volume = volume(2 * MIB);
        let options = OpenFileOptions { create: true, lock: Lock::None };
        let file = volume.open_file("temp/0", options).expect("opens");
        let helpers = volume.helpers.as_ref().expect("it has");
        // Its thread begins with the first write: there is none, and this one does what it would.
        let spilled = &helpers.behind.shared.spilled;
        let copy = |byte| spilled.copy(volume.port(), &[byte; BLOCK]);
        let part = |first, bytes: &Arc<Bytes>| {
            let part = Part::new(first, BLOCK, bytes.clone());
            spilled.fill(bytes, (Arc::downgrade(&file.node), Arc::downgrade(&part)));
            part
        };
        let bytes = copy(1).expect("there is memory");
        let first = part(0, &bytes);
        spilled.written(bytes.page(), false);
        let (page, owners) = spilled.next().expect("what was refused is tried again");
        assert_eq!((page, owners.len()), (bytes.page(), 1));
        let more = copy(2).expect("there is room where it lies");
        assert_eq!(more.page(), page);
        let second = part((BLOCK / 4096) as u64, &more);
        assert!(spilled.next().is_some(), "with the second in it, it stays, and is tried again");
        spilled.written(page, true);
        assert_eq!(copy(3).map(|bytes| bytes.page()), None, "what is written returns");
        drop((first, second));
    }
}

//! A device for crash tests: it remembers what was written since the last flush, and which of it a
//! power cut leaves behind. What survives is decided from a seed by pure code ([`survivors`]).
//!
//! The unit of tearing is a sector of 512 bytes: it holds what was flushed, or what any single
//! write or trim since then put there. A trim leaves what no user may count on: old bytes, zeros,
//! and others.

use crate::device::{Command, Device, Geometry, Ownership, Queue};
use crate::errno::explain;
use crate::meter::Meter;
use penstock_base::Result;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What no power cut divides.
pub const SECTOR_BYTES: usize = 512;
const PAGE_BYTES: usize = 4096;

/// The contents of a device; pages that were never written are zeros and take no memory.
#[derive(Clone, Default)]
pub struct Image(HashMap<u64, Arc<[u8; PAGE_BYTES]>>);

impl Image {
    /// Fills `into` from `offset` on, in bytes.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        let mut at = offset;
        let mut rest = into;
        while !rest.is_empty() {
            let within = at as usize % PAGE_BYTES;
            let count = rest.len().min(PAGE_BYTES - within);
            let (now, later) = rest.split_at_mut(count);
            match self.0.get(&(at / PAGE_BYTES as u64)) {
                Some(page) => now.copy_from_slice(&page[within..within + count]),
                None => now.fill(0),
            }
            at += count as u64;
            rest = later;
        }
    }

    /// Puts `from` at `offset`, in bytes.
    pub fn write(&mut self, offset: u64, from: &[u8]) {
        let mut at = offset;
        let mut rest = from;
        while !rest.is_empty() {
            let within = at as usize % PAGE_BYTES;
            let count = rest.len().min(PAGE_BYTES - within);
            let (now, later) = rest.split_at(count);
            let number = at / PAGE_BYTES as u64;
            if self.0.contains_key(&number) || now.iter().any(|byte| *byte != 0) {
                let page = self.0.entry(number).or_insert_with(|| Arc::new([0; PAGE_BYTES]));
                Arc::make_mut(page)[within..within + count].copy_from_slice(now);
            }
            at += count as u64;
            rest = later;
        }
    }
}

/// What a device was told, in the order in which it ended.
#[derive(Clone, Debug)]
pub enum Event {
    /// These bytes went to this offset.
    Write {
        /// In bytes.
        offset: u64,
        /// Whole blocks.
        bytes: Arc<[u8]>,
    },
    /// Blocks from this offset on were trimmed.
    Trim {
        /// In bytes.
        offset: u64,
        /// What reads of them give from then on.
        bytes: Arc<[u8]>,
    },
    /// Everything before is durable.
    Flush,
}

impl Event {
    /// What it put on the device, and at which offset: nothing for a flush.
    pub fn put(&self) -> Option<(u64, &[u8])> {
        match self {
            Event::Write { offset, bytes } | Event::Trim { offset, bytes } => {
                Some((*offset, bytes))
            }
            Event::Flush => None,
        }
    }
}

/// Numbers from a seed, the same on every machine (SplitMix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        it ^ (it >> 31)
    }

    /// The next number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound.max(1)
    }
}

/// What is left of `pending`, the events since the last flush, on top of what was durable: nothing,
/// everything, whole commands in any selection, or sectors in any selection.
pub fn survivors(durable: &Image, pending: &[Event], seed: u64) -> Image {
    let mut image = durable.clone();
    let mut dice = Dice::new(seed);
    let mode = dice.below(4);
    let mut sectors: BTreeMap<u64, Vec<&[u8]>> = BTreeMap::new();
    for event in pending {
        let Some((offset, bytes)) = event.put() else { continue };
        let is_kept = match mode {
            0 => false,
            1 => true,
            2 => dice.below(2) == 0,
            _ => {
                for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                    let at = offset + (index * SECTOR_BYTES) as u64;
                    sectors.entry(at).or_default().push(sector);
                }
                false
            }
        };
        if is_kept {
            image.write(offset, bytes);
        }
    }
    for (offset, versions) in sectors {
        let choice = dice.below(versions.len() as u64 + 1) as usize;
        if let Some(version) = versions.get(choice) {
            image.write(offset, version);
        }
    }
    image
}

/// What a trim leaves of bytes: of each sector what it held, zeros, or what nobody wrote there.
fn trimmed(mut bytes: Vec<u8>, seed: u64) -> Arc<[u8]> {
    let mut dice = Dice::new(seed);
    for sector in bytes.chunks_mut(SECTOR_BYTES) {
        match dice.below(3) {
            0 => {}
            1 => sector.fill(0),
            _ => sector.fill(dice.roll() as u8 | 0x80),
        }
    }
    bytes.into()
}

/// How a device fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No space left.
    Full,
    /// Turned read-only.
    ReadOnly,
    /// Taken out.
    Gone,
    /// Answers with an error.
    Failing,
}

impl Failure {
    fn errno(self) -> Errno {
        match self {
            Failure::Full => Errno::NOSPC,
            Failure::ReadOnly => Errno::ROFS,
            Failure::Gone => Errno::NODEV,
            Failure::Failing => Errno::IO,
        }
    }
}

struct State {
    image: Image,
    events: Vec<Event>,
    commands: u64,
    failure: Option<(std::ops::Range<u64>, Failure)>,
    /// Bytes that the medium lost.
    lost: Vec<std::ops::Range<u64>>,
}

/// A device with a volatile cache that remembers what it was told.
pub struct ModelDevice {
    geometry: Geometry,
    state: Arc<Mutex<State>>,
}

impl ModelDevice {
    /// Makes a device that holds `image`.
    ///
    /// # Errors
    /// `Invalid` or `Unsupported` for sizes that no device has.
    pub fn new(block_size_bytes: u32, block_count: u64, image: Image) -> Result<Self> {
        let geometry = Geometry {
            block_size_bytes,
            block_count,
            transfer_max_bytes: block_size_bytes.max(PAGE_BYTES as u32) * 4,
            buffer_alignment_bytes: 1,
            has_volatile_cache: true,
            can_trim: true,
            is_read_only: false,
        };
        geometry.check("model")?;
        let state =
            State { image, events: Vec::new(), commands: 0, failure: None, lost: Vec::new() };
        Ok(ModelDevice { geometry, state: Arc::new(Mutex::new(state)) })
    }

    /// What the device was told so far.
    pub fn events(&self) -> Vec<Event> {
        lock(&self.state).events.clone()
    }

    /// How many events there are.
    pub fn event_count(&self) -> usize {
        lock(&self.state).events.len()
    }

    /// Commands so far, failed ones too.
    pub fn command_count(&self) -> u64 {
        lock(&self.state).commands
    }

    /// What a reader sees now.
    pub fn image(&self) -> Image {
        lock(&self.state).image.clone()
    }

    /// Lets the commands of these numbers, counted from the first ever, fail.
    pub fn fail(&self, commands: std::ops::Range<u64>, failure: Failure) {
        lock(&self.state).failure = Some((commands, failure));
    }

    /// Lets reads of these bytes fail until they are written, by one command.
    pub fn lose(&self, bytes: std::ops::Range<u64>) {
        lock(&self.state).lost.push(bytes);
    }
}

/// Nothing panics while the lock is held, so a poisoned one hides no broken state.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device for ModelDevice {
    fn name(&self) -> &str {
        "model"
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn open_queue(&self, _: Ownership) -> Result<Box<dyn Queue>> {
        let block_size = u64::from(self.geometry.block_size_bytes);
        Ok(Box::new(ModelQueue { state: self.state.clone(), block_size }))
    }
}

struct ModelQueue {
    state: Arc<Mutex<State>>,
    block_size: u64,
}

impl Queue for ModelQueue {
    fn run(&mut self, commands: &mut [Command<'_>], meter: &Meter) -> Result<()> {
        let mut first = Ok(());
        for command in commands {
            let outcome = meter.one_by_one(std::slice::from_mut(command), |it| self.one(it));
            first = first.and(outcome);
        }
        first
    }
}

impl ModelQueue {
    fn one(&self, command: &mut Command<'_>) -> Result<()> {
        let mut state = lock(&self.state);
        let number = state.commands;
        state.commands += 1;
        if let Some((which, failure)) = &state.failure
            && which.contains(&number)
        {
            // A device that turned read-only or is full still reads.
            let still_reads = matches!(failure, Failure::Full | Failure::ReadOnly);
            if !(still_reads && matches!(command, Command::Read { .. })) {
                return Err(explain(failure.errno(), command.name(), "model"));
            }
        }
        match command {
            Command::Read { block, into } => {
                let offset = *block * self.block_size;
                let end = offset + into.len() as u64;
                if state.lost.iter().any(|lost| lost.start < end && offset < lost.end) {
                    return Err(explain(Errno::NODATA, "device read", "model"));
                }
                state.image.read(offset, into);
            }
            Command::Write { block, from } => {
                let offset = *block * self.block_size;
                let end = offset + from.len() as u64;
                state.lost.retain(|lost| lost.start < offset || end < lost.end);
                state.image.write(offset, from);
                state.events.push(Event::Write { offset, bytes: (*from).into() });
            }
            Command::Flush => state.events.push(Event::Flush),
            Command::Trim { block, blocks } => {
                let offset = *block * self.block_size;
                let mut held = vec![0; (*blocks * self.block_size) as usize];
                state.image.read(offset, &mut held);
                let bytes = trimmed(held, number);
                state.image.write(offset, &bytes);
                state.events.push(Event::Trim { offset, bytes });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn written(offset: u64, byte: u8) -> Event {
        Event::Write { offset, bytes: vec![byte; 2 * SECTOR_BYTES].into() }
    }

    #[test]
    fn a_sector_is_old_or_one_of_the_writes_and_every_mix_comes_up() {
        let mut durable = Image::default();
        durable.write(0, &[9; 4 * SECTOR_BYTES]);
        let pending = [written(0, 1), written(512, 2), written(1024, 3)];
        let allowed: [&[u8]; 4] = [&[9, 1], &[9, 1, 2], &[9, 2, 3], &[9, 3]];
        let mut seen = BTreeSet::new();
        for seed in 0..2000 {
            let image = survivors(&durable, &pending, seed);
            let mut bytes = [0; 4 * SECTOR_BYTES];
            image.read(0, &mut bytes);
            let mut mix = Vec::new();
            for (sector, allowed) in bytes.chunks(SECTOR_BYTES).zip(allowed) {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is torn");
                assert!(allowed.contains(&sector[0]), "{}", sector[0]);
                mix.push(sector[0]);
            }
            seen.insert(mix);
        }
        assert_eq!(seen.len(), 2 * 3 * 3 * 2, "every mix of sectors comes up");
    }

    #[test]
    fn what_was_trimmed_is_as_it_was_or_zeros_or_neither() {
        let mut image = Image::default();
        image.write(0, &[7; 64 * SECTOR_BYTES]);
        let model = ModelDevice::new(512, 64, image).expect("the sizes are right");
        let mut queue = model.open_queue(Ownership::Shared).expect("the model has queues");
        let mut seen = BTreeSet::new();
        queue.run(&mut [Command::Trim { block: 1, blocks: 62 }], &Meter::default()).expect("trims");
        let mut bytes = [0; 64 * SECTOR_BYTES];
        model.image().read(0, &mut bytes);
        for (sector, kept) in bytes.chunks(SECTOR_BYTES).zip(0..) {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is torn");
            assert!((1..63).contains(&kept) || sector[0] == 7, "sector {kept} was not trimmed");
            seen.insert(match sector[0] {
                0 | 7 => sector[0],
                _ => 1,
            });
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 1, 7]);
        let events = model.events();
        assert!(matches!(events[..], [Event::Trim { offset: 512, .. }]), "{events:?}");
        let (offset, left) = events[0].put().expect("it left something");
        assert_eq!(left, &bytes[offset as usize..][..62 * SECTOR_BYTES], "as reads give it");
    }

    #[test]
    fn the_same_seed_leaves_the_same() {
        let pending = [written(0, 1), written(4096, 2)];
        let read = |seed| {
            let mut bytes = [0; 8192];
            survivors(&Image::default(), &pending, seed).read(0, &mut bytes);
            bytes
        };
        assert!((0..50).all(|seed| read(seed) == read(seed)));
    }
}

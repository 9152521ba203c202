//! Objects that change while the disk cache has something of them: which of its versions are not to
//! be taken for them any more, and that this is on the disk before it matters.

use crate::cache::disk::{DiskCache, Queued, Shared, State};
use crate::cache::index::{ObjectVersion, Survivor};
use crate::cache::medium::BlockFile;
use crate::cache::outdated::Noted;
use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// A change waits so long for its note: far longer than any disk takes that moves.
pub(crate) const NOTING_MAX: Duration = Duration::from_secs(10);

/// What the medium has noted, and what it is to note.
#[derive(Debug)]
pub(super) struct Notes {
    /// Counts marks that came or went, and how many there were when they were noted.
    marks: u64,
    marks_noted: u64,
    /// Counts removals of files, and those that no power cut takes back: such a file would come
    /// back without its marks.
    removals: u64,
    removals_settled: u64,
    /// A file could not be removed, so anything may be found again.
    has_stray: bool,
    /// What is noted, whatever happens now.
    noted: Noted,
}

/// The oldest file, which was forgotten.
pub(super) struct Gone {
    pub epoch: u64,
    pub file: Option<Arc<dyn BlockFile>>,
    pub survivors: Vec<Survivor>,
}

impl Notes {
    /// At the start.
    pub fn of(noted: Noted) -> Self {
        Notes {
            marks: 0,
            marks_noted: 0,
            removals: 0,
            removals_settled: 0,
            has_stray: false,
            noted,
        }
    }

    /// Whether something has to be on the disk before anything is changed.
    fn are_behind(&self) -> bool {
        self.removals_settled < self.removals || self.has_stray && self.noted != Noted::All
    }

    fn removed(&mut self, removed: &io::Result<()>) {
        self.removals += 1;
        self.has_stray |= removed.is_err();
        self.marks += u64::from(removed.is_err());
    }
}

impl DiskCache {
    /// These objects are about to change: what is cached of them, and what comes until as many
    /// changes have ended, is not to be taken for them. Whether that still has to be noted.
    pub fn change_begins(&self, names: &[String]) -> bool {
        let mut state = self.shared.lock();
        for name in names {
            *state.changing.entry(name.clone()).or_default() += 1;
            state.outdate(name);
        }
        let State { index, notes, .. } = &*state;
        let mut hashes = names.iter().flat_map(|name| index.outdated_of(name));
        notes.are_behind() || hashes.any(|hash| !notes.noted.has(hash))
    }

    /// A change of these objects has ended.
    pub fn change_ends(&self, names: &[String]) {
        let mut state = self.shared.lock();
        for name in names {
            let left = state.changing.get_mut(name).map_or(0, |count| {
                *count -= 1;
                *count
            });
            if left == 0 {
                state.changing.remove(name);
            }
        }
    }

    /// What is cached of an object is not to be taken for it; noted with the next block.
    pub fn outdate(&self, name: &str) {
        self.shared.lock().outdate(name);
    }

    /// Whether a version is not to be taken for its object.
    pub fn is_outdated(&self, version: &ObjectVersion) -> bool {
        self.shared.lock().index.is_outdated(version)
    }

    /// The store said that its object has this version, if `counts` finds that it still does. A
    /// change has ended what counts before it begins and before it ends, so it is asked here.
    pub fn confirm(&self, version: &ObjectVersion, counts: impl FnOnce() -> bool) {
        let mut state = self.shared.lock();
        if counts() && !state.changing.contains_key(&*version.name) {
            state.notes.marks += u64::from(state.index.confirm(version));
        }
    }

    /// Returns when the medium has noted which versions are outdated.
    ///
    /// # Errors
    /// The disk's, where it may have old bytes that nothing tells from the present ones; `TimedOut`
    /// where it took longer than `most`.
    pub async fn noted(self: Arc<Self>, handle: &Handle, most: Duration) -> io::Result<()> {
        let turn = Arc::clone(&self.shared.turn);
        let noting = async {
            // A disk that stands still is not to take all threads that may wait for disks.
            let turn = turn.lock_owned().await;
            let noting = handle.spawn_blocking(move || {
                let noted = self.shared.note(true);
                drop(turn);
                noted
            });
            noting.await.map_err(io::Error::other)?
        };
        match timeout(most, noting).await {
            Ok(noted) => noted,
            Err(_) => {
                let message = format!("the disk was not done within {} s", most.as_secs_f64());
                Err(io::Error::new(io::ErrorKind::TimedOut, message))
            }
        }
    }

    /// Forgets everything and removes the files.
    pub fn clear(&self) {
        // A file that stays has a note of everything from now on, and is removed when it is found.
        let _ = self.shared.clear();
    }
}

impl Shared {
    /// Has the medium note which versions are outdated, if that has changed; for a change also that
    /// what was removed stays so. Where it does not, everything is forgotten: what is on the disk
    /// would be taken for what it is not.
    ///
    /// # Errors
    /// The medium's, where neither was done.
    pub fn note(&self, is_for_change: bool) -> io::Result<()> {
        let noting = self.noting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut written = self.write_note(is_for_change);
        let is_full = |error: &io::Error| error.kind() == io::ErrorKind::StorageFull;
        if written.as_ref().is_err_and(is_full) {
            // Others filled the disk: the cache makes room, as for a block. The last file may be
            // the one that is written.
            let last = self.lock().files.keys().max().copied();
            if self.forget_oldest(&noting, last).is_some() {
                written = self.write_note(is_for_change);
            }
        }
        let Err(error) = written else { return Ok(()) };
        let cleared = self.clear();
        let mut state = self.lock();
        state.met_refused_block();
        // What was noted may be lost.
        state.notes.noted = Noted::nothing();
        if cleared.is_ok() && !state.notes.has_stray { Ok(()) } else { Err(error) }
    }

    fn write_note(&self, is_for_change: bool) -> io::Result<()> {
        let mut state = self.lock();
        let State { index, notes, .. } = &mut *state;
        let (marks, removals) = (notes.marks, notes.removals);
        let is_noted = marks == notes.marks_noted;
        if is_noted && !(is_for_change && notes.are_behind()) {
            return Ok(());
        }
        let wanted = match notes.has_stray {
            true => Noted::All,
            false => Noted::of(index.outdated(), self.medium.hashes_max()),
        };
        let is_same = wanted == notes.noted;
        let is_settled = !is_for_change || notes.removals_settled == removals;
        notes.noted = notes.noted.and(&wanted);
        drop(state);
        match (is_same, is_settled) {
            (false, _) => self.medium.note(&wanted)?,
            (true, false) => self.medium.settle()?,
            (true, true) => {}
        }
        let notes = &mut self.lock().notes;
        notes.marks_noted = marks;
        notes.noted = wanted;
        if !is_same || !is_settled {
            notes.removals_settled = notes.removals_settled.max(removals);
        }
        Ok(())
    }

    /// Forgets the oldest file other than this one; `None` where there is none. Nothing may be
    /// noted meanwhile: what is known of its versions must not go before it.
    pub fn forget_oldest(&self, _noting: &MutexGuard<'_, ()>, but: Option<u64>) -> Option<Gone> {
        let mut state = self.lock();
        let (number, survivors) = state.index.forget_oldest(but)?;
        let file = state.files.remove(&number);
        let epoch = state.epoch;
        // Before it is gone: a change that begins now has to wait until it is.
        state.notes.removals += 1;
        if !survivors.is_empty() {
            state.moving.get_or_insert_default();
        }
        drop(state);
        let removed = self.medium.remove(number);
        self.lock().notes.removed(&removed);
        Some(Gone { epoch, file, survivors })
    }

    /// As [`DiskCache::clear`].
    ///
    /// # Errors
    /// The medium's, where something of it stays or may come back.
    pub fn clear(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.epoch += 1;
        let dropped: Vec<Queued> = state.queue.drain(..).collect();
        state.queue_bytes = 0;
        let mut cleared = Ok(());
        for file in state.index.clear() {
            // Before it is given back, which lets another one have its place.
            let removed = self.medium.remove(file);
            state.notes.removed(&removed);
            cleared = cleared.and(removed);
            state.files.remove(&file);
        }
        let removals = state.notes.removals;
        drop(state);
        drop(dropped);
        self.progress.notify_waiters();
        self.medium.settle()?;
        let notes = &mut self.lock().notes;
        notes.removals_settled = notes.removals_settled.max(removals);
        cleared
    }
}

impl State {
    /// As [`DiskCache::outdate`].
    pub fn outdate(&mut self, name: &str) {
        self.notes.marks += u64::from(self.index.outdate(name));
        if let Some(changed) = &mut self.moving {
            changed.insert(name.to_string());
        }
    }

    /// One version, of which something is about to be there, is not to be taken for its object.
    pub fn outdate_version(&mut self, version: &ObjectVersion) {
        self.notes.marks += u64::from(self.index.outdate_version(version));
    }

    /// As [`State::outdate_version`], of one of which nothing is known.
    pub fn doubt_version(&mut self, version: &ObjectVersion) {
        self.notes.marks += u64::from(self.index.doubt_version(version));
    }
}

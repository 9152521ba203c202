//! One upload: parts on their way while bytes still arrive. How it ends is in `finish`.

use crate::attempt::{Weight, retry};
use crate::budget::{Pressable, Pressed};
use crate::cancel::Cancellation;
use crate::cause::Cause;
use crate::location::{Location, ObjectId};
use crate::query::QueryCore;
use crate::upload::buffer::PartBuffer;
use crate::upload::commits::Commit;
use crate::upload::retract::Outcome;
use crate::upload::schedule::Schedule;
use penstock_base::door::setting;
use penstock_base::{Error, Kind, Metric, Result};
use penstock_store::{Part, PutOptions, UploadId};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::watch;

/// An upload, shared by its writer, its parts and the query's barrier.
#[derive(Debug)]
pub(crate) struct Upload {
    pub(super) query: Arc<QueryCore>,
    pub(super) at: Location,
    pub(super) options: PutOptions,
    pub(super) schedule: Schedule,
    /// The part that fills. Never locked while memory is asked for or given back.
    filling: Mutex<Filling>,
    pub(super) parts: watch::Sender<Parts>,
    /// `None` until the store has answered.
    pub(super) store_id: watch::Sender<Option<UploadId>>,
    pub(super) cancel: Cancellation,
    pub(super) given_up: AtomicBool,
    /// Held from the request that makes the object visible until its end is known.
    pub(super) commit: Mutex<Option<Commit>>,
    /// Whether a request that makes the object visible was sent.
    pub(super) was_sent: AtomicBool,
    pub(super) outcome: watch::Sender<Outcome>,
    pub(super) itself: Weak<Upload>,
}

#[derive(Debug, Default)]
pub(super) struct Filling {
    pub buffer: PartBuffer,
    /// Parts begun so far; the one that fills gets the next number.
    pub begun: u32,
    /// Bytes of the object so far.
    pub taken_bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Parts {
    pub in_flight: usize,
    pub sent: Vec<Part>,
    failure: Option<Error>,
    pub failed: bool,
}

impl Upload {
    pub fn new(query: &Arc<QueryCore>, at: &Location, options: PutOptions) -> Arc<Self> {
        let settings = &query.settings;
        let limit = query.engine.budget.limit_bytes();
        let upload = Arc::new_cyclic(|itself| Upload {
            query: Arc::clone(query),
            at: at.clone(),
            options,
            schedule: Schedule::new(&at.mount.profile, settings.part_size_bytes, limit),
            filling: Mutex::default(),
            parts: watch::Sender::default(),
            store_id: watch::Sender::default(),
            cancel: Cancellation::default(),
            given_up: AtomicBool::new(false),
            commit: Mutex::default(),
            was_sent: AtomicBool::new(false),
            outcome: watch::Sender::default(),
            itself: Weak::clone(itself),
        });
        let pressable: Weak<dyn Pressable> = upload.itself.clone();
        query.engine.budget.register(pressable);
        query.engine.open_uploads.register(&upload);
        upload
    }

    pub fn query(&self) -> Arc<QueryCore> {
        Arc::clone(&self.query)
    }

    pub fn location(&self) -> &Location {
        &self.at
    }

    pub fn id(&self) -> ObjectId {
        self.at.id()
    }

    /// Copies bytes into the part that fills, sending it whenever it is full.
    pub async fn write(&self, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            self.failure()?;
            let (taken, wanted) = self.fill(data)?;
            data = &data[taken..];
            if let Some(bytes) = wanted {
                self.wait_for_parts().await?;
                let lease = self.query.engine.budget.lease(bytes).await;
                let pool = &self.query.engine.pieces;
                self.filling().buffer.add_piece(pool, bytes, lease);
            }
        }
        Ok(())
    }

    /// Copies what there is room for; tells how much, and how large the next piece should be.
    fn fill(&self, data: &[u8]) -> Result<(usize, Option<u64>)> {
        let mut filling = self.filling();
        let target =
            self.schedule.part_bytes(filling.begun + 1).ok_or_else(|| self.too_many_parts())?;
        if filling.buffer.len() == target {
            // Sent only now that more follows: an object of exactly one part is one PUT.
            let part = self.take_part(&mut filling);
            drop(filling);
            self.send_part(part);
            return Ok((0, None));
        }
        let room = usize::try_from(target - filling.buffer.len()).unwrap_or(usize::MAX);
        let taken = filling.buffer.fill(&data[..data.len().min(room)]);
        filling.taken_bytes += taken as u64;
        let full = filling.buffer.len() == target;
        let wanted = (taken < data.len() && !full).then(|| filling.buffer.next_piece_bytes(target));
        Ok((taken, wanted))
    }

    /// One upload does not queue more parts than could be sent at once.
    async fn wait_for_parts(&self) -> Result<()> {
        let most = usize::try_from(self.query.settings.upload_concurrency).unwrap_or(usize::MAX);
        let mut parts = self.parts.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = parts.wait_for(|parts| parts.in_flight < most || parts.failed).await;
        drop(parts);
        self.failure()
    }

    /// Parts that are on their way, and those to come, would be sent in vain.
    pub(super) fn fail(&self, error: Error) {
        self.parts.send_modify(|parts| parts.fail(error));
        self.cancel.cancel();
    }

    /// What a defect of ours is told as: its task ended without an answer.
    pub(super) fn unanswered(&self, operation: &'static str) -> Error {
        Error::new(Kind::Internal, "the task that asked for it ended without an answer")
            .with_operation(operation)
            .with_object(self.at.url())
    }

    /// Stops what is on its way; whoever awaits it gives up.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Ends it without its writer, who hears of it at the next byte. One that ended already stays.
    pub fn stop(&self) {
        let error = || Error::new(Kind::Cancelled, "the process ends").with_object(self.at.url());
        self.parts.send_modify(|parts| parts.fail(error()));
        self.give_up_or_cancel();
    }

    /// Gives up what is open, which does not end any more. What is on its way to its end gives
    /// itself up, and takes back what it still makes: its bytes are not taken from under it.
    pub(super) fn give_up_or_cancel(&self) {
        let mut found = Outcome::Open;
        self.outcome.send_if_modified(|outcome| {
            found = outcome.clone();
            let is_open = *outcome == Outcome::Open;
            if is_open {
                *outcome = Outcome::Nothing;
            }
            is_open
        });
        match found {
            Outcome::Open => self.give_up(),
            Outcome::Ending => self.cancel(),
            Outcome::Nothing | Outcome::Untold | Outcome::Made(_) => {}
        }
    }

    /// Nothing becomes visible; what the store holds of it is aborted in the background. Only for
    /// one that is not on its way to its end: see [`Upload::give_up_or_cancel`].
    pub(super) fn give_up(&self) {
        if self.given_up.swap(true, Ordering::SeqCst) {
            return;
        }
        self.cancel.cancel();
        self.query.scope.count(Metric::UploadsAborted, 1);
        let (begun, buffer) = {
            let mut filling = self.filling();
            (filling.begun, std::mem::take(&mut filling.buffer))
        };
        drop(buffer);
        // Before the store has answered the beginning, that task tidies up when it does.
        if begun > 0
            && self.store_id.borrow().is_some()
            && let Some(upload) = self.itself.upgrade()
        {
            let query = Arc::clone(&self.query);
            query.engine.cleanups.spawn(&query, async move { upload.tidy_up().await });
        }
    }

    /// Aborts the parts at the store, once none is on its way any more.
    pub(super) async fn tidy_up(&self) {
        let mut parts = self.parts.subscribe();
        let _ = parts.wait_for(|parts| parts.in_flight == 0).await;
        drop(parts);
        let Some(upload) = self.store_id.borrow().clone() else { return };
        let (store, key) = (&self.at.mount.store, &self.at.key);
        // The store's own expiry of unfinished uploads is the last resort; the caller has the
        // error that made the upload fail, and the request log has this one.
        let _ = retry(&self.query, (Cause::Abort, "abort upload", &self.at), Weight::Small, || {
            store.abort_upload(key, &upload)
        })
        .await;
    }

    pub(super) fn filling(&self) -> MutexGuard<'_, Filling> {
        self.filling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error that stopped the parts, once; later callers hear that it failed.
    pub(super) fn failure(&self) -> Result<()> {
        if !self.parts.borrow().failed {
            return Ok(());
        }
        let mut failure = None;
        self.parts.send_if_modified(|parts| {
            failure = parts.failure.take();
            false
        });
        Err(failure.unwrap_or_else(|| {
            Error::new(Kind::Cancelled, "the upload failed before")
                .with_operation("upload")
                .with_object(self.at.url())
        }))
    }

    /// A part that fails cancels the others: what is told is why it failed.
    pub(super) fn first_failure(&self, error: Error) -> Error {
        match self.failure() {
            Err(first) if error.kind() == Kind::Cancelled => first,
            _ => error,
        }
    }

    pub(super) fn too_many_parts(&self) -> Error {
        Error::new(Kind::Exhausted, "the store takes no more parts for this object")
            .with_operation("upload")
            .with_object(self.at.url())
            .with_hint(format!(
                "Write several smaller files (FILE_SIZE_BYTES), or raise {}",
                setting("part_size_bytes")
            ))
    }
}

impl Filling {
    /// Bytes that may be sent before the part is full; 0 where there are too few.
    fn early_bytes(&self, schedule: &Schedule) -> u64 {
        let bytes = self.buffer.len();
        match schedule.early_bytes_min(self.begun + 1) {
            Some(least) if bytes >= least => bytes,
            _ => 0,
        }
    }
}

impl Parts {
    pub(super) fn fail(&mut self, error: Error) {
        // The first failure cancels the rest, whose errors say nothing new.
        if !std::mem::replace(&mut self.failed, true) {
            self.failure = Some(error);
        }
    }
}

impl Pressable for Upload {
    fn returnable_bytes(&self) -> Option<u64> {
        Some(self.filling.try_lock().ok()?.early_bytes(&self.schedule))
    }

    fn press(&self) -> Pressed {
        let Ok(mut filling) = self.filling.try_lock() else { return Pressed::Busy };
        if filling.early_bytes(&self.schedule) == 0 {
            return Pressed::Nothing;
        }
        let part = self.take_part(&mut filling);
        drop(filling);
        self.send_part(part);
        Pressed::Gave
    }
}

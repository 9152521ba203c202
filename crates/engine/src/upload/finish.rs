//! The end of an upload: made visible whole, or taken back.

use crate::attempt::{Weight, retry};
use crate::cancel::cancelled;
use crate::cause::{Asked, Cause, shown_url};
use crate::location::Location;
use crate::names::may_have_acted;
use crate::query::QueryCore;
use crate::upload::buffer::PartBuffer;
use crate::upload::commits::Commit;
use crate::upload::core::{Filling, Upload};
use crate::upload::outputs::check_apart;
use crate::upload::retract::Outcome;
use crate::upload::sending::Leaving;
use crate::upload::single::send_whole;
use penstock_base::{Error, Kind, Metric, Result, Retry};
use penstock_store::{Again, ETag, ObjectMeta, PutResult, WriteCondition};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// How long the answer to the request that makes an object visible is waited for after the upload
/// was given up, and how long its removal may take. Without an answer nothing is removed: what
/// stands under the name may be what stood there before.
const TAKE_BACK_MAX: Duration = Duration::from_secs(3);

impl Upload {
    /// Ends in the background; the result comes through the channel. Dropping the receiver changes
    /// nothing: [`Upload::give_up_or_cancel`] does.
    pub fn finish_spawned(&self) -> oneshot::Receiver<Result<PutResult>> {
        let (told, result) = oneshot::channel();
        self.spawn_finish(move |result| {
            // Its writer may be gone.
            let _ = told.send(result);
        });
        result
    }

    /// Ends in the background, for the query's barrier.
    pub fn finish_detached(&self) {
        let Some(upload) = self.itself.upgrade() else { return };
        let number = self.query.uploads.begin(&upload);
        let query = Arc::clone(&self.query);
        self.spawn_finish(move |result| query.uploads.ended(number, result.err()));
    }

    fn spawn_finish(&self, tell: impl FnOnce(Result<PutResult>) + Send + 'static) {
        let Some(upload) = self.itself.upgrade() else { return };
        let begins = self.outcome.send_if_modified(|outcome| {
            let is_open = *outcome == Outcome::Open;
            if is_open {
                *outcome = Outcome::Ending;
            }
            is_open
        });
        if !begins {
            // It was given up from elsewhere, and its bytes are gone.
            return tell(Err(self.first_failure(cancelled().with_object(self.at.url()))));
        }
        let ending = Ending { upload, tell: Some(tell) };
        self.query.engine.cleanups.spawn(&self.query, async move {
            let result = ending.upload.finish_or_take_back().await;
            ending.ended(result);
        });
    }

    /// Finishes unless cancelled. Once the request that makes the object visible is on its way,
    /// dropping it would leave open whether the store still carries it out: its answer is waited
    /// for, and what it made is removed.
    async fn finish_or_take_back(&self) -> Result<PutResult> {
        let result = self.finish_or_remove().await;
        // A late object that could not be removed yet is known as made already.
        self.outcome.send_if_modified(|outcome| {
            let ending = *outcome == Outcome::Ending;
            if ending {
                *outcome = match &result {
                    Err(error) if self.may_stand_for(error) => Outcome::Untold,
                    result => Outcome::of(result),
                };
            }
            ending
        });
        let result = match result {
            // Given up just as it ended: whoever did so is told that nothing is there.
            Ok(made) if self.check_wanted().is_err() => {
                self.take_back(made.etag).await;
                Err(cancelled())
            }
            result => result,
        };
        drop(self.commit().take());
        result
    }

    /// Removes what was made where nobody heard of it: who waited for the end was stopped just
    /// then. Behind [`Upload::give_up_or_cancel`], after which an end that is not yet told as made
    /// takes itself back.
    pub(super) fn take_back_unheard(&self) {
        let Outcome::Made(made) = self.outcome.borrow().clone() else { return };
        let Some(upload) = self.itself.upgrade() else { return };
        self.query.engine.cleanups.spawn(&self.query, async move {
            let _commit = upload.query.engine.commits.enter(upload.at.name()).await;
            upload.take_back(made).await;
        });
    }

    /// Waits for its turn to place an object under this name.
    ///
    /// # Errors
    /// `Cancelled` where it is not wanted any more by then.
    async fn begin_commit(&self) -> Result<()> {
        let commit = self.query.engine.commits.enter(self.at.name()).await;
        *self.commit() = Some(commit);
        self.check_wanted()
    }

    /// Asked before each request that makes the object visible: one that is not sent leaves what
    /// stands there, and one that is sent replaces it, even if its own object is taken back.
    fn check_wanted(&self) -> Result<()> {
        if self.query.cancel.is_cancelled() || self.cancel.is_cancelled() {
            return Err(cancelled());
        }
        Ok(())
    }

    /// As [`Upload::check_wanted`], where the request follows at once.
    fn begin_request(&self) -> Result<()> {
        self.check_wanted()?;
        self.was_sent.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the object may stand there though this is what became of its upload: a request was
    /// sent, and nobody waits for its answer, or asks again.
    fn may_stand_for(&self, error: &Error) -> bool {
        let is_open = error.kind() == Kind::Cancelled || may_have_acted(error);
        is_open && self.was_sent.load(Ordering::Relaxed)
    }

    fn commit(&self) -> MutexGuard<'_, Option<Commit>> {
        self.commit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn finish_or_remove(&self) -> Result<PutResult> {
        let mut finishing = pin!(self.finish());
        tokio::select! {
            biased;
            result = &mut finishing => return result,
            () = self.query.cancel.cancelled() => {}
            () = self.cancel.cancelled() => {}
        }
        if self.commit().is_some()
            && let Ok(Ok(made)) = timeout(TAKE_BACK_MAX, finishing).await
        {
            self.take_back(made.etag).await;
        }
        Err(cancelled())
    }

    /// Removes what this upload made, and nothing that somebody wrote since.
    async fn take_back(&self, made: Option<ETag>) {
        // Whoever gave the upload up may remove the object too, and hears of a failure.
        let removal = self.remove_made(&self.query, made.as_ref(), false);
        let removed = timeout(TAKE_BACK_MAX, removal).await;
        if !(matches!(removed, Ok(Ok(()))) && *self.outcome.borrow() == Outcome::Nothing) {
            self.outcome.send_replace(Outcome::Made(made));
        }
    }

    /// Makes the object visible: one PUT if no part was sent, else the last part and the end.
    async fn finish(&self) -> Result<PutResult> {
        self.failure()?;
        let (query, at) = (&self.query, std::slice::from_ref(&self.at));
        let change = query.engine.listings.finish(query, at).await?;
        let (size, last) = {
            let mut filling = self.filling();
            (filling.taken_bytes, self.take_last(&mut filling))
        };
        let result = self.place(size, last).await;
        change.ended(&result);
        let result = result.map_err(|error| self.explained(error))?;
        published(&self.query, &self.at, size, &result);
        if let Some(tag) = &result.etag
            && let Err(error) = check_apart(&self.query, &self.at, tag).await
        {
            self.take_back(result.etag).await;
            return Err(error);
        }
        Ok(result)
    }

    async fn place(&self, size: u64, last: Result<Last>) -> Result<PutResult> {
        match last? {
            Last::Whole(buffer) => return self.finish_whole(size, buffer).await,
            Last::Part(part) => self.send_part(part),
            Last::Nothing => {}
        }
        self.finish_parts(size).await
    }

    fn take_last(&self, filling: &mut Filling) -> Result<Last> {
        if filling.begun == 0 {
            return Ok(Last::Whole(std::mem::take(&mut filling.buffer)));
        }
        if filling.buffer.len() == 0 {
            return Ok(Last::Nothing);
        }
        match self.schedule.part_bytes(filling.begun + 1) {
            Some(_) => Ok(Last::Part(self.take_part(filling))),
            None => Err(self.too_many_parts()),
        }
    }

    async fn finish_whole(&self, size: u64, buffer: PartBuffer) -> Result<PutResult> {
        let _slot = self.slot().await;
        self.begin_commit().await?;
        self.check_whole(size, buffer.len())?;
        let check = || self.begin_request();
        send_whole(&self.query, &self.at, buffer.seal(), &self.options, check).await
    }

    async fn finish_parts(&self, size: u64) -> Result<PutResult> {
        let mut parts = self.parts.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = parts.wait_for(|parts| parts.in_flight == 0 || parts.failed).await;
        drop(parts);
        self.failure()?;
        let mut sent = self.parts.borrow().sent.clone();
        sent.sort_by_key(|part| part.number);
        let upload = self.id_at_store().await?;
        let (store, key) = (&self.at.mount.store, &self.at.key);
        self.begin_commit().await?;
        self.check_whole(size, sent.iter().map(|part| part.size_bytes).sum())?;
        let complete = async || {
            self.begin_request()?;
            let made = store.complete_upload(key, &upload, &sent, &self.options).await;
            made.map_err(final_conflict)
        };
        // Its time depends on the size, as a copy's does.
        match retry(
            &self.query,
            (Cause::Write, "complete upload", &self.at),
            Weight::Body,
            complete,
        )
        .await
        {
            // The store may have gone on behind an attempt that broke off: asked again it tells
            // whether the object is there, which nobody should hear of as a failure.
            Err(error) if may_have_acted(&error) => {
                self.at.mount.sent_again(&self.query.scope, Again::Failed);
                let asked = Asked { url: shown_url(&self.at), cause: Cause::Write, attempt: 2 };
                asked.run(complete()).await.map_err(|_| error)
            }
            result => result,
        }
    }

    /// The last guard before an object becomes visible: all that was taken is in it.
    fn check_whole(&self, taken_bytes: u64, placed_bytes: u64) -> Result<()> {
        if taken_bytes == placed_bytes {
            return Ok(());
        }
        let why = format!(
            "{taken_bytes} bytes were written and {placed_bytes} are there to be placed, so the \
             object was not made; what stood there before still does"
        );
        Err(Error::new(Kind::Internal, why)
            .with_operation("upload")
            .with_object(self.at.url())
            .with_hint(Kind::Internal.next_move()))
    }

    fn explained(&self, error: Error) -> Error {
        if error.kind() == Kind::Conflict && self.options.condition == WriteCondition::IfAbsent {
            return error
                .with_note("the object exists; an earlier attempt of this write may have made it");
        }
        error
    }
}

/// A completion that met another write of the name is not sent again: S3 wants the upload begun
/// anew (CompleteMultipartUpload, 409).
fn final_conflict(error: Error) -> Error {
    match error.kind() {
        Kind::Conflict => error.with_retry(Retry::Never),
        _ => error,
    }
}

/// What is still to be sent when no more is written.
enum Last {
    /// No part was sent.
    Whole(PartBuffer),
    Part(Option<Leaving>),
    Nothing,
}

/// An upload on its way to its end; who waits for that is told, also where its task panics.
struct Ending<T: FnOnce(Result<PutResult>)> {
    upload: Arc<Upload>,
    tell: Option<T>,
}

impl<T: FnOnce(Result<PutResult>)> Ending<T> {
    fn ended(mut self, result: Result<PutResult>) {
        let result = result.map_err(|error| self.upload.first_failure(error));
        if result.is_err() {
            self.upload.give_up();
        }
        if let Some(tell) = self.tell.take() {
            tell(result);
        }
    }
}

impl<T: FnOnce(Result<PutResult>)> Drop for Ending<T> {
    fn drop(&mut self) {
        let Some(tell) = self.tell.take() else { return };
        self.upload.outcome.send_replace(Outcome::Nothing);
        drop(self.upload.commit().take());
        self.upload.give_up();
        tell(Err(self.upload.unanswered("finish upload")));
    }
}

/// An object is there: what was remembered of its name is replaced.
pub(super) fn published(query: &QueryCore, at: &Location, size_bytes: u64, result: &PutResult) {
    query.forget(at);
    query.scope.count(Metric::Uploads, 1);
    if result.etag.is_some() {
        let meta = ObjectMeta {
            size_bytes: Some(size_bytes),
            etag: result.etag.clone(),
            modified: result.modified,
            ..ObjectMeta::default()
        };
        query.engine.metadata.confirm(at, &meta, false, Instant::now());
    }
}

#[cfg(test)]
mod tests;

//! The parts of an upload on their way, and its beginning at the store.

use crate::attempt::{Weight, retry};
use crate::cause::Cause;
use crate::slots::Slot;
use crate::upload::core::{Filling, Upload};
use penstock_base::{Error, Kind, Result};
use penstock_store::{Part, Payload, UploadId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Upload {
    /// Takes the part that fills. It is on its way from here on, under the lock by which others
    /// see that it is no longer there: an end that came in between would miss it.
    pub(super) fn take_part(&self, filling: &mut Filling) -> Option<Leaving> {
        let sending = Sending::begin(self.itself.upgrade()?);
        filling.begun += 1;
        let payload = std::mem::take(&mut filling.buffer).seal();
        Some(Leaving { number: filling.begun, payload, sending })
    }

    /// Sends a part in the background; `None` is one of an upload that is being dropped.
    pub(super) fn send_part(&self, part: Option<Leaving>) {
        let Some(Leaving { number, payload, sending }) = part else { return };
        let upload = Arc::clone(&sending.upload);
        if number == 1 {
            self.begin_at_store();
        }
        let scope = Arc::clone(&self.query.scope);
        self.query.engine.handle.spawn(scope.run(async move {
            let sent = upload.part_sent(number, payload);
            sending.ended(upload.query.cancel.race(upload.cancel.race(sent)).await);
        }));
    }

    async fn part_sent(&self, number: u32, payload: Payload) -> Result<Part> {
        let _slot = self.slot().await;
        let upload = self.id_at_store().await?;
        let (store, key) = (&self.at.mount.store, &self.at.key);
        retry(&self.query, (Cause::Write, "upload part", &self.at), Weight::Body, || {
            store.upload_part(key, &upload, number, payload.clone())
        })
        .await
    }

    pub(super) async fn slot(&self) -> Slot<'_> {
        self.query.engine.upload_slots.slot().await
    }

    /// Asks the store for an upload. Not cancelled with the parts: what was begun there has to be
    /// known to be aborted.
    fn begin_at_store(&self) {
        let Some(upload) = self.itself.upgrade() else { return };
        let query = Arc::clone(&self.query);
        query.engine.cleanups.spawn(&query, async move {
            let _beginning = Beginning(Arc::clone(&upload));
            let (store, key) = (&upload.at.mount.store, &upload.at.key);
            let begun = retry(
                &upload.query,
                (Cause::Write, "create upload", &upload.at),
                Weight::Small,
                || store.create_upload(key, &upload.options),
            );
            match begun.await {
                Ok(id) => {
                    upload.store_id.send_replace(Some(id));
                }
                Err(error) => upload.fail(error),
            }
            if upload.given_up.load(Ordering::SeqCst) {
                upload.tidy_up().await;
            }
        });
    }

    pub(super) async fn id_at_store(&self) -> Result<UploadId> {
        let mut id = self.store_id.subscribe();
        match id.wait_for(Option::is_some).await.map(|id| id.clone()) {
            Ok(Some(id)) => Ok(id),
            _ => Err(Error::new(Kind::Internal, "the upload was dropped while it was begun")),
        }
    }
}

/// A part that was taken and is about to be sent.
pub(super) struct Leaving {
    number: u32,
    payload: Payload,
    sending: Sending,
}

/// A part on its way, until this is dropped: nobody waits for one whose task panicked.
struct Sending {
    upload: Arc<Upload>,
    result: Option<Result<Part>>,
}

impl Sending {
    fn begin(upload: Arc<Upload>) -> Self {
        upload.parts.send_modify(|parts| parts.in_flight += 1);
        Sending { upload, result: None }
    }

    fn ended(mut self, result: Result<Part>) {
        self.result = Some(result);
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let sent = self.result.take();
        let sent = sent.unwrap_or_else(|| Err(self.upload.unanswered("upload part")));
        let failed = sent.is_err();
        self.upload.parts.send_modify(|parts| {
            parts.in_flight -= 1;
            match sent {
                Ok(part) => parts.sent.push(part),
                Err(error) => parts.fail(error),
            }
        });
        if failed {
            self.upload.cancel.cancel();
        }
    }
}

/// An upload that the store is being asked for, until this is dropped.
struct Beginning(Arc<Upload>);

impl Drop for Beginning {
    fn drop(&mut self) {
        if self.0.store_id.borrow().is_none() {
            self.0.fail(self.0.unanswered("create upload"));
        }
    }
}

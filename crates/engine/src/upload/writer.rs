//! The writer's side of an upload: bytes in, in order.

use crate::location::Location;
use crate::query::Query;
use crate::upload::core::Upload;
use penstock_base::{Error, Kind, Result};
use penstock_store::{Payload, PutOptions, PutResult, WriteCondition};
use std::sync::Arc;

/// An object that is being written; invisible until finished. Dropping it unfinished gives it up.
#[derive(Debug)]
pub struct Writer {
    upload: Arc<Upload>,
    position: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// A write failed or was interrupted: how much of it was taken is not known, so the object
    /// cannot be whole any more.
    Torn,
    /// Its end was asked for, and not heard of yet.
    Ending,
    Closed,
}

impl Query {
    /// Begins an object. Costs no request: a small object will be one PUT.
    ///
    /// # Errors
    /// `Unsupported` where the store cannot be written, or not under this condition; `Conflict`
    /// after [`Query::writes_each_name_once`] for a name that was given before.
    pub fn create(&self, at: &Location, options: PutOptions) -> Result<Writer> {
        let able = at.mount.capabilities;
        let unsupported = |why: &str| {
            Err(Error::new(Kind::Unsupported, why).with_operation("write").with_object(at.url()))
        };
        if !able.write {
            return unsupported("this store can only be read");
        }
        if options.condition != WriteCondition::None && !able.conditional_put {
            return unsupported("this store cannot make a write depend on what is there");
        }
        self.core.outputs.begin(at)?;
        let upload = Upload::new(&self.core, at, options);
        Ok(Writer { upload, position: 0, state: State::Open })
    }

    /// Places a whole object in one request, for a gateway.
    ///
    /// # Errors
    /// `Conflict` when the condition does not hold; `Denied`, `Throttled`, `Unavailable`.
    pub async fn put(
        &self,
        at: &Location,
        payload: Payload,
        options: &PutOptions,
    ) -> Result<PutResult> {
        self.core.run(crate::upload::single::put(&self.core, at, payload, options)).await
    }
}

impl Writer {
    /// Takes the next bytes; copies them. Waits while the memory limit is reached, or while this
    /// upload has more parts on their way than may be sent at once.
    ///
    /// # Errors
    /// What made an earlier part fail; `Exhausted` when the store takes no more parts; `Cancelled`.
    /// After an error, or where it is dropped before it ends, the object can only be given up.
    pub async fn write(&mut self, data: &[u8]) -> Result<()> {
        self.check_open()?;
        let query = self.upload.query();
        self.state = State::Torn;
        query.run(self.upload.write(data)).await?;
        self.state = State::Open;
        self.position += data.len() as u64;
        Ok(())
    }

    /// Bytes taken so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The object.
    pub fn location(&self) -> &Location {
        self.upload.location()
    }

    /// Makes the object visible and durable. Where it is dropped before it ends, dropping the
    /// writer or [`Writer::abort`] gives the object up.
    ///
    /// # Errors
    /// What failed; then nothing became visible, and the parts are aborted. `Conflict` when the
    /// condition does not hold.
    pub async fn finish(&mut self) -> Result<PutResult> {
        self.check_open()?;
        let query = self.upload.query();
        self.state = State::Ending;
        let finished = self.upload.finish_spawned();
        let gone = || Error::new(Kind::Internal, "the I/O runtime ended before the upload did");
        let result = query.run(async { finished.await.map_err(|_| gone())? }).await;
        self.state = State::Closed;
        if result.is_err() {
            // Cancelled, it may still be on its way to its end, or have come there meanwhile.
            self.upload.give_up_or_cancel();
            self.upload.take_back_unheard();
        }
        result
    }

    /// Lets the upload end in the background; [`Query::barrier`] waits for it and tells how it
    /// ended.
    ///
    /// # Errors
    /// What made an earlier part fail.
    pub fn finish_detached(&mut self) -> Result<()> {
        self.check_open()?;
        self.state = State::Closed;
        self.upload.finish_detached();
        Ok(())
    }

    /// Gives the object up: nothing becomes visible.
    pub fn abort(&mut self) {
        if std::mem::replace(&mut self.state, State::Closed) != State::Closed {
            self.upload.query().outputs.forget(self.upload.location());
            self.upload.give_up_or_cancel();
        }
    }

    pub(super) fn upload(&self) -> &Upload {
        &self.upload
    }

    fn check_open(&self) -> Result<()> {
        let error = match self.state {
            State::Open => return Ok(()),
            State::Torn => {
                self.upload.failure()?;
                Error::new(Kind::Cancelled, "an earlier write of it failed or was interrupted")
            }
            State::Ending | State::Closed => {
                Error::new(Kind::Internal, "the writer was finished or given up already")
            }
        };
        Err(error.with_operation("write").with_object(self.upload.location().url()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.abort();
    }
}

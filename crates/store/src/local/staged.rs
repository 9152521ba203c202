//! What a gateway needs of a local bucket besides the traits of stores: bodies that are never whole
//! in memory, and the end of the bucket.
//!
//! A [`Staged`] body is a hidden file that grows as pieces come, and is published or forgotten as a
//! whole. A piece is written where it arrives while the disk keeps up, and else on a blocking
//! thread, one write at a time, while the next pieces are collected.

mod held;
mod here;
mod share;

use super::names::Location;
use super::write::{self, Temp};
use super::{LocalStore, Shared, attributes::Attributes};
use super::{bucket, removal, upload};
use crate::streaming::{Inflow, next_piece};
use crate::sums::Sum;
use crate::{Part, PutOptions, PutResult, UploadId, WriteCondition};
use bytes::Bytes;
use held::Held;
use here::Here;
use penstock_base::{Error, Kind, Result};
use share::{Share, Turn};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use tokio::task::JoinHandle;

/// A body on its way into the bucket. Dropped without being placed, it leaves nothing.
#[derive(Debug)]
pub struct Staged {
    shared: Arc<Shared>,
    location: Location,
    part: Option<u32>,
    /// `None` while a write has it.
    temp: Option<Temp>,
    held: Held,
    flight: Option<JoinHandle<(Temp, Result<()>)>>,
    share: Share,
}

impl Staged {
    fn new(shared: Arc<Shared>, location: Location, part: Option<u32>, temp: Temp) -> Self {
        Staged {
            shared,
            location,
            part,
            temp: Some(temp),
            held: Held::default(),
            flight: None,
            share: Share::take(),
        }
    }

    /// Takes a body to its end. Waits while the disk is slower than the sender.
    ///
    /// # Errors
    /// `Exhausted` for a full disk; what an earlier piece met; what the body's sender did wrong.
    pub async fn fill(&mut self, body: &mut dyn Inflow) -> Result<()> {
        while let Some(piece) = next_piece(body).await {
            let Some(turn) = self.write(piece?).await? else { continue };
            // While this body waited, the next piece may have come.
            let mut is_ended = false;
            while !is_ended && self.held.bytes() < self.share.bytes() {
                let Some(piece) = ready_piece(body).await else { break };
                match piece {
                    Some(piece) => self.hold(piece?),
                    None => is_ended = true,
                }
            }
            self.take_off(turn)?;
            if is_ended {
                break;
            }
        }
        Ok(())
    }

    /// Takes a piece that is to be written with the next ones, or at the end. Only as much may come
    /// so as one write takes.
    pub fn hold(&mut self, piece: Bytes) {
        self.held.push(piece);
    }

    /// Takes the next piece. Some turn to write it, with what else is held, on a blocking thread;
    /// or none, as long as nothing is to be written so.
    async fn write(&mut self, piece: Bytes) -> Result<Option<Turn>> {
        self.hold(piece);
        if self.held.bytes() < share::WRITE_BYTES_LEAST {
            return Ok(None);
        }
        if self.flight.as_ref().is_some_and(JoinHandle::is_finished) {
            self.land().await?;
        }
        if self.flight.is_none()
            && self.held.bytes() <= share::WRITE_BYTES_MAX
            && let Some(here) = Here::begin()
        {
            return self.write_held(here).map(|()| None);
        }
        if !self.share.is_enough(self.held.bytes()) {
            return Ok(None);
        }
        self.land().await?;
        Ok(Some(self.share.turn().await))
    }

    /// Writes what is held on this thread.
    fn write_held(&mut self, here: Here) -> Result<()> {
        let shown = self.shown();
        let pieces = self.held.take();
        let written = self.temp.as_mut().ok_or_else(used_up)?.append(&pieces, &shown);
        drop(here);
        written
    }

    /// Waits for the write that is under way.
    async fn land(&mut self) -> Result<()> {
        if let Some(flight) = self.flight.take() {
            let (temp, written) = flight.await.map_err(broke_off)?;
            self.temp = Some(temp);
            written?;
        }
        Ok(())
    }

    /// Begins to write what is held.
    fn take_off(&mut self, turn: Turn) -> Result<()> {
        let mut temp = self.temp.take().ok_or_else(used_up)?;
        let pieces = self.held.take();
        let shown = self.shown();
        self.flight = Some(tokio::task::spawn_blocking(move || {
            let written = temp.append(&pieces, &shown);
            drop((pieces, turn));
            (temp, written)
        }));
        Ok(())
    }

    /// The whole file, its last pieces still to be written.
    async fn whole(&mut self) -> Result<(Temp, Vec<Bytes>)> {
        self.land().await?;
        Ok((self.temp.take().ok_or_else(used_up)?, self.held.take()))
    }

    fn shown(&self) -> String {
        self.shared.root.shown(&self.location.path())
    }

    /// Publishes the body under its key.
    ///
    /// # Errors
    /// `Conflict` when the condition does not hold, and what the file system says.
    pub async fn place(mut self, options: &PutOptions) -> Result<PutResult> {
        let (temp, last) = self.whole().await?;
        let options = options.clone();
        blocking(move || {
            let temp = complete(temp, last, &self.shown())?;
            let attributes = Attributes::of(&options);
            temp.publish(&self.shared.root, &self.location, &options.condition, &attributes)
        })
        .await
    }

    /// Makes the body the part that it was staged for, with the checksum that it was compared with.
    ///
    /// # Errors
    /// `NotFound` when the upload ended meanwhile.
    pub async fn place_part(mut self, sum: Option<Sum>) -> Result<Part> {
        let number = self.part.ok_or_else(used_up)?;
        let (temp, last) = self.whole().await?;
        blocking(move || {
            let temp = complete(temp, last, &self.shown())?;
            upload::keep_part(temp, number, sum.as_ref(), &self.shown())
        })
        .await
    }
}

impl LocalStore {
    /// Begins an object whose body comes in pieces; `len` is its size where it is known. A
    /// condition that does not hold now is told before a byte comes, and judged again at the end.
    ///
    /// # Errors
    /// `Conflict`; `Invalid` for a key without a place; `Exhausted` for a disk without `len` bytes.
    pub async fn stage(
        &self,
        key: &str,
        len: Option<u64>,
        condition: &WriteCondition,
    ) -> Result<Staged> {
        let condition = condition.clone();
        let shared = self.shared.clone();
        self.run_at("PUT", key, move |_, location| {
            write::check_now(&shared.root, location, &condition)?;
            let mut temp = Temp::create(&shared.root, location)?;
            shared.sweeper.sweep_once(&shared.root, &location.dir);
            temp.reserve(len.unwrap_or(0), &shared.root.shown(&location.path()))?;
            Ok(Staged::new(shared, location.clone(), None, temp))
        })
        .await
    }

    /// Begins a part whose body comes in pieces.
    ///
    /// # Errors
    /// `NotFound` for an upload that is not there, `Invalid` for a number out of range.
    pub async fn stage_part(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        len: Option<u64>,
    ) -> Result<Staged> {
        let (id, shared) = (upload.clone(), self.shared.clone());
        self.run_at("upload part", key, move |_, location| {
            let mut temp = upload::begin_part(&shared.root, location, &id, number)?;
            temp.reserve(len.unwrap_or(0), &shared.root.shown(&location.path()))?;
            Ok(Staged::new(shared, location.clone(), Some(number), temp))
        })
        .await
    }

    /// Whether the bucket's directory is still the one at this path: not removed, moved or
    /// replaced since it was opened. A name in use is in the kernel's cache, so this waits for no
    /// disk.
    pub fn is_at(&self, path: &std::path::Path) -> bool {
        self.shared.root.is_at(path)
    }

    /// Makes the directory of a bucket, durable under its name; making one that is there succeeds.
    ///
    /// # Errors
    /// As the operating system says.
    pub async fn create_bucket(directory: &std::path::Path) -> Result<()> {
        let path = directory.to_path_buf();
        blocking(move || bucket::make(&path)).await
    }

    /// Ends removals of buckets in this directory whose processes were killed: each bucket is
    /// there with all that it had, or gone. `false` while other removals are under way, or cannot
    /// be ended.
    ///
    /// # Errors
    /// As the operating system says, where that of the bucket `asked` for cannot be ended.
    pub fn end_removals(directory: &std::path::Path, asked: Option<&str>) -> Result<bool> {
        removal::mend(directory, asked)
    }

    /// Removes the bucket's directory, if no object is in it; unfinished uploads go too.
    ///
    /// # Errors
    /// `Conflict` when objects are in it, and `NotFound` when it is no longer at its path; the
    /// bucket is as it was then.
    pub async fn remove_bucket(&self) -> Result<()> {
        self.run("delete bucket", "", |shared| removal::remove(&shared.root)).await
    }
}

/// The next piece of a body if it is there: `None` where it is still to come.
async fn ready_piece(body: &mut dyn Inflow) -> Option<Option<Result<Bytes>>> {
    let asked = poll_fn(|context| match body.poll_piece(context) {
        Poll::Ready(piece) => Poll::Ready(Some(piece)),
        Poll::Pending => Poll::Ready(None),
    });
    asked.await
}

/// Writes the last pieces, and lets go of them: to sync the file may take long, and many bodies may
/// wait for that.
fn complete(mut temp: Temp, last: Vec<Bytes>, shown: &str) -> Result<Temp> {
    temp.append(&last, shown)?;
    Ok(temp)
}

/// Runs disk work on a blocking thread.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(broke_off(error)))
}

fn broke_off(error: tokio::task::JoinError) -> Error {
    Error::new(Kind::Internal, "work on a blocking thread broke off").with_source(error)
}

fn used_up() -> Error {
    Error::new(Kind::Internal, "the staged body was used after an error")
}

#[cfg(test)]
mod tests;

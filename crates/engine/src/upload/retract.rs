//! What became of an upload, and how what it made is removed again: that version and no other.
//!
//! Under the name of an upload that failed stands what stood there before, or what another writer
//! placed since. So nothing is removed for an upload that made nothing, and for one that did only
//! the version with its tag. Where the store cannot compare, as is known of it or as it answers (an
//! S3 server that refuses conditions on removals), only a name that this upload surely created is
//! removed; elsewhere the new object stays.

use crate::attempt::{Weight, retry};
use crate::cause::Cause;
use crate::query::{Query, QueryCore};
use crate::upload::core::Upload;
use crate::upload::writer::Writer;
use futures_util::{StreamExt, stream};
use penstock_base::{Error, Kind, Result};
use penstock_store::{ETag, PutResult, WriteCondition};

/// Removing requests at once.
const REMOVALS_AT_ONCE: usize = 16;

/// What stands under the name because of this upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Not finished yet.
    #[default]
    Open,
    /// On its way to its end.
    Ending,
    /// Nothing, as far as the store told.
    Nothing,
    /// An object, or what stood there before: a request was sent, and its answer never heard.
    Untold,
    /// An object; its tag where the store told it.
    Made(Option<ETag>),
}

impl Outcome {
    pub fn of(result: &Result<PutResult>) -> Self {
        match result {
            Ok(made) => Outcome::Made(made.etag.clone()),
            Err(_) => Outcome::Nothing,
        }
    }
}

impl Query {
    /// Takes uploads of a statement that failed back: those that had not ended are given up, and
    /// what the others made is removed unless somebody has written the object since.
    /// `names_are_new` tells that nobody else has such names (they hold a UUID).
    ///
    /// This query is the one that removes; the uploads may belong to another.
    ///
    /// # Errors
    /// The first object's that could not be removed. One that another writer replaced is not ours
    /// and no error.
    pub async fn retract(&self, writers: &[&Writer], names_are_new: bool) -> Result<()> {
        let removals = writers.iter().map(|writer| writer.upload());
        let results: Vec<Result<()>> = stream::iter(removals)
            .map(|upload| self.core.run(retract_one(&self.core, upload, names_are_new)))
            .buffered(REMOVALS_AT_ONCE)
            .collect()
            .await;
        results.into_iter().collect()
    }
}

async fn retract_one(query: &QueryCore, upload: &Upload, names_are_new: bool) -> Result<()> {
    upload.give_up_or_cancel();
    let mut outcome = upload.outcome.subscribe();
    // The sender lives in the upload, so waiting cannot fail.
    let _ = outcome.wait_for(|outcome| *outcome != Outcome::Ending).await;
    let outcome = outcome.borrow().clone();
    let tag = match outcome {
        Outcome::Made(tag) => tag,
        // Nobody else has such a name, so what stands there is this upload's.
        Outcome::Untold if names_are_new => None,
        Outcome::Open | Outcome::Ending | Outcome::Nothing | Outcome::Untold => return Ok(()),
    };
    // A second try of the statement may make the very same bytes, and so the same tag.
    let _commit = query.engine.commits.enter(upload.at.name()).await;
    upload.remove_made(query, tag.as_ref(), names_are_new).await
}

impl Upload {
    /// Removes the version that this upload made, if that can be told from others. The caller
    /// holds the commit of this name.
    pub(super) async fn remove_made(
        &self,
        query: &QueryCore,
        tag: Option<&ETag>,
        names_are_new: bool,
    ) -> Result<()> {
        let tag = tag.filter(|_| self.at.mount.capabilities.conditional_delete);
        let created = names_are_new || self.options.condition == WriteCondition::IfAbsent;
        if tag.is_none() && !created {
            return Ok(());
        }
        let (store, key) = (&self.at.mount.store, &self.at.key);
        let change = query.change(std::slice::from_ref(&self.at)).await?;
        let remove = async |tag: Option<&ETag>| {
            retry(query, (Cause::Delete, "DELETE", &self.at), Weight::Small, || {
                store.delete(key, tag)
            })
            .await
        };
        let mut result = remove(tag).await;
        let cannot_compare = |error: &Error| tag.is_some() && error.kind() == Kind::Unsupported;
        let is_kept = result.as_ref().is_err_and(cannot_compare) && !created;
        if result.as_ref().is_err_and(cannot_compare) && created {
            result = remove(None).await;
        }
        change.ended(&result);
        query.forget(&self.at);
        if is_kept {
            return Ok(());
        }
        if result.as_ref().is_err_and(|error| !is_somebody_elses(error)) {
            return result;
        }
        self.outcome.send_replace(Outcome::Nothing);
        Ok(())
    }
}

/// Nothing stands there any more, or a version of another writer.
fn is_somebody_elses(error: &Error) -> bool {
    matches!(error.kind(), Kind::NotFound | Kind::Conflict)
}

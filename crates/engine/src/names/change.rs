//! Changing names: removing, copying, renaming.

use crate::attempt::{Weight, retry};
use crate::cause::Cause;
use crate::location::Location;
use crate::names::Entry;
use crate::names::list::{all_pages, as_directory, object_entry};
use crate::names::turned::Pages;
use crate::query::{Query, QueryCore};
use crate::read::Stream;
use futures_util::{StreamExt, stream};
use penstock_base::{Error, Result, Retry};
use penstock_store::{ETag, GetRange, ListRequest, PutOptions, PutResult};
use std::fmt::Write;
use std::slice;
use std::sync::Arc;

/// Removing requests at once.
const REMOVALS_AT_ONCE: usize = 16;
/// Failed removals of which an error tells; the others are counted.
const FAILURES_SHOWN: usize = 4;
/// Bytes moved at once where a store cannot copy by itself.
const COPY_BYTES: usize = 1 << 20;

impl Query {
    /// Removes objects; those that are not there count as removed. An upload of this query to one
    /// of them that is still pending is given up.
    ///
    /// # Errors
    /// One error that tells of the first objects that could not be removed, and how many there are.
    pub async fn remove(&self, objects: &[Location]) -> Result<()> {
        self.core.run(remove(&self.core, objects)).await
    }

    /// Removes every object below a directory.
    ///
    /// # Errors
    /// As [`Query::list`] and [`Query::remove`].
    pub async fn remove_directory(&self, directory: &Location) -> Result<()> {
        let entries = self.core.run(everything_below(&self.core, directory)).await?;
        let objects: Vec<_> =
            entries.into_iter().map(|entry| directory.sibling(entry.key)).collect();
        self.remove(&objects).await
    }

    /// The objects below a directory at any depth, in the store's order, for a statement that is
    /// about to change them: the store is asked whatever is remembered.
    ///
    /// # Errors
    /// As [`Query::list`].
    pub async fn list_below(&self, directory: &Location) -> Result<Vec<Entry>> {
        let mut entries = self.core.run(everything_below(&self.core, directory)).await?;
        // A name that ends with a slash marks a directory.
        entries.retain(|entry| !entry.key.ends_with('/'));
        Ok(entries)
    }

    /// Removes one object if it has this tag, for a gateway.
    ///
    /// # Errors
    /// `Conflict` when it has another tag.
    pub async fn delete(&self, at: &Location, if_match: Option<&ETag>) -> Result<()> {
        self.core.run(delete(&self.core, at, if_match)).await
    }

    /// Copies an object: inside the store where it can, else through this process.
    ///
    /// # Errors
    /// `NotFound` for a missing source; `Conflict` when the condition does not hold.
    pub async fn copy(
        &self,
        from: &Location,
        to: &Location,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.core.uploads.settled(&from.id()).await;
        if from.is_copied_inside(to) {
            return self.core.run(copy_inside(&self.core, from, to, &options)).await;
        }
        self.copy_through(from, to, options).await
    }

    /// Copies, then removes the source: object stores know no renaming. If removing fails both
    /// exist. An object that is given its own name stays as it is, as POSIX has it.
    ///
    /// # Errors
    /// As [`Query::copy`] and [`Query::remove`]; `NotFound` if there is no object of that name.
    pub async fn rename(&self, from: &Location, to: &Location) -> Result<()> {
        if from.id() == to.id() {
            return self.head(from).await.map(drop);
        }
        self.copy(from, to, PutOptions::default()).await?;
        self.remove(slice::from_ref(from)).await
    }

    async fn copy_through(
        &self,
        from: &Location,
        to: &Location,
        options: PutOptions,
    ) -> Result<PutResult> {
        let mut source =
            self.core.run(Stream::start(&self.core, from, (Cause::Copy, GetRange::All))).await?;
        let mut writer = self.create(to, options)?;
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            match source.read(&mut buffer).await? {
                0 => return writer.finish().await,
                count => writer.write(&buffer[..count]).await?,
            }
        }
    }
}

async fn copy_inside(
    query: &QueryCore,
    from: &Location,
    to: &Location,
    options: &PutOptions,
) -> Result<PutResult> {
    let store = &from.mount.store;
    query.outputs.begin(to)?;
    let change = query.engine.listings.finish(query, slice::from_ref(to)).await?;
    let result = retry(query, (Cause::Copy, "copy", to), Weight::Body, || {
        store.copy(&from.key, &to.key, options)
    })
    .await;
    change.ended(&result);
    let result = result?;
    // The copy's size is not in the answer, so nothing is remembered of it.
    query.forget(to);
    Ok(result)
}

async fn delete(query: &QueryCore, at: &Location, if_match: Option<&ETag>) -> Result<()> {
    let store = &at.mount.store;
    let change = query.change(slice::from_ref(at)).await?;
    let result = retry(query, (Cause::Delete, "DELETE", at), Weight::Small, || {
        store.delete(&at.key, if_match)
    })
    .await;
    change.ended(&result);
    query.forget(at);
    result
}

/// Everything below a directory as it is now: what is removed must not be guessed from what was.
async fn everything_below(query: &QueryCore, directory: &Location) -> Result<Vec<Entry>> {
    let below = as_directory(directory);
    query.uploads.settled_below(&below.id()).await;
    let request = ListRequest { prefix: below.key.clone(), ..ListRequest::default() };
    let mut entries = Vec::new();
    for page in all_pages(query, Pages::anew(&below, request)).await? {
        let objects = page.objects.iter();
        entries.extend(objects.map(|object| object_entry(directory, object, page.listed)));
    }
    Ok(entries)
}

async fn remove(query: &QueryCore, objects: &[Location]) -> Result<()> {
    let change = query.engine.listings.finish(query, objects).await?;
    for object in objects {
        query.uploads.abort_object(&object.id());
        query.uploads.settled(&object.id()).await;
    }
    let batches = batches(objects);
    let failures: Vec<Error> = stream::iter(batches)
        .map(|batch| remove_batch(query, batch))
        .buffered(REMOVALS_AT_ONCE)
        .flat_map(stream::iter)
        .collect()
        .await;
    change.ended_but(&failures);
    let removed = summed_up(failures, objects.len());
    for object in objects {
        query.outputs.forget(object);
        query.forget(object);
    }
    removed
}

/// Runs of objects of one store, as long as it takes at once.
fn batches(objects: &[Location]) -> Vec<Vec<Location>> {
    objects
        .chunk_by(|a, b| Arc::ptr_eq(&a.mount, &b.mount))
        .flat_map(|run| run.chunks(run[0].mount.profile.delete_batch_max.max(1)))
        .map(<[Location]>::to_vec)
        .collect()
}

async fn remove_batch(query: &QueryCore, batch: Vec<Location>) -> Vec<Error> {
    let store = &batch[0].mount.store;
    if batch.len() == 1 {
        return remove_each(query, &batch).await;
    }
    let keys: Vec<String> = batch.iter().map(|object| object.key.clone()).collect();
    let begins = (Cause::Delete, "delete", &batch[0]);
    match retry(query, begins, Weight::Small, || store.delete_batch(&keys)).await {
        // Those that may succeed again are asked for one by one, with retries. A refusal stays one:
        // asked again, each of a thousand would be refused again.
        Ok(results) => {
            let (mut failures, mut again) = (Vec::new(), Vec::new());
            for (object, result) in batch.iter().zip(results) {
                match result {
                    Ok(()) => {}
                    Err(error) if error.retry() == Retry::Never => failures.push(error),
                    Err(_) => again.push(object.clone()),
                }
            }
            failures.extend(remove_each(query, &again).await);
            failures
        }
        Err(error) => vec![error.with_note(format_args!(
            "one request for {} objects, the first is {}",
            batch.len(),
            batch[0].url()
        ))],
    }
}

/// That an object is not there is no error of a store: if something else is not found, such as the
/// bucket, the name is probably wrong, and nothing is known to be removed.
async fn remove_each(query: &QueryCore, objects: &[Location]) -> Vec<Error> {
    let mut failures = Vec::new();
    for object in objects {
        failures.extend(delete(query, object, None).await.err());
    }
    failures
}

fn summed_up(failures: Vec<Error>, all: usize) -> Result<()> {
    let mut failures = failures.into_iter();
    let Some(first) = failures.next() else { return Ok(()) };
    if failures.len() == 0 {
        return Err(first);
    }
    let count = failures.len() + 1;
    let mut note = format!("{count} of {all} removals failed");
    for failure in failures.by_ref().take(FAILURES_SHOWN - 1) {
        // Writing into a string cannot fail.
        let _ = write!(note, "; also {failure}");
    }
    if failures.len() > 0 {
        let _ = write!(note, "; and {} more", failures.len());
    }
    Err(first.with_note(note))
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::Kind;

    #[test]
    fn a_thousand_refusals_are_one_short_error() {
        let refused = |number: usize| {
            Error::new(Kind::Denied, "refused").with_object(format!("s3://b/k{number:04}"))
        };
        let one = summed_up(vec![refused(7)], 1).unwrap_err();
        assert_eq!(one.to_string(), "s3://b/k0007: refused");
        let all = summed_up((0..1000).map(refused).collect(), 1000).unwrap_err();
        let text = "s3://b/k0000: refused (1000 of 1000 removals failed; also s3://b/k0001: \
                    refused; also s3://b/k0002: refused; also s3://b/k0003: refused; and 996 more)";
        assert_eq!(all.to_string(), text);
        assert_eq!(all.kind(), Kind::Denied);
    }
}

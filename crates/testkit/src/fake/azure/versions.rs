//! Versions of blobs, as accounts keep them that are set so: every write makes one, and a removal
//! makes the current one a version like any other. There are no delete markers.
//!
//! An id is the time of its write. The current version cannot be removed by its id.

use super::super::exchange::Target;
use super::super::http::Response;
use super::super::refusal::Refusal;
use super::super::vault::{Bucket, Object, State};
use super::super::xml::Writer;
use super::{Call, blob_not_found};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Between a name and its version, in the index of all versions.
const MARK: char = '\0';
/// Digits of a generation in there, so that they sort as numbers.
const WIDTH: usize = 20;

/// A version of a blob; nothing where the account keeps none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Version {
    generation: Option<u64>,
    is_current: bool,
}

impl Version {
    fn id(self) -> Option<String> {
        self.generation.map(id)
    }

    /// Tells of a version in the answer to a read.
    pub fn told(self, answer: Response) -> Response {
        match self.id() {
            Some(id) if self.is_current => {
                answer.with("x-ms-version-id", id).with("x-ms-is-current-version", "true")
            }
            Some(id) => answer.with("x-ms-version-id", id),
            None => answer,
        }
    }

    /// The same in the answer to a write.
    pub fn told_of_write(self, answer: Response) -> Response {
        match self.id() {
            Some(id) => answer.with("x-ms-version-id", id),
            None => answer,
        }
    }

    /// Tells of it in a list.
    pub fn list(self, xml: &mut Writer) {
        if let Some(id) = self.id() {
            xml.text("VersionId", id);
        }
        if self.is_current {
            xml.text("IsCurrentVersion", "true");
        }
    }
}

/// `2026-10-07T16:21:50.6179420Z`: microseconds since 1970, with seven digits behind the seconds.
fn id(generation: u64) -> String {
    let time = SystemTime::UNIX_EPOCH + Duration::from_micros(generation);
    let seconds = super::super::codec::iso_date(time);
    let seconds = seconds.split_once('.').map_or(seconds.trim_end_matches('Z'), |it| it.0);
    format!("{seconds}.{:06}0Z", generation % 1_000_000)
}

fn no_id() -> Refusal {
    let message = "Value for one of the query parameters specified in the request URI is invalid: \
                   versionid";
    Refusal::new(400, "InvalidQueryParameterValue", message)
}

/// Whether this is a time in the form of an id.
fn is_time(text: &str) -> bool {
    text.len() == "2026-10-07T16:21:50.6179420Z".len()
        && text.ends_with('Z')
        && super::super::codec::parse_iso_date(text).is_some()
}

/// A new container, which keeps versions where its account does.
pub fn kept(call: &Call<'_>, mut bucket: Bucket) -> Bucket {
    if call.server.options.versioning {
        bucket.generations.status = "Enabled".to_string();
    }
    bucket
}

/// What a write made.
pub fn written(call: &Call<'_>, generation: u64) -> Version {
    let generation = Some(generation).filter(|_| call.server.options.versioning);
    Version { generation, is_current: true }
}

/// The blob that a request is about: the current version, or the one that it names.
///
/// # Errors
/// `BlobNotFound`, `InvalidQueryParameterValue`.
pub fn asked(call: &Call<'_>, state: &State) -> Result<(Arc<Object>, Version), Refusal> {
    find(call, state, call.target, call.query("versionid"))
}

/// The same of any blob.
///
/// # Errors
/// `BlobNotFound`, `InvalidQueryParameterValue`.
pub fn find(
    call: &Call<'_>,
    state: &State,
    target: &Target,
    named: Option<&str>,
) -> Result<(Arc<Object>, Version), Refusal> {
    let bucket = state.buckets.get(&target.bucket).ok_or_else(blob_not_found)?;
    let live = bucket.generations.live(&target.key);
    let current = || {
        let object = bucket.objects.get(&target.key).cloned();
        Some((object?, written(call, live.unwrap_or_default())))
    };
    let Some(text) = named else { return current().ok_or_else(blob_not_found) };
    if !is_time(text) {
        return Err(no_id());
    }
    if !call.server.options.versioning {
        return Err(blob_not_found());
    }
    if live.is_some_and(|live| id(live) == text) {
        return current().ok_or_else(blob_not_found);
    }
    let found = bucket
        .generations
        .all_gone()
        .find(|(key, generation, _)| *key == target.key && id(*generation) == text);
    let (_, generation, gone) = found.ok_or_else(blob_not_found)?;
    let version = Version { generation: Some(generation), is_current: false };
    Ok((gone.object.clone(), version))
}

/// Changes what is told of a version that stays what it is.
pub fn amend(call: &Call<'_>, state: &mut State, version: &Version, object: Object) {
    let (name, key) = (&call.target.bucket, &call.target.key);
    match version.generation.filter(|_| !version.is_current) {
        None => state.amend(name, key, object),
        Some(generation) => {
            if let Some(bucket) = state.buckets.get_mut(name) {
                bucket.generations.amend(key, generation, object);
            }
        }
    }
}

/// Removes the version that a request names; whether it names one.
///
/// # Errors
/// `OperationNotAllowedOnRootBlob`, and those of finding it.
pub fn remove_named(call: &Call<'_>, state: &mut State) -> Result<bool, Refusal> {
    if call.query("versionid").is_none() {
        return Ok(false);
    }
    let (_, version) = asked(call, state)?;
    if version.is_current {
        let message = "The specified operation is not allowed on root blob.";
        return Err(Refusal::new(403, "OperationNotAllowedOnRootBlob", message));
    }
    let bucket = state.buckets.get_mut(&call.target.bucket).ok_or_else(blob_not_found)?;
    bucket.generations.forget(&call.target.key, version.generation.unwrap_or_default());
    Ok(true)
}

/// All versions of a container, oldest first, under names that [`split`] takes apart.
pub fn all(bucket: &Bucket) -> BTreeMap<String, Arc<Object>> {
    let generations = &bucket.generations;
    let name = |key: &str, generation: u64, what| format!("{key}{MARK}{generation:0WIDTH$}{what}");
    let gone = generations.all_gone();
    let gone = gone.map(|(key, generation, gone)| (name(key, generation, "-"), &gone.object));
    let live = bucket
        .objects
        .iter()
        .map(|(key, object)| (name(key, generations.live(key).unwrap_or_default(), "+"), object));
    gone.chain(live).map(|(name, object)| (name, object.clone())).collect()
}

/// Name and version of a row of a list.
pub fn split(name: &str) -> (&str, Option<Version>) {
    let read = || {
        let (key, version) = name.rsplit_once(MARK)?;
        let (generation, what) = version.split_at_checked(WIDTH)?;
        let generation = Some(generation.parse().ok()?);
        Some((key, Version { generation, is_current: what == "+" }))
    };
    read().map_or((name, None), |(key, version)| (key, Some(version)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_times_in_the_order_of_their_generations() {
        let ids: Vec<String> =
            [1_791_390_110_617_942, 1_791_390_110_999_999, 1_791_390_111_000_000].map(id).to_vec();
        assert_eq!(ids[0], "2026-10-07T16:21:50.6179420Z");
        assert!(ids.is_sorted());
        assert!(ids.iter().all(|id| is_time(id)));
        for other in ["", "null", "2026-10-07", "17"] {
            assert!(!is_time(other), "{other}");
        }
    }
}

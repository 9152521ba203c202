//! Copies that no back end makes by itself.

use super::{Source, tags_of};
use crate::body::CopyFlow;
use crate::buckets::Bucket;
use crate::checksum::{Algorithm, Sums};
use crate::error::Subject;
use crate::headers::ObjectHeaders;
use crate::judged::StillTheirs;
use crate::tagging;
use penstock_store::{PutOptions, PutResult, WriteCondition};
use s3s::S3Result;

/// How a copy is made whose bytes pass through here.
pub(super) struct Through {
    /// Whether it takes over what describes its source, and its tags.
    pub headers: bool,
    pub tags: bool,
    /// It has the checksum of this algorithm, else those of its source.
    pub made_of: Option<Algorithm>,
    /// It is kept only if the bucket is then whose it was.
    pub still: Option<StillTheirs>,
}

/// Moves the bytes through here, and tells the checksums of the copy.
pub(super) async fn copy_through(
    source: &Source,
    (bucket, key): (&Bucket, &str),
    mut options: PutOptions,
    through: Through,
) -> S3Result<(PutResult, Sums)> {
    let made_of = through.made_of;
    let stream = source.open().await?;
    if through.headers {
        let headers = ObjectHeaders::from_meta(stream.meta());
        let notes = headers.into_options(WriteCondition::None)?;
        options.content_type = notes.content_type;
        options.metadata.extend(notes.metadata);
    }
    if through.tags && bucket.store.has_tags() {
        let taken = tags_of(&source.bucket, &source.key, stream.meta()).await?;
        let pairs = taken.as_ref().map(|(_, text)| penstock_store::tags::from_query(text));
        tagging::check_kept(bucket, &pairs.unwrap_or_default())?;
        options.metadata.extend(taken);
    }
    // The bytes are the same; a checksum of parts' checksums is not the copy's.
    let own = match made_of {
        None => Sums::of(stream.meta()).of_bytes(),
        Some(_) => Sums::default(),
    };
    // Those that it took along for a back end that would copy by itself are the same, or void.
    options.metadata.retain(|pair| !Sums::is_note(&pair.0));
    options.metadata.extend(own.notes());
    let copied_version = stream.meta().version.clone();
    let flow = CopyFlow::new(stream).summed(made_of).if_still(through.still).await?;
    let verdict = flow.verdict();
    let placed = bucket.put_flow(&bucket.key(key), Box::new(flow), &options).await;
    let (result, made) = verdict.settle(Subject::Object, placed)?;
    let result = PutResult { copied_version, ..result };
    Ok((result, if made_of.is_some() { made } else { own }))
}

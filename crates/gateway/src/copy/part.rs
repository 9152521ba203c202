//! Copies of ranges as parts of uploads, with what is known of their checksums.

use super::Source;
use crate::body::CopyFlow;
use crate::buckets::Bucket;
use crate::checksum::{Algorithm, Sums, UploadKind};
use crate::error::Subject;
use crate::judged::StillTheirs;
use penstock_base::ByteRange;
use penstock_store::sums::{Sum, tag_with_sum};
use penstock_store::{CopiedPart, ObjectMeta, Part, UploadId};
use s3s::S3Error;

/// A part that is a range of another object, with the checksum that it has: that of the algorithm
/// which the upload was created with, where the bytes pass through here or somebody knows it; and
/// the version of the source that it is of. Bytes that pass through here are kept only if the
/// bucket is then whose it was.
pub(crate) async fn copy_part(
    source: &Source,
    (bucket, key): (&Bucket, &str),
    (upload, number): (&UploadId, u32),
    still: Option<StillTheirs>,
) -> Result<(Part, Sums, Option<String>), PartCopyError> {
    let (store, key) = (&bucket.store, bucket.key(key));
    // A back end that judges parts knows what the upload was created with.
    let wanted = match store.judges_parts() {
        true => None,
        false => {
            let begun = store.begun_with(&key, upload).await.map_err(PartCopyError::Store)?;
            UploadKind::of(&begun).map(|kind| kind.algorithm)
        }
    };
    if source.is_beside(bucket) {
        let (meta, range) = source.look().await?;
        let version = source.version(&meta, Some(range));
        let copied = store.copy_part(&version, &key, upload, number).await;
        if let Some(CopiedPart { part, sum }) = copied.map_err(PartCopyError::Store)? {
            if store.judges_sums() {
                return Ok((part, Sums::of_store(sum.as_ref()), meta.version));
            }
            let sums = wanted.map(|wanted| known_sums(wanted, sum.as_ref(), (&meta, range)));
            let sums = sums.unwrap_or_default();
            let etag = tag_with_sum(&part.etag, sums.first().as_ref());
            return Ok((Part { etag, ..part }, sums, meta.version));
        }
    }
    let stream = source.open().await?;
    let version = stream.meta().version.clone();
    let flow = CopyFlow::new(stream).summed(wanted).if_still(still).await?;
    let verdict = flow.verdict();
    let sent = store.part_flow(&key, upload, number, Box::new(flow)).await;
    let (part, sums) = verdict.settle(Subject::Upload, sent)?;
    Ok((part, sums, version))
}

/// The checksum of bytes that did not pass through here: the one that the back end made of them, or
/// the source's own where they are all of it.
fn known_sums(
    wanted: Algorithm,
    told: Option<&Sum>,
    (meta, range): (&ObjectMeta, ByteRange),
) -> Sums {
    let is_whole = range.start == 0 && Some(range.end) == meta.size_bytes;
    let own = if is_whole { Sums::of(meta).of_bytes() } else { Sums::default() };
    let found = [Sums::of_store(told), own];
    let found = found.iter().find_map(|sums| sums.get(wanted));
    found.map(|text| Sums::one(wanted, text.to_string())).unwrap_or_default()
}

/// Why a part was not copied: what is wrong with the source is said in its words already.
pub(crate) enum PartCopyError {
    /// About the source, or the bytes of it that passed through here.
    Said(S3Error),
    /// About the part.
    Store(penstock_base::Error),
}

impl From<S3Error> for PartCopyError {
    fn from(error: S3Error) -> Self {
        PartCopyError::Said(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_passed_elsewhere_has_the_checksum_that_somebody_knows() {
        let whole = ByteRange { start: 0, end: 9 };
        let meta = |text: &str| ObjectMeta {
            size_bytes: Some(9),
            metadata: Sums::one(Algorithm::Crc32, text.to_string()).notes(),
            ..ObjectMeta::default()
        };
        let told = Some(("crc64nvme".to_string(), "rosUhgp5mIg=".to_string()));
        let known = |wanted, told: Option<&Sum>, meta: &ObjectMeta, range| {
            known_sums(wanted, told, (meta, range)).first().map(|sum| sum.1)
        };
        let own = meta("y/Q5Jg==");
        let crc32 = Algorithm::Crc32;
        assert_eq!(known(crc32, None, &own, whole).as_deref(), Some("y/Q5Jg=="));
        assert_eq!(known(crc32, told.as_ref(), &own, ByteRange { start: 0, end: 8 }), None);
        assert_eq!(known(Algorithm::Sha1, told.as_ref(), &own, whole), None);
        let crc64 =
            known(Algorithm::Crc64Nvme, told.as_ref(), &own, ByteRange { start: 1, end: 2 });
        assert_eq!(crc64.as_deref(), Some("rosUhgp5mIg="));
        // That is one of parts' checksums.
        assert_eq!(known(crc32, None, &meta("y/Q5Jg==-2"), whole), None);
    }
}

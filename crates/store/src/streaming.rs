//! What an S3 gateway asks of a store besides [`Store`]: bodies that pass through without being
//! held, and the tales of uploads.
//!
//! Nothing here retries, and a body that flows cannot be sent twice: its sender is told and sends
//! again. What a store cannot do answers `Unsupported`.

use crate::sums::{Sum, tag_with_sum};
pub(crate) use crate::uploads::uploads_behind;
pub use crate::uploads::{UploadEntry, UploadsPage, UploadsRequest};
pub use crate::versions::{
    NULL_VERSION, Removed, VersionEntry, Versioning, VersionsPage, VersionsRequest, split_version,
    versioned,
};
use crate::{ETag, ObjectMeta, Part, Payload, PutOptions, PutResult, Store, UploadId};
use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{ByteRange, Error, Kind, Result};
use std::fmt::Debug;
use std::task::{Context, Poll};
use std::time::SystemTime;

/// A body of known size on its way into a store.
///
/// Its last piece comes only when the body is known to be good: whoever sends the pieces on and
/// stops at an error has sent fewer bytes than it announced, and no store keeps such an object.
pub trait Inflow: Send + Debug {
    /// How many bytes come in all.
    fn size_bytes(&self) -> u64;

    /// The next piece, `None` behind the last. After an error nothing more is asked.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>>;

    /// Metadata that is known only behind the last piece (a checksum in a trailer), for stores that
    /// write an object's metadata after its bytes.
    fn late_metadata(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// The checksum that its sender made: the algorithm's name, and the value where that came
    /// before the body. One that follows it is among [`Inflow::late_metadata`].
    fn checksum(&self) -> Option<(String, Option<String>)> {
        None
    }
}

/// Adds what a body told at its end to what was said of it before.
pub(crate) fn with_late(options: &PutOptions, late: Vec<(String, String)>) -> PutOptions {
    let mut options = options.clone();
    for (name, value) in late {
        if !options.metadata.iter().any(|pair| pair.0 == name) {
            options.metadata.push((name, value));
        }
    }
    options
}

/// The next piece of a body.
///
/// # Errors
/// What the body's sender did wrong; nothing of the body may be kept then.
pub async fn next_piece(body: &mut dyn Inflow) -> Option<Result<Bytes>> {
    std::future::poll_fn(|context| body.poll_piece(context)).await
}

/// The whole body, for stores that hold their objects in memory.
///
/// # Errors
/// As [`next_piece`].
pub(crate) async fn collect(body: &mut dyn Inflow) -> Result<Bytes> {
    let mut pieces = Vec::new();
    while let Some(piece) = next_piece(body).await {
        pieces.push(piece?);
    }
    Ok(pieces.concat().into())
}

/// A part of an upload that is not completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartEntry {
    /// Its number.
    pub number: u32,
    /// Its tag, as the completing request must name it.
    pub etag: String,
    /// Its size.
    pub size_bytes: u64,
    /// When it was uploaded, where the store knows.
    pub modified: Option<SystemTime>,
    /// What its bytes were compared with, where the store knows.
    pub sum: Option<Sum>,
}

/// The source of a copy that the store makes by itself.
#[derive(Clone, Debug)]
pub struct CopySource {
    /// Its key in the same store.
    pub key: String,
    /// The version that it must still be.
    pub if_match: Option<ETag>,
    /// The bytes that are copied; `None` for all.
    pub range: Option<ByteRange>,
}

impl CopySource {
    /// All of whatever version there is.
    pub(crate) fn whole(key: &str) -> Self {
        CopySource { key: key.to_string(), if_match: None, range: None }
    }
}

/// A part that a service made of another object's bytes.
#[derive(Clone, Debug)]
pub struct CopiedPart {
    /// The part.
    pub part: Part,
    /// A checksum that the service made of the bytes, if it told one.
    pub sum: Option<Sum>,
}

/// Where a part of a whole object lies.
#[derive(Clone, Debug)]
pub struct PartPlace {
    /// The object.
    pub meta: ObjectMeta,
    /// The part's bytes.
    pub range: ByteRange,
}

/// Whether a version may be removed, by what it is when nobody else can change it.
pub type Permit = Box<dyn Fn(&ObjectMeta) -> Result<()> + Send + Sync>;
/// The new value of a pair of metadata, `None` to remove it, by what the version is when nobody
/// else can change it.
pub type Revision = Box<dyn Fn(&ObjectMeta) -> Result<Option<String>> + Send + Sync>;

/// Takes the bytes of parts, one piece after the other.
pub type PartSink = Box<dyn FnMut(&[u8]) + Send>;

/// A [`Store`] through which bodies flow. Methods with a body here answer for a store that does not
/// offer the thing.
#[async_trait]
pub trait StreamingStore: Store {
    /// Places a whole object while its body comes in.
    ///
    /// # Errors
    /// As [`Store::put`], and the body's own error; nothing is kept then.
    async fn put_flow(
        &self,
        key: &str,
        body: Box<dyn Inflow>,
        options: &PutOptions,
    ) -> Result<PutResult>;

    /// Sends one part while its body comes in; the same number again replaces it. Its tag tells the
    /// body's checksum as that of [`StreamingStore::part_whole`] does.
    ///
    /// # Errors
    /// As [`Store::upload_part`], and the body's own error.
    async fn part_flow(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        body: Box<dyn Inflow>,
    ) -> Result<Part>;

    /// Sends one part that is whole, with the checksum that its bytes were compared with. A store
    /// that does not keep that tells it in the part's tag (see [`crate::sums`]).
    ///
    /// # Errors
    /// As [`Store::upload_part`].
    async fn part_whole(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        payload: Payload,
        sum: Option<Sum>,
    ) -> Result<Part> {
        let part = self.upload_part(key, upload, number, payload).await?;
        Ok(Part { etag: tag_with_sum(&part.etag, sum.as_ref()), ..part })
    }

    /// Whether completing judges the parts by itself, as S3 does: that they are there, their tags
    /// and their least size. Else whoever completes compares with [`StreamingStore::list_parts`].
    fn judges_parts(&self) -> bool {
        false
    }

    /// Whether such a store also keeps the checksums of parts and compares those that a completion
    /// names, but for parts whose tags tell theirs.
    fn judges_sums(&self) -> bool {
        false
    }

    /// The tag of a part without bytes, where such a part is not stored (Azure); `None` where it
    /// is a part like any other.
    fn empty_part_tag(&self, _key: &str, _upload: &UploadId, _number: u32) -> Option<String> {
        None
    }

    /// The parts of an upload, by number. A store that keeps what a part was before it was sent
    /// again (Azure) tells each of them, the newest last: their tags differ, and a completion may
    /// name any.
    ///
    /// # Errors
    /// `NotFound` for an upload that is not there, was given up or is another key's.
    async fn list_parts(&self, key: &str, upload: &UploadId) -> Result<Vec<PartEntry>>;

    /// The object that this upload made, if the key still holds it: the answer to a completion may
    /// have been lost. Never asked of a store that judges the parts by itself: that is completed
    /// again, and tells then.
    ///
    /// # Errors
    /// Any but `NotFound`.
    async fn completed(&self, _key: &str, _upload: &UploadId) -> Result<Option<PutResult>> {
        Ok(None)
    }

    /// Hands the bytes of parts to `sink`, in order, for a checksum of the whole. `false` where the
    /// store cannot read parts of an upload that is not completed.
    ///
    /// # Errors
    /// `NotFound` for the upload, `Invalid` for a part that is not there.
    async fn read_parts(
        &self,
        _key: &str,
        _upload: &UploadId,
        _parts: &[Part],
        _sink: PartSink,
    ) -> Result<bool> {
        Ok(false)
    }

    /// Whether objects can be written in this storage class, by the pair of metadata
    /// [`notes::STORAGE_CLASS`](crate::notes::STORAGE_CLASS). Where not, nothing may ask for it.
    fn takes_class(&self, _class: &str) -> bool {
        false
    }

    /// The storage class of an upload, where [`StreamingStore::begun_with`] does not tell it.
    ///
    /// # Errors
    /// As [`StreamingStore::list_parts`].
    async fn upload_class(&self, _key: &str, _upload: &UploadId) -> Result<Option<Box<str>>> {
        Ok(None)
    }

    /// A page of the uploads that are not completed, in byte order of their keys.
    ///
    /// # Errors
    /// `Unsupported` where the store cannot tell.
    async fn list_uploads(&self, request: &UploadsRequest) -> Result<UploadsPage>;

    /// The metadata that an upload began with; empty where the store does not tell.
    ///
    /// # Errors
    /// As [`StreamingStore::list_parts`].
    async fn begun_with(&self, _key: &str, _upload: &UploadId) -> Result<Vec<(String, String)>> {
        Ok(Vec::new())
    }

    /// Gives an upload up: it cannot be completed any more.
    ///
    /// # Errors
    /// `NotFound` for an upload that is not there.
    async fn discard_upload(&self, key: &str, upload: &UploadId) -> Result<()>;

    /// Copies one version of another object of this store. `None` where bytes would have to pass
    /// through the caller anyway.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` when the source has changed or the target's condition does not hold.
    async fn copy_version(
        &self,
        _source: &CopySource,
        _to: &str,
        _options: &PutOptions,
    ) -> Result<Option<PutResult>> {
        Ok(None)
    }

    /// Makes a range of another object of this store a part. `None` as for
    /// [`StreamingStore::copy_version`].
    ///
    /// # Errors
    /// As [`StreamingStore::copy_version`].
    async fn copy_part(
        &self,
        _source: &CopySource,
        _key: &str,
        _upload: &UploadId,
        _number: u32,
    ) -> Result<Option<CopiedPart>> {
        Ok(None)
    }

    /// Whether a copy inside the back end has its source's tags, unless it is given others.
    fn copies_tags(&self) -> bool {
        true
    }

    /// Whether objects have tags.
    fn has_tags(&self) -> bool {
        false
    }

    /// What may stand in tags beside letters and digits of ASCII; `None` where all may that S3
    /// takes.
    fn tag_marks(&self) -> Option<&'static str> {
        None
    }

    /// The tags of an object, in no particular order.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` where objects have no tags.
    async fn tags(&self, _key: &str) -> Result<Vec<(String, String)>> {
        Err(no_tags(self.root()))
    }

    /// Replaces the tags of an object; none removes them all.
    ///
    /// # Errors
    /// As [`StreamingStore::tags`].
    async fn set_tags(&self, _key: &str, _tags: &[(String, String)]) -> Result<()> {
        Err(no_tags(self.root()))
    }

    /// Where the service says that a part of an object lies; `None` where only the object's own
    /// notes could tell.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` with the service code `InvalidPartNumber` past the last part.
    async fn part_place(&self, _key: &str, _number: u32) -> Result<Option<PartPlace>> {
        Ok(None)
    }

    /// Whether the container can keep versions. Where it cannot, the methods below that are not
    /// implemented answer `Unsupported`.
    fn has_versions(&self) -> bool {
        false
    }

    /// Whether a removal makes a delete marker where versions are kept: sent twice it makes two.
    fn has_markers(&self) -> bool {
        self.has_versions()
    }

    /// Whether it does, as far as the store can know.
    ///
    /// # Errors
    /// `Denied`, `Unsupported`.
    async fn versioning(&self) -> Result<Versioning> {
        Ok(Versioning::Never)
    }

    /// Begins or suspends to keep versions.
    ///
    /// # Errors
    /// As [`StreamingStore::versioning`].
    async fn set_versioning(&self, _is_enabled: bool) -> Result<()> {
        Err(no_versions(self.root()))
    }

    /// Whether the service retains every new version for a time by a rule of the container, so that
    /// nobody may remove it. A store whose locks are kept by whoever uses it has no such rule.
    ///
    /// # Errors
    /// `Denied` where whoever asks may not know.
    async fn retains_versions(&self) -> Result<bool> {
        Ok(false)
    }

    /// One page of versions.
    ///
    /// # Errors
    /// As [`StreamingStore::versioning`].
    async fn list_versions(&self, _request: &VersionsRequest) -> Result<VersionsPage> {
        Err(no_versions(self.root()))
    }

    /// Removes an object, or one version of it for good, if `if_match` holds. What is not there is
    /// no error.
    ///
    /// # Errors
    /// `Conflict` when the condition does not hold.
    async fn remove(
        &self,
        key: &str,
        _version: Option<&str>,
        if_match: Option<&ETag>,
    ) -> Result<Removed> {
        self.delete(key, if_match).await.map(|()| Removed::default())
    }

    /// Whether [`StreamingStore::remove_batch`] takes names of versions, too.
    fn batches_versions(&self) -> bool {
        false
    }

    /// Removes objects as [`Store::delete_batch`] does, and tells the delete markers that were made
    /// where the service tells them.
    ///
    /// # Errors
    /// As [`Store::delete_batch`].
    async fn remove_batch(&self, keys: &[String]) -> Result<Vec<Result<Removed>>> {
        let results = self.delete_batch(keys).await?;
        Ok(results.into_iter().map(|result| result.map(|()| Removed::default())).collect())
    }

    /// Whether metadata of any version can be changed where it is: bytes, tag and time stay. Where
    /// they cannot, the two methods below answer `Unsupported`.
    fn can_revise(&self) -> bool {
        false
    }

    /// Changes one pair of metadata of an object, or of a version (see [`versioned`]).
    ///
    /// # Errors
    /// `NotFound`; what the revision says, and nothing is changed then.
    async fn revise(&self, _key: &str, _pair: &'static str, _revision: Revision) -> Result<()> {
        Err(no_versions(self.root()))
    }

    /// Removes one version for good, if it is permitted and `if_match` holds. What is not there is
    /// no error.
    ///
    /// # Errors
    /// As [`StreamingStore::remove`]; what the permit says.
    async fn remove_permitted(
        &self,
        _key: &str,
        _version: &str,
        _if_match: Option<&ETag>,
        _permit: Permit,
    ) -> Result<Removed> {
        Err(no_versions(self.root()))
    }
}

/// The answer of a store that keeps no versions.
pub(crate) fn no_versions(root: &str) -> Error {
    Error::new(Kind::Unsupported, "this store keeps no versions")
        .with_operation("versions")
        .with_object(root)
}

/// The answer of a store whose objects have no tags.
pub(crate) fn no_tags(root: &str) -> Error {
    Error::new(Kind::Unsupported, "this store has no object tags")
        .with_operation("tags")
        .with_object(root)
}

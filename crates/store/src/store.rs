//! The contract of a store with its implementors: few methods, and no defaults that a wrapper
//! forgets but for warm-up, which changes nothing but the time that requests take.

use crate::{
    Capabilities, Connections, ETag, GetRequest, GetResponse, ListPage, ListRequest, ObjectMeta,
    Part, Payload, Profile, PutOptions, PutResult, WarmUp,
};
use async_trait::async_trait;
use penstock_base::Result;
use std::fmt::Debug;

/// Names one multipart upload inside its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadId(pub String);

/// A bucket, container, host or directory full of named objects.
///
/// Keys are raw: any UTF-8, no normalisation, `a//b` and `dir/` are names of their own.
/// No method retries. Every error names operation and object, and its `retry` is set truthfully.
/// Dropping a future cancels its request and leaves the connection unused or closed, never reused
/// in an unknown state.
#[async_trait]
pub trait Store: Send + Sync + Debug {
    /// The URL of the root without credentials, ending with `/` (`s3://bucket/`).
    /// Root and key together name an object in errors.
    fn root(&self) -> &str;

    /// Where its objects really are: the URL of endpoint and bucket, without credentials, ending
    /// with `/`. Two stores that say the same have the same objects. `None` for a store whose
    /// objects are near, so that no cache needs to copy them.
    fn origin(&self) -> Option<String>;

    /// How it likes to be asked.
    fn profile(&self) -> Profile;

    /// What it can do. A method outside of these answers `Unsupported`.
    fn capabilities(&self) -> Capabilities;

    /// What is known of its connections now; `None` where there are none to be opened.
    fn connections(&self) -> Option<Connections> {
        None
    }

    /// Opens connections until `count` are idle or being opened, as far as its limit has room for
    /// them: how many are missing is seen now, and the future, if any, opens them. What fails is
    /// told by the requests that need one; dropping the future ends the attempts. None before the
    /// store has answered a first time: what listens may serve one connection at a time.
    fn warm(&self, count: usize) -> Option<WarmUp> {
        let _ = count;
        None
    }

    /// Starts a GET; the head is read, the body not yet.
    ///
    /// A range that begins at or past the end of the object answers an empty body, not an error.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` when `if_match` does not hold, and one that says so of itself
    /// ([`penstock_base::Error::is_not_modified`]) while nothing changed; `Corrupt`
    /// when the answer's range is not the one asked for; `Denied`, `Throttled`, `Unavailable`.
    async fn get(&self, key: &str, request: GetRequest) -> Result<GetResponse>;

    /// Size, tag and time of an object.
    async fn stat(&self, key: &str) -> Result<ObjectMeta>;

    /// One page of names.
    async fn list(&self, request: ListRequest) -> Result<ListPage>;

    /// Places a whole object in one request.
    async fn put(&self, key: &str, payload: Payload, options: &PutOptions) -> Result<PutResult>;

    /// Begins a multipart upload. Costs no request where the store needs none (Azure).
    async fn create_upload(&self, key: &str, options: &PutOptions) -> Result<UploadId>;

    /// Sends one part; the same number again replaces it.
    async fn upload_part(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        payload: Payload,
    ) -> Result<Part>;

    /// Makes the object visible. Asked again after a lost answer it succeeds if the object is the
    /// one that this upload made.
    async fn complete_upload(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[Part],
        options: &PutOptions,
    ) -> Result<PutResult>;

    /// Discards the parts. Aborting what is not there succeeds.
    async fn abort_upload(&self, key: &str, upload: &UploadId) -> Result<()>;

    /// Removes one object, if `if_match` holds. Removing what is not there succeeds.
    async fn delete(&self, key: &str, if_match: Option<&ETag>) -> Result<()>;

    /// Removes up to [`Profile::delete_batch_max`] objects in one request; one result for each key.
    ///
    /// # Errors
    /// The outer error means that the request as a whole failed.
    async fn delete_batch(&self, keys: &[String]) -> Result<Vec<Result<()>>>;

    /// Copies inside the store without moving bytes through the client.
    async fn copy(&self, from: &str, to: &str, options: &PutOptions) -> Result<PutResult>;
}

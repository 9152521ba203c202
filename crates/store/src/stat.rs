//! Size and tag of an object by HEAD, and by a GET where HEAD's answer does not settle it. What
//! settles it is decided by `answer::head`; the stores send the requests.

use crate::answer::{ByGet, hides_bytes, is_no_answer, is_size_believed};
use crate::{GetRequest, ObjectMeta};
use async_trait::async_trait;
use penstock_base::{Error, Result};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};

/// A HEAD that brought no object.
#[derive(Debug)]
pub(crate) struct NoHead {
    pub error: Error,
    pub by_get: ByGet,
}

/// The requests by which a store looks at an object.
#[async_trait]
pub(crate) trait Look: Sync {
    /// Whether HEAD is answered otherwise than GET, as far as has been seen.
    fn head_refused(&self) -> &AtomicBool;

    /// HEAD.
    async fn ask_head(&self, key: &str) -> std::result::Result<ObjectMeta, NoHead>;

    /// GET of one byte; `None` where the object has none.
    ///
    /// # Errors
    /// As [`crate::Store::stat`].
    async fn first_byte(&self, key: &str) -> Result<Option<ObjectMeta>>;

    /// GET of all bytes, of an object that has none.
    ///
    /// # Errors
    /// As [`crate::Store::stat`].
    async fn no_bytes(&self, key: &str) -> Result<ObjectMeta>;
}

/// The end of an object that is asked for under HEAD's tag; asked for once more where GET knows
/// another tag, since HEAD is believed no longer then.
///
/// # Errors
/// As [`crate::Store::get`].
pub(crate) async fn end_under_heads_tag<T, F: Future<Output = Result<T>>>(
    request: &GetRequest,
    head_refused: &AtomicBool,
    end: impl Fn() -> F,
) -> Result<T> {
    match end().await {
        Err(error)
            if request.is_contradicted(&error) && !head_refused.swap(true, Ordering::Relaxed) =>
        {
            end().await
        }
        end => end,
    }
}

/// Size, tag and metadata of an object.
///
/// # Errors
/// As [`crate::Store::stat`].
pub(crate) async fn stat(store: &impl Look, key: &str) -> Result<ObjectMeta> {
    if store.head_refused().load(Ordering::Relaxed) {
        return by_get(store, key).await;
    }
    let NoHead { error, by_get: way } = match store.ask_head(key).await {
        Ok(meta) if is_size_believed(meta.size_bytes) => return Ok(meta),
        Ok(meta) => return confirmed(store, key, meta).await,
        Err(no_head) => no_head,
    };
    match way {
        ByGet::Never => Err(error),
        ByGet::Now => by_get(store, key).await,
        ByGet::FromNowOn => {
            let meta = by_get(store, key).await?;
            store.head_refused().store(true, Ordering::Relaxed);
            Ok(meta)
        }
        // Where GET has no answer either, HEAD's error says what was wanted.
        ByGet::Instead => match by_get(store, key).await {
            Err(other) if is_no_answer(&other) => Err(error),
            answer => answer,
        },
    }
}

/// What a HEAD says of an object without bytes, if a GET finds no byte either.
async fn confirmed(store: &impl Look, key: &str, head: ObjectMeta) -> Result<ObjectMeta> {
    let Some(meta) = store.first_byte(key).await? else { return Ok(head) };
    if hides_bytes(&head, &meta) {
        store.head_refused().store(true, Ordering::Relaxed);
    }
    Ok(meta)
}

async fn by_get(store: &impl Look, key: &str) -> Result<ObjectMeta> {
    match store.first_byte(key).await? {
        Some(meta) => Ok(meta),
        None => store.no_bytes(key).await,
    }
}

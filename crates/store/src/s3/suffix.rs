//! Ranges that a service refuses: those behind the end of the object, and those counted from its
//! end, which are asked for by their offsets then.

use super::S3Store;
use super::request::Call;
use crate::answer::{self, Failure};
use crate::stat::end_under_heads_tag;
use crate::{Body, ETag, GetRange, GetRequest, GetResponse, ObjectMeta, Ranges, Store};
use ::http::HeaderMap;
use ::http::header::ETAG;
use bytes::Bytes;
use penstock_base::{ByteRange, Result};

impl S3Store {
    /// Whether a refusal may be one of the form of the range, not of the object.
    pub(super) fn refuses_suffix(request: &GetRequest, failure: &Failure) -> Option<u64> {
        match request.range {
            GetRange::Suffix(count) if matches!(failure.status, 400 | 416 | 501) => Some(count),
            _ => None,
        }
    }

    /// The empty answer that a 416 stands for, unless the service refuses the form of the range.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub(super) async fn behind_the_end(
        &self,
        call: &Call<'_>,
        request: &GetRequest,
        failure: Failure,
        headers: &HeaderMap,
    ) -> Result<GetResponse> {
        let key = call.key.unwrap_or_default();
        let Some(extent) = answer::unsatisfiable_extent(request.range, headers, &failure) else {
            return Err(self.sender.refusal(call, failure));
        };
        let meta = match extent.size_bytes {
            Some(size) if headers.contains_key(ETAG) => {
                self.told(answer::object_meta(headers, Some(size), ""), headers)
            }
            _ => self.stat(key).await?,
        };
        if let Some(count) = S3Store::refuses_suffix(request, &failure)
            && meta.size_bytes > Some(0)
        {
            return self.get_end_instead(key, count, request).await;
        }
        // Headers of the refusal describe the refusal's body.
        let meta = ObjectMeta { content_type: None, ..meta };
        request.refuse_unchanged(&meta).map_err(|error| self.named(call, error))?;
        let body = Body::Memory(Bytes::new());
        Ok(GetResponse { meta, range: extent.range, body, ranges: Ranges::Served })
    }

    /// The last bytes by their offsets. If they come, no suffix is asked for again.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub(super) async fn get_end_instead(
        &self,
        key: &str,
        count: u64,
        request: &GetRequest,
    ) -> Result<GetResponse> {
        let answer = self.get_end(key, count, request).await?;
        if !answer.ranges.are_ignored() && !answer.range.is_empty() {
            self.suffixes.refuse();
        }
        Ok(answer)
    }

    /// The last bytes by their offsets.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub(super) async fn get_end(
        &self,
        key: &str,
        count: u64,
        request: &GetRequest,
    ) -> Result<GetResponse> {
        let end = || self.end_of(key, count, request);
        end_under_heads_tag(request, &self.head_refused, end).await
    }

    async fn end_of(&self, key: &str, count: u64, request: &GetRequest) -> Result<GetResponse> {
        let meta = self.stat(key).await?;
        let size = meta.size_bytes.unwrap_or_default();
        let range = ByteRange { start: size.saturating_sub(count), end: size };
        let if_match = request.if_match.clone().or(meta.etag.filter(ETag::is_strong));
        let bounded = GetRequest { range: GetRange::Bounded(range), if_match, ..request.clone() };
        self.get(key, bounded).await
    }
}

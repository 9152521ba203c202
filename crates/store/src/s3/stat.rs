//! What S3 says of an object without sending it. Where HEAD is refused by what may not be the
//! service, or by a service that has no HEAD, a GET of one byte decides.

use super::request::{Call, Outcome};
use super::{Result, S3Store};
use crate::answer::{self, FIRST_BYTE, is_no_answer, may_answer_get};
use crate::{GetRange, GetRequest, ObjectMeta};
use ::http::header::RANGE;
use ::http::{HeaderMap, Method};
use std::sync::atomic::Ordering;

/// Headers that a service of this kind puts on every answer.
const MARKS: &[&str] = &["x-amz-request-id", "x-amz-id-2", "x-guploader-uploadid"];

impl S3Store {
    /// Size, tag and metadata of an object.
    ///
    /// # Errors
    /// As [`crate::Store::stat`].
    pub(super) async fn stat_object(&self, key: &str) -> Result<ObjectMeta> {
        if self.head_refused.load(Ordering::Relaxed) {
            return self.stat_by_get(key).await;
        }
        let call = self.asking_checksums(Call::new(Method::HEAD, "HEAD", Some(key)))?;
        let is_lasting = match self.send_asking(&call).await {
            Ok(Outcome::Done(response)) => {
                let size = crate::http::content_length(&response.headers)
                    .map_err(|error| self.named(&call, error))?;
                let meta = self.meta(&response, size);
                self.require_tag(&call, meta.etag.clone())?;
                return Ok(meta);
            }
            Ok(Outcome::Refused { failure, headers }) => {
                if !may_answer_get(&failure, is_marked(&headers)) {
                    return Err(self.sender.refusal(&call, failure));
                }
                failure.status < 500 || failure.status == 501
            }
            // Where GET has no answer either, HEAD's error tells what was wanted.
            Err(error) if is_no_answer(&error) => {
                return match self.stat_by_get(key).await {
                    Err(other) if is_no_answer(&other) => Err(error),
                    answer => answer,
                };
            }
            Err(error) => return Err(error),
        };
        let meta = self.stat_by_get(key).await?;
        if is_lasting {
            self.head_refused.store(true, Ordering::Relaxed);
        }
        Ok(meta)
    }

    /// The same by a GET of one byte; of an object without bytes, by one of all.
    async fn stat_by_get(&self, key: &str) -> Result<ObjectMeta> {
        let mut call = Call::new(Method::GET, "GET", Some(key));
        if let Some(range) = answer::range_header(FIRST_BYTE) {
            call = call.header(RANGE.as_str(), &range)?;
        }
        match self.send_asking(&call).await? {
            Outcome::Done(response) => {
                let request = GetRequest::from(FIRST_BYTE);
                self.answered(&call, &request, response).map(|answer| answer.meta)
            }
            Outcome::Refused { failure, .. } if failure.status == 416 => {
                let call = Call::new(Method::GET, "GET", Some(key));
                let response = self.sender.done(&call).await?;
                let request = GetRequest::from(GetRange::All);
                self.answered(&call, &request, response).map(|answer| answer.meta)
            }
            Outcome::Refused { failure, .. } => Err(self.sender.refusal(&call, failure)),
        }
    }
}

fn is_marked(headers: &HeaderMap) -> bool {
    MARKS.iter().any(|name| headers.contains_key(*name))
}

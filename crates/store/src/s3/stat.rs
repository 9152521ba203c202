//! What S3 says of an object without sending it.

use super::request::{Call, Outcome};
use super::{Result, S3Store};
use crate::answer::{self, ByGet, FIRST_BYTE};
use crate::stat::{Look, NoHead};
use crate::{GetRange, GetRequest, HttpResponse, ObjectMeta};
use ::http::header::RANGE;
use ::http::{HeaderMap, Method};
use async_trait::async_trait;
use penstock_base::Error;
use std::sync::atomic::AtomicBool;

/// Headers that a service of this kind puts on every answer.
const MARKS: &[&str] = &["x-amz-request-id", "x-amz-id-2", "x-guploader-uploadid"];

#[async_trait]
impl Look for S3Store {
    fn head_refused(&self) -> &AtomicBool {
        &self.head_refused
    }

    async fn ask_head(&self, key: &str) -> std::result::Result<ObjectMeta, NoHead> {
        let failed = |error: Error| NoHead { by_get: ByGet::after_error(&error), error };
        let call = self.asking_checksums(Call::new(Method::HEAD, "HEAD", Some(key)));
        let call = call.map_err(failed)?;
        match self.send_asking(&call).await.map_err(failed)? {
            Outcome::Done(response) => {
                let by_get = ByGet::after_strange(is_marked(&response.headers));
                self.read_head(&call, &response).map_err(|error| NoHead { error, by_get })
            }
            Outcome::Refused { failure, headers } => {
                let by_get = ByGet::after_refusal(&failure, is_marked(&headers));
                Err(NoHead { error: self.sender.refusal(&call, failure), by_get })
            }
        }
    }

    async fn first_byte(&self, key: &str) -> Result<Option<ObjectMeta>> {
        let mut call = Call::new(Method::GET, "GET", Some(key));
        if let Some(range) = answer::range_header(FIRST_BYTE) {
            call = call.header(RANGE.as_str(), &range)?;
        }
        match self.send_asking(&call).await? {
            Outcome::Done(response) => {
                let request = GetRequest::from(FIRST_BYTE);
                self.answered(&call, &request, response).map(|answer| Some(answer.meta))
            }
            Outcome::Refused { failure, .. } if failure.status == 416 => Ok(None),
            Outcome::Refused { failure, .. } => Err(self.sender.refusal(&call, failure)),
        }
    }

    async fn no_bytes(&self, key: &str) -> Result<ObjectMeta> {
        let call = Call::new(Method::GET, "GET", Some(key));
        let response = self.sender.done(&call).await?;
        let request = GetRequest::from(GetRange::All);
        self.answered(&call, &request, response).map(|answer| answer.meta)
    }
}

impl S3Store {
    /// What the head of an answer says.
    fn read_head(&self, call: &Call<'_>, response: &HttpResponse) -> Result<ObjectMeta> {
        let size = crate::http::content_length(&response.headers)
            .map_err(|error| self.named(call, error))?;
        let meta = self.meta(response, size);
        self.require_tag(call, meta.etag.clone())?;
        Ok(meta)
    }
}

fn is_marked(headers: &HeaderMap) -> bool {
    MARKS.iter().any(|name| headers.contains_key(*name))
}

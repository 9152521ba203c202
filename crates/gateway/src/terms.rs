//! On which terms a version answers a read: that the lists and tags by which its reader was let in
//! hold for it, then that the conditions of the request do.
//!
//! In this order: 304 and 412 tell what a version is. Where the back end has judged the conditions,
//! it may have judged another version than the one by which the reader was let in.

use crate::auth::Caller;
use crate::buckets::Bucket;
use crate::conditions::{ReadConditions, Verdict};
use crate::sharing::Standing;
use http::{Extensions, HeaderMap, HeaderValue};
use penstock_store::{ETag, ObjectMeta};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

/// The terms of one read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    pub conditions: &'a ReadConditions,
    /// By what the reader was let in; empty where no version makes a difference.
    pub standings: &'a [Standing],
}

impl<'a> Terms<'a> {
    /// Those of a request for an object.
    pub fn of(extensions: &'a Extensions, conditions: &'a ReadConditions) -> Self {
        let caller = extensions.get::<Caller>();
        Terms { conditions, standings: caller.map_or(&[], |caller| &caller.of_object) }
    }

    /// Whether it depends on the version who is let in.
    pub fn are_bound(&self) -> bool {
        !self.standings.is_empty()
    }

    /// Whether this is the version by which the reader was let in, or any would be.
    pub fn are_met_by(&self, etag: Option<&ETag>) -> bool {
        self.standings.iter().all(|standing| etag.is_some() && standing.judged() == etag)
    }

    /// Refuses to tell of a version that is not the reader's to know.
    ///
    /// # Errors
    /// `AccessDenied`, `OperationAborted`.
    pub fn let_in(&self, meta: &ObjectMeta) -> S3Result<()> {
        self.standings.iter().try_for_each(|standing| standing.check(meta))
    }

    /// Weighs all terms against what a store said of an object. 304 and 412 carry the tag, so that
    /// the client knows which version there is.
    ///
    /// # Errors
    /// As [`Terms::let_in`], then `NotModified`, `PreconditionFailed`.
    pub fn judge(&self, bucket: &Bucket, meta: &ObjectMeta) -> S3Result<()> {
        self.let_in(meta)?;
        let etag = meta.etag.as_ref().map(|etag| bucket.tags.shown(etag));
        let error = match self.conditions.evaluate(etag.as_ref(), meta.modified) {
            Verdict::Proceed => return Ok(()),
            Verdict::NotModified => return Err(not_modified(etag.as_ref())),
            Verdict::Failed => s3_error!(
                PreconditionFailed,
                "At least one of the pre-conditions you specified did not hold"
            ),
        };
        Err(with_tag(error, etag.as_ref()))
    }

    /// Whether an error of the back end tells of the version that is there, so that this has to be
    /// looked at first: for the version's tag, or for whether the reader may know.
    pub fn hide(&self, error: &S3Error) -> bool {
        match error.code() {
            S3ErrorCode::PreconditionFailed => {
                self.are_bound() || self.conditions.wanted_version().is_some()
            }
            S3ErrorCode::InvalidRange => self.are_bound(),
            _ => false,
        }
    }
}

/// 304, with the tag as clients see it.
pub(crate) fn not_modified(etag: Option<&ETag>) -> S3Error {
    with_tag(s3_error!(NotModified, "Not Modified"), etag)
}

fn with_tag(mut error: S3Error, etag: Option<&ETag>) -> S3Error {
    let value = etag.map(|etag| HeaderValue::from_str(&etag.header_value()));
    if let Some(Ok(value)) = value {
        error.set_headers(HeaderMap::from_iter([(http::header::ETAG, value)]));
    }
    error
}

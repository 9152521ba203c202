//! Requests from pages of other origins: the acting side of [`crate::cors`].
//!
//! Rules are the configuration's, and the bucket's own, which take a request to the back end for
//! each request that names an origin.

use crate::access::Pattern;
use crate::buckets::Buckets;
use crate::cors::{Question, Rule};
use http::{HeaderMap, Response, StatusCode};
use percent_encoding::percent_decode_str;
use s3s::{Body, S3Error, S3ErrorCode, S3Result};
use std::sync::Arc;

/// A rule of the configuration, and the buckets that it is for.
#[derive(Clone, Debug)]
pub struct PageRule {
    /// Names of buckets.
    pub buckets: Vec<Pattern>,
    /// The rule.
    pub rule: Rule,
}

/// What decides about other origins.
#[derive(Debug)]
pub(crate) struct Pages {
    pub buckets: Arc<Buckets>,
    pub rules: Vec<PageRule>,
}

/// The bucket of a path.
fn bucket_of(path: &str) -> Option<String> {
    let first = path.trim_start_matches('/').split('/').next()?;
    let name = percent_decode_str(first).decode_utf8().ok()?;
    (!name.is_empty()).then(|| name.into_owned())
}

fn forbidden(why: &'static str) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::Custom("AccessForbidden".into()), why);
    error.set_status_code(StatusCode::FORBIDDEN);
    error
}

impl Pages {
    /// The headers of the answer to a question about a path, if a rule fits: one
    /// of the configuration, or of the bucket, for which the back end is asked where it `may_ask`.
    async fn answer(
        &self,
        question: &Question,
        path: &str,
        may_ask: bool,
    ) -> S3Result<Option<HeaderMap>> {
        let Some(bucket) = bucket_of(path) else { return Ok(None) };
        let is_for = |it: &&PageRule| it.buckets.iter().any(|pattern| pattern.matches(&bucket));
        let fixed: Vec<Rule> = self.rules.iter().filter(is_for).map(|it| it.rule.clone()).collect();
        if let Some(headers) = question.answer(&fixed) {
            return Ok(Some(headers));
        }
        if !may_ask {
            return Ok(None);
        }
        let notes = self.buckets.notes(&bucket).await?.0;
        Ok(question.answer(&notes.cors.unwrap_or_default()))
    }

    /// Answers what a browser asks before it sends a request.
    ///
    /// # Errors
    /// `BadRequest` where nothing is asked, `AccessForbidden` where no rule fits.
    pub async fn preflight(
        &self,
        question: Option<Question>,
        path: &str,
    ) -> S3Result<Response<Body>> {
        let Some(question) = question.filter(Question::is_preflight) else {
            let code = S3ErrorCode::Custom("BadRequest".into());
            let why = "Insufficient information. Origin request header needed.";
            let mut error = S3Error::with_message(code, why);
            error.set_status_code(StatusCode::BAD_REQUEST);
            return Err(error);
        };
        let why = "CORSResponse: This CORS request is not allowed.";
        let headers = self.answer(&question, path, true).await?.ok_or_else(|| forbidden(why))?;
        let mut response = Response::new(Body::empty());
        *response.headers_mut() = headers;
        Ok(response)
    }

    /// Adds to an answer what lets a page see it. Rules that cannot be read, or are not since the
    /// back end may not be asked, let nobody see it.
    pub async fn mark(
        &self,
        question: &Question,
        path: &str,
        may_ask: bool,
        headers: &mut HeaderMap,
    ) {
        if let Ok(Some(more)) = self.answer(question, path, may_ask).await {
            headers.extend(more);
        }
    }
}

/// Refuses a rule of the configuration that is none.
///
/// # Errors
/// `Invalid` with what is wrong.
pub(crate) fn check(rule: &Rule) -> penstock_base::Result<()> {
    rule.check().map_err(|error| {
        let why = error.message().unwrap_or_default().to_string();
        penstock_base::Error::new(penstock_base::Kind::Invalid, format!("a [[cors]]: {why}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_its_bucket() {
        assert_eq!(bucket_of("/lake/a/b").as_deref(), Some("lake"));
        assert_eq!(bucket_of("/la%6be").as_deref(), Some("lake"));
        assert_eq!(bucket_of("/"), None);
    }
}

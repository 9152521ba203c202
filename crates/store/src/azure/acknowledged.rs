//! Answers that say nothing but their status: whether they are the service's at all.

use super::AzureStore;
use super::wire::is_from_service;
use crate::HttpResponse;
use crate::answer::Failure;
use crate::xml::is_error_document;
use http::{HeaderMap, HeaderName};
use penstock_base::{Error, Kind, Result, Retry};
use std::time::SystemTime;

/// Most bytes of an answer that should have none.
const ANSWER_BYTES_MAX: usize = 64 << 10;
const ERROR_CODE: HeaderName = HeaderName::from_static("x-ms-error-code");

impl AzureStore {
    /// Ends a request whose answer says nothing but its status: one that has nothing of the
    /// service's is a proxy's, and nothing was done. Nor was it where the service names an error.
    pub(super) async fn acknowledged(
        &self,
        mut response: HttpResponse,
        operation: &'static str,
        key: &str,
    ) -> Result<()> {
        if !is_from_service(&response.headers) {
            return Err(self.foreign(operation, key));
        }
        let read = response.body.read_to_bytes(ANSWER_BYTES_MAX).await;
        let bytes = read.map_err(|error| self.wire.named(error, operation, key))?;
        let code = response.headers.get(ERROR_CODE);
        if code.is_some() || is_error_document(&bytes) {
            // Status 500 is that of work whose end is not known, unless the code says more. Without
            // the other headers there is no time to compare with.
            let headers: HeaderMap =
                code.map(|code| (ERROR_CODE, code.clone())).into_iter().collect();
            let failure = Failure::parse(500, &headers, &bytes, SystemTime::UNIX_EPOCH);
            return Err(self.wire.failed(failure, operation, key));
        }
        Ok(())
    }

    /// A success that a proxy or login page made up.
    pub(super) fn foreign(&self, operation: &'static str, key: &str) -> Error {
        let error = Error::new(Kind::Corrupt, "the answer is not from a Blob service")
            .with_retry(Retry::Briefly)
            .with_hint("Is there a proxy or login page in between? Check the endpoint");
        self.wire.named(error, operation, key)
    }
}

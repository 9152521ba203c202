//! Answers that say nothing but their status: whether they are the service's at all.

use super::AzureStore;
use super::wire::is_from_service;
use crate::HttpResponse;
use penstock_base::{Error, Kind, Result, Retry};

impl AzureStore {
    /// Ends a request whose answer says nothing but its status: one that has nothing of the
    /// service's is a proxy's, and nothing was done.
    pub(super) async fn acknowledged(
        &self,
        response: HttpResponse,
        operation: &'static str,
        key: &str,
    ) -> Result<()> {
        if !is_from_service(&response.headers) {
            return Err(self.foreign(operation, key));
        }
        drain(response).await.map_err(|error| self.wire.named(error, operation, key))
    }

    /// A success that a proxy or login page made up.
    pub(super) fn foreign(&self, operation: &'static str, key: &str) -> Error {
        let error = Error::new(Kind::Corrupt, "the answer is not from a Blob service")
            .with_retry(Retry::Briefly)
            .with_hint("Is there a proxy or login page in between? Check the endpoint");
        self.wire.named(error, operation, key)
    }
}

/// Reads the end of an answer whose body says nothing, so that its connection can be used again.
async fn drain(mut response: HttpResponse) -> Result<()> {
    const BYTES_MAX: usize = 64 << 10;
    response.body.read_to_bytes(BYTES_MAX).await.map(|_| ())
}

//! Copies inside an account.
//!
//! A copy that keeps the source's properties is one Copy Blob, which within an account moves no
//! bytes and takes blobs of any size. One that changes the media type is one Put Blob From URL (up
//! to 5000 MiB), atomic with the new properties. Services without that operation (the emulator
//! answers 501) and larger blobs get Copy Blob followed by Set Blob Properties: then the blob is
//! seen with the old media type for a moment, and a failure in between leaves it so.

use super::AzureStore;
use super::wire::{Ask, is_property, put_result};
use crate::answer::{Failure, text_header};
use crate::notes;
use crate::{CopySource, HttpResponse, PutOptions, PutResult, WriteCondition};
use http::{HeaderMap, Method};
use penstock_base::{Error, Kind, Result, Retry};
use std::time::Duration;

const OPERATION: &str = "copy";
/// A copy within an account is nearly always done when its answer comes.
const POLL_FIRST: Duration = Duration::from_millis(50);
const POLL_LONGEST: Duration = Duration::from_secs(5);

impl AzureStore {
    pub(super) async fn copy_blob(
        &self,
        source: &CopySource,
        to: &str,
        options: &PutOptions,
    ) -> Result<PutResult> {
        let named = |error: Error| self.wire.named(error, OPERATION, to);
        if !options.replaces() {
            return self.copy_keeping(source, to, options).await;
        }
        let mut headers = self.source_headers(source).await.map_err(named)?;
        headers.push(("x-ms-blob-type", "BlockBlob".to_string()));
        headers.push(("x-ms-copy-source-blob-properties", "false".to_string()));
        let ask = Ask { headers, options: Some(options), ..Ask::default() };
        let response = self.wire.send(OPERATION, to, Method::PUT, ask).await?;
        if response.status == 201 {
            return self.written(response, OPERATION, to).await;
        }
        let failure = Failure::read(response).await;
        if !lacks_put_from_url(&failure) {
            return Err(self.copy_failed(failure, &source.key, to));
        }
        let copied = self.copy_keeping(source, to, options).await?;
        self.set_properties(to, options, copied).await
    }

    /// Copy Blob: the source's properties, and its metadata unless others are given. Of the
    /// source's tags it takes none along.
    async fn copy_keeping(
        &self,
        source: &CopySource,
        to: &str,
        options: &PutOptions,
    ) -> Result<PutResult> {
        // The operation knows no header for the media type.
        let options = PutOptions { content_type: None, ..options.clone() };
        let mut headers = vec![("x-ms-copy-source", self.wire.source_url(&source.key))];
        headers.extend(source_condition(source));
        let ask = Ask { headers, options: Some(&options), ..Ask::default() };
        let response = self.wire.send(OPERATION, to, Method::PUT, ask).await?;
        if response.status != 202 {
            let failure = Failure::read(response).await;
            return Err(self.copy_failed(failure, &source.key, to));
        }
        self.await_copy(response, to).await
    }

    async fn await_copy(&self, response: HttpResponse, to: &str) -> Result<PutResult> {
        let named = |error: Error| self.wire.named(error, OPERATION, to);
        let mut headers = response.headers.clone();
        self.acknowledged(response, OPERATION, to).await?;
        let id = text_header(&headers, "x-ms-copy-id");
        let mut wait = POLL_FIRST;
        loop {
            let status = text_header(&headers, "x-ms-copy-status").unwrap_or_default();
            match status.as_str() {
                "success" => return Ok(put_result(&headers)),
                "pending" => {}
                _ => return Err(named(copy_broke(&status, &headers))),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(POLL_LONGEST);
            let response = self.wire.send(OPERATION, to, Method::HEAD, Ask::default()).await?;
            if response.status != 200 {
                return Err(self.wire.refused(response, OPERATION, to).await);
            }
            headers = response.headers;
            if text_header(&headers, "x-ms-copy-id") != id {
                return Err(named(came_between()));
            }
        }
    }

    /// Set Blob Properties, and Set Blob Metadata where the source's shall go, each on the version
    /// that was just made.
    async fn set_properties(
        &self,
        to: &str,
        options: &PutOptions,
        copied: PutResult,
    ) -> Result<PutResult> {
        let mut typed = options.clone();
        typed.metadata.retain(|pair| is_property(&pair.0));
        let made = self.set(to, "properties", &typed, copied).await?;
        let is_described = |pair: &(String, String)| {
            !is_property(&pair.0) && ![notes::TAGGING, notes::STORAGE_CLASS].contains(&&*pair.0)
        };
        if options.metadata.iter().any(is_described) {
            return Ok(made);
        }
        let bare = PutOptions { content_type: None, metadata: Vec::new(), ..typed };
        self.set(to, "metadata", &bare, made).await
    }

    async fn set(
        &self,
        to: &str,
        what: &str,
        options: &PutOptions,
        on: PutResult,
    ) -> Result<PutResult> {
        let condition = on.etag.map_or(WriteCondition::None, WriteCondition::IfMatch);
        // Other properties make no other version.
        let version = on.version;
        let options = PutOptions { condition, ..options.clone() };
        let ask = Ask { query: &[("comp", what)], options: Some(&options), ..Ask::default() };
        let response = self.wire.send(OPERATION, to, Method::PUT, ask).await?;
        match response.status {
            200 => {}
            // The caller's own condition held when the copy was made.
            412 => return Err(self.wire.named(came_between(), OPERATION, to)),
            _ => return Err(self.wire.refused(response, OPERATION, to).await),
        }
        let set = self.written(response, OPERATION, to).await?;
        Ok(PutResult { version: set.version.clone().or(version), ..set })
    }

    /// The source of an operation that reads a URL: where it is, the right to read it, and the
    /// version that it must still be.
    pub(super) async fn source_headers(
        &self,
        source: &CopySource,
    ) -> Result<Vec<(&'static str, String)>> {
        let (url, token) = self.wire.link(&source.key).await?;
        let token = token.map(|token| token.reveal().to_string());
        let mut headers = vec![("x-ms-copy-source", url)];
        headers.extend(token.map(|token| ("x-ms-copy-source-authorization", token)));
        headers.extend(source_condition(source));
        Ok(headers)
    }

    /// Names the source where it is what is missing.
    fn copy_failed(&self, failure: Failure, from: &str, to: &str) -> Error {
        let is_source = failure.status == 404 || failure.code == "CannotVerifyCopySource";
        self.wire.failed(failure, OPERATION, if is_source { from } else { to })
    }
}

/// Another write was faster than the second half of a copy.
fn came_between() -> Error {
    let why = "another write replaced the blob while it was being copied";
    Error::new(Kind::Conflict, why).with_service_code("OperationAborted")
}

/// The version that the source must still be.
fn source_condition(source: &CopySource) -> Option<(&'static str, String)> {
    source.if_match.as_ref().map(|etag| ("x-ms-source-if-match", etag.header_value()))
}

/// Whether Put Blob From URL is missing, or takes no blob of this size.
fn lacks_put_from_url(failure: &Failure) -> bool {
    failure.verdict().0 == Kind::Unsupported
        || matches!(
            failure.code.as_str(),
            "InvalidHeaderValue" | "RequestBodyTooLarge" | "CopySourceTooLarge"
        )
        || failure.status == 413
}

fn copy_broke(status: &str, headers: &HeaderMap) -> Error {
    let told = text_header(headers, "x-ms-copy-status-description").unwrap_or_default();
    let why = format!("the service ended the copy with status `{status}`: {told}");
    Error::new(Kind::Unavailable, why).with_retry(Retry::BackOff)
}

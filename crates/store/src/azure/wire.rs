//! One signed request to the Blob service and its answer: every verb of the store goes through it.

mod unsigned;

use super::address::Address;
use super::config::{Auth, Config};
use super::credentials::Credentials;
use super::endpoint::Endpoint;
use super::{metadata, tier, versions};
use crate::answer::{Failure, object_meta};
use crate::options::StoreOptions;
use crate::streaming::split_version;
use crate::unsigned::ReadsUnsigned;
use crate::{
    Connections, HttpClient, HttpResponse, Inflow, ObjectMeta, Payload, PutOptions, PutResult,
    WarmUp, WriteCondition, encoded_word, notes,
};
use http::header::{CONTENT_LENGTH, ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request};
use penstock_base::{Error, Kind, Result};
use std::sync::Arc;

/// Every Azure region has had this version since 2025, and emulators of that year speak it too. The
/// store needs nothing newer but `startFrom` in listings, which asks for [`START_FROM_VERSION`] by
/// itself.
pub(super) const API_VERSION: &str = "2025-11-05";
/// First version with `startFrom`.
pub(super) const START_FROM_VERSION: &str = "2026-02-06";

/// Prefix of metadata headers.
pub(super) const META_PREFIX: &str = "x-ms-meta-";
/// Metadata name under which a blob keeps the nonce of the upload that made it, so that a repeated
/// commit recognises its own work.
pub(super) const UPLOAD_NONCE: &str = "penstock_upload";
/// Metadata name by which Data Lake accounts and Hadoop mark a blob as a directory.
pub(super) const IS_FOLDER: &str = "hdi_isfolder";

/// One container, and how to talk to it.
#[derive(Debug)]
pub(super) struct Wire {
    pub address: Address,
    pub config: Config,
    credentials: Arc<Credentials>,
    client: HttpClient,
    extra_headers: Vec<(HeaderName, HeaderValue)>,
    denied_hint: String,
    reads_unsigned: ReadsUnsigned,
}

/// What a verb adds to a request.
#[derive(Debug, Default)]
pub(super) struct Ask<'a> {
    pub query: &'a [(&'a str, &'a str)],
    pub headers: Vec<(&'static str, String)>,
    pub options: Option<&'a PutOptions>,
    pub payload: Payload,
    /// A body that is still coming in, instead of the payload.
    pub flow: Option<Box<dyn Inflow>>,
    /// Another version than [`API_VERSION`].
    pub version: Option<&'static str>,
}

impl Wire {
    pub fn new(client: HttpClient, address: Address, options: &StoreOptions) -> Result<Self> {
        let config = Config::decide(&address, options)?;
        let credentials = Arc::new(Credentials::new(&config.auth, &client)?);
        let denied_hint = config.denied_hint(&address, options);
        let extra_headers = crate::open::extra_headers(options)?;
        let reads_unsigned = ReadsUnsigned::default();
        Ok(Wire {
            address,
            config,
            credentials,
            client,
            extra_headers,
            denied_hint,
            reads_unsigned,
        })
    }

    /// The same account's wire to another container, whose URL is `root`; tokens are shared.
    pub fn for_container(&self, container: &str, root: String) -> Self {
        let (container, key) = (container.to_string(), String::new());
        Wire {
            address: Address {
                container,
                root,
                key,
                account: self.address.account.clone(),
                sas: self.address.sas.clone(),
            },
            config: self.config.clone(),
            credentials: self.credentials.clone(),
            client: self.client.clone(),
            extra_headers: self.extra_headers.clone(),
            denied_hint: self.denied_hint.clone(),
            reads_unsigned: ReadsUnsigned::default(),
        }
    }

    /// The same over connections of its own.
    pub fn apart(self, connections_per_host: usize) -> Self {
        Wire { client: self.client.apart(connections_per_host), ..self }
    }

    /// What is known of the connections to the account.
    pub fn connections(&self) -> Connections {
        self.client.connections(&self.config.endpoint.to_string())
    }

    /// Opens connections before requests need them; see [`Store::warm`](crate::Store::warm).
    pub fn warm(&self, count: usize) -> Option<WarmUp> {
        let url = self.config.endpoint.to_string();
        if !self.client.has_answered(&url) {
            return None;
        }
        self.client.warm(&url, count)
    }

    /// Path of a blob, or of the container.
    pub fn path(&self, key: Option<&str>) -> String {
        self.config.endpoint.path(&self.address.container, key)
    }

    /// A request without signature.
    pub fn request(&self, method: Method, path: &str, ask: &Ask<'_>) -> Result<Parts> {
        let url = self.config.endpoint.url(path, ask.query);
        let invalid = |why: String| Error::new(Kind::Invalid, why);
        let (mut parts, ()) = Request::builder()
            .method(method)
            .uri(&url)
            .body(())
            .map_err(|error| invalid(format!("the name makes no URL ({error})")))?
            .into_parts();
        parts.headers.extend(self.extra_headers.iter().cloned());
        let mut set = |name: &str, value: &str| {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| invalid(format!("`{name}` cannot be the name of metadata")))?;
            let value = HeaderValue::from_str(value)
                .map_err(|_| invalid(format!("the value of `{name}` cannot be a header")))?;
            parts.headers.insert(name, value);
            Ok(())
        };
        set("x-ms-version", ask.version.unwrap_or(API_VERSION))?;
        for (name, value) in &ask.headers {
            set(name, value)?;
        }
        if let Some(options) = ask.options {
            for (name, value) in write_headers(options) {
                set(&name, &value)?;
            }
        }
        if parts.method == Method::PUT || parts.method == Method::POST {
            let size = ask.flow.as_ref().map_or(ask.payload.len(), |flow| flow.size_bytes());
            set(CONTENT_LENGTH.as_str(), &size.to_string())?;
        }
        Ok(parts)
    }

    /// Signs and sends; any status is an answer. The key may name a version (see
    /// [`split_version`]).
    pub async fn send(
        &self,
        operation: &'static str,
        key: &str,
        method: Method,
        ask: Ask<'_>,
    ) -> Result<HttpResponse> {
        let (name, version) = split_version(key);
        let path = self.path((!name.is_empty()).then_some(name));
        let Some(pair) = versions::parameter(version) else {
            return self.send_to(operation, key, method, &path, ask).await;
        };
        let query: Vec<_> = ask.query.iter().copied().chain([pair]).collect();
        self.send_to(operation, key, method, &path, Ask { query: &query, ..ask }).await
    }

    /// The same to any path; `key` names the object in errors.
    pub async fn send_to(
        &self,
        operation: &'static str,
        key: &str,
        method: Method,
        path: &str,
        ask: Ask<'_>,
    ) -> Result<HttpResponse> {
        let is_read = method == Method::GET || method == Method::HEAD;
        let sent = async {
            let mut parts = self.request(method, path, &ask)?;
            if is_read && self.config.is_of_environment {
                return self.read(parts).await;
            }
            if let Some(withheld) = self.config.withheld.clone().filter(|_| !is_read) {
                return Err(withheld.into_error());
            }
            self.credentials.sign(&mut parts).await?;
            match ask.flow {
                Some(flow) => self.client.send_flow(parts, flow).await,
                None => self.client.send(parts, ask.payload).await,
            }
        };
        sent.await.map_err(|error| self.named(error, operation, key))
    }

    /// Signs a request that travels inside another one.
    pub async fn sign(&self, parts: &mut Parts) -> Result<()> {
        self.credentials.sign(parts).await
    }

    /// The URL of a blob that the service can read for a copy, and the token to come with it.
    pub async fn link(&self, key: &str) -> Result<(String, Option<penstock_base::Secret>)> {
        let (name, version) = split_version(key);
        let version = versions::parameter(version);
        let endpoint = &self.config.endpoint;
        // A signature is over container and key, without the path that an emulator's account is.
        let bare = Endpoint { base_path: String::new(), ..endpoint.clone() };
        let url = bare.url(&bare.path(&self.address.container, Some(name)), &[]);
        let request = Request::get(url).body(()).map_err(|error| {
            Error::new(Kind::Invalid, format!("the name makes no URL ({error})"))
        })?;
        let place = (self.address.container.as_str(), name);
        let version_id = version.map(|(_, id)| id);
        let signed = match self.credentials.version_link(place, version_id) {
            Some(query) => (Some(query), None),
            None => self.credentials.link(request.into_parts().0).await?,
        };
        let (query, token) = signed;
        Ok((with_query(self.blob_url(key), query.as_deref()), token))
    }

    /// A blob's URL, or that of one of its versions, without any right to read it.
    fn blob_url(&self, key: &str) -> String {
        let (name, version) = split_version(key);
        let pair = versions::parameter(version);
        self.config.endpoint.url(&self.path(Some(name)), pair.as_slice())
    }

    /// A blob's URL as Copy Blob wants it: with the shared access signature, if that is the
    /// credential; any other one of the account is taken from the request itself.
    pub fn source_url(&self, key: &str) -> String {
        let url = self.blob_url(key);
        match &self.config.auth {
            Auth::Sas(sas) => with_query(url, Some(sas.reveal())),
            _ => url,
        }
    }

    /// The error that a refusing answer is.
    pub async fn refused(
        &self,
        response: HttpResponse,
        operation: &'static str,
        key: &str,
    ) -> Error {
        self.failed(Failure::read(response).await, operation, key)
    }

    /// The same for a failure that was read already.
    pub fn failed(&self, mut failure: Failure, operation: &'static str, key: &str) -> Error {
        if split_version(key).1.is_some() && failure.code == "BlobNotFound" {
            failure.code = "NoSuchVersion".to_string();
        }
        let hint = match (failure.verdict().0, failure.code.as_str()) {
            (Kind::Denied, _) => Some(self.denied_hint.clone()),
            (Kind::NotFound, _) if !key.is_empty() => {
                failure.missing_object_hint(&format!("{}{key}", self.address.root))
            }
            (_, "InvalidBlobOrBlock") => Some(
                "Another program left unfinished blocks of another id length on this blob; they \
                 expire in a week, or at once when a small blob is written there"
                    .to_string(),
            ),
            (_, "SnapshotsPresent") => {
                Some("The blob has snapshots: delete those first, if they may go".to_string())
            }
            (_, "InvalidResourceName" | "OutOfRangeInput") => Some(
                "Container names are 3 to 63 lower-case letters, digits and hyphens; keys have at \
                 most 1024 characters"
                    .to_string(),
            ),
            _ => None,
        };
        let was_unsigned = matches!(self.config.auth, Auth::Anonymous);
        self.named(failure.into_error(hint).with_unsigned(was_unsigned), operation, key)
    }

    /// Names operation and object in an error.
    pub fn named(&self, error: Error, operation: &'static str, key: &str) -> Error {
        error.with_operation(operation).with_object(format!("{}{key}", self.address.root))
    }
}

/// Whether a pair of metadata is a header that the service keeps as such.
pub(super) fn is_property(name: &str) -> bool {
    matches!(
        name,
        "@cache-control" | "@content-disposition" | "@content-encoding" | "@content-language"
    )
}

fn write_headers(options: &PutOptions) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    if let Some(content_type) = &options.content_type {
        headers.push(("x-ms-blob-content-type".to_string(), content_type.clone()));
    }
    for (name, value) in &options.metadata {
        match name.as_str() {
            property if is_property(property) => {
                headers.push((format!("x-ms-blob-{}", &property[1..]), value.clone()));
            }
            notes::STORAGE_CLASS => {
                let tier = tier::of_class(value);
                headers.extend(tier.map(|tier| (tier::HEADER.to_string(), tier.to_string())));
            }
            notes::TAGGING => headers.push(("x-ms-tags".to_string(), value.clone())),
            _ => {
                let name = format!("{META_PREFIX}{}", metadata::encode_name(name));
                headers.push((name, encoded_word::encode(value)));
            }
        }
    }
    headers.extend(condition_header(&options.condition));
    headers
}

/// The header of a condition, if there is one.
pub(super) fn condition_header(condition: &WriteCondition) -> Option<(String, String)> {
    match condition {
        WriteCondition::None => None,
        WriteCondition::IfAbsent => Some((IF_NONE_MATCH.to_string(), "*".to_string())),
        WriteCondition::IfMatch(etag) => Some((IF_MATCH.to_string(), etag.header_value())),
        WriteCondition::IfPresent => Some((IF_MATCH.to_string(), "*".to_string())),
        WriteCondition::IfNoneMatch(etag) => Some((IF_NONE_MATCH.to_string(), etag.header_value())),
    }
}

/// Tag, time and version that a write left.
pub(super) fn put_result(headers: &HeaderMap) -> PutResult {
    let meta = object_meta(headers, None, "");
    let (etag, modified, version) = (meta.etag, meta.modified, versions::told(headers));
    PutResult { etag, modified, version, ..PutResult::default() }
}

/// A URL with more of a query.
fn with_query(url: String, query: Option<&str>) -> String {
    let Some(query) = query else { return url };
    let sign = if url.contains('?') { '&' } else { '?' };
    format!("{url}{sign}{query}")
}

/// Metadata of a blob from its headers; our own entries are left out.
pub(super) fn blob_meta(headers: &HeaderMap, size_bytes: Option<u64>) -> ObjectMeta {
    let mut meta = object_meta(headers, size_bytes, META_PREFIX);
    meta.storage_class = tier::class_told(headers);
    meta.version = versions::told(headers);
    meta.metadata.retain(|(name, _)| name != UPLOAD_NONCE);
    for (name, value) in &mut meta.metadata {
        *name = metadata::decode_name(name);
        *value = encoded_word::decode(value);
    }
    meta
}

/// Whether the headers have anything that only a Blob service says of a blob.
pub(super) fn is_from_service(headers: &HeaderMap) -> bool {
    ["x-ms-blob-type", "x-ms-request-id", "x-ms-version"]
        .iter()
        .any(|name| headers.contains_key(*name))
}

/// Whether the headers are of an answer that tells of a blob: each has a tag, and an error or a
/// page that came with status 200 has none.
pub(super) fn is_of_blob(headers: &HeaderMap) -> bool {
    is_from_service(headers) && headers.contains_key(ETAG)
}

/// Whether the headers are those of a directory.
pub(super) fn is_directory(headers: &HeaderMap) -> bool {
    let says = |name: &str, text: &str| {
        headers
            .get(name)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(text.as_bytes()))
    };
    says("x-ms-meta-hdi_isfolder", "true") || says("x-ms-resource-type", "directory")
}

/// Whether a metadata entry of a listing marks a directory.
pub(super) fn marks_directory(name: &str, value: &str) -> bool {
    name.eq_ignore_ascii_case(IS_FOLDER) && value.trim().eq_ignore_ascii_case("true")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ETag;

    #[test]
    fn options_become_headers() {
        let options = PutOptions {
            condition: WriteCondition::IfMatch(ETag("0x8D".into())),
            content_type: Some("text/csv".into()),
            metadata: vec![("my-key".into(), "ü".into())],
        };
        let headers = write_headers(&options);
        let headers: Vec<_> = headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(
            headers,
            [
                ("x-ms-blob-content-type", "text/csv"),
                ("x-ms-meta-my_x2d_key", "=?UTF-8?B?w7w=?="),
                ("if-match", "\"0x8D\""),
            ]
        );
    }

    #[test]
    fn metadata_comes_back_without_our_own() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("etag", "\"0x8D\""),
            ("x-ms-meta-my_x2d_key", "=?UTF-8?B?w7w=?="),
            ("x-ms-meta-penstock_upload", "abc"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let meta = blob_meta(&headers, Some(3));
        assert_eq!(meta.metadata, [("my-key".to_string(), "ü".to_string())]);
        assert_eq!(meta.etag, Some(ETag("0x8D".into())));
        assert!(!is_directory(&headers));
        headers.insert("x-ms-meta-hdi_isfolder", HeaderValue::from_static("true"));
        assert!(is_directory(&headers));
    }
}

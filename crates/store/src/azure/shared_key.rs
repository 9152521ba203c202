//! Signatures by an account's key: what is signed of a request.
//!
//! The signing crate's are what the tests compare with. These are ours because each request pays
//! for them: the key is decoded once, and what is signed is written once.
//!
//! Source: "Authorize with Shared Key", Azure Storage REST API, for version 2015-02-21 and later.

use crate::conditions::http_date;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_TYPE, DATE,
    HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE,
    RANGE,
};
use http::request::Parts;
use penstock_base::{Error, Kind, Result, Secret};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use ring::hmac;
use std::fmt;
use std::time::SystemTime;

const X_MS_DATE: HeaderName = HeaderName::from_static("x-ms-date");
const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
/// Headers whose values are signed in this order, without their names.
const STANDARD_HEADERS: [HeaderName; 11] = [
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_LENGTH,
    CONTENT_MD5,
    CONTENT_TYPE,
    DATE,
    IF_MODIFIED_SINCE,
    IF_MATCH,
    IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE,
    RANGE,
];

/// The key of an account.
pub(super) struct SharedKey {
    account: String,
    key: hmac::Key,
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedKey").field("account", &self.account).finish_non_exhaustive()
    }
}

impl SharedKey {
    /// # Errors
    /// `Invalid` for a key that is not base64.
    pub fn new(account: &str, key: &Secret) -> Result<Self> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &decoded(key.reveal())?);
        Ok(SharedKey { account: account.to_string(), key })
    }

    /// Adds date and signature.
    ///
    /// # Errors
    /// `Invalid` for headers that cannot be signed.
    pub fn sign(&self, request: &mut Parts, now: SystemTime) -> Result<()> {
        let invalid = |what: &str| Error::new(Kind::Invalid, format!("{what} cannot be signed"));
        let date = http_date(now).and_then(|date| HeaderValue::try_from(date).ok());
        request.headers.insert(X_MS_DATE, date.ok_or_else(|| invalid("the clock's time"))?);
        let text = signed_text(request, &self.account)
            .ok_or_else(|| invalid("a header that is not of ASCII characters"))?;
        let mut value = format!("SharedKey {}:", self.account);
        STANDARD.encode_string(hmac::sign(&self.key, text.as_bytes()), &mut value);
        let value = HeaderValue::try_from(value);
        let mut value = value.map_err(|_| invalid("a request for an account of this name"))?;
        value.set_sensitive(true);
        request.headers.insert(AUTHORIZATION, value);
        Ok(())
    }
}

/// The version of the rules that a signature in a URL is written by.
const LINK_RULES: &str = "2020-12-06";

impl SharedKey {
    /// The query of a shared access signature by which one version of a blob, given as container
    /// and key, can be read until `end`. The signing crate knows blobs only, and their signature is
    /// none for a version.
    ///
    /// Source: "Create a service SAS", Azure Storage REST API.
    pub fn version_link(
        &self,
        (container, key): (&str, &str),
        version: &str,
        end: SystemTime,
    ) -> String {
        let end = iso_seconds(end);
        let place = format!("/blob/{}/{container}/{key}", self.account);
        // Rights, begin, end, place; policy, addresses, protocols; rules, resource and its time;
        // encryption scope; five headers of the answer.
        let text =
            ["r", "", &end, &place, "", "", "", LINK_RULES, "bv", version, "", "", "", "", "", ""]
                .join("\n");
        let sig = STANDARD.encode(hmac::sign(&self.key, text.as_bytes()));
        let sig = utf8_percent_encode(&sig, NON_ALPHANUMERIC);
        let end = utf8_percent_encode(&end, NON_ALPHANUMERIC);
        format!("sv={LINK_RULES}&sr=bv&sp=r&se={end}&sig={sig}")
    }
}

/// `2026-11-20T07:28:14Z`.
fn iso_seconds(time: SystemTime) -> String {
    let time = jiff::Timestamp::try_from(time).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The bytes of an account's key.
///
/// # Errors
/// `Invalid` for text that is not base64.
pub(super) fn decoded(key: &str) -> Result<Vec<u8>> {
    let message = "ACCOUNT_KEY is not base64; were characters lost when it was copied?";
    STANDARD.decode(key).map_err(|_| Error::new(Kind::Invalid, message))
}

/// What the signature is of; `None` if a header is not of ASCII characters.
fn signed_text(request: &Parts, account: &str) -> Option<String> {
    let mut text = String::with_capacity(512);
    text.extend([request.method.as_str(), "\n"]);
    for name in &STANDARD_HEADERS {
        let value = request.headers.get(name).map(HeaderValue::to_str).transpose().ok()?;
        match value {
            Some("0") if *name == CONTENT_LENGTH => {}
            value => text.push_str(value.unwrap_or_default()),
        }
        text.push('\n');
    }
    let own = request.headers.iter().filter(|(name, _)| name.as_str().starts_with("x-ms-"));
    let own = own.map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let mut own = own.collect::<Option<Vec<_>>>()?;
    own.sort_unstable();
    for (name, value) in own {
        text.extend([name, ":", value, "\n"]);
    }
    text.extend(["/", account, request.uri.path()]);
    push_query(&mut text, request.uri.query().unwrap_or_default());
    Some(text)
}

/// A line for each parameter of the query, decoded, in order of their names.
fn push_query(text: &mut String, query: &str) {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name).to_lowercase(), decoded(value))
    };
    let mut pairs: Vec<_> = query.split('&').filter(|pair| !pair.is_empty()).map(pair).collect();
    pairs.sort_unstable();
    for (name, value) in &pairs {
        text.extend(["\n", name]);
        if !value.is_empty() {
            text.extend([":", value]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::http::Request;
    use proptest::prelude::*;
    use reqsign_azure_storage::{Credential, RequestSigner};
    use reqsign_core::{Context, SignRequest};

    const KEY: &str =
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

    proptest! {
        #[test]
        fn every_request_is_signed_as_the_signing_crate_signs_it(
            method in "GET|PUT|HEAD|DELETE|POST",
            account in "[a-z0-9]{3,24}",
            path in "/([A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-7][0-9a-fA-F]|%C3%A4){0,40}",
            query in proptest::option::of(
                "(([A-Za-z]{1,8})=([A-Za-z0-9._~+,:/-]|%[0-7][0-9a-fA-F]|%c3%bc){0,12}&?){0,4}",
            ),
            headers in proptest::collection::btree_map(
                "(range|content-type|content-length|content-md5|content-encoding|if-match|\
                  if-none-match|if-modified-since|if-unmodified-since|accept|\
                  x-ms-[a-z-]{0,12}[a-z])",
                "(0|[!-~]( ?[!-~]){0,20})?",
                0..8,
            ),
        ) {
            let query = query.map_or_else(String::new, |query| format!("?{query}"));
            let mut request = Request::builder()
                .method(&*method)
                .uri(format!("https://{account}.blob.core.windows.net{path}{query}"));
            for (name, value) in &headers {
                request = request.header(name, value);
            }
            let mut ours = request.body(()).expect("the test's own").into_parts().0;
            let mut theirs = ours.clone();
            let credential = Credential::with_shared_key(&account, KEY);
            let (context, signer) = (Context::new(), RequestSigner::new());
            let signing = signer.sign_request(&context, &mut theirs, Some(&credential), None);
            let signed = futures_util::FutureExt::now_or_never(signing);
            signed.expect("it waits for nothing").expect("signs");
            let at = theirs.headers[&X_MS_DATE].to_str().expect("it is a time");
            let at = crate::answer::parse_http_date(at).expect("it is a time");
            let key = SharedKey::new(&account, &Secret::new(KEY)).expect("it is base64");
            key.sign(&mut ours, at).expect("signs");
            prop_assert_eq!(&ours.headers, &theirs.headers);
            prop_assert!(ours.headers[&AUTHORIZATION].is_sensitive());
            let told = format!("{key:?}");
            prop_assert!(!told.contains("Eby8"));
        }
    }

    #[test]
    fn a_key_that_lost_characters_is_told() {
        let error = SharedKey::new("account", &Secret::new("hunter2?")).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

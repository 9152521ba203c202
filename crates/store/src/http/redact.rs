//! Cuts everything secret from a URL, for events and messages.

use http::Uri;

/// Query parameters whose values are (parts of) credentials, in lower case: Azure SAS, presigned
/// S3 and GCS, and the usual names of tokens.
const SECRET_PARAMETERS: &[&str] = &[
    "sig",
    "se",
    "sp",
    "st",
    "sv",
    "sr",
    "srt",
    "ss",
    "spr",
    "sip",
    "si",
    "skoid",
    "sktid",
    "skt",
    "ske",
    "sks",
    "skv",
    "signature",
    "awsaccesskeyid",
    "googleaccessid",
    "token",
    "access_token",
    "auth",
    "key",
    "api_key",
    "apikey",
    "code",
    "password",
    "secret",
];

/// Query parameters with these beginnings are secret too.
const SECRET_PREFIXES: &[&str] = &["x-amz-", "x-goog-", "s3_"];

/// Link-local addresses are those of instance and container metadata, where a path may be all that
/// guards credentials.
pub(crate) fn is_metadata_host(host: &str) -> bool {
    host.starts_with("169.254.") || host == "metadata.google.internal"
}

/// The URL without user info, without the path at a metadata service, and with the values of secret
/// query parameters replaced by `***`.
pub fn redacted_url(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or("http");
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let path = if is_metadata_host(uri.host().unwrap_or_default()) { "/***" } else { uri.path() };
    let mut text = format!("{scheme}://{host}{path}");
    if let Some(query) = uri.query() {
        text.push('?');
        text.push_str(&redacted_query(query));
    }
    text
}

/// As [`redacted_url`], for text that may not parse as a URL.
pub fn redacted_text(url: &str) -> String {
    let (rest, query) = match url.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (url, None),
    };
    let rest = match rest.split_once("://") {
        Some((scheme, after)) => {
            let (authority, path) = match after.find('/') {
                Some(at) => after.split_at(at),
                None => (after, ""),
            };
            // In abfss://container@account/ the part before the `@` is a name, not a secret.
            let host = match authority.rsplit_once('@') {
                Some((_, host)) if !scheme.starts_with("abfs") => host,
                _ => authority,
            };
            format!("{scheme}://{host}{path}")
        }
        None => rest.to_string(),
    };
    match query {
        Some(query) => format!("{rest}?{}", redacted_query(query)),
        None => rest,
    }
}

fn redacted_query(query: &str) -> String {
    let shown: Vec<String> = query
        .split('&')
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) if is_secret(name) && !value.is_empty() => format!("{name}=***"),
            _ => pair.to_string(),
        })
        .collect();
    shown.join("&")
}

fn is_secret(name: &str) -> bool {
    let lower = percent_encoding::percent_decode_str(name).decode_utf8_lossy().to_ascii_lowercase();
    SECRET_PARAMETERS.contains(&lower.as_str())
        || SECRET_PREFIXES.iter().any(|prefix| lower.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_tokens_and_user_info_are_cut() {
        let uri: Uri = "https://u:pw@acc.blob.core.windows.net/c/b%20x?comp=list&sig=abc%2F&se=1"
            .parse()
            .unwrap();
        let shown = "https://acc.blob.core.windows.net/c/b%20x?comp=list&sig=***&se=***";
        assert_eq!(redacted_url(&uri), shown);
        assert_eq!(redacted_text(&uri.to_string()), shown);
        let uri: Uri =
            "https://b.s3.amazonaws.com/k?X-Amz-Signature=ff&list-type=2".parse().unwrap();
        assert_eq!(
            redacted_url(&uri),
            "https://b.s3.amazonaws.com/k?X-Amz-Signature=***&list-type=2"
        );
        // Of a container's credentials the path is the secret.
        let uri: Uri = "http://169.254.170.2/v2/credentials/2d3c-9a1e".parse().unwrap();
        assert_eq!(redacted_url(&uri), "http://169.254.170.2/***");
    }
}

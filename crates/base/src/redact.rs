//! Replaces secrets in URLs and in free text: the one place that decides which part of a text is
//! a secret.
//!
//! [`url`] takes a text that is one URL or object name, [`text`] a sentence in which URLs may
//! stand. Both also read percent-encoded queries, as a key holds them that was pasted with its
//! signature. Secrets become `***`; everything else stays as it is.
//!
//! Each CDN and each gateway of APIs has a name of its own for what lets a reader in. So of a
//! query's parameters those are shown that are known to be harmless ([`HARMLESS`]), and of the
//! others those whose values are too short for a credential.

use std::borrow::Cow;

/// Stands for a secret.
const MARK: &str = "***";

/// Query parameters whose values are shown: those of the stores' own requests and of volumes, and
/// what people commonly choose data by. In lower case.
const HARMLESS: &[&str] = &[
    // S3 and Google.
    "list-type",
    "prefix",
    "delimiter",
    "max-keys",
    "start-after",
    "encoding-type",
    "fetch-owner",
    "marker",
    "key-marker",
    "version-id-marker",
    "upload-id-marker",
    "part-number-marker",
    "generation-marker",
    "continuation-token",
    "continuationtoken",
    "next-token",
    "nexttoken",
    "max-parts",
    "max-uploads",
    "uploadid",
    "partnumber",
    "versionid",
    "generation",
    "attributes",
    "x-id",
    "expires",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    // Options in S3 URLs.
    "s3_region",
    "s3_endpoint",
    "s3_url_style",
    "s3_use_ssl",
    "s3_requester_pays",
    // Azure.
    "comp",
    "restype",
    "include",
    "maxresults",
    "startfrom",
    "blockid",
    "blocklisttype",
    "snapshot",
    "timeout",
    "deletetype",
    "showonly",
    // The Hugging Face Hub.
    "recursive",
    "expand",
    "cursor",
    // Volumes.
    "db",
    "temp",
    "io",
    "queues",
    "depth",
    "wait",
    // Web servers.
    "format",
    "page",
    "limit",
    "offset",
    "sort",
    "order",
    "year",
    "month",
    "day",
    "date",
    "start",
    "end",
    "version",
    "file",
    "filename",
    "raw",
    "download",
    "lang",
];

/// Most bytes of a value that is shown where nothing is known of its name.
const SHOWN_BYTES_MAX: usize = 4;

/// Query parameters whose values are (parts of) credentials however short they are, in lower case:
/// Azure SAS, presigned S3 and GCS, and the usual names of tokens.
const PARAMETERS: &[&str] = &[
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
    "googleaccessid",
    "auth",
    "key",
    "code",
    "sas",
    "pwd",
    "pass",
    "jwt",
    "policy",
    "key-pair-id",
    "keyid",
    "key_id",
    "pw",
    "pin",
    "otp",
    "sid",
    "hash",
    "md5",
    "sign",
    "ticket",
    "session",
    "verify",
];

/// Tokens of Akamai, which stand in the path, too.
const IN_PATHS: &[&str] = &["hdnts", "hdnea", "hdntl"];

/// Query parameters with these beginnings are secret too.
const PREFIXES: &[&str] = &["x-amz-", "x-goog-", "x-oss-", "x-obs-", "x-cos-", "s3_"];

/// Names that hold one of these are secret wherever they stand.
const FRAGMENTS: &[&str] = &[
    "signature",
    "secret",
    "password",
    "passwd",
    "token",
    "credential",
    "accountkey",
    "account_key",
    "accesskey",
    "access_key",
    "apikey",
    "api_key",
    "api-key",
    "private_key",
    "connection_string",
    "customer-key",
    "subscription-key",
    "authorization",
    "hmac",
    "hdnts",
    "hdnea",
    "hdntl",
];

/// Words behind which a header carries a credential.
const AUTH_SCHEMES: &[&str] = &["bearer", "basic", "sharedkey", "sharedkeylite", "aws"];

/// Names of the services that give credentials to machines and containers. There the path may be
/// all that guards a credential.
pub fn is_metadata_host(host: &str) -> bool {
    host.starts_with("169.254.") || host == "metadata.google.internal"
}

/// A URL or an object's name with `***` for user info, for the path at a metadata service, and for
/// the values of secret query parameters.
pub fn url(url: &str) -> Cow<'_, str> {
    // A volume takes no credentials, and a wrong parameter of it is shown as it was typed.
    if url.starts_with("nvme://") {
        return Cow::Borrowed(url);
    }
    if !may_hold_secret(url) && !url.contains("://169.254.") && !url.contains("://metadata.") {
        return Cow::Borrowed(url);
    }
    let shown = without_user_info(url, Mode::Url);
    let shown = without_metadata_path(shown);
    without_values(&shown, Mode::Url).into()
}

/// A sentence with `***` for every secret that a URL, a query, a connection string or a header
/// in it carries.
pub fn text(text: &str) -> Cow<'_, str> {
    if !may_hold_secret(text) && !has_auth_scheme(text) {
        return Cow::Borrowed(text);
    }
    let shown = without_user_info(text, Mode::Text);
    let shown = without_values(&shown, Mode::Text);
    without_auth_values(&shown).into()
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Url,
    Text,
}

impl Mode {
    /// Whether a URL or a value ends before this character.
    fn ends_at(self, c: char) -> bool {
        self == Mode::Text && (c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>'))
    }
}

/// A cheap look: most texts hold nothing of the kind.
fn may_hold_secret(text: &str) -> bool {
    let marks = ["%3D", "%3d", "%25", "-token", "-key", "-hmac"];
    text.contains(['=', '@']) || marks.iter().any(|mark| text.contains(mark))
}

fn without_user_info(text: &str, mode: Mode) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        let end = after.find(|c| mode.ends_at(c)).unwrap_or(after.len());
        let place = after[..end].split(['?', '#']).next().unwrap_or_default();
        let is_hadoop = scheme_before(before).to_ascii_lowercase().starts_with("abfs");
        let user_info = user_info_bytes(place, is_hadoop);
        if user_info > 0 {
            shown.push_str(MARK);
            shown.push('@');
        }
        rest = &after[user_info..];
    }
    shown.push_str(rest);
    shown
}

fn scheme_before(text: &str) -> &str {
    last_word(text.trim_end_matches("://"))
}

/// The letters and digits at the end of a text.
fn last_word(text: &str) -> &str {
    let before = text.trim_end_matches(|c: char| c.is_ascii_alphanumeric());
    &text[before.len()..]
}

/// Bytes of the user info, with its `@`, at the beginning of what follows `scheme://`.
fn user_info_bytes(place: &str, is_hadoop: bool) -> usize {
    let authority = place.split('/').next().unwrap_or_default();
    match authority.rsplit_once('@') {
        // In abfss://container@account/ the part before the `@` is a name.
        Some((user_info, _)) if is_hadoop && !user_info.contains(':') => 0,
        Some((user_info, _)) => user_info.len() + 1,
        // A secret key pasted as user info may hold slashes.
        None if !authority.starts_with('[') && has_odd_port(authority) => {
            place.rfind('@').map_or(0, |at| at + 1)
        }
        None => 0,
    }
}

fn has_odd_port(authority: &str) -> bool {
    authority.split_once(':').is_some_and(|(_, port)| !port.bytes().all(|b| b.is_ascii_digit()))
}

fn without_metadata_path(url: String) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.split(':').next().unwrap_or_default();
    match is_metadata_host(host) && path.len() > 1 {
        true => format!("{scheme}://{authority}/{MARK}"),
        false => url,
    }
}

/// A character of a text as a query parser may come to see it: itself, or one that is encoded in
/// percent, perhaps more than once.
struct Seen {
    c: char,
    bytes: usize,
    is_encoded: bool,
}

fn seen(text: &str) -> Option<Seen> {
    let plain = text.chars().next()?;
    let raw = Seen { c: plain, bytes: plain.len_utf8(), is_encoded: false };
    if plain != '%' {
        return Some(raw);
    }
    let mut at = 1;
    while text[at..].starts_with("25") {
        at += 2;
    }
    let hex = text.as_bytes().get(at..at + 2).and_then(|hex| std::str::from_utf8(hex).ok());
    let is_hex = |hex: &&str| hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    let byte = hex.filter(is_hex).and_then(|hex| u8::from_str_radix(hex, 16).ok());
    Some(match byte.filter(u8::is_ascii) {
        Some(byte) => Seen { c: byte.into(), bytes: at + 2, is_encoded: true },
        None => raw,
    })
}

fn without_values(text: &str, mode: Mode) -> String {
    let mut shown = String::with_capacity(text.len());
    let (mut name, mut before) = (String::new(), None);
    let mut rest = text;
    while let Some(Seen { c, bytes, is_encoded }) = seen(rest) {
        shown.push_str(&rest[..bytes]);
        rest = &rest[bytes..];
        let is_header = c == ':' && mode == Mode::Text && is_secret_header(&name);
        if is_header {
            let value = rest.trim_start_matches(' ');
            shown.push_str(&rest[..rest.len() - value.len()]);
            rest = value;
        }
        let hidden = match (is_header, c) {
            (true, _) => Some(0),
            (false, '=') => hidden_from(&name, before, mode),
            (false, _) => None,
        };
        if let Some(least) = hidden {
            let value = &rest[..value_bytes(rest, is_encoded, mode)];
            // A hint shows a form: `AccountKey=...`.
            if value.len() > least && !value.starts_with("...") {
                shown.push_str(MARK);
                rest = &rest[value.len()..];
            }
        }
        match c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') {
            true => name.push(c.to_ascii_lowercase()),
            false => {
                name.clear();
                before = Some(c);
            }
        }
    }
    shown
}

/// Whether a header carries a secret, as a server may quote it; the value of `authorization` begins
/// with a scheme, by which it is found.
fn is_secret_header(name: &str) -> bool {
    name.contains('-') && name != "proxy-authorization" && holds_fragment(name)
}

fn holds_fragment(name: &str) -> bool {
    FRAGMENTS.iter().any(|part| name.contains(part))
}

/// Most bytes of the value behind a name and an equals sign that are shown; `None` where it is no
/// secret. `before` stands before the name.
fn hidden_from(name: &str, before: Option<char>, mode: Mode) -> Option<usize> {
    if name.is_empty() || HARMLESS.contains(&name) {
        return None;
    }
    let is_fragment = || holds_fragment(name) || name == "sig";
    let is_parameter = || {
        PARAMETERS.contains(&name)
            || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            || is_fragment()
    };
    let is_secret = match before {
        Some('?' | '&') if !is_parameter() => return Some(SHOWN_BYTES_MAX),
        Some('?' | '&') => true,
        Some('#' | ';') => is_parameter(),
        // A level of a path, such as `token=1/`, is a name.
        Some('/') => IN_PATHS.contains(&name),
        // A query alone, or a connection string.
        None => is_fragment(),
        Some(_) => mode == Mode::Text && is_fragment(),
    };
    is_secret.then_some(0)
}

fn value_bytes(text: &str, is_encoded: bool, mode: Mode) -> usize {
    let mut at = 0;
    while let Some(next) = seen(&text[at..]) {
        let is_end = next.c == '&' && (is_encoded || !next.is_encoded);
        if is_end || (!next.is_encoded && mode.ends_at(next.c)) {
            break;
        }
        at += next.bytes;
    }
    // What ends the sentence, or stands between it and the next one, is no part of the value.
    match mode {
        Mode::Url => at,
        Mode::Text => text[..at].trim_end_matches([',', '.', ':', ';', ')', ']', '}']).len(),
    }
}

/// The next word that names a scheme of authorization, and where its credential begins.
fn auth_scheme(text: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(space) = text[from..].find(' ').map(|at| from + at) {
        let word = last_word(&text[..space]);
        if AUTH_SCHEMES.iter().any(|scheme| scheme.eq_ignore_ascii_case(word)) {
            return Some(space + 1);
        }
        from = space + 1;
    }
    None
}

fn has_auth_scheme(text: &str) -> bool {
    auth_scheme(text).is_some()
}

fn without_auth_values(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = auth_scheme(rest) {
        shown.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.find(|c| Mode::Text.ends_at(c) || c == ',').unwrap_or(rest.len());
        let is_word = |c: char| c.is_ascii_alphabetic() || matches!(c, '.' | '-' | ':');
        // A word of a sentence ("basic authentication") is none.
        if end >= 8 && !rest[..end].chars().all(is_word) {
            shown.push_str(MARK);
            rest = &rest[end..];
        }
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests;

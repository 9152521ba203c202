//! Shared access signatures in the forms in which people paste them. Pure.
//!
//! Taken are: the query with or without its `?`, a whole URL that ends with it, the words
//! `SharedAccessSignature=` before it, quotes and line breaks around it, `&amp;` for `&`, and a
//! `sig` whose `+`, `/` and `=` are encoded, not encoded, or encoded twice. What leaves here is
//! the query in one spelling. What else such a URL asks for (`restype=container&comp=list`, as the
//! portal's tools write it) would go with each request, and is left out. No error repeats a piece
//! of it.

use penstock_base::{Error, Kind, Result, Secret};
use percent_encoding::{
    AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_decode_str, utf8_percent_encode,
};
use std::borrow::Cow;

/// What stands in a value as it is; a percent sign there begins an encoded character.
const IN_VALUE: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'%');
/// The same for a value that was decoded.
const DECODED: &AsciiSet = &IN_VALUE.add(b'%');

/// Parameters of which every signature has one beside `sig`.
const COMPANIONS: &[&str] = &["sv", "se", "sp", "si", "sr", "ss"];

/// Parameters that name another blob than the one that is there now.
const OTHER_BLOBS: &[&str] = &["snapshot", "versionid"];
/// Parameters of a signature that set headers of the answer.
const ANSWERS: &[&str] = &["rscc", "rscd", "rsce", "rscl", "rsct"];
/// The other ones begin with `s`, and are no longer than this. The service's own that begin so are.
const NAME_CHARS_MAX: usize = 7;

/// Reads a signature in any of the forms.
///
/// # Errors
/// `Invalid` for a text without `sig=`, and for one that names a snapshot or a version.
pub(crate) fn parse(text: &str) -> Result<Secret> {
    let query = bare(text);
    if !is_signature(&query) {
        return Err(Error::new(
            Kind::Invalid,
            "the shared access signature has no `sig=` part; was it cut?",
        )
        .with_hint("Write it as the portal shows it: sv=...&se=...&sp=...&sig=..."));
    }
    let names = || query.split('&').filter_map(named).map(|(name, _)| name.trim());
    let is_asked = |other: &&&str| names().any(|name| name.eq_ignore_ascii_case(other));
    if let Some(other) = OTHER_BLOBS.iter().find(is_asked) {
        return Err(Error::new(
            Kind::Invalid,
            format!("the signed URL has `{other}=`, which Azure URLs here cannot name"),
        )
        .with_hint("Read it by its https:// URL, or leave that parameter out"));
    }
    let signed: Vec<&str> = query.split('&').filter(|pair| is_of_signature(pair)).collect();
    Ok(Secret::new(normal(&signed.join("&"))))
}

/// Whether a pair belongs to a signature, also to one of a later version of the service.
fn is_of_signature(pair: &str) -> bool {
    named(pair).is_some_and(|(name, _)| {
        let name = name.trim();
        let is_own = name.starts_with('s') && name.len() <= NAME_CHARS_MAX;
        is_own || ANSWERS.contains(&name)
    })
}

/// Whether a text is a signature and nothing else: no connection string, no URL.
pub(super) fn is_bare(text: &str) -> bool {
    let text = trimmed(text).trim_start_matches('?');
    let begins = || has_companion(text) || text.starts_with("sig=");
    is_signature(text) && begins() && text.split('&').any(has_companion)
}

/// A URL without its signature, and the signature. `None` for a URL whose query is none.
pub(super) fn split(url: &str) -> Option<(&str, &str)> {
    let (place, query) = url.rsplit_once('?')?;
    let pairs = || query.split('&');
    let is_sas = is_signature(query) && pairs().any(has_companion);
    is_sas.then_some((place, query))
}

/// The query of a web URL with its signature in one spelling, where it is one with a `+` or a
/// space in `sig`: a server reads both as a space. Any other query stays as it is.
pub(crate) fn mended(query: &str) -> Cow<'_, str> {
    let is_broken = |pair: &str| pair.starts_with("sig=") && pair.contains(['+', ' ']);
    match split(&format!("?{query}")).is_some() && query.split('&').any(is_broken) {
        true => Cow::Owned(normal(query)),
        false => Cow::Borrowed(query),
    }
}

fn trimmed(text: &str) -> &str {
    text.trim().trim_matches(['"', '\'', '`']).trim()
}

/// The query in a text of any form.
fn bare(text: &str) -> Cow<'_, str> {
    const NAME: &str = "SharedAccessSignature=";
    let text = trimmed(text);
    let text = match text.get(..NAME.len()) {
        Some(begin) if begin.eq_ignore_ascii_case(NAME) => &text[NAME.len()..],
        _ => text,
    };
    let query = match text.contains("://") {
        true => text.rsplit_once('?').map_or("", |(_, query)| query),
        false => text,
    };
    let query = query.trim_start_matches(['?', '&']);
    match query.contains("&amp;") {
        true => Cow::Owned(query.replace("&amp;", "&")),
        false => Cow::Borrowed(query),
    }
}

fn is_signature(query: &str) -> bool {
    let is_sig = |(name, value): (&str, &str)| name == "sig" && !value.is_empty();
    query.split('&').filter_map(named).any(is_sig)
}

/// Name and value of a pair, perhaps behind what is left of `&amp;`.
fn named(pair: &str) -> Option<(&str, &str)> {
    pair.strip_prefix("amp;").unwrap_or(pair).split_once('=')
}

fn has_companion(pair: &str) -> bool {
    named(pair).is_some_and(|(name, _)| COMPANIONS.contains(&name))
}

fn normal(query: &str) -> String {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs: Vec<String> = pairs
        .map(|pair| match pair.split_once('=') {
            Some(("sig", sig)) => format!("sig={}", signature(sig)),
            Some((name, value)) => format!("{}={}", name.trim(), encoded(value.trim())),
            None => encoded(pair).to_string(),
        })
        .collect();
    pairs.join("&")
}

/// The value of `sig`, which is base64: it has no percent sign, and what is a space in it was a
/// plus sign.
fn signature(text: &str) -> String {
    let mut plain = text.trim().to_string();
    while plain.contains('%') {
        let decoded = percent_decode_str(&plain).decode_utf8_lossy().into_owned();
        if decoded == plain {
            break;
        }
        plain = decoded;
    }
    let plain: String = plain.chars().filter(|c| !matches!(c, '\r' | '\n' | '\t')).collect();
    utf8_percent_encode(&plain.replace(' ', "+"), DECODED).to_string()
}

fn encoded(value: &str) -> PercentEncode<'_> {
    utf8_percent_encode(value, IN_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: &str = "sv=2024-11-04&se=2030-01-01T00%3A00%3A00Z&sr=c&sp=rl&sig=ab%2Bc%2Fd%3D";

    #[test]
    fn every_form_gives_one_query() {
        let raw = "sv=2024-11-04&se=2030-01-01T00:00:00Z&sr=c&sp=rl&sig=ab+c/d=";
        for text in [
            PLAIN.to_string(),
            raw.to_string(),
            format!("?{raw}"),
            format!(" \"{PLAIN}\"\n"),
            format!("SharedAccessSignature=?{raw}"),
            format!("https://acc.blob.core.windows.net/c?{raw}"),
            format!("https://acc.blob.core.windows.net/c/k?{PLAIN}"),
            raw.replace('&', "&amp;"),
            raw.replace("ab+c", "ab c"),
            PLAIN.replace("sig=ab%2Bc%2Fd%3D", "sig=ab%252Bc%252Fd%253D"),
            raw.replace("ab+c", "ab+\r\nc"),
        ] {
            assert_eq!(parse(&text).unwrap().reveal(), PLAIN, "{text}");
        }
    }

    #[test]
    fn what_a_url_asks_for_beside_is_left_out() {
        const OTHERS: &str = "restype=container&comp=list&prefix=a%2F&delimiter=%2F&marker=m\
                              &maxresults=5&include=metadata&timeout=30&showonly=files\
                              &startFrom=a&api-version=2024-11-04&where=x&Comp=tags&x";
        for text in [
            format!("{OTHERS}&{PLAIN}"),
            format!("{PLAIN}&{OTHERS}"),
            format!("https://acc.blob.core.windows.net/c?{OTHERS}&{PLAIN}"),
            format!("?{OTHERS}&{PLAIN}").replace('&', "&amp;"),
        ] {
            assert_eq!(parse(&text).unwrap().reveal(), PLAIN, "{text}");
        }
        let delegated = "skoid=a&sktid=b&skt=c&ske=d&sks=b&skv=e&saoid=f&suoid=g&scid=h&sdd=1\
                         &ses=i&sip=1.2.3.4&spr=https&st=j&rscc=k&rsct=l&sv=1&sr=d&sp=r&sig=YWI%3D";
        assert_eq!(parse(delegated).unwrap().reveal(), delegated);
    }

    #[test]
    fn another_blob_than_the_present_one_is_refused_by_name() {
        for (name, spelt) in [("snapshot", "snapshot"), ("versionid", "versionId")] {
            let error = parse(&format!("{spelt}=2026-01-01&{PLAIN}")).unwrap_err();
            assert!(error.message().contains(name), "{error}");
            assert!(error.hint().unwrap().contains("https://"), "{error}");
            assert!(!format!("{error:?}").contains("ab%2B"), "{error}");
        }
    }

    #[test]
    fn a_cut_signature_is_named_and_not_shown() {
        for text in ["", "?", "sv=1&sig=", "https://a.blob.core.windows.net/c?sv=MARK", "MARK"] {
            let error = parse(text).unwrap_err();
            assert!(error.message().contains("no `sig=` part"), "{error}");
            assert!(!format!("{error:?}").contains("MARK"), "{error}");
        }
    }

    #[test]
    fn a_bare_signature_is_no_connection_string() {
        assert!(is_bare(PLAIN) && is_bare(&format!("?{PLAIN}")));
        for text in [
            "AccountName=a;AccountKey=a2V5",
            "AccountName=a;SharedAccessSignature=sv=1&ss=b&sig=x",
            "https://h/c?sv=1&sig=x",
            "sig=x",
            "",
        ] {
            assert!(!is_bare(text), "{text}");
        }
    }

    #[test]
    fn only_a_signature_is_split_from_a_url() {
        assert_eq!(split("az://c/a?b.csv?sv=1&sig=x"), Some(("az://c/a?b.csv", "sv=1&sig=x")));
        for url in ["az://c/k", "az://c/k?.csv", "az://c/k?sig=x", "az://c/k?sv=1", "az://c/k?"] {
            assert_eq!(split(url), None, "{url}");
        }
    }

    #[test]
    fn a_web_url_is_mended_where_it_could_not_work() {
        assert_eq!(mended("sv=1&sig=a+b%3D"), "sv=1&sig=a%2Bb%3D");
        for query in ["sv=1&sig=a%2Bb=", "a=b+c", "sig=a+b", "sv=1&x=a+b&sig=a/b="] {
            assert!(matches!(mended(query), Cow::Borrowed(_)), "{query}");
        }
    }

    proptest! {
        #[test]
        fn a_query_in_one_spelling_stays(
            text in "([a-z]{1,3}=[ -~]{0,9}&){0,4}sig=[A-Za-z0-9+/=]{4,9}",
        ) {
            if let Ok(once) = parse(&text) {
                let twice = parse(once.reveal()).unwrap();
                prop_assert_eq!(once.reveal(), twice.reveal());
            }
        }
    }
}

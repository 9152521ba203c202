//! What the Hub's listing of a directory says. Pure.

use super::address::key_of;
use crate::{ETag, ListEntry, ListPage, ListRequest, ObjectMeta};
use penstock_base::{Error, Kind, Result, Retry};
use serde::Deserialize;

/// Most names that the Hub lists in a page by itself; it is asked for fewer, never for more.
const PAGE_MAX: u32 = 1000;

/// One name of a listing.
#[derive(Deserialize)]
struct Row {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: Option<u64>,
    /// Hash of what Git keeps: of the file, or of a pointer to it.
    #[serde(default)]
    oid: Option<String>,
    /// Of a file that is kept elsewhere.
    #[serde(default)]
    lfs: Option<Large>,
}

/// What a pointer says of the file.
#[derive(Deserialize)]
struct Large {
    oid: String,
    size: u64,
}

/// The directory whose listing has every name of a request, without a slash at its end.
pub(super) fn directory(request: &ListRequest) -> &str {
    request.prefix.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// Whether one level of names is asked for, and not all below it.
fn is_level(request: &ListRequest) -> bool {
    request.delimiter.as_deref() == Some("/")
}

/// The query of a request for a page.
pub(super) fn query(request: &ListRequest) -> String {
    if let Some(token) = &request.token {
        return token.clone();
    }
    let recursive = !is_level(request);
    match request.max_keys.filter(|max| *max < PAGE_MAX) {
        Some(max) => format!("recursive={recursive}&limit={}", max.max(1)),
        None => format!("recursive={recursive}"),
    }
}

/// A page, of the names that were asked for.
///
/// # Errors
/// `Corrupt` for what is no listing.
pub(super) fn page(request: &ListRequest, body: &[u8], link: Option<&str>) -> Result<ListPage> {
    let wrong = |error: serde_json::Error| {
        Error::new(Kind::Corrupt, "the answer is no listing of a repository")
            .with_retry(Retry::Briefly)
            .with_source(error)
    };
    let rows: Vec<Row> = serde_json::from_slice(body).map_err(wrong)?;
    let mut page = ListPage { next: link.and_then(next_query), ..ListPage::default() };
    for row in rows {
        let key = key_of(&row.path);
        match row.kind.as_str() {
            "file" => page.objects.push(ListEntry { key, meta: told(row) }),
            "directory" if is_level(request) => page.prefixes.push(format!("{key}/")),
            // A directory whose files come with it, or what is no file (another repository).
            _ => {}
        }
    }
    let is_after = |name: &str| request.start_after.as_deref().is_none_or(|after| name > after);
    let is_asked = |name: &str| name.starts_with(&request.prefix) && is_after(name);
    page.objects.retain(|object| is_asked(&object.key));
    page.prefixes.retain(|prefix| is_asked(prefix));
    page.objects.sort_by(|a, b| a.key.cmp(&b.key));
    page.prefixes.sort_unstable();
    Ok(page)
}

/// Size and tag. The tag is the one by which a request for the file is answered, too.
fn told(row: Row) -> ObjectMeta {
    let (size_bytes, oid) = match row.lfs {
        Some(large) => (Some(large.size), Some(large.oid)),
        None => (row.size, row.oid),
    };
    let etag = oid.filter(|oid| !oid.is_empty()).map(ETag);
    ObjectMeta { size_bytes, etag, ..ObjectMeta::default() }
}

/// The query of the link to the next page (RFC 8288). Host and path of it are not taken: they are
/// those of this listing, whoever wrote the header.
fn next_query(link: &str) -> Option<String> {
    link.split('<').skip(1).find_map(|part| {
        let (target, parameters) = part.split_once('>')?;
        let mut parameters = parameters.split([';', ',']).map(str::trim);
        let is_next = parameters.any(|it| matches!(it, "rel=\"next\"" | "rel=next"));
        let (_, query) = target.split_once('?').filter(|_| is_next)?;
        Some(query.split('#').next()?.to_string()).filter(|query| !query.is_empty())
    })
}

/// A line that is the value of a Link header, one that is a URL, and a listing.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(input: &[u8]) {
    let mut lines = input.splitn(3, |byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (link, url, body) = (line(), line(), line());
    let (Ok(link), Ok(url)) = (std::str::from_utf8(link), std::str::from_utf8(url)) else { return };
    let prefix = match super::address::Repository::parse(url) {
        Ok((repository, key)) => {
            assert!(repository.objects_url("http://h").parse::<http::Uri>().is_ok(), "{url}");
            key.to_string()
        }
        Err(_) => String::new(),
    };
    let request = ListRequest { prefix, ..ListRequest::default() };
    if let Ok(page) = page(&request, body, Some(link)) {
        assert!(page.objects.iter().all(|object| object.key.starts_with(&request.prefix)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROWS: &str = r#"[
        {"type":"directory","oid":"d","size":0,"path":"a/c"},
        {"type":"file","oid":"2","size":130,"path":"a/x.parquet",
         "lfs":{"oid":"sha","size":7000,"pointerSize":130},"xetHash":"h"},
        {"type":"file","oid":"1","size":5,"path":"a/b \"%41.csv"},
        {"type":"file","oid":"3","size":1,"path":"ab"},
        {"type":"unknown","oid":"4","size":1,"path":"a/s"}]"#;

    fn asked(prefix: &str, delimiter: Option<&str>) -> ListRequest {
        let delimiter = delimiter.map(str::to_string);
        ListRequest { prefix: prefix.to_string(), delimiter, ..ListRequest::default() }
    }

    #[test]
    fn files_have_the_size_and_the_tag_of_their_bytes() {
        let flat = page(&asked("a/", None), ROWS.as_bytes(), None).unwrap();
        let found: Vec<_> = flat
            .objects
            .iter()
            .map(|it| (it.key.as_str(), it.meta.size_bytes, it.meta.etag.clone().unwrap().0))
            .collect();
        let small = ("a/b \"%2541.csv", Some(5), "1".to_string());
        assert_eq!(found, [small, ("a/x.parquet", Some(7000), "sha".to_string())]);
        assert_eq!((flat.prefixes.len(), flat.next), (0, None));
        let level = page(&asked("a/", Some("/")), ROWS.as_bytes(), None).unwrap();
        assert_eq!((level.objects.len(), level.prefixes), (2, vec!["a/c/".to_string()]));
        let error = page(&asked("", None), b"{\"error\":\"x\"}", None).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
    }

    #[test]
    fn a_page_is_asked_for_below_its_directory() {
        for (prefix, expected) in [("", ""), ("a", ""), ("a/", "a"), ("a/b/part=", "a/b")] {
            assert_eq!(directory(&asked(prefix, None)), expected);
        }
        let limited = |max| query(&ListRequest { max_keys: Some(max), ..asked("", None) });
        assert_eq!([limited(3), limited(5000)], ["recursive=true&limit=3", "recursive=true"]);
        assert_eq!(query(&asked("", Some("/"))), "recursive=false");
        let next = ListRequest { token: Some("cursor=a%3D".into()), ..asked("a/", None) };
        assert_eq!(query(&next), "cursor=a%3D");
    }

    #[test]
    fn only_the_query_of_the_next_link_is_taken() {
        for (link, query) in [
            (
                "<https://h/api/tree/main?cursor=a%3D&limit=2>; rel=\"next\"",
                Some("cursor=a%3D&limit=2"),
            ),
            ("<https://evil.example/steal?cursor=b>;rel=next", Some("cursor=b")),
            ("</a?x=1>; rel=\"prev\", </a?x=3>; title=\"a, b\"; rel=\"next\"", Some("x=3")),
            ("</a?x=1>; rel=\"prev\"", None),
            ("</a>; rel=\"next\"", None),
            ("https://h/?cursor=a; rel=\"next\"", None),
        ] {
            assert_eq!(next_query(link).as_deref(), query, "{link}");
        }
    }

    proptest! {
        #[test]
        fn any_header_ends_without_panic(link in ".{0,60}") {
            let _ = next_query(&link);
        }
    }
}

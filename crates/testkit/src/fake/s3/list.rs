//! `ListObjectsV2` and `ListObjects`.

use super::super::codec::{hex, iso_date, percent_encode, unhex};
use super::super::http::Response;
use super::super::listing::{Name, PageRequest, Start, page};
use super::super::refusal::{Refusal, Served};
use super::super::xml::Writer;
use super::Call;
use super::object::class_of;
use std::collections::BTreeMap;

/// Most names of a page, whatever is asked for.
const PAGE_MAX: usize = 1000;

fn invalid(message: &str) -> Refusal {
    Refusal::new(400, "InvalidArgument", message)
}

/// A token says nothing to a client: hexadecimal of its bytes in reverse, behind a mark.
fn token(start: &Start) -> String {
    let bytes: Vec<u8> = start.to_text().bytes().rev().map(|byte| byte ^ 0x5A).collect();
    format!("1ueG{}=", hex(&bytes))
}

fn read_token(text: &str) -> Result<Start, Refusal> {
    let read = || {
        let mut bytes = unhex(text.strip_prefix("1ueG")?.strip_suffix('=')?)?;
        bytes.reverse();
        bytes.iter_mut().for_each(|byte| *byte ^= 0x5A);
        Start::from_text(&String::from_utf8(bytes).ok()?)
    };
    read().ok_or_else(|| invalid("The continuation token provided is incorrect"))
}

/// As S3 encodes with `encoding-type=url`: like a form, but for slashes.
pub(super) fn form_encode(text: &str) -> String {
    percent_encode(text, b"/*").replace("%20", "+").replace('~', "%7E")
}

/// Serves a page; `empty` is the fault that makes it one without names.
///
/// # Errors
/// `InvalidArgument`.
pub fn objects(call: &Call<'_>, empty: bool) -> Served {
    let query = &call.request.query;
    let version_2 = call.target.operation == "ListObjectsV2";
    let most = match query.get("max-keys").unwrap_or("1000").parse::<usize>() {
        Ok(most) => most.min(PAGE_MAX),
        Err(_) => return Err(invalid("Provided max-keys not an integer").into()),
    };
    let after = |name: &str| match query.get(name) {
        Some(name) if !name.is_empty() => Start::After(name.to_string()),
        _ => Start::First,
    };
    let (prefix, delimiter) =
        (query.get("prefix").unwrap_or(""), query.get("delimiter").unwrap_or(""));
    let start = match query.get("continuation-token") {
        Some(text) if version_2 => read_token(text)?,
        None if version_2 => after("start-after"),
        // A marker may be a fold that NextMarker told.
        _ => match query.get("marker") {
            Some(marker) if !delimiter.is_empty() && marker.ends_with(delimiter) => {
                Start::AfterFold(marker.to_string())
            }
            _ => after("marker"),
        },
    };
    let request = PageRequest { prefix, delimiter, from: &start, most };
    let listed = call.server.vault.with(|state| {
        let nothing = BTreeMap::new();
        let bucket = state.buckets.get(&call.target.bucket);
        page(bucket.map_or(&nothing, |bucket| &bucket.objects), request)
    });
    let (names, next) = match empty {
        true => (Vec::new(), Some(start.clone())),
        false => (listed.names, listed.next),
    };
    let xml = render(call, version_2, request, &names, next.as_ref());
    Ok(Response::text(200, "application/xml", xml))
}

fn render(
    call: &Call<'_>,
    version_2: bool,
    request: PageRequest<'_>,
    names: &[Name],
    next: Option<&Start>,
) -> String {
    let query = &call.request.query;
    let encoded = query.get("encoding-type") == Some("url");
    let spell = |text: &str| if encoded { form_encode(text) } else { text.to_string() };
    let mut xml = Writer::default();
    xml.open("ListBucketResult", "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"");
    xml.text("Name", &call.target.bucket).text("Prefix", spell(request.prefix));
    for (parameter, element) in
        [("delimiter", "Delimiter"), ("start-after", "StartAfter"), ("marker", "Marker")]
    {
        if let Some(value) = query.get(parameter) {
            xml.text(element, spell(value));
        }
    }
    if encoded {
        xml.text("EncodingType", "url");
    }
    xml.text("MaxKeys", request.most.to_string());
    xml.text("IsTruncated", next.is_some().to_string());
    if version_2 {
        xml.text("KeyCount", names.len().to_string());
        if let Some(token) = query.get("continuation-token") {
            xml.text("ContinuationToken", token);
        }
        if let Some(next) = next {
            xml.text("NextContinuationToken", token(next));
        }
    } else if let (Some(Start::After(name) | Start::AfterFold(name)), false) =
        (next, request.delimiter.is_empty())
    {
        xml.text("NextMarker", spell(name));
    }
    let owner = !version_2 || query.get("fetch-owner") == Some("true");
    for name in names {
        render_name(&mut xml, name, owner, &spell);
    }
    xml.close("ListBucketResult");
    xml.finish()
}

fn render_name(xml: &mut Writer, name: &Name, owner: bool, spell: &dyn Fn(&str) -> String) {
    match name {
        Name::Fold(fold) => {
            xml.open("CommonPrefixes", "").text("Prefix", spell(fold)).close("CommonPrefixes");
        }
        Name::Object(key, object) => {
            xml.open("Contents", "");
            xml.text("Key", spell(key)).text("LastModified", iso_date(object.modified));
            xml.text("ETag", format!("\"{}\"", object.etag));
            xml.text("Size", object.data.len().to_string());
            if owner {
                xml.open("Owner", "").text("ID", "fake").text("DisplayName", "fake");
                xml.close("Owner");
            }
            xml.text("StorageClass", class_of(&object.headers)).close("Contents");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tokens_read_back_and_hide_the_key(key in "[a-z/ü%]{3,40}") {
            let start = Start::After(key.clone());
            let text = token(&start);
            prop_assert!(!text.contains(&key));
            prop_assert_eq!(read_token(&text).unwrap(), start);
        }

        #[test]
        fn foreign_tokens_are_refused(text in "[ -~]{0,40}") {
            prop_assume!(!text.starts_with("1ueG"));
            prop_assert!(read_token(&text).is_err());
        }
    }

    #[test]
    fn names_are_spelt_as_forms_are() {
        assert_eq!(form_encode("a b+c/%~ü"), "a+b%2Bc/%25%7E%C3%BC");
    }
}

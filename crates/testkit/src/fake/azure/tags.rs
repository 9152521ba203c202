//! `Get Blob Tags`, `Set Blob Tags`, and the tags that come with a write.

use super::super::codec::percent_decode;
use super::super::http::Response;
use super::super::refusal::{Refusal, Served};
use super::super::vault::{Lines, Object};
use super::super::xml::{Writer, parse};
use super::{Call, invalid_header, versions};
use bytes::Bytes;

/// Most tags of a blob.
const TAGS_MAX: usize = 10;

fn invalid() -> Refusal {
    Refusal::new(400, "InvalidTags", "The tags specified are invalid.")
}

fn checked(tags: Lines) -> Result<Lines, Refusal> {
    // What the service allows in names and values, besides letters and digits.
    let legal =
        |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || " +-./:=_".contains(c));
    let all_legal =
        tags.iter().all(|(name, value)| !name.is_empty() && legal(name) && legal(value));
    if tags.len() > TAGS_MAX || !all_legal { Err(invalid()) } else { Ok(tags) }
}

/// The tags of `x-ms-tags`.
///
/// # Errors
/// `InvalidTags`, `InvalidHeaderValue`.
pub fn of_header(call: &Call<'_>) -> Result<Lines, Refusal> {
    let text = call.header("x-ms-tags").unwrap_or("");
    let mut tags = Lines::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(|| invalid_header("x-ms-tags"))?;
        let decoded = (percent_decode(name, true), percent_decode(value, true));
        let (Some(name), Some(value)) = decoded else { return Err(invalid_header("x-ms-tags")) };
        tags.push((name, value));
    }
    checked(tags)
}

/// `Get Blob Tags`.
///
/// # Errors
/// `BlobNotFound`.
pub fn get(call: &Call<'_>) -> Served {
    let (object, _) = call.server.vault.with(|state| versions::asked(call, state))?;
    let mut xml = Writer::default();
    xml.open("Tags", "").open("TagSet", "");
    for (name, value) in &object.tags {
        xml.open("Tag", "").text("Key", name).text("Value", value).close("Tag");
    }
    xml.close("TagSet").close("Tags");
    Ok(Response::text(200, "application/xml", xml.finish()))
}

/// `Set Blob Tags`: neither the blob's tag nor its time change.
///
/// # Errors
/// `BlobNotFound`, `InvalidTags`, `InvalidXmlDocument`.
pub fn set(call: &Call<'_>, pieces: &[Bytes]) -> Served {
    let text = String::from_utf8_lossy(&pieces.concat()).into_owned();
    let document = parse(&text).filter(|node| node.name == "Tags").ok_or_else(|| {
        Refusal::new(400, "InvalidXmlDocument", "XML specified is not syntactically valid.")
    })?;
    let mut tags = Lines::new();
    for tag in document.children.iter().flat_map(|set| &set.children) {
        let field = |name: &str| {
            let found = tag.children.iter().find(|node| node.name == name);
            found.map(|node| node.text.clone()).unwrap_or_default()
        };
        tags.push((field("Key"), field("Value")));
    }
    let tags = checked(tags)?;
    call.server.vault.with(|state| {
        let (object, version) = versions::asked(call, state)?;
        let changed = Object { tags, ..(*object).clone() };
        versions::amend(call, state, &version, changed);
        Ok(Response::new(204))
    })
}

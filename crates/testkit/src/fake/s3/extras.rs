//! Tags of objects.

use super::super::codec::percent_decode;
use super::super::http::{Request, Response};
use super::super::refusal::{Refusal, Served};
use super::super::vault::{Lines, Object};
use super::super::xml::{Writer, parse};
use super::payload::Payload;
use super::versions::Told;
use super::{Call, versions};

const NAMESPACE: &str = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";

/// Tags that come with a write.
pub fn tags_of_header(request: &Request) -> Lines {
    let text = request.headers.get("x-amz-tagging").unwrap_or_default();
    let decode = |text: &str| percent_decode(text, true).unwrap_or_default();
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    };
    pairs.map(pair).collect()
}

/// `GetObjectTagging`.
///
/// # Errors
/// `NoSuchKey`, `NoSuchVersion`.
pub fn get_tags(call: &Call<'_>) -> Served {
    let (object, version) = versions::asked(call)?;
    let mut xml = Writer::default();
    xml.open("Tagging", NAMESPACE).open("TagSet", "");
    for (name, value) in &object.tags {
        xml.open("Tag", "").text("Key", name).text("Value", value).close("Tag");
    }
    xml.close("TagSet").close("Tagging");
    Ok(version.told(Response::text(200, "application/xml", xml.finish()), call))
}

/// `PutObjectTagging`, and `DeleteObjectTagging` without a payload.
///
/// # Errors
/// `NoSuchKey`, `NoSuchVersion`, `MalformedXML`.
pub fn set_tags(call: &Call<'_>, payload: Option<&Payload>) -> Served {
    let mut tags = Lines::new();
    if let Some(payload) = payload {
        let document = parse(&payload.text()).filter(|node| node.name == "Tagging");
        let malformed = || Refusal::new(400, "MalformedXML", "The XML was not well-formed");
        let document = document.ok_or_else(malformed)?;
        for tag in document.children.iter().flat_map(|set| &set.children) {
            let text = |name| tag.child_text(name).unwrap_or_default().to_string();
            tags.push((text("Key"), text("Value")));
        }
    }
    let version = call.server.vault.with(|state| -> Result<Told, Refusal> {
        let (object, version) = versions::find(call, state)?;
        versions::amend(call, state, &version, Object { tags, ..(*object).clone() });
        Ok(version)
    })?;
    let answer = Response::new(if payload.is_some() { 200 } else { 204 });
    Ok(version.told(answer, call))
}

//! Tags of objects in the forms that services write them: as a query, and as XML. Pure.

use crate::xml;
use penstock_base::Result;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The pairs of `@tagging` (see [`crate::PutOptions::metadata`]).
pub fn from_query(text: &str) -> Vec<(String, String)> {
    let decode = |text: &str| {
        let spaced = text.replace('+', " ");
        percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
    };
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}

/// The form of `@tagging` for pairs.
pub fn to_query(tags: &[(String, String)]) -> String {
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let pair = |(name, value): &(String, String)| format!("{}={}", encode(name), encode(value));
    tags.iter().map(pair).collect::<Vec<_>>().join("&")
}

/// A document that sets these tags; `root` is what the service calls it.
pub(crate) fn to_xml(root: &str, tags: &[(String, String)]) -> String {
    let mut document = format!("<?xml version=\"1.0\" encoding=\"utf-8\"?><{root}><TagSet>");
    for (name, value) in tags {
        let (name, value) = (xml::escape(name), xml::escape(value));
        document.push_str(&format!("<Tag><Key>{name}</Key><Value>{value}</Value></Tag>"));
    }
    document.push_str(&format!("</TagSet></{root}>"));
    document
}

/// The tags in an answer with this root.
///
/// # Errors
/// `Corrupt` for an answer that is none.
pub(crate) fn from_xml(root: &str, answer: &[u8]) -> Result<Vec<(String, String)>> {
    let (mut tags, mut name) = (Vec::new(), String::new());
    xml::walk(answer, |element| {
        if element.path[0] != root {
            return Err(xml::corrupt("the answer is no list of tags"));
        }
        if element.is_at(&["TagSet", "Tag", "Key"]) {
            name = element.text.to_string();
        } else if element.is_at(&["TagSet", "Tag", "Value"]) {
            tags.push((std::mem::take(&mut name), element.text.to_string()));
        }
        Ok(())
    })?;
    Ok(tags)
}

/// Body for a fuzzer: tags are the same in either form.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let tags = from_query(&text);
    assert_eq!(from_query(&to_query(&tags)), tags, "tags that changed");
    for root in ["Tags", "Tagging"] {
        drop(from_xml(root, input));
        let told = from_xml(root, to_xml(root, &tags).as_bytes());
        let is_xml = tags.iter().all(|(name, value)| xml::can_hold(name) && xml::can_hold(value));
        assert!(!is_xml || told.is_ok_and(|told| told == tags), "tags that XML changed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_come_back() {
        let tags = vec![("a&b".to_string(), "<1>".to_string()), ("c".to_string(), String::new())];
        assert_eq!(from_xml("Tags", to_xml("Tags", &tags).as_bytes()).unwrap(), tags);
        assert_eq!(from_query("a%26b=%3C1%3E&c"), tags);
        assert_eq!(from_query(&to_query(&tags)), tags);
    }

    #[test]
    fn other_roots_are_no_tags() {
        for answer in ["", "<html/>", "<Tagging><TagSet/></Tagging>", "<Error/>"] {
            assert!(from_xml("Tags", answer.as_bytes()).is_err(), "{answer}");
        }
    }
}

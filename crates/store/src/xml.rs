//! Walks small XML answers (listings, errors) without building a tree.
//!
//! Safe against hostile input: no entities but the five of XML and character references, bounded
//! depth, and every malformed document is an error, never a panic.

use penstock_base::{Error, Kind, Result, Retry};
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// Deeper nesting than any store's answer.
const DEPTH_MAX: usize = 16;

/// One element when it ends.
pub(crate) struct Element<'a> {
    /// Local names from the root down to this element.
    pub path: &'a [String],
    /// Its own text, entities resolved, not trimmed.
    pub text: &'a str,
    /// Its attributes.
    pub attributes: &'a [(String, String)],
}

impl Element<'_> {
    /// Whether the path is this one, given without the root.
    pub(crate) fn is_at(&self, below_root: &[&str]) -> bool {
        self.path.len() == below_root.len() + 1
            && self.path[1..].iter().zip(below_root).all(|(name, wanted)| name == wanted)
    }
}

struct Frame {
    text: String,
    attributes: Vec<(String, String)>,
}

/// Calls `visit` for each element when it ends, so children come before their parent.
///
/// # Errors
/// `Corrupt` for anything that is no well-formed XML, and whatever `visit` returns.
pub(crate) fn walk(bytes: &[u8], mut visit: impl FnMut(Element<'_>) -> Result<()>) -> Result<()> {
    let text = std::str::from_utf8(bytes).map_err(|error| malformed("it is no UTF-8", error))?;
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    reader.config_mut().expand_empty_elements = true;
    let mut path: Vec<String> = Vec::new();
    let mut frames: Vec<Frame> = Vec::new();
    let mut seen_root = false;
    loop {
        let event = reader.read_event().map_err(|error| malformed("it is no XML", error))?;
        match event {
            Event::Start(start) => {
                if path.len() >= DEPTH_MAX || (path.is_empty() && seen_root) {
                    return Err(corrupt("the answer's XML is nested too deeply or has two roots"));
                }
                seen_root = true;
                path.push(start.local_name().as_ref().to_string());
                frames.push(Frame { text: String::new(), attributes: attributes(&start)? });
            }
            Event::End(_) => {
                let Some(frame) = frames.pop() else {
                    return Err(corrupt("the answer's XML closes what it did not open"));
                };
                let Frame { text, attributes } = frame;
                visit(Element { path: &path, text: &text, attributes: &attributes })?;
                path.pop();
            }
            Event::Text(content) => append(&mut frames, &content),
            Event::CData(content) => append(&mut frames, &content),
            Event::GeneralRef(reference) => {
                let character = match reference.resolve_char_ref() {
                    Ok(character) => character,
                    Err(error) => return Err(malformed("a character reference is wrong", error)),
                };
                let character = character.or_else(|| predefined(&reference));
                let Some(character) = character else {
                    return Err(corrupt("the answer's XML uses an unknown entity"));
                };
                append(&mut frames, character.encode_utf8(&mut [0; 4]));
            }
            Event::Eof if seen_root && path.is_empty() => return Ok(()),
            Event::Eof => return Err(corrupt("the answer's XML ends too early")),
            _ => {}
        }
    }
}

fn append(frames: &mut [Frame], text: &str) {
    if let Some(frame) = frames.last_mut() {
        frame.text.push_str(text);
    }
}

fn attributes(start: &BytesStart<'_>) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|error| malformed("an attribute is wrong", error))?;
        let name = attribute.key.as_ref().to_string();
        found.push((name, attribute.value.to_string()));
    }
    Ok(found)
}

fn predefined(name: &str) -> Option<char> {
    match name {
        "lt" => Some('<'),
        "gt" => Some('>'),
        "amp" => Some('&'),
        "apos" => Some('\''),
        "quot" => Some('"'),
        _ => None,
    }
}

/// Text made safe for an element's content or an attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            // A parser would fold a bare carriage return (and XML 1.0 has no other controls).
            '\r' => out.push_str("&#13;"),
            other => out.push(other),
        }
    }
    out
}

/// The error for an answer that is not the XML it must be.
pub(crate) fn corrupt(message: &str) -> Error {
    Error::new(Kind::Corrupt, message)
        .with_retry(Retry::Briefly)
        .with_hint("Is the endpoint really this kind of store, and is there a proxy between?")
}

fn malformed(why: &str, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    corrupt(&format!("the answer's XML is malformed: {why}")).with_source(cause)
}

/// Whether XML 1.0 has every character of a text.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn can_hold(text: &str) -> bool {
    let is_control = |c: char| c < ' ' && !matches!(c, '\t' | '\n' | '\r');
    !text.contains(|c: char| is_control(c) || matches!(c, '\u{fffe}' | '\u{ffff}'))
}

/// Body for a fuzzer: what was read of any bytes is not longer than they are.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(input: &[u8]) {
    let result = walk(input, |element| {
        assert!(element.text.len() <= input.len(), "more text than there is");
        Ok(())
    });
    drop(result);
}

/// Whether an answer is the `<Error>` of S3 or Azure. Other documents have elements of the name
/// `Code`, too.
pub(crate) fn is_error_document(bytes: &[u8]) -> bool {
    let mut is_error = false;
    // What is no XML is no such document.
    let _ = walk(bytes.trim_ascii_start(), |element| {
        is_error |= element.path.first().is_some_and(|root| root == "Error");
        Ok(())
    });
    is_error
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn leaves(xml: &str) -> Result<Vec<(String, String)>> {
        let mut found = Vec::new();
        walk(xml.as_bytes(), |element| {
            found.push((element.path.join("/"), element.text.to_string()));
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn children_come_before_parents_with_entities_resolved() {
        let found =
            leaves("<?xml version=\"1.0\"?><r xmlns=\"u\"><k>a&amp;b&#x20;c</k><e/></r>").unwrap();
        let expected = [("r/k", "a&b c"), ("r/e", ""), ("r", "")];
        assert_eq!(found, expected.map(|(path, text)| (path.to_string(), text.to_string())));
    }

    #[test]
    fn broken_documents_are_corrupt() {
        for xml in [
            "",
            "hello",
            "<html><body>",
            "<a></b>",
            "<a>&unknown;</a>",
            "<a/><b/>",
            "<!DOCTYPE a [<!ENTITY x \"y\">]><a>&x;</a>",
            &"<a>".repeat(1000),
        ] {
            assert_eq!(leaves(xml).unwrap_err().kind(), Kind::Corrupt, "{xml:.40}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_panic(bytes: Vec<u8>) {
            let _ = walk(&bytes, |_| Ok(()));
        }

        #[test]
        fn escaped_text_comes_back(text in "[^\u{0}-\u{8}\u{b}\u{c}\u{e}-\u{1f}]*") {
            let found = leaves(&format!("<a>{}</a>", escape(&text))).unwrap();
            prop_assert_eq!(&found[0].1, &text);
        }
    }
}

//! The little XML that the services speak: an escaping writer and a reader of small documents.

use std::fmt::Write;

/// Deepest nesting and largest document that the reader takes: requests are small and flat.
const DEPTH_MAX: usize = 16;

/// A document under construction.
#[derive(Debug)]
pub struct Writer(String);

impl Default for Writer {
    fn default() -> Self {
        Writer("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_string())
    }
}

impl Writer {
    /// Opens an element; `attributes` is written as it is.
    pub fn open(&mut self, name: &str, attributes: &str) -> &mut Self {
        self.0.push('<');
        self.0.push_str(name);
        if !attributes.is_empty() {
            self.0.push(' ');
            self.0.push_str(attributes);
        }
        self.0.push('>');
        self
    }

    /// Closes an element.
    pub fn close(&mut self, name: &str) -> &mut Self {
        let _ = write!(self.0, "</{name}>");
        self
    }

    /// A whole element with text.
    pub fn text(&mut self, name: &str, text: impl AsRef<str>) -> &mut Self {
        self.open(name, "");
        escape(text.as_ref(), &mut self.0);
        self.close(name)
    }

    /// A whole element with text and attributes, written as they are.
    pub fn text_with(&mut self, name: &str, attributes: &str, text: &str) -> &mut Self {
        self.open(name, attributes);
        escape(text, &mut self.0);
        self.close(name)
    }

    /// The document.
    pub fn finish(self) -> String {
        self.0
    }
}

/// Escapes text. Control characters become references, as the services write them, although
/// XML 1.0 forbids most of them.
pub fn escape(text: &str, out: &mut String) {
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            control if control < ' ' && control != '\n' && control != '\t' => {
                let _ = write!(out, "&#x{:x};", u32::from(control));
            }
            letter => out.push(letter),
        }
    }
}

/// One element: name without namespace prefix, own text, children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Local name.
    pub name: String,
    /// Text directly inside, entities resolved.
    pub text: String,
    /// Elements inside, in order.
    pub children: Vec<Node>,
}

impl Node {
    /// Text of the first child of a name.
    pub fn child_text(&self, name: &str) -> Option<&str> {
        self.children.iter().find(|child| child.name == name).map(|child| child.text.as_str())
    }
}

/// Reads a document; `None` when it is not well formed. Knows no DTD.
pub fn parse(document: &str) -> Option<Node> {
    let mut rest = document.trim_start_matches('\u{feff}');
    let mut stack = vec![Node::default()];
    while let Some(at) = rest.find('<') {
        unescape(&rest[..at], &mut stack.last_mut()?.text)?;
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("<!--") {
            rest = &after[after.find("-->")? + 3..];
        } else if let Some(after) = rest.strip_prefix("<![CDATA[") {
            let end = after.find("]]>")?;
            stack.last_mut()?.text.push_str(&after[..end]);
            rest = &after[end + 3..];
        } else if let Some(after) = rest.strip_prefix("<?") {
            rest = &after[after.find("?>")? + 2..];
        } else if let Some(after) = rest.strip_prefix("</") {
            let end = after.find('>')?;
            let node = stack.pop()?;
            if node.name != local_name(after[..end].trim()) {
                return None;
            }
            stack.last_mut()?.children.push(node);
            rest = &after[end + 1..];
        } else {
            rest = open(&rest[1..], &mut stack)?;
        }
    }
    let root = stack.pop()?;
    let whole = stack.is_empty() && rest.trim().is_empty() && root.text.trim().is_empty();
    if whole && root.children.len() == 1 { root.children.into_iter().next() } else { None }
}

/// Reads an opening tag after its `<`; returns what follows the tag.
fn open<'a>(rest: &'a str, stack: &mut Vec<Node>) -> Option<&'a str> {
    let end = tag_end(rest)?;
    let inside = &rest[..end];
    let (inside, empty) = match inside.strip_suffix('/') {
        Some(inside) => (inside, true),
        None => (inside, false),
    };
    let name = inside.split_ascii_whitespace().next()?;
    if !name.starts_with(|first: char| first.is_alphabetic() || first == '_') {
        return None;
    }
    let node = Node { name: local_name(name).to_string(), ..Node::default() };
    if empty {
        stack.last_mut()?.children.push(node);
    } else if stack.len() > DEPTH_MAX {
        return None;
    } else {
        stack.push(node);
    }
    Some(&rest[end + 1..])
}

/// Position of the `>` that ends a tag, past quoted attribute values.
fn tag_end(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return Some(at),
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), byte) if open == byte => quote = None,
            _ => {}
        }
    }
    None
}

fn local_name(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

fn unescape(text: &str, out: &mut String) -> Option<()> {
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        let end = rest[at..].find(';')? + at;
        match &rest[at + 1..end] {
            "amp" => out.push('&'),
            "lt" => out.push('<'),
            "gt" => out.push('>'),
            "quot" => out.push('"'),
            "apos" => out.push('\''),
            reference => {
                let number = reference.strip_prefix('#')?;
                let code = match number.strip_prefix('x') {
                    Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                    None => number.parse().ok()?,
                };
                out.push(char::from_u32(code)?);
            }
        }
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn namespaces_attributes_comments_and_cdata() {
        let node = parse(
            "<?xml version='1.0'?><!-- c > --><a:Root x='>' xmlns=\"u\"><Key>a&amp;&#x41;</Key>\
             <E/><Key><![CDATA[<b>]]></Key></a:Root>\n",
        )
        .unwrap();
        assert_eq!(node.name, "Root");
        let texts: Vec<&str> = node.children.iter().map(|child| child.text.as_str()).collect();
        assert_eq!(texts, ["a&A", "", "<b>"]);
    }

    #[test]
    fn broken_documents_are_refused() {
        for text in [
            "",
            "text",
            "<a>",
            "</a>",
            "<a></b>",
            "<a/><b/>",
            "<a>&nope;</a>",
            "<a>&#xD800;</a>",
            "<a b='></a>",
            "<!-- ",
            "<a><![CDATA[</a>",
            "<>x</>",
            "<a/>trailing",
            "<a>&amp</a>",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse(&"<a>".repeat(100_000)), None);
    }

    proptest! {
        #[test]
        fn written_text_reads_back(text: String) {
            let mut writer = Writer::default();
            writer.open("Root", "").text("Key", &text).close("Root");
            let node = parse(&writer.finish()).unwrap();
            prop_assert_eq!(node.child_text("Key"), Some(text.as_str()));
        }

        #[test]
        fn reading_never_panics(text in "[<>/&;#x!\\[\\]CDAT?a'\" -]{0,60}") {
            parse(&text);
        }
    }
}

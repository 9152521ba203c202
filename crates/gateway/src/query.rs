//! The pairs of a request's query, as whoever routes the request and verifies its signature reads
//! them. Pure: what a name means is decided elsewhere, but nobody may be led to read another one by
//! how it is escaped.

use percent_encoding::percent_decode_str;

/// A text of a query, or of a header in the form of one, as it was meant.
fn decoded(text: &str) -> String {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

/// The pairs, decoded; the value of a bare name is empty.
pub(crate) fn pairs(query: &str) -> impl Iterator<Item = (String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(value))
    })
}

/// The first value of a name.
pub(crate) fn value_of<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_what_was_meant() {
        let found: Vec<_> = pairs("a=b%2Fc&&X-%41mz-Date=1+2&acl").collect();
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        assert_eq!(found, [pair("a", "b/c"), pair("X-Amz-Date", "1 2"), pair("acl", "")]);
        assert_eq!(value_of(&found, "acl"), Some(""));
        assert_eq!(value_of(&found, "b"), None);
    }
}

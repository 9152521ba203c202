//! Why a request was refused or failed, as the access log tells it: the code of the answer, and a
//! line for the operator. Pure.
//!
//! A line goes through [`redact::text`]: a client's own words may hold a signature.

use http::Response;
use penstock_base::redact;
use s3s::Body;

/// Longest line, in characters: an object's URL, a service's words, and what to do.
const CAUSE_CHARS_MAX: usize = 500;

/// Code and message of an answer that is an error of S3's.
pub(crate) fn told(response: &Response<Body>) -> Option<(String, String)> {
    if response.status().as_u16() < 400 {
        return None;
    }
    let xml = response.body().bytes()?;
    let text = std::str::from_utf8(&xml).ok()?;
    let field = |name: &str| {
        let after = text.split_once(&format!("<{name}>"))?.1;
        Some(unescaped(after.split_once(&format!("</{name}>"))?.0))
    };
    Some((field("Code")?, field("Message").unwrap_or_default()))
}

/// The text that was written into XML.
fn unescaped(text: &str) -> String {
    let entities =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    entities.iter().fold(text.to_string(), |text, (name, is)| text.replace(name, is))
}

/// One line of bounded length, whatever a service said.
pub(crate) fn one_line(text: &str) -> String {
    let text = redact::text(text);
    let words: Vec<&str> = text.split(|c: char| c.is_control() || c == ' ').collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let line = words.join(" ");
    match line.char_indices().nth(CAUSE_CHARS_MAX) {
        None => line,
        Some((end, _)) => format!("{}...", &line[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use s3s::s3_error;

    #[test]
    fn an_error_is_told_by_code_and_message() {
        let answer = s3_error!(NoSuchKey, "no <a> & \"b\"").to_http_response().unwrap();
        let found = told(&answer);
        assert_eq!(found, Some(("NoSuchKey".into(), "no <a> & \"b\"".into())));
        let bare = s3_error!(InternalError).to_http_response().unwrap();
        assert_eq!(told(&bare), Some(("InternalError".into(), String::new())));
        assert_eq!(told(&Response::new(Body::empty())), None);
    }

    #[test]
    fn a_cause_is_one_line_of_bounded_length() {
        assert_eq!(one_line(" a\r\nb\t\u{1b}[31m  c "), "a b [31m c");
        let long = one_line(&"\u{e4}".repeat(2000));
        assert_eq!(long.chars().count(), CAUSE_CHARS_MAX + 3);
        assert!(long.ends_with("..."));
    }
}

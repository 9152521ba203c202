//! What is malformed in a signature of version 4, in the header or in the query of a presigned
//! URL (AWS Signature Version 4, "Error responses"). Pure.
//!
//! A signature that is well formed may still be wrong: that is not decided here.

use crate::query::value_of;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};
use s3s::{S3Error, s3_error};

/// Signed in another way, or of no meaning here: the digest is a line of what is signed, and a
/// content delivery network adds the number of its request.
const UNSIGNED: [&str; 2] = ["x-amz-content-sha256", "x-amz-cf-id"];
/// Longest name of a header that a refusal shows.
const NAME_CHARS_MAX: usize = 100;
const PARTS: &str = "Credential, SignedHeaders, and Signature";
const QUERY: [&str; 6] = [
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-SignedHeaders",
    "X-Amz-Signature",
];

/// What is wrong with what follows `AWS4-HMAC-SHA256` in the header, if anything is.
pub(super) fn header_fault(fields: &str) -> Option<S3Error> {
    let malformed = |why: &str| {
        let why = format!("The authorization header is malformed; {why}");
        Some(s3_error!(AuthorizationHeaderMalformed, "{why}"))
    };
    let fields: Vec<&str> = fields.split(',').map(str::trim).collect();
    if fields.len() != 3 {
        return malformed(&format!("the authorization header requires three components: {PARTS}."));
    }
    let mut pairs = Vec::new();
    for field in fields {
        let Some(pair) = field.split_once('=') else {
            return malformed(&format!("the authorization component \"{field}\" is malformed."));
        };
        pairs.push(pair);
    }
    let of = |name: &str| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1);
    for name in ["Credential", "SignedHeaders", "Signature"] {
        if of(name).is_none_or(str::is_empty) {
            return malformed(&format!("missing {name}."));
        }
    }
    malformed(&credential_fault(of("Credential")?)?)
}

/// What is wrong with the parameters of a presigned URL, if anything is and it is one.
pub(super) fn query_fault(pairs: &[(String, String)]) -> Option<S3Error> {
    let of = |name: &str| value_of(pairs, name);
    let algorithm = of("X-Amz-Algorithm")?;
    let malformed = |why: &str| Some(s3_error!(AuthorizationQueryParametersError, "{why}"));
    if algorithm != "AWS4-HMAC-SHA256" {
        return malformed("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"");
    }
    if QUERY.iter().any(|name| of(name).is_none_or(str::is_empty)) {
        return malformed(
            "Query-string authentication version 4 requires the X-Amz-Algorithm, \
             X-Amz-Credential, X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and \
             X-Amz-Expires parameters.",
        );
    }
    if of("X-Amz-Expires").is_some_and(|seconds| seconds.parse::<i64>().is_err()) {
        return malformed("X-Amz-Expires should be a number");
    }
    if of("X-Amz-Date").is_some_and(|date| super::v4_date(date).is_none()) {
        let why = "X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"";
        return malformed(why);
    }
    let why = credential_fault(of("X-Amz-Credential")?)?;
    malformed(&format!("Error parsing the X-Amz-Credential parameter; {why}"))
}

/// A header that says what S3 should do and that a signature of version 4 does not cover, if there
/// is one: whoever holds a presigned URL could add it. (Signature calculations, "SignedHeaders":
/// every `x-amz-*` header of a request is signed.)
pub(super) fn unsigned_header(headers: &HeaderMap, pairs: &[(String, String)]) -> Option<S3Error> {
    let signed = signed_headers(headers, pairs)?;
    // s3s leaves values that are no text out of what it verifies, and their names with them.
    let is_text = |name: &str| {
        let mut values = headers.get_all(name).iter();
        values.all(|value| std::str::from_utf8(value.as_bytes()).is_ok())
    };
    let is_listed = |name: &str| signed.split(';').any(|it| it.eq_ignore_ascii_case(name));
    let is_signed = |name: &str| is_listed(name) && is_text(name);
    let mut names = headers.keys().map(HeaderName::as_str);
    let name = names
        .find(|name| name.starts_with("x-amz-") && !UNSIGNED.contains(name) && !is_signed(name))?;
    let why = format!("There were headers present in the request which were not signed: {name}");
    Some(s3_error!(AccessDenied, "{why}"))
}

/// A header that a signature of version 4 covers and that is not in the request, if there is one:
/// no such signature can hold, and a proxy on the way is the usual reason.
pub(super) fn missing_header(headers: &HeaderMap, pairs: &[(String, String)]) -> Option<S3Error> {
    let mut names = signed_headers(headers, pairs)?.split(';');
    let name = names.find(|name| !headers.contains_key(*name))?;
    let name: String = name.chars().take(NAME_CHARS_MAX).collect();
    let why = format!(
        "The header `{name}` is signed (SignedHeaders) and did not reach the gateway: a proxy on \
         the way has taken it out. Let the proxy pass it on, or have the client not sign it."
    );
    Some(s3_error!(SignatureDoesNotMatch, "{why}"))
}

/// The names of the headers that a signature of version 4 covers.
fn signed_headers<'a>(headers: &'a HeaderMap, pairs: &'a [(String, String)]) -> Option<&'a str> {
    let in_header = || {
        let fields = super::text(headers, AUTHORIZATION.as_str())?;
        let mut fields = fields.strip_prefix("AWS4-HMAC-SHA256")?.split(',').map(str::trim);
        fields.find_map(|field| field.strip_prefix("SignedHeaders="))
    };
    value_of(pairs, "X-Amz-SignedHeaders").or_else(in_header)
}

/// A signature in the URL and another in the header: only one of them would be verified.
pub(super) fn two_mechanisms(headers: &HeaderMap, pairs: &[(String, String)]) -> Option<S3Error> {
    let in_query = ["X-Amz-Signature", "Signature"];
    let is_in_query = in_query.iter().any(|name| value_of(pairs, name).is_some());
    (is_in_query && headers.contains_key(AUTHORIZATION)).then(|| {
        s3_error!(
            InvalidArgument,
            "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature \
             query string parameter or the Authorization header should be specified"
        )
    })
}

/// A credential is `KEY/20130524/us-east-1/s3/aws4_request`.
fn credential_fault(credential: &str) -> Option<String> {
    let fields: Vec<&str> = credential.split('/').collect();
    let [_, date, _, service, terminal] = fields[..] else {
        let form = "<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request";
        return Some(format!("the Credential is mal-formed; expecting \"{form}\"."));
    };
    if terminal != "aws4_request" {
        let why = "This endpoint uses \"aws4_request\".";
        return Some(format!("incorrect terminal \"{terminal}\". {why}"));
    }
    if service != "s3" {
        let why = "This endpoint belongs to \"s3\".";
        return Some(format!("incorrect service \"{service}\". {why}"));
    }
    if date.len() != 8 || jiff::civil::Date::strptime("%Y%m%d", date).is_err() {
        let why = "This date in the credential must be in the format \"yyyyMMdd\".";
        return Some(format!("incorrect date format \"{date}\". {why}"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "Credential=K/20130524/us-east-1/s3/aws4_request, SignedHeaders=host, \
                        Signature=abc";

    #[test]
    fn headers_say_what_is_missing_or_odd() {
        let told = |fields: &str| {
            header_fault(fields).map(|error| error.message().unwrap_or_default().to_string())
        };
        assert_eq!(told(GOOD), None);
        assert_eq!(told(&GOOD.replace(", ", ",")), None);
        for (from, to, wanted) in [
            (", Signature=abc", "", "three components"),
            ("Signature=abc", "Signature=", "missing Signature"),
            ("Signature=abc", "Other=abc", "missing Signature"),
            ("Signature=abc", "Signature", "\"Signature\" is malformed"),
            ("K/20130524", "20130524", "is mal-formed"),
            ("20130524", "2013-05-24", "incorrect date format \"2013-05-24\""),
            ("20130524", "20131324", "incorrect date format"),
            ("/s3/", "/ec2/", "incorrect service \"ec2\""),
            ("aws4_request", "aws", "incorrect terminal \"aws\""),
        ] {
            let told = told(&GOOD.replace(from, to)).unwrap_or_default();
            assert!(told.contains(wanted), "{told} for {wanted}");
        }
    }

    #[test]
    fn presigned_urls_too() {
        let good = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=K%2F20130524%2Fus-east-1%2Fs3\
                    %2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=5&\
                    X-Amz-SignedHeaders=host&X-Amz-Signature=abc";
        let told = |query: &str| {
            let pairs: Vec<_> = crate::query::pairs(query).collect();
            query_fault(&pairs).map(|error| error.message().unwrap_or_default().to_string())
        };
        assert_eq!(told(good), None);
        assert_eq!(told("list-type=2"), None);
        for (from, to, wanted) in [
            ("&X-Amz-Signature=abc", "", "requires the X-Amz-Algorithm"),
            ("AWS4-HMAC-SHA256", "AWS4-ECDSA", "only supports"),
            ("Expires=5", "Expires=soon", "should be a number"),
            ("20130524T000000Z", "yesterday", "ISO8601"),
            ("%2Fs3", "%2Fec2", "incorrect service"),
        ] {
            let told = told(&good.replace(from, to)).unwrap_or_default();
            assert!(told.contains(wanted), "{told} for {wanted}");
        }
    }

    #[test]
    fn a_header_that_says_what_to_do_is_signed_or_refused() {
        let signed = vec![("X-Amz-SignedHeaders".to_string(), "host;x-amz-acl".to_string())];
        let code = |name: &'static str, value: &[u8]| {
            let value = http::HeaderValue::from_bytes(value).unwrap();
            let headers = HeaderMap::from_iter([(HeaderName::from_static(name), value)]);
            unsigned_header(&headers, &signed).map(|error| error.code().as_str().to_string())
        };
        assert_eq!(code("x-amz-acl", b"private"), None);
        assert_eq!(code("x-amz-acl", "\u{fc}".as_bytes()), None);
        assert_eq!(code("x-amz-tagging", b"a=b").as_deref(), Some("AccessDenied"));
        assert_eq!(code("x-amz-acl", b"\xff").as_deref(), Some("AccessDenied"));
    }
}

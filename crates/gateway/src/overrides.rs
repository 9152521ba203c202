//! Headers of an answer that its reader chose (`response-content-type` and its kin), on GET and
//! HEAD, word for word.

use crate::auth::Caller;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, EXPIRES,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use s3s::{S3Request, S3Result, s3_error};

const CHOICES: [(&str, HeaderName); 6] = [
    ("response-cache-control", CACHE_CONTROL),
    ("response-content-disposition", CONTENT_DISPOSITION),
    ("response-content-encoding", CONTENT_ENCODING),
    ("response-content-language", CONTENT_LANGUAGE),
    ("response-content-type", CONTENT_TYPE),
    ("response-expires", EXPIRES),
];

/// The chosen headers of a request.
///
/// # Errors
/// `InvalidRequest` for one that nobody signed, `InvalidArgument` for what can be no header.
pub(crate) fn chosen<T>(request: &S3Request<T>) -> S3Result<HeaderMap> {
    let query = request.uri.query().unwrap_or_default();
    let chosen = of_query(query)?;
    let is_signed = request.extensions.get::<Caller>().is_some_and(|caller| caller.id.is_some());
    match chosen.is_empty() || is_signed {
        true => Ok(chosen),
        false => Err(s3_error!(
            InvalidRequest,
            "Request specific response headers cannot be used for anonymous GET requests."
        )),
    }
}

/// Those of a query, whoever sent it.
pub(crate) fn of_query(query: &str) -> S3Result<HeaderMap> {
    let mut chosen = HeaderMap::new();
    for pair in query.split('&').filter(|pair| pair.starts_with("response-")) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some((_, header)) = CHOICES.iter().find(|choice| choice.0 == name) else { continue };
        let value = value.replace('+', " ");
        let value = percent_decode_str(&value).collect::<Vec<u8>>();
        let value = HeaderValue::from_bytes(&value);
        let value = value.map_err(|_| s3_error!(InvalidArgument, "{name} can be no header"))?;
        chosen.insert(header, value);
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_taken_word_for_word() {
        let chosen =
            of_query("a=b&response-expires=Thu%2C+1+Dec&response-content-type=x%2Fy&response-x=1");
        let chosen = chosen.unwrap();
        assert_eq!((chosen.len(), &chosen[EXPIRES]), (2, &HeaderValue::from_static("Thu, 1 Dec")));
        assert_eq!(chosen[CONTENT_TYPE], "x/y");
        assert!(of_query("response-content-type=a%0Ab").is_err());
        assert!(of_query("").unwrap().is_empty());
    }
}

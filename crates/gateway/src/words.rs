//! S3's own words for an error that came without any: s3s and a few checks here name only a code.
//! And its statuses, where s3s has one of its own. Pure.

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Response, StatusCode};
use s3s::Body;

const CODE_END: &str = "</Code>";

/// The status of an answer without a body, as an extension of it: s3s heeds that of a few
/// operations only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status(pub StatusCode);

/// What S3 says with a code.
pub(crate) fn of(code: &str) -> Option<&'static str> {
    Some(match code {
        "AccessDenied" => "Access Denied",
        "BadDigest" => "The Content-MD5 or checksum value that you specified did not match.",
        "EntityTooLarge" => "Your proposed upload exceeds the maximum allowed size",
        "InternalError" => "We encountered an internal error. Please try again.",
        "InvalidAccessKeyId" => "The AWS Access Key Id you provided does not exist in our records.",
        "InvalidArgument" => "An argument of this request is invalid.",
        "InvalidBucketName" => "The specified bucket is not valid.",
        "InvalidRequest" => "The request is invalid: its head or its body is malformed.",
        "InvalidURI" => "Couldn't parse the specified URI.",
        "KeyTooLongError" => "Your key is too long.",
        "MalformedXML" => {
            "The XML you provided was not well-formed or did not validate against our published \
             schema."
        }
        "MethodNotAllowed" => "The specified method is not allowed against this resource.",
        "MissingContentLength" => "You must provide the Content-Length HTTP header.",
        "NotImplemented" => "A header you provided implies functionality that is not implemented.",
        "RequestTimeTooSkewed" => {
            "The difference between the request time and the server's time is too large."
        }
        "SignatureDoesNotMatch" => {
            "The request signature we calculated does not match the signature you provided. Check \
             your key and signing method."
        }
        _ => return None,
    })
}

/// The answer with the status that was meant, and with a message where it is an error without one
/// whose code has one.
pub(crate) fn told(mut response: Response<Body>) -> Response<Body> {
    if let Some(Status(status)) = response.extensions_mut().remove::<Status>() {
        *response.status_mut() = status;
    }
    if response.status().as_u16() < 400 {
        return response;
    }
    if let Some(xml) = response.body().bytes().and_then(|xml| with_message(&xml)) {
        response.headers_mut().remove(CONTENT_LENGTH);
        *response.body_mut() = Body::from(Bytes::from(xml));
    }
    response
}

fn with_message(xml: &[u8]) -> Option<String> {
    let (before, after) = std::str::from_utf8(xml).ok()?.split_once(CODE_END)?;
    let code = before.rsplit_once("<Code>")?.1;
    if after.contains("<Message") {
        return None;
    }
    Some(format!("{before}{CODE_END}<Message>{}</Message>{after}", of(code)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause;
    use s3s::{S3Error, s3_error};

    fn message(error: S3Error) -> String {
        let response = told(error.to_http_response().unwrap());
        assert!(!response.headers().contains_key(CONTENT_LENGTH));
        cause::told(&response).unwrap().1
    }

    #[test]
    fn an_error_that_only_has_a_code_gets_its_words_and_no_other() {
        assert_eq!(message(s3_error!(AccessDenied)), "Access Denied");
        assert!(message(s3_error!(MalformedXML)).starts_with("The XML you provided"));
        assert!(message(s3_error!(SignatureDoesNotMatch)).contains("Check your key"));
        assert_eq!(message(s3_error!(AccessDenied, "not you")), "not you");
        assert_eq!(message(s3_error!(NoSuchTagSet)), "");
        assert!(told(Response::new(Body::from("<Code>".to_string()))).body().bytes().is_some());
    }
}

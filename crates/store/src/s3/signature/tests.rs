use super::*;
use ::http::{Method, Request};
use proptest::prelude::*;
use reqsign_aws_v4::RequestSigner;

fn credential(secret: &str, token: Option<&str>) -> Credential {
    Credential {
        access_key_id: "AKIAIOSFODNN7EXAMPLE".to_string(),
        secret_access_key: secret.to_string(),
        session_token: token.map(str::to_string),
        expires_in: None,
    }
}

fn parts(method: &str, url: &str, headers: &[(&str, &str)]) -> Parts {
    let method = Method::from_bytes(method.as_bytes()).expect("it is a method");
    let mut request = Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).expect("the test's own").into_parts().0
}

/// A time as the header has it.
fn time(text: &str) -> Timestamp {
    let time = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", text).expect("it is a time");
    let time = jiff::tz::Offset::UTC.to_timestamp(time).expect("it is in range");
    Timestamp::from_second(time.as_second()).expect("it is in range")
}

/// As the signing crate signs it, and at what time.
fn theirs(request: &Parts, region: &str, credential: &Credential) -> (Parts, Timestamp) {
    let (mut signed, signer) = (request.clone(), RequestSigner::new(SERVICE, region));
    let context = Context::new();
    let signing = signer.sign_request(&context, &mut signed, Some(credential), None);
    futures_util::FutureExt::now_or_never(signing).expect("it waits for nothing").expect("signs");
    let at = time(signed.headers[DATE].to_str().expect("it is a time"));
    (signed, at)
}

/// Amazon's own example, "GET Object" of the chapter that the file names.
#[test]
fn the_example_of_the_documentation_gets_its_signature() {
    let secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let headers = [("range", "bytes=0-9"), ("x-amz-content-sha256", empty)];
    let mut request = parts("GET", "https://examplebucket.s3.amazonaws.com/test.txt", &headers);
    let (signature, at) = (Signature::new("us-east-1"), time("20130524T000000Z"));
    signature.sign(&mut request, &credential(secret, None), at).expect("signs");
    assert_eq!(
        request.headers[AUTHORIZATION],
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
         SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, \
         Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    );
    assert!(request.headers[AUTHORIZATION].is_sensitive());
}

#[test]
fn the_key_follows_the_day_and_the_secret() {
    let signature = Signature::new("eu-central-1");
    let days = ["20261125T235959Z", "20261126T000000Z", "20261125T235959Z", "20240229T010203Z"];
    for (secret, at) in ["one", "one", "two", "one"].into_iter().zip(days) {
        let of = |signature: &Signature| {
            let mut request = parts("GET", "http://host/key", &[]);
            signature.sign(&mut request, &credential(secret, None), time(at)).expect("signs");
            request.headers[AUTHORIZATION].clone()
        };
        assert_eq!(of(&signature), of(&Signature::new("eu-central-1")), "{secret} {at}");
    }
}

#[test]
fn credentials_that_end_at_once_sign_nothing_and_none_is_told_in_words() {
    let signature = Signature::new("eu-central-1");
    let mut request = parts("GET", "http://host/key", &[]);
    let ending = Credential {
        expires_in: Some(Timestamp::now() + Duration::from_secs(5)),
        ..credential("hunter2", None)
    };
    let context = Context::new();
    let signing = signature.sign_request(&context, &mut request, Some(&ending), None);
    futures_util::FutureExt::now_or_never(signing).expect("it waits for nothing").unwrap_err();
    assert!(request.headers.is_empty());
    signature.sign(&mut request, &credential("hunter2", None), Timestamp::now()).expect("signs");
    assert!(!format!("{signature:?}").contains("hunter2"));
}

#[test]
fn runs_of_spaces_are_signed_as_one_and_sent_as_they_are() {
    let spaced = [("x-amz-meta-a", "two  words   here"), ("x-amz-meta-b", "  around  ")];
    let folded = [("x-amz-meta-a", "two words here"), ("x-amz-meta-b", "around")];
    let credential = credential("secret", None);
    let (theirs, at) = theirs(&parts("PUT", "http://host/k", &folded), "here", &credential);
    let mut ours = parts("PUT", "http://host/k", &spaced);
    Signature::new("here").sign(&mut ours, &credential, at).expect("signs");
    assert_eq!(ours.headers[AUTHORIZATION], theirs.headers[AUTHORIZATION]);
    assert_eq!(ours.headers["x-amz-meta-a"], "two  words   here");
}

proptest! {
    #[test]
    fn every_request_is_signed_as_the_signing_crate_signs_it(
        method in "GET|PUT|HEAD|DELETE|POST",
        host in "[a-z]{1,8}(\\.s3express-x)?(--x-s3)?(:[1-9][0-9]{2})?",
        path in "(/|/([A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-7][0-9a-fA-F]|%C3%A4|%e2%82%ac){0,40})",
        query in proptest::option::of("([A-Za-z0-9._~+,:/=&-]|%[0-7][0-9a-fA-F]|%c3%bc){0,60}"),
        headers in proptest::collection::btree_map(
            "(range|content-type|if-match|x-amz-[a-z-]{0,12}[a-z]|x-goog-[a-z]{1,5})",
            "([!-~]( ?[!-~]){0,20})?",
            0..6,
        ),
        secret in "[!-~]{1,70}",
        token in proptest::option::of("[!-~]{1,100}"),
        region in "[a-z0-9-]{1,20}",
    ) {
        let query = query.map_or_else(String::new, |query| format!("?{query}"));
        let mut headers = headers;
        headers.remove(DATE.as_str());
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        let request = parts(&method, &format!("http://{host}{path}{query}"), &headers);
        let credential = credential(&secret, token.as_deref());
        let (theirs, at) = theirs(&request, &region, &credential);
        let mut ours = request;
        Signature::new(&region).sign(&mut ours, &credential, at).expect("signs");
        prop_assert_eq!(&ours.headers, &theirs.headers);
        prop_assert_eq!(&ours.uri, &theirs.uri);
    }

    #[test]
    fn every_time_is_written_as_the_signing_crate_writes_it(second in 0i64..32_000_000_000) {
        let at = Timestamp::from_second(second).expect("it is a time");
        prop_assert_eq!(moment(at).expect("it is a time"), at.format_iso8601());
    }
}

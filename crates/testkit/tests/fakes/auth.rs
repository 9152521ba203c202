//! Signatures, against the examples that AWS printed in its documentation: an authority that is
//! neither our client nor our fake.

use crate::raw::{Answer, Raw};
use penstock_testkit::fake::{FakeHandle, FakeOptions, FakeS3};
use std::time::{SystemTime, UNIX_EPOCH};

/// 2013-05-24T00:00:00Z, the time of the examples.
const EXAMPLE_TIME_S: i64 = 1_369_353_600;
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const CREDENTIAL: &str = "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request";

fn fake_of_the_examples(ahead_s: i64) -> FakeHandle {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    FakeS3::start(FakeOptions {
        account: "AKIAIOSFODNN7EXAMPLE".to_string(),
        key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_string(),
        clock_offset_s: EXAMPLE_TIME_S - now + ahead_s,
        ..FakeOptions::s3()
    })
    .unwrap()
}

struct Example {
    method: &'static str,
    target: &'static str,
    headers: String,
    body: &'static str,
    signed: &'static str,
    signature: &'static str,
    status: u16,
}

fn examples() -> Vec<Example> {
    let empty = format!("x-amz-content-sha256: {EMPTY_SHA256}\r\nx-amz-date: 20130524T000000Z\r\n");
    let welcome = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    vec![
        Example {
            method: "PUT",
            target: "/test%24file.text",
            headers: format!(
                "Date: Fri, 24 May 2013 00:00:00 GMT\r\nx-amz-content-sha256: {welcome}\r\n\
                 x-amz-date: 20130524T000000Z\r\nx-amz-storage-class: REDUCED_REDUNDANCY\r\n"
            ),
            body: "Welcome to Amazon S3.",
            signed: "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
            signature: "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            status: 200,
        },
        Example {
            method: "GET",
            target: "/test.txt",
            headers: format!("Range: bytes=0-9\r\n{empty}"),
            body: "",
            signed: "host;range;x-amz-content-sha256;x-amz-date",
            signature: "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            status: 404,
        },
        Example {
            method: "GET",
            target: "/?max-keys=2&prefix=J",
            headers: empty.clone(),
            body: "",
            signed: "host;x-amz-content-sha256;x-amz-date",
            signature: "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            status: 200,
        },
        Example {
            method: "GET",
            target: "/?lifecycle",
            headers: empty,
            body: "",
            signed: "host;x-amz-content-sha256;x-amz-date",
            signature: "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            status: 501,
        },
    ]
}

fn send(fake: &FakeHandle, example: &Example, signature: &str) -> Answer {
    let head = format!(
        "{} {} HTTP/1.1\r\nHost: examplebucket.s3.amazonaws.com\r\nContent-Length: {}\r\n{}\
         Authorization: AWS4-HMAC-SHA256 Credential={CREDENTIAL},SignedHeaders={},Signature={}\r\n\
         \r\n",
        example.method,
        example.target,
        example.body.len(),
        example.headers,
        example.signed,
        signature
    );
    let mut raw = Raw::connect(fake.address());
    raw.send(head.as_bytes()).send(example.body.as_bytes());
    raw.answer_to(example.method).unwrap()
}

#[test]
fn documented_signatures_are_right() {
    let fake = fake_of_the_examples(60);
    for example in examples() {
        let answer = send(&fake, &example, example.signature);
        assert_eq!(answer.status, example.status, "{}: {}", example.target, answer.text());
    }
}

#[test]
fn any_other_signature_time_or_body_is_refused() {
    let fake = fake_of_the_examples(60);
    for mut example in examples() {
        let bent = example.signature.replace(['0', '1', '2'], "f");
        let answer = send(&fake, &example, &bent);
        assert!(answer.text().contains("SignatureDoesNotMatch"), "{}", answer.text());
        example.headers.push_str("x-amz-acl: private\r\n");
        let answer = send(&fake, &example, example.signature);
        assert!(answer.text().contains("not signed: x-amz-acl"), "{}", answer.text());
    }
    let put = Example { body: "Welcome to Amazon S4.", ..examples().remove(0) };
    let answer = send(&fake, &put, put.signature);
    assert!(answer.text().contains("XAmzContentSHA256Mismatch"), "{}", answer.text());
    let late = fake_of_the_examples(3600);
    let answer = send(&late, &examples()[1], examples()[1].signature);
    assert!(answer.text().contains("RequestTimeTooSkewed"), "{}", answer.text());
}

#[test]
fn presigned_urls_hold_for_their_time() {
    let target = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=\
        AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
        &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
        &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    let ask = |fake: &FakeHandle| {
        let head = format!("GET {target} HTTP/1.1\r\nHost: examplebucket.s3.amazonaws.com\r\n\r\n");
        Raw::connect(fake.address()).send(head.as_bytes()).answer_to("GET").unwrap()
    };
    let answer = ask(&fake_of_the_examples(3600));
    assert!(answer.text().contains("NoSuchKey"), "{}", answer.text());
    let answer = ask(&fake_of_the_examples(86_401));
    assert!(answer.text().contains("Request has expired"), "{}", answer.text());
}

#[test]
fn unsigned_requests_and_unknown_keys_are_refused() {
    let fake = FakeS3::start(FakeOptions::s3()).unwrap();
    let answer = crate::raw::ask(fake.address(), "GET", "/bucket/key", "").unwrap();
    assert_eq!((answer.status, answer.text().contains("AccessDenied")), (403, true));
    let foreign = fake_of_the_examples(60);
    let mut example = examples().remove(1);
    example.headers = example.headers.replace("Range: bytes=0-9\r\n", "");
    let answer = send(&foreign, &example, example.signature);
    assert!(answer.text().contains("signed header range was not sent"), "{}", answer.text());
}

mod property {
    use super::*;
    use penstock_testkit::fake::FakeAzure;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_claim_breaks_a_server_or_gets_in(
            claim in "(AWS4-HMAC-SHA256 |SharedKey |Bearer )?\
                      ((Credential|SignedHeaders|Signature)?=?[a-z0-9/;:,=+ -]{0,20},?){0,4}",
            query in "(&?(sig|sv|ss|srt|se|sp|sr|X-Amz-Signature|X-Amz-Date|X-Amz-Expires|\
                      X-Amz-Algorithm|X-Amz-Credential)=[a-zA-Z0-9%2F-]{0,12}){0,6}",
        ) {
            let headers = format!("Authorization: {claim}\r\nx-amz-content-sha256: UNSIGNED-PAYLOAD\r\n");
            for fake in [
                FakeS3::start(FakeOptions::s3()).unwrap(),
                FakeAzure::start(FakeOptions::azure()).unwrap(),
            ] {
                for headers in [headers.as_str(), ""] {
                    let target = format!("/devstoreaccount1/box/key?{query}");
                    let answer = crate::raw::ask(fake.address(), "GET", &target, headers).unwrap();
                    prop_assert!((400..500).contains(&answer.status), "{}", answer.text());
                }
            }
        }
    }
}

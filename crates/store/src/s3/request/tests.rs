use super::*;
use crate::options::StoreOptions;
use crate::s3::config;
use crate::{HttpOptions, Observer, RequestEvent};
use percent_encoding::percent_decode_str;
use proptest::prelude::*;

#[derive(Debug)]
struct Deaf;

impl Observer for Deaf {
    fn request_finished(&self, _event: RequestEvent) {}
}

fn read(bucket: &str, pairs: &[(&str, &str)]) -> S3Config {
    let options = StoreOptions::new(pairs.iter().copied()).unwrap();
    config::read("s3", bucket, (&StoreOptions::default(), &options), &|_| None).unwrap()
}

fn url(config: &S3Config, region: Option<&str>, key: &str) -> String {
    let call = Call::new(Method::GET, "GET", Some(key));
    request_url(&bucket_url(config, region), config.service, &call)
}

#[test]
fn urls_follow_style_region_and_endpoint() {
    let plain = read("bucket", &[]);
    assert_eq!(url(&plain, None, "a b"), "https://bucket.s3.amazonaws.com/a%20b");
    let west = "https://bucket.s3.eu-west-1.amazonaws.com/k";
    assert_eq!(url(&plain, Some("eu-west-1"), "k"), west);
    let china = "https://bucket.s3.cn-north-1.amazonaws.com.cn/k";
    assert_eq!(url(&plain, Some("cn-north-1"), "k"), china);
    let regional = read("bucket", &[("endpoint", "s3.us-east-1.amazonaws.com")]);
    assert_eq!(url(&regional, Some("eu-west-1"), "k"), west);
    let private = "bucket.vpce-1.s3.us-east-1.vpce.amazonaws.com";
    let private_config = read("bucket", &[("endpoint", private), ("url_style", "path")]);
    assert_eq!(url(&private_config, Some("eu-west-1"), "k"), format!("https://{private}/bucket/k"));
    let dotted = read("my.bucket", &[]);
    assert_eq!(url(&dotted, None, "k"), "https://s3.amazonaws.com/my.bucket/k");
    let local = read("b", &[("endpoint", "http://[::1]:9000/base")]);
    assert_eq!(url(&local, Some("x"), "//k/"), "http://[::1]:9000/base/b///k/");
}

#[test]
fn refused_headers_are_the_callers_error() {
    let call = || Call::new(Method::PUT, "PUT", Some("k"));
    for (name, value) in [("x-amz-meta-a b", "v"), ("x-amz-meta-a", "v\r\nx: y"), ("a", "ü")] {
        let error = call().header(name, value).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{name}");
    }
}

#[test]
fn region_names_that_are_none_are_not_followed() {
    assert!(is_region("eu-west-1"));
    for text in ["", "evil.example/", "EU", "a b", &"x".repeat(41)] {
        assert!(!is_region(text), "{text}");
    }
}

proptest! {
    #[test]
    fn keys_come_back_from_the_url(key in "[^\u{0}]{0,30}") {
        let config = read("bucket", &[("endpoint", "http://h:1")]);
        let url = url(&config, None, &key);
        let path = url.strip_prefix("http://bucket.h:1/").unwrap();
        prop_assert_eq!(percent_decode_str(path).decode_utf8().unwrap(), key.as_str());
        prop_assert!(path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~/%".contains(&byte)));
        // What is sent is what was signed: the URL survives parsing as it is.
        prop_assert_eq!(url.parse::<::http::Uri>().unwrap().to_string(), url);
    }

    #[test]
    fn any_key_can_be_signed(key in ".{1,30}", value in ".{0,20}") {
        let pairs = [("endpoint", "http://h:1"), ("key_id", "k"), ("secret", "s")];
        let config = read("bucket", &pairs);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let http = HttpClient::new(HttpOptions::default(), Arc::new(Deaf)).unwrap();
            let auth = Auth::new(&config.access, "us-east-1", &http);
            let call = Call::new(Method::GET, "GET", Some(&key)).query("prefix", value.clone());
            let url = request_url(&bucket_url(&config, None), config.service, &call);
            let mut parts = Request::get(url.as_str()).body(()).unwrap().into_parts().0;
            auth.sign(&mut parts).await.unwrap();
            assert!(parts.headers.contains_key("authorization"));
            assert_eq!(parts.uri.to_string(), url);
        });
    }
}

#[test]
fn only_an_error_document_says_that_a_request_was_not_done() {
    for (answer, expected) in [
        ("<Error><Code>SlowDown</Code></Error>", true),
        (" <?xml version=\"1.0\"?><Error><Code>X</Code></Error>", true),
        ("<Error/>", true),
        ("", false),
        ("OK", false),
        // How S3 once told of buckets that it had removed.
        ("<DeleteBucketResponse><Code>204</Code></DeleteBucketResponse>", false),
        ("<a><Error><Code>X</Code></Error></a>", false),
    ] {
        assert_eq!(crate::xml::is_error_document(answer.as_bytes()), expected, "{answer}");
    }
}

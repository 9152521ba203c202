//! What a fuzzer feeds bytes to: every parser here of what clients send and of what replicas noted.
//!
//! As in the crate of the stores: a body takes any bytes, must come back, and asserts what has to
//! hold of whatever was parsed. `fuzz/` runs the bodies under libFuzzer, the tests below run the
//! same ones in every `cargo test`.

mod fields;

use crate::acl::{Acl, Asked, Users};
use crate::hosts::Hosts;
use crate::keys::{KeyPair, KeyRing, Rates};
use crate::lock::{BY_RULE, HOLD, Lock, RETENTION};
use crate::notes::Notes;
use crate::parts::{PARTS_NOTE, PartSizes};
use crate::policy::{Facts, Policy, Request};
use crate::{
    chunks, cors, creation, forms, heads, lenient, list, locks, sharing, tagging, trace, v2,
};
use http::HeaderMap;
use penstock_base::Secret;
use penstock_store::ObjectMeta;
use s3s::dto;
use s3s::xml::{Deserialize, Deserializer};
use std::time::SystemTime;

/// Takes any bytes.
pub type Body = fn(&[u8]);

/// Every body by name, each with an input from which a fuzzer may begin.
pub const BODIES: &[(&str, Body, &[u8])] = &[
    (
        "gateway_form",
        forms::fuzz,
        b"--b\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\na/${filename}\r\n--b\r\n\
          Content-Disposition: form-data; name=\"policy\"\r\n\r\neyJleHBpcmF0aW9uIjoiMjA5OS0wMS0wMV\
          QwMDowMDowMFoiLCJjb25kaXRpb25zIjpbeyJidWNrZXQiOiJsYWtlIn0sWyJzdGFydHMtd2l0aCIsIiRrZXkiLCJ\
          hIl1dfQ==\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n\
          bytes\r\n--b--\r\n",
    ),
    (
        "gateway_policy",
        policy,
        br#"{"Statement": [{"Effect": "Deny", "Principal": {"AWS": "arn:aws:iam:::user/K"},
            "NotAction": "s3:Get*", "Resource": ["arn:aws:s3:::lake", "arn:aws:s3:::lake/?*"],
            "Condition": {"ForAnyValue:StringLikeIfExists": {"s3:prefix": ["a*", "b"]},
            "NotIpAddress": {"aws:SourceIp": "10.0.0.0/8"}}}]}"#,
    ),
    (
        "gateway_notes",
        notes,
        br#"{"acl": "K;f=K;r=*", "policy": "{}", "lock": {"rule": {"mode": "GOVERNANCE",
            "period": {"days": 7}}}, "cors": [], "tags": [["a", "b"]]}"#,
    ),
    (
        "gateway_head",
        head,
        b"/b?versionId=a%2Bb&acl&X-Amz-Expires=60&AWSAccessKeyId=K&Signature=AAAA&Expires=99\n\
          AWS4-HMAC-SHA256 Credential=K/20130524/us-east-1/s3/aws4_request, SignedHeaders=host, \
          Signature=00\n20130524T000000Z\nid=K, uri=\"http://acs.amazonaws.com/groups/global/AllUsers\"",
    ),
    (
        "gateway_documents",
        documents,
        b"<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule>\
          <DefaultRetention><Mode>GOVERNANCE</Mode><Days>7</Days></DefaultRetention></Rule>\
          </ObjectLockConfiguration>",
    ),
    (
        "gateway_checksums",
        fields::checksums,
        b"x-amz-checksum-crc32\nAAAAAA==\nCRC32\nsha1:2jmj7l5rSw0yVb/vlWAYkK/YBwk=,b",
    ),
    (
        "gateway_pages",
        fields::pages,
        b"[{\"origins\": [\"https://*.org\"], \"methods\": [\"GET\", \"PUT\"], \"headers\": \
          [\"x-*\"], \"exposed\": [\"ETag\"], \"max_age_s\": 30}]\nhttps://a.org\nPUT\nx-amz-date, x-b",
    ),
    ("gateway_conditions", fields::preconditions, b"Fri, 24 May 2013 00:00:00 GMT"),
    ("gateway_tags", fields::preconditions, b"W/\"0x8DC-1\""),
    ("gateway_chunks", chunks::fuzz, b"5;chunk-signature=0\r\nhello\r\n0;chunk-signature=0\r\n"),
    (
        "gateway_hosts",
        fields::hosts,
        b"s3.example.org, lake.internal\nData.S3.example.org:9000\n/a b/c",
    ),
    (
        "gateway_proxies",
        fields::proxies,
        b"10.0.0.0/8, 192.168.1.7\n1.1.1.1, 203.0.113.1:80\n[2001:db8::1]:80, 10.2.0.1",
    ),
    (
        "gateway_traceparent",
        trace::fuzz,
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ),
    (
        "gateway_queries",
        fields::queries,
        b"versionId=a%2Bb&response-expires=Thu%2C+1+Dec&response-content-type=x%2Fy&acl",
    ),
    (
        "gateway_creation",
        creation,
        b"<CreateBucketConfiguration xmlns=\"x\"><LocationConstraint>eu-west-1</LocationConstraint>\
          <Tags><Tag><Key>a</Key><Value>1.2</Value></Tag></Tags></CreateBucketConfiguration>",
    ),
    (
        "gateway_copy_source",
        fields::copy_source,
        b"/lake/a%20b/%C3%BC+c?versionId=3%2FL4kqtJlcpXroDTDmJ.rmSpXd3dIbrHY",
    ),
    ("gateway_tagging", fields::tagging, b"team=data%20lake&owner=a%40b.c&empty"),
    ("gateway_copied_range", fields::copied_range, b"bytes=65536-1048575"),
    (
        "gateway_config",
        fields::config,
        b"listen = \"127.0.0.1:9000\"\n[[backend]]\nname = \"b\"\nurl = \"az://\"\n\
          account_key_env = \"KEY\"\n[[bucket]]\nname = \"lake\"\nbackend = \"b\"\n\
          aliases = [\"l\"]\n[[key]]\naccess_key = \"K\"\nsecret_key = \"hunter2-hunter2\"\n\
          [[key.grant]]\nbuckets = [\"*\"]\nrights = [\"read\"]\n[[cors]]\norigins = [\"*\"]\n\
          methods = [\"GET\"]\nmax_age_s = 3\n",
    ),
];

/// A policy, and what it says of some requests.
fn policy(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(policy) = Policy::parse(text, vec!["lake".to_string()]) else { return };
    let mut facts = Facts::default();
    facts.put("aws:SourceIp", "10.1.2.3");
    facts.put("s3:prefix", "ab");
    for who in [None, Some("K")] {
        for (action, key) in [("s3:GetObject", Some("a/b")), ("s3:ListBucket", None)] {
            let request = Request { who, action, key, facts: &facts };
            let decision = policy.judge(&request);
            assert_eq!(decision, policy.judge(&request), "two answers to one question");
        }
    }
}

/// What a bucket's notes and an object's metadata say, written by whomever.
fn notes(input: &[u8]) {
    if let Ok(notes) = serde_json::from_slice::<Notes>(input) {
        let again = serde_json::to_vec(&notes).map(|text| serde_json::from_slice::<Notes>(&text));
        assert!(matches!(again, Ok(Ok(again)) if again == notes), "notes that changed");
        drop(notes.list());
    }
    let text = String::from_utf8_lossy(input).into_owned();
    if let Some(acl) = Acl::from_text(&text) {
        assert_eq!(Acl::from_text(&acl.to_text()), Some(acl), "a list that changed");
    }
    for name in [RETENTION, BY_RULE, HOLD, PARTS_NOTE] {
        let metadata = vec![(name.to_string(), text.clone())];
        let meta = ObjectMeta { metadata, ..ObjectMeta::default() };
        if let Ok(Lock { retention: Some(retention), .. }) = Lock::of(&meta) {
            let kept = retention.to_text();
            assert!(kept.is_ok(), "a retention that cannot be kept: {retention:?}");
        }
        if let Some(sizes) = PartSizes::of(&meta) {
            let end = u32::try_from(sizes.count()).ok().and_then(|count| count.checked_add(1));
            let past = end.and_then(|number| sizes.range(number));
            assert_eq!(past, None, "a part past the last");
        }
    }
}

struct Nobody;

impl Users for Nobody {
    fn has(&self, id: &str) -> bool {
        id == "K"
    }
}

/// Heads of requests: a path with a query, an authorization, a date, grants, each in a line.
fn head(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    text.split('\n').for_each(|line| lenient::fuzz(line.as_bytes()));
    let mut lines = text.split('\n');
    let uri = lines.next().unwrap_or_default();
    drop(list::store_token(uri));
    drop(sharing::version_of(uri));
    let names = ["authorization", "x-amz-date", "x-amz-grant-read"];
    let mut builder = http::Request::builder().uri(uri);
    for (name, value) in names.into_iter().zip(lines) {
        builder = builder.header(name, value);
    }
    let Ok(request) = builder.body(()) else { return };
    drop(heads::fault(&request, SystemTime::UNIX_EPOCH));
    let asked = Asked { headers: request.headers(), document: None };
    drop(asked.acl("K", "K", &Nobody));
    let ring =
        KeyRing::new(vec![KeyPair::new("K", Secret::new("secret"))], Vec::new(), Rates::default());
    if let Ok(Some(slashed)) = v2::verified(&request, &Hosts::default(), &ring) {
        assert_eq!(slashed.path(), format!("{}/", request.uri().path()), "another path");
    }
}

fn document<T: for<'xml> Deserialize<'xml>>(input: &[u8]) -> Option<T> {
    T::deserialize(&mut Deserializer::new(input)).ok()
}

/// Documents of sub-resources, as s3s reads them.
fn documents(input: &[u8]) {
    if let Some(dto::ObjectLockConfiguration { rule: Some(rule), .. }) = document(input) {
        drop(locks::rule_of(rule));
    }
    if let Some(dto::CORSConfiguration { cors_rules }) = document(input)
        && let Ok(rules) = cors::from_document(cors_rules)
    {
        let count = rules.len();
        assert_eq!(cors::to_document(rules).len(), count, "rules that were lost");
    }
    if let Some(dto::Tagging { tag_set }) = document(input) {
        drop(tagging::checked_of_bucket(tag_set));
    }
    let asked = Asked { headers: &HeaderMap::new(), document: document(input) };
    drop(asked.acl("K", "K", &Nobody));
}

/// The document of a CreateBucket, which is read a second time for what s3s passes over.
fn creation(input: &[u8]) {
    let Ok(Some(tags)) = creation::tags_of(input) else { return };
    assert!(!tags.is_empty(), "no tags were asked for");
    let again = tags
        .iter()
        .map(|(name, value)| dto::Tag { key: Some(name.clone()), value: Some(value.clone()) });
    let again = tagging::checked_of_bucket(again.collect());
    assert!(again.is_ok_and(|again| again == tags), "tags that no bucket may have");
}

#[cfg(test)]
mod tests {
    use super::*;

    penstock_testkit::fuzzed!(BODIES);

    #[test]
    fn seeds_are_what_they_should_be() {
        let text = std::str::from_utf8(BODIES[1].2).unwrap();
        assert!(Policy::parse(text, vec!["lake".to_string()]).is_ok());
        assert!(serde_json::from_slice::<Notes>(BODIES[2].2).is_ok());
        let seed = |name: &str| BODIES.iter().find(|row| row.0 == name).unwrap().2;
        assert!(creation::tags_of(seed("gateway_creation")).is_ok_and(|tags| tags.is_some()));
        let source = http::HeaderValue::from_bytes(seed("gateway_copy_source")).unwrap();
        let source = HeaderMap::from_iter([(fields::COPY_SOURCE, source)]);
        assert!(crate::auth::copied(&source).is_ok_and(|found| found[0].version.is_some()));
        let tags = std::str::from_utf8(seed("gateway_tagging")).unwrap();
        assert!(tagging::read_header(tags).is_ok_and(|tags| tags.len() == 3));
        let range = http::HeaderValue::from_bytes(seed("gateway_copied_range")).unwrap();
        assert!(crate::uploads::copied_range(&range).is_ok());
        let config = BODIES.iter().find(|row| row.0 == "gateway_config").unwrap().2;
        let config = std::str::from_utf8(config).unwrap();
        assert!(crate::Config::parse(config, &crate::config::Surroundings).is_err_and(|error| {
            // All of it but the variable, which is not there.
            error.message().contains("KEY")
        }));
    }
}

//! Raw keys: a name is a sequence of characters, and no layer may tidy it up.

use super::Subject;
use super::support::assert_ramp;
use crate::ramp::ramp;
use penstock_base::Kind;
use penstock_store::{GetRange, PutOptions};

/// Names that break careless URL building, XML, path joining or sorting.
pub const AWKWARD: &[&str] = &[
    "plain",
    "with space",
    " leading and trailing ",
    "plus+plus",
    "per%cent",
    "%20",
    "%2F",
    "%252F",
    "%",
    "a//b",
    "//",
    "trailing/",
    "trailing//",
    "./dot",
    "../dotdot",
    "x/./y",
    "x/../y",
    "x/..",
    "...",
    ".hidden",
    "question?mark=1&other=2",
    "hash#fragment",
    "semi;colon:at@equals=comma,",
    "<xml attr=\"'\">&amp;</xml>",
    "]]>",
    "back\\slash",
    "brackets[0]{1}(2)",
    "star*!'$^|~`",
    "tab\there",
    "line\nbreak",
    "größe-日本語-\u{1F980}",
    "e\u{301}-decomposed",
    "\u{e9}-composed",
    "\u{FFFD}-replacement",
    "year=2024/month=01/data_0.parquet",
    "part-%3D-=.parquet",
    "comp=list&restype=container",
    "UPPER",
    "upper",
];

/// Puts a key that the store may refuse; whether it took it. A refusal must be plain.
async fn try_put(subject: &Subject, name: &str, seed: u64, len: u64) -> bool {
    let key = subject.key(name);
    let result = subject.put(&key, ramp(seed, 0, len), &PutOptions::default()).await;
    if subject.may_refuse(name) && result.is_err() {
        subject.refused(result, &[Kind::Invalid, Kind::Unsupported], &key);
        return false;
    }
    result.unwrap_or_else(|error| panic!("put of {key:?}: {error}"));
    true
}

/// Every awkward name can be put, got, listed and removed, exactly as it is.
pub async fn raw_keys(subject: Subject) {
    let capabilities = subject.store.capabilities();
    if !capabilities.write {
        return;
    }
    let mut taken = Vec::new();
    for (seed, name) in AWKWARD.iter().enumerate() {
        let len = 10 + seed as u64;
        if try_put(&subject, name, seed as u64, len).await {
            let key = subject.key(name);
            subject.assert_is(&key, seed as u64, len).await;
            taken.push((key, seed as u64, len));
        }
    }
    for (key, seed, len) in &taken {
        assert_ramp(&subject.read(key, GetRange::All).await, *seed, 0, *len, key);
        if capabilities.list {
            let listed = subject.names(key).await;
            assert_eq!(listed.iter().filter(|name| *name == key).count(), 1, "{key:?} is listed");
        }
    }
    if capabilities.list {
        let mut expected: Vec<String> = taken.iter().map(|(key, ..)| key.clone()).collect();
        expected.sort();
        assert_eq!(subject.names(&subject.prefix).await, expected);
    }
    for (key, ..) in &taken {
        subject.store.delete(key, None).await.unwrap_or_else(|error| panic!("{key:?}: {error}"));
        subject.assert_absent(key).await;
    }
}

/// Names that tidying up would make equal are different objects.
pub async fn similar_keys_stay_apart(subject: Subject) {
    if !subject.store.capabilities().write {
        return;
    }
    let names = [
        "d/a b",
        "d/a+b",
        "d/a%20b",
        "d/a%2520b",
        "d//a b",
        "d/./a b",
        "d/a b/",
        "d/x/../a b",
        "d/A b",
        "d/\u{e9}",
        "d/e\u{301}",
        "d/%C3%A9",
        "d%2Fa b",
        "d\\a b",
        "d/a\u{a0}b",
    ];
    let mut taken = Vec::new();
    for (seed, name) in names.iter().enumerate() {
        if try_put(&subject, name, seed as u64, 100 + seed as u64).await {
            taken.push((subject.key(name), seed as u64));
        }
    }
    for (key, seed) in taken {
        subject.assert_is(&key, seed, 100 + seed).await;
    }
}

/// Keys of 1,024 bytes, of one segment and of many, also when each byte needs escaping.
pub async fn longest_key(subject: Subject) {
    if !subject.store.capabilities().write {
        return;
    }
    let room = 1024 - subject.prefix.len();
    let segmented: String =
        (0..room).map(|index| if index % 100 == 99 { '/' } else { 'k' }).collect();
    let escaped: String = (0..room).map(|index| if index % 50 == 49 { '/' } else { '%' }).collect();
    for (seed, name) in ["k".repeat(room), segmented, escaped].iter().enumerate() {
        if name.ends_with('/') {
            continue;
        }
        if try_put(&subject, name, seed as u64, 50).await {
            let key = subject.key(name);
            assert_eq!(key.len(), 1024);
            subject.assert_is(&key, seed as u64, 50).await;
            if subject.store.capabilities().list {
                assert_eq!(subject.names(&key).await, [key]);
            }
        }
    }
}

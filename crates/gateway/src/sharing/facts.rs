//! What a policy's conditions can ask of a request. Pure.

use super::Ask;
use crate::policy::Facts;
use crate::query::pairs;
use percent_encoding::percent_decode_str;
use s3s::{S3Result, s3_error};

/// The version that a query names, however its name is escaped: it must be the one that is judged
/// and the one that is served.
pub(crate) fn version_of(query: &str) -> S3Result<Option<String>> {
    let mut named = pairs(query).filter(|pair| pair.0 == "versionId");
    let version = named.next().map(|pair| pair.1);
    match named.next() {
        None => Ok(version),
        Some(_) => Err(s3_error!(InvalidArgument, "versionId is given more than once.")),
    }
}

/// The facts of a request; `names` tells every name of a bucket.
pub(super) fn facts(ask: &Ask<'_>, names: impl Fn(&str) -> Vec<String>) -> Facts {
    let mut facts = Facts::default();
    if let Some(peer) = ask.peer {
        facts.put("aws:SourceIp", &peer.to_canonical().to_string());
    }
    if let Some(who) = ask.who {
        facts.put("aws:username", who);
    }
    for (name, value) in ask.headers {
        let Ok(value) = value.to_str() else { continue };
        match name.as_str() {
            "user-agent" => facts.put("aws:UserAgent", value),
            "referer" => facts.put("aws:Referer", value),
            "x-amz-tagging" => {
                for (tag, value) in pairs(value) {
                    facts.put(&format!("s3:RequestObjectTag/{tag}"), &value);
                    facts.put("s3:RequestObjectTagKeys", &tag);
                }
            }
            // As it may be written with and without a slash before it, and escaped; a plus is one.
            "x-amz-copy-source" => {
                let source = percent_decode_str(value).decode_utf8_lossy();
                let source = source.trim_start_matches('/');
                facts.put_spelt("s3:x-amz-copy-source", spellings(source, &names));
            }
            name if name.starts_with("x-amz-") => facts.put(&format!("s3:{name}"), value),
            _ => {}
        }
    }
    for (name, value) in pairs(ask.uri.query().unwrap_or_default()) {
        if matches!(name.as_str(), "prefix" | "delimiter" | "max-keys") {
            facts.put(&format!("s3:{name}"), &value);
        }
    }
    facts
}

/// A source by each name of its bucket: a policy may name any of them.
fn spellings(source: &str, names: &impl Fn(&str) -> Vec<String>) -> Vec<String> {
    let mut spellings = vec![source.to_string()];
    if let Some((bucket, key)) = source.split_once('/') {
        let others = names(bucket).into_iter().filter(|name| name != bucket);
        spellings.extend(others.map(|name| format!("{name}/{key}")));
    }
    spellings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_meant_under_each_name_of_its_bucket() {
        let names = |bucket: &str| match bucket {
            "lake" | "old" => vec!["lake".to_string(), "old".to_string()],
            _ => Vec::new(),
        };
        assert_eq!(
            spellings("old/a/b?versionId=1", &names),
            ["old/a/b?versionId=1", "lake/a/b?versionId=1"]
        );
        assert_eq!(spellings("gone/a", &names), ["gone/a"]);
        assert_eq!(spellings("odd", &names), ["odd"]);
    }

    #[test]
    fn a_version_is_known_however_its_name_is_escaped() {
        for query in ["versionId=a%2Bb", "x=1&version%49d=a%2Bb", "&%76ersionId=a%2Bb&y"] {
            assert_eq!(version_of(query).unwrap().as_deref(), Some("a+b"), "{query}");
        }
        assert_eq!(version_of("VersionId=a&x=versionId").unwrap(), None);
        assert!(version_of("versionId=a&version%49d=b").is_err());
    }
}

//! The list of generations, as Google's XML API writes it. Pure.

use super::{decode_url, is_encoding, is_true, walk_root};
use crate::answer::parse_iso_date;
use crate::notes::told_class;
use crate::s3::google;
use crate::s3::request::strange;
use crate::streaming::{VersionEntry, VersionsPage};
use crate::{ETag, ObjectMeta};
use penstock_base::Result;

/// The elements of one generation, as far as they came.
#[derive(Default)]
struct Fields {
    key: Option<String>,
    id: Option<String>,
    is_latest: Option<bool>,
    is_gone: bool,
    size_bytes: Option<u64>,
    meta: ObjectMeta,
}

impl Fields {
    fn read(&mut self, field: &str, text: &str) {
        let trimmed = text.trim();
        match field {
            "Key" => self.key = Some(text.to_string()),
            "Generation" | "VersionId" => {
                self.id = Some(trimmed.to_string()).filter(|id| google::is_generation(id));
            }
            "IsLatest" => self.is_latest = trimmed.parse().ok(),
            "DeletedTime" => self.is_gone = true,
            "Size" => self.size_bytes = trimmed.parse().ok(),
            "ETag" => self.meta.etag = Some(ETag::parse(text)).filter(|etag| !etag.0.is_empty()),
            "LastModified" => self.meta.modified = parse_iso_date(text),
            "StorageClass" => {
                self.meta.storage_class = told_class(google::told_class(trimmed));
            }
            _ => {}
        }
    }

    fn finish(self) -> Result<VersionEntry> {
        let size_bytes = self.size_bytes.ok_or_else(|| strange("the size of a version"))?;
        // What has a time of its end is not the latest; of others the list has to say.
        let is_latest = self.is_latest.or(self.is_gone.then_some(false));
        Ok(VersionEntry {
            key: self.key.ok_or_else(|| strange("the name of a version"))?,
            id: self.id.ok_or_else(|| strange("the generation of a version"))?,
            is_latest: is_latest.ok_or_else(|| strange("whether a version is the latest"))?,
            is_marker: false,
            meta: ObjectMeta { size_bytes: Some(size_bytes), ..self.meta },
        })
    }
}

/// One page of a list with `versions`, in Google's order, and the markers of the next. Google
/// writes it in two forms, of which the second is asked for by a header; both are read.
///
/// # Errors
/// `Corrupt` for an answer that is none, and where a generation lacks its name, number or size.
pub(crate) fn parse_generations(bytes: &[u8]) -> Result<VersionsPage> {
    let (mut page, mut fields) = (VersionsPage::default(), Fields::default());
    let (mut truncated, mut encoded) = (false, false);
    let (mut key, mut id) = (String::new(), String::new());
    let roots = ["ListBucketResult", "ListVersionsResult"];
    walk_root(bytes, &roots, "a list of versions", |element| {
        let text = element.text;
        match element.path[1..].iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["Version", field] => fields.read(field, text),
            ["Version"] => page.versions.push(std::mem::take(&mut fields).finish()?),
            // Such a list has nothing but what is there now, so the versions were not listed.
            ["Contents"] => return Err(strange("versions: it tells objects")),
            ["CommonPrefixes", "Prefix"] => page.prefixes.push(text.to_string()),
            ["IsTruncated"] => truncated = is_true(text)?,
            [name] if is_encoding(name) => encoded = text.trim() == "url",
            ["NextMarker" | "NextKeyMarker"] => key = text.to_string(),
            ["NextGenerationMarker" | "NextVersionIdMarker"] => id = text.trim().to_string(),
            _ => {}
        }
        Ok(())
    })?;
    if encoded {
        key = decode_url(&key)?;
        let keys = page.versions.iter_mut().map(|entry| &mut entry.key);
        for name in keys.chain(&mut page.prefixes) {
            *name = decode_url(name)?;
        }
    }
    if truncated {
        if key.is_empty() {
            return Err(strange("the marker of the next page"));
        }
        page.next = Some((key, Some(id).filter(|id| !id.is_empty())));
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::Kind;
    use proptest::prelude::*;

    const VERSION: &str = "<Version><Key>a</Key><Generation>12</Generation>\
        <MetaGeneration>1</MetaGeneration><IsLatest>true</IsLatest>\
        <LastModified>2026-11-20T07:28:14.000Z</LastModified><ETag>\"e\"</ETag><Size>7</Size>\
        <StorageClass>NEARLINE</StorageClass></Version>";

    fn page(root: &str, content: &str) -> Result<VersionsPage> {
        let text = format!("<{root}><IsTruncated>false</IsTruncated>{content}</{root}>");
        parse_generations(text.as_bytes())
    }

    #[test]
    fn generations_are_versions() {
        let gone = "<Version><Key>a</Key><Generation>11</Generation>\
            <DeletedTime>2026-11-20T07:28:14.000Z</DeletedTime><Size>0</Size></Version>";
        let folded = "<CommonPrefixes><Prefix>d/</Prefix></CommonPrefixes>";
        let found = page("ListBucketResult", &format!("{gone}{VERSION}{folded}")).unwrap();
        let told = |entry: &VersionEntry| (entry.id.clone(), entry.is_latest, entry.is_marker);
        let told: Vec<_> = found.versions.iter().map(told).collect();
        assert_eq!(told, [("11".to_string(), false, false), ("12".to_string(), true, false)]);
        let meta = &found.versions[1].meta;
        assert_eq!((meta.size_bytes, meta.etag.clone()), (Some(7), Some(ETag("e".into()))));
        assert_eq!(meta.storage_class.as_deref(), Some("STANDARD_IA"));
        assert!(meta.modified.is_some());
        assert_eq!((found.prefixes, found.next), (vec!["d/".to_string()], None));
    }

    #[test]
    fn both_forms_are_read() {
        let other = VERSION.replace("Generation>12</Generation", "VersionId>12</VersionId");
        assert_eq!(page("ListVersionsResult", &other).unwrap().versions[0].id, "12");
        for (encoding, key, id) in [
            ("EncodingType", "NextMarker", "NextGenerationMarker"),
            ("Encoding-Type", "NextKeyMarker", "NextVersionIdMarker"),
        ] {
            let text = format!(
                "<ListBucketResult><{encoding}>url</{encoding}><IsTruncated>true</IsTruncated>\
                 <{key}>a%2Bb+c</{key}><{id}>12</{id}>{}</ListBucketResult>",
                VERSION.replace("<Key>a<", "<Key>a%2Bb+c<")
            );
            let found = parse_generations(text.as_bytes()).unwrap();
            assert_eq!(found.versions[0].key, "a+b c", "{encoding}");
            assert_eq!(found.next, Some(("a+b c".to_string(), Some("12".to_string()))));
        }
    }

    #[test]
    fn what_is_missing_or_no_number_is_corrupt() {
        let without = |element: &str| {
            let (before, rest) = VERSION.split_once(&format!("<{element}>")).unwrap();
            let after = rest.split_once(&format!("</{element}>")).unwrap().1;
            format!("{before}{after}")
        };
        let mut lists = ["Key", "Generation", "Size", "IsLatest"].map(without).to_vec();
        for (number, other) in [
            (">12<", "><"),
            (">12<", ">null<"),
            (">12<", ">012<"),
            (">12<", ">-1<"),
            (">12<", ">+12<"),
            (">12<", ">12345678901234567890<"),
            (">7<", "><"),
            (">7<", ">-7<"),
            (">7<", ">seven<"),
            (">true<", ">yes<"),
        ] {
            lists.push(VERSION.replace(number, other));
        }
        lists.push("<Contents><Key>a</Key><Size>1</Size></Contents>".to_string());
        for list in lists {
            let error = page("ListBucketResult", &list).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{list}");
        }
        let endless = "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>";
        assert_eq!(parse_generations(endless.as_bytes()).unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(page("html", "").unwrap_err().kind(), Kind::Corrupt);
    }

    proptest! {
        #[test]
        fn any_generation_is_told_as_it_is(id in 1u64..10_000_000_000_000_000_000, size: u64) {
            let list = VERSION.replace(">12<", &format!(">{id}<"));
            let list = list.replace(">7<", &format!(">{size}<"));
            let found = page("ListBucketResult", &list).unwrap();
            prop_assert_eq!(&found.versions[0].id, &id.to_string());
            prop_assert_eq!(found.versions[0].meta.size_bytes, Some(size));
        }
    }
}

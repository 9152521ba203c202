use super::*;
use proptest::prelude::*;

/// As the service writes it, oldest first; `old` was written before versions were kept.
const PAGE: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<EnumerationResults ServiceEndpoint="https://a.blob.core.windows.net/" ContainerName="c"><Blobs>
<Blob><Name>k</Name><VersionId>2026-06-15T02:17:03.0755841Z</VersionId><Properties>
<Last-Modified>Mon, 15 Jun 2026 02:17:03 GMT</Last-Modified><Etag>0x1</Etag>
<Content-Length>0</Content-Length></Properties><OrMetadata /></Blob>
<Blob><Name>k</Name><VersionId>2026-06-15T02:17:03.6740094Z</VersionId>
<IsCurrentVersion>true</IsCurrentVersion><Properties>
<Last-Modified>Mon, 15 Jun 2026 02:17:03 GMT</Last-Modified><Etag>0x2</Etag>
<Content-Length>11</Content-Length><AccessTier>Cool</AccessTier></Properties></Blob>
<BlobPrefix><Name>d/</Name></BlobPrefix>
<Blob><Name>old</Name><Properties><Last-Modified>Mon, 15 Jun 2020 02:17:03 GMT</Last-Modified>
<Etag>0x3</Etag><Content-Length>3</Content-Length></Properties></Blob>
<Blob><Name>soft</Name><Deleted>true</Deleted>
<VersionId>2026-06-15T02:17:04.0000000Z</VersionId><Properties/></Blob>
<Blob><Name>dir</Name><Properties><ResourceType>directory</ResourceType></Properties></Blob>
</Blobs><NextMarker>2!92!MDAw</NextMarker></EnumerationResults>"#;

fn entry(key: &str, id: &str, is_latest: bool) -> VersionEntry {
    let (key, id) = (key.to_string(), id.to_string());
    VersionEntry { key, id, is_latest, is_marker: false, meta: ObjectMeta::default() }
}

#[test]
fn a_page_has_versions_and_what_never_had_one() {
    let page = parse_page(PAGE.as_bytes()).unwrap();
    let told: Vec<_> = page
        .versions
        .iter()
        .map(|it| (it.key.as_str(), it.id.as_str(), it.is_latest, it.meta.size_bytes))
        .collect();
    assert_eq!(
        told,
        [
            ("k", "2026-06-15T02:17:03.0755841Z", false, Some(0)),
            ("k", "2026-06-15T02:17:03.6740094Z", true, Some(11)),
            ("old", "null", true, Some(3)),
        ]
    );
    assert_eq!((page.prefixes, page.next.as_str()), (vec!["d/".to_string()], "2!92!MDAw"));
    assert_eq!(page.versions[1].meta.storage_class.as_deref(), Some("STANDARD_IA"));
}

#[test]
fn what_is_no_list_of_versions_is_corrupt() {
    let strange = PAGE.replace("2026-06-15T02:17:03.0755841Z", "yesterday");
    for xml in ["", "<html><body>login</body></html>", strange.as_str()] {
        assert_eq!(parse_page(xml.as_bytes()).unwrap_err().kind(), Kind::Corrupt, "{xml}");
    }
}

#[test]
fn a_version_is_a_time_or_null() {
    for id in ["null", "2026-06-15T02:17:03.0755841Z", "2026-06-15T02:17:03Z"] {
        assert!(check(&versioned("k", id)).is_ok(), "{id}");
    }
    assert!(check("k").is_ok());
    for id in ["", "17", "NULL", "2026-06-15", "2026-06-15T02:17:03.0755841+00:00"] {
        let error = check(&versioned("k", id)).unwrap_err();
        let told = (error.kind(), error.service_code());
        assert_eq!(told, (Kind::NotFound, Some("NoSuchVersion")), "{id}");
    }
}

#[test]
fn the_last_write_tells_whether_versions_are_kept() {
    let mut page = parse_page(PAGE.as_bytes()).unwrap().versions;
    assert_eq!(kept(&page), Versioning::Enabled);
    assert_eq!(kept(&page[2..]), Versioning::Never);
    assert_eq!(kept(&[]), Versioning::Never);
    // Written again since they are not kept any more.
    page[2].meta.modified = crate::answer::parse_http_date("Tue, 16 Jun 2026 02:17:03 GMT");
    assert_eq!(kept(&page), Versioning::Suspended);
}

#[test]
fn a_marker_is_passed_and_nothing_else() {
    let (early, late) = ("2026-06-15T02:17:03.0755841Z", "2026-06-15T02:17:03.6740094Z");
    let behind =
        |version, key, id| Marker { key: "k", version }.admits(&entry(key, id, id == "null"));
    assert!(!behind(None, "k", early) && behind(None, "l", early) && !behind(None, "j", early));
    assert!(behind(Some(late), "k", early) && !behind(Some(late), "k", late));
    assert!(!behind(Some(early), "k", late) && !behind(Some(early), "k", "null"));
    assert!(behind(Some("null"), "k", late) && !behind(Some("null"), "k", "null"));
    let folds = |prefix| Marker { key: "d/x", version: None }.may_admit(prefix);
    assert!(folds("d/") && folds("e/") && !folds("c/"));
    // The prefix that a page ended with stands for all that it folds.
    assert!(!Marker { key: "d/", version: None }.may_admit("d/"));
}

proptest! {
    #[test]
    fn hostile_bytes_end_without_panic(cut in 0usize..PAGE.len(), bytes: Vec<u8>) {
        prop_assert!(parse_page(&PAGE.as_bytes()[..cut]).is_err());
        let mut xml = PAGE.as_bytes()[..cut].to_vec();
        xml.extend(bytes);
        xml.extend(&PAGE.as_bytes()[cut..]);
        let _ = parse_page(&xml);
    }

    #[test]
    fn what_has_no_id_comes_first_and_the_others_by_their_times(
        times in proptest::collection::btree_set(0i64..4_000_000_000, 1..6),
        shuffled: bool,
    ) {
        let id = |time: &i64| Timestamp::from_second(*time).unwrap().to_string();
        let mut entries: Vec<_> = times.iter().map(|time| entry("k", &id(time), false)).collect();
        entries.push(entry("k", "null", true));
        if shuffled {
            entries.reverse();
        }
        entries.sort_by(latest_first);
        let ids: Vec<_> = entries.iter().map(|it| it.id.clone()).collect();
        let wanted: Vec<_> =
            std::iter::once("null".to_string()).chain(times.iter().rev().map(id)).collect();
        prop_assert_eq!(ids, wanted);
    }
}

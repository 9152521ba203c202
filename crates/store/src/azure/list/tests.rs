use super::*;
use proptest::prelude::*;

fn parse_page(body: &[u8], start_after: Option<&str>) -> Result<ListPage> {
    parse(body).map(|listing| listing.flat(start_after))
}

const PAGE: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<EnumerationResults ServiceEndpoint="https://a.blob.core.windows.net/" ContainerName="c">
<Prefix>p/</Prefix><Delimiter>/</Delimiter><MaxResults>5</MaxResults><Blobs>
<Blob><Name>p/a&amp;b c</Name><Properties>
<Last-Modified>Fri, 20 Nov 2026 09:00:00 GMT</Last-Modified>
<Etag>0x8DF</Etag><Content-Length>12</Content-Length><Content-Type>text/csv</Content-Type>
</Properties>
<Metadata><owner>x</owner></Metadata></Blob>
<BlobPrefix><Name>p/dir/</Name></BlobPrefix>
<Blob><Name>p/dir</Name><Properties><Content-Length>0</Content-Length></Properties>
<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata></Blob>
<Blob><Name>p/dir2</Name><Properties><Content-Length>0</Content-Length>
<ResourceType>directory</ResourceType></Properties><Metadata/></Blob>
<Blob><Name Encoded="true">p/x%EF%BF%BEy%2F</Name><Properties><Content-Length>1</Content-Length></Properties></Blob>
</Blobs><NextMarker>2!92!MDAw</NextMarker></EnumerationResults>"#;

#[test]
fn page_has_objects_prefixes_and_marker_but_no_directories() {
    let page = parse_page(PAGE.as_bytes(), None).unwrap();
    let keys: Vec<_> = page.objects.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(keys, ["p/a&b c", "p/x\u{fffe}y/"]);
    assert_eq!(page.prefixes, ["p/dir/"]);
    assert_eq!(page.next.as_deref(), Some("m2!92!MDAw"));
    let meta = &page.objects[0].meta;
    assert_eq!((meta.size_bytes, meta.etag.clone()), (Some(12), Some(ETag("0x8DF".into()))));
    assert_eq!(meta.content_type.as_deref(), Some("text/csv"));
    assert!(meta.modified.is_some());
}

#[test]
fn start_after_is_filtered_and_travels_with_the_token() {
    let page = parse_page(PAGE.as_bytes(), Some("p/dir/z")).unwrap();
    assert_eq!(page.objects.len(), 1);
    assert_eq!(page.prefixes, ["p/dir/"], "names behind p/dir/z may lie in it");
    let page = parse_page(PAGE.as_bytes(), Some("p/e")).unwrap();
    assert!(page.prefixes.is_empty());
    let token = Token::parse(&page.next.unwrap()).unwrap();
    let expected = Token { marker: "2!92!MDAw".into(), start_after: Some("p/e".into()) };
    assert_eq!(token, expected);
}

#[test]
fn empty_page_may_have_a_successor() {
    let xml = "<EnumerationResults><Blobs/><NextMarker>x</NextMarker></EnumerationResults>";
    let page = parse_page(xml.as_bytes(), None).unwrap();
    assert!(page.objects.is_empty() && page.next.is_some());
}

#[test]
fn what_is_no_listing_is_corrupt() {
    for xml in [
        "",
        "<html><body>login</body></html>",
        "<Error><Code>x</Code></Error>",
        "<EnumerationResults><Blobs><Blob></Blob></Blobs></EnumerationResults>",
        "<EnumerationResults><Blobs><BlobPrefix/></Blobs></EnumerationResults>",
        "<EnumerationResults><Blobs><Blob><Name>a</Name><Properties><Content-Length>x</Content-Length>\
         </Properties></Blob></Blobs></EnumerationResults>",
        "<EnumerationResults><Blobs>",
    ] {
        assert_eq!(parse_page(xml.as_bytes(), None).unwrap_err().kind(), Kind::Corrupt, "{xml}");
    }
}

proptest! {
    #[test]
    fn tokens_come_back(marker in ".{0,12}", start_after in prop::option::of(".{0,12}")) {
        let token = Token { marker, start_after };
        prop_assert_eq!(Token::parse(&token.text()).unwrap(), token);
    }

    #[test]
    fn any_token_is_read_or_refused(text: String) {
        if let Err(error) = Token::parse(&text) {
            prop_assert_eq!(error.kind(), Kind::Invalid);
        }
    }

    #[test]
    fn a_page_cut_anywhere_is_no_shorter_page(cut in 0usize..PAGE.len()) {
        prop_assert!(parse_page(&PAGE.as_bytes()[..cut], None).is_err());
    }

    #[test]
    fn hostile_bytes_end_without_panic(cut in 0usize..PAGE.len(), bytes: Vec<u8>) {
        let mut xml = PAGE.as_bytes()[..cut].to_vec();
        xml.extend(bytes);
        xml.extend(&PAGE.as_bytes()[cut..]);
        let _ = parse_page(&xml, Some("p"));
    }

    #[test]
    fn names_survive_escaping(name in "[^\u{0}-\u{1f}\u{fffe}\u{ffff}]{1,10}") {
        let xml = format!(
            "<EnumerationResults><Blobs><Blob><Name>{}</Name></Blob></Blobs><NextMarker/></EnumerationResults>",
            xml::escape(&name)
        );
        let page = parse_page(xml.as_bytes(), None).unwrap();
        prop_assert_eq!(&page.objects[0].key, &name);
        prop_assert!(page.next.is_none());
    }
}

#[test]
fn a_name_with_a_type_is_of_a_hierarchical_account() {
    let listed = |names: &str| {
        let xml = format!("<EnumerationResults><Blobs>{names}</Blobs></EnumerationResults>");
        parse(xml.as_bytes()).unwrap().is_hierarchical
    };
    let typed = "<Properties><ResourceType>file</ResourceType></Properties>";
    assert_eq!(listed(""), None);
    assert_eq!(listed("<BlobPrefix><Name>a/</Name></BlobPrefix>"), None);
    let flat = "<Blob><Name>a</Name></Blob>";
    assert_eq!(listed(flat), Some(false));
    assert_eq!(listed(&format!("<Blob><Name>b</Name>{typed}</Blob>")), Some(true));
    assert_eq!(listed(&format!("<BlobPrefix><Name>b/</Name>{typed}</BlobPrefix>")), Some(true));
    assert_eq!(listed(&format!("<Blob><Name>b</Name>{typed}</Blob>{flat}")), Some(true));
}

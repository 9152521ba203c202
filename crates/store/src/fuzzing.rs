//! What a fuzzer feeds bytes to: every parser here of what others send.
//!
//! A body takes any bytes, must come back, and asserts what has to hold of whatever was parsed.
//! `fuzz/` runs the bodies under libFuzzer; the tests below run the same ones in every
//! `cargo test`.

/// Takes any bytes.
pub type Body = fn(&[u8]);

/// Every body by name, each with an input from which a fuzzer may begin.
pub const BODIES: &[(&str, Body, &[u8])] = &[
    (
        "http_head",
        crate::http::fuzzing::head,
        b"HTTP/1.1 206 Partial Content\r\ncontent-length: 5\r\ncontent-range: bytes 0-4/9\r\n\r\n\
          01234",
    ),
    (
        "http_chunked",
        crate::http::fuzzing::chunked,
        b"\x035;ext=1\r\nhello\r\n3\r\nabc\r\n0\r\ntrailer: x\r\n\r\n",
    ),
    (
        "http_proxy",
        crate::http::fuzzing::proxy,
        b"http://user:p%40w@px.example:3128/\n.corp, 10.0.0.0/8,plain.example:8443 [::1]\nx.corp",
    ),
    ("unpack", crate::unpack::fuzz, b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x4b\
          \x04\0\x43\xbe\xb7\xe8\x01\0\0\0"),
    ("xml", crate::xml::fuzz, b"<?xml version=\"1.0\"?><a b=\"c\"><d>&lt;e&amp;&#65;</d><f/></a>"),
    (
        "s3_replies",
        crate::s3::fuzzing::replies,
        b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t\
          </NextContinuationToken><Contents><Key>k</Key><LastModified>2026-01-02T03:04:05.000Z\
          </LastModified><ETag>\"e\"</ETag><Size>7</Size></Contents></ListBucketResult>",
    ),
    (
        "azure_replies",
        crate::azure::fuzzing::replies,
        b"<EnumerationResults><Blobs><Blob><Name Encoded=\"true\">a%20b</Name><Properties>\
          <Last-Modified>Mon, 01 Jan 2024 00:00:00 GMT</Last-Modified><Etag>0x1</Etag>\
          <Content-Length>7</Content-Length></Properties></Blob></Blobs><NextMarker>m</NextMarker>\
          </EnumerationResults>",
    ),
    (
        "azure_batch",
        crate::azure::fuzzing::batch,
        b"--b\r\nContent-Type: application/http\r\nContent-ID: 0\r\n\r\nHTTP/1.1 202 Accepted\r\n\
          x-ms-request-id: 1\r\n\r\n--b--",
    ),
    (
        "azure_ids",
        crate::azure::fuzzing::ids,
        b"DefaultEndpointsProtocol=https;AccountName=a;AccountKey=a2V5;EndpointSuffix=core.net",
    ),
    (
        "s3_versions",
        crate::s3::fuzzing::versions,
        b"<ListVersionsResult><IsTruncated>true</IsTruncated><EncodingType>url</EncodingType>\
          <NextKeyMarker>a%2Bb</NextKeyMarker><NextVersionIdMarker>v</NextVersionIdMarker><Version>\
          <Key>k</Key><VersionId>v</VersionId><IsLatest>true</IsLatest><ETag>\"e\"</ETag>\
          <LastModified>2026-01-02T03:04:05.000Z</LastModified><Size>7</Size></Version>\
          <DeleteMarker><Key>k</Key></DeleteMarker></ListVersionsResult>",
    ),
    (
        "s3_profiles",
        crate::s3::fuzzing::profiles,
        b"[profile a]\nrole_arn = arn:aws:iam::1:role/a\nsource_profile = b\n\
          duration_seconds = 900\n[profile b]\nsso_session = c\nsso_account_id = 1\n\
          sso_role_name = r\n[sso-session c]\nsso_region = us-east-2\n=\n\
          [default]\naws_access_key_id = K\nrole_arn = r\nsource_profile = default\n",
    ),
    ("s3_markers", crate::s3::fuzzing::markers, b"3:a/b2~mF1dTb\n1791390110617942"),
    ("azure_tokens", crate::azure::fuzzing::tokens, b"s3:a/b2!92!MDAwMDE"),
    (
        "hub_listing",
        crate::hub::fuzz,
        b"<https://h/api/datasets/me/lake/tree/main?cursor=a%3D>; rel=\"next\"\n\
          datasets/me/lake@refs%2Fpr%2F1/a\n[{\"type\":\"file\",\"oid\":\"1\",\"size\":5,\
          \"path\":\"a/b.csv\",\"lfs\":{\"oid\":\"2\",\"size\":9}}]",
    ),
    ("tags", crate::tags::fuzz, b"a=b&c%20d=e%26f&g"),
    (
        "tags_xml",
        crate::tags::fuzz,
        b"<Tagging><TagSet><Tag><Key>a</Key><Value>b&amp;c</Value></Tag></TagSet></Tagging>",
    ),
    (
        "file_attributes",
        crate::local::fuzzing::beside,
        b"{\"name\":\"k\",\"content_type\":\"a/b\",\"metadata\":[[\"a\",\"b\"]],\"version\":\"1f\",\
          \"is_marker\":true}",
    ),
    (
        "file_parts",
        crate::local::fuzzing::beside,
        b"part-00001-5-18ea99b2d9fac2a5-5-7871e\n.penstock-meta-1a-2b-3c",
    ),
    ("file_removal", crate::local::fuzzing::removal, b"1234:lake"),
    (
        "file_versions",
        crate::local::fuzzing::versions,
        b"0186ab3f2c4d5e6f7a1b2c3d4\nnull\n../0186ab3f2c4d5e6f7a1b2c3d4",
    ),
    ("file_names", crate::local::fuzzing::names, b"a/.penstock-dot.d/../b//"),
];

#[cfg(test)]
mod tests {
    use super::*;

    penstock_testkit::fuzzed!(BODIES);
}

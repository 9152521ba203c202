//! GetObjectAttributes: one request to the back end.

use crate::auth::still_let_in;
use crate::buckets::Buckets;
use crate::checksum::{HasChecksums as _, Sums};
use crate::get::{about_object, shown_tag, signed, size_of};
use crate::parts::PartSizes;
use crate::{classes, refuse, versions};
use penstock_store::ObjectMeta;
use s3s::{S3Request, S3Result, dto, s3_error};

/// Most parts of one page, as in S3.
const PARTS_MAX: i32 = 1000;

/// GetObjectAttributes.
pub(crate) async fn attributes(
    buckets: &Buckets,
    request: S3Request<dto::GetObjectAttributesInput>,
) -> S3Result<dto::GetObjectAttributesOutput> {
    let input = request.input;
    refuse::customer_key(input.sse_customer_algorithm.is_some())?;
    let asked = asked(&input.object_attributes)?;
    let bucket = buckets.get(&input.bucket).await?;
    let name = versions::name(&bucket, &input.key, input.version_id.as_deref())?;
    let meta = bucket.query().head(&bucket.at(&name)).await.map_err(about_object)?;
    still_let_in(&request.extensions, &meta)?;
    let wants = |name: &str| asked.contains(&name);
    let mut output = dto::GetObjectAttributesOutput {
        last_modified: meta.modified.map(dto::Timestamp::from),
        version_id: meta.version.clone(),
        ..Default::default()
    };
    if wants(dto::ObjectAttributes::ETAG) {
        output.e_tag = shown_tag(&bucket, meta.etag.as_ref());
    }
    if wants(dto::ObjectAttributes::OBJECT_SIZE) {
        output.object_size = Some(signed(size_of(&meta)?)?);
    }
    if wants(dto::ObjectAttributes::STORAGE_CLASS) {
        output.storage_class = Some(dto::StorageClass::from(classes::of(&meta).to_string()));
    }
    if wants(dto::ObjectAttributes::CHECKSUM) {
        let sums = Sums::of(&meta);
        output.checksum = (!sums.is_empty()).then(|| sums.to_dto());
    }
    if wants(dto::ObjectAttributes::OBJECT_PARTS) {
        output.object_parts = parts(&meta, input.max_parts, input.part_number_marker)?;
    }
    Ok(output)
}

const NAMES: [&str; 5] = [
    dto::ObjectAttributes::ETAG,
    dto::ObjectAttributes::OBJECT_SIZE,
    dto::ObjectAttributes::STORAGE_CLASS,
    dto::ObjectAttributes::CHECKSUM,
    dto::ObjectAttributes::OBJECT_PARTS,
];

/// The attributes by name. Clients send one header with a list, which s3s takes for one name.
fn asked(lines: &[dto::ObjectAttributes]) -> S3Result<Vec<&str>> {
    let names = lines.iter().flat_map(|line| line.as_str().split(','));
    let names: Vec<&str> = names.map(str::trim).filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        return Err(s3_error!(
            InvalidRequest,
            "The x-amz-object-attributes header specifying the attributes to be retrieved is \
             either missing or empty"
        ));
    }
    if names.iter().any(|name| !NAMES.contains(name)) {
        return Err(s3_error!(InvalidArgument, "Invalid attribute name specified."));
    }
    Ok(names)
}

/// A page of the parts, as far as the object's notes tell of them.
fn parts(
    meta: &ObjectMeta,
    max_parts: Option<i32>,
    marker: Option<i32>,
) -> S3Result<Option<dto::GetObjectAttributesParts>> {
    let Some(sizes) = PartSizes::of(meta) else {
        let total_parts_count = PartSizes::count_told(meta);
        return Ok(total_parts_count.map(|count| dto::GetObjectAttributesParts {
            total_parts_count: Some(count),
            ..Default::default()
        }));
    };
    let max_parts = match max_parts.unwrap_or(PARTS_MAX) {
        max @ 0.. => max.min(PARTS_MAX),
        _ => return Err(s3_error!(InvalidArgument, "x-amz-max-parts must not be negative")),
    };
    let marker = marker.unwrap_or(0).max(0);
    let count = i32::try_from(sizes.count()).unwrap_or(i32::MAX);
    let last = marker.saturating_add(max_parts).min(count);
    let part = |number: i32| -> S3Result<dto::ObjectPart> {
        let place = u32::try_from(number).ok();
        let size = place.and_then(|place| sizes.range(place)).map(|range| range.len());
        let sums = place.and_then(|place| Sums::of_part(meta, place)).unwrap_or_default();
        let size = size.map(signed).transpose()?;
        let mut part = dto::ObjectPart { part_number: Some(number), size, ..Default::default() };
        part.set_checksums(&sums);
        Ok(part)
    };
    let parts = (marker.saturating_add(1)..=last).map(part).collect::<S3Result<Vec<_>>>()?;
    Ok(Some(dto::GetObjectAttributesParts {
        total_parts_count: Some(count),
        is_truncated: Some(last < count),
        max_parts: Some(max_parts),
        part_number_marker: Some(marker),
        next_part_number_marker: Some(last),
        parts: Some(parts),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_known_names() {
        let lines = |text: &str| vec![dto::ObjectAttributes::from(text.to_string())];
        assert_eq!(asked(&lines("ETag, Checksum")).unwrap(), ["ETag", "Checksum"]);
        let code = |text: &str| asked(&lines(text)).unwrap_err().code().as_str().to_string();
        assert_eq!(code("ETag,Size"), "InvalidArgument");
        assert_eq!(code(" "), "InvalidRequest");
    }

    #[test]
    fn parts_come_in_pages() {
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        let notes = vec![pair("@parts", "5x3,2"), pair("@part-sums", "sha1:a,b,c,d")];
        let meta = ObjectMeta { metadata: notes, ..Default::default() };
        let page = |max, marker| parts(&meta, max, marker).unwrap().unwrap();
        let all = page(None, None);
        assert_eq!((all.total_parts_count, all.is_truncated), (Some(4), Some(false)));
        let shown = |page: &dto::GetObjectAttributesParts| -> Vec<_> {
            let parts = page.parts.iter().flatten();
            parts.map(|part| (part.part_number, part.size, part.checksum_sha1.clone())).collect()
        };
        assert_eq!(shown(&all)[3], (Some(4), Some(2), Some("d".to_string())));
        let one = page(Some(1), Some(2));
        assert_eq!(shown(&one), [(Some(3), Some(5), Some("c".to_string()))]);
        assert_eq!((one.is_truncated, one.next_part_number_marker), (Some(true), Some(3)));
        for marker in [9, i32::MAX] {
            assert_eq!(shown(&page(Some(10), Some(marker))), []);
        }
        assert!(parts(&meta, Some(-1), None).is_err());
        assert!(parts(&ObjectMeta::default(), None, None).unwrap().is_none());
    }
}

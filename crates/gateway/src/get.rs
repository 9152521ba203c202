//! Get, head and attributes of objects: one request to the back end, two where it has no ranges
//! from the end or a part has to be found.

use crate::body::ObjectBody;
use crate::buckets::{Bucket, Buckets};
use crate::checksum::{HasChecksums as _, Sums};
use crate::conditions::{ReadConditions, if_range, read_conditions};
use crate::error::{Subject, to_s3};
use crate::handover::Handover;
use crate::headers::{set_object_headers, tag_count, told_expires};
use crate::notes::came_between;
use crate::parts::PartSizes;
use crate::terms::{Terms, not_modified};
use crate::{overrides, refuse, versions};
use http::header::IF_RANGE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use penstock_base::{ByteRange, Error};
use penstock_engine::{Query, Stream};
use penstock_store::{ETag, GetRange, GetRequest, ObjectMeta};
use s3s::dto::{self, StreamingBlob};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result, s3_error};
use std::sync::Arc;

const TAGGING_COUNT: HeaderName = HeaderName::from_static("x-amz-tagging-count");

pub(crate) fn about_object(error: Error) -> S3Error {
    to_s3(Subject::Object, error)
}

/// A store's tag as the answer carries it.
pub(crate) fn shown_tag(bucket: &Bucket, etag: Option<&ETag>) -> Option<dto::ETag> {
    etag.map(|etag| dto::ETag::Strong(bucket.tags.shown(etag).0))
}

/// The store's form of a range.
pub(crate) fn store_range(range: Option<&dto::Range>) -> GetRange {
    match range {
        None => GetRange::All,
        Some(dto::Range::Int { first, last: None }) => GetRange::From(*first),
        Some(dto::Range::Int { first, last: Some(last) }) => {
            GetRange::Bounded(ByteRange { start: *first, end: last.saturating_add(1) })
        }
        Some(dto::Range::Suffix { length }) => GetRange::Suffix(*length),
    }
}

/// Size of an object.
///
/// # Errors
/// `InternalError` from a back end that does not tell.
pub(crate) fn size_of(meta: &ObjectMeta) -> S3Result<u64> {
    meta.size_bytes.ok_or_else(|| s3_error!(InternalError, "the store told no size"))
}

/// A count of bytes as S3 writes it.
///
/// # Errors
/// `InternalError` past 8 EiB.
pub(crate) fn signed(bytes: u64) -> S3Result<i64> {
    i64::try_from(bytes).map_err(|_| s3_error!(InternalError, "the size does not fit"))
}

/// Begins a read of whatever version there is.
pub(crate) async fn start(bucket: &Bucket, key: &str, range: GetRange) -> S3Result<Stream> {
    let terms = Terms { conditions: &ReadConditions::default(), standings: &[] };
    start_by(&bucket.query(), bucket, key, (range, terms)).await
}

/// Begins a read on some terms, by a query that says how old what is known of the object may be and
/// has the engine's retries: one request, which tells the back end of the version that is wanted,
/// or of the version or time that the reader has. Conditions that a back end does not judge are
/// judged by its answer's head, here and once more by [`Terms::judge`].
///
/// A range from the end, where the store has none, is found with a request before, and tied to the
/// version that it told.
pub(crate) async fn start_by(
    query: &Query,
    bucket: &Bucket,
    key: &str,
    (range, terms): (GetRange, Terms<'_>),
) -> S3Result<Stream> {
    let at = bucket.at(key);
    let conditions = terms.conditions;
    let is_suffix = matches!(range, GetRange::Suffix(_));
    let asked = if is_suffix && !bucket.store.capabilities().suffix_range {
        let meta = query.head(&at).await.map_err(about_object)?;
        terms.judge(bucket, &meta)?;
        pinned(range.resolve(size_of(&meta)?), &meta)
    } else {
        if conditions.wants_none() && bucket.store.origin().is_some() {
            // No store takes this for a read, and whatever is there is not sent.
            let meta = query.head(&at).await.map_err(about_object)?;
            terms.judge(bucket, &meta)?;
        }
        GetRequest {
            range,
            if_match: conditions.wanted_version().map(|etag| bucket.tags.kept(etag)),
            if_none_match: conditions.told_version().and_then(|etag| bucket.tags.behind(etag)),
            if_modified_since: conditions.told_time(),
        }
    };
    let known = asked.if_none_match.clone();
    let is_conditional = known.is_some() || asked.if_modified_since.is_some();
    match query.get(&at, asked).await {
        Err(error) if error.is_not_modified() && !is_conditional => {
            Err(s3_error!(InternalError, "the back end says 304, and was asked under no condition"))
        }
        Err(error) if error.is_not_modified() => {
            // Of a tag that is known it is that one.
            let etag = error.etag().map(|tag| ETag(tag.to_string())).or(known);
            if etag.is_none() || !terms.are_met_by(etag.as_ref()) {
                // To tell it is the back end's duty (RFC 9110, section 15.4.5); Azurite does not.
                // What was replaced meanwhile was the reader's a moment ago, unless that hangs on
                // the version.
                look(query, bucket, key, terms).await?;
                if terms.are_bound() {
                    return Err(came_between());
                }
            }
            Err(not_modified(etag.map(|etag| bucket.tags.shown(&etag)).as_ref()))
        }
        Err(error) => {
            let error = about_object(error);
            if terms.hide(&error) {
                // The answer tells which version there is.
                let meta = look(query, bucket, key, terms).await?;
                if !terms.are_met_by(meta.etag.as_ref()) {
                    return Err(came_between());
                }
            }
            Err(error)
        }
        Ok(stream) => Ok(stream),
    }
}

/// The version that is there by now, which is told of in place of the one of which the back end
/// said something.
///
/// # Errors
/// As [`Terms::judge`].
async fn look(query: &Query, bucket: &Bucket, key: &str, terms: Terms<'_>) -> S3Result<ObjectMeta> {
    let meta = query.head(&bucket.at(key)).await.map_err(about_object)?;
    terms.judge(bucket, &meta).map(|()| meta)
}

/// A read of these bytes of the version that was looked at.
fn pinned(range: ByteRange, meta: &ObjectMeta) -> GetRequest {
    GetRequest {
        range: GetRange::Bounded(range),
        if_match: meta.etag.clone(),
        ..GetRequest::default()
    }
}

/// What a read asks for.
struct Wanted {
    range: GetRange,
    /// Number of the part that is meant.
    part: Option<u32>,
    is_ranged: bool,
}

impl Wanted {
    fn new(range: Option<&dto::Range>, part_number: Option<i32>) -> S3Result<Self> {
        let part = part_number.map(crate::parts::part_number).transpose()?;
        if part.is_some() && range.is_some() {
            return Err(s3_error!(
                InvalidRequest,
                "Cannot specify both Range header and partNumber query parameter"
            ));
        }
        let is_ranged = range.is_some();
        Ok(Wanted { range: store_range(range), part, is_ranged })
    }

    /// Whether a range of a version is wanted that the object is no longer (If-Range).
    fn is_of_another(&self, bucket: &Bucket, headers: &HeaderMap, meta: &ObjectMeta) -> bool {
        let validator = headers.get(IF_RANGE).filter(|_| self.is_ranged);
        validator.and_then(|value| value.to_str().ok()).is_some_and(|validator| {
            let shown = meta.etag.as_ref().map(|etag| bucket.tags.shown(etag));
            !if_range(validator, shown.as_ref(), meta.modified)
        })
    }

    /// Content-Range of the answer, `None` for a whole object. A part counts as a range unless the
    /// object is empty.
    ///
    /// # Errors
    /// `InvalidRange` when not a byte of the object is in the range.
    fn content_range(&self, found: ByteRange, size: u64) -> S3Result<Option<String>> {
        if !self.is_ranged && (self.part.is_none() || size == 0) {
            return Ok(None);
        }
        if found.is_empty() {
            let mut error = s3_error!(InvalidRange, "The requested range is not satisfiable");
            if let Ok(value) = HeaderValue::from_str(&format!("bytes */{size}")) {
                error.set_headers(HeaderMap::from_iter([(http::header::CONTENT_RANGE, value)]));
            }
            return Err(error);
        }
        Ok(Some(format!("bytes {}-{}/{size}", found.start, found.end - 1)))
    }
}

/// The bytes of a part, by what the object's notes say of its parts; an object that was put whole
/// is its own first part.
fn part_range(number: u32, meta: &ObjectMeta) -> S3Result<(ByteRange, Option<i32>)> {
    let size = size_of(meta)?;
    let parts = PartSizes::of(meta);
    let found = match &parts {
        Some(parts) => parts.range(number),
        None => (number == 1).then_some(ByteRange { start: 0, end: size }),
    };
    let range = found.filter(|range| range.end <= size).ok_or_else(|| {
        let mut error = S3Error::with_message(
            S3ErrorCode::Custom("InvalidPartNumber".into()),
            "The requested partnumber is not satisfiable",
        );
        error.set_status_code(StatusCode::RANGE_NOT_SATISFIABLE);
        error
    })?;
    Ok((range, parts.and_then(|parts| i32::try_from(parts.count()).ok())))
}

/// Begins a read of a part on some terms, and tells its size and how many there are. The first
/// is at the start, any other is looked up, and those of a service that keeps accounts of parts by
/// itself are.
async fn start_part(
    bucket: &Bucket,
    name: &str,
    number: u32,
    terms: Terms<'_>,
) -> S3Result<(Stream, u64, Option<i32>)> {
    let (query, at) = (bucket.query(), bucket.at(name));
    let told = bucket.store.part_place(&bucket.key(name), number).await.map_err(about_object)?;
    let (meta, range, count) = match told {
        Some(place) => {
            let count = PartSizes::count_told(&place.meta);
            (place.meta, place.range, count)
        }
        None if number == 1 => {
            let stream = start_by(&query, bucket, name, (GetRange::All, terms)).await?;
            let (range, count) = part_range(1, stream.meta())?;
            return Ok((stream, range.len(), count));
        }
        None => {
            let meta = query.head(&at).await.map_err(about_object)?;
            terms.let_in(&meta)?;
            let (range, count) = part_range(number, &meta)?;
            (meta, range, count)
        }
    };
    terms.judge(bucket, &meta)?;
    let stream = query.get(&at, pinned(range, &meta)).await.map_err(about_object)?;
    Ok((stream, range.len(), count))
}

/// The checksums that an answer tells when it is asked to: those of the part, or of the whole.
fn told_checksums(mode: Option<&dto::ChecksumMode>, wanted: &Wanted, meta: &ObjectMeta) -> Sums {
    let is_enabled = mode.is_some_and(|mode| mode.as_str() == dto::ChecksumMode::ENABLED);
    match wanted.part {
        _ if !is_enabled || wanted.is_ranged => Sums::default(),
        Some(number) if PartSizes::of(meta).is_some() => {
            Sums::of_part(meta, number).unwrap_or_default()
        }
        _ => Sums::of(meta),
    }
}

/// GetObject.
pub(crate) async fn get(
    buckets: &Buckets,
    request: S3Request<dto::GetObjectInput>,
) -> S3Result<S3Response<dto::GetObjectOutput>> {
    refuse::encryption_of_read(&request.headers)?;
    let chosen = overrides::chosen(&request)?;
    let mut input = request.input;
    let mut wanted = Wanted::new(input.range.as_ref(), input.part_number)?;
    let bucket = buckets.get(&input.bucket).await?;
    let name = versions::name(&bucket, &input.key, input.version_id.as_deref())?;
    let conditions = read_conditions!(input);
    let terms = Terms::of(&request.extensions, &conditions);
    let (stream, len, parts_count) = match wanted.part {
        Some(number) => start_part(&bucket, &name, number, terms).await?,
        None => {
            let (query, asked) = (bucket.query(), (wanted.range, terms));
            let mut stream = start_by(&query, &bucket, &name, asked).await?;
            if wanted.is_of_another(&bucket, &request.headers, stream.meta()) {
                wanted = Wanted::new(None, None)?;
                stream = start(&bucket, &name, wanted.range).await?;
            }
            let len = stream.range().len();
            (stream, len, None)
        }
    };
    let meta = stream.meta().clone();
    terms.judge(&bucket, &meta)?;
    let (size, start) = (size_of(&meta)?, stream.range().start);
    let found = ByteRange { start, end: start + len };
    let content_range = wanted.content_range(found, size)?;
    let status = content_range.is_some().then_some(StatusCode::PARTIAL_CONTENT);
    let mut output = dto::GetObjectOutput {
        server_side_encryption: bucket.encryption(),
        accept_ranges: Some("bytes".to_string()),
        content_length: Some(signed(len)?),
        e_tag: shown_tag(&bucket, meta.etag.as_ref()),
        last_modified: meta.modified.map(dto::Timestamp::from),
        parts_count,
        ..Default::default()
    };
    set_object_headers!(output, &meta);
    output.tag_count = tag_count(&meta);
    let sums = told_checksums(input.checksum_mode.as_ref(), &wanted, &meta);
    output.set_checksums(&sums);
    output.content_range = content_range;
    let handover = request.extensions.get::<Arc<Handover>>().cloned();
    let body = ObjectBody::new(buckets.reads(stream), len).handing_over(handover);
    let body = s3s::Body::http_body_unsync(body);
    output.body = Some(StreamingBlob::from(body));
    let mut response = S3Response::new(output);
    response.status = status;
    response.headers = sums.headers();
    response.headers.extend(told_expires(&meta));
    response.headers.extend(chosen);
    Ok(response)
}

/// HeadObject.
pub(crate) async fn head(
    buckets: &Buckets,
    request: S3Request<dto::HeadObjectInput>,
) -> S3Result<S3Response<dto::HeadObjectOutput>> {
    refuse::encryption_of_read(&request.headers)?;
    let chosen = overrides::chosen(&request)?;
    let mut input = request.input;
    let mut wanted = Wanted::new(input.range.as_ref(), input.part_number)?;
    let bucket = buckets.get(&input.bucket).await?;
    let name = versions::name(&bucket, &input.key, input.version_id.as_deref())?;
    let conditions = read_conditions!(input);
    let terms = Terms::of(&request.extensions, &conditions);
    let told = match wanted.part {
        Some(number) => bucket.store.part_place(&bucket.key(&name), number).await,
        None => Ok(None),
    };
    let (meta, found, parts_count) = match (told.map_err(about_object)?, wanted.part) {
        (Some(place), _) => {
            let count = PartSizes::count_told(&place.meta);
            (place.meta, place.range, count)
        }
        (None, part) => {
            let meta = bucket.query().head(&bucket.at(&name)).await.map_err(about_object)?;
            terms.let_in(&meta)?;
            if wanted.is_of_another(&bucket, &request.headers, &meta) {
                wanted = Wanted::new(None, None)?;
            }
            let (found, count) = match part {
                Some(number) => part_range(number, &meta)?,
                None => (wanted.range.resolve(size_of(&meta)?), None),
            };
            (meta, found, count)
        }
    };
    terms.judge(&bucket, &meta)?;
    let size = size_of(&meta)?;
    let content_range = wanted.content_range(found, size)?;
    let status = content_range.is_some().then_some(StatusCode::PARTIAL_CONTENT);
    let mut output = dto::HeadObjectOutput {
        server_side_encryption: bucket.encryption(),
        accept_ranges: Some("bytes".to_string()),
        content_length: Some(signed(found.len())?),
        e_tag: shown_tag(&bucket, meta.etag.as_ref()),
        last_modified: meta.modified.map(dto::Timestamp::from),
        parts_count,
        ..Default::default()
    };
    set_object_headers!(output, &meta);
    let sums = told_checksums(input.checksum_mode.as_ref(), &wanted, &meta);
    output.set_checksums(&sums);
    output.content_range = content_range;
    let mut response = S3Response::new(output);
    response.status = status;
    response.headers = sums.headers();
    response.headers.extend(told_expires(&meta));
    response.headers.extend(chosen);
    // s3s has no field for it here.
    response
        .headers
        .extend(tag_count(&meta).map(|count| (TAGGING_COUNT, HeaderValue::from(count))));
    Ok(response)
}

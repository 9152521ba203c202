//! Get, head, put, copy and delete of objects.

use crate::body::ObjectBody;
use crate::buckets::Buckets;
use crate::conditions::{ReadConditions, Tag, Verdict, write_condition};
use crate::error::{Subject, to_s3};
use crate::headers::{ObjectHeaders, object_headers, set_object_headers};
use crate::receive::{check_length, receive};
use crate::refuse;
use futures_util::future::join_all;
use http::{HeaderMap, HeaderValue, StatusCode};
use penstock_base::{ByteRange, Error, Kind};
use penstock_store::local::Staged;
use penstock_store::{
    Body, ETag, GetRange, GetRequest, GetResponse, LocalStore, ObjectMeta, PutOptions, PutResult,
    Store as _,
};
use s3s::dto::{self, StreamingBlob};
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};

/// Bytes per piece of a copy.
const COPY_PIECE_BYTES: usize = 1 << 20;
/// Objects that one batch removes at the same time.
const DELETES_AT_ONCE: usize = 16;
/// Most objects of one batch, as in S3.
const DELETES_MAX: usize = 1000;

pub(crate) fn about_object(error: Error) -> S3Error {
    to_s3(Subject::Object, error)
}

fn tag(etag: &Option<ETag>) -> Option<dto::ETag> {
    etag.as_ref().map(|etag| dto::ETag::Strong(etag.0.clone()))
}

/// The ETag of a finished write.
pub(crate) fn result_tag(result: &PutResult) -> Option<dto::ETag> {
    tag(&result.etag)
}

/// 304 and 412 carry the tag, so that the client knows which version it has.
fn condition_error(verdict: Verdict, meta: &ObjectMeta) -> Option<S3Error> {
    let mut error = match verdict {
        Verdict::Proceed => return None,
        Verdict::NotModified => s3_error!(NotModified, "Not Modified"),
        Verdict::Failed => s3_error!(
            PreconditionFailed,
            "At least one of the pre-conditions you specified did not hold"
        ),
    };
    let value = meta.etag.as_ref().map(|etag| HeaderValue::from_str(&etag.header_value()));
    if let Some(Ok(value)) = value {
        error.set_headers(HeaderMap::from_iter([(http::header::ETAG, value)]));
    }
    Some(error)
}

fn store_range(range: Option<&dto::Range>) -> GetRange {
    match range {
        None => GetRange::All,
        Some(dto::Range::Int { first, last: None }) => GetRange::From(*first),
        Some(dto::Range::Int { first, last: Some(last) }) => {
            GetRange::Bounded(ByteRange { start: *first, end: last.saturating_add(1) })
        }
        Some(dto::Range::Suffix { length }) => GetRange::Suffix(*length),
    }
}

/// Content-Range of an answer, `None` for a whole object.
///
/// # Errors
/// `InvalidRange` when not a byte of the object is in the range.
fn content_range(
    asked: Option<&dto::Range>,
    found: ByteRange,
    size: u64,
) -> S3Result<Option<String>> {
    if asked.is_none() {
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

fn size_of(meta: &ObjectMeta) -> S3Result<u64> {
    meta.size_bytes.ok_or_else(|| s3_error!(InternalError, "the store told no size"))
}

fn signed(bytes: u64) -> S3Result<i64> {
    i64::try_from(bytes).map_err(|_| s3_error!(InternalError, "the size does not fit"))
}

/// GetObject.
pub(crate) async fn get(
    buckets: &Buckets,
    request: S3Request<dto::GetObjectInput>,
) -> S3Result<S3Response<dto::GetObjectOutput>> {
    let input = request.input;
    refuse::part_number(input.part_number)?;
    refuse::version(input.version_id.as_deref())?;
    refuse::customer_key(input.sse_customer_algorithm.as_deref())?;
    let store = buckets.get(&input.bucket).await?;
    let asked = GetRequest { range: store_range(input.range.as_ref()), if_match: None };
    let found = store.get(&input.key, asked).await.map_err(about_object)?;
    let conditions = ReadConditions {
        if_match: input.if_match.map(Tag::from),
        if_none_match: input.if_none_match.map(Tag::from),
        if_modified_since: input.if_modified_since,
        if_unmodified_since: input.if_unmodified_since,
    };
    let verdict = conditions.evaluate(found.meta.etag.as_ref(), found.meta.modified);
    if let Some(error) = condition_error(verdict, &found.meta) {
        return Err(error);
    }
    let size = size_of(&found.meta)?;
    let content_range = content_range(input.range.as_ref(), found.range, size)?;
    let status = content_range.is_some().then_some(StatusCode::PARTIAL_CONTENT);
    let len = found.range.len();
    let mut output = dto::GetObjectOutput {
        accept_ranges: Some("bytes".to_string()),
        content_length: Some(signed(len)?),
        content_range,
        e_tag: tag(&found.meta.etag),
        last_modified: found.meta.modified.map(dto::Timestamp::from),
        ..Default::default()
    };
    set_object_headers!(output, &found.meta);
    let body = s3s::Body::http_body_unsync(ObjectBody::new(found.body, len));
    output.body = Some(StreamingBlob::from(body));
    let mut response = S3Response::new(output);
    response.status = status;
    Ok(response)
}

/// HeadObject.
pub(crate) async fn head(
    buckets: &Buckets,
    request: S3Request<dto::HeadObjectInput>,
) -> S3Result<S3Response<dto::HeadObjectOutput>> {
    let input = request.input;
    refuse::part_number(input.part_number)?;
    refuse::version(input.version_id.as_deref())?;
    refuse::customer_key(input.sse_customer_algorithm.as_deref())?;
    let store = buckets.get(&input.bucket).await?;
    let meta = store.stat(&input.key).await.map_err(about_object)?;
    let conditions = ReadConditions {
        if_match: input.if_match.map(Tag::from),
        if_none_match: input.if_none_match.map(Tag::from),
        if_modified_since: input.if_modified_since,
        if_unmodified_since: input.if_unmodified_since,
    };
    let verdict = conditions.evaluate(meta.etag.as_ref(), meta.modified);
    if let Some(error) = condition_error(verdict, &meta) {
        return Err(error);
    }
    let size = size_of(&meta)?;
    let found = store_range(input.range.as_ref()).resolve(size);
    let content_range = content_range(input.range.as_ref(), found, size)?;
    let status = content_range.is_some().then_some(StatusCode::PARTIAL_CONTENT);
    let mut output = dto::HeadObjectOutput {
        accept_ranges: Some("bytes".to_string()),
        content_length: Some(signed(found.len())?),
        content_range,
        e_tag: tag(&meta.etag),
        last_modified: meta.modified.map(dto::Timestamp::from),
        ..Default::default()
    };
    set_object_headers!(output, &meta);
    let mut response = S3Response::new(output);
    response.status = status;
    Ok(response)
}

/// PutObject.
pub(crate) async fn put(
    buckets: &Buckets,
    mut request: S3Request<dto::PutObjectInput>,
) -> S3Result<dto::PutObjectOutput> {
    let trailers = request.trailing_headers.take();
    let input = &mut request.input;
    refuse::acl(input.acl.as_ref().map(|acl| acl.as_str()))?;
    refuse::unkept_headers(&request.headers)?;
    if input.write_offset_bytes.is_some() {
        return Err(s3_error!(NotImplemented, "PutObject with x-amz-write-offset-bytes"));
    }
    check_length(input.content_length)?;
    let condition = write_condition(input.if_match.take(), input.if_none_match.take())?;
    let options = object_headers!(input).into_options(condition)?;
    let store = buckets.get(&input.bucket).await?;
    let len = input.content_length.and_then(|len| u64::try_from(len).ok());
    let mut staged =
        store.stage(&input.key, len, &options.condition).await.map_err(about_object)?;
    let body = input.body.take();
    let sums = receive(&mut staged, body, &request.headers, trailers).await?;
    let result = staged.place(&options).await.map_err(about_object)?;
    Ok(dto::PutObjectOutput {
        e_tag: result_tag(&result),
        checksum_crc32: sums.checksum_crc32,
        checksum_crc32c: sums.checksum_crc32c,
        checksum_crc64nvme: sums.checksum_crc64nvme,
        checksum_sha1: sums.checksum_sha1,
        checksum_sha256: sums.checksum_sha256,
        ..Default::default()
    })
}

/// The source of a copy: an open object of one version.
pub(crate) struct Source {
    pub found: GetResponse,
}

/// What a copy asks of its source.
pub(crate) struct SourceRequest {
    pub source: dto::CopySource,
    pub range: Option<dto::Range>,
    pub conditions: ReadConditions,
}

impl Source {
    /// Opens the source and weighs the conditions on it.
    pub async fn open(buckets: &Buckets, request: SourceRequest) -> S3Result<Self> {
        let (bucket, key) = source_name(&request.source)?;
        let store = buckets.get(bucket).await?;
        let asked = GetRequest { range: store_range(request.range.as_ref()), if_match: None };
        let found = store.get(key, asked).await.map_err(about_object)?;
        let verdict = request.conditions.evaluate(found.meta.etag.as_ref(), found.meta.modified);
        // A copy knows no 304: every condition that does not hold is a failed one.
        let verdict = if verdict == Verdict::Proceed { verdict } else { Verdict::Failed };
        if let Some(error) = condition_error(verdict, &found.meta) {
            return Err(error);
        }
        if let Some(range) = &request.range {
            let size = size_of(&found.meta)?;
            if range.check(size).is_err_and(|_| true) || found.range.is_empty() {
                return Err(s3_error!(
                    InvalidRange,
                    "The range of the copy source is not satisfiable"
                ));
            }
        }
        Ok(Source { found })
    }

    /// Moves the bytes into `staged`, all from the one version that is open.
    pub async fn copy_to(&mut self, staged: &mut Staged) -> S3Result<()> {
        copy_body(&mut self.found.body, self.found.range.len(), staged).await.map_err(about_object)
    }
}

fn source_name(source: &dto::CopySource) -> S3Result<(&str, &str)> {
    match source {
        dto::CopySource::Bucket { bucket, key, version_id } => {
            refuse::version(version_id.as_deref())?;
            Ok((bucket, key))
        }
        _ => Err(s3_error!(NotImplemented, "copies from access points or outposts")),
    }
}

async fn copy_body(body: &mut Body, len: u64, staged: &mut Staged) -> penstock_base::Result<()> {
    let mut left = len;
    let mut buffer = bytes::BytesMut::new();
    while left > 0 {
        buffer.resize(left.min(COPY_PIECE_BYTES as u64) as usize, 0);
        let read = body.read(&mut buffer).await?;
        if read == 0 {
            return Err(Error::new(Kind::Corrupt, "the source ended before its size"));
        }
        buffer.truncate(read);
        left -= read as u64;
        staged.write(buffer.split().freeze()).await?;
    }
    Ok(())
}

/// CopyObject.
pub(crate) async fn copy(
    buckets: &Buckets,
    mut request: S3Request<dto::CopyObjectInput>,
) -> S3Result<dto::CopyObjectOutput> {
    let input = &mut request.input;
    refuse::acl(input.acl.as_ref().map(|acl| acl.as_str()))?;
    refuse::unkept_headers(&request.headers)?;
    let replace = match input.metadata_directive.as_ref().map(|directive| directive.as_str()) {
        None | Some(dto::MetadataDirective::COPY) => false,
        Some(dto::MetadataDirective::REPLACE) => true,
        Some(_) => return Err(s3_error!(InvalidArgument, "Unknown metadata directive.")),
    };
    let (from_bucket, from_key) = source_name(&input.copy_source)?;
    if !replace && from_bucket == input.bucket && from_key == input.key {
        return Err(s3_error!(
            InvalidRequest,
            "This copy request is illegal because it is trying to copy an object to itself without \
             changing the object's metadata."
        ));
    }
    let condition = destination_condition(&request.headers)?;
    let conditions = ReadConditions {
        if_match: input.copy_source_if_match.take().map(Tag::from),
        if_none_match: input.copy_source_if_none_match.take().map(Tag::from),
        if_modified_since: input.copy_source_if_modified_since.take(),
        if_unmodified_since: input.copy_source_if_unmodified_since.take(),
    };
    let source = input.copy_source.clone();
    let mut source =
        Source::open(buckets, SourceRequest { source, range: None, conditions }).await?;
    let headers =
        if replace { object_headers!(input) } else { ObjectHeaders::from_meta(&source.found.meta) };
    let options = headers.into_options(condition)?;
    let store = buckets.get(&input.bucket).await?;
    let len = Some(source.found.range.len());
    let mut staged =
        store.stage(&input.key, len, &options.condition).await.map_err(about_object)?;
    source.copy_to(&mut staged).await?;
    let result = staged.place(&options).await.map_err(about_object)?;
    Ok(dto::CopyObjectOutput {
        copy_object_result: Some(dto::CopyObjectResult {
            e_tag: result_tag(&result),
            last_modified: result.modified.map(dto::Timestamp::from),
            ..Default::default()
        }),
        ..Default::default()
    })
}

/// If-Match and If-None-Match on the target of a copy, which s3s leaves in the headers.
fn destination_condition(headers: &HeaderMap) -> S3Result<penstock_store::WriteCondition> {
    let read = |name: http::HeaderName| {
        let Some(value) = headers.get(&name) else { return Ok(None) };
        dto::ETagCondition::parse_http_header(value.as_bytes())
            .map(Some)
            .map_err(|_| s3_error!(InvalidArgument, "the header {name} holds no ETag"))
    };
    write_condition(read(http::header::IF_MATCH)?, read(http::header::IF_NONE_MATCH)?)
}

/// DeleteObject.
pub(crate) async fn delete(
    buckets: &Buckets,
    input: dto::DeleteObjectInput,
) -> S3Result<dto::DeleteObjectOutput> {
    refuse::version(input.version_id.as_deref())?;
    if input.if_match_last_modified_time.is_some() || input.if_match_size.is_some() {
        return Err(s3_error!(NotImplemented, "DeleteObject with a condition on time or size"));
    }
    let store = buckets.get(&input.bucket).await?;
    delete_one(&store, &input.key, input.if_match).await?;
    Ok(dto::DeleteObjectOutput::default())
}

async fn delete_one(
    store: &LocalStore,
    key: &str,
    if_match: Option<dto::ETagCondition>,
) -> S3Result<()> {
    let etag = match if_match.map(Tag::from) {
        None => None,
        Some(Tag::One(etag)) => Some(etag),
        Some(Tag::Any) => store.stat(key).await.map_err(about_object)?.etag,
    };
    store.delete(key, etag.as_ref()).await.map_err(about_object)
}

/// DeleteObjects.
pub(crate) async fn delete_batch(
    buckets: &Buckets,
    input: dto::DeleteObjectsInput,
) -> S3Result<dto::DeleteObjectsOutput> {
    let store = buckets.get(&input.bucket).await?;
    if input.delete.objects.is_empty() || input.delete.objects.len() > DELETES_MAX {
        return Err(s3_error!(MalformedXML, "A batch holds 1 to 1000 objects."));
    }
    let quiet = input.delete.quiet.unwrap_or(false);
    let mut deleted = Vec::new();
    let mut errors = Vec::new();
    let mut waiting = input.delete.objects.into_iter();
    loop {
        let round: Vec<_> = waiting.by_ref().take(DELETES_AT_ONCE).collect();
        if round.is_empty() {
            break;
        }
        let results =
            join_all(round.into_iter().map(|object| delete_of_batch(&store, object))).await;
        for (key, result) in results {
            match result {
                Ok(()) if quiet => {}
                Ok(()) => deleted.push(dto::DeletedObject { key: Some(key), ..Default::default() }),
                Err(error) => errors.push(dto::Error {
                    key: Some(key),
                    code: Some(error.code().as_str().to_string()),
                    message: error.message().map(str::to_string),
                    ..Default::default()
                }),
            }
        }
    }
    Ok(dto::DeleteObjectsOutput {
        deleted: Some(deleted),
        errors: Some(errors),
        ..Default::default()
    })
}

async fn delete_of_batch(
    store: &LocalStore,
    object: dto::ObjectIdentifier,
) -> (String, S3Result<()>) {
    let checked = refuse::version(object.version_id.as_deref());
    let result = match checked {
        Err(error) => Err(error),
        Ok(()) => {
            let condition = object.e_tag.map(dto::ETagCondition::ETag);
            delete_one(store, &object.key, condition).await
        }
    };
    (object.key, result)
}

/// What a completed upload or a put keeps, from the options it began with.
pub(crate) fn options_with(condition: penstock_store::WriteCondition) -> PutOptions {
    PutOptions { condition, ..Default::default() }
}

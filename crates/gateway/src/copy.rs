//! Copies: inside the back end where it can, else through this process, always of one version.

mod part;
mod refusal;
mod through;

pub(crate) use part::{PartCopyError, copy_part};
pub(crate) use refusal::came_between;

use crate::auth::Caller;
use crate::body::CopyFlow;
use crate::buckets::{Bucket, Buckets};
use crate::checksum::{HasChecksums as _, Sums, named_algorithm};
use crate::conditions::{ReadConditions, Tag, source_conditions, write_condition};
use crate::get::{about_object, shown_tag, size_of, start_by};
use crate::headers::{ObjectHeaders, object_headers, tag_count};
use crate::judged::Judged;
use crate::locks::{self, lock_asked};
use crate::put::{in_store, judged_anew};
use crate::sharing::{GET_TAGS, PUT_TAGS, Standing, new_object};
use crate::terms::Terms;
use crate::{classes, refuse, tagging, versions};
use http::{Extensions, HeaderMap};
use penstock_base::ByteRange;
use penstock_engine::Stream;
use penstock_store::notes;
use penstock_store::streaming::split_version;
use penstock_store::{
    CopySource, GetRange, GetRequest, ObjectMeta, PutOptions, PutResult, WriteCondition,
};
use refusal::{about_source, changes_nothing, no_304, no_marker};
use s3s::{S3Error, S3Request, S3Result, dto, s3_error};
use std::sync::Arc;
use through::{Through, copy_through};

/// What a copy asks of its source.
pub(crate) struct Source {
    pub bucket: Arc<Bucket>,
    /// With the version that is meant.
    pub key: String,
    /// All of it where not given.
    pub range: Option<ByteRange>,
    pub conditions: ReadConditions,
    /// By what its list lets it be read.
    standings: Vec<Standing>,
}

impl Source {
    /// Finds the bucket of a source.
    ///
    /// # Errors
    /// `NoSuchBucket`; `NotImplemented` for access points.
    pub async fn new(
        buckets: &Buckets,
        (source, extensions): (&dto::CopySource, &Extensions),
        range: Option<ByteRange>,
        conditions: ReadConditions,
    ) -> S3Result<Self> {
        let dto::CopySource::Bucket { bucket, key, version_id } = source else {
            return Err(s3_error!(NotImplemented, "copies from access points or outposts"));
        };
        buckets.check_key(bucket, key)?;
        let bucket = buckets.get(bucket).await?;
        let key = versions::name(&bucket, key, version_id.as_deref())?;
        let caller = extensions.get::<Caller>();
        let standings = caller.map_or_else(Vec::new, |caller| caller.of_source.clone());
        Ok(Source { bucket, key, range, conditions, standings })
    }

    /// Whether the back end might copy from here to there by itself.
    pub fn is_beside(&self, target: &Bucket) -> bool {
        Arc::ptr_eq(&self.bucket.store, &target.store) && target.store.capabilities().copy
    }

    /// What the source is now, and the bytes that are meant; the conditions hold.
    pub async fn look(&self) -> S3Result<(ObjectMeta, ByteRange)> {
        let at = self.bucket.at(&self.key);
        let meta = self.bucket.query().head(&at).await.map_err(about_source)?;
        self.judge(&meta)?;
        let size = size_of(&meta)?;
        self.check_range(size)?;
        Ok((meta, self.range.unwrap_or(ByteRange { start: 0, end: size })))
    }

    /// Begins to read the source; the conditions hold.
    pub async fn open(&self) -> S3Result<Stream> {
        let range = self.range.map_or(GetRange::All, GetRange::Bounded);
        // What is stored anew must not be older than what the back end has.
        let query = self.bucket.asking_query();
        let stream = start_by(&query, &self.bucket, &self.key, (range, self.terms())).await;
        let stream = stream.map_err(no_304).map_err(no_marker)?;
        self.judge(stream.meta())?;
        self.check_range(size_of(stream.meta())?)?;
        Ok(stream)
    }

    /// Gives a copy that has a list of its own the rest of its source's metadata, and ties it to
    /// the version that has it.
    async fn take_along(&mut self, options: &mut PutOptions) -> S3Result<()> {
        let meta = self.look().await?.0;
        let kept = ObjectHeaders::from_meta(&meta).into_options(WriteCondition::None)?;
        options.content_type = kept.content_type;
        options.metadata.extend(kept.metadata);
        options.metadata.extend(Sums::of(&meta).of_bytes().notes());
        self.tie_to(meta);
        Ok(())
    }

    /// Gives a copy its source's tags, which the back end would leave behind.
    async fn take_tags_along(&mut self, options: &mut PutOptions) -> S3Result<()> {
        let meta = self.look().await?.0;
        let tags = tags_of(&self.bucket, &self.key, &meta).await?;
        if tags.is_some() {
            options.metadata.extend(tags);
            self.tie_to(meta);
        }
        Ok(())
    }

    /// Whether the copy must not take tags along: those that the source gets from now on. One that
    /// has some is refused then.
    async fn leaves_tags(&self, extensions: &Extensions) -> S3Result<bool> {
        if may_take_tags(extensions) {
            return Ok(false);
        }
        match tag_count(&self.look().await?.0) {
            None => Ok(true),
            Some(_) => Err(s3_error!(AccessDenied, "Access Denied: the source has tags.")),
        }
    }

    /// From now on the source is this version, or has changed.
    fn tie_to(&mut self, meta: ObjectMeta) {
        let tag = meta.etag.map(|etag| Tag::One(self.bucket.tags.shown(&etag)));
        self.conditions.if_match = tag.or(self.conditions.if_match.take());
    }

    /// One version for the back end to copy.
    pub fn version(&self, meta: &ObjectMeta, range: Option<ByteRange>) -> CopySource {
        CopySource { key: self.bucket.key(&self.key), if_match: meta.etag.clone(), range }
    }

    /// The version for the back end to copy where the client sets no condition: whichever it has,
    /// or that which was judged. `None` where the source has to be looked at.
    fn any_version(&self) -> Option<CopySource> {
        let judged = self.standings.first().map(Standing::judged);
        let is_tied = self.terms().are_met_by(judged.flatten()) && self.conditions.is_empty();
        let if_match = judged.flatten().cloned();
        let key = self.bucket.key(&self.key);
        is_tied.then_some(CopySource { key, if_match, range: None })
    }

    fn terms(&self) -> Terms<'_> {
        Terms { conditions: &self.conditions, standings: &self.standings }
    }

    /// A copy knows no 304: every condition that does not hold is a failed one.
    fn judge(&self, meta: &ObjectMeta) -> S3Result<()> {
        self.terms().judge(&self.bucket, meta).map_err(no_304)
    }

    /// A part is as long as was said, or is none.
    fn check_range(&self, size: u64) -> S3Result<()> {
        if self.range.is_some_and(|range| range.end > size) {
            return Err(s3_error!(
                InvalidRange,
                "Range specified is not valid for source object of size: {size}"
            ));
        }
        Ok(())
    }
}

/// CopyObject.
pub(crate) async fn copy(
    buckets: &Buckets,
    mut request: S3Request<dto::CopyObjectInput>,
) -> S3Result<dto::CopyObjectOutput> {
    let input = &mut request.input;
    let acl = new_object(&request.extensions, &request.headers, &input.bucket).await?;
    refuse::unkept_headers(&request.headers)?;
    refuse::void_conditions(&request.headers)?;
    let replaces = replaces(input.metadata_directive.as_ref().map(|it| it.as_str()))?;
    let replaces_tags = replaces_tags(input.tagging_directive.as_ref().map(|it| it.as_str()))?;
    let condition = destination_condition(&request.headers)?;
    let conditions = source_conditions!(input);
    let algorithm = input.checksum_algorithm.as_ref().map(|it| named_algorithm(it.as_str()));
    let algorithm = algorithm.transpose()?;
    let is_unconditional = conditions.is_empty() && condition == WriteCondition::None;
    let bucket = buckets.writable(&input.bucket).await?;
    // Other stores take metadata before the bytes that a checksum is made of.
    let made_of = algorithm.filter(|_| bucket.store.origin().is_none());
    refuse::encryption(&request.headers, bucket.is_encrypted())?;
    let source = (&input.copy_source, &request.extensions);
    let mut source = Source::new(buckets, source, None, conditions).await?;
    let is_itself =
        source.is_beside(&bucket) && source.bucket.key(&source.key) == bucket.key(&input.key);
    let class = classes::asked(&bucket, &request.headers)?;
    if !replaces && class.is_none() && made_of.is_none() && is_itself {
        return Err(changes_nothing());
    }
    let condition = in_store(&bucket, condition);
    let tagging = input.tagging.take().filter(|_| replaces_tags);
    let replaces_tags = replaces_tags || source.leaves_tags(&request.extensions).await?;
    let tags = other_tags(&bucket, tagging, replaces_tags)?;
    let mut options = PutOptions { condition, ..PutOptions::default() };
    if replaces {
        let headers: ObjectHeaders = object_headers!(input, &request.extensions);
        options = headers.into_options(options.condition)?;
    }
    let takes_along = !replaces && !acl.is_empty();
    options.metadata.extend(acl);
    if takes_along {
        source.take_along(&mut options).await?;
    }
    let replaces = replaces || takes_along;
    let (place, asked) = ((&*bucket, input.bucket.as_str()), lock_asked!(input));
    options
        .metadata
        .extend(locks::of_new_object(buckets, place, &request.extensions, asked).await?);
    options.metadata.extend(class);
    options.metadata.extend(tags.map(|tags| (notes::TAGGING.to_string(), tags)));
    if !replaces_tags && source.is_beside(&bucket) && !bucket.store.copies_tags() {
        source.take_tags_along(&mut options).await?;
    }
    let still = Judged::of(&request.extensions, &input.bucket).at_the_end(&request.extensions);
    let through = Through { headers: !replaces, tags: !replaces_tags, made_of, still };
    let place = (&*bucket, input.key.as_str());
    let (result, sums) = match moved(&source, place, &options, through).await {
        Err(error) if is_unconditional => return Err(came_between(error)),
        Err(error) => return Err(judged_anew(&bucket, &input.key, &options.condition, error).await),
        Ok(copied) => copied,
    };
    let named = split_version(&source.key).1.map(str::to_string);
    Ok(dto::CopyObjectOutput {
        server_side_encryption: bucket.encryption(),
        copy_object_result: Some(told(&bucket, &result, &sums)),
        version_id: result.version,
        copy_source_version_id: named.or(result.copied_version),
        ..Default::default()
    })
}

fn told(bucket: &Bucket, result: &PutResult, sums: &Sums) -> dto::CopyObjectResult {
    let mut told = dto::CopyObjectResult {
        e_tag: shown_tag(bucket, result.etag.as_ref()),
        last_modified: result.modified.map(dto::Timestamp::from),
        ..Default::default()
    };
    told.set_checksums(sums);
    told
}

/// Makes the copy: by the back end, unless it cannot or a checksum is to be made. Tells what is
/// known of its checksums.
async fn moved(
    source: &Source,
    (bucket, key): (&Bucket, &str),
    options: &PutOptions,
    through: Through,
) -> S3Result<(PutResult, Sums)> {
    if through.made_of.is_none()
        && let Some(result) = copy_beside(source, bucket, key, options).await?
    {
        return Ok((result, Sums::default()));
    }
    copy_through(source, (bucket, key), options.clone(), through).await
}

/// Whether lists and policies let the sender read the source's tags and give them to the copy.
fn may_take_tags(extensions: &Extensions) -> bool {
    extensions.get::<Caller>().is_none_or(|it| it.may(GET_TAGS) && it.may(PUT_TAGS))
}

/// The tags that a copy gets in place of its source's.
fn other_tags(bucket: &Bucket, tags: Option<String>, replaces: bool) -> S3Result<Option<String>> {
    let tags = tagging::of_header(bucket, tags)?;
    // None at all are others too; where tags stay behind, that is so anyway.
    Ok(tags.or_else(|| (replaces && bucket.store.copies_tags()).then(String::new)))
}

fn replaces(directive: Option<&str>) -> S3Result<bool> {
    match directive {
        None | Some(dto::MetadataDirective::COPY) => Ok(false),
        Some(dto::MetadataDirective::REPLACE) => Ok(true),
        Some(_) => Err(s3_error!(InvalidArgument, "Unknown metadata directive.")),
    }
}

fn replaces_tags(directive: Option<&str>) -> S3Result<bool> {
    match directive {
        None | Some(dto::TaggingDirective::COPY) => Ok(false),
        Some(dto::TaggingDirective::REPLACE) => Ok(true),
        Some(_) => Err(s3_error!(InvalidArgument, "Unknown tagging directive.")),
    }
}

/// Lets the back end copy. Without conditions on the source that is one request, tied to the
/// version that was judged where its list was; with them the source is looked at before and the
/// copy is tied to what was seen.
async fn copy_beside(
    source: &Source,
    bucket: &Bucket,
    key: &str,
    options: &PutOptions,
) -> S3Result<Option<PutResult>> {
    if !source.is_beside(bucket) {
        return Ok(None);
    }
    let version = match source.any_version() {
        Some(version) => version,
        None => source.version(&source.look().await?.0, None),
    };
    let copied = bucket.copy_version(&version, &bucket.key(key), options).await;
    copied.map_err(about_object)
}

/// The pair of an object's tags, if it has any.
///
/// # Errors
/// As of reading them.
pub(crate) async fn tags_of(
    bucket: &Bucket,
    key: &str,
    meta: &ObjectMeta,
) -> S3Result<Option<(String, String)>> {
    if tag_count(meta).is_none() {
        return Ok(None);
    }
    let tags = bucket.store.tags(&bucket.key(key)).await.map_err(about_object)?;
    Ok(Some((notes::TAGGING.to_string(), penstock_store::tags::to_query(&tags))))
}

/// Gives an object other metadata, in place: the version that the condition names.
pub(crate) async fn rewrite(bucket: &Bucket, key: &str, options: &PutOptions) -> S3Result<()> {
    let if_match = match &options.condition {
        WriteCondition::IfMatch(etag) => Some(etag.clone()),
        _ => None,
    };
    let place_of = bucket.key(key);
    let source = CopySource { key: place_of.clone(), if_match: if_match.clone(), range: None };
    if bucket.store.capabilities().copy {
        let copied = bucket.copy_version(&source, &place_of, options).await;
        if copied.map_err(about_object)?.is_some() {
            return Ok(());
        }
    }
    let asked = GetRequest { range: GetRange::All, if_match, ..Default::default() };
    let stream = bucket.asking_query().get(&bucket.at(key), asked).await;
    let stream = stream.map_err(about_object)?;
    let placed = bucket.put_flow(&place_of, Box::new(CopyFlow::new(stream)), options).await;
    placed.map_err(about_object).map(drop)
}

/// If-Match and If-None-Match on the target of a copy, which s3s leaves in the headers.
fn destination_condition(headers: &HeaderMap) -> S3Result<WriteCondition> {
    let read = |name: http::HeaderName| -> Result<_, S3Error> {
        let Some(value) = headers.get(&name) else { return Ok(None) };
        dto::ETagCondition::parse_http_header(value.as_bytes())
            .map(Some)
            .map_err(|_| s3_error!(InvalidArgument, "the header {name} holds no ETag"))
    };
    write_condition(read(http::header::IF_MATCH)?, read(http::header::IF_NONE_MATCH)?)
}

//! Tags of objects, where the back end has them.

use crate::auth::judged_tags;
use crate::buckets::{Bucket, Buckets};
use crate::get::about_object;
use crate::notes::came_between;
use crate::sharing::permit_tags;
use crate::versions;
use penstock_store::tags;
use s3s::{S3Request, S3Result, dto, s3_error};

/// Most tags of an object, as in S3 and Azure.
const TAGS_MAX: usize = 10;
/// Most tags of a bucket, as in S3.
const BUCKET_TAGS_MAX: usize = 50;
/// Longest name and value, in characters, as in S3.
const NAME_CHARS_MAX: usize = 128;
const VALUE_CHARS_MAX: usize = 256;
/// What names of tags begin with that only S3 itself gives.
const RESERVED: &str = "aws:";

/// Whether S3 takes a character in a tag: letters and digits of any language, spaces, and these.
fn is_tag_char(char: char) -> bool {
    char.is_alphanumeric() || char.is_whitespace() || "+-=._:/@".contains(char)
}

/// Checks the tags of a request.
///
/// # Errors
/// `InvalidTag` for a name that is empty, too long, S3's own or stands twice, for characters that
/// S3 does not take, and for too many.
fn checked(tags: Vec<dto::Tag>) -> S3Result<Vec<(String, String)>> {
    if tags.len() > TAGS_MAX {
        return Err(s3_error!(InvalidTag, "Object tags cannot be greater than 10"));
    }
    let mut pairs: Vec<(String, String)> = Vec::with_capacity(tags.len());
    for tag in tags {
        let (name, value) = (tag.key.unwrap_or_default(), tag.value.unwrap_or_default());
        let is_long = name.chars().count() > NAME_CHARS_MAX;
        if name.is_empty() || is_long || !name.chars().all(is_tag_char) {
            return Err(s3_error!(InvalidTag, "The TagKey you have provided is invalid"));
        }
        if name.starts_with(RESERVED) {
            let why = "System tags cannot be added/updated by requester";
            return Err(s3_error!(InvalidTag, "{why}"));
        }
        if value.chars().count() > VALUE_CHARS_MAX || !value.chars().all(is_tag_char) {
            return Err(s3_error!(InvalidTag, "The TagValue you have provided is invalid"));
        }
        if pairs.iter().any(|(known, _)| *known == name) {
            return Err(s3_error!(InvalidTag, "Cannot provide multiple Tags with the same key"));
        }
        pairs.push((name, value));
    }
    Ok(pairs)
}

/// The tags that a header `x-amz-tagging` writes.
///
/// # Errors
/// As [`checked`].
pub(crate) fn read_header(text: &str) -> S3Result<Vec<(String, String)>> {
    let tag = |(key, value)| dto::Tag { key: Some(key), value: Some(value) };
    checked(tags::from_query(text).into_iter().map(tag).collect())
}

/// The same, as the store takes them.
///
/// # Errors
/// As [`checked`] and [`check_kept`]; `NotImplemented` where the back end has no tags.
pub(crate) fn of_header(bucket: &Bucket, header: Option<String>) -> S3Result<Option<String>> {
    let Some(text) = header.filter(|text| !text.is_empty()) else { return Ok(None) };
    let pairs = read_header(&text)?;
    check_kept(bucket, &pairs)?;
    match bucket.store.has_tags() {
        // Written anew: Azure takes no tag without its `=`.
        true => Ok(Some(tags::to_query(&pairs))),
        false => Err(s3_error!(
            NotImplemented,
            "this bucket's back end keeps no object tags (header x-amz-tagging)"
        )),
    }
}

/// Refuses tags that the back end cannot keep, before anything is sent to it.
///
/// # Errors
/// `InvalidTag`, with what it keeps.
pub(crate) fn check_kept(bucket: &Bucket, tags: &[(String, String)]) -> S3Result<()> {
    let Some(marks) = bucket.store.tag_marks() else { return Ok(()) };
    let Some(foreign) = foreign_char(marks, tags) else { return Ok(()) };
    Err(s3_error!(
        InvalidTag,
        "A tag has {foreign:?}, which this bucket's back end does not keep: letters and digits of \
         ASCII, and any of {marks:?}"
    ))
}

/// The first character in tags that is no letter or digit of ASCII, and none of these.
fn foreign_char(marks: &str, tags: &[(String, String)]) -> Option<char> {
    let chars = tags.iter().flat_map(|(name, value)| name.chars().chain(value.chars()));
    chars.into_iter().find(|char| !char.is_ascii_alphanumeric() && !marks.contains(*char))
}

/// Checks the tags of a bucket, of which there may be fifty.
///
/// # Errors
/// As for an object's.
pub(crate) fn checked_of_bucket(tags: Vec<dto::Tag>) -> S3Result<Vec<(String, String)>> {
    let mut pairs = Vec::with_capacity(tags.len());
    if tags.len() > BUCKET_TAGS_MAX {
        return Err(s3_error!(InvalidTag, "Bucket tag count cannot be greater than 50"));
    }
    for tags in tags.chunks(TAGS_MAX) {
        pairs.extend(checked(tags.to_vec())?);
    }
    let is_twice = |at: usize| pairs[..at].iter().any(|pair| pair.0 == pairs[at].0);
    match (0..pairs.len()).any(is_twice) {
        true => Err(s3_error!(InvalidTag, "Cannot provide multiple Tags with the same key")),
        false => Ok(pairs),
    }
}

/// Refuses by name where the back end has no tags.
fn check(bucket: &Bucket, operation: &str) -> S3Result<()> {
    match bucket.store.has_tags() {
        true => Ok(()),
        false => Err(s3_error!(
            NotImplemented,
            "{operation}: this bucket's back end keeps no object tags"
        )),
    }
}

/// GetObjectTagging.
pub(crate) async fn get(
    buckets: &Buckets,
    request: S3Request<dto::GetObjectTaggingInput>,
) -> S3Result<dto::GetObjectTaggingOutput> {
    let (input, extensions) = (request.input, &request.extensions);
    let bucket = buckets.get(&input.bucket).await?;
    check(&bucket, "GetObjectTagging")?;
    let name = versions::name(&bucket, &input.key, input.version_id.as_deref())?;
    let judged = judged_tags(extensions);
    let mut tags = match judged {
        // Others may have taken their place by now.
        Some(Some(tags)) => tags.to_vec(),
        _ => bucket.store.tags(&bucket.key(&name)).await.map_err(about_object)?,
    };
    if judged == Some(None) {
        // Nothing was there when it was asked for.
        return Err(came_between());
    }
    tags.sort();
    let tag = |(key, value)| dto::Tag { key: Some(key), value: Some(value) };
    Ok(dto::GetObjectTaggingOutput {
        tag_set: tags.into_iter().map(tag).collect(),
        version_id: input.version_id,
    })
}

/// PutObjectTagging.
pub(crate) async fn put(
    buckets: &Buckets,
    request: S3Request<dto::PutObjectTaggingInput>,
) -> S3Result<dto::PutObjectTaggingOutput> {
    let tags = checked(request.input.tagging.tag_set.clone())?;
    permit_tags(buckets, &request, &tags).await?;
    let input = request.input;
    let bucket = buckets.writable(&input.bucket).await?;
    check(&bucket, "PutObjectTagging")?;
    check_kept(&bucket, &tags)?;
    let name = versions::name(&bucket, &input.key, input.version_id.as_deref())?;
    bucket.set_tags(&bucket.key(&name), &tags).await.map_err(about_object)?;
    Ok(dto::PutObjectTaggingOutput { version_id: input.version_id })
}

/// DeleteObjectTagging.
pub(crate) async fn delete(
    buckets: &Buckets,
    input: dto::DeleteObjectTaggingInput,
) -> S3Result<dto::DeleteObjectTaggingOutput> {
    let bucket = buckets.writable(&input.bucket).await?;
    check(&bucket, "DeleteObjectTagging")?;
    let name = versions::name(&bucket, &input.key, input.version_id.as_deref())?;
    bucket.set_tags(&bucket.key(&name), &[]).await.map_err(about_object)?;
    Ok(dto::DeleteObjectTaggingOutput { version_id: input.version_id })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(name: &str, value: &str) -> dto::Tag {
        dto::Tag { key: Some(name.into()), value: Some(value.into()) }
    }

    #[test]
    fn tags_have_limits() {
        assert_eq!(checked(vec![tag("a", "1")]).unwrap(), [("a".to_string(), "1".to_string())]);
        let many = (0..11).map(|number| tag(&number.to_string(), "")).collect();
        let long = "x".repeat(257);
        for tags in [many, vec![tag("", "x")], vec![tag("a", &long)], vec![tag(&long, "")]] {
            assert!(checked(tags).is_err());
        }
        assert!(checked(vec![tag("a", "1"), tag("a", "2")]).is_err());
        assert!(checked(vec![tag("aws:a", "1")]).is_err());
        assert!(checked(vec![tag("laws:a", "1")]).is_ok());
    }

    #[test]
    fn what_a_back_end_cannot_keep_is_found_in_names_and_values() {
        let found = |name: &str, value: &str| {
            foreign_char(" +-./:=_", &[pair("team", "a b"), pair(name, value)])
        };
        assert_eq!(found("a+b-c", "d._:/ =e"), None);
        assert_eq!(found("who", "me@home"), Some('@'));
        assert_eq!(found("gr\u{f6}\u{df}e", "@"), Some('\u{f6}'));
        assert_eq!(found("tab", "a\tb"), Some('\t'));
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.into(), value.into())
    }

    #[test]
    fn tags_are_of_the_characters_that_s3_takes() {
        assert!(checked(vec![tag("Grüße an @all", "a+b-c=d._:/ e")]).is_ok());
        for tags in [tag("user!name", "x"), tag("data%20", "x"), tag("x", "a,b"), tag("x", "(a)")] {
            assert_eq!(checked(vec![tags]).unwrap_err().code(), &s3s::S3ErrorCode::InvalidTag);
        }
    }
}

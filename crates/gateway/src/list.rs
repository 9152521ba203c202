//! ListObjects, both versions, over the store's listing.
//!
//! What S3 asks beyond the store: a page is never empty and truncated, `max-keys=0` answers
//! nothing, a folded prefix counts as a name, and version 1 goes on after the last name it gave.
//! Tokens of version 2 wrap the store's own, whatever those look like; any replica reads them.

use crate::acl::owner_of;
use crate::auth::Caller;
use crate::buckets::{Bucket, BucketEntry, Buckets};
use crate::classes;
use crate::error::{Subject, to_s3};
use crate::get::shown_tag;
use crate::sharing::ONE_OWNER;
use crate::sound::Asked;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::stream::{self, StreamExt as _};
use penstock_base::Result;
use penstock_store::{ListEntry, ListPage, ListRequest, Progress};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::dto;
use s3s::{S3Request, S3Result, s3_error};

/// Most names of one page, whatever the client asks for.
const PAGE_MAX: i32 = 1000;
/// What `encoding-type=url` leaves as it is.
const PLAIN: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// Writes names as the client asked for them.
#[derive(Clone, Copy)]
pub struct Names {
    url_encoded: bool,
}

impl Names {
    /// # Errors
    /// `InvalidArgument` for an encoding other than `url`.
    pub fn new(encoding: Option<&dto::EncodingType>) -> S3Result<Self> {
        match encoding.map(dto::EncodingType::as_str) {
            None => Ok(Names { url_encoded: false }),
            Some(dto::EncodingType::URL) => Ok(Names { url_encoded: true }),
            Some(_) => {
                Err(s3_error!(InvalidArgument, "Invalid Encoding Method specified in Request"))
            }
        }
    }

    /// One name.
    pub fn write(self, name: &str) -> String {
        if self.url_encoded {
            utf8_percent_encode(name, PLAIN).to_string()
        } else {
            name.to_string()
        }
    }

    /// A list of folded prefixes, none of it `None`.
    pub fn prefixes(self, prefixes: &[String]) -> Option<dto::CommonPrefixList> {
        let folded = |prefix: &String| dto::CommonPrefix { prefix: Some(self.write(prefix)) };
        (!prefixes.is_empty()).then(|| prefixes.iter().map(folded).collect())
    }
}

/// Most buckets of one page.
const BUCKETS_PAGE_MAX: i32 = 10_000;
/// Buckets of which it is found out at once whose they are.
const OWNERS_AT_ONCE: usize = 16;

/// ListBuckets: those that the caller may see.
pub(crate) async fn list_buckets(
    buckets: &Buckets,
    request: S3Request<dto::ListBucketsInput>,
) -> S3Result<dto::ListBucketsOutput> {
    let input = request.input;
    let Some(caller) = request.extensions.get::<Caller>() else {
        return Err(s3_error!(InternalError, "a request without a caller"));
    };
    let most = input.max_buckets.unwrap_or(BUCKETS_PAGE_MAX);
    let most = usize::try_from(most).ok().filter(|most| (1..=10_000).contains(most));
    let most = most.ok_or_else(|| s3_error!(InvalidArgument, "max-buckets is 1 to 10000"))?;
    let prefix = input.prefix.clone().unwrap_or_default();
    let after = input.continuation_token.as_deref().map(store_token).transpose()?;
    let is_meant = |name: &String| {
        name.starts_with(&prefix) && after.as_ref().is_none_or(|after| name > after)
    };
    let entries = buckets.list().await?.into_iter().filter(|entry| is_meant(&entry.name));
    let seen = stream::iter(entries.map(|entry| async move {
        let may_see = caller.may_see(&entry.name).await;
        may_see.then_some(entry)
    }));
    let mut shown: Vec<BucketEntry> =
        seen.buffered(OWNERS_AT_ONCE).filter_map(std::future::ready).collect().await;
    let is_truncated = shown.len() > most;
    shown.truncate(most);
    let next = shown.last().filter(|_| is_truncated).map(|entry| client_token(&entry.name));
    let bucket = |entry: BucketEntry| dto::Bucket {
        name: Some(entry.name),
        creation_date: Some(entry.created.into()),
        ..Default::default()
    };
    Ok(dto::ListBucketsOutput {
        buckets: Some(shown.into_iter().map(bucket).collect()),
        owner: Some(caller.id.as_deref().map_or_else(owner, owner_of)),
        continuation_token: next,
        prefix: input.prefix,
    })
}

/// How many entries to answer, asked by the parameter `name`.
///
/// # Errors
/// `InvalidArgument` below 0.
pub fn page_size(name: &str, asked: Option<i32>) -> S3Result<i32> {
    match asked {
        Some(count) if count < 0 => Err(s3_error!(
            InvalidArgument,
            "Argument {name} must be an integer between 0 and 2147483647"
        )),
        Some(count) => Ok(count.min(PAGE_MAX)),
        None => Ok(PAGE_MAX),
    }
}

/// ListObjectsV2.
pub async fn list_v2(
    bucket: &Bucket,
    owner: dto::Owner,
    input: dto::ListObjectsV2Input,
) -> S3Result<dto::ListObjectsV2Output> {
    let names = Names::new(input.encoding_type.as_ref())?;
    let max_keys = page_size("max-keys", input.max_keys)?;
    // An empty token is where a listing begins.
    let token = input.continuation_token.as_deref().filter(|token| !token.is_empty());
    let request = ListRequest {
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone().filter(|delimiter| !delimiter.is_empty()),
        // A token knows where it stopped; S3 ignores start-after beside it.
        start_after: input.start_after.clone().filter(|it| token.is_none() && !it.is_empty()),
        token: token.map(store_token).transpose()?,
        max_keys: u32::try_from(max_keys).ok(),
    };
    let page = full_page(bucket, request, max_keys, None).await?;
    let owner = input.fetch_owner.unwrap_or(false).then_some(owner);
    Ok(dto::ListObjectsV2Output {
        name: Some(input.bucket),
        prefix: Some(names.write(input.prefix.as_deref().unwrap_or_default())),
        delimiter: shown_delimiter(input.delimiter.as_deref(), names),
        start_after: input.start_after.as_deref().map(|after| names.write(after)),
        encoding_type: input.encoding_type,
        max_keys: Some(max_keys),
        key_count: i32::try_from(page.objects.len() + page.prefixes.len()).ok(),
        is_truncated: Some(page.next.is_some()),
        continuation_token: input.continuation_token,
        next_continuation_token: page.next.as_deref().map(client_token),
        common_prefixes: names.prefixes(&page.prefixes),
        contents: Some(contents(bucket, &page.objects, names, owner.as_ref())),
        ..Default::default()
    })
}

/// ListObjects (version 1).
pub async fn list_v1(
    bucket: &Bucket,
    owner: dto::Owner,
    input: dto::ListObjectsInput,
) -> S3Result<dto::ListObjectsOutput> {
    let names = Names::new(input.encoding_type.as_ref())?;
    let max_keys = page_size("max-keys", input.max_keys)?;
    let marker = input.marker.clone().filter(|marker| !marker.is_empty());
    let request = ListRequest {
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone().filter(|delimiter| !delimiter.is_empty()),
        start_after: marker.map(|marker| {
            let prefix = input.prefix.as_deref().unwrap_or_default();
            after_marker(marker, prefix, input.delimiter.as_deref())
        }),
        token: None,
        max_keys: u32::try_from(max_keys).ok(),
    };
    let page = full_page(bucket, request, max_keys, input.marker.as_deref()).await?;
    let last = last_name(&page);
    Ok(dto::ListObjectsOutput {
        name: Some(input.bucket),
        prefix: Some(names.write(input.prefix.as_deref().unwrap_or_default())),
        delimiter: shown_delimiter(input.delimiter.as_deref(), names),
        marker: Some(names.write(input.marker.as_deref().unwrap_or_default())),
        encoding_type: input.encoding_type,
        max_keys: Some(max_keys),
        is_truncated: Some(page.next.is_some()),
        next_marker: page.next.as_ref().and(last).map(|name| names.write(&name)),
        common_prefixes: names.prefixes(&page.prefixes),
        contents: Some(contents(bucket, &page.objects, names, Some(&owner))),
        ..Default::default()
    })
}

async fn full_page(
    bucket: &Bucket,
    mut request: ListRequest,
    max_keys: i32,
    told: Option<&str>,
) -> S3Result<ListPage> {
    if max_keys == 0 {
        return Ok(ListPage::default());
    }
    request.prefix = bucket.key(&request.prefix);
    request.start_after = request.start_after.map(|after| bucket.key(&after));
    let (root, within) = (bucket.store.root(), bucket.prefix());
    let page = gathered((root, within), request, told, |request| bucket.store.list(request)).await;
    page.map_err(|error| to_s3(Subject::Bucket, error))
}

/// Pages of the store until there is a name or the end, all of its names without the prefix that
/// they lie `within`. A store that goes on after a name by leaving names out folds what it left
/// out; the prefix that was `told` before is not told again.
///
/// # Errors
/// The store's, and `Corrupt` for a page that was not asked for.
async fn gathered<F: Future<Output = Result<ListPage>>>(
    (root, within): (&str, &str),
    mut request: ListRequest,
    told: Option<&str>,
    list: impl Fn(ListRequest) -> F,
) -> Result<ListPage> {
    let (prefix, after) = (request.prefix.clone(), request.start_after.take());
    let asked = Asked { root, prefix: &prefix, after: after.as_deref() };
    let mut progress = Progress::from(request.token.as_deref());
    request.start_after = after.clone().filter(|_| !asked.is_unordered());
    loop {
        let mut page = list(request.clone()).await?;
        if asked.is_unordered() {
            asked.put_in_order(&mut page)?;
        }
        asked.objects(&page)?;
        page.next = page.next.map(|token| asked.next(&mut progress, token)).transpose()?;
        // Every name begins with it.
        let before = within.len();
        page.prefixes.retain(|prefix| Some(&prefix[before..]) != told);
        // What has the name of the place itself has no key in the bucket.
        page.objects.retain(|entry| entry.key.len() > before);
        if !page.objects.is_empty() || !page.prefixes.is_empty() || page.next.is_none() {
            page.objects.iter_mut().for_each(|entry| drop(entry.key.drain(..before)));
            page.prefixes.iter_mut().for_each(|prefix| drop(prefix.drain(..before)));
            return Ok(page);
        }
        request.token = page.next;
        request.start_after = None;
    }
}

/// Tells tokens of this form from others.
const TOKEN_FORM: u8 = b'1';

/// The form of a store's token that clients get: no text that could be taken for a key, nor one
/// that XML or URLs would change.
fn client_token(token: &str) -> String {
    URL_SAFE_NO_PAD.encode([&[TOKEN_FORM], token.as_bytes()].concat())
}

/// The store's token in a client's.
pub(crate) fn store_token(token: &str) -> S3Result<String> {
    let wrong = || s3_error!(InvalidArgument, "The continuation token provided is incorrect");
    let mut bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| wrong())?;
    if bytes.first() != Some(&TOKEN_FORM) {
        return Err(wrong());
    }
    bytes.remove(0);
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// Where version 1 goes on: a marker that is a folded prefix stands for all names below it.
fn after_marker(marker: String, prefix: &str, delimiter: Option<&str>) -> String {
    let folded = delimiter.filter(|delimiter| !delimiter.is_empty()).is_some_and(|delimiter| {
        marker
            .strip_prefix(prefix)
            .and_then(|rest| rest.strip_suffix(delimiter))
            .is_some_and(|name| !name.contains(delimiter))
    });
    if folded {
        // The greatest character that a key can hold: nothing below the prefix comes after.
        format!("{marker}{}", char::MAX)
    } else {
        marker
    }
}

fn shown_delimiter(delimiter: Option<&str>, names: Names) -> Option<String> {
    delimiter.filter(|delimiter| !delimiter.is_empty()).map(|delimiter| names.write(delimiter))
}

/// Refuses Ceph's listing in no order together with a delimiter, as Ceph does; every order is fine
/// otherwise.
///
/// # Errors
/// `InvalidArgument`.
pub fn check_unordered(query: Option<&str>, delimiter: Option<&str>) -> S3Result<()> {
    let is_unordered = query.unwrap_or_default().split('&').any(|it| it == "allow-unordered=true");
    if is_unordered && delimiter.is_some_and(|delimiter| !delimiter.is_empty()) {
        return Err(s3_error!(InvalidArgument, "An unordered listing takes no delimiter"));
    }
    Ok(())
}

fn last_name(page: &ListPage) -> Option<String> {
    let object = page.objects.last().map(|entry| entry.key.as_str());
    let prefix = page.prefixes.last().map(String::as_str);
    object.max(prefix).map(str::to_string)
}

fn contents(
    bucket: &Bucket,
    entries: &[ListEntry],
    names: Names,
    owner: Option<&dto::Owner>,
) -> dto::ObjectList {
    let object = |entry: &ListEntry| dto::Object {
        key: Some(names.write(&entry.key)),
        e_tag: shown_tag(bucket, entry.meta.etag.as_ref()),
        last_modified: entry.meta.modified.map(dto::Timestamp::from),
        size: entry.meta.size_bytes.and_then(|size| i64::try_from(size).ok()),
        storage_class: Some(classes::of(&entry.meta).to_string().into()),
        owner: owner.cloned(),
        ..Default::default()
    };
    entries.iter().map(object).collect()
}

/// The one owner of everything, where keys are no owners.
pub fn owner() -> dto::Owner {
    owner_of(ONE_OWNER)
}

#[cfg(test)]
mod tests;

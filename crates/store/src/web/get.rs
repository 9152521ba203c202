//! How an object of a web server is read: by a range where the server serves it, else whole.
//!
//! An answer that cannot be used (a part that is not the one asked for, a refusal of the range) is
//! followed by one request without a range. What is remembered of the server is whether it serves
//! ranges from the end.

use super::{HttpStore, Outcome, Way};
use crate::answer::{self, Failure};
use crate::stat::end_under_heads_tag;
use crate::unpack;
use crate::{Body, ETag, GetRange, GetRequest, GetResponse, HttpResponse, ObjectMeta, Ranges};
use ::http::header::{CONTENT_RANGE, HeaderName, RANGE};
use ::http::{HeaderMap, HeaderValue, Method};
use bytes::Bytes;
use penstock_base::{ByteRange, Error, Kind, Result, Retry};
use std::sync::atomic::Ordering;

/// What came of a request for an object.
pub(super) enum Came {
    Answer(GetResponse),
    /// Bytes that are not those asked for, and the range that the server names.
    Part {
        error: Error,
        named: Option<ByteRange>,
        /// The object's size, where only the body is at fault.
        size_bytes: Option<u64>,
    },
    Refused {
        failure: Failure,
        headers: HeaderMap,
    },
}

/// Whether a server may refuse the form of a range by this status, not the object.
fn refuses_form(status: u16) -> bool {
    matches!(status, 400 | 405 | 406 | 416 | 422 | 501)
}

impl HttpStore {
    /// A GET.
    ///
    /// # Errors
    /// As [`crate::Store::get`].
    pub(super) async fn get_object(&self, key: &str, request: GetRequest) -> Result<GetResponse> {
        match request.range {
            GetRange::Bounded(range) if range.is_empty() => self.get_nothing(key, &request).await,
            GetRange::Suffix(0) => self.get_nothing(key, &request).await,
            GetRange::Suffix(count) => self.get_suffix(key, count, &request).await,
            _ => self.get_range(key, &request, Way::of(&request)).await,
        }
    }

    async fn get_nothing(&self, key: &str, request: &GetRequest) -> Result<GetResponse> {
        let meta = self.stat_object(key).await?;
        self.check_version(key, request, &meta)?;
        let at = meta.size_bytes.unwrap_or_default();
        Ok(empty(meta, at))
    }

    /// The last bytes, asked for as such unless the server is known not to serve that.
    async fn get_suffix(&self, key: &str, count: u64, request: &GetRequest) -> Result<GetResponse> {
        if self.suffixes.are_refused() {
            return self.get_end(key, count, request).await;
        }
        match self.ask(key, request).await? {
            Came::Answer(answer) => {
                let has_more = answer.meta.size_bytes.is_none_or(|size| size > count);
                let is_whole = matches!(answer.ranges, Ranges::Ignored | Ranges::Offered);
                if is_whole && has_more {
                    self.suffixes.refuse();
                }
                self.suffixes.served();
                Ok(answer)
            }
            Came::Part { named: Some(_), .. } => self.get_end_instead(key, count, request).await,
            Came::Part { named: None, .. } => self.get_all_instead(key, request).await,
            Came::Refused { failure, headers } => {
                if let Some(answer) = self.behind_the_end(key, request, &failure, &headers).await? {
                    return Ok(answer);
                }
                if self.suffixes.failed(&failure)
                    && let Ok(answer) = self.get_end(key, count, request).await
                {
                    self.suffixes.came_by_offsets();
                    return Ok(answer);
                }
                if !refuses_form(failure.status) {
                    return Err(self.refusal("GET", key, failure));
                }
                let end = self.get_end_instead(key, count, request).await;
                // What the server said first tells more than that nothing else helps.
                end.map_err(|_| self.refusal("GET", key, failure))
            }
        }
    }

    /// The last bytes by their offsets, and a note that this server wants them so.
    async fn get_end_instead(
        &self,
        key: &str,
        count: u64,
        request: &GetRequest,
    ) -> Result<GetResponse> {
        let answer = self.get_end(key, count, request).await?;
        if !answer.ranges.are_ignored() {
            self.suffixes.refuse();
        }
        Ok(answer)
    }

    /// The last bytes by their offsets, of a size that the server tells first.
    async fn get_end(&self, key: &str, count: u64, request: &GetRequest) -> Result<GetResponse> {
        let end = || self.end_of(key, count, request);
        end_under_heads_tag(request, &self.head_refused, end).await
    }

    async fn end_of(&self, key: &str, count: u64, request: &GetRequest) -> Result<GetResponse> {
        let meta = self.stat_object(key).await?;
        self.check_version(key, request, &meta)?;
        match meta.size_bytes {
            Some(0) => Ok(empty(meta, 0)),
            Some(size) => {
                let range = ByteRange { start: size.saturating_sub(count), end: size };
                let if_match = request.if_match.clone().or(meta.etag.filter(ETag::is_strong));
                let request =
                    GetRequest { range: GetRange::Bounded(range), if_match, ..request.clone() };
                let answer = self.get_range(key, &request, Way::Anew).await?;
                match answer.meta.size_bytes.is_none_or(|told| told == size) {
                    true => Ok(answer),
                    // One of both sizes is wrong, and so may be the end.
                    false => self.get_all_instead(key, &request).await,
                }
            }
            None => self.get_all_instead(key, request).await,
        }
    }

    async fn get_all_instead(&self, key: &str, request: &GetRequest) -> Result<GetResponse> {
        let came = self.ask_all(key, request).await?;
        self.answer(key, request, came).await
    }

    /// What opens an object (`Way::Anew`) is asked for without a range where the range fails.
    async fn get_range(
        &self,
        key: &str,
        request: &GetRequest,
        way: Way<'_>,
    ) -> Result<GetResponse> {
        let came = match way {
            Way::Anew => self.ask_twice(key, request).await?,
            Way::Remembered(_) => self.ask(key, request).await?,
        };
        self.answer(key, request, came).await
    }

    async fn answer(&self, key: &str, request: &GetRequest, came: Came) -> Result<GetResponse> {
        match came {
            Came::Answer(answer) => Ok(answer),
            Came::Part { error, .. } => Err(error),
            Came::Refused { failure, headers } => {
                match self.behind_the_end(key, request, &failure, &headers).await? {
                    Some(answer) => Ok(answer),
                    None => Err(self.refusal("GET", key, failure)),
                }
            }
        }
    }

    /// The empty answer that a 416 stands for where the range lies behind the end.
    async fn behind_the_end(
        &self,
        key: &str,
        request: &GetRequest,
        failure: &Failure,
        headers: &HeaderMap,
    ) -> Result<Option<GetResponse>> {
        if failure.status != 416 {
            return Ok(None);
        }
        let Some(extent) = answer::unsatisfiable_extent(request.range, headers, failure) else {
            return Ok(None);
        };
        if extent.size_bytes.is_none() && extent.range.start == 0 {
            return Ok(None);
        }
        let meta = self.stat_object(key).await?;
        self.check_version(key, request, &meta)?;
        Ok(Some(empty(meta, extent.range.start)))
    }

    /// A request, and one without a range where the first one's range cannot be had.
    pub(super) async fn ask_twice(&self, key: &str, request: &GetRequest) -> Result<Came> {
        match self.ask(key, request).await? {
            Came::Part { error, named, size_bytes } if request.range != GetRange::All => {
                match self.ask_all(key, request).await? {
                    // The object has one size, so this answer is cut short as the first one was.
                    Came::Answer(answer) if contradict(size_bytes, answer.meta.size_bytes) => {
                        Ok(Came::Part { error, named, size_bytes })
                    }
                    came => Ok(came),
                }
            }
            Came::Refused { failure, headers } if request.range != GetRange::All => {
                let told = answer::unsatisfiable_extent(request.range, &headers, &failure);
                let is_told =
                    failure.status == 416 && told.is_some_and(|it| it.size_bytes.is_some());
                if is_told || !refuses_form(failure.status) {
                    return Ok(Came::Refused { failure, headers });
                }
                match self.ask_all(key, request).await? {
                    Came::Answer(answer) => Ok(Came::Answer(answer)),
                    Came::Part { .. } | Came::Refused { .. } => {
                        Ok(Came::Refused { failure, headers })
                    }
                }
            }
            came => Ok(came),
        }
    }

    /// The same object without a range.
    async fn ask_all(&self, key: &str, request: &GetRequest) -> Result<Came> {
        let all = GetRequest { range: GetRange::All, ..request.clone() };
        Ok(match self.ask(key, &all).await? {
            Came::Answer(answer) if answer.ranges == Ranges::Served => {
                Came::Answer(GetResponse { ranges: Ranges::Ignored, ..answer })
            }
            came => came,
        })
    }

    /// One request.
    async fn ask(&self, key: &str, request: &GetRequest) -> Result<Came> {
        let mut headers = HeaderMap::new();
        let mut put = |name: HeaderName, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        };
        if let Some(range) = answer::range_header(request.range) {
            put(RANGE, &range);
        }
        // A weak tag matches nothing by If-Match, and the Hub's nothing where its redirects lead:
        // they are compared with the answer's.
        let is_weak = request.if_match.as_ref().is_some_and(|etag| !etag.is_strong());
        if let Some((name, value)) =
            request.condition_header().filter(|_| !is_weak && self.hub.is_none())
        {
            put(HeaderName::from_static(name), &value);
        }
        match self.send((&Method::GET, Way::of(request)), "GET", key, &headers).await? {
            Outcome::Done(response) => self.judged(key, request, response).await,
            Outcome::Refused { failure, .. }
                if failure.status == 304 && !request.asks_for_news() =>
            {
                let why = "the server answered 304 (not modified) to a request without a condition";
                Err(self.named("GET", key, Error::new(Kind::Corrupt, why)))
            }
            Outcome::Refused { failure, headers } => Ok(Came::Refused { failure, headers }),
        }
    }

    /// What an answer with an object, or a part of one, brings.
    async fn judged(
        &self,
        key: &str,
        request: &GetRequest,
        response: HttpResponse,
    ) -> Result<Came> {
        let named = |error: Error| self.named("GET", key, error);
        let HttpResponse { status, headers, mut body } = response;
        let codings = unpack::codings(&headers).map_err(named)?;
        // A server may say by 206 that there are more pages, each an object of its own.
        let is_page = request.range == GetRange::All && answer::is_page(&headers);
        let status = if is_page { 200 } else { status };
        let extent = match answer::extent(request.range, status, &headers) {
            Ok(extent) => extent,
            Err(error) => {
                let told = answer::text_header(&headers, CONTENT_RANGE.as_str());
                let told = told.as_deref().and_then(answer::parse_content_range);
                let error = match request.range {
                    GetRange::All => named(only_a_part(told.map(|(range, _)| range))),
                    _ => named(error),
                };
                let size_bytes = answer::size_of_cut_part(request.range, &headers);
                return Ok(Came::Part { error, named: told.map(|(range, _)| range), size_bytes });
            }
        };
        let object = self.object(key);
        body = body.named(&object);
        // A range that was not asked for has all of the object.
        let is_part =
            (status == 206 || extent.ranges == Ranges::Served) && request.range != GetRange::All;
        if is_part && !codings.is_empty() {
            let is_label;
            (body, is_label) = self.labelled(body, &codings, (key, extent.range.start)).await?;
            if !is_label {
                let error = named(unpack::refused_range());
                return Ok(Came::Part { error, named: None, size_bytes: None });
            }
        }
        let meta = answer::object_meta(&headers, extent.size_bytes, "");
        self.check_version(key, request, &meta)?;
        let answer = GetResponse { meta, range: extent.range, body, ranges: extent.ranges };
        if is_part || codings.is_empty() {
            return Ok(Came::Answer(answer));
        }
        let (body, is_packed) = unpack::unpacked(answer.body, &codings, key, &object).await?;
        Ok(Came::Answer(match is_packed {
            false => GetResponse { body, ..answer },
            true => GetResponse {
                meta: ObjectMeta { size_bytes: None, ..answer.meta },
                range: ByteRange { start: 0, end: answer::UNKNOWN_END },
                body,
                ranges: Ranges::Packed,
            },
        }))
    }

    /// The body of a part that begins at `start`, and whether its codings are only the label of the
    /// stored file. A server that packs such files once more does so for each of them.
    async fn labelled(
        &self,
        body: Body,
        codings: &[unpack::Coding],
        (key, start): (&str, u64),
    ) -> Result<(Body, bool)> {
        if !unpack::may_be_label(codings, key) || self.packs_twice.load(Ordering::Relaxed) {
            return Ok((body, false));
        }
        // Only the beginning tells.
        if start > 0 {
            return Ok((body, true));
        }
        let (body, is_label) = unpack::looked_at(body, codings, &self.object(key)).await?;
        if !is_label {
            self.packs_twice.store(true, Ordering::Relaxed);
        }
        Ok((body, is_label))
    }

    /// Many servers pass over conditions, so the tag of the answer is compared too.
    fn check_version(&self, key: &str, asked: &GetRequest, meta: &ObjectMeta) -> Result<()> {
        match &asked.if_match {
            Some(wanted) if meta.etag.as_ref() != Some(wanted) => {
                let error =
                    Error::new(Kind::Conflict, "the object has changed since it was opened");
                Err(self.named("GET", key, error))
            }
            _ => asked.refuse_unchanged(meta).map_err(|error| self.named("GET", key, error)),
        }
    }
}

fn contradict(one: Option<u64>, other: Option<u64>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if one != other)
}

fn empty(meta: ObjectMeta, at: u64) -> GetResponse {
    let range = ByteRange { start: at, end: at };
    GetResponse { meta, range, body: Body::Memory(Bytes::new()), ranges: Ranges::Served }
}

/// The refusal of a part where all was asked for.
fn only_a_part(told: Option<ByteRange>) -> Error {
    let part = match told {
        Some(range) => format!("bytes {}-{}", range.start, range.end.saturating_sub(1)),
        None => "it does not say which".to_string(),
    };
    let why =
        format!("the server sends a part of the object ({part}) though all of it was asked for");
    Error::new(Kind::Unsupported, why)
        .with_retry(Retry::Never)
        .with_http_status(206)
        .with_hint("Name a URL that answers with the whole object (status 200)")
}

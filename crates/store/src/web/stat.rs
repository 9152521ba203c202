//! What a web server says of an object without sending it. HEAD is believed only where it tells a
//! size: many servers answer it in other words than GET, or not at all.

use super::get::Came;
use super::{HttpStore, Outcome, Way};
use crate::answer::{FIRST_BYTE, is_size_believed};
use crate::{GetRequest, ObjectMeta, answer, unpack};
use ::http::{HeaderMap, Method};
use futures_util::future::{Either, select};
use penstock_base::{Error, Kind, Result};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::sleep;

/// A HEAD that takes longer has a GET beside it.
const HEAD_LATE_AFTER: Duration = Duration::from_secs(1);

/// What a HEAD says.
enum Head {
    Told(ObjectMeta),
    /// It answers, and only a GET tells all.
    Unsure,
    /// It answers what no object is; a GET may do otherwise.
    Refused,
}

impl HttpStore {
    /// Size and tag, by HEAD if the server answers it as it answers GET.
    ///
    /// # Errors
    /// As [`crate::Store::stat`].
    pub(super) async fn stat_object(&self, key: &str) -> Result<ObjectMeta> {
        if self.head_refused.load(Ordering::Relaxed) {
            return self.stat_by_get(key).await;
        }
        let head = pin!(self.head(key));
        let late = pin!(sleep(HEAD_LATE_AFTER));
        let head = match select(head, late).await {
            Either::Left((answer, _)) => return self.told_by_head(key, answer?).await,
            Either::Right(((), head)) => head,
        };
        let get = pin!(self.stat_by_get(key));
        match select(head, get).await {
            Either::Left((Ok(Head::Told(meta)), _)) => Ok(meta),
            Either::Left((head, get)) => {
                let meta = get.await?;
                self.note_head(&head);
                Ok(meta)
            }
            Either::Right((Ok(meta), _)) => {
                self.note_head(&Ok(Head::Refused));
                Ok(meta)
            }
            Either::Right((Err(error), head)) => match head.await {
                Ok(Head::Told(meta)) => Ok(meta),
                _ => Err(error),
            },
        }
    }

    async fn told_by_head(&self, key: &str, head: Head) -> Result<ObjectMeta> {
        match head {
            Head::Told(meta) => Ok(meta),
            head => {
                let meta = self.stat_by_get(key).await?;
                self.note_head(&Ok(head));
                Ok(meta)
            }
        }
    }

    /// A GET brought what HEAD did not: the next ones ask by GET at once.
    fn note_head(&self, head: &Result<Head>) {
        if !matches!(head, Ok(Head::Told(_) | Head::Unsure)) {
            self.head_refused.store(true, Ordering::Relaxed);
        }
    }

    async fn head(&self, key: &str) -> Result<Head> {
        let sent = self.send((&Method::HEAD, Way::Anew), "HEAD", key, &HeaderMap::new()).await;
        let response = match sent {
            Ok(Outcome::Done(response)) => response,
            // It says when to come again, for whatever request. The Hub refuses both alike.
            Ok(Outcome::Refused { failure, .. })
                if failure.status == 429 || failure.retry_after.is_some() || self.hub.is_some() =>
            {
                return Err(self.refusal("HEAD", key, failure));
            }
            Ok(Outcome::Refused { .. }) => return Ok(Head::Refused),
            Err(error) if is_no_answer(&error) => return Ok(Head::Refused),
            Err(error) => return Err(error),
        };
        let headers = &response.headers;
        let size =
            crate::http::content_length(headers).map_err(|error| self.named("HEAD", key, error))?;
        Ok(match unpack::codings(headers) {
            // The size of the packed form says nothing of the object's.
            Ok(codings) if !codings.is_empty() && !unpack::may_be_label(&codings, key) => {
                Head::Told(answer::object_meta(headers, None, ""))
            }
            Ok(codings) if codings.is_empty() && size.is_some() && is_size_believed(size) => {
                Head::Told(answer::object_meta(headers, size, ""))
            }
            // Some servers tell no size, or zero, of what they would send.
            _ => Head::Unsure,
        })
    }

    /// Size and tag by a GET of one byte.
    async fn stat_by_get(&self, key: &str) -> Result<ObjectMeta> {
        match self.ask_twice(key, &GetRequest::from(FIRST_BYTE)).await? {
            Came::Answer(answer) => Ok(answer.meta),
            Came::Part { error, .. } => Err(error),
            Came::Refused { failure, headers } if failure.status == 416 => {
                match answer::unsatisfiable_extent(FIRST_BYTE, &headers, &failure) {
                    Some(extent) if extent.size_bytes.is_some() => {
                        let meta = answer::object_meta(&headers, extent.size_bytes, "");
                        // Its type is that of the refusal.
                        Ok(ObjectMeta { content_type: None, ..meta })
                    }
                    _ => Err(self.refusal("GET", key, failure)),
                }
            }
            Came::Refused { failure, .. } => Err(self.refusal("GET", key, failure)),
        }
    }
}

/// Whether HEAD failed in a way in which GET need not: a server may hang up on it, answer what is
/// no HTTP, or redirect it to nowhere.
fn is_no_answer(error: &Error) -> bool {
    matches!(error.kind(), Kind::Unavailable | Kind::Corrupt | Kind::Invalid)
}

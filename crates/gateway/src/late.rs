//! Answers that begin before anybody knows their end: clients give up what says nothing for a
//! minute or two. As S3 does for what takes long, such an answer is 200 and white space until the
//! result stands in its body, or the error. Which operations may be answered so is theirs to say.

use crate::exchange::Exchange;
use crate::words;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{Extensions, HeaderValue, Response};
use http_body::Frame;
use s3s::dto::{CompleteMultipartUploadOutput, CopyObjectOutput, UploadPartCopyOutput};
use s3s::xml::{SerResult, Serialize, Serializer};
use s3s::{Body, S3Error, S3Response, S3Result, StdError, s3_error};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// How often a client that waits is told to go on: far below the patience of clients and of
/// whatever lies between.
const SIGN_EVERY: Duration = Duration::from_secs(1);
/// What such an answer begins with; the document at its end has none of its own.
const BEGINNING: &[u8] = b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// What an operation tells in the body of its answer. What it tells in the head too is lost where
/// that was sent before.
pub(crate) trait Told: Default {
    /// Writes that.
    fn write(&self, to: &mut Serializer<&mut Vec<u8>>) -> SerResult;
}

impl Told for CompleteMultipartUploadOutput {
    fn write(&self, to: &mut Serializer<&mut Vec<u8>>) -> SerResult {
        self.serialize(to)
    }
}

impl Told for CopyObjectOutput {
    fn write(&self, to: &mut Serializer<&mut Vec<u8>>) -> SerResult {
        self.copy_object_result.iter().try_for_each(|result| result.serialize(to))
    }
}

impl Told for UploadPartCopyOutput {
    fn write(&self, to: &mut Serializer<&mut Vec<u8>>) -> SerResult {
        self.copy_part_result.iter().try_for_each(|result| result.serialize(to))
    }
}

/// What work comes to, if it comes within `quiet`; else an answer that begins now. What goes wrong
/// then is told to the log too.
///
/// # Errors
/// Those of the work, if they come so soon. Later ones stand in the answer.
pub(crate) async fn within<T: Told>(
    quiet: Duration,
    extensions: &Extensions,
    work: impl Future<Output = S3Result<T>> + Send + 'static,
) -> S3Result<S3Response<T>> {
    let mut work = Box::pin(work);
    if !quiet.is_zero()
        && let Ok(done) = tokio::time::timeout(quiet, &mut work).await
    {
        return done.map(S3Response::new);
    }
    let exchange = extensions.get::<Arc<Exchange>>().cloned();
    let end = async move {
        let done = work.await.and_then(|output| document(|to| output.write(to)));
        done.unwrap_or_else(|error| told(error, exchange.as_deref()))
    };
    let mut response = S3Response::new(T::default());
    response.extensions.insert(Rest::of(end));
    Ok(response)
}

/// The answer as it is sent: where it begins late, that is its body.
pub(crate) fn begun(mut response: Response<Body>) -> Response<Body> {
    let rest = response.extensions_mut().remove::<Rest>();
    let body = rest.and_then(|rest| rest.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    if let Some(body) = body {
        response.headers_mut().remove(CONTENT_LENGTH);
        let xml = HeaderValue::from_static("application/xml");
        response.headers_mut().insert(CONTENT_TYPE, xml);
        *response.body_mut() = body;
    }
    response
}

/// The body of an answer that has begun. An extension of it on its way through s3s, which knows no
/// such bodies of copies, and writes those of completions with an error that is no XML.
#[derive(Clone, Debug)]
struct Rest(Arc<Mutex<Option<Body>>>);

impl Rest {
    fn of(end: impl Future<Output = Bytes> + Send + 'static) -> Self {
        let mut signs = interval_at(Instant::now() + SIGN_EVERY, SIGN_EVERY);
        signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let waiting = Waiting { has_begun: false, signs, end: Some(Box::pin(end)) };
        Rest(Arc::new(Mutex::new(Some(Body::http_body_unsync(waiting)))))
    }
}

/// White space until the end is known.
struct Waiting {
    has_begun: bool,
    signs: Interval,
    /// There until it has been told.
    end: Option<Pin<Box<dyn Future<Output = Bytes> + Send>>>,
}

impl http_body::Body for Waiting {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let sent = |bytes| Poll::Ready(Some(Ok(Frame::data(bytes))));
        if !std::mem::replace(&mut self.has_begun, true) {
            return sent(Bytes::from_static(BEGINNING));
        }
        let Some(end) = &mut self.end else { return Poll::Ready(None) };
        if let Poll::Ready(document) = end.as_mut().poll(context) {
            self.end = None;
            return sent(document);
        }
        self.signs.poll_tick(context).map(|_| Some(Ok(Frame::data(Bytes::from_static(b" ")))))
    }

    fn is_end_stream(&self) -> bool {
        self.end.is_none()
    }
}

/// A document without its first line.
fn document(write: impl FnOnce(&mut Serializer<&mut Vec<u8>>) -> SerResult) -> S3Result<Bytes> {
    let mut xml = Vec::with_capacity(512);
    let written = write(&mut Serializer::new(&mut xml));
    written.map_err(|error| s3_error!(error, InternalError, "the answer cannot be written"))?;
    Ok(Bytes::from(xml))
}

/// An error whose status was sent before, and which the log hears of here.
fn told(mut error: S3Error, exchange: Option<&Exchange>) -> Bytes {
    if error.message().is_none()
        && let Some(words) = words::of(error.code().as_str())
    {
        error.set_message(words);
    }
    if let Some(exchange) = exchange {
        let code = error.code().as_str().to_string();
        exchange.refused(code, error.message().unwrap_or_default().to_string());
        error.set_request_id(exchange.id());
    }
    document(|to| error.serialize(to)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body::Body as _;
    use s3s::dto::CopyObjectResult;

    async fn after(seconds: u64, fails: bool) -> S3Result<CopyObjectOutput> {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let result = Some(CopyObjectResult::default());
        match fails {
            true => Err(s3_error!(AccessDenied)),
            false => Ok(CopyObjectOutput { copy_object_result: result, ..Default::default() }),
        }
    }

    /// The body, where the answer begins late.
    async fn late(
        work: impl Future<Output = S3Result<CopyObjectOutput>> + Send + 'static,
    ) -> String {
        let quiet = Duration::from_secs(10);
        let begun_at = Instant::now();
        let response = within(quiet, &Extensions::new(), work).await.unwrap();
        assert_eq!(begun_at.elapsed(), quiet);
        let mut sent = Response::new(Body::empty());
        sent.extensions_mut().extend(response.extensions);
        let mut body = begun(sent).into_body();
        let mut text = String::new();
        while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await
        {
            text += std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap();
        }
        assert!(body.is_end_stream());
        text
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_in_time_is_answered_as_ever() {
        let (quiet, none) = (Duration::from_secs(10), Extensions::new());
        let soon = within(quiet, &none, after(9, false)).await.unwrap();
        assert!(soon.output.copy_object_result.is_some());
        let refused = within(quiet, &none, after(9, true)).await.unwrap_err();
        assert_eq!(*refused.code(), s3s::S3ErrorCode::AccessDenied);
        let response = begun(Response::new(Body::from("as it was".to_string())));
        assert_eq!(response.body().bytes().unwrap(), "as it was");
        assert!(response.headers().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_long_is_white_space_and_then_one_document() {
        for (fails, document) in [
            (false, "<CopyObjectResult></CopyObjectResult>"),
            (true, "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"),
        ] {
            let text = late(after(3610, fails)).await;
            let rest = text.strip_prefix(std::str::from_utf8(BEGINNING).unwrap()).unwrap();
            assert_eq!(rest.trim_start_matches(' '), document);
            assert!((3590..=3600).contains(&(rest.len() - document.len())), "{}", rest.len());
        }
    }
}

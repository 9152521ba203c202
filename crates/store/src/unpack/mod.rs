//! Unpacks what a server packed on its way (RFC 9110 section 8.4), as its bytes come.
//!
//! Decides which codings can be undone, and whether a coding is only the label of a stored file. An
//! object store keeps Content-Encoding as a label that the writer chose, so its answers are never
//! unpacked. Memory is bounded: a piece of the packed bytes, and the window of the coding.

mod decoder;
mod zstd;

use crate::Body;
use bytes::Bytes;
use decoder::{Decoder, Step};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, ETAG};
use penstock_base::{Error, Kind, Result, Retry};
use std::task::{Context, Poll};

/// Most codings, one over the other.
const CODINGS_MAX: usize = 3;
/// Bytes of a labelled file that are looked at to tell what they are: a whole block of zstd.
const LOOK_BYTES: usize = (128 << 10) + 64;

/// How a body was packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

impl Coding {
    /// The endings of files that are packed so, and the first bytes of their content.
    fn file(self) -> (&'static [&'static str], &'static [u8]) {
        match self {
            Coding::Gzip => (&[".gz", ".gzip", ".tgz"], &[0x1f, 0x8b, 8]),
            Coding::Zstd => (&[".zst", ".zstd"], &[0x28, 0xb5, 0x2f, 0xfd]),
            // DuckDB reads no files of these, so what they hold is the object.
            Coding::Deflate | Coding::Brotli => (&[], &[]),
        }
    }
}

/// The codings of an answer, in the order in which the server applied them.
///
/// # Errors
/// `Unsupported` for a coding that cannot be undone here.
pub(crate) fn codings(headers: &HeaderMap) -> Result<Vec<Coding>> {
    let mut found = Vec::new();
    let values = headers.get_all(CONTENT_ENCODING).iter();
    for text in values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')) {
        let name = String::from_utf8_lossy(text.trim_ascii()).to_ascii_lowercase();
        found.push(match name.as_str() {
            // A name of the transfer, and character sets, which some servers put here.
            "" | "identity" | "none" | "binary" | "aws-chunked" | "utf-8" | "utf8" | "us-ascii"
            | "iso-8859-1" => continue,
            "gzip" | "x-gzip" => Coding::Gzip,
            "deflate" => Coding::Deflate,
            "br" => Coding::Brotli,
            "zstd" => Coding::Zstd,
            _ => return Err(refused(&name)),
        });
    }
    if found.len() > CODINGS_MAX {
        return Err(refused("a chain of codings"));
    }
    Ok(found)
}

fn refused(name: &str) -> Error {
    let shown: String = name.chars().filter(char::is_ascii_graphic).take(40).collect();
    let why = format!("the server sends the object packed (Content-Encoding: {shown})");
    Error::new(Kind::Unsupported, why).with_hint(
        "gzip, deflate, br and zstd can be unpacked: configure the server to send one of them, or \
         to send what is stored",
    )
}

/// The refusal of a range of packed bytes, which is no range of the object.
pub(crate) fn refused_range() -> Error {
    let why = "the server sends a range of the object's packed form (Content-Encoding), which is \
               no range of the object";
    Error::new(Kind::Unsupported, why)
        .with_hint("Configure the server to send what is stored, or read the object whole")
}

/// Refuses an answer of an object store that something on the way has packed: its bytes are not
/// those that are stored. A label that the writer chose stands beside a length and a strong tag.
///
/// # Errors
/// `Corrupt`, retried briefly.
pub(crate) fn refuse_unless_label(headers: &HeaderMap) -> Result<()> {
    let is_packed = !matches!(codings(headers), Ok(codings) if codings.is_empty());
    let is_weak = headers.get(ETAG).is_some_and(|tag| tag.as_bytes().starts_with(b"W/"));
    let is_stored = headers.contains_key("x-goog-stored-content-encoding");
    if !is_packed || is_stored || headers.contains_key(CONTENT_LENGTH) && !is_weak {
        return Ok(());
    }
    let why = "something between here and the store packs its answers (Content-Encoding)";
    Err(Error::new(Kind::Corrupt, why)
        .with_retry(Retry::Briefly)
        .with_hint("Switch compression off in the proxy that stands before the store"))
}

/// Whether a coding may be the label of a file that is stored so, as far as its name tells.
pub(crate) fn may_be_label(codings: &[Coding], key: &str) -> bool {
    let [coding] = codings else { return false };
    let path = key.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
    coding.file().0.iter().any(|ending| path.ends_with(ending))
}

/// The object in a body that has all of its packed form, and whether a coding was undone. A file
/// whose name says that it is packed comes with exactly one layer of that packing.
///
/// # Errors
/// As a read of the body.
pub(crate) async fn unpacked(
    mut body: Body,
    codings: &[Coding],
    key: &str,
    object: &str,
) -> Result<(Body, bool)> {
    if may_be_label(codings, key) {
        let (looked_at, is_label) = looked_at(body, codings, object).await?;
        body = looked_at;
        if is_label {
            return Ok((body, false));
        }
    }
    let undo =
        |body, coding: &Coding| Body::Unpacked(Box::new(Unpacked::new(body, *coding, object)));
    Ok((codings.iter().rev().fold(body, undo), true))
}

/// A body that has the beginning of a file whose coding may be its label, and whether it is.
///
/// # Errors
/// As a read of the body.
pub(crate) async fn looked_at(
    mut body: Body,
    codings: &[Coding],
    object: &str,
) -> Result<(Body, bool)> {
    let mut first = vec![0; LOOK_BYTES];
    let filled = body.read_full(&mut first).await?;
    first.truncate(filled);
    let first = Bytes::from(first);
    let is_label = !is_packed_twice(codings[0], &first, object).await;
    Ok((Body::Joined(first, Box::new(body)), is_label))
}

/// Whether what is packed so begins as a file of the same packing does.
async fn is_packed_twice(coding: Coding, first: &Bytes, object: &str) -> bool {
    if coding == Coding::Zstd {
        return zstd::holds_a_frame(first);
    }
    let magic = coding.file().1;
    let mut inside = vec![0; magic.len()];
    let mut unpacked = Unpacked::new(Body::Memory(first.clone()), coding, object);
    let mut filled = 0;
    while filled < inside.len() {
        let rest = &mut inside[filled..];
        match std::future::poll_fn(|context| unpacked.poll_read(context, rest)).await {
            Ok(count) if count > 0 => filled += count,
            // Too short, or not packed at all.
            _ => return false,
        }
    }
    inside == magic
}

/// A body as it was before it was packed.
#[derive(Debug)]
pub struct Unpacked {
    packed: Body,
    decoder: Decoder,
    object: Box<str>,
}

impl Unpacked {
    fn new(packed: Body, coding: Coding, object: &str) -> Self {
        Unpacked { packed, decoder: Decoder::new(coding), object: object.into() }
    }

    /// Reads into `buf` what is there, at least one byte; 0 at the end.
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            match self.decoder.step(buf) {
                Ok(Step::Came(count)) => return Poll::Ready(Ok(count)),
                Ok(Step::Ended) => return Poll::Ready(Ok(0)),
                Ok(Step::Hungry) => {}
                Err(why) => return Poll::Ready(Err(self.damaged(&why))),
            }
            let room = self.decoder.room();
            if room.is_empty() {
                return Poll::Ready(Err(self.damaged("a piece of it is too long")));
            }
            match self.packed.poll_read(context, room) {
                Poll::Ready(Ok(count)) => self.decoder.fed(count),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn damaged(&self, why: &str) -> Error {
        let coding = match self.decoder.coding() {
            Coding::Gzip => "gzip",
            Coding::Deflate => "deflate",
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
        };
        let why =
            format!("the answer says Content-Encoding: {coding}, and cannot be unpacked: {why}");
        Error::new(Kind::Corrupt, why)
            .with_retry(Retry::Briefly)
            .with_operation("GET")
            .with_object(&*self.object)
            .with_hint("Does the server label what it does not pack? Check its configuration")
    }
}

/// Unpacks any bytes by each coding, and drops what comes.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(bytes: &[u8]) {
    let mut context = Context::from_waker(std::task::Waker::noop());
    let mut piece = vec![0; 4 << 10];
    for coding in [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd] {
        let body = Body::Memory(Bytes::copy_from_slice(bytes));
        let mut unpacked = Unpacked::new(body, coding, "k");
        // A bomb is cut: no input is worth a second.
        for _ in 0..4096 {
            match unpacked.poll_read(&mut context, &mut piece) {
                Poll::Ready(Ok(count)) if count > 0 => {}
                _ => break,
            }
        }
    }
}

#[cfg(test)]
mod tests;

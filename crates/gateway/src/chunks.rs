//! Bodies in aws-chunked form: taken apart as they come, so that no chunk is held whole, however
//! long it is; some SDKs send a body as one.
//!
//! s3s would take them apart too, and holds each chunk until it has come. So it is given the head
//! only, which it verifies; the body waits aside ([`set_aside`]) and is read by
//! [`body::Unchunked`]. What frames the bytes is decided here, what signs them in [`chain`]. The
//! bytes of a chunk are passed on before its signature is seen, but for its last piece; whoever
//! stores them stores nothing of a body that breaks off. Pure but for [`set_aside`].
//!
//! Source: "Signature Calculations for the Authorization Header: Transferring Payload in Multiple
//! Chunks", Amazon S3 API Reference.

pub(crate) mod body;
pub(crate) mod chain;

use bytes::{Buf as _, Bytes};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request};
use s3s::Body;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Of chunks that nobody signs.
const UNSIGNED: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
const SIGNED: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
const SIGNED_TRAILER: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
/// Longest line before a chunk; what is in it has 98 bytes.
const LINE_BYTES_MAX: usize = 1 << 10;
/// Most that follows the last chunk.
const TRAILER_BYTES_MAX: usize = 16 << 10;
/// Most lines of it.
const TRAILER_LINES_MAX: usize = 100;
/// Hexadecimal digits of the largest size that fits.
const DIGITS_MAX: usize = 16;
/// The header that announces what follows the chunks.
const TRAILER: &str = "x-amz-trailer";
const SIGNATURE: &str = "chunk-signature=";
const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature";

/// How the chunks of a body are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Not at all; what follows them may be.
    Unsigned,
    /// Each after the one before, and, where there has to be one, a trailer after the last.
    Signed { has_trailer: bool },
}

impl Kind {
    /// Of a request with this head; `None` where its body is not in chunks of a kind that is known.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        match headers.get("x-amz-content-sha256")?.to_str().ok()? {
            UNSIGNED => Some(Kind::Unsigned),
            SIGNED => Some(Kind::Signed { has_trailer: false }),
            SIGNED_TRAILER => Some(Kind::Signed { has_trailer: true }),
            _ => None,
        }
    }
}

/// Whether a head says that its body is in chunks, of whatever kind.
pub(crate) fn is_chunked(headers: &HeaderMap) -> bool {
    let kind = headers.get("x-amz-content-sha256");
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"STREAMING-"))
}

/// What is wrong with a body in chunks; [`crate::error`] tells clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// What frames the chunks is not what it should be.
    Malformed,
    /// A signature is not that of what it stands by.
    Signature,
    /// It ends before its last chunk, the empty one.
    NoLastChunk,
    /// It ends before the signed trailer that its head announces.
    NoTrailer,
    /// Something follows its chunks that its head does not announce.
    Unannounced,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Malformed => "the aws-chunked body is malformed",
            Fault::Signature => "a signature in the aws-chunked body does not match",
            Fault::NoLastChunk => "the aws-chunked body has no last chunk",
            Fault::NoTrailer => "the aws-chunked body has no signed trailer",
            Fault::Unannounced => "the aws-chunked body has a trailer that nothing announces",
        })
    }
}

impl std::error::Error for Fault {}

/// What comes of a body, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A chunk begins. The last one is empty.
    Chunk { is_last: bool, signature: Option<String> },
    /// Bytes of it, and whether they are the last ones.
    Data { bytes: Bytes, ends_chunk: bool },
}

/// What follows the last chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trailer {
    /// Names in lower case with their values, sorted by name.
    pub fields: Vec<(String, String)>,
    pub signature: Option<String>,
}

impl Trailer {
    /// What is signed of it.
    pub fn canonical(&self) -> String {
        self.fields.iter().map(|(name, value)| format!("{name}:{value}\n")).collect()
    }

    /// The fields as headers.
    ///
    /// # Errors
    /// `Malformed`.
    pub fn headers(&self) -> Result<HeaderMap, Fault> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.fields {
            let name: HeaderName = name.parse().map_err(|_| Fault::Malformed)?;
            let value = HeaderValue::from_str(value).map_err(|_| Fault::Malformed)?;
            headers.append(name, value);
        }
        Ok(headers)
    }

    fn parse(text: &[u8]) -> Result<Self, Fault> {
        let text = std::str::from_utf8(text).map_err(|_| Fault::Malformed)?;
        let mut trailer = Trailer::default();
        let lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
        for (number, line) in lines.filter(|line| !line.is_empty()).enumerate() {
            let (name, value) = line.split_once(':').ok_or(Fault::Malformed)?;
            let (name, value) = (name.to_ascii_lowercase(), value.trim_matches([' ', '\t']));
            match name == TRAILER_SIGNATURE {
                true => trailer.signature = Some(value.to_string()),
                false => trailer.fields.push((name, value.to_string())),
            }
            if number >= TRAILER_LINES_MAX {
                return Err(Fault::Malformed);
            }
        }
        trailer.fields.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(trailer)
    }
}

/// Takes a body apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frames {
    at: At,
    /// Of a line, or of what follows the last chunk, what has come.
    begun: Vec<u8>,
}

/// Where in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Line,
    Data {
        left_bytes: u64,
    },
    /// In the line end behind the data.
    LineEnd {
        passed_bytes: usize,
    },
    Trailer,
}

impl Frames {
    /// What is next, taken from the front of `input`; `None` where it takes more than that.
    ///
    /// # Errors
    /// `Malformed`.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<Event>, Fault> {
        while !input.is_empty() {
            match self.at {
                At::Line => {
                    let end = input.iter().position(|byte| *byte == b'\n');
                    let piece = input.split_to(end.map_or(input.len(), |end| end + 1));
                    self.begin(&piece, LINE_BYTES_MAX)?;
                    if end.is_some() {
                        return self.line().map(Some);
                    }
                }
                At::Data { left_bytes } => {
                    let length = left_bytes.min(input.len() as u64);
                    let ends_chunk = length == left_bytes;
                    self.at = match ends_chunk {
                        true => At::LineEnd { passed_bytes: 0 },
                        false => At::Data { left_bytes: left_bytes - length },
                    };
                    let bytes = input.split_to(length as usize);
                    return Ok(Some(Event::Data { bytes, ends_chunk }));
                }
                At::LineEnd { passed_bytes } => {
                    if input[0] != b"\r\n"[passed_bytes] {
                        return Err(Fault::Malformed);
                    }
                    input.advance(1);
                    self.at = match passed_bytes {
                        0 => At::LineEnd { passed_bytes: 1 },
                        _ => At::Line,
                    };
                }
                At::Trailer => {
                    let piece = input.split_to(input.len());
                    self.begin(&piece, TRAILER_BYTES_MAX)?;
                }
            }
        }
        Ok(None)
    }

    /// What followed the last chunk, once all has come.
    ///
    /// # Errors
    /// `NoLastChunk`, `Malformed`.
    pub fn end(&mut self) -> Result<Trailer, Fault> {
        match self.at {
            At::Trailer => Trailer::parse(&self.begun),
            _ => Err(Fault::NoLastChunk),
        }
    }

    fn begin(&mut self, piece: &[u8], most: usize) -> Result<(), Fault> {
        if self.begun.len() + piece.len() > most {
            return Err(Fault::Malformed);
        }
        self.begun.extend_from_slice(piece);
        Ok(())
    }

    /// Reads a line that has come: `SIZE;chunk-signature=SIGNATURE`. What else it says is passed
    /// over, as of the chunks of HTTP (RFC 9112, section 7.1.1).
    fn line(&mut self) -> Result<Event, Fault> {
        let line = std::mem::take(&mut self.begun);
        let line = std::str::from_utf8(&line).ok().and_then(|line| line.strip_suffix("\r\n"));
        let mut words = line.ok_or(Fault::Malformed)?.split(';');
        let size = words.next().unwrap_or_default();
        let is_size = (1..=DIGITS_MAX).contains(&size.len())
            && size.bytes().all(|byte| byte.is_ascii_hexdigit());
        let size = u64::from_str_radix(size, 16).ok().filter(|_| is_size);
        let left_bytes = size.ok_or(Fault::Malformed)?;
        let signature = words.find_map(|word| word.strip_prefix(SIGNATURE)).map(str::to_string);
        self.at = match left_bytes {
            0 => At::Trailer,
            _ => At::Data { left_bytes },
        };
        Ok(Event::Chunk { is_last: left_bytes == 0, signature })
    }
}

/// A body in chunks that s3s does not see.
#[derive(Clone)]
pub(crate) struct Aside(Arc<Mutex<Option<Body>>>);

impl Aside {
    /// The body, once.
    pub fn take(&self) -> Option<Body> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// That of a request, if one was set aside.
    pub fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }
}

/// Puts the body of an object or a part, if it is in chunks, where s3s does not look for it. It
/// goes with the request.
pub(crate) fn set_aside(mut request: Request<Body>) -> Request<Body> {
    if *request.method() == Method::PUT
        && let Some(kind) = Kind::of(request.headers())
    {
        // S3 takes unsigned chunks that nothing follows; s3s takes none that announce nothing.
        if kind == Kind::Unsigned && !request.headers().contains_key(TRAILER) {
            request.headers_mut().insert(TRAILER, HeaderValue::from_static(""));
        }
        let body = std::mem::take(request.body_mut());
        request.extensions_mut().insert(Aside(Arc::new(Mutex::new(Some(body)))));
    }
    request
}

/// Whether something is to follow the chunks. Takes the header away where it names nothing.
pub(crate) fn announces_trailer(headers: &mut HeaderMap) -> bool {
    let is_told = headers.get(TRAILER).is_some_and(|value| !value.is_empty());
    if !is_told {
        headers.remove(TRAILER);
    }
    is_told
}

/// What a fuzzer feeds: wherever it is cut in two, the same comes of it.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(input: &[u8]) {
    let (head, tail) = input.split_at(input.len() / 2);
    assert_eq!(tests_only::parsed(&[input]), tests_only::parsed(&[head, tail]));
}

#[cfg(any(test, feature = "fuzzing"))]
mod tests_only {
    use super::*;

    /// The bytes, the signatures and the trailer of a body.
    type Parsed = (Vec<u8>, Vec<Option<String>>, Trailer);

    /// Those of one that comes in these pieces.
    pub fn parsed(pieces: &[&[u8]]) -> Result<Parsed, Fault> {
        let (mut frames, mut data, mut signatures) = (Frames::default(), Vec::new(), Vec::new());
        for piece in pieces {
            let mut input = Bytes::copy_from_slice(piece);
            while let Some(event) = frames.next(&mut input)? {
                match event {
                    Event::Chunk { signature, .. } => signatures.push(signature),
                    Event::Data { bytes, .. } => data.extend_from_slice(&bytes),
                }
            }
            assert!(input.is_empty(), "what was given is taken");
        }
        Ok((data, signatures, frames.end()?))
    }
}

#[cfg(test)]
mod tests;

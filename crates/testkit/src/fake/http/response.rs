//! An answer: status, header lines, body; and its head as bytes.

use super::super::clock;
use super::super::codec::http_date;
use super::super::data::Data;
use bytes::Bytes;
use std::borrow::Cow;
use std::fmt::Write;

/// How an answer tells where its body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// By its length.
    Length,
    /// By two lengths, the second larger by so much.
    TwoLengths(u64),
    /// In chunks.
    Chunked,
    /// By the end of the connection.
    UntilClosed,
}

/// An answer before it is sent.
#[derive(Clone, Debug)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Header lines but for length, date and connection.
    pub headers: Vec<(Cow<'static, str>, String)>,
    /// Body bytes.
    pub body: Data,
    /// The length told, where it differs from the body's: the answer to HEAD, or a lie.
    pub length_told: Option<u64>,
    /// How it tells where its body ends.
    pub frame: Frame,
    /// Close the connection afterwards.
    pub close: bool,
}

impl Response {
    /// An answer without body.
    pub fn new(status: u16) -> Self {
        Response {
            status,
            headers: Vec::new(),
            body: Data::default(),
            length_told: None,
            frame: Frame::Length,
            close: false,
        }
    }

    /// An answer with a text.
    pub fn text(status: u16, content_type: &'static str, text: String) -> Self {
        let mut response = Response::new(status).with("Content-Type", content_type);
        response.body = Data::from(Bytes::from(text));
        response
    }

    /// Adds a header line.
    #[must_use]
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Turns the answer to GET into that to HEAD.
    #[must_use]
    pub fn without_body(mut self) -> Self {
        self.length_told = Some(self.body.len());
        self.body = Data::default();
        self
    }

    /// The first value of a header line.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Replaces the value of a header line that is there.
    pub fn replace_header(&mut self, name: &str, value: String) {
        for line in self.headers.iter_mut().filter(|line| line.0.eq_ignore_ascii_case(name)) {
            line.1.clone_from(&value);
        }
    }

    /// Whether an answer of this status has a length.
    pub fn tells_length(&self) -> bool {
        !matches!(self.status, 204 | 304)
    }

    /// The head as it goes onto the wire.
    pub fn head(&self, keep_alive: bool) -> Vec<u8> {
        let mut head = String::with_capacity(512);
        let _ = write!(head, "HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        // A server whose clock is off tells its own time.
        if !self.headers.iter().any(|(name, _)| name == "Date") {
            let _ = write!(head, "Date: {}\r\n", http_date(clock::now()));
        }
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if self.tells_length() {
            let length = self.length_told.unwrap_or(self.body.len());
            let _ = match self.frame {
                Frame::Length => write!(head, "Content-Length: {length}\r\n"),
                Frame::TwoLengths(more) => {
                    let other = length + more;
                    write!(head, "Content-Length: {length}\r\nContent-Length: {other}\r\n")
                }
                Frame::Chunked => write!(head, "Transfer-Encoding: chunked\r\n"),
                Frame::UntilClosed => Ok(()),
            };
        }
        let connection = if keep_alive { "keep-alive" } else { "close" };
        let _ = write!(head, "Connection: {connection}\r\n\r\n");
        head.into_bytes()
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        304 => "Not Modified",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        409 => "Conflict",
        411 => "Length Required",
        412 => "Precondition Failed",
        416 => "Range Not Satisfiable",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "Status",
    }
}

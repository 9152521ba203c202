//! The head of a request: read, judged, taken apart. No I/O.

use super::super::codec::percent_decode;

/// Largest head; more is refused as the services do.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// Most header lines.
const HEADERS_MAX: usize = 128;

/// Header lines in order, names in lower case, values trimmed.
#[derive(Clone, Debug, Default)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    /// The first value of a name given in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Removes every line of a name.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    /// Lines whose name starts with `prefix`, without it.
    pub fn with_prefix(&self, prefix: &str) -> Vec<(String, String)> {
        let stripped = |(name, value): &(String, String)| {
            name.strip_prefix(prefix).map(|rest| (rest.to_string(), value.clone()))
        };
        self.0.iter().filter_map(stripped).collect()
    }
}

/// The query string, decoded, in order.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// As sent, without `?`.
    pub raw: String,
    /// Decoded names and values.
    pub pairs: Vec<(String, String)>,
}

impl Query {
    /// Takes a raw query apart; `None` for a broken escape.
    pub fn parse(raw: &str) -> Option<Self> {
        let mut pairs = Vec::new();
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.push((percent_decode(name, true)?, percent_decode(value, true)?));
        }
        Some(Query { raw: raw.to_string(), pairs })
    }

    /// The first value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The first value of a name, or nothing.
    pub fn text(&self, name: &'static str) -> &str {
        self.get(name).unwrap_or("")
    }

    /// Whether a name is there, with or without a value.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

/// How the body of a request is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// `Content-Length`, 0 when there is none.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// A request without its body.
#[derive(Clone, Debug)]
pub struct Request {
    /// `GET`, `PUT`, ...
    pub method: String,
    /// Path as sent, without query.
    pub path: String,
    /// Query string.
    pub query: Query,
    /// Header lines.
    pub headers: Headers,
    /// How long the body is.
    pub framing: Framing,
    /// Whether the client waits for `100 Continue`.
    pub expects_continue: bool,
    /// Whether the connection serves another request after this one.
    pub keep_alive: bool,
    /// Serial number of the connection.
    pub connection: u64,
    /// A fault: the range that was asked for is not served.
    pub ignores_range: bool,
}

impl Request {
    /// The range to serve; `x-ms-range` goes before `range`.
    pub fn range(&self) -> Option<&str> {
        let asked = self.headers.get("x-ms-range").or(self.headers.get("range"));
        asked.filter(|_| !self.ignores_range)
    }

    /// Length told in the head; `None` when the body is chunked.
    pub fn content_length(&self) -> Option<u64> {
        match self.framing {
            Framing::Length(length) => Some(length),
            Framing::Chunked => None,
        }
    }
}

/// What is wrong with a head: the status to answer and a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadHead(pub u16, pub &'static str);

/// Reads a head from the front of `bytes`; `Ok(None)` when more bytes are needed.
/// On success also tells how many bytes the head took.
pub fn parse(bytes: &[u8], connection: u64) -> Result<Option<(Request, usize)>, BadHead> {
    let mut slots = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut slots);
    let taken = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(taken)) => taken,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(httparse::Status::Partial) => return Err(BadHead(431, "the head is too large")),
        Err(_) => return Err(BadHead(400, "the head is not HTTP/1.1")),
    };
    let mut headers = Headers::default();
    for line in parsed.headers.iter() {
        let value = std::str::from_utf8(line.value)
            .map_err(|_| BadHead(400, "a header value is not UTF-8"))?;
        headers.0.push((line.name.to_ascii_lowercase(), value.trim().to_string()));
    }
    let target = parsed.path.unwrap_or("/");
    let target = match target.strip_prefix("http://") {
        Some(absolute) => absolute.find('/').map_or("/", |at| &absolute[at..]),
        None => target,
    };
    let (path, raw_query) = target.split_once('?').unwrap_or((target, ""));
    let query = Query::parse(raw_query).ok_or(BadHead(400, "the query has a broken escape"))?;
    let connection_header = headers.get("connection").unwrap_or("").to_ascii_lowercase();
    let keep_alive = match parsed.version {
        Some(1) => connection_header != "close",
        _ => connection_header == "keep-alive",
    };
    let request = Request {
        method: parsed.method.unwrap_or("GET").to_string(),
        path: path.to_string(),
        query,
        framing: framing(&headers)?,
        expects_continue: headers
            .get("expect")
            .is_some_and(|expect| expect.eq_ignore_ascii_case("100-continue")),
        keep_alive,
        headers,
        connection,
        ignores_range: false,
    };
    Ok(Some((request, taken)))
}

fn framing(headers: &Headers) -> Result<Framing, BadHead> {
    match (headers.get("transfer-encoding"), headers.get("content-length")) {
        (Some(_), Some(_)) => Err(BadHead(400, "both a length and chunks: smuggling")),
        (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") => Ok(Framing::Chunked),
        (Some(_), None) => Err(BadHead(501, "unknown transfer coding")),
        (None, Some(length)) => match length.parse() {
            Ok(length) if length <= i64::MAX as u64 => Ok(Framing::Length(length)),
            _ => Err(BadHead(400, "the length is not a number")),
        },
        (None, None) => Ok(Framing::Length(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PUT: &[u8] = b"PUT /b/a%20b?x=1&y=%2B+z HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\
        Expect: 100-Continue\r\n\r\nhello";

    #[test]
    fn head_is_taken_apart() {
        let (request, taken) = parse(PUT, 7).unwrap().unwrap();
        assert_eq!(&PUT[taken..], b"hello");
        assert_eq!((request.path.as_str(), request.connection), ("/b/a%20b", 7));
        assert_eq!(request.query.get("y"), Some("+ z"));
        assert_eq!(request.framing, Framing::Length(5));
        assert!(request.expects_continue && request.keep_alive);
    }

    #[test]
    fn any_cut_asks_for_more() {
        let head_len = PUT.len() - 5;
        for cut in 0..head_len {
            assert!(parse(&PUT[..cut], 0).unwrap().is_none(), "cut at {cut}");
        }
    }

    #[test]
    fn ambiguous_or_endless_heads_are_refused() {
        let cases: &[(&str, u16)] = &[
            ("POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
            ("GET /?a=%zz HTTP/1.1\r\n\r\n", 400),
            ("nonsense\r\n\r\n", 400),
        ];
        for (head, status) in cases {
            assert_eq!(parse(head.as_bytes(), 0).unwrap_err().0, *status, "{head}");
        }
        let endless = format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(HEAD_BYTES_MAX));
        assert_eq!(parse(endless.as_bytes(), 0).unwrap_err().0, 431);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes: Vec<u8>) {
            let _ = parse(&bytes, 0);
        }

        #[test]
        fn damaged_heads_never_panic(at in 0..PUT.len(), byte: u8) {
            let mut damaged = PUT.to_vec();
            damaged[at] = byte;
            let _ = parse(&damaged, 0);
        }
    }
}

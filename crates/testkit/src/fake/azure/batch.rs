//! `Blob Batch`: many deletions in one request, each with its own right and verdict.

use super::super::exchange::Target;
use super::super::http::{Framing, Headers, Query, Request, Response};
use super::super::refusal::{Refusal, Served, Trouble};
use super::{Call, admit, at_once, target};
use bytes::Bytes;
use std::fmt::Write;

/// Most requests of a batch.
const REQUESTS_MAX: usize = 256;
/// Largest batch.
const BODY_BYTES_MAX: usize = 4 << 20;

fn invalid(message: &str) -> Refusal {
    Refusal::new(400, "InvalidInput", message)
}

/// One request of a batch.
#[derive(Clone, Debug)]
struct Part {
    content_id: String,
    request: Request,
}

/// The parts of a `multipart/mixed` body; `None` when it is not one.
fn parse_parts(text: &str, boundary: &str) -> Option<Vec<Part>> {
    let delimiter = format!("--{boundary}");
    let mut sections = text.split(delimiter.as_str());
    sections.next()?;
    let mut parts = Vec::new();
    for section in sections {
        if section.starts_with("--") {
            return Some(parts);
        }
        parts.push(parse_part(section)?);
    }
    // The closing delimiter is missing.
    None
}

fn parse_part(section: &str) -> Option<Part> {
    let section = section.trim_start_matches("\r\n").replace("\r\n", "\n");
    let (outer, inner) = section.trim_start_matches('\n').split_once("\n\n")?;
    let outer = header_lines(outer.lines())?;
    let mut lines = inner.lines();
    let mut words = lines.next()?.split(' ');
    let (method, uri) = (words.next()?, words.next()?);
    let (path, raw_query) = uri.split_once('?').unwrap_or((uri, ""));
    let headers = header_lines(lines.take_while(|line| !line.is_empty()))?;
    let request = Request {
        method: method.to_string(),
        path: path.to_string(),
        query: Query::parse(raw_query)?,
        headers,
        framing: Framing::Length(0),
        expects_continue: false,
        keep_alive: true,
        connection: 0,
        ignores_range: false,
    };
    Some(Part { content_id: outer.get("content-id").unwrap_or("0").to_string(), request })
}

fn header_lines<'a>(lines: impl Iterator<Item = &'a str>) -> Option<Headers> {
    let mut headers = Headers::default();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let (name, value) = line.split_once(':')?;
        headers.0.push((name.trim().to_ascii_lowercase(), value.trim().to_string()));
    }
    Some(headers)
}

/// Serves a batch.
///
/// # Errors
/// `InvalidInput`, `ExceedsMaxBatchRequestCount`, `RequestBodyTooLarge`.
pub fn submit(call: &Call<'_>, pieces: &[Bytes]) -> Served {
    let boundary = call
        .header("content-type")
        .and_then(|value| value.strip_prefix("multipart/mixed"))
        .and_then(|rest| rest.split_once("boundary="))
        .map(|(_, boundary)| boundary.trim().trim_matches('"'));
    let boundary = boundary.ok_or_else(|| invalid("Content-Type has no boundary"))?;
    let body = pieces.concat();
    if body.len() > BODY_BYTES_MAX {
        return Err(Refusal::new(413, "RequestBodyTooLarge", "The batch is too large.").into());
    }
    let text = String::from_utf8(body).map_err(|_| invalid("the batch is not UTF-8"))?;
    let parts = parse_parts(&text, boundary).ok_or_else(|| invalid("the batch is malformed"))?;
    if parts.is_empty() {
        return Err(invalid("the batch is empty").into());
    }
    if parts.len() > REQUESTS_MAX {
        let message = "The batch operation exceeds maximum number of allowed subrequests.";
        return Err(Refusal::new(400, "ExceedsMaxBatchRequestCount", message).into());
    }
    let boundary = "batchresponse_00000000-0000-0000-0000-000000000002";
    let mut answers = String::new();
    for part in &parts {
        write_answer(&mut answers, boundary, &part.content_id, &serve_part(call, &part.request));
    }
    let _ = write!(answers, "--{boundary}--\r\n");
    let mut answer =
        Response::new(202).with("Content-Type", format!("multipart/mixed; boundary={boundary}"));
    answer.body = super::super::data::Data::from(Bytes::from(answers));
    Ok(answer)
}

fn serve_part(call: &Call<'_>, request: &Request) -> Response {
    // Clients leave the account out of the path where they would have it in the host; what they
    // sign is the path as they sent it.
    let account = &call.server.options.account;
    let mut addressed = request.clone();
    if !request.path.starts_with(&format!("/{account}/")) {
        addressed.path = format!("/{account}{}", request.path);
    }
    let mut target: Target = target(&addressed);
    if !matches!(target.operation, "DeleteBlob") {
        target.operation = "Unknown";
    }
    let part = Call { server: call.server, request, target: &target, in_batch: true };
    match admit(&part).map_err(Trouble::from).and_then(|()| at_once(&part)) {
        Ok(answer) => answer,
        Err(Trouble::Refused(refusal)) => refusal.azure(),
        Err(Trouble::Broken(_)) => Refusal::new(500, "InternalError", "the disk broke").azure(),
    }
}

fn write_answer(out: &mut String, boundary: &str, content_id: &str, answer: &Response) {
    let _ = write!(
        out,
        "--{boundary}\r\nContent-Type: application/http\r\nContent-ID: {content_id}\r\n\r\n\
         HTTP/1.1 {} Status\r\n",
        answer.status
    );
    for (name, value) in &answer.headers {
        let _ = write!(out, "{name}: {value}\r\n");
    }
    out.push_str("\r\n");
    for piece in &answer.body.0 {
        if let super::super::data::Piece::Memory(bytes) = piece {
            out.push_str(&String::from_utf8_lossy(bytes));
        }
    }
    out.push_str("\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BODY: &str = "--b\r\nContent-Type: application/http\r\nContent-ID: 7\r\n\r\n\
        DELETE /acc/c/a%20b?x=1 HTTP/1.1\r\nx-ms-date: now\r\nContent-Length: 0\r\n\r\n\r\n--b--";

    #[test]
    fn a_part_is_taken_apart() {
        let parts = parse_parts(BODY, "b").unwrap();
        assert_eq!(parts.len(), 1);
        assert_eq!(parts[0].content_id, "7");
        assert_eq!(parts[0].request.path, "/acc/c/a%20b");
        assert_eq!(parts[0].request.headers.get("x-ms-date"), Some("now"));
    }

    proptest! {
        #[test]
        fn cut_or_damaged_batches_never_panic(at in 0..BODY.len(), letter in "[ -~\r\n]") {
            prop_assert!(at + 2 >= BODY.len() || parse_parts(&BODY[..at], "b").is_none());
            let damaged = format!("{}{letter}{}", &BODY[..at], &BODY[at + 1..]);
            let _ = parse_parts(&damaged, "b");
        }
    }
}

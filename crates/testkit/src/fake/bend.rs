//! How faults bend an answer, and the way it leaves the wire.

use super::data::{Data, Piece};
use super::fault::{Action, FaultPlan, FaultSpec};
use super::http::wire::Wire;
use super::http::{Frame, Response};
use bytes::Bytes;
use std::io;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// What stands in the place of an answer that is no HTTP.
const GARBAGE: &[u8] = b"\x16\x03\x01\x00\xEEgarbage\r\n\r\n\x00\xFF";
/// Longest silence of a connection that says nothing more.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Bytes of a chunk of an answer that is framed in chunks.
const CHUNK_BYTES: u64 = 16 << 10;

/// How an answer ends that does not come whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The connection is cut.
    Cut,
    /// The connection is closed in order.
    Close,
    /// Nothing more is said.
    Silence,
}

/// How an answer leaves the wire.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// Bytes of the head that are sent, where it is not all of them.
    head_end: Option<u64>,
    /// Bytes of the body that are sent, and what comes then.
    body_end: Option<(u64, Ending)>,
    /// Behind the last chunk that is sent comes a size that is no number.
    bad_chunk: bool,
    /// No answer is sent, but bytes that are none.
    garbage: bool,
    /// Bytes of the body a second.
    bytes_per_s: Option<u64>,
}

/// Bends an answer by the faults that apply to it, which are counted.
pub fn bend(answer: &mut Response, faults: &[FaultSpec], plan: &FaultPlan) -> Shape {
    let mut shape = Shape::default();
    for fault in faults {
        if apply(answer, &fault.action, &mut shape) {
            plan.took_effect(&fault.action);
        }
    }
    shape
}

/// Whether the action changed what the client meets.
fn apply(answer: &mut Response, action: &Action, shape: &mut Shape) -> bool {
    let len = answer.body.len();
    match action {
        Action::Cut(bytes) => {
            shape.body_end = Some(((*bytes).min(len), Ending::Cut));
            *bytes < len
        }
        Action::Hang(bytes) if *bytes < len => {
            shape.body_end = Some((*bytes, Ending::Silence));
            true
        }
        Action::CutChunk(bytes) if *bytes < len => {
            answer.frame = Frame::Chunked;
            shape.body_end = Some((*bytes, Ending::Close));
            true
        }
        Action::BadChunk(bytes) if *bytes < len => {
            answer.frame = Frame::Chunked;
            shape.body_end = Some((*bytes, Ending::Close));
            shape.bad_chunk = true;
            true
        }
        Action::Truncate(bytes) if *bytes < len => {
            answer.body = answer.body.slice(0, *bytes);
            true
        }
        // The answer to a HEAD tells the size of the object, of which there is no body to differ.
        Action::LieLength(by) if answer.length_told.is_none() && answer.tells_length() => {
            answer.length_told = Some(len.saturating_add_signed(*by));
            *by != 0
        }
        Action::TwoLengths(by) if answer.tells_length() => {
            answer.frame = Frame::TwoLengths(*by);
            *by != 0
        }
        Action::WrongRange(by) => shift_range(answer, *by),
        Action::Corrupt(at) if *at < len => corrupt(answer, *at),
        Action::Without(name) => leave_out(answer, name),
        Action::Slow(bytes_per_s) => {
            shape.bytes_per_s = Some(*bytes_per_s);
            len > 0
        }
        Action::CutHead(bytes) => {
            shape.head_end = Some(*bytes);
            true
        }
        Action::Garbage => {
            shape.garbage = true;
            true
        }
        Action::Latency(_) => true,
        _ => false,
    }
}

fn corrupt(answer: &mut Response, at: u64) -> bool {
    let len = answer.body.len();
    let byte = answer.body.slice(at, at + 1);
    let Some(Piece::Memory(byte)) = byte.0.first() else { return false };
    let mut bent = answer.body.slice(0, at);
    bent.extend(&Data::from(Bytes::from(vec![!byte[0]])));
    bent.extend(&answer.body.slice(at + 1, len));
    answer.body = bent;
    true
}

fn leave_out(answer: &mut Response, name: &str) -> bool {
    if name.eq_ignore_ascii_case("content-length") {
        // Without a length the end of the connection is the end of the body.
        answer.frame = Frame::UntilClosed;
        answer.close = true;
        return answer.tells_length();
    }
    let before = answer.headers.len();
    answer.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
    answer.headers.len() < before
}

fn shift_range(answer: &mut Response, by: i64) -> bool {
    let shifted = answer.header("Content-Range").and_then(|value| {
        let (range, size) = value.strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let first = first.parse::<u64>().ok()?.saturating_add_signed(by);
        let last = last.parse::<u64>().ok()?.saturating_add_signed(by);
        Some(format!("bytes {first}-{last}/{size}"))
    });
    let Some(shifted) = shifted else { return false };
    answer.replace_header("Content-Range", shifted);
    true
}

/// What faults add to the latency of the link.
pub fn latency(faults: &[FaultSpec]) -> Option<Duration> {
    faults.iter().fold(None, |sum: Option<Duration>, fault| match fault.action {
        Action::Latency(more) => Some(sum.unwrap_or_default() + more),
        _ => sum,
    })
}

/// What has become of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Bytes of the body that were sent.
    pub body_bytes: u64,
    /// Whether the connection can carry another answer; if not, whether it ends in order.
    pub then: Then,
}

/// What comes behind an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The next request.
    GoOn,
    /// The end of the connection.
    Close,
    /// A reset.
    Reset,
}

/// Sends an answer in the shape that the faults gave it.
///
/// # Errors
/// When the connection breaks.
pub async fn send(
    wire: &mut Wire,
    answer: &Response,
    keep: bool,
    shape: &Shape,
) -> io::Result<Sent> {
    let sent = |body_bytes, then| Ok(Sent { body_bytes, then });
    if shape.garbage {
        wire.send(&[Bytes::from_static(GARBAGE)]).await?;
        return sent(0, Then::Close);
    }
    let head = answer.head(keep);
    if let Some(bytes) = shape.head_end {
        let bytes = (bytes as usize).min(head.len() - 1);
        wire.send(&[Bytes::from(head).slice(..bytes)]).await?;
        return sent(0, Then::Reset);
    }
    let end = shape.body_end.map_or(answer.body.len(), |(end, _)| end);
    let body = answer.body.slice(0, end);
    match (answer.frame, shape.bytes_per_s) {
        (Frame::Chunked, _) => send_chunks(wire, head, &body, shape).await?,
        (_, Some(bytes_per_s)) => send_slowly(wire, head, &body, bytes_per_s).await?,
        (_, None) => wire.send_answer(head, &body.0).await?,
    }
    match shape.body_end {
        None if keep => sent(end, Then::GoOn),
        None | Some((_, Ending::Close)) => sent(end, Then::Close),
        Some((_, Ending::Cut)) => sent(end, Then::Reset),
        Some((_, Ending::Silence)) => {
            wire.hold(SILENCE_MAX).await;
            sent(end, Then::Reset)
        }
    }
}

async fn send_chunks(wire: &mut Wire, head: Vec<u8>, body: &Data, shape: &Shape) -> io::Result<()> {
    wire.send_answer(head, &[]).await?;
    let mut sent = 0;
    while sent < body.len() {
        let end = (sent + CHUNK_BYTES).min(body.len());
        let size = format!("{:x}\r\n", end - sent).into_bytes();
        wire.send_answer(size, &body.slice(sent, end).0).await?;
        wire.send_answer(b"\r\n".to_vec(), &[]).await?;
        sent = end;
    }
    match (shape.bad_chunk, shape.body_end) {
        (true, _) => wire.send_answer(b"zz\r\nno chunk\r\n".to_vec(), &[]).await,
        (false, Some(_)) => Ok(()),
        (false, None) => wire.send_answer(b"0\r\n\r\n".to_vec(), &[]).await,
    }
}

async fn send_slowly(
    wire: &mut Wire,
    head: Vec<u8>,
    body: &Data,
    bytes_per_s: u64,
) -> io::Result<()> {
    wire.send_answer(head, &[]).await?;
    // A tenth of a second's bytes a step: slow enough to be seen, fast enough to be steady.
    let step = (bytes_per_s / 10).max(1);
    let begun = Instant::now();
    let mut sent = 0;
    while sent < body.len() {
        let end = (sent + step).min(body.len());
        sleep_until(begun + Duration::from_secs_f64(end as f64 / bytes_per_s as f64)).await;
        wire.send_answer(Vec::new(), &body.slice(sent, end).0).await?;
        sent = end;
    }
    Ok(())
}

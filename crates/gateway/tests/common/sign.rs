//! Signature version 4, written from its specification so that it does not share a mistake with
//! the code under test.

use super::Request;
use ring::{digest, hmac};
use std::time::{SystemTime, UNIX_EPOCH};

pub const REGION: &str = "us-east-1";

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

/// `YYYYMMDDTHHMMSSZ` of now, shifted.
pub fn timestamp(offset_s: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64 + offset_s;
    let (days, second) = (now.div_euclid(86_400), now.rem_euclid(86_400));
    // Howard Hinnant's days-to-civil algorithm.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

pub fn signing_key(secret: &str, date: &str) -> Vec<u8> {
    let key = mac(format!("AWS4{secret}").as_bytes(), date);
    let key = mac(&key, REGION);
    let key = mac(&key, "s3");
    mac(&key, "aws4_request")
}

/// Of what is signed at a time.
fn scope(time: &str) -> String {
    format!("{}/{REGION}/s3/aws4_request", &time[..8])
}

pub fn signature(secret: &str, time: &str, canonical: &str) -> String {
    let hash = sha256_hex(canonical.as_bytes());
    let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{}\n{hash}", scope(time));
    hex(&mac(&signing_key(secret, &time[..8]), &to_sign))
}

/// Query pairs sorted, as the canonical request wants them. Test paths come encoded already.
pub fn canonical_query(query: &str) -> String {
    let mut pairs: Vec<String> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| if pair.contains('=') { pair.to_string() } else { format!("{pair}=") })
        .collect();
    pairs.sort();
    pairs.join("&")
}

/// The whole request, head and body, signed in its headers.
pub fn signed(request: &Request<'_>, host: &str, secret: &str, access: &str) -> Vec<u8> {
    let (mut head, _) = signed_head(request, host, secret, access);
    let has_length = request.headers.iter().any(|(name, _)| {
        ["content-length", "transfer-encoding"].contains(&name.to_ascii_lowercase().as_str())
    });
    if !has_length && (!request.body.is_empty() || matches!(request.method, "PUT" | "POST")) {
        head += &format!("content-length: {}\r\n", request.body.len());
    }
    head += "\r\n";
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(request.body);
    bytes
}

/// The head of a request up to where it may say more that is not signed, and its signature.
fn signed_head(request: &Request<'_>, host: &str, secret: &str, access: &str) -> (String, Signed) {
    let time = timestamp(request.clock_offset_s);
    let digest = sha256_hex(request.body);
    let payload = request.content_sha256.unwrap_or(&digest);
    let (path, query) = request.path.split_once('?').unwrap_or((request.path, ""));
    let mut headers: Vec<(String, String)> = vec![
        ("host".into(), host.into()),
        ("x-amz-content-sha256".into(), payload.into()),
        ("x-amz-date".into(), time.clone()),
    ];
    for (name, value) in request.headers {
        headers.push((name.to_ascii_lowercase(), value.to_string()));
    }
    headers.sort();
    let folded = |value: &str| value.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    let canonical_headers: String =
        headers.iter().map(|(name, value)| format!("{name}:{}\n", folded(value))).collect();
    let names: Vec<&str> = headers.iter().map(|row| row.0.as_str()).collect();
    let names = names.join(";");
    let query = canonical_query(query);
    let canonical =
        format!("{}\n{path}\n{query}\n{canonical_headers}\n{names}\n{payload}", request.method);
    let signature = signature(secret, &time, &canonical);
    let mut head = format!("{} {} HTTP/1.1\r\n", request.method, request.path);
    for (name, value) in &headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!(
        "authorization: AWS4-HMAC-SHA256 Credential={access}/{}, SignedHeaders={names}, \
         Signature={signature}\r\n",
        scope(&time)
    );
    (head, Signed { time, signature })
}

/// A presigned path.
pub fn presigned(
    method: &str,
    path: &str,
    host: &str,
    secret: &str,
    access: &str,
    expires_s: u32,
    offset_s: i64,
) -> String {
    let time = timestamp(offset_s);
    let query = format!(
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={access}%2F{}%2F{REGION}%2Fs3%2Faws4_request\
         &X-Amz-Date={time}&X-Amz-Expires={expires_s}&X-Amz-SignedHeaders=host",
        &time[..8]
    );
    let canonical = format!(
        "{method}\n{path}\n{}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD",
        canonical_query(&query)
    );
    format!("{path}?{query}&X-Amz-Signature={}", signature(secret, &time, &canonical))
}

/// An aws-chunked body of unsigned chunks with one trailer, as SDKs send by default.
pub fn unsigned_chunks(pieces: &[&[u8]], trailer: (&str, &str)) -> Vec<u8> {
    let mut body = Vec::new();
    for piece in pieces {
        body.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        body.extend_from_slice(piece);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("0\r\n{}:{}\r\n\r\n", trailer.0, trailer.1).as_bytes());
    body
}

/// What signed a head: the chunks behind it go on from that.
struct Signed {
    time: String,
    signature: String,
}

/// A body in chunks of which each is signed after the one before.
#[derive(Clone, Copy)]
pub struct Chunks<'a> {
    pub pieces: &'a [&'a [u8]],
    pub trailer: Option<(&'a str, &'a str)>,
    /// Which of the signatures is not the one that it should be. Those of the pieces come first,
    /// then that of the empty chunk, then that of the trailer.
    pub forged: Option<usize>,
    /// Ends behind the empty chunk, though a trailer was announced.
    pub is_cut: bool,
}

/// A PUT of them, signed in its headers.
pub fn signed_chunks(
    path: &str,
    chunks: &Chunks<'_>,
    host: &str,
    secret: &str,
    access: &str,
) -> Vec<u8> {
    let decoded = chunks.pieces.iter().map(|piece| piece.len()).sum::<usize>().to_string();
    let mut headers =
        vec![("content-encoding", "aws-chunked"), ("x-amz-decoded-content-length", &decoded)];
    headers.extend(chunks.trailer.map(|(name, _)| ("x-amz-trailer", name)));
    let content_sha256 = Some(match chunks.trailer {
        None => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        Some(_) => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
    });
    let request =
        Request { method: "PUT", path, headers: &headers, content_sha256, ..Default::default() };
    let (head, signed) = signed_head(&request, host, secret, access);
    let body = chunks.signed_after(signed, secret);
    let mut bytes = format!("{head}content-length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(&body);
    bytes
}

impl Chunks<'_> {
    fn signed_after(&self, head: Signed, secret: &str) -> Vec<u8> {
        let key = signing_key(secret, &head.time[..8]);
        let (mut previous, mut number) = (head.signature, 0);
        let mut sign = |what: &str, digests: &str| {
            let (time, scope) = (&head.time, scope(&head.time));
            let to_sign =
                format!("AWS4-HMAC-SHA256-{what}\n{time}\n{scope}\n{previous}\n{digests}");
            // The next one goes on from the right one, so that no other tells of the forged one.
            previous = hex(&mac(&key, &to_sign));
            number += 1;
            match self.forged == Some(number - 1) {
                true => forged(&previous),
                false => previous.clone(),
            }
        };
        let mut body = Vec::new();
        for piece in self.pieces.iter().copied().chain([&b""[..]]) {
            let digests = format!("{}\n{}", sha256_hex(b""), sha256_hex(piece));
            let signature = sign("PAYLOAD", &digests);
            let size = piece.len();
            body.extend_from_slice(format!("{size:x};chunk-signature={signature}\r\n").as_bytes());
            body.extend_from_slice(piece);
            // A trailer begins where the data of the empty chunk would.
            if !piece.is_empty() {
                body.extend_from_slice(b"\r\n");
            }
        }
        if let Some((name, value)) = self.trailer.filter(|_| !self.is_cut) {
            let line = format!("{name}:{value}\n");
            let signature = sign("TRAILER", &sha256_hex(line.as_bytes()));
            let trailer = format!("{name}:{value}\r\nx-amz-trailer-signature:{signature}\r\n");
            body.extend_from_slice(trailer.as_bytes());
        }
        body.extend_from_slice(b"\r\n");
        body
    }
}

/// Another signature, by one digit.
fn forged(signature: &str) -> String {
    let (rest, last) = signature.split_at(signature.len() - 1);
    format!("{rest}{}", if last == "0" { "1" } else { "0" })
}

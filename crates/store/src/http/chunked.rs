//! The framing of a chunked body (RFC 9112 section 7.1) as a state machine without I/O.
//!
//! The caller feeds framing bytes and moves the data bytes itself, so that data goes from the
//! socket straight into the reader's buffer.

use penstock_base::{Error, Kind, Result, Retry};

/// Longest sum of chunk extensions of one chunk, and of all trailer fields.
const EXTRA_BYTES_MAX: usize = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Inside the hexadecimal size.
    Size { value: u64, digits: u8 },
    /// Behind the size, before the line's end.
    Extension { value: u64, seen: usize },
    /// Inside the data.
    Data { left: u64 },
    /// At the line end behind the data.
    DataEnd,
    /// Inside the trailer section; `line` counts the bytes of the line so far.
    Trailer { line: usize, seen: usize },
    /// The body is over.
    Done,
}

/// Decodes chunk sizes and trailers; data bytes pass by it.
#[derive(Debug)]
pub(crate) struct ChunkDecoder(State);

impl ChunkDecoder {
    pub(crate) fn new() -> Self {
        ChunkDecoder(State::Size { value: 0, digits: 0 })
    }

    /// Data bytes that come next; 0 means framing comes next, or the end.
    pub(crate) fn data_left(&self) -> u64 {
        match self.0 {
            State::Data { left } => left,
            _ => 0,
        }
    }

    /// Whether the body is over.
    pub(crate) fn is_done(&self) -> bool {
        self.0 == State::Done
    }

    /// Notes that the caller took `count` data bytes, at most [`ChunkDecoder::data_left`].
    pub(crate) fn took(&mut self, count: u64) {
        if let State::Data { left } = self.0 {
            let left = left.saturating_sub(count);
            self.0 = if left == 0 { State::DataEnd } else { State::Data { left } };
        }
    }

    /// Consumes framing bytes up to the next data byte or the end; answers how many.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are no chunked framing.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut used = 0;
        while used < bytes.len() && !matches!(self.0, State::Data { .. } | State::Done) {
            self.0 = next(self.0, bytes[used])?;
            used += 1;
        }
        Ok(used)
    }
}

fn next(state: State, byte: u8) -> Result<State> {
    match state {
        State::Size { value, digits } => match char::from(byte).to_digit(16) {
            Some(digit) if digits < 16 => {
                Ok(State::Size { value: (value << 4) | u64::from(digit), digits: digits + 1 })
            }
            Some(_) => Err(wrong("a chunk size is too large")),
            None if digits == 0 => Err(wrong("a chunk has no size")),
            None => match byte {
                b'\n' => Ok(after_size(value)),
                b'\r' | b';' | b' ' | b'\t' => Ok(State::Extension { value, seen: 0 }),
                _ => Err(wrong("a chunk size is no hexadecimal number")),
            },
        },
        State::Extension { value, .. } if byte == b'\n' => Ok(after_size(value)),
        State::Extension { seen, .. } if seen >= EXTRA_BYTES_MAX => {
            Err(wrong("a chunk extension is too long"))
        }
        State::Extension { value, seen } => Ok(State::Extension { value, seen: seen + 1 }),
        State::DataEnd => match byte {
            b'\r' => Ok(State::DataEnd),
            b'\n' => Ok(State::Size { value: 0, digits: 0 }),
            _ => Err(wrong("a chunk is longer than its size")),
        },
        State::Trailer { line: 0, .. } if byte == b'\n' => Ok(State::Done),
        State::Trailer { seen, .. } if seen >= EXTRA_BYTES_MAX => {
            Err(wrong("the trailer section is too long"))
        }
        State::Trailer { seen, .. } if byte == b'\n' => {
            Ok(State::Trailer { line: 0, seen: seen + 1 })
        }
        State::Trailer { line, seen } => {
            Ok(State::Trailer { line: line + usize::from(byte != b'\r'), seen: seen + 1 })
        }
        State::Data { .. } | State::Done => Ok(state),
    }
}

fn after_size(value: u64) -> State {
    match value {
        0 => State::Trailer { line: 0, seen: 0 },
        left => State::Data { left },
    }
}

fn wrong(what: &str) -> Error {
    Error::new(Kind::Corrupt, format!("the chunked answer is malformed: {what}"))
        .with_retry(Retry::BackOff)
        .with_hint("Does a proxy between here and the store alter the bytes?")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Decodes bytes that arrive in pieces; the data and whether the end was reached.
    fn decode(pieces: &[&[u8]]) -> Result<(Vec<u8>, bool)> {
        let (mut decoder, mut data) = (ChunkDecoder::new(), Vec::new());
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() && !decoder.is_done() {
                let count = usize::try_from(decoder.data_left()).unwrap().min(rest.len());
                if count > 0 {
                    data.extend_from_slice(&rest[..count]);
                    decoder.took(count as u64);
                    rest = &rest[count..];
                } else {
                    let used = decoder.feed(rest)?;
                    assert!(used > 0, "the decoder moves on");
                    rest = &rest[used..];
                }
            }
        }
        Ok((data, decoder.is_done()))
    }

    fn encode(chunks: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
            bytes.extend_from_slice(format!("{:x};a=\"b\"\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\nA: b\r\n\r\n");
        bytes
    }

    #[test]
    fn malformed_framing_is_corrupt() {
        for text in ["x\r\n", "\r\n", "11111111111111111\r\n", "2\r\nabc\r\n", "-1\r\n", "5 x"] {
            let found = decode(&[text.as_bytes()]);
            assert!(found.is_err() || !found.unwrap().1, "{text}");
        }
        let endless = vec![b'a'; EXTRA_BYTES_MAX + 10];
        assert!(decode(&[b"1;", &endless]).is_err());
        assert!(decode(&[b"0\r\n", &endless]).is_err());
    }

    proptest! {
        #[test]
        fn splits_do_not_matter(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6),
            cuts in prop::collection::vec(0usize..400, 0..8),
        ) {
            let bytes = encode(&chunks);
            let within = |cut: usize| cut % (bytes.len() + 1);
            let mut cuts: Vec<usize> = cuts.into_iter().map(within).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(decode(&pieces).unwrap(), (chunks.concat(), true));
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(decode(&single).unwrap(), (chunks.concat(), true));
        }

        #[test]
        fn any_bytes_end_without_panic(bytes: Vec<u8>) {
            let _ = decode(&[&bytes]);
        }
    }
}

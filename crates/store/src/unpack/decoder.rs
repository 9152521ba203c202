//! One coding, undone piece by piece: packed bytes go in, the object's bytes come out.

use super::Coding;
use super::zstd::Frames;
use brotli_decompressor::Decompressor;
use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use std::fmt;
use std::io::{self, BufRead, Read};

/// Packed bytes that are held at most: a whole block of zstd, the longest there is, and its ends.
const HELD_BYTES_MAX: usize = (128 << 10) + 64;
/// What brotli's decoder copies for itself at a time.
const BROTLI_INPUT_BYTES: usize = 16 << 10;

/// Packed bytes that have come and were not taken yet. A read beyond them would block.
pub(super) struct Input {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// Nothing more comes.
    pub is_over: bool,
    /// Something came.
    has_come: bool,
}

impl Input {
    fn new() -> Self {
        let bytes = vec![0; HELD_BYTES_MAX].into();
        Input { bytes, start: 0, end: 0, is_over: false, has_come: false }
    }

    /// What is here.
    pub fn held(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    fn room(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.bytes[self.end..]
    }

    fn fed(&mut self, count: usize) {
        self.end += count;
        self.is_over |= count == 0;
        self.has_come |= count > 0;
    }
}

impl Read for Input {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let held = self.fill_buf()?;
        let count = held.len().min(buf.len());
        buf[..count].copy_from_slice(&held[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Input {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.start == self.end && !self.is_over {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(self.held())
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
    }
}

/// What a step came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// So many bytes of the object.
    Came(usize),
    /// More packed bytes are needed.
    Hungry,
    /// The object ends.
    Ended,
}

enum Inner {
    Gzip(Box<MultiGzDecoder<Input>>),
    /// RFC 9110 means zlib's form, and some servers send the bare one.
    Deflate(Option<Input>),
    Zlib(Box<ZlibDecoder<Input>>),
    Bare(Box<DeflateDecoder<Input>>),
    Brotli(Box<Decompressor<Input>>),
    Zstd(Box<Frames>),
}

/// Undoes one coding.
pub(super) struct Decoder {
    coding: Coding,
    inner: Inner,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").field("coding", &self.coding).finish_non_exhaustive()
    }
}

impl Decoder {
    pub fn new(coding: Coding) -> Self {
        let input = Input::new();
        let inner = match coding {
            Coding::Gzip => Inner::Gzip(Box::new(MultiGzDecoder::new(input))),
            Coding::Deflate => Inner::Deflate(Some(input)),
            Coding::Brotli => Inner::Brotli(Box::new(Decompressor::new(input, BROTLI_INPUT_BYTES))),
            Coding::Zstd => Inner::Zstd(Box::new(Frames::new(input))),
        };
        Decoder { coding, inner }
    }

    pub fn coding(&self) -> Coding {
        self.coding
    }

    fn input(&mut self) -> &mut Input {
        match &mut self.inner {
            Inner::Gzip(decoder) => decoder.get_mut(),
            Inner::Deflate(input) => input.as_mut().expect("it is taken with its decoder"),
            Inner::Zlib(decoder) => decoder.get_mut(),
            Inner::Bare(decoder) => decoder.get_mut(),
            Inner::Brotli(decoder) => decoder.get_mut(),
            Inner::Zstd(frames) => &mut frames.input,
        }
    }

    /// Where the next packed bytes go.
    pub fn room(&mut self) -> &mut [u8] {
        self.input().room()
    }

    /// So many came; none at the end of them.
    pub fn fed(&mut self, count: usize) {
        self.input().fed(count);
    }

    /// The next bytes of the object.
    ///
    /// # Errors
    /// Why the packed bytes are none.
    pub fn step(&mut self, buf: &mut [u8]) -> Result<Step, String> {
        let input = self.input();
        if input.is_over && !input.has_come {
            // An empty object, which nobody packs.
            return Ok(Step::Ended);
        }
        self.decide_deflate();
        let answer = match &mut self.inner {
            Inner::Gzip(decoder) => decoder.read(buf),
            Inner::Deflate(_) => return Ok(Step::Hungry),
            Inner::Zlib(decoder) => decoder.read(buf),
            Inner::Bare(decoder) => decoder.read(buf),
            Inner::Brotli(decoder) => decoder.read(buf),
            Inner::Zstd(frames) => frames.read(buf),
        };
        match answer {
            Ok(0) => Ok(Step::Ended),
            Ok(count) => Ok(Step::Came(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Step::Hungry),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err("it ends too early".to_string())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// The first two bytes tell which of both forms it is.
    fn decide_deflate(&mut self) {
        let Inner::Deflate(waiting) = &mut self.inner else { return };
        let Some(input) = waiting.take_if(|input| input.held().len() >= 2 || input.is_over) else {
            return;
        };
        let is_zlib = matches!(input.held(), [first, second, ..]
            if first & 0x0f == 8 && (u16::from(*first) << 8 | u16::from(*second)) % 31 == 0);
        self.inner = match is_zlib {
            true => Inner::Zlib(Box::new(ZlibDecoder::new(input))),
            false => Inner::Bare(Box::new(DeflateDecoder::new(input))),
        };
    }
}

//! Frames of zstd, one block at a time, so that no more than a window and a block is in memory.

use super::decoder::Input;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead as _, Read as _};
use xxhash_rust::xxh64::Xxh64;

/// Largest window: no server may need more of one who reads over HTTP (RFC 9659).
const WINDOW_BYTES_MAX: u64 = 8 << 20;
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The last three bytes of frames that hold none of the object.
const SKIPPED: [u8; 3] = [0x2a, 0x4d, 0x18];
/// Magic number, descriptor, window, dictionary and size.
const HEADER_BYTES_MAX: usize = 18;
const BLOCK_HEADER_BYTES: usize = 3;
const CHECKSUM_BYTES: usize = 4;
/// In the descriptor.
const CHECKSUM_FLAG: u8 = 4;

enum At {
    Header,
    /// Of a frame without data, what is left.
    Skipping(u64),
    /// Blocks come, and a checksum behind the last if the frame says so.
    Blocks {
        has_checksum: bool,
    },
    /// All blocks have come.
    LastBytes,
}

pub(super) struct Frames {
    pub input: Input,
    decoder: FrameDecoder,
    at: At,
    sum: Xxh64,
}

/// What a frame's header says.
#[derive(Debug, PartialEq, Eq)]
struct Header {
    length: usize,
    window_bytes: u64,
    has_checksum: bool,
}

impl Frames {
    pub fn new(input: Input) -> Self {
        Frames { input, decoder: FrameDecoder::new(), at: At::Header, sum: Xxh64::new(0) }
    }

    /// The next bytes of the object; 0 at its end.
    ///
    /// # Errors
    /// `WouldBlock` where more packed bytes are needed; others for what is no such frame.
    pub fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.at {
                At::Header => {
                    if self.input.fill_buf()?.is_empty() {
                        return Ok(0);
                    }
                    self.begin()?;
                }
                At::Skipping(0) => self.at = At::Header,
                At::Skipping(left) => {
                    let held = self.input.fill_buf()?.len();
                    if held == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    let count = held.min(usize::try_from(left).unwrap_or(usize::MAX));
                    self.input.consume(count);
                    self.at = At::Skipping(left - count as u64);
                }
                At::Blocks { has_checksum } => match self.take(buf)? {
                    0 => self.block(has_checksum)?,
                    count => return Ok(count),
                },
                At::LastBytes => match self.take(buf)? {
                    0 => self.end()?,
                    count => return Ok(count),
                },
            }
        }
    }

    fn take(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.decoder.read(buf)?;
        self.sum.update(&buf[..count]);
        Ok(count)
    }

    /// Waits for so many bytes to be there together.
    fn needed(&self, count: usize) -> io::Result<&[u8]> {
        match self.input.held().get(..count) {
            Some(bytes) => Ok(bytes),
            None if self.input.is_over => Err(io::ErrorKind::UnexpectedEof.into()),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn begin(&mut self) -> io::Result<()> {
        let first = self.needed(8)?;
        if first[1..4] == SKIPPED && first[0] & 0xf0 == 0x50 {
            let length = u32::from_le_bytes([first[4], first[5], first[6], first[7]]);
            self.input.consume(8);
            self.at = At::Skipping(length.into());
            return Ok(());
        }
        let most = self.input.held().len().min(HEADER_BYTES_MAX);
        let Some(header) = header(&self.input.held()[..most])? else {
            return self.needed(HEADER_BYTES_MAX).map(drop);
        };
        if header.window_bytes > WINDOW_BYTES_MAX {
            return Err(invalid("its window is larger than HTTP allows (8 MiB)"));
        }
        let mut bytes = &self.input.held()[..header.length];
        self.decoder.reset(&mut bytes).map_err(invalid)?;
        self.input.consume(header.length);
        self.sum = Xxh64::new(0);
        self.at = At::Blocks { has_checksum: header.has_checksum };
        Ok(())
    }

    fn block(&mut self, has_checksum: bool) -> io::Result<()> {
        let start = self.needed(BLOCK_HEADER_BYTES)?;
        let bits = u32::from_le_bytes([start[0], start[1], start[2], 0]);
        let (is_last, is_run, size) = (bits & 1 == 1, bits >> 1 & 3 == 1, bits as usize >> 3);
        let content = if is_run { 1 } else { size };
        let tail = if is_last && has_checksum { CHECKSUM_BYTES } else { 0 };
        let length = BLOCK_HEADER_BYTES + content + tail;
        self.needed(length)?;
        let mut bytes = &self.input.held()[..length];
        let one = BlockDecodingStrategy::UptoBlocks(1);
        self.decoder.decode_blocks(&mut bytes, one).map_err(invalid)?;
        self.input.consume(length);
        if is_last {
            self.at = At::LastBytes;
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        // The lower half is what a frame keeps.
        let sum = u32::try_from(self.sum.digest() & u64::from(u32::MAX)).unwrap_or_default();
        if self.decoder.get_checksum_from_data().is_some_and(|told| told != sum) {
            return Err(invalid("its checksum is another one"));
        }
        self.at = At::Header;
        Ok(())
    }
}

/// Whether the first block of a frame holds the beginning of another one. A decoder keeps a whole
/// window back before it gives any byte, so the block is made a frame of its own.
pub(super) fn holds_a_frame(packed: &[u8]) -> bool {
    let Ok(Some(Header { length, window_bytes, .. })) = header(packed) else { return false };
    let Some(&[first, second, third]) = packed.get(length..length + BLOCK_HEADER_BYTES) else {
        return false;
    };
    let bits = u32::from_le_bytes([first, second, third, 0]);
    let content = if bits >> 1 & 3 == 1 { 1 } else { bits as usize >> 3 };
    let end = length + BLOCK_HEADER_BYTES + content;
    if window_bytes > WINDOW_BYTES_MAX || packed.len() < end {
        return false;
    }
    let mut alone = packed[..end].to_vec();
    alone[4] &= !CHECKSUM_FLAG;
    alone[length] |= 1;
    let (mut decoder, mut source) = (FrameDecoder::new(), &alone[..]);
    let mut inside = [0; MAGIC.len()];
    decoder.reset(&mut source).is_ok()
        && decoder.decode_blocks(&mut source, BlockDecodingStrategy::All).is_ok()
        && decoder.read_exact(&mut inside).is_ok()
        && inside == MAGIC
}

/// A frame's header; `None` while it is incomplete.
fn header(bytes: &[u8]) -> io::Result<Option<Header>> {
    if bytes.len() >= MAGIC.len() && bytes[..MAGIC.len()] != MAGIC {
        return Err(invalid("it does not begin as zstd does"));
    }
    let Some(&descriptor) = bytes.get(4) else { return Ok(None) };
    let is_single = descriptor & 0x20 != 0;
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size = match descriptor >> 6 {
        0 if is_single => 1,
        0 => 0,
        flag => 1 << flag,
    };
    let window = usize::from(!is_single);
    let length = 5 + window + dictionary + size;
    let Some(rest) = bytes.get(5..length) else { return Ok(None) };
    let mut told = [0; 8];
    told[..size].copy_from_slice(&rest[window + dictionary..]);
    let told = u64::from_le_bytes(told) + if size == 2 { 256 } else { 0 };
    let window_bytes = match is_single {
        true => told,
        false => {
            let base = 1_u64 << (10 + (rest[0] >> 3));
            base + base / 8 * u64::from(rest[0] & 7)
        }
    };
    Ok(Some(Header { length, window_bytes, has_checksum: descriptor & CHECKSUM_FLAG != 0 }))
}

fn invalid(why: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}
